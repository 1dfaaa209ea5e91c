"""What is wrong with a configuration, and where it says so.

A problem is a value. Nothing in this room raises for a user's mistake; every mistake of a file is collected and
told in one line, with the place where the user can put it right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]


class Mark(NamedTuple):
    """A place in a file, counted from 1. Line 0: no file says so; `file` then names the source of the value
    (`default`, `AWS_RETRY_MODE`).
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


#: Known words that a wrong one is compared with, so that many mistakes beside many names cost no square.
MOST_KNOWN = 1000
#: Words beyond this are cut in messages: they are a mistake themselves, or a path that its ends tell.
_LONGEST = 240
_WORD = re.compile(r"\S++")


def _shorten(word: re.Match[str]) -> str:
    text = word[0]
    return text if len(text) <= _LONGEST else f"{text[:120]}...{text[-60:]}"


#: Where a value comes from that nobody wrote.
DEFAULT = Mark("default")

#: The parts of a key's path: `upstreams`, `github`, `routes`, 0, `match`.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One line for people. `path` is the key's dotted path, "" where the whole file is meant.

    Only errors refuse a configuration. A warning names a setting without effect, a note a figure worth knowing.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    severity: Severity = "error"

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        kind = "" if self.severity == "error" else f"{self.severity}: "
        return printable(": ".join(part for part in (where, self.path, kind + self.message) if part))


class Problems:
    """The collected problems of one load. What many inherit is told once, where it was written."""

    def __init__(self) -> None:
        self._found: list[Problem] = []
        self._seen: set[tuple[Mark, str, str]] = set()

    def add(self, mark: Mark, path: Path | str, message: str, severity: Severity = "error") -> None:
        """Note one problem at a place. A word of the user's that no line has room for is cut short."""
        where = _WORD.sub(_shorten, path if isinstance(path, str) else dotted(path))
        message = _WORD.sub(_shorten, message)
        key = mark, where.rpartition(".")[2], message
        if key not in self._seen:
            self._seen.add(key)
            self._found.append(Problem(mark.file, mark.line, mark.column, where, message, severity))

    def warn(self, mark: Mark, path: Path | str, message: str) -> None:
        """Note a setting without effect."""
        self.add(mark, path, message, "warning")

    @property
    def errors(self) -> list[Problem]:
        """Those that refuse the configuration."""
        return [problem for problem in self._found if problem.severity == "error"]

    @property
    def fatal(self) -> bool:
        """Whether any of them refuses the configuration."""
        return bool(self.errors)

    def sorted(self) -> list[Problem]:
        """All of them: file by file in the order of their first problem, from top to bottom."""
        files = {file: order for order, file in enumerate(dict.fromkeys(each.file for each in self._found))}
        return sorted(self._found, key=lambda each: (files[each.file], each.line, each.column))


def printable(text: str) -> str:
    """A text with every control character, line break and lone surrogate of it escaped (`\\x1b`, `\\u2028`): what is
    told of a file must not move a terminal's cursor, nor begin a line of its own.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def dotted(path: Path) -> str:
    """`routes[0].match.path`: keys joined by dots, positions in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` for the nearest known word, or nothing. Case and dashes count for little."""
    import difflib  # most files have nothing to be mended

    names = {name.lower().replace("-", "_"): name for name in islice(known, MOST_KNOWN)}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), names, n=1, cutoff=0.6)
    return f" (did you mean {names[near[0]]}?)" if near else ""


def meant(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """The nearest known word; where none is near, what else would help, or all of a few."""
    names = list(known)
    few = f"; there is {', '.join(names)}" if 0 < len(names) <= 12 else ""
    return did_you_mean(word, names) or (f"; {otherwise}" if otherwise else few)
