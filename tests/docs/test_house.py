"""tools/house.py finds what it is there for, and raises no false alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")


def test_a_circle_is_one_line() -> None:
    from house import circles

    imports = {
        "proxy.a.x": {"proxy.a.y"},
        "proxy.a.y": {"proxy.a.z"},
        "proxy.a.z": {"proxy.a.x"},
        "proxy.b": {"proxy.a.x"},
    }
    assert [*circles(imports)] == [
        ("proxy.a", "circle of imports: proxy.a.x -> proxy.a.y -> proxy.a.z -> proxy.a.x"),
    ]
    assert [*circles({**imports, "proxy.a.z": set()})] == []


def test_an_import_for_types_only_closes_a_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import house

    package = tmp_path / "halves"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("from halves.other import Other\n")
    (package / "other.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from halves.one import One\nclass Other: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(house, "PACKAGE", "halves")
    monkeypatch.setattr(house, "ROOT", tmp_path)
    assert [line for _, line in house.findings()] == ["circle of imports: halves.one -> halves.other -> halves.one"]


@pytest.mark.parametrize(
    "elsewhere",
    [
        "class Left: ...\nclass Right(Half): ...",  # two subclasses
        "def made() -> Half: ...",
        "def made() -> 'list[Half]': ...",
        "__all__ = ['Half']",
        "made = Half()",
        "class User:\n    def known(self, one): return isinstance(one, halves.Half)",
    ],
)
def test_a_base_that_somebody_names_is_no_mixin(elsewhere: str) -> None:
    from house import Classes

    half, whole = "class Half:\n    def again(self) -> Half: ...", "class Whole(Half):\n    '''Half of it.'''"
    files = {"half.py": half, "whole.py": whole}
    assert [*Classes(files).lone_mixins()] == [
        ("Half", "half.py:1: Half is only the base of Whole: make them one class")
    ]
    assert [*Classes({**files, "elsewhere.py": elsewhere}).lone_mixins()] == []


def test_a_base_that_only_names_members_is_no_mixin() -> None:
    from house import Classes

    base = 'class Half:\n    """The members."""\n    __slots__ = ("a",)\n'
    files = {"half.py": base, "whole.py": "class Whole(Half): ..."}
    assert [*Classes(files).lone_mixins()] == []
    files["half.py"] += "    def again(self): ..."
    assert len([*Classes(files).lone_mixins()]) == 1


def test_a_name_that_stands_twice() -> None:
    from house import Classes

    files = {"one.py": "class Reader: ...", "other.py": "import one\nclass Reader: ..."}
    assert [*Classes(files).doubles()] == [("Reader", "one.py:1: another class is called Reader: other.py:2")]


def _class(methods: int, attributes: int, before: str = "") -> dict[str, str]:
    fields = "".join(f"        self.a{number} = 0\n" for number in range(attributes))
    others = "".join(f"    def m{number}(self): ...\n" for number in range(methods - 1))
    return {"one.py": f"{before}class One:\n    def __init__(self):\n{fields}        pass\n{others}"}


def test_a_class_has_bounds() -> None:
    from house import large

    assert [*large(_class(40, 20), {})] == []
    for files in (_class(41, 3), _class(7, 21)):
        [(name, line)] = large(files, {})
        assert name == "One" and "at most 40 and 20" in line


def test_a_record_may_have_more_attributes() -> None:
    from house import large

    assert [*large(_class(6, 30), {})] == []
    assert [*large(_class(7, 30, "@dataclass(slots=True)\n"), {})] == []


def test_a_known_class_may_only_become_smaller() -> None:
    from house import large, shrunk

    known = {"One": (41, 25)}
    assert [*large(_class(41, 25), known)] == [*shrunk(_class(41, 25), known)] == []
    assert [name for name, _ in large(_class(42, 25), known)] == ["One"]
    assert [name for name, _ in large(_class(41, 26), known)] == ["One"]
    [line] = shrunk(_class(41, 24), known)
    assert "One has 41 methods and 24 attributes now" in line


def test_a_public_method_has_a_docstring_unless_a_base_has_it() -> None:
    from house import undocumented

    base = 'class Base:\n    def take(self):\n        """Take it."""\n'
    files = {"a.py": base, "b.py": "class Own(Base):\n    def take(self): ...\n    def give(self): ...\n"}
    line = "b.py:3: Own.give has no docstring, and no base says what it does"
    assert [*undocumented(files, ())] == [("Own", line)]
    assert [*undocumented(files, {"Own"})] == []
    assert [name for name, _ in undocumented({"b.py": files["b.py"]}, ())] == ["Own", "Own"]
