"""The one connection to Redis of a process: it carries commands, and a subscription (RESP3).

The connection is the client library's; it is read all the time, so that messages of channels are heard as they come,
and the end of the connection is noticed at once, without a command. Replies come in the order of the commands. With a
server or library that does not know RESP3, the connection carries commands alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import RedisError, ResponseError


class _Pushed:
    """A message from Redis that is no reply to a command, but was pushed to a subscriber."""

    def __init__(self, words: list[Any]) -> None:
        self.words = words


class _Awaited:
    """A reply that is awaited. `confirmations`: for a subscription, how many confirming messages still have to come in
    place of a reply; 0 for a command.
    """

    def __init__(self, confirmations: int = 0) -> None:
        self.reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.confirmations = confirmations


class Line:
    """A connection to Redis. `connection`: the library's connection, not yet connected; `protocol`: the version of RESP
    to ask the server for.
    """

    def __init__(self, connection: Any, protocol: int) -> None:
        self._connection = connection
        self._protocol = protocol
        self._awaited: deque[_Awaited] = deque()
        self._heard: asyncio.Queue[tuple[str, bytes] | None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self.lost: Exception | None = None
        #: Called once, when the connection has ended, unless it was closed.
        self.ended: Callable[[], None] = lambda: None
        #: Whether the connection can carry a subscription beside the commands.
        self.subscribes = False

    async def open(self) -> None:
        """Connect. Raises OSError or a RedisError; a server that does not know the protocol raises ResponseError."""
        await self._connection.connect()
        parser = self._connection._parser
        takes_pushes = hasattr(parser, "pubsub_push_handler_func")
        if getattr(parser, "_hiredis_PushNotificationType", True) is None:
            takes_pushes = False
        self.subscribes = self._protocol >= 3 and takes_pushes
        if self.subscribes:
            parser.pubsub_push_handler_func = _pushed
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def ask(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send these commands. Returns for each its reply, or the error with which Redis answered it. If the connection
        ends before all replies have come, raises the error that ended it.
        """
        awaited = [_Awaited() for _ in commands]
        await self._send(commands, awaited)
        return list(await asyncio.gather(*(each.reply for each in awaited)))

    async def hear(self, channels: Sequence[str]) -> AsyncGenerator[tuple[str, bytes] | None]:
        """Yield the messages of these channels, each with its channel. Yields None once, when the subscription to all
        channels has begun. Raises when the connection ends. A connection has one subscription at a time.
        """
        heard: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()
        self._heard = heard
        try:
            confirmed = _Awaited(len(channels))
            await self._send([("SUBSCRIBE", *channels)], [confirmed])
            error = await confirmed.reply
            if error is not None:
                raise error
            yield None
            while (message := await heard.get()) is not None:
                yield message
            raise self.lost or LostConnectionError("the connection was closed")
        finally:
            if self._heard is heard:
                self._heard = None
                if self.lost is None and self._connection.is_connected:
                    with contextlib.suppress(OSError, RedisError):
                        await self._send([("UNSUBSCRIBE", *channels)], [_Awaited(len(channels))])

    async def close(self) -> None:
        """Close the connection; whatever still waits for a reply gets an error."""
        self.ended = lambda: None
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
        self._end(LostConnectionError("the connection was closed"))
        with contextlib.suppress(Exception):
            await self._connection.disconnect(nowait=True)

    async def _send(self, commands: Sequence[Sequence[Any]], awaited: Sequence[_Awaited]) -> None:
        connection = self._connection
        if self.lost is not None or not connection.is_connected:
            raise self.lost or LostConnectionError("the connection is closed")
        packed = connection.pack_commands(commands)
        self._awaited.extend(awaited)  # the commands are written before anything else runs: replies come in this order
        await connection.send_packed_command(packed, check_health=False)

    async def _read(self) -> None:
        try:
            while True:
                try:
                    reply = await self._connection.read_response(disconnect_on_error=False, push_request=True)
                except ResponseError as error:
                    reply = error
                if isinstance(reply, _Pushed):
                    self._take(reply.words)
                else:
                    self._answer(reply)
        except Exception as error:
            self._end(error)
            self.ended()

    def _answer(self, reply: Any) -> None:
        if not self._awaited:
            raise LostConnectionError("a reply that nothing asked for")
        future = self._awaited.popleft().reply
        if not future.done():
            future.set_result(reply)

    def _take(self, words: list[Any]) -> None:
        """Take in a message that is no reply: one of a channel, or the confirmation of a subscription."""
        kind = bytes(words[0])
        if kind in (b"subscribe", b"unsubscribe"):
            first = self._awaited[0] if self._awaited else None
            if first is not None and first.confirmations:
                first.confirmations -= 1
                if not first.confirmations:
                    self._answer(None)
        elif kind == b"message" and self._heard is not None:
            self._heard.put_nowait((words[1].decode(), bytes(words[2])))

    def _end(self, error: Exception) -> None:
        if self.lost is None:
            self.lost = error
        for each in self._awaited:
            if not each.reply.done():
                each.reply.set_exception(error)
                each.reply.exception()  # so that a reply which is not awaited any more is no complaint
        self._awaited.clear()
        if self._heard is not None:
            self._heard.put_nowait(None)


async def _pushed(words: list[Any]) -> _Pushed:
    return _Pushed(words)
