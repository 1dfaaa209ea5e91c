"""A cache of field lines. Most lines of a head are equal to lines of earlier heads, on any connection; such a line is
looked up instead of being matched again.

Only the Python reader uses the cache; compiled code (scan.pyx) has no need of it. The cache is bounded in number and in
bytes, and shared by all connections of a process. A malformed line is left to the expressions of `wire.http1.syntax`,
so that all refusals have one source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from proxy.wire.http1.syntax import FIELD_LINE

Pair = tuple[bytes, bytes]
AnyHead = TypeVar("AnyHead")

#: The most lines that are remembered, whether or not the proxy acts on their names, and the bytes of the longest.
KEPT: Final = 1000
LONGEST: Final = 512
#: The most heads that are remembered, and the bytes of the longest.
HEADS: Final = 250
LONGEST_HEAD: Final = 2048
#: The most lines of a head that are looked up. If a head has more, most of them short and new, one match over all of
#: them is cheaper.
MANY: Final = 64


class KnownLines(Generic[AnyHead]):
    """A cache of field lines that were found well-formed, of requests or of answers. `find` returns those names in a
    line that the proxy acts on (`wire.field_names`), with their values.

    `heads` maps lines to the head that was read from them: only lines with such a name (for an answer, its status line
    and these). Two heads that agree in these lines are treated alike in everything that does not depend on the request
    line.
    """

    def __init__(self, find: Callable[[bytes], list[Any]]) -> None:
        self.heads: dict[Sequence[bytes], AnyHead] = {}
        self._find = find
        self._plain: set[bytes] = set()
        self._significant: dict[bytes, Pair] = {}

    def significant(self, lines: list[bytes]) -> list[bytes] | None:
        """Return those of a head's field lines that have a name which the proxy acts on, in order; None if a line is
        malformed or there are too many.
        """
        if len(lines) > MANY:
            return None
        plain, known, found = self._plain, self._significant, []
        for line in lines:
            if line not in plain:
                if line not in known:
                    matters = self._matters(line)
                    if matters is None:
                        return None
                    if not matters:
                        continue
                found.append(line)
        return found

    def pairs(self, lines: list[bytes]) -> list[Pair]:
        """Return (name, value), both in lower case, of each of these lines, which `significant` has returned."""
        known = self._significant
        return [known.get(line) or self._pair(line)[0] for line in lines]

    def keep(self, lines: Sequence[bytes], head: AnyHead, size: int) -> None:
        """Remember `head`, which has `size` bytes, by those of its lines that `significant` has returned; unless the
        head is too large.
        """
        if size <= LONGEST_HEAD:
            if len(self.heads) >= HEADS:
                self.heads.clear()
            self.heads[lines] = head

    def _matters(self, line: bytes) -> bool | None:
        """Whether a line that is not in the cache has a name which the proxy acts on; None if it is malformed. The
        answer is remembered, unless the line is malformed or too long.
        """
        if FIELD_LINE(line) is None:
            return None
        found = self._pair(line)
        if len(line) <= LONGEST:
            if len(self._plain) + len(self._significant) >= KEPT:
                self._plain.clear()
                self._significant.clear()
            if found:
                self._significant[line] = found[0]
            else:
                self._plain.add(line)
        return bool(found)

    def _pair(self, line: bytes) -> list[Pair]:
        found: list[Pair] = self._find(b"\n%b\r" % line.lower())
        return found
