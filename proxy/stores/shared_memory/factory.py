"""What the workers of one machine share, made in the memory that they share.

Law: whoever is first makes a record, the others find it; a definition that changed begins with the share of the newest
one before, once, whichever worker is first to use it.
"""

from __future__ import annotations

import math
from functools import partial
from struct import Struct
from typing import cast

from proxy.retry.buckets import Bucket, QuotaBucket, RateBucket, ThrottleBucket
from proxy.retry.cooldown import Cooldown
from proxy.retry.cubic_limiter import CubicLimiter
from proxy.retry.policy import BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.registry import Factory, Key, SeenKeys
from proxy.retry.token_bucket import TokenBucket
from proxy.stores.shared_memory import ring
from proxy.stores.shared_memory.buckets import (
    SharedBudget,
    SharedQuota,
    SharedRate,
    SharedRefilledQuota,
    SharedThrottle,
)
from proxy.stores.shared_memory.cell import Cell
from proxy.stores.shared_memory.cooldown import QUIET, SharedCooldown
from proxy.stores.shared_memory.cooldown import STATE as COOLDOWN_STATE
from proxy.stores.shared_memory.gates import (
    SEEN_ROWS,
    SEEN_WAYS,
    SharedLimiter,
    SharedSeen,
    limiter_state,
)
from proxy.stores.shared_memory.records import STATE, Definition, Former, Memory, digest

_PAIR = Struct("2d")
#: Of a quota that time refills, or that takes the place of one: its level, as of when, and tokens a second.
_REFILLED = Struct("3d")
_LIMITER = Struct("10d")
#: Budgets are large: three windows of slices.
_BUDGET_WORDS = STATE + 3 * ring.WORDS
_BUDGETS = 1024


def open_memory(descriptor: int) -> Memory:
    """The memory behind a descriptor of `proxy.stores.shared_memory.records.descriptor`, laid out for what is here."""
    return Memory(descriptor, large=_BUDGET_WORDS, larges=_BUDGETS, seen=SEEN_ROWS * SEEN_WAYS)


class SharedFactory(Factory):
    """Makes what calls share, in shared memory. `generation` is the configuration's, counted by the parent.

    `made` are the keys that were asked for since it was last emptied, for who adds workers up.
    """

    def __init__(self, memory: Memory, generation: int = 0) -> None:
        self.memory = memory
        self.generation = generation
        self.made: list[tuple[str, Key, BucketSpec | None]] = []

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        """The bucket of this key and definition."""
        cell = getattr(before, "cell", None)
        if before is not None and before.spec == spec and isinstance(cell, Cell):
            if cell.renew(self.generation):
                self.made.append(("bucket", key, spec))
            return before
        self.made.append(("bucket", key, spec))
        table = self.memory.small
        match spec:
            case QuotaSpec():
                wanted = self._definition("bucket", key, spec, spec.capacity)
                begin = partial(self._begin_store, QuotaBucket(spec), spec.refill, now)
                if spec.refill:
                    return SharedRefilledQuota(spec, Cell(table, wanted, begin, _REFILLED))
                return SharedQuota(spec, Cell(table, wanted, begin))
            case ThrottleSpec():
                wanted = self._definition("bucket", key, spec, ThrottleBucket(spec)._most)
                return SharedThrottle(
                    spec, Cell(table, wanted, partial(self._begin_store, ThrottleBucket(spec), 0.0, now))
                )
            case BudgetSpec():
                wanted = self._definition("bucket", key, spec, 0.0)
                return SharedBudget(spec, Cell(self.memory.large, wanted, self._begin_budget), self.memory)
            case _:
                raise TypeError("a bucket of kind rate is a gate for attempts: `rate`")

    def rate(self, key: Key, spec: RateSpec, before: RateBucket | None, now: float) -> RateBucket:
        """The rate bucket of this key and definition."""
        if isinstance(before, SharedRate) and before.spec == spec:
            if before.cell.renew(self.generation):
                self.made.append(("rate", key, spec))
            return before
        self.made.append(("rate", key, spec))

        def begin(at: int, former: Former | None) -> None:
            instead = None
            if former is not None:
                level, since = former.doubles[former.state], former.doubles[former.state + 1]
                instead = cast(RateBucket, TokenBucket(0.0, former.size, level, since))
            bucket = RateBucket(spec, instead_of=instead, started=now)
            _PAIR.pack_into(self.memory.map, at * 8, bucket._level, bucket._at)

        wanted = self._definition("rate", key, spec, spec.burst)
        return SharedRate(spec, Cell(self.memory.small, wanted, begin, _PAIR))

    def limiter(self, key: Key, now: float) -> CubicLimiter:
        """The adaptive limiter of this key."""
        self.made.append(("limiter", key, None))

        def begin(at: int, former: Former | None) -> None:
            _LIMITER.pack_into(self.memory.map, at * 8, *limiter_state(CubicLimiter(now)))

        return SharedLimiter(Cell(self.memory.small, self._definition("limiter", key, None), begin, _LIMITER))

    def cooldown(self, upstream: str, value: str) -> Cooldown:
        """The cooldown of this upstream and scope value."""
        key = upstream, value
        self.made.append(("cooldown", key, None))

        def begin(at: int, former: Former | None) -> None:
            self.memory.doubles[at] = -math.inf

        def begin_group(at: int, former: Former | None) -> None:
            COOLDOWN_STATE.pack_into(self.memory.map, at * 8, *QUIET)

        def attach(name: bytes, make: bool) -> Cell | None:
            wanted = self._definition("cooldown", (*key, name), None)
            if not make and not self.memory.small.knows(wanted.key):
                return None
            return Cell(self.memory.small, wanted, begin_group, COOLDOWN_STATE)

        return SharedCooldown(Cell(self.memory.small, self._definition("cooldown", key, None), begin), attach)

    def seen(self, upstream: str, value: str) -> SeenKeys:
        """The seen keys of this upstream and scope value."""
        return SharedSeen(self.memory, digest("seen", upstream, value))

    # -- beginnings -------------------------------------------------------------------------------------------------

    def _definition(self, sort: str, key: Key, spec: BucketSpec | None, size: float = 0.0) -> Definition:
        return Definition(digest(sort, key), digest(spec), self.generation, size)

    def _begin_store(
        self, fresh: QuotaBucket | ThrottleBucket, refill: float, now: float, at: int, former: Former | None
    ) -> None:
        """A store of tokens begins as a fresh one does, or with the share that the one before it has now."""
        before = None if former is None else _Before(former, now)
        level = type(fresh)(fresh.spec, instead_of=before, now=now)._level  # type: ignore[arg-type]
        _REFILLED.pack_into(self.memory.map, at * 8, level, now, refill)

    def _begin_budget(self, at: int, former: Former | None) -> None:
        for offset in (0, ring.WORDS, 2 * ring.WORDS):
            ring.RingCount.begin(self.memory, at + offset, former, offset)


class _Before(QuotaBucket):
    """A bucket that another takes the place of, whatever kind it was: its share is what counts."""

    __slots__ = ()

    def __init__(self, former: Former, now: float) -> None:
        level, since, refill = (former.doubles[former.state + word] for word in range(3))
        super().__init__(QuotaSpec(former.size, initial=level, refill=refill), now=since)
