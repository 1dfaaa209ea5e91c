"""Docstrings say their thing with the noun, subject first, as far as a test can hold it.

A reader who has not seen the code can't know what *it*, *they* or *those* are. Whether a sentence is clear is for that
reader to say; here are the turns that were most often unclear, and what to write instead.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Words that put something before the thing that the sentence is about.
BEFORE_THE_NOUN = re.compile(
    r"(It|They|What|Who|Whose|Whom|Which|So|These|Those|That|Such|One|Nobody|There|Behind|Of|As|If|Once|Until|For|When"
    r"|While|Where|Because|Since|By|After|Before|From|In|On|With|At(?! (most|least)))\b"
)
#: A pattern, and what to write instead.
TURNS = {
    r"\b[Nn]obody\b": "no call, no process",
    r"\b(has|have) (its|their) say\b": "is asked, is due",
    r"\bas good as\b": "the exact state",
    r"\b[Ii]t is there\b": "exists, is open",
    r"(?<!`)\bbehind (it|them|that|which|a|an|the)\b": "after (of time or order)",
    r"\bhand(s|ed)? on\b": "pass on, forward",
    r"\blet(s|ting)? go of\b": "release, free",
    r"\bheed(s|ed)?\b": "obey",
    r"\bwithout its end\b": "without its last event",
    r"\b([Ww]hat|[Ww]hatever) has come of\b": "the body so far, the bytes that came",
    r"\baffair\b": "decided, kept elsewhere (say where)",
    r"\bthose that last\b": "those in force",
    r"\bby the row\b": "in a row",
    r"\bof which (that|it) \w+s (a|an|the)\b": "whose … it ends",
}


def docstrings() -> Iterator[tuple[str, str]]:
    """Where each docstring of the program is, and its text."""
    return (each for file in sorted((ROOT / "proxy").rglob("*.py")) for each in _docstrings(file))


def _docstrings(file: Path) -> Iterator[tuple[str, str]]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(file.read_text())):
        text = ast.get_docstring(node) if isinstance(node, documented) else None
        if text:
            yield f"{file.relative_to(ROOT)}:{node.body[0].lineno}", text


def comments() -> Iterator[tuple[str, str]]:
    """Where each comment of the program is, and its text; the lines of one are joined."""
    return (each for file in sorted((ROOT / "proxy").rglob("*.py")) for each in _comments(file))


def _comments(file: Path) -> Iterator[tuple[str, str]]:
    begun, lines, last = 0, [], 0
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type != tokenize.COMMENT:
            continue
        is_alone = token.line.lstrip().startswith("#")
        if not (lines and is_alone and token.start[0] == last + 1):
            if lines:
                yield f"{file.relative_to(ROOT)}:{begun}", " ".join(lines)
            begun, lines = token.start[0], []
        lines.append(token.string if not lines else token.string.lstrip("#: "))
        last = token.start[0] if is_alone else 0
    if lines:
        yield f"{file.relative_to(ROOT)}:{begun}", " ".join(lines)


def test_docstrings_and_comments_name_the_thing_and_turns_stay_away() -> None:
    """In one test: several would be dealt to several processes, each of which would read the whole source anew."""
    documented, commented = list(docstrings()), list(comments())
    found = [f"{place}: {text.splitlines()[0]}" for place, text in documented if BEFORE_THE_NOUN.match(text)]
    assert not found, "begin with the noun, or with what a function does:\n" + "\n".join(found)
    of_constants = [(place, text.removeprefix("#: ")) for place, text in commented if text.startswith("#: ")]
    found = [f"{place}: {text}" for place, text in of_constants if BEFORE_THE_NOUN.match(text)]
    assert not found, "begin with the noun:\n" + "\n".join(found)
    for turn, better in TURNS.items():
        found = [f"{place}: {each[0]!r}" for place, text in documented + commented for each in re.finditer(turn, text)]
        assert not found, f"write {better!r}:\n" + "\n".join(found)
    assert len(documented) > 1000 and len(commented) > 1000
