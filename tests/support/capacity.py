"""An upstream that has a capacity, a queue and an end: so many requests are served at a time, each takes so long, the
others wait in order of arrival; it can be stopped and started again on its port, and refuse with 429.

    async with CapacityServer(places=4, seconds=0.02) as upstream:
        upstream.places = 2                # half of it is gone
        await upstream.stop()              # connections are refused, and those that were open are reset
        await upstream.start()

As a real server, it works on requests whose client has left: what times out in its queue takes its time all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections import deque
from types import TracebackType
from typing import Self

from support.patience import in_time

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class CapacityServer:
    """See the module. `throttled`: seconds of Retry-After with which every request is refused at once, None for none.
    `gap`: the least time in seconds between two requests that are served, 0 for none; one that comes sooner is refused
    at once with the status `refusal` and `Retry-After: 1`, as nginx's limit_req does without a burst.
    `requests` counts the requests that came, `served` those that were answered with 200; `most` is the largest number
    that were there at a time, under work or in the queue.
    """

    def __init__(self, places: int, seconds: float, *, port: int = 0) -> None:
        self.seconds = seconds
        self.port = port
        self.throttled: int | None = None
        self.gap = 0.0
        self.refusal = 503
        self._let_in_at = 0.0  # when a request was last not refused for `gap`
        self.requests = self.served = self.most = 0
        self._places = places
        self._busy = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._came = asyncio.Condition()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._kept: socket.socket | None = None  # has the port while it is stopped: any program may get a free one

    @property
    def places(self) -> int:
        """How many requests are served at a time."""
        return self._places

    @places.setter
    def places(self, places: int) -> None:
        self._places = places
        self._let_in()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._kept is not None:
            self._kept.close()

    async def start(self) -> None:
        """Listen, on the same port as before."""
        if self._kept is None:
            self._kept = _bound(self.port)
        self._server = await asyncio.start_server(self._serve, sock=self.take_port(), backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    def take_port(self) -> socket.socket:
        """The socket that has the port while the server is stopped, for another server to listen on."""
        kept, self._kept = self._kept, None
        assert kept is not None, "the server listens, or its port was taken"
        return kept

    async def stop(self) -> None:
        """Stop as a process that is killed does: no connection is accepted, and those that were open are reset."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._kept = _bound(self.port)
        for writer in self._open:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queue.clear()
        self._busy = 0

    async def until(self, requests: int) -> None:
        """Wait until so many requests have come."""
        async with self._came:
            came = self._came.wait_for(lambda: self.requests >= requests)
            await in_time(came, lambda: f"{self.requests} requests came, not {requests}")

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                if length is not None:
                    await reader.readexactly(int(length[1]))
                async with self._came:
                    self.requests += 1
                    self._came.notify_all()
                status, delay = self._refuses()
                if status:
                    line = f"HTTP/1.1 {status} Refused\r\nRetry-After: {delay}\r\n"
                    writer.write(line.encode() + b"Content-Length: 0\r\n\r\n")
                    continue
                await self._work()
                self.served += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._open.discard(writer)
            writer.close()

    def _refuses(self) -> tuple[int, int]:
        """The status and the Retry-After (seconds) with which a request that comes now is refused; (0, 0) if it is not
        refused.
        """
        if self.throttled is not None:
            return 429, self.throttled
        now = asyncio.get_running_loop().time()
        if now - self._let_in_at < self.gap:
            return self.refusal, 1
        self._let_in_at = now
        return 0, 0

    async def _work(self) -> None:
        """Wait for a place, and use it for `seconds`."""
        if self._busy >= self._places:
            turn = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            self.most = max(self.most, self._busy + len(self._queue))
            await turn
        else:
            self._busy += 1
            self.most = max(self.most, self._busy)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self._busy -= 1
            self._let_in()

    def _let_in(self) -> None:
        while self._queue and self._busy < self._places:
            turn = self._queue.popleft()
            with contextlib.suppress(asyncio.InvalidStateError):
                turn.set_result(None)
                self._busy += 1


def _bound(port: int) -> socket.socket:
    """A socket that has this port, and does not listen on it, so that connections to the port are refused."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound
