"""The messages of a process's buckets in Redis: when each is due, and what a reply, or a missing reply, means for the
buckets.

There is no I/O here, and time is an argument: `store` sends the batches to a real Redis, and the lab
(`proxy.lab.fleet`) plays them in simulated time. If a batch fails, Redis is *out*: every bucket continues as
`on_outage` says, and all calls that wait for a reply are answered at once. The outage and its end are reported once
each.
"""

from __future__ import annotations

import heapq
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proxy.stores.redis.absence import Absence, OnOutage
from proxy.stores.redis.bucket import IN_TURN, RedisBucket
from proxy.stores.redis.members import RedisMembers
from proxy.stores.redis.share import WHOLE, Share

#: Seconds: messages that are due this soon are sent with those that are due now.
ALONG = 0.002
#: Seconds for which a reply is awaited at least. A Redis whose machine is short of processor time replies after some
#: tenths of a second. Were that an outage, each process would be left with its share: of a small quota often no price.
PATIENCE = 0.5
#: The most buckets in one batch.
BATCH = 500

Notify = Callable[..., None]


def report_nothing(event: str, lines: list[str], **facts: Any) -> None:
    """Report nothing: the store in the place of this one reports."""


class Schedule:
    """The buckets that have a message to send to Redis, each by the earliest time at which one is due
    (`RedisBucket.due`). If an earlier time is set for a bucket, its later entry stays in the heap, and is skipped when
    that time comes.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, RedisBucket]] = []
        self._number = 0

    def put(self, bucket: RedisBucket, at: float) -> bool:
        """Schedule a bucket's message for the time `at`, and return True. Return False, and change nothing, if a
        message of the bucket is already scheduled for that time or an earlier one.
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


class Batches:
    """The messages of all buckets of a process, in batches. `notify(event, lines, **facts)` reports an event to the
    operator. `timeout`: the seconds that Redis may take for a reply; `on_outage`: what this process may spend while
    Redis is out. `draw` returns a random number from [0, 1), and `draw_name` a name that no other process has. `dead`:
    the seconds without a message from a process after which Redis takes back the process's leases. `observes`: this
    process only reads levels.
    """

    def __init__(
        self,
        *,
        timeout: float,
        on_outage: OnOutage,
        notify: Notify,
        draw: Callable[[], float],
        draw_name: Callable[[], str],
        dead: float = 10.0,
        observes: bool = False,
    ) -> None:
        self.draw = draw_name
        self.holder = draw_name()
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
        self._notify = notify
        self._known: weakref.WeakSet[RedisBucket] = weakref.WeakSet()
        self._schedule = Schedule()
        self._absence = Absence(on_outage, draw)
        self._timer_at = math.inf

    # -- for buckets ------------------------------------------------------------------------------------------------

    def add(self, bucket: RedisBucket) -> None:
        """Include a bucket, whose messages are sent with those of the others from now on."""
        self._known.add(bucket)

    @property
    def outages(self) -> int:
        """The number of times that Redis became unavailable."""
        return self._absence.count

    @property
    def out_since(self) -> float | None:
        """The time at which the outage began whose end is not reported yet; None if there is none."""
        return self._absence.since

    def take_over(self, former: Batches) -> None:
        """Take the place of a former store, which reports nothing any more: its outage, if it has reported one, goes on
        until Redis answers here.
        """
        self._absence.since = former.out_since
        former._notify = report_nothing

    def withholds(self) -> str:
        """The reason why no tokens are granted while Redis is out; "" if some are granted, or if Redis is not out."""
        return self._absence.withholds(self.share) if self.out else ""

    def withholds_alone(self, now: float) -> str:
        """The reason why `on_outage` grants nothing to a call for which Redis's reply is too late; "" if it may grant
        something.
        """
        return self._absence.withholds(self.share_now(now))

    @property
    def crowd(self) -> int:
        """The number of processes of the fleet, as of the last report."""
        return 1 if self.members is None else self.members.crowd

    @property
    def turn(self) -> float:
        """The seconds that this process waits before it asks Redis about a change of which all processes are notified
        at once. They differ from process to process, so that not all ask at the same time.
        """
        return 0.0 if self.members is None else IN_TURN * self.members.rank

    def share_now(self, now: float) -> Share:
        """The part of every bucket's tokens that this process may spend in an outage that begins now."""
        return self._absence.share(WHOLE if self.members is None else self.members.share(now))

    @property
    def patience(self) -> float:
        """Seconds for which a reply is awaited before Redis is out."""
        return max(2 * self.timeout, PATIENCE)

    def join(self, members: RedisMembers) -> None:
        """Report this process to its fleet from now on; `members` is the bucket that sends the reports."""
        self.members = members
        self.add(members)
        self.soon(members, -math.inf)

    def soon(self, bucket: RedisBucket, at: float) -> None:
        """Schedule this bucket's next message for the time `at`, if none is due earlier."""
        if self._schedule.put(bucket, at) and at < self._timer_at:
            self._plan()

    def alarm(self, at: float, ring: Callable[[float], None]) -> None:
        """Call `ring(now)` at the time `at`. If a reply has come by then, it is handled first."""
        raise NotImplementedError

    def _plan(self) -> None:
        """Set the timer to the next message that is due, or the next try to reach Redis."""
        raise NotImplementedError

    # -- for a round trip -------------------------------------------------------------------------------------------

    @property
    def _next(self) -> float:
        """The time of the next message, or of the next try to reach Redis."""
        if self.out:
            return self._absence.next_try
        return min(self._schedule.first, self._absence.mends_at)

    def _take_due(self, now: float) -> list[RedisBucket]:
        """Remove and return the buckets whose messages are sent now. While Redis is out these are all buckets, because
        any reply shows that Redis is back. `self.members`, the bucket that learns this process's share of the fleet,
        comes first, so that the others use that share.
        """
        self._absence.mends_at = math.inf
        if not self.out:
            return self._schedule.take(now + ALONG, BATCH)
        self._schedule.clear()
        return sorted(self._all(), key=lambda each: each is not self.members)[:BATCH]

    def _all(self) -> list[RedisBucket]:
        """All buckets, in the order of their keys, so that a simulation gives the same figures each time."""
        return sorted(self._known, key=lambda each: each.key)

    def _replied(self, buckets: Iterable[RedisBucket], replies: Sequence[Any], now: float) -> None:
        """Give each bucket its reply; buckets and replies are in the same order. A bucket whose reply is an exception
        is told that no reply came, and the first exception is raised once all buckets have been told. If Redis was out
        and there is an exception, no bucket is told anything.
        """
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

    def _failed(self, buckets: Iterable[RedisBucket], now: float, why: str) -> None:
        """Note that no reply came to the messages of these buckets, and that Redis is not available. `why`: the reason,
        for the operator.
        """
        for bucket in buckets:
            bucket.unheard(now)
        self._lost(now, why)

    # -- outages ----------------------------------------------------------------------------------------------------

    def _lost(self, now: float, why: str) -> None:
        """Note that Redis is not available, and plan the next try. If an outage begins with this failure, report the
        outage with the reason `why`.
        """
        absence, is_known = self._absence, self._absence.since is not None
        absence.failed(now, begins=not self.out)
        if self.out:
            return
        self._go_alone(self.share_now(now), now)
        if is_known:
            return
        line = f"Redis is not available ({why}): buckets with store: redis {absence.in_words(self.share)} (on_outage)"
        self._notify("redis", [line], state="out", why=why, on_outage=absence.on_outage, share_of=self.share.of)

    def _go_alone(self, share: Share, now: float) -> None:
        """Let every bucket go on without Redis, with this share of its tokens."""
        self.share = share
        for bucket in self._all():
            bucket.part(now)
        self.out = True
        for bucket in self._all():
            bucket.parted(now)

    def retire(self, now: float) -> None:
        """Let calls that have these buckets since before a reload go on with this process's share: another store has
        taken this one's place, so that Redis says no more to them.
        """
        if not self.out:
            self._go_alone(WHOLE if self.members is None else self.members.share(now), now)

    def _report_end(self, why: str, now: float) -> None:
        """Report the end of the outage that was reported. `why`: why it ended, in words."""
        seconds = round(self._absence.ended(now), 3)
        self._notify("redis", [f"{why} after an outage of {seconds:g} s"], state="back", seconds=seconds)

    def _back(self, now: float) -> None:
        """Note that Redis is available again, and report the end of the outage."""
        self.out = False
        self._report_end("Redis is back", now)
        for bucket in self._all():
            self.soon(bucket, now)
        for each in self.returned:
            each()
