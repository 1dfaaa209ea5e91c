"""Rates of a fleet: tokens that every attempt pays for, first attempts too, and the calls that wait for them.

A process has a part of the rate: Redis says how many tokens a second the process may use until it reports again, and
divides the rate by the number of tokens that each process could use (`rate.lua`). So a process reports only every few
seconds, however many calls pay. It reports sooner if it could use more tokens and more are left, or if another process
needs some of its part and Redis asks for a report.

Waiting calls do not poll. A process asks once for all its waiters, and knows when each token comes: by its part or, if
the burst is too small for parts, by the tokens that Redis reserves for it: those of its first call, and of calls that
the next tenth of a second's refill pays for. The process gives the tokens to its waiters in its own order. So the
number of messages grows with tokens and processes, and never with the time that calls wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from weakref import WeakSet

from proxy.retry.budgets.buckets import RateBucket
from proxy.retry.budgets.token_bucket import STEP, TokenBucket
from proxy.retry.policies.bucket_specs import RateSpec
from proxy.retry.queues.waiter import Waiter
from proxy.stores.redis.bucket import FRESH, LONG_PAUSE, PAUSE_EACH, PROMPT, Store
from proxy.stores.redis.lease import AHEAD, ALIVE, EARNED, IDLE, RENEW, REPORT_PAUSE, TRUSTED, Burn, LeasedBucket
from proxy.stores.redis.part import Grant, PartLease
from proxy.stores.redis.share import Rising, Turns

#: Seconds for each process of the fleet, after which a rate that may not be waited for is asked for again.
REPEAT_EACH = 0.01
#: Seconds between reports of a process that has a part: the least, the most, and for each process of the fleet.
#: (Doorman and Envoy's RLQS renew their leases as often.)
SOONEST, LATEST, EACH = 2.0, 5.0, 0.005
#: Seconds over which a process measures how many tokens a second it uses, and how many times that it asks for; tokens
#: that calls wait for it would like within a second.
MEASURED, SPARE = 2.0, 1.25
#: The tokens that a part must bring between two reports to be worth asking for.
_WORTH = 2.0
#: The part of the burst that may be refilled before a process asks for it, if calls wait there.
UNUSED = 0.25
#: Seconds of refill that are reserved at one time, for the waiting calls of all processes together.
RESERVED = 0.1
#: Every process that had a part has noticed that Redis is out after the seconds between its reports, and these.
_NOTICED = 0.3


class RedisRate(LeasedBucket, RateBucket):
    """A rate of the fleet. Calls wait at its gate as at that of any other rate, and ask again when tokens have arrived.
    Before it is known whether there is a token, no call is refused, and none passes. `key`: its key in Redis; `known`:
    the last known level of the bucket that this one replaces, None if it replaces none; `channel`: the beginning of the
    names of the channels on which Redis asks a process to report.
    """

    lease: PartLease
    script = "rate"

    def __init__(self, spec: RateSpec, store: Store, key: str, known: float | None, now: float, channel: str) -> None:
        RateBucket.__init__(self, spec, started=now)
        self._begin(store, key, known, start=self._level, refill=self.rate, prices=[min(1.0, self.capacity)])
        self._burn = Burn(RENEW)  # a lease lasts until the next report
        self._used = Burn(MEASURED)
        self._channel = channel
        self._free = self.rate  # the refill that is no process's part, as last heard
        self._holders = math.inf  # the processes that use this rate, as last heard
        self._beside: WeakSet[RedisRate] = WeakSet()  # rates that attempts pay together with this one
        self._asks_for = 0.0  # tokens for which the message under way asks, because calls wait for them
        self._short = 0  # 1: this process could use more than its fair part; 2: it has less than that so far
        self._own: TokenBucket | Turns = TokenBucket(0.0, 0.0, 0.0, now)  # this process's share while Redis is out

    def _lease_of(self, lasts: float) -> PartLease:
        return PartLease(lasts, self.capacity)

    @property
    def _pause(self) -> float:
        """Seconds between two reports of this process to Redis. If the process has a part of the rate, SOONEST to
        LATEST seconds, more for a larger fleet; if it has none, RENEW seconds.
        """
        return max(SOONEST, min(LATEST, EACH * self.store.crowd)) if self.lease.part else RENEW

    @property
    def _step(self) -> float:
        """Seconds between two reports of a process that could use more tokens; at least the time in which its part of
        the rate brings one token.
        """
        part = self.lease.part
        return max(FRESH, min(LONG_PAUSE, PAUSE_EACH * self.store.crowd), 1 / part if part > 0.5 else 0.0)

    def _own_level(self, now: float) -> float:
        return self._own.level(now)

    def _level_at(self, now: float) -> float:
        level = min(self.capacity, max(0.0, self._level_heard + self.lease.unsent))
        return min(self.capacity, level + max(0.0, now - self.heard_at) * min(self._free, self.rate))

    def _known_level(self, now: float) -> float:
        if not self.store.out and self._has_heard:
            return self._level_at(self.heard_at)  # others may have spent what it has got since
        return super()._known_level(now)

    def part(self, now: float) -> None:
        """Go on without Redis, with this process's share of the last known level and rate. Other processes may use
        their parts of the rate until they too notice that Redis is out. Until then this process uses no more than its
        own part, and its share of the tokens a second that were no process's part.
        """
        share, level, lease = self.store.share, self._level_now(now), self.lease
        self._changed_before = lease.changed
        if not share.of:
            self._own = TokenBucket(0.0, self.capacity, level, now)  # a figure to show: nothing is granted
        elif share.of > 1 and self.capacity / share.of < 1 <= self.capacity:
            self._own = Turns(self.rate, self.capacity, level, share, now)
        else:
            capacity, rate = self.capacity / share.of, self.rate / share.of
            known = self._free if now - self.heard_at <= self.store.dead else 0.0
            first = rate if share.of == 1 else min(rate, known / share.of + min(lease.part, rate))
            noticed = now + max(SOONEST, min(LATEST, EACH * self.store.crowd)) + _NOTICED
            self._own = Rising(first, rate, noticed, capacity, min(capacity, level / share.of), now)
        lease.drop_part()

    def parted(self, now: float) -> None:
        """Have the queued calls ask again, because this process's share of the tokens decides from now on. If this
        process has no share, the calls are refused at once.
        """
        super().parted(now)
        self._wake(now)

    # -- for calls --------------------------------------------------------------------------------------------------

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until `tokens` tokens may be available; infinity if they never will be (while Redis is out: not
        before it is back).
        """
        if self.store.out:
            return math.inf if self.store.withholds() else self._own.wait(now, tokens)
        lease = self.lease
        known = lease.wait(tokens, now)
        if known <= 0:
            return 0.0
        if self.capacity < 1 or (self.rate <= 0 and self.level(now) < tokens):
            return math.inf
        if known < math.inf:
            return max(STEP, min(known, self._at_best(tokens, now)) if lease.part else known)
        short = tokens - (lease.left if now <= lease.until else 0.0)
        future = lease.future
        if future.count:
            more = max(0.0, short - future.count)
            return max(STEP, future.at(math.ceil(short)) - now + more / self.rate)
        pool = self._pool_heard + max(0.0, now - self.heard_at) * self.rate if self._has_heard else short
        return max(REPORT_PAUSE, (short - pool) / self.rate if self.rate > 0 else 0.0)

    def _at_best(self, tokens: float, now: float) -> float:
        """The fewest seconds until `tokens` tokens may be available. Until the lease ends, this process's part of the
        rate brings tokens, perhaps very few. By then Redis has divided the rate again, and the part may be the whole
        rate.
        """
        lease, lasts = self.lease, max(0.0, self.lease.until - now)
        short = tokens - lease.left - lease.part * lasts
        return math.inf if self.rate <= 0 else lasts + max(0.0, short) / self.rate

    def _pays(self, now: float, price: float = 1.0) -> bool:
        """Take the price from the lease, or from this process's share while Redis is out. Returns whether it was taken:
        the lease must have it or, if the price is above the capacity, as much as the capacity.
        """
        self._used_at = now
        if self.store.out:
            if self.store.withholds() or not self._own.take(now, price):
                return False
            self.lease.changed -= price
            return True
        if self.lease.has(min(price, self.capacity), now):
            self._spend(price, now)
            self._used.add(price, now)
            if price > self.capacity or self._runs_low(now):
                self._soon(now)
            return True
        self.lacks(now, price)
        return False

    def lacks(self, now: float, tokens: float = 1.0) -> None:
        """Ask Redis for tokens, if it may have some, because a call needs `tokens` tokens, more than the lease has."""
        if self.store.out or (self._beside and not self.gate.rejects and not self._awaited()):
            return
        self._used_at = now
        lease = self.lease
        if lease.future.count and now <= lease.until:
            return  # it is known when the next one comes
        if self._asks_for and not self.gate.rejects:
            return  # the reply to the message that is under way will say it
        pause = min(EARNED, REPEAT_EACH * self.store.crowd) if self.gate.rejects else REPORT_PAUSE
        if lease.part and now <= lease.until:
            if not (self.gate.rejects or self._may_have_more(now)):
                if tokens > lease.most:  # the part never brings as many
                    self._soon(max(now, self.heard_at + self._step))
                return
            if now - self.heard_at <= max(pause, self._step):
                if not self.gate.rejects:
                    self._soon(self.heard_at + self._step)
                    return
                # Redis gives whole tokens only: parts of one would be asked for again and again.
                if math.floor(self._pool_heard + 1e-9) + lease.left < min(tokens, self.capacity):
                    return  # else the bucket has what the call needs, and the call must not be rejected
        elif now - self.heard_at <= pause and self._pool_heard + self.rate * REPORT_PAUSE < 1:
            return
        self.gate.asking = True  # no call is refused before the reply
        self._soon(now)

    def _runs_low(self, now: float) -> bool:
        """Whether to ask Redis for more tokens before the lease is empty, because this process has no part of the rate,
        or its part does not suffice.
        """
        lease, since = self.lease, now - self.heard_at
        if lease.part:
            return lease.left < self.reserve and since > max(AHEAD, self._step) and self._may_have_more(now)
        return lease.held < self._enough(now) and since > (AHEAD if lease.held >= 1 else 0.0)

    def _may_have_more(self, now: float) -> bool:
        """Whether Redis may have more tokens for this process than the process's part of the rate brings."""
        if self._short == 2 or self._pool_heard >= 1:
            return True
        return self._short == 0 and self._demand(now) > 1.1 * self.lease.part

    def _enough(self, now: float) -> float:
        """The number of leased tokens below which Redis is asked for more: a quarter of those to keep leased; 0 if the
        fleet has less than one token for each process.
        """
        return max(self.reserve, min(self._need(now), self._part) / 4) if self._part >= self.reserve else 0.0

    def _regains(self, now: float, tokens: float = 1.0) -> None:
        if self.store.out:
            self._own.give_back(now, tokens)
            self.lease.changed += tokens
            return
        self._used.add(-tokens, now)
        self.lease.changed += self.lease.put_back(tokens)
        self._soon(now + PROMPT)

    # -- for the store ----------------------------------------------------------------------------------------------

    def called(self, now: float) -> None:
        """Report to Redis now, because another process needs some of this process's part of the rate."""
        if self.lease.part and not self.store.out:
            self._soon(now)

    def message(self, now: float) -> list[object]:
        *report, making, dead, forget = super().message(now)
        return [*report, self._channel, making, dead, forget]

    def unheard(self, now: float) -> None:
        self._asks_for = 0.0
        super().unheard(now)

    def paid_with(self, others: Iterable[TokenBucket]) -> None:
        self._beside.update(other for other in others if isinstance(other, RedisRate))

    def _awaited(self) -> float:
        """The tokens of this rate that waiting calls need now. A call may pay several rates; it then gets their tokens
        one rate after another, in the order of the rates' keys, so it needs tokens of this rate only once there are
        tokens of the earlier ones. Only the first call in line may have tokens of some of its rates and wait for
        others. So processes can't wait for each other, and no tokens are kept for calls that can't be sent.
        """
        queue, total = self.gate.queue, 0.0
        if not self._beside:
            return sum(queue.values())
        others = [(each.key < self.key, each.gate.queue, each.served()) for each in self._beside if each.gate.queue]
        for waiter in self.gate.turns():
            lacking = [earlier for earlier, line, served in others if waiter in line and waiter not in served]
            if any(lacking):
                break
            total += queue[waiter]
            if lacking:
                break
        return total

    def served(self) -> set[Waiter]:
        """The waiting calls for which there are tokens."""
        left, found = self.lease.left + 1e-9, set()
        for waiter in self.gate.turns():
            price = self.gate.queue[waiter]
            if min(price, self.capacity) > left:
                break
            left -= price
            found.add(waiter)
        return found

    def _demand(self, now: float) -> float:
        """The tokens a second that this process could use; 0 if it does not need a part."""
        if now - self._used_at >= IDLE or self._leaving:
            return 0.0
        demand = SPARE * max(0.0, self._used.now(now)) / MEASURED + self._awaited()
        return demand if demand * SOONEST >= _WORTH else 0.0

    def _keeps(self, now: float) -> float:
        lease = self.lease
        if lease.part and self._demand(now) and now <= lease.until:
            return max(0.0, lease.held)
        return super()._keeps(now)

    def _report(self, now: float) -> Iterable[float | str | None]:
        lease, queue = self.lease, self.gate.queue
        reported = lease.spent_reported, lease.changed_reported
        known, has, awaited = self._level_to_tell(now), lease.part, self._awaited()
        lease.mature(now)
        waits = bool(self._beside and queue) and not lease.part  # for another rate: none is kept ready for later calls
        # For calls that wait no part of a token is kept: it can't pay, and would be reported again and again.
        keep = awaited if awaited <= lease.held else self._whole(lease.held)
        spent, changed, keep = lease.send(keep if waits else max(self._keeps(now), keep), now)
        waiting = max(0.0, math.ceil(awaited - keep - 1e-9))
        self._asks_for = waiting
        first = next((queue[each] for each in self.gate.turns()), 0.0)  # as a whole, even if less is enough to begin
        next_calls = min(waiting, max(0.0, math.ceil(self._next_calls() - keep - 1e-9)))
        more = 0.0 if waits else max(0.0, min(self._need(now), self._part) - max(keep - awaited, 0.0))
        return (
            *(spent, changed, *reported, keep, waiting, first, more, self._demand(now), has, self.store.crowd),
            *(known, self._start, self.capacity, self._per_second, self.store.observes),
            *(lease.future.count, next_calls),
        )

    def _next_calls(self) -> float:
        """The tokens of the waiting calls for which tokens may be reserved: the first, and those after it whose tokens
        come within RESERVED seconds if each process gets an equal part of the refill. These are whole calls, since
        tokens that are reserved for a part of a call would lie unused. No call of a rate that rejects calls is one.
        """
        most, total = RESERVED * self._free / self._holders, 0.0
        if self.gate.rejects:
            return total
        for waiter in self.gate.turns():
            price = self.gate.queue[waiter]
            if total and total + price > most:
                break
            total += price
        return total

    def _learn(self, values: list[float], now: float) -> None:
        lease, self._pool_heard, leased, self._holders, reserved, first, self._free, part, most, short = values
        self._short, self._asks_for = int(short), 0.0
        pause = 1 / self._free if self._free else 0.0
        self.lease.granted(Grant(lease, now + first, pause, int(reserved), part, most), now)
        self._level_heard = self._pool_heard + leased
        self._fair = self._level_heard / (2 * max(1.0, self._holders, self.store.crowd))
        self._wake(now)

    def _wake(self, now: float) -> None:
        """Have the queued calls ask again: all of them now if calls may not wait, or while Redis is out; else those for
        which there are tokens, each when its token comes.
        """
        gate = self.gate
        gate.asking = False
        if gate.rejects or self.withheld():
            for waiter in list(gate.queue):
                waiter.retime(now)
        elif self.store.out or self.lease.part:
            gate.retime(now)
        else:
            before, most, held = 0.0, self.capacity, self.lease.held
            for waiter in gate.turns():
                price = gate.queue[waiter]
                waiter.retime(now + self.wait(now, before + min(price, most)))
                before += price
                if before > held:
                    break

    def _plan(self, now: float) -> None:
        lease = self.lease
        if not lease.part:
            super()._plan(now)
            if self._awaited():
                future = lease.future
                at = now + max(REPORT_PAUSE, min(RENEW, self.wait(now)))
                if future.count:
                    # A call takes the last token first, so that the message says what is needed next. Tokens that come
                    # later than a lease is trusted would be lost without a report before that.
                    renews = self.heard_at + self.store.dead * (TRUSTED - ALIVE)
                    at = min(future.at(future.count) + REPORT_PAUSE, renews)
                if self._short == 2:
                    at = min(at, now + self._step)
                self._soon(at)
            return
        if lease.changed != lease.changed_reported:
            self._soon(now + self._earned_pause)
        at = self.heard_at + self._pause
        if self._awaited():
            # Before what is no process's part fills the bucket: what is refilled after that would be lost.
            fills = UNUSED * self.capacity / self._free if self._free > 0 else math.inf
            at = min(at, self.heard_at + (self._step if self._may_have_more(now) else max(self._step, fills)))
        self._checks_at = max(now + REPORT_PAUSE, self._used_at + IDLE)
        self._soon(max(now + REPORT_PAUSE, min(at, self._checks_at)))

    def puts_off(self, at: float, now: float) -> bool:
        if self.gate.queue and at == self._checks_at:
            self._used_at = now  # waiting is use
        return super().puts_off(at, now)
