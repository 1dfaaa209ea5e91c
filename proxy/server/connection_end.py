"""The end of an app's HTTP/1 connection: its last answer is sent, and what the app still sends is read and dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: The seconds of silence after which an app is read from no more once its last answer was sent: it sends nothing more.
LINGER = 2.0
#: Periods of LINGER for which what an app still sends is read at most: 30 s, as nginx's lingering_time. Some clients
#: read no answer before they have sent their request (urllib), or lose it if sending fails first (Node): RFC 9112
#: section 9.6.
SENDING = 15
#: Periods of LINGER after which an app that takes nothing of its last answer is cut off: 60 s, as nginx's send_timeout.
STALLED = 30


class StagedClose:
    """The close of one connection after its last answer. `abort`, which its methods get, closes the connection at once;
    with a RST if the app has not taken the answer.
    """

    __slots__ = ("_came", "_seen", "_sending", "_timer")

    def __init__(self) -> None:
        self._came = self._seen = 0  # bytes that came, and were dropped; those at the previous check
        self._sending = SENDING  # the further checks at which the app may still be sending
        self._timer: asyncio.TimerHandle | None = None

    def half_close(self, transport: asyncio.Transport, abort: Callable[[], None]) -> None:
        """Send our FIN, and let the app send on for a while. TLS has no FIN of one direction: the answer that the app
        has got says that the connection closes.
        """
        if transport.can_write_eof():
            transport.write_eof()
        self._look_again(transport, abort, transport.get_write_buffer_size(), STALLED)

    def close(self, transport: asyncio.Transport, abort: Callable[[], None]) -> None:
        """Close the connection once all written bytes were sent, whatever the app still sends."""
        left = transport.get_write_buffer_size()
        transport.close()
        if left:
            self._look_again(transport, abort, left, STALLED)

    def drop(self, size: int) -> None:
        """Drop `size` bytes that came."""
        self._came += size

    @property
    def is_sent_more(self) -> bool:
        """Whether the app has sent more after its last answer. It may read that answer only once it has sent all."""
        return self._came > 0

    def stop(self) -> None:
        """Stop waiting, because the connection is lost or closed otherwise."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self, transport: asyncio.Transport, abort: Callable[[], None], left: int, looks: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(LINGER, self._see_off, transport, abort, left, looks)

    def _see_off(self, transport: asyncio.Transport, abort: Callable[[], None], before: int, looks: int) -> None:
        """Close the connection once the app has had the whole answer for a while and sends nothing more, or has taken
        none of it for `looks` further checks. `before`: the unsent bytes at the previous check.
        """
        left, self._seen, seen = transport.get_write_buffer_size(), self._came, self._seen
        self._sending -= 1
        if left < before:
            self._look_again(transport, abort, left, STALLED)
        elif left and looks > 1:
            self._look_again(transport, abort, left, looks - 1)
        elif not left and self._came > seen and self._sending > 0:
            self._look_again(transport, abort, 0, STALLED)
        elif left or transport.can_write_eof():
            abort()
        else:
            transport.close()


class BodyRest:
    """The rest of a request's body that outlives its answer. `size`: the bytes of it that came, and were dropped."""

    __slots__ = ("_timer", "size")

    def __init__(self) -> None:
        self.size = 0
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, give_up: Callable[[], None], looks: int = STALLED) -> None:
        """Wait for the rest as long as it comes, and for at most `looks` periods of LINGER; then call `give_up`."""
        later = asyncio.get_running_loop().call_later
        self._timer = later(LINGER, self._look, give_up, self.size, looks - 1)

    def drop(self, size: int) -> None:
        """Drop `size` bytes that came."""
        self.size += size

    def stop(self) -> None:
        """Stop waiting, because the rest has come or is not read any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, give_up: Callable[[], None], before: int, looks: int) -> None:
        if self.size == before or looks == 0:
            give_up()
        else:
            self.wait(give_up, looks)
