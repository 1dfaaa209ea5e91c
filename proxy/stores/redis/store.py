"""The connection to a Redis for all buckets of a process: messages are sent in batches, with at most one round trip in
flight.

No call waits here. Buckets say when they have something to report (`soon`), all due messages are sent in one batch, and
each bucket gets its reply. If one round trip takes longer than `timeout`, leases are still trusted, and the reply is
awaited for as long again. A round trip that fails is tried once more on a new connection if only the connection failed.
After that, after a second late reply, and after an answer that is an error, Redis is *out*: every bucket continues as
`on_outage` says, and all calls that wait for a reply are answered at once. Redis is tried again in the background until
it works. The outage and its end are reported once each.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
import re
import secrets
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import ResponseError

from proxy.stores.redis.absence import Absence, OnOutage
from proxy.stores.redis.bucket import RedisBucket
from proxy.stores.redis.client import BadUrlError, Command, RedisClient
from proxy.stores.redis.members import RedisMembers
from proxy.stores.redis.share import WHOLE, Share

#: Seconds: messages that are due this soon are sent with those that are due now.
_ALONG = 0.002
#: The most buckets in one batch.
_BATCH = 500
#: Seconds that a new connection may take when no call waits for it: TLS and a look-up take more than a round trip.
CONNECTING = 2.0

_USER_INFO = re.compile(r"//[^/@\s]*@")

Notify = Callable[..., None]


class TooSlowError(Exception):
    """Redis did not reply within `timeout`."""


class Schedule:
    """The buckets that have a message to send to Redis, each by the earliest time at which one is due
    (`RedisBucket.due`). If an earlier time is set for a bucket, its later entry stays in the heap, and is skipped when
    that time comes.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, RedisBucket]] = []
        self._number = 0

    def put(self, bucket: RedisBucket, at: float) -> bool:
        """Schedule a bucket's message for the time `at`, and return True; False if one is already scheduled as
        early.
        """
        if at >= bucket.due and not math.isinf(bucket.due):
            return False
        bucket.due = at
        self._number += 1
        heapq.heappush(self._entries, (at, self._number, bucket))
        return True

    @property
    def first(self) -> float:
        """The time at which the first bucket is due; infinity if none is."""
        entries = self._entries
        while entries and entries[0][2].due != entries[0][0]:  # sent already, or due at another time by now
            heapq.heappop(entries)
        return entries[0][0] if entries else math.inf

    def take(self, until: float, most: int) -> list[RedisBucket]:
        """Remove and return the buckets whose messages are due at `until` or earlier, at most `most` of them."""
        taken: list[RedisBucket] = []
        while len(taken) < most and self.first <= until:
            at, _, bucket = heapq.heappop(self._entries)
            bucket.due = math.inf
            if not bucket.puts_off(at, until):
                taken.append(bucket)
        return taken

    def clear(self) -> None:
        """Remove all buckets from the schedule."""
        for _, _, bucket in self._entries:
            bucket.due = math.inf
        self._entries.clear()


class RedisStore:
    """The connection to one Redis for all buckets of a process. `clock` is the driver's; `notify(event, lines,
    **facts)` reports an event to the operator. `on_outage`: what this process may spend while Redis is out. After
    `dead` seconds without a message from a process Redis takes its leases back. `observes`: this process only reads
    levels.
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
        self.holder = secrets.token_hex(6)
        self.out = False
        #: The part of every bucket's tokens that is this process's while Redis is out.
        self.share = WHOLE
        #: This process among those of its fleet; None until a factory sets it.
        self.members: RedisMembers | None = None
        self.dead = dead
        self.observes = observes
        self.timeout = timeout
        self.round_trips = 0
        #: Called when Redis is available again, so that subscriptions are made again.
        self.returned: list[Callable[[], None]] = []
        self.client: RedisClient | None = None
        self._url = url
        self._clock = clock
        self._notify = notify
        self._known: weakref.WeakSet[RedisBucket] = weakref.WeakSet()
        self._schedule = Schedule()
        self._beside: deque[Command] = deque(maxlen=_BATCH)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._trip: asyncio.Task[None] | None = None
        self._was_late = False
        self._absence = Absence(on_outage, secrets.SystemRandom().random)
        self._running = False
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- for buckets ------------------------------------------------------------------------------------------------

    def add(self, bucket: RedisBucket) -> None:
        """Add a bucket to this store."""
        self._known.add(bucket)

    @property
    def outages(self) -> int:
        """The number of times that Redis became unavailable."""
        return self._absence.count

    def withholds(self) -> str:
        """The reason why nothing is granted while Redis is out; "" if something is, or if Redis is not out."""
        return self._absence.withholds(self.share) if self.out else ""

    def holders(self, now: float) -> int:
        """The number of processes that share this Redis and reported within the last ten seconds, this one included."""
        return 1 if self.members is None else self.members.count(now)

    @property
    def crowd(self) -> int:
        """The number of processes of the fleet, as of the last report."""
        return 1 if self.members is None else self.members.crowd

    def share_now(self, now: float) -> Share:
        """The part of every bucket's tokens that this process may spend in an outage that begins now."""
        return self._absence.share(WHOLE if self.members is None else self.members.share(now))

    def join(self, members: RedisMembers) -> None:
        """Report this process to its fleet from now on."""
        self.members = members
        self.add(members)
        self.soon(members, -math.inf)

    def soon(self, bucket: RedisBucket, at: float) -> None:
        """Schedule this bucket's next message for this time, if none is due earlier."""
        if self._schedule.put(bucket, at) and at < self._timer_at:
            self._plan()

    def draw(self) -> str:
        """Draw a random name, which no other process has."""
        return secrets.token_hex(6)

    def send(self, command: Command) -> None:
        """Send a command that belongs to no bucket with the next batch; its reply is ignored."""
        self._beside.append(command)
        self._plan()

    # -- running ----------------------------------------------------------------------------------------------------

    async def open(self, within: float = CONNECTING) -> None:
        """Begin: connect to Redis within so many seconds, or go on without it."""
        self._running = True
        try:
            await self._within(self.reach(), within)
        except Exception as error:
            self._lost(self._clock(), _because(error))
        self._plan()

    def replaced(self) -> None:
        """Report that an outage is over for this store, because another one with other settings takes its place."""
        if self.out:
            seconds = round(self._absence.ended(self._clock()), 1)
            line = f"Redis has other settings now, after {seconds:g} s without it"
            self._notify("redis", [line], state="back", seconds=seconds)

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
        for task in self._tasks:
            task.cancel()
        await self._drop()

    def is_due(self, within: float = 0.0) -> bool:
        """Whether a bucket has a message due within so many seconds."""
        return self._schedule.first <= self._clock() + within + _ALONG

    def _plan(self) -> None:
        """Set the timer for the next message that is due, or for the next try to reach Redis."""
        if not self._running or self._trip is not None:
            return
        at = self._absence.next_try if self.out else -math.inf if self._beside else self._schedule.first
        if not self.out:
            at = min(at, self._absence.mends_at)
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
        self._absence.mends_at = math.inf
        if self.out:  # all buckets report, because a reply shows that Redis is back
            self._schedule.clear()
            buckets = self._all()[:_BATCH]
        else:
            buckets = self._schedule.take(self._clock() + _ALONG, _BATCH)
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
            now = self._clock()
            for bucket in buckets:
                bucket.unheard(now)
            self._lost(now, _because(error))

    async def _exchange(self, buckets: list[RedisBucket], beside: list[Command]) -> None:
        if self.client is None:
            # While calls may wait for the reply, a new connection gets no more time than a round trip.
            await self._within(self.reach(), CONNECTING if self.out else self.timeout)
        assert self.client is not None
        now = self._clock()
        commands = [Command(each.script, each.key, each.message(now)) for each in buckets]
        self.round_trips += 1
        replies = await self._within(self.client.run([*commands, *beside]), self.timeout, may_be_late=not self.out)
        now = self._clock()
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if self.out:
            if errors:
                raise errors[0]
            self._back(now)
        for bucket, reply in zip(buckets, replies, strict=False):
            if isinstance(reply, Exception):
                bucket.unheard(now)
            else:
                bucket.heard(reply, now)
        if errors:
            raise errors[0]

    async def reach(self) -> None:
        """Connect the client, or raise."""
        client = RedisClient(self._url, connecting=CONNECTING)
        try:
            await client.connect()
        except BaseException:
            await client.close()
            raise
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

    async def _within(self, work: Coroutine[Any, Any, Any], seconds: float, *, may_be_late: bool = False) -> Any:
        """Wait for at most so many seconds, and 2 ms more for a reply that has already arrived: the loop itself may
        have been late. A reply that `may_be_late` is awaited for as long again, unless the one before was late too.
        Raises TooSlowError.
        """
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # its end may come when it is left
        steps = (seconds, 0.002, seconds) if may_be_late and not self._was_late else (seconds, 0.002)
        for step, patience in enumerate(steps):
            done, _ = await asyncio.wait({task}, timeout=patience)
            if done:
                self._was_late = step == 2
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

    # -- outages ----------------------------------------------------------------------------------------------------

    def _all(self) -> list[RedisBucket]:
        """All buckets. The first is this process as a member of the fleet, since its share has to be known before the
        buckets need it.
        """
        return sorted(self._known, key=lambda each: each is not self.members)

    def _lost(self, now: float, why: str) -> None:
        """Note that Redis is not available, and plan the next try; an outage that begins is reported."""
        absence = self._absence
        absence.failed(now, begins=not self.out)
        if self.out:
            return
        self.share = self.share_now(now)
        for bucket in list(self._known):
            bucket.part(now)
        self.out = True
        line = f"Redis is not available ({why}): buckets with store: redis {absence.means(self.share)} (on_outage)"
        self._notify("redis", [line], state="out", why=why, on_outage=absence.on_outage, share_of=self.share.of)
        for bucket in list(self._known):
            bucket.parted(now)

    def _back(self, now: float) -> None:
        """Note that Redis is available again, and report the end of the outage."""
        self.out = False
        seconds = round(self._absence.ended(now), 3)
        self._notify("redis", [f"Redis is back after {seconds:g} s"], state="back", seconds=seconds)
        for bucket in list(self._known):
            self.soon(bucket, now)
        for each in self.returned:
            each()


def _because(error: Exception) -> str:
    """The text of an error in one clause, without secrets."""
    if isinstance(error, TooSlowError | BadUrlError | ResponseError):
        text = str(error).partition(". script:")[0]
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _USER_INFO.sub("//***@", " ".join(text.split()))[:200]
