"""Header blocks, put together from their frames and read: with the peer's table while it has one, then without.

A block is read even where nobody wants it, while the peer has a table; and what is unread is bounded.
"""

from __future__ import annotations

from typing import Final

from proxy.wire.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, PROTOCOL_ERROR, Broken
from proxy.wire.http2.heads import SHORT, Request2, Response2, Trailers2, read_answer, read_request, read_trailers
from proxy.wire.http2.hpack import Field, PeerTable, TooMuch, Unreadable, starts_without_table, walk

#: CONTINUATIONs of one head, and seconds until it is whole (contract, section 12).
CONTINUATIONS: Final = 64
HEAD_SECONDS: Final = 60.0


class Block:
    """A whole header block of the stream `number`; `end`: END_STREAM came with it.

    Reading it raises `heads.Malformed`, and Broken.
    """

    __slots__ = ("_data", "_fields", "_most", "end", "number")

    def __init__(self, number: int, end: bool, data: bytes, fields: list[Field] | None, most: int) -> None:
        self.number = number
        self.end = end
        self._data = data
        self._fields = fields
        self._most = most  # fields

    def request(self) -> Request2:
        """It as a request's head."""
        if self._fields is None and len(self._data) <= SHORT:
            try:
                return read_request(self._data, self.end)
            except Unreadable as bad:
                raise Broken(COMPRESSION_ERROR, str(bad)) from None
        return Request2(self.fields(), self.end)

    def answer(self) -> Response2:
        """It as an answer's head."""
        if self._fields is None and len(self._data) <= SHORT:
            try:
                return read_answer(self._data, self.end)
            except Unreadable as bad:
                raise Broken(COMPRESSION_ERROR, str(bad)) from None
        return Response2(self.fields(), self.end)

    def trailers(self) -> Trailers2:
        """It as trailers."""
        if self._fields is None and len(self._data) <= SHORT:
            try:
                return read_trailers(self._data)
            except Unreadable as bad:
                raise Broken(COMPRESSION_ERROR, str(bad)) from None
        return Trailers2(self.fields())

    def fields(self) -> list[Field]:
        """Its fields."""
        if self._fields is None:
            try:
                self._fields = walk(self._data, most=self._most)
            except Unreadable as bad:
                raise Broken(COMPRESSION_ERROR, str(bad)) from None
            except TooMuch:
                raise Broken(ENHANCE_YOUR_CALM, "a header list above twice the limit") from None
        return self._fields


class HeadReader:
    """See the module. `header_bytes` is the limit of a header list; twice that ends the connection.

    `acknowledged`: the peer has taken our SETTINGS, and so has no table. `number`: the stream whose head is coming, 0
    for none. `since`: when it began.
    """

    __slots__ = ("_end", "_fragments", "_frames", "_most", "_size", "_table", "acknowledged", "number", "since")

    def __init__(self, header_bytes: int) -> None:
        self._most = 2 * header_bytes
        self._table: PeerTable | None = PeerTable(self._most)
        self.acknowledged = False
        self.number = 0
        self.since = 0.0
        self._fragments: list[bytes] = []
        self._frames = self._size = 0
        self._end = False

    def begin(self, number: int, fragment: bytes, end: bool, now: float) -> None:
        """A HEADERS frame that CONTINUATIONs follow."""
        self.number, self._end, self.since = number, end, now
        self._fragments = [fragment]
        self._size = len(fragment)
        self._frames = 0

    def go_on(self, fragment: bytes, whole: bool) -> Block | None:
        """A CONTINUATION; the block, where that is the last. Raises Broken."""
        if not self.number:
            raise Broken(PROTOCOL_ERROR, "a CONTINUATION of nothing")
        self._fragments.append(fragment)
        self._frames += 1
        self._size += len(fragment)
        if self._frames >= CONTINUATIONS or self._size > self._most:
            raise Broken(ENHANCE_YOUR_CALM, "a header list without end")
        if not whole:
            return None
        number, self.number = self.number, 0
        data, self._fragments = b"".join(self._fragments), []
        return self.block(number, data, self._end)

    def block(self, number: int, data: bytes, end: bool) -> Block:
        """A whole block. Raises Broken where it cannot be read."""
        if len(data) > self._most:
            raise Broken(ENHANCE_YOUR_CALM, "a header list above twice the limit")
        at = 0
        fields: list[Field] | None = None
        try:
            table = self._table
            if table is None:
                if data and data[0] & 0xE0 == 0x20:
                    at = self._begins_anew(data)
            elif not self.acknowledged:
                fields = table.read(data)
            else:
                if not table.is_empty or (data and data[0] & 0xE0 == 0x20):
                    at = self._begins_anew(data)
                self._table = None
        except Unreadable as bad:
            raise Broken(COMPRESSION_ERROR, str(bad)) from None
        except TooMuch:
            raise Broken(ENHANCE_YOUR_CALM, "a header list above twice the limit") from None
        return Block(number, end, data[at:] if at else data, fields, self._most // 32)

    @staticmethod
    def _begins_anew(data: bytes) -> int:
        """Where the size updates of a block end that must leave a table of size 0."""
        empty, at = starts_without_table(data)
        if not empty:
            raise Unreadable("no update to a table of size 0 after the acknowledgement")
        return at
