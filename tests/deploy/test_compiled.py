"""What is compiled: the types beside a module name all that its classes keep; what is built is what stands there."""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.util
import os
import pickle
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import LinkError

from proxy import cli, stale_build
from proxy.observe.call_record import Course, refused
from proxy.retry import facts, value_bases
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.policies import dialect, policy
from proxy.retry.policies.policy import Backoff, Policy, Strategy
from proxy.wire.http1.compiled import CORE

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from one_library import ORDER, BuildLibrary  # noqa: E402

MODULES = re.findall(r'^    "(proxy[\w.]+)",$', (ROOT / "setup.py").read_text(), re.M)
TYPED = [module for module in MODULES if (ROOT / module.replace(".", "/")).with_suffix(".pxd").exists()]
#: The bases of values, and the values (dataclasses) by name.
BASES = [each for name, each in vars(value_bases).items() if name.endswith("Base")]
VALUES = {**vars(dialect), **vars(facts), **vars(policy)}
_CLASS = re.compile(r"^cdef class (\w+)(?:\((\w+)\))?:$")
_ATTRIBUTES = re.compile(r"^    cdef (?:public |readonly )?[\w ]+?(?:\[\d+\])? (\w+(?:, \w+)*)(?:  #.*)?$")


def declared() -> dict[str, tuple[str, set[str], str]]:
    """Each class with types: its base among them ("": none), the attributes that it declares itself, its module."""
    found: dict[str, tuple[str, set[str], str]] = {}
    for module in TYPED:
        names: set[str] = set()
        for line in (ROOT / module.replace(".", "/")).with_suffix(".pxd").read_text().splitlines():
            if (begun := _CLASS.match(line)) is not None:
                names = set()
                found[begun[1]] = begun[2] or "", names, module
            elif (named := _ATTRIBUTES.match(line)) is not None:
                again = names.intersection(named[1].split(", "))
                assert not again, f"{module}: {', '.join(sorted(again))} is declared twice, which does not compile"
                names.update(named[1].split(", "))
    return found


def assigned(module: str) -> Iterator[tuple[str, str]]:
    """Class and attribute of all that methods of a module's classes assign to `self`."""
    source = (ROOT / module.replace(".", "/")).with_suffix(".py")
    tree = ast.parse(source.read_text() if source.exists() else "")  # else it is a .pyx, which the compiler checks
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            for node in ast.walk(each):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "self"
                ):
                    yield each.name, node.attr


@pytest.mark.parametrize("module", TYPED)
def test_every_attribute_is_declared(module: str) -> None:
    """A compiled class has no room for what its `.pxd` does not name: setting it would raise AttributeError."""
    classes = declared()
    for name, attribute in assigned(module):
        if name not in classes:
            continue
        known: set[str] = set()
        base = name
        while base:
            base, names, _ = classes[base]
            known |= names
        assert attribute in known, f"{name}.{attribute} is not in {module.replace('.', '/')}.pxd"


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_a_base_of_values_names_all_fields_of_its_dataclass(base: type) -> None:
    """A field without a place in the base would be read by name, and one that is no field would be left out of the
    copies that are made of the value, and of what goes to other processes.
    """
    value, names = VALUES[base.__name__.removesuffix("Base")], base.__dict__["__slots__"]
    assert issubclass(value, base)
    assert set(names) == {field.name for field in fields(value)}
    assert declared()[base.__name__][1] == set(names)
    assert value.__dict__["__slots__"] == ()


def test_a_policy_is_the_same_in_another_process() -> None:
    sent = Policy("payments", "", Strategy("standard", "own", 3, Backoff(0.1, 20.0)), None, mode="observe")
    there = pickle.loads(pickle.dumps(sent, pickle.HIGHEST_PROTOCOL))
    assert [getattr(there, field.name) for field in fields(sent)] == [
        getattr(sent, field.name) for field in fields(sent)
    ]
    assert replace(there, mode="off").strategy == sent.strategy


@pytest.mark.parametrize("module", TYPED)
def test_every_function_with_types_is_defined(module: str) -> None:
    """What a types file declares and its module does not define fails to compile; Python alone does not see it."""
    file = (ROOT / module.replace(".", "/")).with_suffix(".py")
    source = (file if file.exists() else file.with_suffix(".pyx")).read_text()
    defined = set(re.findall(r"^ *(?:async def|def|c?p?def [^(\n]*?) *(\w+)\(", source, re.M))
    declares = re.findall(
        r"^ *cp?def (?!class |enum |extern )[^(\n]*?(\w+)\(", file.with_suffix(".pxd").read_text(), re.M
    )
    assert not set(declares) - defined


def test_every_types_file_belongs_to_a_module_that_is_compiled() -> None:
    beside = {str(path.relative_to(ROOT).with_suffix("")).replace("/", ".") for path in (ROOT / "proxy").rglob("*.pxd")}
    assert beside - {"proxy.wire.http1.octets"} <= set(MODULES)  # inlined where it is cimported: no module of its own


@pytest.mark.skipif(CORE != "compiled", reason="nothing is compiled here (make core)")
@pytest.mark.parametrize("module", MODULES)
def test_what_is_built_is_what_stands_there(module: str) -> None:
    """A build that is older than its source would run what nobody reads: `make core` again."""
    file = Path(str(importlib.import_module(module).__file__))
    assert file.name.startswith("_core."), f"{module} is not compiled"
    if file.parent == ROOT / "proxy":
        assert module not in stale_build._stale(file.parent), f"{module}: make core"


@pytest.mark.skipif(CORE != "compiled", reason="nothing is compiled here (make core)")
def test_the_library_has_the_modules_of_the_table_and_no_others() -> None:
    from proxy.compiled_modules import NAMES, find_spec

    assert {*MODULES, "proxy._compiled"} == NAMES
    assert find_spec("proxy.cli", None) is None
    spec = importlib.util.find_spec(MODULES[0])
    assert spec is not None and spec.has_location and not spec.submodule_search_locations
    assert sys.modules[MODULES[0]].__spec__ == spec


@pytest.mark.skipif(CORE != "compiled", reason="nothing is compiled here (make core)")
def test_records_of_calls_are_nothing_to_the_collector_of_cycles() -> None:
    course = Course(facts.Outcome.SUCCESS, 1, (AttemptRecord(1, 0.0),))
    record = refused(0.0, "", 400, facts.Outcome.BAD_REQUEST, "")
    assert [gc.is_tracked(each) for each in (course, course.history[0], record)] == [False, False, False]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with sources of one module whose files are all as old."""
    monkeypatch.delitem(sys.modules, "proxy.source_alone", raising=False)
    monkeypatch.setattr(stale_build, "__file__", str(tmp_path / "proxy/stale_build.py"))
    for name in ("setup.py", "proxy/retry/call/machine.py", "proxy/retry/call/machine.pxd", "proxy/_core.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000, 1000))
    return tmp_path


def test_a_source_that_is_newer_than_the_library_is_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(
        FILE=str(checkout / "proxy/_core.so"), NAMES={"proxy.retry.call.machine", "proxy._compiled"}
    )
    monkeypatch.setitem(sys.modules, "proxy.compiled_modules", library)
    assert stale_build.warning() == ""
    os.utime(checkout / "proxy/retry/call/machine.pxd", (2000, 2000))
    said = "the compiled core is older than its source (proxy.retry.call.machine): run `make core`"
    assert stale_build.warning() == said
    (checkout / "setup.py").unlink()
    assert stale_build.warning() == "", "an installed package has nothing to compile"


def test_a_file_of_types_that_is_no_modules_own_is_named_too(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have what stands in it inlined."""
    library = SimpleNamespace(FILE=str(checkout / "proxy/_core.so"), NAMES={"proxy.retry.call.machine"})
    monkeypatch.setitem(sys.modules, "proxy.compiled_modules", library)
    inlined = checkout / "proxy/retry/call/inlined.pxd"
    inlined.touch()
    os.utime(inlined, (1000, 1000))
    assert stale_build.warning() == ""
    os.utime(inlined, (2000, 2000))
    assert "(proxy.retry.call.inlined)" in stale_build.warning()


def test_a_build_of_one_file_for_each_module_is_seen_too(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proxy.compiled_modules", None)
    built = checkout / "proxy/retry/call/machine.cpython-311-x86_64-linux-gnu.so"
    built.touch()
    os.utime(built, (900, 900))
    assert "proxy.retry.call.machine" in stale_build.warning()
    os.utime(built, (1000, 1000))
    assert stale_build.warning() == ""


def test_an_old_file_of_a_module_that_is_not_compiled_any_more_is_seen_and_removed_by_a_build(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SimpleNamespace(FILE=str(checkout / "proxy/_core.so"), NAMES={"proxy.retry.call.machine"})
    monkeypatch.setitem(sys.modules, "proxy.compiled_modules", library)
    left, shadowed = (
        checkout / "proxy/retry/call/call_history.cpython-311.so",
        checkout / "proxy/retry/call/machine.abi3.so",
    )
    for each in (left, shadowed):
        each.touch()
        os.utime(each, (900, 900))
    left.with_name("call_history.py").touch()
    assert "(proxy.retry.call.call_history)" in stale_build.warning()
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(build_ext, "copy_extensions_to_source", lambda _: None)
    BuildLibrary(Distribution()).copy_extensions_to_source()
    assert [each.name for each in checkout.rglob("*.so")] == ["_core.so"]
    assert stale_build.warning() == ""


def test_python_alone_has_nothing_stale(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(FILE=str(checkout / "proxy/_core.so"), NAMES={"proxy.retry.call.machine"})
    monkeypatch.setitem(sys.modules, "proxy.compiled_modules", library)
    monkeypatch.setitem(sys.modules, "proxy.source_alone", library)
    os.utime(checkout / "proxy/retry/call/machine.py", (2000, 2000))
    assert stale_build.warning() == ""


@pytest.mark.parametrize("knows_orders", [True, False])
def test_functions_are_linked_in_their_order_if_the_linker_knows_orders(
    knows_orders: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = []

    def link(*_: object, extra_postargs: list[str], **__: object) -> None:
        linked.append(extra_postargs)
        if extra_postargs and not knows_orders:
            raise LinkError("unrecognized option -T")

    (tmp_path / "a.o").touch()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(BuildLibrary, "_compiled", lambda *_: str(tmp_path / "a.o"))
    builder = BuildLibrary(Distribution())
    builder.build_lib = str(tmp_path)
    builder.inplace, builder.compiler = False, SimpleNamespace(link_shared_object=link)
    library = Extension("proxy._core", ["_core.c"])
    library.parts = [Extension("proxy.a", ["a.c"])]  # type: ignore[attr-defined]
    builder.build_extension(library)
    assert linked == ([[f"-Wl,-T,{ORDER}"]] if knows_orders else [[f"-Wl,-T,{ORDER}"], []])


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'proxy.retry.past'", name="proxy.retry.past"),
        TypeError("past_deadline() missing 1 required positional argument: 'left'"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_verb_that_fails_in_a_stale_build_says_how_to_mend_that(
    error: Exception, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asks_for_the_past(options: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_parsed", lambda arguments: SimpleNamespace(verb=asks_for_the_past))
    monkeypatch.setattr(stale_build, "_stale", lambda package: iter(()))
    with pytest.raises(type(error)):
        cli.main([])
    monkeypatch.setattr(stale_build, "_stale", lambda package: iter(["proxy.retry.call.machine"]))
    assert cli.main([]) == 2
    said = "redrive: the compiled core is older than its source (proxy.retry.call.machine): run `make core`\n"
    assert capsys.readouterr().err == said
