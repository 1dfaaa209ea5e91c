"""Floor 0 (the lowest layer of the code), which decides about retries. Pure: no I/O, no clock, no randomness of its
own, no asyncio, no logging.

Its folders each have one subject; `call/machine.py` is the place to begin.

This package exports the Smithy interfaces, the strategies as classes (contract, section 7), and the definitions of
their buckets. `proxy.retry.aio` has the same for callers that await a strategy.
"""

from proxy.retry.plugins import ErrorRetryInfo, HasFault, RetryBackoffStrategy, RetryError, RetryStrategy, RetryToken
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec, ThrottleSpec
from proxy.retry.strategies.backoff import ExponentialRetryBackoffStrategy
from proxy.retry.strategies.smithy import (
    AdaptiveRetryStrategy,
    GrpcRetryStrategy,
    HedgingRetryStrategy,
    LegacyRetryStrategy,
    SmithyRetryStrategy,
    Standard2026RetryStrategy,
    StandardRetryStrategy,
)

__all__ = [
    "AdaptiveRetryStrategy",
    "BudgetSpec",
    "ErrorRetryInfo",
    "ExponentialRetryBackoffStrategy",
    "GrpcRetryStrategy",
    "HasFault",
    "HedgingRetryStrategy",
    "LegacyRetryStrategy",
    "QuotaSpec",
    "RetryBackoffStrategy",
    "RetryError",
    "RetryStrategy",
    "RetryToken",
    "SmithyRetryStrategy",
    "Standard2026RetryStrategy",
    "StandardRetryStrategy",
    "ThrottleSpec",
]
