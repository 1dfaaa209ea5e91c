"""Strategies for callers that await them, as smithy-core's clients do.

A strategy decides and its caller waits, so these coroutines never wait: each calls the plain method of the wrapped
strategy and returns its result at once. If smithy-core is installed, a refusal is also smithy-core's RetryError, which
its clients catch. Source: smithy-python, `smithy_core/aio/interfaces/retries.py` and `smithy_core/aio/client.py`
(0.9.0).
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
    """The refusal of a further attempt, raised `from` the failure that the caller should see. If smithy-core is
    installed, this is a subclass of its RetryError too. `retry_after` is always None: smithy-core uses it for long
    polling.
    """

    retry_after: float | None = None


#: The same class under the name that smithy-core and `proxy.retry` use for it.
RetryError = AsyncRetryError


@runtime_checkable
class AwaitedRetryStrategy(Protocol):
    """A strategy whose methods are awaited. Arguments, results and exceptions are those of
    `proxy.retry.RetryStrategy`.
    """

    backoff_strategy: RetryBackoffStrategy
    """The backoff strategy, which computes the waits."""

    max_attempts: int
    """The number of attempts, including the first."""

    async def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> RetryToken:
        """Begin a call in the scope named `token_scope` (None: the scope without a name). Returns the token of the
        call's first attempt; the caller waits the token's delay before it sends the attempt.
        """

    async def refresh_retry_token_for_retry(self, *, token_to_renew: RetryToken, error: Exception) -> RetryToken:
        """Exchange `token_to_renew`, a failed attempt's token, for the next attempt's token, or raise RetryError from
        `error` if there is no next attempt.
        """

    async def record_success(self, *, token: RetryToken) -> None:
        """Record that the attempt of this token succeeded."""


class AsyncRetryStrategy:
    """A strategy with plain methods, made awaitable. `strategy` makes all decisions; all wrappers of one strategy share
    its buckets. Raises ValueError for an object that is no strategy, or whose methods are awaited already.
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
        """Begin a call in the scope named `token_scope` (None: the scope without a name). Returns the token of its
        first attempt, whose delay the caller waits before it sends the attempt. Raises RetryError if no token is
        available.
        """
        try:
            return self.strategy.acquire_initial_retry_token(token_scope=token_scope)
        except plugins.RetryError as no:
            raise _awaited_error(no) from no.__cause__

    async def refresh_retry_token_for_retry(self, *, token_to_renew: RetryToken, error: Exception) -> RetryToken:
        """Exchange `token_to_renew`, a failed attempt's token, for the next attempt's token, or raise RetryError from
        `error` if there is no next attempt.

        Raises ValueError for a token that the strategy did not issue or that was used already.
        """
        try:
            return self.strategy.refresh_retry_token_for_retry(token_to_renew=token_to_renew, error=error)
        except plugins.RetryError as no:
            raise _awaited_error(no) from (no.__cause__ or error)

    async def record_success(self, *, token: RetryToken) -> None:
        """Record that the attempt of this token succeeded. Raises ValueError for a token that the strategy did not
        issue or that was used already.
        """
        self.strategy.record_success(token=token)

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncRetryStrategy:
        """Return the strategy itself, so that a copied client configuration shares its buckets."""
        return self

    def __repr__(self) -> str:
        return f"AsyncRetryStrategy({self.strategy!r})"


def wrap(strategy: plugins.RetryStrategy | AwaitedRetryStrategy) -> AwaitedRetryStrategy:
    """Return any strategy as an awaited one: a plain strategy is wrapped, an awaited one is returned as it is."""
    if is_awaited(strategy):
        return strategy  # type: ignore[return-value]
    return AsyncRetryStrategy(strategy)  # type: ignore[arg-type]


def is_awaited(strategy: object) -> bool:
    """Whether any of a strategy's methods is a coroutine function."""
    return any(inspect.iscoroutinefunction(getattr(strategy, name, None)) for name in _METHODS)


def _awaited_error(no: plugins.RetryError) -> RetryError:
    return no if isinstance(no, RetryError) else RetryError(*no.args)
