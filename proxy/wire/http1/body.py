"""Message bodies: by length, chunked, until the connection closes (RFC 9112 sections 6 and 7).

Law: framing is never guessed. A chunked body has five states (size line, data, the CRLF after it, trailers, done), an
unfinished line must be the beginning of a valid one, and everything except data has a limit. Extensions are skipped and
not forwarded. A body is framed again when it is forwarded, one chunk for each read, with its trailers as they came; or
its chunks are checked and passed on as they came (`ChunkedBody.pass_on`).
"""

from __future__ import annotations

import re

from proxy.wire.errors import BadBody
from proxy.wire.field_names import MISLEADING_TRAILERS
from proxy.wire.fields import CHUNKED, UNTIL_CLOSE
from proxy.wire.http1.chunk_data import gathered
from proxy.wire.http1.syntax import FVCHAR, TRAILERS, forbidden_octet

__all__ = [
    "BadBody",
    "Body",
    "ChunkedBody",
    "LengthBody",
    "UntilCloseBody",
    "body_reader",
    "chunk",
    "data_of",
    "end_chunked",
]

#: The most bytes of one size line, of all extensions of a body, and of its trailers.
LINE = 4 * 1024
EXTENSIONS = 64 * 1024
TRAILER_BYTES = 16 * 1024

#: White space before an extension is bad, and readers must skip it (RFC 9112 section 7.1.1, RFC 9110 section 5.6.3).
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16}+)([\t ]*+;" + FVCHAR + rb"*+)?+\r\n").match
_SIZE_BEGUN = re.compile(rb"[0-9A-Fa-f]{1,16}+(?:[\t ]*+;" + FVCHAR + rb"*+\r?+|[\t ]++|\r)?+").fullmatch
_EXTENSION_BEGUN = re.compile(FVCHAR + rb"*+\r?+").fullmatch
_MISLEADING = re.compile(rb"(?i:\n(?:" + b"|".join(sorted(MISLEADING_TRAILERS)) + rb"):)").search


class LengthBody:
    """The reader of a body of which `remaining` bytes are still to come."""

    __slots__ = ("remaining",)

    trailers = b""

    def __init__(self, size: int) -> None:
        self.remaining = size

    def feed(self, data: bytes, at: int = 0) -> tuple[bytes, bool, bytes]:
        """Return the payload in `data` from the offset `at` on, whether the body is whole, and the bytes after it."""
        data = data[at:] if at else data
        left = self.remaining - len(data)
        if left >= 0:
            self.remaining = left
            return data, not left, b""
        end = self.remaining
        self.remaining = 0
        return data[:end], True, data[end:]


class UntilCloseBody:
    """The reader of a body that ends with its connection."""

    __slots__ = ()

    trailers = b""

    def feed(self, data: bytes, at: int = 0) -> tuple[bytes, bool, bytes]:
        """Return all of `data` from the offset `at` on as payload; the body is never whole."""
        return data[at:] if at else data, False, b""


_SIZE_LINE, _DATA, _CRLF, _TRAILERS, _DONE = range(5)


class ChunkedBody:
    """The reader of a chunked body. `trailers` are raw lines with their CRLF (b"" for none), set once the body is
    whole. `passes`: its chunks are to be passed on as they come, so that `pass_on` reads it. `reads`: the payload of
    what `pass_on` returns is to be kept in `payload`, which is None otherwise. `owed`: the bytes that are missing of
    the chunk that was passed on last, its CRLF among them; 0 if it is whole.
    """

    __slots__ = (
        "_checked", "_extensions", "_held", "_left", "_passing", "_plain", "_state", "owed", "passes", "payload",
        "reads", "trailers",
    )  # fmt: skip

    def __init__(self) -> None:
        self._state = _SIZE_LINE
        self._left = 0  # bytes missing of the chunk's data, or of the CRLF after it
        self._held = bytearray()  # an unfinished size line or trailer section
        self._plain = 0  # the size that `_plain_size` has read
        self._checked = 0  # bytes of an unfinished size line that are known to be valid
        self._extensions = 0
        self.owed = 0
        self.passes = self.reads = False
        self.payload: bytes | None = None
        self._passing = False  # whether `pass_on` has begun
        self.trailers = b""

    def plain_chunks(self, data: bytes) -> int:
        """Return the number of bytes of payload in `data` if it may be forwarded as it is; else return 0 and read
        nothing, and `pass_on` is to be called. It may if it consists of whole chunks with data and without extensions,
        as nearly every read of a stream of events does, and if each chunk but the last ends with the end of a line, so
        that no line goes from one chunk to the next.
        """
        if not self._passing or self._state != _SIZE_LINE or self._held:
            return 0
        at = payload = 0
        most = len(data) - 2
        while True:
            begin = self._plain_size(data, at)
            end = begin + self._plain
            if begin == at or end == begin or end > most or data[end] != 13 or data[end + 1] != 10:
                return 0
            payload += end - begin
            if end == most:
                self.owed = 0
                return payload
            if data[end - 1] != 10:
                return 0
            at = end + 2

    def pass_on(self, data: bytes) -> tuple[bytes, int, bool, bytes]:
        """Return the chunks in `data` to forward as they came, the number of bytes of payload in them, whether the body
        is whole, and the bytes after it. Raises BadBody.

        Extensions are left out; the last chunk and the trailers are left to `end_chunked`, once they are whole. If
        `feed` has already returned a part of a chunk, the rest of that chunk is passed on as a chunk of its own. After
        the first call of this method, `feed` may not be called any more.
        """
        parts: list[bytes] = []
        read: list[bytes] = []  # the payload in pieces, if it is kept
        at, size, payload = 0, len(data), 0
        if not self._passing:
            at = self._begin_passing(data, parts)
        start = at  # what comes from here on is not among the parts yet
        while at < size:
            state = self._state
            if state == _DATA:
                step = min(self._left, size - at)
                if self.reads:
                    read.append(data[at : at + step])
                at += step
                payload += step
                self._left -= step
                if not self._left:
                    self._state, self._left = _CRLF, 2
            elif state == _CRLF:
                at = self._line_end(data, at)
            elif state == _SIZE_LINE:
                begun, at = at, self._plain_size_line(data, at)
                if at == begun:
                    parts.append(data[start:begun])
                    start = at = self._size_line(data, at)
                    if self._state == _DATA:
                        parts.append(b"%x\r\n" % self._left)
            elif state == _TRAILERS:
                start = at = self._trailer_section(data, at)
            else:
                break
        state = self._state
        self.owed = self._left + 2 if state == _DATA else self._left if state == _CRLF and self._passing else 0
        if self.reads:
            self.payload = read[0] if len(read) == 1 else b"".join(read)
        if not (parts or start) and at == size:  # nearly always
            return data, payload, self._state == _DONE, b""
        parts.append(data[start:at])
        forwarded = parts[0] if len(parts) == 1 else b"".join(parts)
        return forwarded, payload, self._state == _DONE, data[at:]

    def _begin_passing(self, data: bytes, parts: list[bytes]) -> int:
        """Begin to pass chunks on, at the place up to which the body was read: if that is inside a chunk's data, add to
        `parts`, the pieces to forward, a size line for the rest of the chunk. Return the offset from which on `data` is
        passed on.
        """
        if self._state == _CRLF:
            at = self._line_end(data, 0)
            self._passing = self._state != _CRLF
            return at
        self._passing = True
        if self._state == _DATA:
            parts.append(b"%x\r\n" % self._left)
        return 0

    def _plain_size_line(self, data: bytes, at: int) -> int:
        """Read a size line without extensions, of a chunk with data, if one begins at `at`, and return the offset of
        its end; else return `at`.
        """
        end = at if self._held else self._plain_size(data, at)
        if end == at or not self._plain:
            return at
        self._left, self._state = self._plain, _DATA
        return end

    def _plain_size(self, data: bytes, at: int) -> int:
        """Read the digits of a size line without extensions that begins at `at` and is whole, at most 15 of them, into
        `_plain`, and return the offset of its end; return `at` if none begins there.
        """
        size, end, last = 0, at, min(at + 15, len(data) - 2)
        while end <= last:
            octet = data[end]
            if 48 <= octet <= 57:
                size = size * 16 + octet - 48
            elif 97 <= octet | 32 <= 102:
                size = size * 16 + (octet | 32) - 87
            else:
                break
            end += 1
        if end == at or end > last or data[end] != 13 or data[end + 1] != 10:
            return at
        self._plain = size
        return end + 2

    def feed(self, data: bytes, at: int = 0) -> tuple[bytes, bool, bytes]:
        """Return the payload in `data` from the offset `at` on, whether the body is whole, and the bytes after it.
        Raises BadBody.
        """
        spans: list[int] = []  # the offsets of each piece of the payload, and of its end
        size = len(data)
        while at < size:
            state = self._state
            if state == _SIZE_LINE:
                at = self._whole_chunks(data, at, spans)
                if at < size and self._state == _SIZE_LINE:
                    at = self._size_line(data, at)
            elif state == _DATA:
                step = min(self._left, size - at)
                spans.append(at)
                at += step
                spans.append(at)
                self._left -= step
                if not self._left:
                    self._state, self._left = _CRLF, 2
            elif state == _CRLF:
                at = self._line_end(data, at)
            elif state == _TRAILERS:
                at = self._trailer_section(data, at)
            else:
                break
        return gathered(data, spans), self._state == _DONE, data[at:] if at < size else b""

    def _whole_chunks(self, data: bytes, at: int, spans: list[int]) -> int:
        """Add the data of the chunks from `at` on that are whole in `data` and have no extensions to `spans`, the quick
        way; return the offset of the first byte after them.
        """
        if self._held:
            return at
        most = len(data) - 2
        while (begin := self._plain_size(data, at)) != at:
            end = begin + self._plain
            if end > most or data[end] != 13 or data[end + 1] != 10:
                break
            at = end + 2
            if end == begin:
                self._state = _DONE
                break
            spans.append(begin)
            spans.append(end)
        return at

    def _size_line(self, data: bytes, at: int) -> int:
        """Read a size line, or more of it, from `at`; return the offset of its end in `data`."""
        held = self._held
        if held or (found := _SIZE(data, at)) is None:
            end = data.find(b"\n", at, at + LINE) + 1 or min(at + LINE, len(data))
            held += data[at:end]
            found = _SIZE(bytes(held)) if held[-1] == 0x0A else None
            if found is None:
                self._check_begun(held)
                return end
            held.clear()
            self._checked = 0
        else:
            end = found.end()
        self._take_size(found)
        return end

    def _check_begun(self, held: bytearray) -> None:
        """Raise BadBody if `held`, the beginning of an unfinished line, can never become a size line."""
        if self._checked:
            good = _EXTENSION_BEGUN(held, self._checked - 1)
        else:
            good = _SIZE_BEGUN(held)
        if good is None:
            raise BadBody("a chunk's size line is malformed")
        if len(held) >= LINE:
            raise BadBody(f"a chunk's size line is longer than {LINE} bytes")
        if b";" in held[:17]:
            self._checked = len(held)

    def _take_size(self, found: re.Match[bytes]) -> None:
        """Continue after the size line `found`: with the chunk's data, or with the trailers if the size is 0."""
        digits, extension = found.groups()
        if extension is not None:
            self._extensions += len(extension)
            if self._extensions > EXTENSIONS:
                raise BadBody(f"more than {EXTENSIONS} bytes of chunk extensions")
            if found.end() - found.start() > LINE:
                raise BadBody(f"a chunk's size line is longer than {LINE} bytes")
        size = int(digits, 16)
        if size >> 60:
            raise BadBody("a chunk's size is too large")
        self._left = size
        self._state = _DATA if size else _TRAILERS

    def _line_end(self, data: bytes, at: int) -> int:
        """Read the CRLF at the offset `at` of `data`, after a chunk's data, or its second half; return the offset of
        its end.
        """
        if self._left == 2 and at + 2 <= len(data) and data[at] == 13 and data[at + 1] == 10:
            self._left, self._state = 0, _SIZE_LINE
            return at + 2
        end = min(at + self._left, len(data))
        expected = b"\r\n"[2 - self._left :]
        if not expected.startswith(data[at:end]):
            raise BadBody("a chunk is longer than its size")
        self._left -= end - at
        if not self._left:
            self._state = _SIZE_LINE
        return end

    def _trailer_section(self, data: bytes, at: int) -> int:
        """Read the trailers from the offset `at` of `data` on, and the empty line after them, or as much as has come;
        return the offset of their end.
        """
        held = self._held
        if held or (found := TRAILERS(data, at)) is None:
            checked = len(held)
            held += data[at:]
            if not self._trailers_ended(held, checked):
                return len(data)
            found = TRAILERS(bytes(held))
            if found is None:
                raise BadBody("a trailer field is malformed")
        section = found.group()
        if len(section) > TRAILER_BYTES:
            raise BadBody(f"more than {TRAILER_BYTES} bytes of trailers")
        if len(section) > 2 and _MISLEADING(b"\n" + section):
            raise BadBody("a trailer field would change the framing or the routing")
        self.trailers = section[:-2]
        self._state = _DONE
        after = len(held) - len(section) if held else len(data) - found.end()
        held.clear()
        return len(data) - after

    def _trailers_ended(self, held: bytearray, checked: int) -> bool:
        """Whether `held` contains the empty line; its first `checked` bytes were searched before. Raises BadBody for
        bad octets.
        """
        if held.startswith(b"\r\n"):
            return True
        end = held.find(b"\r\n\r\n", max(checked - 3, 0), TRAILER_BYTES)
        detail = forbidden_octet(held, checked - 1, end + 1 if end >= 0 else TRAILER_BYTES)
        if detail is not None:
            raise BadBody(f"{detail} in the trailers")
        if end < 0 and len(held) >= TRAILER_BYTES:
            raise BadBody(f"more than {TRAILER_BYTES} bytes of trailers")
        return end >= 0


Body = LengthBody | ChunkedBody | UntilCloseBody


def body_reader(size: int) -> Body | None:
    """Return the reader for a body of the size that a head's `body_size` gives; None if there is no body."""
    if size > 0:
        return LengthBody(size)
    if size == CHUNKED:
        return ChunkedBody()
    return UntilCloseBody() if size == UNTIL_CLOSE else None


def data_of(chunks: bytes, size: int) -> bytes:
    """Return the data of `ChunkedBody.plain_chunks`, of which these have `size` bytes."""
    begin, end = len(chunks) - 2 - size, len(chunks) - 2
    if chunks.find(b"\n") == begin - 1:  # one chunk
        return chunks[begin:end]
    return ChunkedBody().feed(chunks)[0]


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk, or nothing for no data, since an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def end_chunked(trailers: bytes = b"") -> bytes:
    """Return the last chunk with the trailers, which are lines with their CRLF, as a reader gave them; b"" for none."""
    return b"0\r\n%b\r\n" % trailers
