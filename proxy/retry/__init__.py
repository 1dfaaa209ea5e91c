"""Floor 0: deciding. Pure: no I/O, no clock, no randomness of its own, no asyncio, no logging.

Exported here are the Smithy interfaces and the strategies by class (contract, section 7).
"""

from proxy.retry.backoff import ExponentialRetryBackoffStrategy
from proxy.retry.plugins import ErrorRetryInfo, HasFault, RetryBackoffStrategy, RetryError, RetryStrategy, RetryToken
from proxy.retry.smithy import (
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
    "ErrorRetryInfo",
    "ExponentialRetryBackoffStrategy",
    "GrpcRetryStrategy",
    "HasFault",
    "HedgingRetryStrategy",
    "LegacyRetryStrategy",
    "RetryBackoffStrategy",
    "RetryError",
    "RetryStrategy",
    "RetryToken",
    "SmithyRetryStrategy",
    "Standard2026RetryStrategy",
    "StandardRetryStrategy",
]
