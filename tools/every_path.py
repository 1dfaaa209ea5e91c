"""Policies that between them open every path of a call, for `transitions.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from proxy.retry.buckets import ASK, Affords, Bucket, QuotaBucket
from proxy.retry.facts import Class, FaultKind
from proxy.retry.policy import (
    Backoff,
    BucketRef,
    BucketSpec,
    Classify,
    Policy,
    PushbackPolicy,
    QuotaSpec,
    RateSpec,
    Rule,
    Strategy,
    Timeouts,
)
from proxy.retry.registry import Factory, Key

_CLASSIFY = Classify(
    statuses={503: Class.TRANSIENT, 429: Class.THROTTLING},
    grpc={14: Class.TRANSIENT},
    faults=dict.fromkeys((FaultKind.CONNECT_FAILURE, FaultKind.RESET, FaultKind.REFUSED_STREAM), Class.TRANSIENT)
    | {FaultKind.ATTEMPT_TIMEOUT: Class.TIMEOUT},
    rules=(Rule(Class.THROTTLING, "a rule", statuses=frozenset({400}), json=((("code",), "slow"),)),),
)
_STANDARD = Strategy("standard", "standard", 3, Backoff(0.1, 20.0, jitter="none"))
_AT_ONCE = replace(_STANDARD, backoff=Backoff(0.0, 0.0, jitter="none"))
_PLAIN = Policy("u", "", _STANDARD, BucketRef(QuotaSpec()), classify=_CLASSIFY)


class _Slow:
    """A strategy of one's own that delays the first attempt."""

    class Token:
        retry_count = 0
        retry_delay = 0.1

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> Token:
        return self.Token()

    def refresh_retry_token_for_retry(self, *, token_to_renew: Token, error: Exception) -> Token:
        return self.Token()

    def record_success(self, *, token: Token) -> None:
        pass


def _rate(when_empty: Literal["wait", "reject"], initial: float) -> BucketRef:
    return BucketRef(RateSpec(rate=1.0, burst=1.0, when_empty=when_empty, initial=initial), name="pace")


class _Elsewhere(QuotaBucket):
    """A bucket that has to be asked, and answers when the driver says so."""

    def affords(self, price: float, now: float) -> Affords:
        return ASK

    def take(self, price: float, now: float) -> bool:
        return False


class Elsewhere(Factory):
    """Makes the bucket that is said to be in Redis one that has to be asked."""

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        """One of this definition."""
        if isinstance(spec, QuotaSpec) and spec.store == "redis":
            return _Elsewhere(spec)
        return super().bucket(key, spec, before, now)


_ASKED = BucketRef(QuotaSpec(store="redis"))

#: (policy, places in the waiting room, whether a cooldown is in force when the call begins)
SEQUENTIAL: list[tuple[Policy, int, bool]] = [
    (_PLAIN, 100, False),
    (replace(_PLAIN, strategy=_AT_ONCE), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 0)), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 1)), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 1), timeouts=Timeouts(total=0.5)), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 1), strategy=_AT_ONCE), 100, False),
    (replace(_PLAIN, rate=_rate("wait", 1), strategy=_AT_ONCE), 0, False),
    (replace(_PLAIN, rate=_rate("reject", 0)), 100, False),
    (replace(_PLAIN, rate=_rate("reject", 1)), 100, False),
    (replace(_PLAIN, bucket=BucketRef(QuotaSpec(capacity=0))), 100, False),
    (replace(_PLAIN, bucket=_ASKED), 100, False),
    (replace(_PLAIN, bucket=_ASKED, strategy=_AT_ONCE), 100, False),
    (replace(_PLAIN, bucket=_ASKED, strategy=_AT_ONCE, timeouts=Timeouts(total=0.5)), 100, False),
    (replace(_PLAIN, timeouts=Timeouts(total=0.05)), 100, False),
    (replace(_PLAIN, pushback=PushbackPolicy(max_delay=0.5)), 100, False),
    (replace(_PLAIN, mode="off"), 100, False),
    (_PLAIN, 0, False),
    (_PLAIN, 100, True),
    (_PLAIN, 0, True),
    (replace(_PLAIN, pushback=PushbackPolicy(cooldown="reject")), 100, True),
    (replace(_PLAIN, timeouts=Timeouts(total=0.05)), 100, True),
    (replace(_PLAIN, strategy=replace(_STANDARD, kind="custom", custom=_Slow())), 100, False),
    (replace(_PLAIN, strategy=replace(_STANDARD, kind="custom", custom=_Slow())), 0, False),
]

_HEDGING = Strategy(
    "hedging",
    "hedging",
    3,
    Backoff(0.0, 0.0, jitter="none"),
    hedging_delay=0.5,
    non_fatal=frozenset({503, 429, 400, FaultKind.CONNECT_FAILURE, FaultKind.RESET, FaultKind.REFUSED_STREAM}),
)
_HEDGED = replace(_PLAIN, strategy=_HEDGING)

HEDGED: list[tuple[Policy, int, bool]] = [
    (_HEDGED, 100, False),
    (replace(_HEDGED, strategy=replace(_HEDGING, hedging_delay=0.0)), 100, False),
    (replace(_HEDGED, bucket=BucketRef(QuotaSpec(capacity=5))), 100, False),
    (replace(_HEDGED, bucket=_ASKED), 100, False),
    (replace(_HEDGED, timeouts=Timeouts(total=0.7)), 100, False),
    (replace(_HEDGED, rate=_rate("wait", 0)), 100, False),
    (_HEDGED, 0, False),
]
