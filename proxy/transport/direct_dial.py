"""The opening of an HTTP/1 connection that waits for nothing but the connecting itself, which needs no task.

A task is two turns of the loop, its own objects, and a chain of coroutines for whatever may have to be waited for (a
place to dial, a name, a race of addresses, a parent proxy). Where none of that is needed, which is nearly always, the
event loop's coroutine is the only one, and is resumed here, as a task would: each time by the future that it waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from proxy.transport.connection import Connection
from proxy.transport.origins import Origin
from proxy.transport.pool import Pool


class DirectDial:
    """A dial of one connection to `origin`. Its end is reported by `opened` or `failed`, one of which is called unless
    the dial is cancelled, and never before `begin` has returned.
    """

    __slots__ = ("_cancels", "_connecting", "_connection", "_peer", "_waits", "origin", "pool")

    _connection: Connection
    _connecting: Coroutine[Any, Any, object]
    _peer: tuple[str, int]

    def __init__(self, pool: Pool, origin: Origin) -> None:
        self.pool = pool
        self.origin = origin
        self._cancels = 0
        self._waits: asyncio.Future[Any] | None = None  # what the connecting waits for

    def begin(self, within: float) -> bool:
        """Begin to connect, for at most `within` seconds; return False, with nothing begun, if something has to be
        waited for first, or the dial is of another kind (HTTP/2, say).
        """
        pool, origin = self.pool, self.origin
        dialer, endpoint = pool.dialer, origin.endpoint
        address = dialer.only_address(endpoint, origin.way)
        if not address or not pool.begin_dial(origin):
            return False
        self._peer = address, endpoint.port
        connection = self._connection = Connection(pool, origin, generation=pool.generation)
        times = dialer.times
        times.begin(self, within)
        try:
            tls = within if endpoint.scheme == "https" else None
            self._connecting = dialer.connecting(address, endpoint, origin.way, connection, tls)
            self._wait(self._connecting.send(None))
        except Exception as error:
            pool.call_soon(self._end, error)
        return True

    def cancel(self) -> None:
        """Give the dial up. The connection is closed, now or as soon as it is open."""
        self._cancels += 1
        if self._waits is not None:
            self._waits.cancel()

    def uncancel(self) -> int:
        """Take a `cancel` back, as that of a task, and return the number of the others."""
        self._cancels -= 1
        return self._cancels

    def opened(self, connection: Connection) -> None:
        """Take the connection, which is open now."""
        raise NotImplementedError

    def failed(self, error: BaseException) -> None:
        """Note that the connection could not be opened; `error` is one that `Pool.dial_failed` takes."""
        raise NotImplementedError

    def _wait(self, future: Any) -> None:
        future._asyncio_future_blocking = False  # asyncio requires it of a task that waits for the future
        self._waits = future
        future.add_done_callback(self._resume)

    def _resume(self, future: asyncio.Future[Any]) -> None:
        """Go on with the connecting, since what it has waited for is done; or end it, if the dial was cancelled."""
        self._waits = None
        try:
            if self._cancels:
                if not future.cancelled():
                    future.exception()  # looked at, else the loop reports it as an error that was missed
                waits = self._connecting.throw(asyncio.CancelledError())
            else:
                waits = self._connecting.send(None)
        except StopIteration:
            self._end(None)
        except (Exception, asyncio.CancelledError) as error:
            self._end(error)
        else:
            self._wait(waits)

    def _end(self, error: BaseException | None) -> None:
        """Give the place to dial back, and report how the dial went: `error` is None if the connection is open."""
        pool, dialer = self.pool, self.pool.dialer
        times = dialer.times
        timed_out = times.end(self)
        if error is None:
            dialer.reached(self._peer)
            pool.end_dial(self.origin, True, False)
            self.opened(self._connection)
            return
        dialer.failed_at(self._peer)
        self._connection.unwanted()
        pool.end_dial(self.origin, False, timed_out)
        if timed_out:
            self.failed(TimeoutError())
        elif not self._cancels and not isinstance(error, asyncio.CancelledError):
            self.failed(error)
