"""The readers of heads, of requests and of answers; how they read is in `proxy.wire.http1.parser`."""

from __future__ import annotations

from proxy.wire.field_names import ANSWER_STEERS, REQUEST_STEERS
from proxy.wire.http1.parser import HEADER_BYTES, HEADERS, REPEATABLE, TOO_LARGE, HeadParser
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.response import ResponseHead
from proxy.wire.http1.syntax import (
    REQUEST,
    REQUEST_LINE,
    RESPONSE,
    BadAnswer,
    BadMessage,
    Refused,
    check_request_line,
    check_status_line,
    malformed,
)

__all__ = ["HEADERS", "HEADER_BYTES", "BadAnswer", "BadMessage", "Refused", "RequestParser", "ResponseParser"]


class RequestParser(HeadParser[RequestHead]):
    """Reads request heads from what an app sends on one connection; raises Refused.

    414 where the request line passes `header_bytes`, 431 where the head does, or has more fields than `headers`.
    After it raised, the reader is of no further use. One empty line in front of a request is skipped (RFC 9112
    section 2.2).
    """

    __slots__ = ()
    _match = REQUEST
    _make = RequestHead
    _may_skip = True
    _steering = REQUEST_STEERS

    def feed(self, data: bytes) -> RequestHead | None:
        """Add bytes; the next head if it is whole now, else None. `feed(b"")` reads on in what is held."""
        if self._rest or self._partial:
            return self._read(data)
        last = self._last
        if last is not None:
            if data.startswith(last.raw):
                self._skipped = False
                if len(data) != len(last.raw):  # a body behind it
                    self._rest, self._at = data, len(last.raw)
                return last
            head = self._alike(last, data)
            if head is not None:
                return head
        found = REQUEST(data)
        if found is None:
            return self._go_on(data)
        head = self._taken(data, 0, found)
        if head.common and len(head.raw) <= REPEATABLE:
            self._last = head
            self._likeness = None
        return head

    def _alike(self, last: RequestHead, data: bytes) -> RequestHead | None:
        """The head that begins `data`, where it is like the last one (`wire.likeness`)."""
        line_end = data.find(b"\r\n")
        found = self._read_alike(last, data, line_end)
        line = REQUEST_LINE(data, 0, line_end)
        if found is None or line is None or found[0] > self._repeatable:
            return None
        end, values = found
        method, target = line.groups()
        raw = self._hold_behind(data, end)
        self._last = head = RequestHead.alike(last, raw, method, target, self._likeness, values)
        return head

    def _bad(self, detail: str) -> Refused:
        return malformed(detail)

    def _check_line(self, line: bytes) -> None:
        check_request_line(line)

    def _too_large(self, in_line: bool) -> Refused:
        detail = super()._too_large(in_line).detail
        return Refused(414, "URI Too Long", detail) if in_line else Refused(431, TOO_LARGE, detail)

    def _too_many(self) -> Refused:
        return Refused(431, TOO_LARGE, super()._too_many().detail)


class ResponseParser(HeadParser[ResponseHead]):
    """Reads heads of answers from what an upstream sends on one connection; raises BadAnswer.

    Informational answers (1xx) come out as heads of their own; feed on for the final one. Whether a 101 was asked for
    is for the caller to know.
    """

    __slots__ = ()
    _match = RESPONSE
    _make = ResponseHead
    _may_skip = False
    _steering = ANSWER_STEERS

    def feed(self, data: bytes) -> ResponseHead | None:
        """Add bytes; the next head if it is whole now, else None. `feed(b"")` reads on in what is held."""
        if self._rest or self._partial:
            return self._read(data)
        last = self._last
        if last is not None and data.startswith(last.raw):
            end = len(last.raw)
            if end != len(data):
                self._rest = data
                self._at = end
            return last
        if last is not None and last.common:
            head = self._alike(last, data)
            if head is not None:
                return head
        found = RESPONSE(data)
        if found is None:
            return self._go_on(data)
        head = self._taken(data, 0, found)
        if len(head.raw) <= REPEATABLE:
            self._last = head
            self._likeness = None
        return head

    def _alike(self, last: ResponseHead, data: bytes) -> ResponseHead | None:
        """The head that begins `data`, where it is like the last one (`wire.likeness`)."""
        line_end = last.raw.find(b"\r\n")
        if not data.startswith(last.raw[:line_end]):
            return None
        found = self._read_alike(last, data, line_end)
        if found is None or self._likeness is None or found[0] > self._repeatable:
            return None
        end, values = found
        self._last = head = ResponseHead.alike(last, self._hold_behind(data, end), self._likeness, values)
        return head

    def take(self, data: bytes) -> tuple[ResponseHead | None, bytes]:
        """`feed`, and behind a head `leftover`."""
        last = self._last
        if last is not None and data.startswith(last.raw) and not (self._rest or self._partial):
            return last, data[len(last.raw) :]
        head = self.feed(data)
        return head, self.leftover() if head is not None else b""

    def _bad(self, detail: str) -> BadAnswer:
        return BadAnswer(detail)

    def _check_line(self, line: bytes) -> None:
        check_status_line(line)
