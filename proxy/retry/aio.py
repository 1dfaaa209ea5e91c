"""Strategies for callers that await them, as smithy-core's clients do.

A strategy decides and its caller waits, so nothing here waits: the methods of a strategy are called as they are, and
answer at once. If smithy-core is installed, a refusal is its RetryError too, which its clients know. Source:
smithy-python, `smithy_core/aio/interfaces/retries.py` and `smithy_core/aio/client.py` (0.9.0).
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from proxy.retry import plugins
from proxy.retry.plugins import RetryBackoffStrategy, RetryToken

__all__ = ["AsyncRetryError", "AsyncRetryStrategy", "AwaitedRetryStrategy", "RetryError", "is_awaited", "wrap"]

_METHODS = ("acquire_initial_retry_token", "refresh_retry_token_for_retry", "record_success")
_MEMBERS = (*_METHODS, "backoff_strategy", "max_attempts")

if TYPE_CHECKING:
    _SmithyCores = Exception
else:
    try:
        _SmithyCores = import_module("smithy_core.exceptions").RetryError
    except ImportError:
        _SmithyCores = Exception


class AsyncRetryError(plugins.RetryError, _SmithyCores):
    """No further attempt is to be made; raised `from` the failure that the caller should see. It is smithy-core's
    RetryError too, where that package is installed. `retry_after` is None: it is smithy-core's for long polling.
    """

    retry_after: float | None = None


#: As it is known: by the name that it has in smithy-core, and in `proxy.retry`.
RetryError = AsyncRetryError


@runtime_checkable
class AwaitedRetryStrategy(Protocol):
    """Issuer of tokens, awaited. Arguments, results and exceptions are those of `proxy.retry.RetryStrategy`."""

    backoff_strategy: RetryBackoffStrategy
    """The backoff strategy, which computes the waits."""

    max_attempts: int
    """The number of attempts, including the first."""

    async def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> RetryToken:
        """Begin a call within a scope; the caller waits the token's delay."""

    async def refresh_retry_token_for_retry(self, *, token_to_renew: RetryToken, error: Exception) -> RetryToken:
        """Exchange a failed attempt's token for the next one's, or raise RetryError from `error`."""

    async def record_success(self, *, token: RetryToken) -> None:
        """The attempt of this token succeeded."""


class AsyncRetryStrategy:
    """A strategy with plain methods, awaited. `strategy` is what decides; its buckets are shared by all that wrap it.

    Raises ValueError for anything else, or a strategy whose methods are awaited already.
    """

    def __init__(self, strategy: plugins.RetryStrategy) -> None:
        if isinstance(strategy, type):
            raise ValueError(f"{strategy.__name__} is a class; make a strategy of it: {strategy.__name__}()")
        if lacking := [name for name in _MEMBERS if not hasattr(strategy, name)]:
            raise ValueError(f"{strategy!r} is not a RetryStrategy: it has no {', '.join(lacking)}")
        if is_awaited(strategy):
            raise ValueError(f"{strategy!r} is awaited already")
        self.strategy = strategy

    @property
    def backoff_strategy(self) -> RetryBackoffStrategy:
        """The backoff strategy, which computes the waits."""
        return self.strategy.backoff_strategy

    @backoff_strategy.setter
    def backoff_strategy(self, other: RetryBackoffStrategy) -> None:
        self.strategy.backoff_strategy = other

    @property
    def max_attempts(self) -> int:
        """The number of attempts, including the first."""
        return self.strategy.max_attempts

    @max_attempts.setter
    def max_attempts(self, other: int) -> None:
        self.strategy.max_attempts = other

    async def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> RetryToken:
        """Begin a call within a scope; the caller waits the token's delay. Raises RetryError if there is no token."""
        try:
            return self.strategy.acquire_initial_retry_token(token_scope=token_scope)
        except plugins.RetryError as no:
            raise _told(no) from no.__cause__

    async def refresh_retry_token_for_retry(self, *, token_to_renew: RetryToken, error: Exception) -> RetryToken:
        """Exchange a failed attempt's token for the next one's, or raise RetryError from `error`.

        Raises ValueError for a token that the strategy did not issue or that was used already.
        """
        try:
            return self.strategy.refresh_retry_token_for_retry(token_to_renew=token_to_renew, error=error)
        except plugins.RetryError as no:
            raise _told(no) from (no.__cause__ or error)

    async def record_success(self, *, token: RetryToken) -> None:
        """The attempt of this token succeeded. Raises ValueError as above."""
        self.strategy.record_success(token=token)

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncRetryStrategy:
        """A copy is the strategy itself: a copied client configuration shares its buckets."""
        return self

    def __repr__(self) -> str:
        return f"AsyncRetryStrategy({self.strategy!r})"


def wrap(strategy: plugins.RetryStrategy | AwaitedRetryStrategy) -> AwaitedRetryStrategy:
    """Any strategy as one that is awaited: one with plain methods is wrapped, an awaited one is returned."""
    if is_awaited(strategy):
        return strategy  # type: ignore[return-value]
    return AsyncRetryStrategy(strategy)  # type: ignore[arg-type]


def is_awaited(strategy: object) -> bool:
    """Whether any of a strategy's methods is a coroutine function."""
    return any(inspect.iscoroutinefunction(getattr(strategy, name, None)) for name in _METHODS)


def _told(no: plugins.RetryError) -> RetryError:
    return no if isinstance(no, RetryError) else RetryError(*no.args)
