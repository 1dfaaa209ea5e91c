"""docs/architecture.md and docs/glossary.md name files and names that exist; docs/modules.md has every module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE, GLOSSARY, RULES = ROOT / "docs/architecture.md", ROOT / "docs/glossary.md", ROOT / "CONTRIBUTING.md"
MODULES = ROOT / "docs/modules.md"
#: As pages name modules in passing: `retry/call/machine`, `forward/exchange.py`, `transport.streams.UpstreamStream`.
ROOMS = sorted(each.name for each in (ROOT / "proxy").iterdir() if (each / "__init__.py").exists())


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    text = page.read_text().partition(f"{heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines is not None
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in lines[0].splitlines()[2:]]


def test_every_module_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    import modules

    assert MODULES.read_text() == modules.page(), "python tools/modules.py --write"


@pytest.mark.parametrize("row", rows(PAGE, "## Where is …"), ids=lambda row: row[0])
def test_where_it_is_said_to_be_it_is(row: list[str]) -> None:
    _, where, names = row
    files = [ROOT / path for path in re.findall(r"`(proxy/[^`]+)`", where)]
    assert files and all(file.is_file() for file in files), where
    source = "".join(file.read_text() for file in files)
    for name in re.findall(r"`([\w.]+)`", names):
        for part in name.split("."):
            assert re.search(rf"(?m)^ *(?:async )?(?:class|def) {part}\b", source), f"{name} is not in {where}"


@pytest.mark.parametrize("row", rows(GLOSSARY, "# Glossary"), ids=lambda row: row[0])
def test_a_word_of_ours_is_used_where_the_glossary_says(row: list[str]) -> None:
    words, _, _, where = row
    source = re.sub(r"[ _]", "", (ROOT / where.strip("`")).read_text().lower())
    for word in words.split(", "):
        assert word.replace(" ", "") in source, f"{word} is not in {where}"


def test_the_glossary_has_our_words() -> None:
    words = [row[0] for row in rows(GLOSSARY, "# Glossary")]
    assert len(words) >= 20 and len(words) == len(set(words))


@pytest.mark.parametrize("page", [PAGE, RULES], ids=lambda page: page.name)
def test_modules_that_are_named_exist(page: Path) -> None:
    named = re.findall(rf"(?<!tests/)(?:\b|proxy[/.])((?:{'|'.join(ROOMS)})[/.][a-z_0-9/.]+)", page.read_text())
    assert len(named) > 1
    for name in named:
        path = ROOT / "proxy" / name.rstrip("/.").removesuffix(".py").replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), name
