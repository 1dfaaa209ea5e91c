"""The framing of a body that is written in chunks: one chunk for each piece, or chunks as they came."""

from __future__ import annotations

import asyncio

from proxy.transport.direct_write import write_at_once
from proxy.wire.head import Trailers
from proxy.wire.http1.body import chunk, end_chunked

#: A piece of this size or more is framed without being copied.
_FRAMED = 4096
#: A piece of this size or more is written beside its head, without being copied. To write two pieces takes as long as
#: to copy 32 KiB and write one past the transport, and as to copy 16 KiB and let the transport write one (us of CPU
#: on a loopback socket, copied and not: 5.9 and 5.8 with 32 KiB, 24.8 and 22.0 with 256).
LARGE = 32 * 1024


def write_chunk(transport: asyncio.WriteTransport, data: bytes, end: bytes = b"") -> None:
    """Write data as one chunk, and `end` after it: what ends the body, if it does (`end_chunked`). No data is no chunk,
    since an empty one would end the body.
    """
    if len(data) < _FRAMED:
        transport.write(chunk(data) + end)
    else:
        transport.writelines((b"%x\r\n" % len(data), data, b"\r\n" + end))


def write_framed(
    transport: asyncio.WriteTransport, head: bytes, data: bytes, chunked: bool, end: bool, trailers: Trailers | None
) -> None:
    """Write a head and the part of its body that has arrived, in one call. `chunked`: the body is sent in chunks; if
    so, and `data` is the rest of it (`end`), the last chunk and the `trailers` (None for none) follow.
    """
    rest = b""
    is_large = len(data) >= LARGE
    if chunked:
        if is_large:
            head += b"%x\r\n" % len(data)
            rest = b"\r\n"
        else:
            data = chunk(data)
        if end:
            rest += end_chunked(trailers.lines if trailers is not None else b"")
    if is_large:
        transport.writelines((head, data, rest) if rest else (head, data))
    else:
        transport.write(head + data + rest)


class ChunkWriter:
    """The framing of one body on a transport.

    Law: a body that broke off never looks whole. Chunks that are passed on as they came may end in the middle, `owed`
    bytes before their end (the CRLF counts); data from elsewhere fills such a chunk first, and a body does not end in
    it.

    `socket`: the transport's, for `direct_write`, None if the transport itself has to write.
    """

    __slots__ = ("_last", "_owed", "_socket", "_transport")

    def __init__(self, transport: asyncio.WriteTransport, socket: object | None = None) -> None:
        self._transport = transport
        self._socket = socket
        self._owed = 0
        self._last = b""  # the last chunks, if the end of the body follows at once

    def write(self, data: bytes) -> None:
        """Write more of the body."""
        if self._owed:
            data = self._fill(data)
        write_chunk(self._transport, data)

    def pass_on(self, chunks: bytes, owed: int) -> None:
        """Write more of the body in chunks as they came (`ChunkedBody.pass_on`). `owed`: the bytes that are missing of
        the last one; below 0 if none is missing and `finish` is called next, so that the chunks are kept until then and
        written together with the end.
        """
        if owed < 0:
            self._owed, self._last = 0, chunks
        else:
            self._owed = owed
            write_at_once(self._transport, self._socket, chunks)

    def finish(self, trailers: bytes) -> bool:
        """Write the last chunk and the trailers; False, and nothing is written, if less came than a chunk has
        promised.
        """
        if self._owed:
            return False
        last, self._last = self._last, b""
        if last:
            self._transport.writelines((last, end_chunked(trailers)))
        else:
            self._transport.write(end_chunked(trailers))
        return True

    def _fill(self, data: bytes) -> bytes:
        """Write as much of `data` as is missing of the chunk that was passed on last; return the rest."""
        missing = max(self._owed - 2, 0)  # of the data, before the CRLF
        self._transport.write(data[:missing])
        if len(data) < missing:
            self._owed -= len(data)
            return b""
        self._transport.write(b"\r\n"[2 - min(self._owed, 2) :])
        self._owed = 0
        return data[missing:]
