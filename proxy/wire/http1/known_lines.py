"""Field lines that came before. Most lines of a head are the very lines of an earlier one, on whichever connection: no
expression has to be matched on them again, nor a name to be looked for.

Python alone reads whole heads so; compiled code (scan.pyx) has no use for it. What is remembered is bounded, in number
and in bytes, and shared by all connections of a process. What is not well-formed is left to the expressions of
`wire.http1.syntax`, so that it is refused in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from proxy.wire.http1.syntax import FIELD_LINE

Pair = tuple[bytes, bytes]
AnyHead = TypeVar("AnyHead")

#: Lines that are remembered at most, of each sort, and the bytes of the longest.
KEPT: Final = 1000
LONGEST: Final = 512
#: Heads that are remembered at most, and the bytes of the longest.
HEADS: Final = 250
LONGEST_HEAD: Final = 2048
#: Lines of a head at most. Where there are more, most of them short and new, one match over all of them is cheaper.
MANY: Final = 64


class KnownLines(Generic[AnyHead]):
    """The field lines of requests, or of answers. `find` finds the names that matter (`wire.field_names`).

    `heads`: those whose lines with such a name, behind a status line, were these. All that is decided of a head, but
    for its request line, is decided by them.
    """

    def __init__(self, find: Callable[[bytes], list[Any]]) -> None:
        self.heads: dict[Sequence[bytes], AnyHead] = {}
        self._find = find
        self._plain: set[bytes] = set()
        self._telling: dict[bytes, Pair] = {}

    def telling(self, lines: list[bytes]) -> list[bytes] | None:
        """Those of a head's field lines that have a name that matters, in order; None where a line is malformed, or
        there are too many.
        """
        if len(lines) > MANY:
            return None
        plain, known, told = self._plain, self._telling, []
        for line in lines:
            if line not in plain:
                if line not in known:
                    tells = self._tells(line)
                    if tells is None:
                        return None
                    if not tells:
                        continue
                told.append(line)
        return told

    def pairs(self, told: list[bytes]) -> list[Pair]:
        """Name and value, in lower case, of lines that have a name that matters."""
        known = self._telling
        return [known.get(line) or self._pair(line)[0] for line in told]

    def keep(self, told: Sequence[bytes], head: AnyHead, size: int) -> None:
        """Remember a head of this size."""
        if size <= LONGEST_HEAD:
            if len(self.heads) >= HEADS:
                self.heads.clear()
            self.heads[told] = head

    def _tells(self, line: bytes) -> bool | None:
        """Whether a line that is not known has a name that matters; None: it is malformed."""
        if FIELD_LINE(line) is None:
            return None
        found = self._pair(line)
        if len(line) <= LONGEST:
            if len(self._plain) + len(self._telling) >= KEPT:
                self._plain.clear()
                self._telling.clear()
            if found:
                self._telling[line] = found[0]
            else:
                self._plain.add(line)
        return bool(found)

    def _pair(self, line: bytes) -> list[Pair]:
        found: list[Pair] = self._find(b"\n%b\r" % line.lower())
        return found
