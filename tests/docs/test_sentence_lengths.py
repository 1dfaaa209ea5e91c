"""Sentences that can be read at once: on every page, at most a tenth of them have more than thirty words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The pages that people read from beginning to end; those that a program writes in part are among them.
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "bench/README.md")
    for page in ROOT.glob(pattern)
    if page.name not in ("CHANGELOG.md", "THIRD_PARTY.md") and not page.is_relative_to(ROOT / ".venv")
)
#: Words that a sentence may have, and the share of a page's sentences that may have more.
MOST, SHARE = 30, 0.1
#: The fewest words of a sentence: fewer, as in the cells of many tables, are a name or a number.
FEWEST = 4
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
_END = re.compile(r"(?<=[.!?])[\"')*]*\s+")
#: A period after these ends no sentence.
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|No|approx)\.")


def parts(text: str) -> Iterator[str]:
    """The paragraphs, list items and table cells of a page, each in one line, without code and addresses."""
    text = _COMMENT.sub("", _FENCE.sub("\n", text))
    gathered: list[str] = []
    for line in [*text.splitlines(), ""]:
        cells = line.strip()
        if (
            not cells
            or cells.startswith(("#", "|", ">"))
            or _ITEM.match(line)
            or (line.startswith("    ") and not gathered)
        ):
            if gathered:
                yield " ".join(gathered)
            gathered = []
        if cells.startswith("|"):
            yield from (cell for cell in re.split(r"(?<!\\)\|", cells) if cell.strip(" -:"))
        elif cells and not cells.startswith("#"):
            gathered.append(_ITEM.sub("", line).strip(" >"))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page."""
    for part in parts(text):
        plain = _ABBREVIATION.sub(r"\1", _LINK.sub(r"\1", re.sub(r"``?[^`]+``?", "code", part)))
        yield from (sentence for sentence in _END.split(plain) if len(sentence.split()) >= FEWEST)


def long_ones(page: Path) -> tuple[list[str], int]:
    """The sentences of a page that are too long, and how many sentences it has."""
    found = list(sentences(page.read_text()))
    return [sentence for sentence in found if len(sentence.split()) > MOST], len(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_at_most_a_tenth_is_long(page: Path) -> None:
    too_long, number = long_ones(page)
    assert len(too_long) <= max(SHARE * number, 1), "\n".join(["shorten some of these:", *too_long])


def test_how_sentences_are_told_apart() -> None:
    page = """# No sentence at all

One of `two. Not` three (and [four](https://x.example/a.b)). Another, e.g. this one: see
below! "And is this another?" Yes.

- An item of a list
- One of four words. Of three.

| a cell of four | another. Again |
| --- | --- |

```sh
nothing. Here
```
"""
    assert list(sentences(page)) == [
        "One of code three (and four).",
        "Another, e.g this one: see below!",
        '"And is this another?',
        "An item of a list",
        "One of four words.",
        " a cell of four ",
    ]
