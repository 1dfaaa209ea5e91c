"""The reader of header blocks: it joins them from their frames, and decodes them with the peer's dynamic table while
the peer has one, without it afterwards.

While the peer has a table, every block is read even if its fields are not needed. The bytes of an unfinished block are
limited.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.wire.http2.fields import Trailers2, read_trailers
from proxy.wire.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, PROTOCOL_ERROR, Broken
from proxy.wire.http2.hpack import Field, PeerTable, TooMuch, Unreadable, shows_no_table, starts_without_table, walk
from proxy.wire.http2.request import Request2, read_request
from proxy.wire.http2.response import Response2, read_answer

#: The most CONTINUATIONs of one head, and the seconds within which it must be whole (contract, section 12).
CONTINUATIONS: Final = 64
HEAD_SECONDS: Final = 60.0
#: The longest block, in bytes, that is cached with the head that it makes.
SHORT: Final = 2048


class HeadReader:
    """The reader of the header blocks of one connection. A header list above `header_bytes` is too large; one above
    twice that ends the connection.

    `acknowledged`: the peer has acknowledged our SETTINGS, and so has no dynamic table. While a head is coming in
    several frames: `number`: its stream, else 0; `end`: whether its HEADERS frame had END_STREAM; `since`: the time at
    which it began.
    """

    __slots__ = (
        "_ended", "_ending", "_fragments", "_frames", "_head", "_last", "_last_end", "_most", "_size", "_table",
        "acknowledged", "end", "number", "since",
    )  # fmt: skip

    def __init__(self, header_bytes: int) -> None:
        self._most = 2 * header_bytes
        self._table: PeerTable | None = PeerTable(self._most)
        self.acknowledged = False
        self.number = 0
        self.since = 0.0
        self._fragments: list[bytes] = []
        self._frames = self._size = 0
        self.end = False
        # The last head and the last trailers with their blocks, because nearly all peers repeat them.
        self._last: bytes | None = None
        self._last_end = False
        self._head: Any = None
        self._ending: bytes | None = None
        self._ended: Any = None

    def begin(self, number: int, fragment: bytes, end: bool, now: float) -> None:
        """Begin to collect a header block with `fragment`, from a HEADERS frame of stream `number` that CONTINUATIONs
        follow. `end`: whether the frame had END_STREAM.
        """
        self.number, self.end, self.since = number, end, now
        self._fragments = [fragment]
        self._size = len(fragment)
        self._frames = 0

    def go_on(self, fragment: bytes, whole: bool) -> bytes | None:
        """Add the payload of a CONTINUATION (`fragment`); return the block if the frame ends it (`whole`), else None.
        Raises Broken.
        """
        if not self.number:
            raise Broken(PROTOCOL_ERROR, "a CONTINUATION without a head before it")
        self._fragments.append(fragment)
        self._frames += 1
        self._size += len(fragment)
        if self._frames >= CONTINUATIONS or self._size > self._most:
            raise Broken(ENHANCE_YOUR_CALM, "a header list that does not end")
        if not whole:
            return None
        self.number = 0
        block, self._fragments = b"".join(self._fragments), []
        return block

    # -- whole blocks; reading one raises Malformed or Broken -------------------------------------------------------

    def request(self, block: bytes, end: bool) -> Request2:
        """Read `block`, a whole encoded header block, as a request's head. `end`: END_STREAM came with it, so that no
        body follows.
        """
        if block == self._last and end is self._last_end:
            request: Request2 = self._head
            return request
        fields = self._begin_block(block)
        if fields is None:
            try:
                head = read_request(block, end)
            except Unreadable as bad:
                raise Broken(COMPRESSION_ERROR, str(bad)) from None
            self._last, self._last_end, self._head = block, end, head
            return head
        return Request2(fields, end)

    def answer(self, block: bytes, end: bool) -> Response2:
        """Read `block`, a whole encoded header block, as an answer's head. `end`: END_STREAM came with it, so that no
        body follows.
        """
        if block == self._last and end is self._last_end:
            answer: Response2 = self._head
            return answer
        fields = self._begin_block(block)
        if fields is None:
            try:
                head = read_answer(block, end)
            except Unreadable as bad:
                raise Broken(COMPRESSION_ERROR, str(bad)) from None
            self._last, self._last_end, self._head = block, end, head
            return head
        return Response2(fields, end)

    def trailers(self, block: bytes) -> Trailers2:
        """Read `block`, a whole encoded header block, as trailers."""
        if block == self._ending:
            ended: Trailers2 = self._ended
            return ended
        fields = self._begin_block(block)
        if fields is None:
            try:
                found = read_trailers(block)
            except Unreadable as bad:
                raise Broken(COMPRESSION_ERROR, str(bad)) from None
            self._ending, self._ended = block, found
            return found
        return Trailers2(fields)

    def pass_over(self, block: bytes) -> None:
        """Decode a header block whose fields are not needed: the decoding of later blocks depends on it."""
        if self._begin_block(block) is None:
            self._fields(block, 0)

    def _begin_block(self, block: bytes) -> list[Field] | None:
        """Return the fields of a header block; None if the block is short, needs no dynamic table and begins with a
        field, so that a reader of `heads` that caches what it reads may be used.
        """
        if self._table is None and len(block) <= SHORT and (not block or block[0] & 0xE0 != 0x20):
            return None
        if len(block) > self._most:
            raise Broken(ENHANCE_YOUR_CALM, "a header list above twice the limit")
        at = 0
        try:
            table = self._table
            if table is not None and not self.acknowledged:
                return table.read(block)
            if (table is not None and not table.is_given_up) or (block and block[0] & 0xE0 == 0x20):
                empty, at = starts_without_table(block)
                if not empty and not (table is not None and table.is_empty and shows_no_table(block)):
                    raise Unreadable("no update to a table of size 0 after the acknowledgement")
            self._table = None
        except Unreadable as bad:
            raise Broken(COMPRESSION_ERROR, str(bad)) from None
        except TooMuch:
            raise Broken(ENHANCE_YOUR_CALM, "a header list above twice the limit") from None
        return self._fields(block, at)

    def _fields(self, block: bytes, at: int) -> list[Field]:
        try:
            return walk(block, at, self._most // 32)
        except Unreadable as bad:
            raise Broken(COMPRESSION_ERROR, str(bad)) from None
        except TooMuch:
            raise Broken(ENHANCE_YOUR_CALM, "a header list above twice the limit") from None
