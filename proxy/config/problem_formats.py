"""Problems as `redrive check` tells them: lines for people, with an excerpt on a terminal; JSON; GitHub's annotations.

The first line of a problem is `FILE:LINE:COLUMN: path: what`, whoever reads it. Everything else comes beside it.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.config.problems import Problem, Severity, printable

if TYPE_CHECKING:
    from rich.text import Text

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
_GITHUB = {"error": "error", "warning": "warning", "note": "notice"}
#: What a caret underlines: a quoted text, a word of its own, or the one character.
_WORD = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s,\[\]{}#]+")
#: Columns of a line that are shown in front of the place that is meant, where the line is too long.
_BEFORE = 30
#: The fewest columns that an excerpt gets.
_NARROWEST = 40


def counted(problems: Sequence[Problem]) -> str:
    """`1 error, 2 warnings`; "" where there is none. Notes are counted last."""
    found = Counter(problem.severity for problem in problems)
    return ", ".join(f"{found[kind]} {kind}{'' if found[kind] == 1 else 's'}" for kind in _SEVERITIES if found[kind])


def summary(file: str | None, upstreams: int | None, problems: Sequence[Problem]) -> str:
    """One line: whether the file is taken, and how much there was to say. `upstreams` is None where it is refused."""
    if upstreams is None:
        return f"{file}: refused, {counted(problems)}"
    parts = [f"{upstreams} upstream{'' if upstreams == 1 else 's'}"]
    parts += filter(None, [counted([each for each in problems if each.severity != "note"])])
    return f"{file or 'the defaults'}: fine, {', '.join(parts)}"


def as_json(file: str | None, upstreams: int | None, problems: Sequence[Problem]) -> str:
    """One object: what was checked, whether it is taken, and every problem. `upstreams` is None where it is refused."""
    found = Counter(problem.severity for problem in problems)
    told = {
        "file": file,
        "ok": upstreams is not None,
        "upstreams": upstreams,
        **{f"{kind}s": found[kind] for kind in _SEVERITIES},
        "problems": [
            {
                "file": each.file,
                "line": each.line or None,
                "column": each.column or None,
                "path": each.path,
                "severity": each.severity,
                "message": each.message,
            }
            for each in problems
        ],
    }
    return json.dumps(told, indent=2)


def as_github(problem: Problem) -> str:
    """A workflow command that puts the problem beside its line in a pull request."""
    places = [("file", problem.file), ("line", problem.line), ("col", problem.column), ("title", problem.path)]
    said = ",".join(f"{name}={_property(str(value))}" for name, value in places if value)
    return f"::{_GITHUB[problem.severity]} {said}::{_escaped(printable(problem.message))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(printable(text)).replace(":", "%3A").replace(",", "%2C")


# -- on a terminal -----------------------------------------------------------------------------------------------------


def to_terminal(problems: Sequence[Problem]) -> None:
    """Print problems to standard error, a terminal: in colour (but for NO_COLOR), each with its excerpt."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(stderr=True, highlight=False, soft_wrap=True, color_system=None if plain else "auto")
    for problem in problems:
        for line in on_terminal(problem, console.width):
            console.print(line)


def on_terminal(problem: Problem, width: int) -> Iterator[Text]:
    """The problem's line, and under it the line of the file with a caret, where there is one to show."""
    from rich.text import Text  # for terminals alone

    line, style = Text(str(problem)), _STYLES[problem.severity]
    where = f"{problem.file}:{problem.line}:{problem.column}:" if problem.line else f"{problem.file}:"
    line.stylize("bold", 0, len(printable(where)))
    shown = len(str(problem)) - len(printable(problem.message))
    line.stylize(style, shown - (0 if problem.severity == "error" else len(problem.severity) + 2))
    yield line
    found = _lines(problem.file)[problem.line - 1 : problem.line] if problem.line else []
    if found:
        yield from _excerpt(problem, found[0], width, style)


def _excerpt(problem: Problem, text: str, width: int, style: str) -> Iterator[Text]:
    from rich.cells import cell_len
    from rich.text import Text

    number = f"{problem.line:>5} | "
    room = max(_NARROWEST, width - len(number))
    at = min(problem.column - 1, len(text))
    word = _WORD.match(text, at)
    meant = word[0] if word else text[at : at + 1]
    if text[at : at + len(meant) + 1].endswith(":") or meant.endswith(":"):
        meant = meant.removesuffix(":")
    before, after = _plain(text[:at]), _plain(text[at:])
    if cell_len(before + after) > room and cell_len(before) > _BEFORE:
        before = "…" + before[1 - _BEFORE :]
    shown = before + after
    while cell_len(shown) > room:
        shown = shown[: -max(2, cell_len(shown) - room + 1)] + "…"
    carets = max(1, min(cell_len(_plain(meant)), room - cell_len(before)))
    yield Text.assemble((number, "dim"), shown)
    yield Text.assemble((" " * (len(number) - 2) + "| ", "dim"), " " * cell_len(before), ("^" * carets, style))


def _plain(text: str) -> str:
    """As a terminal shows it in one line: a tab is a blank, what is not printable is escaped."""
    return printable(text.replace("\t", " "))


@lru_cache(maxsize=16)
def _lines(file: str) -> list[str]:
    """The lines of a file, none where it can't be read (any more)."""
    try:
        return Path(file).read_bytes().decode("utf-8-sig", "replace").split("\n")
    except (OSError, ValueError):
        return []
