"""What pages say in passing: every block is of a kind that some test tries, every verb, option, key and file exists."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import _parser
from proxy.config.schema import schema

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench/README.md"])
#: Who tries the blocks of a language; in plain ones there are pictures, and synopses of commands (below).
TRIED = {
    "": "test_verbs_and_options_exist",
    "sh": "test_guides, test_https_guide, test_clients_guide, tests/lab/test_simulate.py",
    "console": "test_guides, test_snippets, test_command_pages",
    "yaml": "test_guides, test_snippets",
    "python": "test_snippets",
    "dialect": "test_snippets",
    "scenario": "tests/lab/test_simulate.py",
    "http": "test_app_sees",
    **dict.fromkeys(("py", "js", "go", "java"), "test_clients_guide"),
}
SHELL = {
    "README.md",
    "simulate.md",
    *(page.name for name in ("tutorial", "guides") for page in ROOT.glob(f"docs/{name}/*.md")),
}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_blocks_are_of_kinds_that_are_tried(page: Path) -> None:
    opened = re.findall(r"^ *```(.*)\n(?:.*\n)*?^ *```$", page.read_text(), re.MULTILINE)
    assert set(opened) <= set(TRIED)
    assert "sh" not in opened or page.name in SHELL
    assert not {"py", "js", "go", "java"} & set(opened) or page.name == "clients.md"


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, made in action.choices.items():
                found |= {name: made, **{f"{name} {inner}": deeper for inner, deeper in verbs(made).items()}}
    return found


VERBS = verbs(_parser())


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_verbs_and_options_exist(page: Path) -> None:
    blocks = re.findall(r"```[\s\S]*?```", page.read_text())
    typed = re.findall(r"`([^`]+)`", re.sub(r"```[\s\S]*?```", "", page.read_text()))
    typed += [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    for line in (" ".join(re.split(r"   |&&|\|", each)[0].split()) for each in typed):
        found = re.match(r"(?:\S*bin/|eval \"\$\()?redrive ((?:ca )?[a-z]+)\b(.*)", line)
        if found is None:
            continue
        assert found[1] in VERBS, line
        known = {option for action in VERBS[found[1]]._actions for option in action.option_strings}
        assert set(re.findall(r"(?<!\S)\[?(--?[a-zA-Z]+(?:-[a-z]+)*)", found[2])) <= known, line


def keys(node: Any) -> set[str]:
    """The names of all properties in a JSON Schema."""
    found: set[str] = set()
    if isinstance(node, dict):
        found |= set(node.get("properties", ()))
        for each in node.values():
            found |= keys(each)
    elif isinstance(node, list):
        for each in node:
            found |= keys(each)
    return found


KEYS = keys(schema())
TOP = {"timeouts", "pushback", "classify", "limits", "buffers", "backoff", "strategy", "admin", "log", "ca", "pool",
       "defaults", "headers", "redis", "idempotency_key"}  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_keys_exist(page: Path) -> None:
    text = re.sub(r"```[\s\S]*?```", "", page.read_text())
    for path in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?:: [^`]*)?`", text):
        first, *rest = path.split(".")
        if first in TOP and rest[-1] not in ("py", "md", "yaml"):
            assert {first, *rest} <= KEYS, path


def test_contributings_verbs_exist() -> None:
    made = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for verb in re.findall(r"(?:^    |`)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE):
            assert verb in made, (named(page), verb)


def test_the_schemas_reference_is_the_file_that_editors_read() -> None:
    assert json.loads((ROOT / "config/redrive.schema.json").read_text()) == schema()
