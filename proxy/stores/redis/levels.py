"""Throttles and budgets in Redis, which decide by the last known level and their own unsent changes.

A decision rests on a level that was reported within the last 100 ms; without one the bucket asks Redis first. If Redis
is out, each bucket continues by itself: a throttle from the last known level, a budget on the calls and retries of its
own process, which it counts all the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.app_buckets import AppBudget
from proxy.retry.budgets.buckets import ASK, Affords, Bucket, BudgetBucket, ThrottleBucket
from proxy.retry.policies.bucket_specs import BudgetSpec, ThrottleSpec
from proxy.stores.redis.bucket import FRESH, PROMPT, RedisBucket, Store
from proxy.stores.redis.share import Share, Turns

#: Seconds after a decision for which the level is still asked for, so that the next decision finds a fresh one.
WHILE = 1.0


class _Level(RedisBucket, Bucket):
    """A bucket of the fleet that decides by the level that Redis last reported: what throttles and budgets in Redis
    have in common.
    """

    _decided_at = -math.inf

    def affords(self, price: float, now: float) -> Affords:
        """Whether a retry with this price would be granted: by the bucket of this process if Redis is out, else by the
        fleet's level; ASK if that level is not fresh.
        """
        if self.store.out:
            return not self.store.withholds() and self._own_affords(price, now)
        self._decided_at = now
        return self._fleet_affords(price, now) if now - self.heard_at <= FRESH else ASK

    def take(self, price: float, now: float) -> bool:
        return self.affords(price, now) is True and self._charge(now)

    def _pay(self, price: float, now: float) -> bool:
        """Decide, by the level that Redis has just reported, whether a retry that waited for that reply is granted, and
        charge the retry if so. Returns whether it is granted.
        """
        if self.store.out:
            return self.take(price, now)
        return self._fleet_affords(price, now) and self._charge(now)

    def _pay_alone(self, price: float, now: float) -> bool:
        return self._alone_affords(price, self.store.share_now(now), now) and self._charge(now)

    def _charge(self, now: float) -> bool:
        """Charge a granted retry to the bucket as an app's own retry is charged: a throttle takes nothing, a budget
        counts one retry. Returns True.
        """
        self.charge_app_retry(now)
        return True

    def _plan(self, now: float) -> None:
        if self._asks:
            self._soon(max(now, self._asks_at))
        elif now - self._decided_at < WHILE or self._has_changed():
            self._soon(now + PROMPT)

    def _own_affords(self, price: float, now: float) -> bool:
        raise NotImplementedError

    def _fleet_affords(self, price: float, now: float) -> bool:
        raise NotImplementedError

    def _alone_affords(self, price: float, share: Share, now: float) -> bool:
        """Whether this process, whose share of the fleet is `share`, grants a retry at this price that Redis has not
        answered in time.
        """
        raise NotImplementedError

    def _has_changed(self) -> bool:
        """Whether this process has changes of the level that it has not reported to Redis yet."""
        raise NotImplementedError


class RedisThrottle(_Level, ThrottleBucket):  # type: ignore[misc]  # `affords` may also answer ASK
    """A throttle of the fleet. Redis keeps its level in thousandths of tokens, as grpc-core does. `key`: its key in
    Redis; `known`: the last known level of the bucket that this one replaces, None if it replaces none.
    """

    def __init__(self, spec: ThrottleSpec, store: Store, key: str, known: float | None) -> None:
        ThrottleBucket.__init__(self, spec)
        self._start = self._level
        self._whole = self._most
        self._changes = 0.0  # the sum of all changes of this process
        self._changes_reported = self._changes_sent = 0.0
        if known is not None:
            self._level = round(known * 1000)
        self.hold(store, key, known)

    _own_affords = _fleet_affords = ThrottleBucket.affords

    def _alone_affords(self, price: float, share: Share, now: float) -> bool:
        return share.of > 0 and self._fleet_affords(price, now)  # half of a share is half of the whole

    def part(self, now: float) -> None:
        """Go on without Redis, with this process's share of the level and of the capacity: retries are granted above
        half of that share.
        """
        of = max(1, self.store.share.of)
        self._level, self._most = self._level / of, self._whole // of

    def failed(self, now: float) -> None:
        before = self._level
        super().failed(now)
        self._change(self._level - before if self._knows else -1000, now)

    def succeeded(self, last_price: float | None, now: float) -> None:
        if self._level < self._most or not self._knows:
            before = self._level
            super().succeeded(last_price, now)
            self._change(self._level - before if self._knows else self._ratio, now)

    @property
    def _knows(self) -> bool:
        """Whether this process knows the throttle's level. If it does, it reports only changes that keep the level
        within the throttle's bounds; if it does not, its changes may exceed the bounds, and Redis cuts the level off
        there.
        """
        return bool(self._made) or self._known is not None or self.store.out

    def _change(self, by: float, now: float) -> None:
        self._changes += by
        if by:
            self._report_soon(now)

    def _has_changed(self) -> bool:
        return self._changes != self._changes_reported

    def _report(self, now: float) -> Iterable[float | str | None]:
        self._changes_sent = self._changes
        of = max(1, self.store.share.of) if self.store.out else 1
        known = min(self._whole, self._level * of) if self._knows and not self.store.observes else None
        return (
            *(0, self._changes, 0, self._changes_reported, 0, "", 0, 0),
            *(known, self._start, self._whole, 0, self.store.observes),
        )

    def _learn(self, values: list[float], now: float) -> None:
        self._changes_reported = self._changes_sent
        self._most = self._whole
        level = round(values[1]) + self._changes - self._changes_reported
        self._level = max(0, min(self._most, level))


class RedisBudget(_Level, BudgetBucket):  # type: ignore[misc]  # `affords` may also answer ASK
    """A budget of the fleet. The windows of the base class count this process alone; `_fleet` has the fleet's counts.
    `key`: its key in Redis; `instead_of`: the bucket that it replaces, None for none.
    """

    script = "budget"

    def __init__(self, spec: BudgetSpec, store: Store, key: str, instead_of: BudgetBucket | None) -> None:
        BudgetBucket.__init__(self, spec, instead_of=instead_of)
        self._begun = self._retried = 0  # the sums of all calls and retries of this process
        self._reported = self._sent = (0, 0)
        self._since = -math.inf  # when the first call that is not reported began
        self._fleet: tuple[float, float, float] | None = None
        self._least = spec.min_per_second  # this process's share of it while Redis is out
        self._turns: Turns | None = None  # in place of a share that is less than one a second
        self._views: dict[str, Bucket] = {}
        self.hold(store, key, None)

    def level(self, now: float) -> float:
        if self.store.out or self._fleet is None:
            return super().level(now)
        calls, retries, second = self._counts()
        spec = self.spec
        most = max(spec.percent * calls / 100 - retries, spec.min_per_second - second, 0.0)
        return float(math.ceil(most - 1e-9)) if most < math.inf else most

    def of_app(self, app: NamedApp) -> Bucket:
        if not self.spec.apps:
            return self
        view = self._views.get(app.name)
        if view is None:  # the app's own budget is this process's
            view = self._views[app.name] = AppBudget(self, BudgetBucket(self.spec))
        return view

    def begin(self, now: float) -> None:
        super().begin(now)
        if self._begun == self._reported[0]:
            self._since = now
        self._begun += 1
        if self.due == math.inf:
            self._report_soon(now)

    def part(self, now: float) -> None:
        """Go on without Redis. This process then grants itself its share of `min_per_second`, and retries up to
        `percent` of its own calls instead of the fleet's.
        """
        share = self.store.share
        least = self.spec.min_per_second
        self._least = least / max(1, share.of)
        self._turns = Turns(least, 1.0, 0.0, share, now) if 0 < self._least < 1 < share.of else None

    def _own_affords(self, price: float, now: float) -> bool:
        if 100 * self._retries.count(now) < self.spec.percent * self._calls.count(now):
            return True
        if self._turns is not None:
            return self._turns.wait(now) <= 0
        return self._last_second.count(now) < self._least

    def _alone_affords(self, price: float, share: Share, now: float) -> bool:
        if not share.of:
            return False
        if 100 * self._retries.count(now) < self.spec.percent * self._calls.count(now):
            return True
        return self._last_second.count(now) < share.part(self.spec.min_per_second, 1.0)

    def _fleet_affords(self, price: float, now: float) -> bool:
        """Whether the fleet may make another retry: its retries are below the allowed percentage of its calls, or its
        retries of this second are below the minimum.
        """
        calls, retries, second = self._counts()
        return 100 * retries < self.spec.percent * calls or second < self.spec.min_per_second

    def give_back(self, price: float, now: float, *, taken_at: float | None = None) -> None:
        """Count one retry less, always the newest one (`taken_at` is not used). Counts nothing if `price` is 0, since
        that retry was free.
        """
        if price:
            super().give_back(price, now)
            self._retried -= 1
            self._report_soon(now)

    def charge_app_retry(self, now: float) -> float:
        self._retried += 1
        if self.store.out and self._turns is not None:
            self._turns.take(now)
        self._report_soon(now)
        return super().charge_app_retry(now)

    def _counts(self) -> tuple[float, float, float]:
        """The calls, the retries, and the retries of the last second: the fleet's numbers as last reported, and those
        of this process since.
        """
        assert self._fleet is not None
        calls, retries, second = self._fleet
        more = self._retried - self._reported[1]
        return calls + self._begun - self._reported[0], max(0.0, retries + more), max(0.0, second + more)

    def _has_changed(self) -> bool:
        return (self._begun, self._retried) != self._reported

    def _report(self, now: float) -> Iterable[float | str | None]:
        spec = self.spec
        known: tuple[float | None, ...] = (None, None, None)
        if self._fleet is not None and not self.store.observes:
            windows = self._calls, self._retries, self._last_second
            is_recent = now - self.heard_at < spec.window
            known = self._counts() if is_recent else tuple(each.count(now) for each in windows)
        if now - self.heard_at > PROMPT:  # after an outage only what is still in the window counts
            self._begun = min(self._begun, self._reported[0] + self._calls.count(now))
            self._retried = min(self._retried, self._reported[1] + self._retries.count(now))
        self._sent = (self._begun, self._retried)
        age = now - self._since if self._begun != self._reported[0] else 0.0
        return *self._sent, *self._reported, age, *known, spec.window, spec.percent, spec.min_per_second

    def _learn(self, values: list[float], now: float) -> None:
        self._reported = self._sent
        calls, retries, second = values
        self._fleet = calls, retries, second
        if self._begun != self._reported[0]:
            self._since = self._sent_at
