"""The problems of a configuration, each with its position.

A problem is a value. Nothing in this package raises for a user's mistake; every mistake in a file is collected and
reported in one line, with the position where the user can fix it. That line, `FILE:LINE:COLUMN: path: what`, is the
same for every reader; a terminal also gets an excerpt of the file, and there are forms in JSON and for GitHub's
annotations.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from proxy.hidden_values import SHORTEST, HiddenValues

if TYPE_CHECKING:
    from rich.text import Text

Severity = Literal["error", "warning", "note"]


class Mark(NamedTuple):
    """A position in a file, counted from 1. Line 0 means that the value is not from a file; `file` then names its
    source (`AWS_RETRY_MODE`).
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


#: The most known words that a wrong one is compared with: many mistakes in a file with many names would take too long.
MOST_KNOWN = 1000
#: Words longer than this are cut in messages: they are a mistake themselves, or a path whose ends identify it.
_LONGEST = 240
_TOO_LONG = re.compile(rf"(?<!\S)\S{{{_LONGEST + 1},}}+")  # only matched at the beginning of a word
#: The position of a value that no file contains.
DEFAULT = Mark("default")

#: A file's size, its times of writing and of change, and its inode, at least one of which changes when the file is
#: written, on most file systems.
Stamp = tuple[int, int, int, int]
#: The parts of a key's path: `upstreams`, `github`, `routes`, 0, `match`.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, shown to people as one line. `path` is the key's dotted path, "" if the whole file is meant.

    Only an error refuses a configuration. A warning is about a setting without effect; a note tells the user a figure
    that follows from the settings.
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


def stamp_of(file: str) -> Stamp:
    """The stamp of a file, by which a change is seen without reading it."""
    try:
        found = pathlib.Path(file).stat()
    except OSError:
        return -1, 0, 0, 0  # a file that can't be examined does not count as empty
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


class Problems:
    """The collected problems of one load. A problem that many upstreams inherit is reported once, where it was
    written.
    """

    def __init__(self) -> None:
        self._found: list[Problem] = []
        self._seen: set[tuple[Mark, str, str]] = set()
        self._hidden: dict[str, str] = {}  # the references, by their secrets
        self._short: dict[Mark, dict[str, str]] = {}
        self._shown: dict[str, str] = {}
        self._hidden_where_shown: HiddenValues | None = None  # made of them
        #: The files that values refer to, absolute: references, credentials, service configs, certificates.
        self.referred: list[str] = []
        #: The configuration files without any text, as they were named.
        self.blank: list[str] = []
        #: The stamps that regular files, referred ones too, had before they were read, by their names.
        self.stamps: dict[str, Stamp] = {}

    def refer(self, file: str) -> None:
        """Add a file to `referred`, the files besides the configuration whose content the settings use. It is called
        before the file is read.
        """
        if file not in self.referred:
            self.referred.append(file)
            self.keep_stamp(file)

    def keep_stamp(self, file: str) -> None:
        """Keep the stamp of a regular file that is about to be read. That of a pipe changes when it is read."""
        if os.path.isfile(file):  # noqa: PTH113  a Path's raises if the name is too long
            self.stamps.setdefault(file, stamp_of(file))

    def hide(self, secret: str, reference: str, mark: Mark) -> None:
        """Put this reference in the place of a secret, in capitals or not, in all problems that are added from now on.
        `mark`: the position of the value that has the secret; a very short secret is replaced in problems there alone,
        as a whole word.
        """
        hidden = self._hidden if len(secret) >= SHORTEST else self._short.setdefault(mark, {})
        for spelling in (secret, repr(secret)[1:-1]):
            hidden[spelling] = reference

    def hide_where_shown(self, spelling: str, reference: str) -> None:
        """Add a secret that went into a value which pages and logs show, in one of its spellings, to `hidden`."""
        self._shown[spelling], self._hidden_where_shown = reference, None

    @property
    def hidden(self) -> HiddenValues | None:
        """The contents of files that went into values which pages and logs show, so far; None if there are none."""
        if self._shown and self._hidden_where_shown is None:
            self._hidden_where_shown = HiddenValues(self._shown)
        return self._hidden_where_shown

    def add(self, mark: Mark, path: Path | str, message: str, severity: Severity = "error") -> None:
        """Add a problem. `mark`: the position in the file; `path`: the key that it is about; `message`: what is wrong,
        as a clause that continues the key. Words of the user's that are too long for a line are cut short, and secrets
        are replaced.
        """
        if self._hidden:
            message = HiddenValues(self._hidden).text(message)
        if mark in self._short:
            message = HiddenValues(self._short[mark], whole_words=True).text(message)
        where, message = (
            _TOO_LONG.sub(lambda word: f"{word[0][:120]}...{word[0][-60:]}", text)
            for text in (path if isinstance(path, str) else dotted(path), message)
        )
        key = mark, where.rpartition(".")[2], message
        if key not in self._seen:
            self._seen.add(key)
            self._found.append(Problem(mark.file, mark.line, mark.column, where, message, severity))

    def warn(self, mark: Mark, path: Path | str, message: str) -> None:
        """Add a warning about a setting that has no effect, or not the expected one. The arguments are those of
        `add`.
        """
        self.add(mark, path, message, "warning")

    def take(self, others: Iterable[Problem]) -> None:
        """Add the problems that were collected in another `Problems`."""
        for each in others:
            self.add(Mark(each.file, each.line, each.column), each.path, each.message, each.severity)

    @property
    def errors(self) -> list[Problem]:
        """The problems that are errors, for which the configuration is refused."""
        return [problem for problem in self._found if problem.severity == "error"]

    @property
    def fatal(self) -> bool:
        """Whether any collected problem is an error, which refuses the configuration."""
        return bool(self.errors)

    def sorted(self) -> list[Problem]:
        """All problems, file by file in the order of their first problem, from top to bottom."""
        files = {file: order for order, file in enumerate(dict.fromkeys(each.file for each in self._found))}
        return sorted(self._found, key=lambda each: (files[each.file], each.line, each.column))


def printable(text: str) -> str:
    """A text with every control character, line break and lone surrogate escaped (`\\x1b`, `\\u2028`): a name in a file
    must not be able to move a terminal's cursor, or to begin a line of its own.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def dotted(path: Path) -> str:
    """A path as text, such as `routes[0].match.path`: keys joined by dots, positions in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to this one, None if none is similar. Case and dashes count for little."""
    import difflib  # imported late: most files have no mistakes

    names = {name.lower().replace("-", "_"): name for name in islice(known, MOST_KNOWN)}
    written = word.lower().replace("-", "_")
    for near in difflib.get_close_matches(written, names, cutoff=0.6):
        # a slip rarely changes the first letter and the length: `headers` is not meant as `ahead`
        if near[:1] == written[:1] or abs(len(near) - len(written)) <= 1:
            return names[near]
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` with the most similar known word; "" if none is similar."""
    near = nearest(word, known)
    return "" if near is None else f" (did you mean {near}?)"


def meant(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for an unknown word, to append to its error message: the most similar known word; if none is similar, the
    text `otherwise` or, without that, all known words if they are few, else "".
    """
    names = list(known)
    few = f"; choose from {', '.join(names)}" if 0 < len(names) <= 12 else ""
    return did_you_mean(word, names) or (f"; {otherwise}" if otherwise else few)


# -- the output of `redrive check` -------------------------------------------------------------------------------------

#: Each severity's style on a terminal, and GitHub's name of it.
_SEVERITIES: dict[Severity, tuple[str, str]] = {
    "error": ("bold red", "error"),
    "warning": ("yellow", "warning"),
    "note": ("cyan", "notice"),
}
#: The text that carets underline: a quoted text or a word.
_WORD = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s,\[\]{}#]+")
#: Columns of a line that are shown before the position of a problem if the line is too long.
_BEFORE = 30
#: The fewest columns that an excerpt gets.
_NARROWEST = 40


def counted(problems: Sequence[Problem]) -> str:
    """The number of problems of each severity, such as `1 error, 2 warnings`, notes last; "" if there are none."""
    found = Counter(problem.severity for problem in problems)
    return ", ".join(f"{found[kind]} {kind}{'' if found[kind] == 1 else 's'}" for kind in _SEVERITIES if found[kind])


def summary(file: str | None, upstreams: int | None, problems: Sequence[Problem]) -> str:
    """A line that says whether the file is accepted, and how many problems it has. `upstreams`: the number of upstreams
    in the file, None if the file is refused.
    """
    if upstreams is None:
        return f"{file}: refused, {counted(problems)}"
    parts = [f"{upstreams} upstream{'' if upstreams == 1 else 's'}"]
    parts += filter(None, [counted([each for each in problems if each.severity != "note"])])
    return f"{file or 'the defaults'}: fine, {', '.join(parts)}"


def as_json(file: str | None, upstreams: int | None, problems: Sequence[Problem]) -> str:
    """A JSON object: what was checked, whether it is accepted, and every problem. `upstreams`: the number of upstreams
    in the file, None if the file is refused.
    """
    found = Counter(problem.severity for problem in problems)
    report = {
        "file": file,
        "ok": upstreams is not None,
        "upstreams": upstreams,
        **{f"{kind}s": found[kind] for kind in _SEVERITIES},
        "problems": [
            {name: getattr(each, name) for name in ("file", "line", "column", "path", "severity", "message")}
            | {"line": each.line or None, "column": each.column or None}
            for each in problems
        ],
    }
    return json.dumps(report, indent=2)


def as_github(problem: Problem) -> str:
    """A workflow command that shows the problem beside its line in a pull request."""
    properties = [("file", problem.file), ("line", problem.line), ("col", problem.column), ("title", problem.path)]
    escaped = ((name, printable(str(value)).replace("%", "%25")) for name, value in properties if value)
    said = ",".join(f"{name}={value.replace(':', '%3A').replace(',', '%2C')}" for name, value in escaped)
    message = printable(problem.message).replace("%", "%25")
    return f"::{_SEVERITIES[problem.severity][1]} {said}::{message}"


def to_terminal(problems: Sequence[Problem]) -> None:
    """Print problems to standard error, a terminal: in colour (unless NO_COLOR is set), each with its excerpt."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(stderr=True, highlight=False, soft_wrap=True, color_system=None if plain else "auto")
    for problem in problems:
        for line in on_terminal(problem, console.width):
            console.print(line)


def on_terminal(problem: Problem, width: int) -> Iterator[Text]:
    """The lines that show a problem on a terminal of this width (in characters): its message and, if its position is a
    line of a file, that line and a caret under the word that is meant.
    """
    from rich.cells import cell_len  # imported late: only needed on a terminal
    from rich.text import Text

    line, style = Text(str(problem)), _SEVERITIES[problem.severity][0]
    where = f"{problem.file}:{problem.line}:{problem.column}:" if problem.line else f"{problem.file}:"
    line.stylize("bold", 0, len(printable(where)))
    begins = len(str(problem)) - len(printable(problem.message))
    line.stylize(style, begins - (0 if problem.severity == "error" else len(problem.severity) + 2))
    yield line
    lines = _lines(problem.file)
    if not 0 < problem.line <= len(lines):
        return
    text = lines[problem.line - 1]
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
    """A text as a terminal can show it in one line: a tab becomes a space, unprintable characters are escaped."""
    return printable(text.replace("\t", " "))


@lru_cache(maxsize=16)
def _lines(file: str) -> list[str]:
    """The lines of a file, none if it can't be read (any more)."""
    try:
        return pathlib.Path(file).read_bytes().decode("utf-8-sig", "replace").split("\n")
    except (OSError, ValueError):
        return []
