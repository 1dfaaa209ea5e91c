"""Docstrings say their thing with the noun, subject first, as far as a test can hold it.

A reader who has not seen the code can't know what *it*, *they* or *those* are. Whether a sentence is clear is for that
reader to say; here are the turns that were most often unclear, and what to write instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Words that put something before the thing that the sentence is about.
BEFORE_THE_NOUN = re.compile(r"(It|They|What|Who|Whose|Whom|So|Those|That|One|Nobody|There|Behind|Of)\b")
#: A pattern, and what to write instead.
TURNS = {
    r"\bnobody\b": "no call, no process",
    r"\b(has|have) (its|their) say\b": "is asked, is due",
    r"\bas good as\b": "the exact state",
    r"\b[Ii]t is there\b": "exists, is open",
    r"(?<!`)\bbehind (it|them|that|which|a|an|the)\b": "after (of time or order)",
    r"\bhand(s|ed)? on\b": "pass on, forward",
    r"\blet(s|ting)? go of\b": "release, free",
    r"\bheed(s|ed)?\b": "obey",
}


@cache
def docstrings() -> list[tuple[str, str]]:
    """Where each docstring of the program is, and its text."""
    return [each for file in sorted((ROOT / "proxy").rglob("*.py")) for each in _docstrings(file)]


def _docstrings(file: Path) -> Iterator[tuple[str, str]]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(file.read_text())):
        text = ast.get_docstring(node) if isinstance(node, documented) else None
        if text:
            yield f"{file.relative_to(ROOT)}:{node.body[0].lineno}", text


def test_the_first_sentence_names_the_thing() -> None:
    found = [f"{place}: {text.splitlines()[0]}" for place, text in docstrings() if BEFORE_THE_NOUN.match(text)]
    assert not found, "begin with the noun, or with what a function does:\n" + "\n".join(found)


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_stays_away(turn: str) -> None:
    found = [f"{place}: {each[0]!r}" for place, text in docstrings() for each in re.finditer(turn, text)]
    assert not found, f"write {TURNS[turn]!r}:\n" + "\n".join(found)
