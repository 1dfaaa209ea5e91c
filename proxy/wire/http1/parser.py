"""Incremental readers of heads: bytes in, a head out as soon as it is complete. Requests and answers share the code.

Law: what is refused, and why, does not depend on how the bytes were cut into packets. A complete head in one packet
costs at most one match. If it repeats the previous head of this connection (most apps and upstreams repeat themselves),
or has known lines (`known_lines`), only what is new is matched. An unfinished head is kept, checked once for what can
never become a head, and searched on from three bytes before its old end; the expression runs again only when the empty
line has come. Bytes after a head stay in the reader until `leftover()` takes them, or the next `feed()` reads the next
head from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from proxy.wire.errors import BadAnswer, BadMessage, Refused, malformed
from proxy.wire.field_names import find_answer, find_request
from proxy.wire.http1.body import ChunkedBody
from proxy.wire.http1.compiled import CORE
from proxy.wire.http1.known_lines import KnownLines
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.response import ResponseHead
from proxy.wire.http1.syntax import (
    REQUEST,
    REQUEST_LINE,
    RESPONSE,
    STATUS_LINE,
    check_request_line,
    check_status_line,
    forbidden_octet,
)

if CORE == "compiled":
    from proxy.wire.http1.scan import scan_answer, scan_request

#: The contract's limits (section 3).
HEADER_BYTES = 64 * 1024
HEADERS = 256

#: Larger heads are not kept for comparison.
REPEATABLE = 8 * 1024

_REQUESTS: KnownLines[RequestHead] = KnownLines(find_request)
_ANSWERS: KnownLines[ResponseHead] = KnownLines(find_answer)

TOO_LARGE = "Request Header Fields Too Large"


class HeadParser:
    """A reader of heads, one after the other, from one direction of one connection. This base class reads requests;
    subclasses override the class variables.

    `header_bytes` bounds a head, first line and fields together; `headers` bounds the number of fields. `rest`: what
    was fed last, if it has bytes after the head that was returned; b"" if `leftover` has nothing to take.
    """

    __slots__ = ("_at", "_line_end", "_partial", "_roomy", "_skipped", "header_bytes", "headers", "rest")

    _match: ClassVar[Callable[..., re.Match[bytes] | None]] = REQUEST
    _check_line: ClassVar[Callable[..., None]] = staticmethod(check_request_line)
    _bad: ClassVar[Callable[..., BadMessage]] = staticmethod(malformed)
    _make: ClassVar[Callable[..., Any]] = RequestHead
    _may_skip: ClassVar[bool] = True

    def __init__(self, header_bytes: int = HEADER_BYTES, headers: int = HEADERS) -> None:
        self.header_bytes = header_bytes
        self.headers = headers
        # The shortest field line is four bytes long, so that a head of up to `_roomy` bytes keeps both limits.
        self._roomy = min(header_bytes, 4 * headers)
        self.rest = b""
        self._at = 0  # the offset of these bytes in it
        self._partial = bytearray()  # an unfinished head
        self._line_end = -1  # the end of its first line, once that was checked
        self._skipped = False  # whether an empty line before it was skipped

    def _hold_after(self, data: bytes, end: int) -> None:
        """Keep the bytes of `data` after the head that ends at `end`."""
        self._skipped = False
        if end != len(data):
            self.rest, self._at = data, end

    def _read(self, data: bytes) -> Any:
        """Return the next head from the bytes that are held and `data` after them; None if it is not whole."""
        if self._partial:
            return self._go_on(data)
        data, start = (self.rest[self._at :] + data, 0) if data else (self.rest, self._at)
        self.rest = b""
        found = self._match(data, start)
        if found is None:
            return self._go_on(data[start:])
        return self._taken(data, start, found)

    def _taken(self, data: bytes, start: int, found: re.Match[bytes]) -> Any:
        """Make a head of the match `found` in `data`, which begins at `start`; keep the bytes after it."""
        self._skipped = False
        end = found.end()
        if end != len(data):
            self.rest = data
            self._at = end
        raw = data[start:end]
        if end - start > self._roomy:
            self._check_size(raw)
        return self._make(raw, *found.groups())

    @property
    def pending(self) -> bool:
        """Whether bytes are held: of an unfinished head, or after the last one."""
        return bool(self.rest or self._partial)

    def begin_body(self, body: ChunkedBody) -> tuple[bytes, bool, bytes]:
        """Have the reader of a body read the bytes that are held after its head, and return what its `feed` does. They
        are not copied for that, as `leftover` would.
        """
        data, self.rest = self.rest, b""
        return body.feed(data, self._at) if data else (b"", False, b"")

    def leftover(self) -> bytes:
        """Take the bytes that are held: the beginning of a body after its head, or of what follows an upgrade."""
        if self._partial:
            rest = bytes(self._partial)
            self._partial.clear()
            self._line_end = -1
        else:
            rest = self.rest[self._at :] if self.rest else b""
            self.rest = b""
        return rest

    def _go_on(self, data: bytes) -> Any:
        """Read on with `data` when the fast path found no whole, well-formed head in the first packet. Returns the
        head, as `_taken` does, or None if it is still not whole; a head that is not well-formed raises.
        """
        held = self._partial
        checked = len(held)
        held += data
        if not self._skipped and self._may_skip and held.startswith(b"\r\n"):
            self._skipped = True
            del held[:2]
            checked = max(checked - 2, 0)
        if not held or not self._ended(held, checked):
            return None
        whole = bytes(held)
        held.clear()
        self._line_end = -1
        found = self._match(whole)
        if found is None:
            raise self._bad("a header field is malformed")
        return self._taken(whole, 0, found)

    def _ended(self, held: bytearray, checked: int) -> bool:
        """Whether `held` contains the empty line; its first `checked` bytes were searched before.

        Raises for what can never become a head. Only the first `header_bytes` are searched.
        """
        limit = self.header_bytes
        if self._line_end < 0:
            line = held.find(b"\r\n", max(checked - 1, 0), limit)
            self._forbid(held, checked - 1, line + 1 if line >= 0 else limit)
            if line >= 0:
                self._check_line(bytes(held[:line]))
                self._line_end = line
            elif len(held) >= limit:
                raise self._too_large(in_line=True)
            else:
                return False
        end = held.find(b"\r\n\r\n", max(checked - 3, self._line_end), limit)
        self._forbid(held, max(checked - 1, self._line_end), end + 1 if end >= 0 else limit)
        if end < 0 and len(held) >= limit:
            raise self._too_large(in_line=False)
        return end >= 0

    def _forbid(self, held: bytearray, start: int, end: int) -> None:
        """Raise if `held` has an octet between `start` and `end` that no head may contain."""
        detail = forbidden_octet(held, start, end)
        if detail is not None:
            raise self._bad(detail)

    def _check_size(self, raw: bytes) -> None:
        """Raise if a whole head exceeds the limits."""
        if len(raw) > self.header_bytes:
            raise self._too_large(in_line=raw.find(b"\n") >= self.header_bytes)
        if raw.count(b"\n") - 2 > self.headers:
            raise self._too_many()

    def _too_large(self, in_line: bool) -> BadMessage:
        return self._bad(f"the {'first line' if in_line else 'header'} is longer than {self.header_bytes} bytes")

    def _too_many(self) -> BadMessage:
        return self._bad(f"more than {self.headers} header fields")


class RequestParser(HeadParser):
    """A reader of request heads from what an app sends on one connection; raises Refused.

    The status is 414 if the request line exceeds `header_bytes`, 431 if the head does or has more fields than
    `headers`. After the reader has raised, it is of no further use. One empty line before a request is skipped (RFC
    9112 section 2.2).
    """

    __slots__ = ("_compiled", "_fields_at", "_last")

    def __init__(
        self, header_bytes: int = HEADER_BYTES, headers: int = HEADERS, *, compiled: bool = CORE == "compiled"
    ) -> None:
        super().__init__(header_bytes, headers)
        self._compiled = compiled
        self._last: RequestHead | None = None
        self._fields_at = 0  # the offset of its field lines

    def feed(self, data: bytes) -> RequestHead | None:
        """Add bytes; return the next head if it is whole now, else None. `feed(b"")` reads on in what is held."""
        head: RequestHead | None
        if self.rest or self._partial:
            head = self._read(data)
            return head
        last = self._last
        if self._compiled:
            head = scan_request(data, last, self.header_bytes, self.headers)
            if head is not None:
                end = len(head.raw)
                self._hold_after(data, end)
                if head is not last:
                    self._last = head if end <= REPEATABLE else None
                return head
        else:
            head = self._read_lines(data)
            if head is not None:
                return head
        found = REQUEST(data)
        if found is None:
            head = self._go_on(data)
            return head
        taken: RequestHead = self._taken(data, 0, found)
        if self._compiled and taken.slow_path is None and len(taken.raw) <= REPEATABLE:
            self._last = taken
        return taken

    def _read_lines(self, data: bytes) -> RequestHead | None:
        """Return the request head at the beginning of `data`, read in the fast way: what a line means is looked up if
        the same line came before. None if the head is not whole, or has to be read in the slower way, because a line is
        malformed or there are too many.
        """
        last = self._last
        if last is not None and data == last.raw:
            self._skipped = False
            return last
        begun, ended, rest = data.partition(b"\r\n\r\n")
        size = len(begun) + 4
        if not ended or size > self.header_bytes:
            return None
        line, _, fields = begun.partition(b"\r\n")
        found = REQUEST_LINE(line)
        if found is None:
            return None
        method, target = found.groups()
        if last is not None and fields == last.raw[self._fields_at : -4]:
            head = RequestHead.alike(last, data[:size], method, target)
            head._kept = last._kept
        else:
            lines = fields.split(b"\r\n") if fields else []
            significant = None if len(lines) > self.headers else _REQUESTS.significant(lines)
            if significant is None:
                return None
            key = tuple(significant)
            like = _REQUESTS.heads.get(key)
            if like is not None:
                head = RequestHead.alike(like, data[:size], method, target)
            else:
                head = RequestHead(data[:size], method, target, b"1", _REQUESTS.pairs(significant))
                if head.slow_path is None:
                    _REQUESTS.keep(key, head, size)
        self.rest, self._at, self._skipped = rest, 0, False
        if size <= REPEATABLE and head.slow_path is None:
            self._last, self._fields_at = head, len(line) + 2
        return head

    def _too_large(self, in_line: bool) -> Refused:
        detail = super()._too_large(in_line).detail
        return Refused(414, "URI Too Long", detail) if in_line else Refused(431, TOO_LARGE, detail)

    def _too_many(self) -> Refused:
        return Refused(431, TOO_LARGE, super()._too_many().detail)


class ResponseParser(HeadParser):
    """A reader of the heads of answers from what an upstream sends on one connection; raises BadAnswer.

    Each informational answer (1xx) is returned as a head of its own; feed on for the final one. The caller knows
    whether a 101 was asked for.
    """

    __slots__ = ("_compiled", "_last")
    _match, _check_line, _bad = RESPONSE, staticmethod(check_status_line), staticmethod(BadAnswer)
    _make = ResponseHead
    _may_skip = False

    def __init__(
        self, header_bytes: int = HEADER_BYTES, headers: int = HEADERS, *, compiled: bool = CORE == "compiled"
    ) -> None:
        super().__init__(header_bytes, headers)
        self._compiled = compiled
        self._last: ResponseHead | None = None

    def feed(self, data: bytes) -> ResponseHead | None:
        """Add bytes; return the next head if it is whole now, else None. `feed(b"")` reads on in what is held."""
        head: ResponseHead | None
        if self.rest or self._partial:
            head = self._read(data)
            return head
        last = self._last
        if self._compiled:
            head = scan_answer(data, last, self.header_bytes, self.headers)
            if head is not None:
                self._hold_after(data, len(head.raw))
                self._last = head
                return head
        else:
            head, rest = self._read_lines(data)
            if head is not None:
                self.rest, self._at = rest, 0
                return head
        found = RESPONSE(data)
        if found is None:
            head = self._go_on(data)
            return head
        taken: ResponseHead = self._taken(data, 0, found)
        if len(taken.raw) <= REPEATABLE:
            self._last = taken
        return taken

    def take(self, data: bytes) -> tuple[ResponseHead | None, bytes]:
        """Add bytes; return the next head if it is whole, and the bytes after it (`feed` and `leftover` at once)."""
        if not (self.rest or self._partial):
            last = self._last
            if self._compiled:
                head = scan_answer(data, last, self.header_bytes, self.headers)
                if head is not None:
                    self._last = head
                    text = data  # the slice names both its ends because `text` is a pointer when compiled
                    return head, text[len(head.raw) : len(data)]
            else:
                head, rest = self._read_lines(data)
                if head is not None:
                    return head, rest
        head = self.feed(data)
        return head, self.leftover() if head is not None else b""

    def _read_lines(self, data: bytes) -> tuple[ResponseHead | None, bytes]:
        """Return the head at the beginning of `data`, and the bytes after it, read in the fast way: what a line means
        is looked up if the same line came before. None if the head is not whole, or has to be read in the slower way,
        because a line is malformed or there are too many.
        """
        begun, ended, rest = data.partition(b"\r\n\r\n")
        size = len(begun) + 4
        if not ended or size > self.header_bytes:
            return None, b""
        raw, last = data[:size], self._last
        if last is not None and raw == last.raw:
            return last, rest
        lines = begun.split(b"\r\n")
        line = lines.pop(0)
        significant = None if len(lines) > self.headers else _ANSWERS.significant(lines)
        if significant is None:
            return None, b""
        key = (line, *significant)
        like = _ANSWERS.heads.get(key)
        if like is not None:
            head = ResponseHead.alike(like, raw)
        else:
            status = STATUS_LINE(line)
            if status is None:
                return None, b""
            minor, code, reason = status.groups()
            head = ResponseHead(raw, minor, code, reason, _ANSWERS.pairs(significant))
            if head.slow_path is None:
                _ANSWERS.keep(key, head, size)
        if size <= REPEATABLE:
            self._last = head
        return head, rest
