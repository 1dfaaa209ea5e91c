"""The factory of the objects that the workers of one machine share, made in the memory that they share.

The first worker makes an object's record, and the others find it. If the definition of an object changes, the worker
that uses the new definition first makes a new record, which begins with the same share of its capacity filled as the
newest earlier record.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import Any, TypeVar

from proxy.retry.budgets.app_buckets import PartedQuota, has_parts
from proxy.retry.budgets.buckets import Bucket, QuotaBucket, RateBucket, ThrottleBucket
from proxy.retry.budgets.concurrency import UNLIMITED, Places
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.budgets.hedges import Hedges
from proxy.retry.budgets.token_bucket import TokenBucket
from proxy.retry.policies.bucket_specs import BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.policy import BreakerSpec
from proxy.retry.queues.fair_order import FairOrder
from proxy.retry.scopes.factory import Factory, Key
from proxy.retry.scopes.registry import Spec
from proxy.retry.scopes.seen_keys import SeenKeys
from proxy.retry.upstreams.circuit_breaker import CircuitBreaker
from proxy.retry.upstreams.credentials import Roster
from proxy.retry.weather.caller import Name
from proxy.retry.weather.cooldown import ALL_CALLERS
from proxy.retry.weather.governor import Governor
from proxy.stores.shared_memory import buckets, circuit_breaker, lane, lost_rows, ring, scope
from proxy.stores.shared_memory.concurrency import SharedPlaces
from proxy.stores.shared_memory.credentials import SharedRoster
from proxy.stores.shared_memory.fair_lines import SharedLines
from proxy.stores.shared_memory.governor import SharedGovernor
from proxy.stores.shared_memory.hedges import SharedHedges
from proxy.stores.shared_memory.lane_turns import LaneTurns
from proxy.stores.shared_memory.lanes import SharedLanes
from proxy.stores.shared_memory.last_times import LastTimes
from proxy.stores.shared_memory.records import (
    COPY,
    QUOTA_NUMBERS,
    SEEN,
    STATE,
    Definition,
    Former,
    Memory,
    Number,
    Pair,
    Record,
    Rings,
    digest,
)
from proxy.stores.shared_memory.scope import SharedScope
from proxy.stores.shared_memory.traffic import count_by, ended_in_all

Made = TypeVar("Made", Bucket, RateBucket, CircuitBreaker)

#: The size in words of a large record, and the number of large records. A budget is the largest: three windows of
#: slices. Circuit breakers and hedging's counts take no more.
_LARGE_WORDS = STATE + max(3 * ring.WORDS, circuit_breaker.WORDS)
_LARGES = 2048


def open_memory(descriptor: int) -> Memory:
    """Map the memory of a descriptor of `records.descriptor`, laid out for the records of this package."""
    return Memory(descriptor, large=_LARGE_WORDS, larges=_LARGES)


class SharedFactory(Factory):
    """The factory of the objects that calls share (buckets, lanes and others), in shared memory. `generation`: the
    number of the configuration, counted by the parent. `row`: the worker's row of the memory, 0 for a process that only
    reads.

    `made` lists the keys that were asked for since the list was last emptied, for the process that adds the workers'
    figures up.
    """

    def __init__(self, memory: Memory, generation: int = 0, row: int = 0) -> None:
        self.memory = memory
        self.row = row
        self.generation = generation
        self.made: list[tuple[str, Key, Spec | None]] = []

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        kept = self._kept("bucket", key, spec, before)
        if kept is not None:
            return kept
        memory = self.memory
        match spec:
            case QuotaSpec():
                wanted, begin = self._definition("bucket", key, spec, spec.capacity), partial(self._begin, spec, now)
                if has_parts(spec):
                    begin = partial(self._begin_parted, spec, before, now)
                    record = Record(memory.parted, wanted, begin, len(PartedQuota(spec).state()))
                    return buckets.SharedPartedQuota(spec, record)
                if spec.refill:
                    return buckets.SharedQuota(spec, Record(memory.small, wanted, begin, QUOTA_NUMBERS))
                kind = Pair if spec.quiet_up_to else Number
                return buckets.SharedQuota(spec, kind(memory.small, wanted, begin))
            case ThrottleSpec():
                wanted = self._definition("bucket", key, spec, ThrottleBucket(spec)._most)
                return buckets.SharedThrottle(spec, Number(memory.small, wanted, partial(self._begin, spec, now)))
            case BudgetSpec():
                if spec.apps:
                    rings, of_name = self._rings(key, spec), partial(self._budget_of, key, replace(spec, apps=()))
                    return buckets.SharedPartedBudget(spec, rings, memory, of_name)
                return buckets.SharedBudget(spec, self._rings(key, spec), memory)
            case _:
                raise TypeError("a bucket of kind rate is a gate for attempts: `rate`")

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        kept = self._kept("rate", key, spec, before)
        if kept is not None:
            return kept

        def begin(at: int, former: Former | None) -> None:
            instead = None if former is None else TokenBucket(0.0, former.size, *self._numbers(former, 2))
            self._write(at, RateBucket(spec, instead_of=instead, started=now).state())

        wanted = self._definition("rate", key, spec, spec.burst)
        rate = buckets.SharedRate(spec, Record(self.memory.small, wanted, begin, 2))
        if before is not None:
            before.replaced_by(rate)
        rate.gate.make_lines = partial(SharedLines, self.memory, self.row, ("rate", key, spec), self.generation)
        return rate

    def limiter(self, key: Key, now: float) -> CubicLimiter:
        self.made.append(("limiter", key, None))
        fresh = CubicLimiter(now).state()
        wanted, begin = self._definition("limiter", key), lambda at, _: self._write(at, fresh)
        return buckets.SharedLimiter(Record(self.memory.small, wanted, begin, len(fresh)))

    def hedges(self, key: Key, now: float) -> Hedges:
        self.made.append(("hedges", key, None))
        begin = partial(SharedHedges.begin, self.memory)
        return SharedHedges(Rings(self.memory.large, self._definition("hedges", key), begin), self.memory)

    def breaker(self, key: Key, spec: BreakerSpec, before: CircuitBreaker | None) -> CircuitBreaker:
        kept = self._kept("breaker", key, spec, before)
        if kept is not None:
            return kept
        memory = self.memory

        def begin(at: int, former: Former | None) -> None:
            self._write(at, circuit_breaker.beginning(spec))
            for index in range(2):
                ring.RingCount.begin(memory, at + 2 * COPY + index * ring.WORDS, None, 0)

        wanted = self._definition("breaker", key, spec)
        record = circuit_breaker.BreakerRecord(memory.large, wanted, begin, circuit_breaker.NUMBERS)
        return circuit_breaker.SharedCircuitBreaker(spec, record, memory)

    def governor(self, upstream: str, value: str) -> Governor:
        key, table = (upstream, value), self.memory.lanes
        self.made.append(("governor", key, None))

        def attach(name: Name, make: bool) -> tuple[Record, bool] | None:
            wanted, made = self._definition("lane", (*key, name)), False
            if not make and not table.knows(wanted.key):
                return None

            def begin(at: int, _: Former | None) -> None:
                nonlocal made
                made = True
                # The lanes of one endpoint are judged by the attempts that are counted under the first one's number.
                is_counted = name[1] == ALL_CALLERS
                self._write(at, lane.quiet(ended_in_all(self.memory, table.number(at)) if is_counted else 0))

            record = Record(table, wanted, begin, lane.SIZE)
            return record, made

        def begin_scope(at: int, _: Former | None) -> None:
            self._write(at, scope.QUIET)

        record = Record(self.memory.small, self._definition("governor", key), begin_scope, len(scope.QUIET))

        def begin_rows(at: int, _: Former | None) -> None:
            self._write(at, lost_rows.QUIET)

        rows = lost_rows.SharedLostRows(self.memory, self._definition("lost rows", key), begin_rows)

        def order(name: Name) -> FairOrder:
            return LaneTurns(partial(SharedLines, self.memory, self.row, ("lane", *key, name), self.generation))

        share = partial(count_by, self.memory, self.row)
        return SharedGovernor(SharedLanes(SharedScope(record), attach, order, rows, share, self.row), record.peek)

    def seen(self, upstream: str, value: str) -> SeenKeys:
        memory = self.memory
        times = LastTimes(memory, memory.seen, SEEN, memory.seen_lock)
        return buckets.SharedSeen(times, digest("seen", upstream, value))

    def places(self, key: Key, most: int) -> Places:
        self.made.append(("places", key, None))
        return SharedPlaces(self.memory, self.row, digest("places", key), most)

    def load(self, key: Key) -> Places:
        return SharedPlaces(self.memory, self.row, digest("load", key), UNLIMITED)

    def roster(self, upstream: str) -> Roster:
        def attach(value: str) -> Number:
            wanted = self._definition("credential", (upstream, value))
            return Number(self.memory.small, wanted, lambda at, _: self._write(at, (-math.inf,)))

        return SharedRoster(attach)

    def announce(self, upstream: str, value: str) -> None:
        self.made.append(("governor", (upstream, value), None))

    def _kept(self, sort: str, key: Key, spec: Spec, before: Made | None) -> Made | None:
        """Return `before`, the object that this process has used for this key so far, after its record has been looked
        up again; None if its definition is not `spec`. Adds the key to `made` if the object or its record is a new one.
        `sort` is the kind of object, such as a bucket.
        """
        record: Any = getattr(before, "record", None)
        kept = before if before is not None and before.spec == spec and isinstance(record, Record) else None
        if kept is None or record.renew(self.generation):
            self.made.append((sort, key, spec))
        return kept

    # -- beginnings -------------------------------------------------------------------------------------------------

    def _definition(self, sort: str, key: Key, spec: Spec | None = None, size: float = 0.0) -> Definition:
        return Definition(digest(sort, key), digest(spec), self.generation, size)

    def _numbers(self, former: Former, count: int) -> tuple[float, ...]:
        return tuple(self.memory.doubles[former.state : former.state + count])

    def _write(self, at: int, state: tuple[float, ...]) -> None:
        Struct(f"{len(state)}d").pack_into(self.memory.map, at * 8, *state)

    def _begin(self, spec: QuotaSpec | ThrottleSpec, now: float, at: int, former: Former | None) -> None:
        """Write the state of a new quota or throttle at the word `at` of the memory: filled to the same share of its
        capacity as the key's `former` record, or fresh if there is no former record.
        """
        before = None if former is None else self._quota_of(former)
        if isinstance(spec, QuotaSpec):
            self._write(at, QuotaBucket(spec, instead_of=before, now=now).state())
        else:
            self._write(at, (ThrottleBucket(spec, instead_of=before, now=now)._level, now, 0.0, 0.0))

    def _begin_parted(self, spec: QuotaSpec, before: Bucket | None, now: float, at: int, former: Former | None) -> None:
        """Write the state of a new quota with parts at the word `at`: filled to the same share of its capacity as the
        `former` record of the key or, if there is none, as `before`, a bucket of this process that had no parts; fresh
        if there is neither.
        """
        if former is not None:
            before = self._quota_of(former)
        self._write(at, PartedQuota(spec, instead_of=before, now=now).state())

    def _quota_of(self, former: Former) -> QuotaBucket:
        """A quota with the level of a former record of any kind of bucket, and with the tokens that have been refilled
        since.
        """
        before = QuotaBucket(QuotaSpec(former.size))
        before.restore(self._numbers(former, QUOTA_NUMBERS))
        return before

    def _rings(self, key: Key, spec: BudgetSpec) -> Rings:
        """The shared record of the budget of this key, with a ring of slices for each window; `spec` defines it."""
        return Rings(self.memory.large, self._definition("bucket", key, spec), self._begin_budget)

    def _budget_of(self, key: Key, spec: BudgetSpec, app: str) -> buckets.SharedBudget:
        """The budget for the calls of one app alone, in addition to the budget of this key, which is for the calls of
        all apps.
        """
        return buckets.SharedBudget(spec, self._rings((*key, "app", app), spec), self.memory)

    def _begin_budget(self, at: int, former: Former | None) -> None:
        for offset in (0, ring.WORDS, 2 * ring.WORDS):
            ring.RingCount.begin(self.memory, at + offset, former, offset)
