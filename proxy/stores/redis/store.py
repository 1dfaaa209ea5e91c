"""The connection to a Redis for all buckets of a process: messages are sent in batches, with at most one round trip in
flight.

No call waits here. A bucket says when it has something to report (`soon`), all due messages are sent in one batch, and
each bucket gets its reply. A reply that takes longer than `timeout` is late: a retry that waits for the reply and is
due is decided without it. Leases are still trusted then, and the reply is awaited for `patience`. If a round trip fails
only because the connection failed, it is tried once more on a new connection. If that fails, or no reply comes, or the
answer is an error, Redis is *out* (`batches`), and is tried again in the background until it works.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import ResponseError

from proxy.stores.redis.absence import OnOutage
from proxy.stores.redis.batches import ALONG, BATCH, Batches, Notify, report_nothing
from proxy.stores.redis.bucket import Command, RedisBucket
from proxy.stores.redis.client import BadUrlError, RedisClient

#: Seconds that a new connection may take when no call waits for it: TLS and a look-up take more than a round trip.
CONNECTING = 2.0

#: Seconds for which a reply that has come in time may still be unread: the loop itself may have been late.
_READ = 0.002

#: Seconds that clients get to close when the process ends, and again once they are cancelled.
_CLOSING = 0.25

_USER_INFO = re.compile(r"//[^/@\s]*@")


class TooSlowError(Exception):
    """Redis did not reply in time."""


class RedisStore(Batches):
    """The connection to one Redis for all buckets of a process. `clock`: returns the time on the driver's clock; the
    other parameters are those of `Batches`.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        on_outage: OnOutage,
        clock: Callable[[], float],
        notify: Notify,
        dead: float = 10.0,
        observes: bool = False,
    ) -> None:
        super().__init__(
            timeout=timeout,
            on_outage=on_outage,
            notify=notify,
            draw=secrets.SystemRandom().random,
            draw_name=partial(secrets.token_hex, 6),
            dead=dead,
            observes=observes,
        )
        self.client: RedisClient | None = None
        self._url = url
        self._clock = clock
        self._beside: deque[Command] = deque(maxlen=BATCH)
        self._timer: asyncio.TimerHandle | None = None
        self._trip: asyncio.Task[None] | None = None
        self._running = self._opening = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def send(self, command: Command) -> None:
        """Send a command that belongs to no bucket with the next batch; its reply is ignored."""
        self._beside.append(command)
        self._plan()

    # -- running ----------------------------------------------------------------------------------------------------

    async def open(self, within: float = CONNECTING) -> None:
        """Begin: connect to Redis within `within` seconds or, if that fails, go on without Redis."""
        self._running = self._opening = True
        try:
            await self._within(self.reach(), within)
            if self.out_since is not None:
                self._report_end("Redis is back", self._clock())
        except Exception as error:
            self._lost(self._clock(), _because(error))
        finally:
            self._opening = False
        self._plan()

    def given_up(self) -> None:
        """Report the end of an outage, if there is one, because nothing is kept in Redis any more."""
        if self.out_since is not None:
            self._report_end("nothing is kept in Redis any more,", self._clock())
        self._notify = report_nothing

    async def close(self) -> None:
        """Return every lease, if Redis replies in time, and close the connection."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._trip is not None:
            await asyncio.wait({self._trip}, timeout=self.timeout)
        if not self.out and self.client is not None:
            for bucket in list(self._known):
                bucket.leave()
                self.soon(bucket, -math.inf)
            with contextlib.suppress(Exception):
                await self.round_trip()
        if self._trip is not None:
            self._leave_beside(self._trip)
        await self._drop()
        await self._end_tasks()

    async def _end_tasks(self) -> None:
        """Wait for the tasks in the background, which close clients mostly; those that still last after a moment are
        cancelled. Nothing refers to them afterwards, so a task that is not over would be destroyed while it waits.
        """
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSING)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSING)

    def is_due(self, within: float = 0.0) -> bool:
        """Whether a bucket has a message that is due now or within `within` seconds."""
        return self._schedule.first <= self._clock() + within + ALONG

    def alarm(self, at: float, ring: Callable[[float], None]) -> None:
        wait = max(0.0, at - self._clock()) + _READ
        asyncio.get_running_loop().call_later(wait, lambda: ring(self._clock()))

    def _plan(self) -> None:
        if not self._running or self._opening or self._trip is not None:
            return
        at = -math.inf if self._beside and not self.out else self._next
        if at == math.inf or (self._timer is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - self._clock()), self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, math.inf
        if self._running and self._trip is None:
            self._trip = asyncio.get_running_loop().create_task(self._go())

    async def _go(self) -> None:
        try:
            await self.round_trip()
        finally:
            self._trip = None
            if self.client is not None and self.client.is_lost:  # and this round trip has sent nothing
                self._cut(self.client)
            self._plan()

    async def look(self) -> None:
        """Ask Redis for the level of every bucket of this store now, and wait for the reply."""
        if self._trip is not None:
            await asyncio.wait({self._trip})
        now = self._clock()
        if not self._known or (self.out and (self._running or now < self._absence.next_try)):
            return
        for bucket in list(self._known):
            self.soon(bucket, now)
        if self._trip is None:
            self._trip = asyncio.get_running_loop().create_task(self._go())
        await asyncio.wait({self._trip})

    # -- one round trip ---------------------------------------------------------------------------------------------

    async def round_trip(self) -> None:
        """Send the messages that are due, and give each bucket its reply. Never raises."""
        buckets = self._take_due(self._clock())
        beside = list(self._beside)
        self._beside.clear()
        if not buckets and not beside and not self.out and self.client is not None:
            return
        try:
            try:
                await self._exchange(buckets, beside)
            except (LostConnectionError, OSError):
                await self._drop()
                if self.out:
                    raise
                await self._exchange(buckets, beside)
        except Exception as error:
            await self._drop()
            self._failed(buckets, self._clock(), _because(error))

    async def _exchange(self, buckets: list[RedisBucket], beside: list[Command]) -> None:
        if self.client is None:
            # While calls may wait for the reply, a new connection gets no more time than a reply: making it takes one.
            await self._within(self.reach(), CONNECTING if self.out else self.patience)
        assert self.client is not None
        now = self._clock()
        commands = [Command(each.script, each.key, each.message(now)) for each in buckets]
        self.round_trips += 1
        replies = await self._within(self.client.run([*commands, *beside]), self.patience)
        self._replied(buckets, replies, self._clock())

    async def reach(self) -> None:
        """Connect the client, or raise."""
        client = RedisClient(self._url, connecting=CONNECTING)
        try:
            await client.connect()
        except BaseException:
            await client.close()
            raise
        if self.client is not None:  # another has connected meanwhile, for a page that shows levels
            await client.close()
            return
        self.client = client
        client.ended = lambda: self._cut(client)

    def _cut(self, client: RedisClient) -> None:
        """Connect again, since the connection has ended, so that an outage is noticed before the next message is due.
        In a large fleet not all processes do so in one instant.
        """
        if client is self.client and self._running and self._trip is None and not self.out:
            self._leave_beside(asyncio.get_running_loop().create_task(self._drop()))
            self._absence.cut(self._clock(), self.crowd)
            self._plan()

    async def _within(self, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """Return the result of `work`, which is waited for at most `seconds`, and a moment more for a reply that has
        already arrived. Raises TooSlowError.
        """
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # its end may come when it is left
        for step in (seconds, _READ):
            done, _ = await asyncio.wait({task}, timeout=step)
            if done:
                return task.result()
        task.cancel()
        self._leave_beside(task)
        raise TooSlowError(f"no reply within {seconds * 1000:g} ms")

    def _leave_beside(self, task: asyncio.Task[Any]) -> None:
        """Let a task go on to its end in the background, because no call waits for its result any more."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _drop(self) -> None:
        """Close the client in the background: a reply that still arrives on it is ignored."""
        client, self.client = self.client, None
        if client is not None:
            self._leave_beside(asyncio.get_running_loop().create_task(client.close()))


def _because(error: Exception) -> str:
    """The text of an error in one clause, without secrets."""
    if isinstance(error, TooSlowError | BadUrlError | ResponseError):
        text = str(error).partition(". script:")[0]
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _USER_INFO.sub("//***@", " ".join(text.split()))[:200]
