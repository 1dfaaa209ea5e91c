"""Turns of phrase that a native reader stumbles over, each with the plain form: they do not come back.

The list is short on purpose: what a reviewer would mark every time. It is no judge of style.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Where people read: the pages, what the command and the dashboard say, and the examples' comments.
READ = sorted(
    file
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "proxy/**/*.py",
        "proxy/admin/static/*.[jh]*",
        "config/**/*.yaml",
        "deploy/**/*.md",
        "tools/*.py",
    )
    for file in ROOT.glob(pattern)
    if file.name not in ("CHANGELOG.md", "THIRD_PARTY.md")
)
#: A pattern, and what to write instead.
TURNS = {
    r"\banew\b": "again",
    r"\b(its|their) (many )?(kin|relatives)\b": "related fields",
    r"\bbecomes? of\b(?! the same)": "what happens to",
    r"\b(can|could|can't|cannot|to) be had\b": "available",
    r"\b(is|are) no (YAML|JSON|address|host|url|size|rate|duration|number|method|folder|socket)\b": "is not a …",
    r"\bhold \w+( \w+)? fast\b": "protect, keep",
    r"\b(is|are) come to\b": "results from, is made",
    r"\btold everywhere\b": "reported (say where)",
    r"\bwith a blank (behind|before)\b": "a space after, before",
}


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_stays_away(turn: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, each.start()) + 1}: {each[0]!r}"
        for file, text in _texts().items()
        for each in re.finditer(turn, text, re.IGNORECASE)
    ]
    assert not found, f"write {TURNS[turn]!r}: {', '.join(found)}"


_TEXTS: dict[Path, str] = {}


def _texts() -> dict[Path, str]:
    """Every file that people read, read once."""
    if not _TEXTS:
        _TEXTS.update((file, file.read_text()) for file in READ)
    return _TEXTS
