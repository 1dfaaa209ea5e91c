"""Leases: tokens of the fleet's quotas and rates that one process may spend without asking.

Law: only leased tokens are spent, so the fleet never spends more than the bucket has. A process that is using a bucket
keeps a few tokens leased: as many as it has just been spending, in whole prices, but no more than a fair part of half
the level. It returns the rest, so that no tokens lie unused where they are too few to pay a price, or where they are
not needed. A process that has used none for a second returns all of them.

If Redis is out, each process continues with a bucket of its own, which has this process's share of the definition, and
begins with this process's share of the last known level. The unspent lease is a part of that share. The tokens that
this bucket spends and earns are reported when Redis is back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice

from proxy.stores.redis.bucket import ASKED, LONG_PAUSE, PAUSE_EACH, PROMPT, Asking, RedisBucket, Store

#: Contract, section 3, "Buckets": an idle lease goes back after a second.
IDLE = 1.0
#: Seconds after which spending is reported: a process that is killed leaves no more unreported than it spent in them.
REPORT_PAUSE = 0.01
#: The most seconds after which tokens that were earned are reported.
EARNED = 0.5
#: Seconds after which a lease that lies ready is confirmed, and after which tokens that were refused are asked for
#: again.
RENEW = 1.5
#: Seconds of spending for which a process keeps tokens ready.
AHEAD = 0.25
#: Parts of the time after which Redis takes a silent holder's lease back: for the first the holder spends from its
#: lease, and after the second it renews it.
TRUSTED, ALIVE = 0.8, 0.2


class Lease:
    """Tokens that are leased to this process, and its sums to report about them.

    `spent`: the tokens spent from the lease since the beginning; `changed`: the other changes that this process has
    made to the bucket's level, in tokens (positive for tokens earned, negative for tokens taken beside the lease);
    `*_reported`: the same sums as of the last report that was answered. `left`: the tokens that can be spent now, never
    more than Redis has recorded as leased to this process; `left` is negative after a price above the bucket's capacity
    was taken. A lease that was not confirmed within `lasts` seconds may have been given to others, and is not spent any
    more.
    """

    __slots__ = ("_sent", "changed", "changed_reported", "lasts", "left", "spent", "spent_reported", "until")

    def __init__(self, lasts: float) -> None:
        self.lasts = lasts
        self.left = 0.0
        self.until = -math.inf
        self.spent = self.spent_reported = 0.0
        self.changed = self.changed_reported = 0.0
        self._sent = (0.0, 0.0, 0.0, -math.inf)

    @property
    def held(self) -> float:
        """The number of tokens in the lease."""
        return self.left

    def has(self, amount: float, now: float) -> bool:
        """Whether `amount` tokens can be spent from the lease now: the lease has them, and Redis has confirmed it
        recently enough.
        """
        return amount <= self.left and now <= self.until

    def spend(self, amount: float) -> None:
        """Take an amount from the lease, which must have it."""
        self.left -= amount
        self.spent += amount

    def put_back(self, amount: float) -> float:
        """Put tokens back into the lease, at most as many as were spent since the last report. Returns the rest, which
        is to be reported as earned.
        """
        back = min(amount, max(0.0, self.spent - self.spent_reported))
        self.left += back
        self.spent -= back
        return amount - back

    @property
    def unsent(self) -> float:
        """The difference that this process has made to the level since the last report that was answered, in tokens."""
        return (self.changed - self.changed_reported) - (self.spent - self.spent_reported)

    @property
    def has_news(self) -> bool:
        """Whether tokens were spent or earned that were not reported yet."""
        return self.spent != self.spent_reported or self.changed != self.changed_reported

    def send(self, keep: float, now: float) -> tuple[float, float, float]:
        """Make a report: the sums `spent` and `changed`, and how many tokens of the lease this process keeps. `keep`:
        the most tokens that it keeps; this process gives up the rest of the lease.
        """
        if now > self.until:
            keep = 0.0
        self.left = max(0.0, min(self.left, keep))  # what was spent beyond it is reported as spent
        self._sent = (self.spent, self.changed, self.held, now)
        return self.spent, self.changed, self.held

    def confirmed(self, lease: float) -> None:
        """Note that the report was answered. `lease` is the number of tokens that Redis has recorded as leased to this
        process now.
        """
        spent, changed, kept, at = self._sent
        self.left += lease - kept
        self.until = at + self.lasts
        self.spent_reported, self.changed_reported = spent, changed
        if self.spent < spent:  # tokens were put back that had been reported as spent
            back = spent - self.spent
            self.spent = spent
            self.left -= back
            self.changed += back
        if self.left < 0:  # Redis took the lease back; what was spent of it is reported
            self._cover()

    def _cover(self) -> None:
        """Set what can be spent to zero, because more tokens were spent than Redis has leased to this process."""
        self.left = 0.0


class Burn:
    """The number of tokens spent lately, in which a token counts less the longer ago it was spent (an exponential decay
    with the time constant `seconds`).
    """

    def __init__(self, seconds: float) -> None:
        self._while = seconds
        self._amount = 0.0
        self._at = -math.inf

    def add(self, amount: float, now: float) -> None:
        """Add an amount that was spent."""
        self._amount = self.now(now) + amount
        self._at = now

    def now(self, now: float) -> float:
        """The number of tokens spent lately, after the decay until `now`."""
        if self._amount <= 0 or now - self._at > 20 * self._while:
            return 0.0
        return self._amount * math.exp(-max(0.0, now - self._at) / self._while)


class LeasedBucket(RedisBucket):
    """A bucket of the fleet that this process spends by a lease: what quotas and rates in Redis have in common."""

    capacity: float

    def _begin(
        self, store: Store, key: str, known: float | None, *, start: float, refill: float, prices: Sequence[float]
    ) -> None:
        """Set the attributes up. `key`: the bucket's key in Redis; `known`: the last known level of the bucket that
        this one replaces, None if it replaces none; `start`: the level of a new bucket; `refill`: tokens a second;
        `prices`: the prices that a retry or call may have. The process tries to keep at least the dearest price leased,
        and returns a remainder below the cheapest.
        """
        self.hold(store, key, known)
        self._start, self._per_second, self.reserve = start, refill, max(prices)
        self._cheapest = min((price for price in prices if price), default=0.0)
        self._fair = math.inf  # a fair part of half the level, as last heard
        self._checks_at = math.nan  # when the next message is due only if the bucket is idle by then
        self.lease = self._lease_of(store.dead * TRUSTED)
        self._burn = Burn(AHEAD)
        self._used_at = self._spent_at = -math.inf
        self._changed_before = 0.0  # the lease's `changed` when the outage began
        self._level_heard = math.nan
        self._pool_heard = 0.0
        self._alone = 0.0  # tokens spent without Redis's answer since it was heard last

    def _lease_of(self, lasts: float) -> Lease:
        return Lease(lasts)

    def level(self, now: float) -> float:
        """The tokens of the fleet, leased ones included; while Redis is out, those of the bucket of this process
        alone.
        """
        return self._own_level(now) if self.store.out else self._level_now(now)

    def _own_level(self, now: float) -> float:
        raise NotImplementedError

    def _level_now(self, now: float) -> float:
        """The fleet's level: the last one that Redis reported, this process's changes since, and the refill since.
        Redis counts by its own clock, and this process the seconds since the reply, so that machines need not agree on
        what time it is.
        """
        if not self._has_heard:
            return self._start if self._known is None else self._known
        return self._level_at(now)

    def _level_at(self, now: float) -> float:
        level = min(self.capacity, max(0.0, self._level_heard + self.lease.unsent))
        return min(self.capacity, level + max(0.0, now - self.heard_at) * self._per_second)

    def _known_level(self, now: float) -> float:
        """The level that this process reports in case Redis has lost the bucket's key, so that Redis can make the key
        again. During an outage each other process is assumed to have spent as much as this one.
        """
        if not self.store.out:
            return self._level_now(now)
        level = (
            self._level_now(now) if self._has_heard else min(self.capacity, self._level_now(now) + self.lease.unsent)
        )
        spent = max(0.0, self._changed_before - self.lease.changed)
        return max(0.0, level - spent * max(0, self.store.share.of - 1))

    @property
    def _has_heard(self) -> bool:
        """Whether Redis has reported this bucket's level at least once."""
        return not math.isnan(self._level_heard)

    @property
    def _knows(self) -> bool:
        """Whether a level is known: one reported by Redis, or that of an earlier definition of this bucket."""
        return self._has_heard or self._known is not None

    def _need(self, now: float) -> float:
        """The number of tokens that this process should keep leased: what it has spent lately, at least the dearest
        price that one retry or call may have; 0 if it has used none for a second.
        """
        if now - self._used_at >= IDLE or self._leaving:
            return 0.0
        return max(self.reserve, float(math.ceil(self._burn.now(now))))

    def _keeps(self, now: float) -> float:
        """The number of leased tokens that this process keeps with the next report; it returns the others. It keeps
        all, if at least half of them are needed, else only those needed; if it has spent none for a second, only the
        dearest price. The number is rounded down to whole prices, and is at most `_part` or, if that is more, what
        waiting calls need.
        """
        need, held = self._need(now), self.lease.held
        if held > self.reserve and now - self._spent_at >= IDLE:
            keep = min(need, self.reserve)
        else:
            keep = held if held <= 2 * need else need
        return self._whole(min(keep, max(self._part, self._awaited())))

    @property
    def _part(self) -> float:
        """The most tokens that this process should keep leased: its equal part of half the fleet's tokens."""
        return min(self._fair, self.capacity / (2 * self.store.crowd))

    @property
    def _is_scarce(self) -> bool:
        """Whether the fleet has so few tokens that this process's equal part of half of them (`_part`) is less than the
        dearest price. Then no tokens are kept leased.
        """
        return self._part < self.reserve

    def _whole(self, tokens: float) -> float:
        """Round a number of tokens down to a multiple of the cheapest price."""
        cheapest = self._cheapest
        return math.floor(tokens / cheapest + 1e-9) * cheapest if cheapest > 0 and tokens < math.inf else tokens

    def _awaited(self) -> float:
        """The tokens that waiting calls need in all; the lease may already have some of them."""
        return sum(each.price for each in islice(self._asks, ASKED))

    def _report(self, now: float) -> Iterable[float | str | None]:
        lease, asked = self.lease, self._awaited()
        reported = lease.spent_reported, lease.changed_reported
        known = self._level_to_tell(now)
        spent, changed, keep = lease.send(max(self._keeps(now), min(asked, lease.held)), now)
        more = max(0.0, min(self._need(now), self._part) - max(keep - asked, 0.0))
        prices = " ".join(repr(float(each.price)) for each in islice(self._asks, ASKED))
        return (
            *(spent, changed, *reported, keep, prices, more, self.reserve),
            *(known, self._start, self.capacity, self._per_second, self.store.observes),
        )

    def _level_to_tell(self, now: float) -> float | None:
        """The level to report, for the case that Redis has lost the key; None if this process knows none, or only
        observes.
        """
        return self._known_level(now) if (self._knows or self.store.out) and not self.store.observes else None

    def _learn(self, values: list[float], now: float) -> None:
        lease, self._pool_heard, leased, holders = values[:4]
        self._alone = 0.0
        self.lease.confirmed(lease)
        self._level_heard = self._pool_heard + leased
        self._fair = self._level_heard / (2 * max(1.0, holders, self.store.crowd))

    def _asks_again(self, asking: Asking, now: float) -> float:
        """The time at which to ask Redis again for a retry that could not pay: now, if Redis has the tokens and only
        this process's lease was spent meanwhile. If other processes have the tokens on lease, the time by which they
        may have returned those that they do not need, so that the retry is not refused while tokens lie unused.
        Infinity if the fleet has too few tokens, or if the retry is due too soon.
        """
        asking.refused += 1
        if self._pool_heard + self.lease.left >= asking.price and now <= self.lease.until:
            return now
        left = asking.due - now
        if self._level_now(now) < asking.price or left < 2 * REPORT_PAUSE:
            return math.inf
        return now + min(self._pause * (1 << min(asking.refused - 1, 10)), EARNED, left / 2)

    @property
    def _pause(self) -> float:
        """Seconds after which this process reports tokens that it has spent, and returns tokens that it does not
        need.
        """
        if self._is_scarce:
            return min(PROMPT, max(REPORT_PAUSE, PAUSE_EACH * self.store.crowd))
        return max(REPORT_PAUSE, min(LONG_PAUSE, PAUSE_EACH * self.store.crowd))

    @property
    def _earned_pause(self) -> float:
        """Seconds after which this process reports tokens that it has earned: fewer if they are enough to pay a
        price.
        """
        lease, crowd = self.lease, self.store.crowd
        if 0 < self._cheapest <= lease.changed - lease.changed_reported:
            return REPORT_PAUSE if self._is_scarce else max(PROMPT, min(LONG_PAUSE, PAUSE_EACH * crowd))
        return EARNED if self._level_heard < self.reserve else max(PROMPT, min(EARNED, 5 * PAUSE_EACH * crowd))

    def puts_off(self, at: float, now: float) -> bool:
        if at != self._checks_at or now - self._used_at >= IDLE or self._asks or self._leaving:
            return False
        if self.lease.has_news and now >= self.heard_at + self._pause:
            return False
        self._plan(now)
        return True

    def _spend(self, amount: float, now: float) -> None:
        self.lease.spend(amount)
        self._burn.add(amount, now)
        self._used_at = self._spent_at = now
        self._soon(now + self._pause)

    def _plan(self, now: float) -> None:
        lease = self.lease
        if self._asks:
            self._soon(max(now, self._asks_at))
        if lease.spent != lease.spent_reported:
            self._soon(now + self._pause)
        if lease.changed != lease.changed_reported:
            self._soon(now + self._earned_pause)
        if lease.left > 0:
            at = self.heard_at + min(self.store.dead * ALIVE, RENEW)
            if lease.held > self._keeps(now):
                at = min(at, now + (PROMPT if self._is_scarce else EARNED))
            self._checks_at = max(now + REPORT_PAUSE, self._used_at + IDLE)
            self._soon(max(now + REPORT_PAUSE, min(at, self._checks_at)))
