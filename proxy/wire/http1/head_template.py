"""What the heads of one connection have in common, where an app sends much the same again and again.

A head that is read by its likeness to the one before is the head that reading it whole would give. The field lines
are the same, but for some values: of fields on which nothing hangs, and of a plain Content-Length. So only those values
are looked at, and what costs by the field is paid once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from proxy.wire.http1.syntax import VALUE

#: Values that may differ.
FEW = 6
_LENGTH = b"content-length"


class HeadTemplate:
    """The field lines of a head, and at which of them (`varying`: their numbers, in order) heads differ.

    lines: list[bytes]         a head that is `common`, cut at its CRLFs, without the last two
    steering: frozenset[bytes] lower-case names of fields on which something hangs
    """

    __slots__ = ("_before", "_behind", "_form", "_host", "_length", "_names", "lines", "steering", "varying")

    def __init__(self, lines: Sequence[bytes], steering: frozenset[bytes], varying: Sequence[int] = ()) -> None:
        self.steering = steering
        self.lines = lines
        self.varying = varying
        self._names = [lines[at].partition(b":")[0] for at in varying]
        self._length = next((n for n, name in enumerate(self._names) if name.lower() == _LENGTH), -1)
        edges = [0, *varying, len(lines)]
        between = [b"".join(b"%b\r\n" % line for line in lines[a + 1 : b]) for a, b in pairwise(edges)]
        *before, last = [b"\r\n" + some for some in between]
        marks = [b"%b%b:" % (some, name) for some, name in zip(before, self._names, strict=True)]
        self._before = [(mark, len(mark)) for mark in marks]  # what stands before each value, and behind the last
        self._behind = last + b"\r\n"
        self._host: bytes | None = None
        self._form = b""  # the field lines to send with that Host, %b in the place of what differs

    def read(self, data: bytes, at: int) -> tuple[int, list[bytes]] | None:
        """Where the head ends whose first line ends at `at`, and the values that may differ; None: it is not alike."""
        values: list[bytes] = []
        for mark, size in self._before:
            if not data.startswith(mark, at):
                return None
            at += size
            end = data.find(b"\r", at)
            if VALUE(data, at, end) is None:
                return None
            values.append(data[at:end])
            at = end
        if not data.startswith(self._behind, at):
            return None
        if self._length >= 0:
            length = values[self._length].lstrip(b" \t")
            if not length.isdigit() or len(length) > 18:
                return None
        return at + len(self._behind), values

    def length(self, values: Sequence[bytes]) -> bytes | None:
        """The Content-Length among the values; None where it does not differ, or there is none."""
        return None if self._length < 0 else values[self._length].lstrip(b" \t")

    def widened(self, head: bytes) -> HeadTemplate | None:
        """A likeness that takes in this head too (without the empty line); None where that is too far from it."""
        lines = head.split(b"\r\n")
        if len(lines) != len(self.lines):
            return None
        fields = range(1, len(lines))
        varying = {*self.varying, *(n for n in fields if lines[n] != self.lines[n])}
        if len(varying) > FEW or not all(self._may_differ(self.lines[n], lines[n]) for n in varying):
            return None
        return HeadTemplate(lines, self.steering, sorted(varying))

    def _may_differ(self, old: bytes, new: bytes) -> bool:
        """Whether two field lines, the first of which is valid, have the same name, and one whose value may differ."""
        name, colon, _ = new.partition(b":")
        if not colon or old.partition(b":")[0] != name:
            return False
        lowered = name.lower()
        return lowered not in self.steering or lowered == _LENGTH

    def sent(self, host: bytes | None, values: Sequence[bytes], make: Callable[[], bytes]) -> bytes:
        """The field lines to send on, with this Host, of a head with these values: as `make` has them, which is asked
        once for all that are alike.
        """
        if self._form and host == self._host:
            return self._form % (*values,)
        fields = make()
        self._learn(host, fields, values)
        return fields

    def _learn(self, host: bytes | None, fields: bytes, values: Sequence[bytes]) -> None:
        lines = fields.split(b"\r\n")
        form = [line.replace(b"%", b"%%") for line in lines]
        for name, value in zip(self._names, values, strict=True):
            line = b"%b:%b" % (name, value)
            if lines.count(line) != 1:  # nobody can say which of them differs
                return
            form[lines.index(line)] = name.replace(b"%", b"%%") + b":%b"
        self._host, self._form = host, b"\r\n".join(form)
