"""The built-in strategies, as definitions: the contract's table of strategies. Every default names its source. The
`kind:` of a configuration and the classes of `proxy.retry.strategies.smithy` both start from this one table.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.retry.facts import FaultKind
from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.retry.policies.policy import Backoff, Strategy

#: Failures after which a hedged call goes on. gRPC A6 leaves the codes to each service; these are safe for a proxy that
#: serves HTTP and gRPC alike.
NON_FATAL: frozenset[int | str | FaultKind] = frozenset(
    {
        "UNAVAILABLE",
        "INTERNAL",
        "ABORTED",
        *(409, 429, 500, 502, 503, 504),
        *(FaultKind.CONNECT_FAILURE, FaultKind.REFUSED_STREAM, FaultKind.RESET),
    }
)

# AWS SDK for Java 2.x, DefaultRetryStrategy: base 100 ms, cap 20 s, 500 tokens, 5 a retry.
STANDARD = Strategy("standard", "standard", 3, Backoff(0.1, 20.0), own_bucket=QuotaSpec())

# AWS SDKs' retry 2.1 (the "new retries" of 2026): base 50 ms, after throttling 1 s, 14 a retry, 5 after throttling.
STANDARD_2026 = Strategy(
    "standard-2026",
    "standard-2026",
    3,
    Backoff(0.05, 20.0, throttling_base=1.0),
    own_bucket=QuotaSpec(retry_cost=14, timeout_cost=14, throttling_cost=5),
    pushback_clamp=5.0,
)

# AWS SDK for Java 2.x, LegacyRetryStrategy: throttling waits longer and is free.
LEGACY = Strategy(
    "legacy", "legacy", 4, Backoff(0.1, 20.0, throttling_base=0.5), own_bucket=QuotaSpec(throttling_cost=0)
)

# AWS SDK for Java 2.x, AdaptiveRetryStrategy in ADAPTIVE_V2: standard, with a client-side rate limiter.
ADAPTIVE = Strategy("adaptive", "adaptive", 3, Backoff(0.1, 20.0), own_bucket=QuotaSpec(), paced=True)

# Smithy, "Retrying Requests", the example strategy: 5 retries, timeouts cost 10, +1 on every success.
SMITHY = Strategy("smithy", "smithy", 6, Backoff(1.0, 20.0), own_bucket=QuotaSpec(timeout_cost=10, flat_refund=True))

# gRPC A6, with the draft's jitter; a pushback is waited exactly, and restarts the series.
GRPC = Strategy("grpc", "grpc", 4, Backoff(1.0, 5.0, multiplier=3.0), exact_pushback=True)

#: Contract, section 13: the share of calls that may be hedged if the hedging delay is a percentile.
EXTRA = 0.1

# gRPC A6, hedging policy: no backoff, a hedge every 500 ms.
HEDGING = Strategy(
    "hedging",
    "hedging",
    3,
    Backoff(0.0, 0.0, jitter="none"),
    exact_pushback=True,
    hedging_delay=0.5,
    non_fatal=NON_FATAL,
)

NONE = Strategy("none", "none", 1, Backoff(0.0, 0.0, jitter="none"))

BUILT_IN: Mapping[str, Strategy] = {
    strategy.kind: strategy for strategy in (STANDARD, STANDARD_2026, LEGACY, ADAPTIVE, SMITHY, GRPC, HEDGING, NONE)
}
