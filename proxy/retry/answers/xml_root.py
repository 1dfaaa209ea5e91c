"""An incremental reader of the beginning of an XML body, which finds the name of the root element.

The reader accepts what XML 1.0 allows before the root: a byte order mark, white space, the declaration, comments,
processing instructions, and a document type without an internal subset. S3 sends the declaration and then white space
for as long as it works (`CompleteMultipartUpload`, API reference).

Law: few bytes are looked at again when the next piece of the body comes: those that may begin the end of a comment or
the like, and at most 256 bytes of a start tag.
"""

from __future__ import annotations

from proxy.retry.instants import EPSILON, NEVER
from proxy.retry.policies.dialect import ErrorsInside

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
#: The bytes that end a name in a start tag.
_ENDS_NAME = frozenset(b" \t\r\n/>")
#: The beginnings and ends of markup before the root; the longest beginning first.
_BEFORE = ((b"<!--", b"-->"), (b"<!", b">"), (b"<?", b"?>"))


class RootReader:
    """The reader of one body. `name`: the root element's local name, "" until it is known. `over`: the name is known,
    or the body is not XML.
    """

    __slots__ = ("_end", "_rest", "_started", "name", "over")

    def __init__(self) -> None:
        self.name = ""
        self.over = False
        self._rest = b""  # the bytes that came and were not read yet
        self._end = b""  # the bytes that end the markup which is being read
        self._started = False  # a byte order mark, if there is one, has been read

    def feed(self, data: bytes) -> bool:
        """Take `data`, the next bytes of the body. Returns whether no more of the body is needed."""
        if not self.over:
            self._rest += data
            if not self._started and len(self._rest) >= len(_BOM):
                self._started = True
                self._rest = self._rest.removeprefix(_BOM)
            while self._read():
                pass
        return self.over

    def _read(self) -> bool:
        """Read one piece of what is before the root (a comment, a declaration or the like), or the root's start tag.
        Returns whether more can be read at once. If not, more bytes have to come, or the reader is done (`over`).
        """
        if self._end:
            _, found, after = self._rest.partition(self._end)
            self._rest = after if found else self._rest[1 - len(self._end) :] if len(self._end) > 1 else b""
            if found:
                self._end = b""
            return bool(found)
        rest = self._rest = self._rest.lstrip(_BLANK)
        if any(rest != begins and begins.startswith(rest) for begins, _ in _BEFORE):
            return False  # more bytes may make it one of these
        for begins, ends in _BEFORE:
            if rest.startswith(begins):
                self._rest, self._end = rest[len(begins) :], ends
                return True
        if not rest.startswith(b"<"):
            self.over = bool(rest) and self._started
            return False
        for at, byte in enumerate(rest[1:256], 1):
            if byte in _ENDS_NAME:
                self.name = rest[1:at].rpartition(b":")[2].decode("utf-8", "replace")
                self.over = True
                return False
        self.over = len(rest) >= 256
        return False


def root_of(body: bytes) -> str:
    """The local name of the root element of a body, or of its beginning; "" if it has none."""
    reader = RootReader()
    reader.feed(body)
    return reader.name


class RootLook:
    """The search for an error in the XML of a success (`ErrorsInside`), while the answer's head is kept back.
    `goes_on`: the time (seconds) at which the driver has to ask `is_tired`. `over`: the search has ended.
    """

    __slots__ = ("_came", "_inside", "_reader", "goes_on", "over")

    def __init__(self, inside: ErrorsInside, now: float) -> None:
        self._inside = inside
        self._reader = RootReader()
        self._came = False
        self.goes_on = now + inside.awake
        self.over = False

    def feed(self, data: bytes, now: float) -> bool:
        """Take `data`, the next bytes of the body. Returns whether the search is over because the root is not that of
        an error. A body with the root of an error is collected to its end.
        """
        if not self._came:
            self._came, self.goes_on = True, now + self._inside.awake
        if self._reader.feed(data):
            self.goes_on = NEVER
            self.over = self._reader.name != self._inside.root
        return self.over

    def is_tired(self, now: float) -> bool:
        """Whether the answer is delivered now although it is not known whether it is an error. It is if nothing but
        white space has come for as long as the dialect pack allows.
        """
        if now < self.goes_on - EPSILON:
            return False
        self.over = self._came
        self.goes_on = now + self._inside.awake
        return self.over
