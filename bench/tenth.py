"""An upstream of which exactly every tenth answer is a failure, whichever connection it goes to.

Where chance draws the failures, five of ten attempts fail now and then, and a limit begins (contract, section 14); and
one call in a thousand is given up. Both are right, and change what many calls after them cost: a count of instructions
would say how often that happened to be drawn.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from email.utils import formatdate

_HEAD = "HTTP/1.1 {}\r\nServer: nginx\r\nDate: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: keep-alive\r\n"


def answer_to(asked: bytes, fails: bool, date: str, own: str) -> bytes:
    """The answer to a request, a failure if it `fails`. `own`: the id of the answer, if the request is to /own."""
    status, body = ("503 Service Temporarily Unavailable", "no\n") if fails else ("200 OK", "hello, world\n")
    line = f"X-Request-Id: {own}\r\n" if b"/own" in asked.partition(b"\r\n")[0] else ""
    return f"{_HEAD.format(status, date, len(body))}{line}\r\n{body}".encode()


class _Requests(asyncio.Protocol):
    """The requests of one connection, which have no bodies: answers to /own have an id each."""

    answered = 0  # on all connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._came = transport, b""

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (end := self._came.find(b"\r\n\r\n")) >= 0:
            asked, self._came = self._came[:end], self._came[end + 4 :]
            _Requests.answered += 1
            fails = _Requests.answered % 10 == 0
            self._transport.write(answer_to(asked, fails, formatdate(usegmt=True), uuid.uuid4().hex))


def serve_tenth() -> int:
    """Serve from a thread of this process, for as long as the process lasts; returns the port."""
    ports: list[int] = []
    listens = threading.Event()

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Requests, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        listens.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    listens.wait()
    return ports[0]
