"""The Smithy retry interfaces, as the Smithy Python design names them (contract, section 7).

Law: what a call knows lives in its token, what calls share lives behind the strategy, and every method is a plain
function - a strategy decides, its caller waits. The protocols are runtime-checkable: an exception says by its
attributes alone what is known of it. Source: Smithy "Retrying Requests"; smithy-python, `interfaces/retries.py`.
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable


class RetryError(Exception):
    """No further attempt is to be made; raised `from` the failure that the caller should see."""


@runtime_checkable
class ErrorRetryInfo(Protocol):
    """An exception that carries retry information. `is_timeout_error` is read where present, else taken as False."""

    is_retry_safe: bool | None = None
    """Whether a retry is allowed; None where there is not enough information to tell."""

    retry_after: float | None = None
    """Seconds that should pass before a retry, as the server named them; a strategy may wait longer."""

    is_throttling_error: bool = False
    """Whether the server was shedding load."""


@runtime_checkable
class HasFault(Protocol):
    """An exception that says whose fault it is; None where nobody knows."""

    fault: Literal["client", "server"] | None


@runtime_checkable
class RetryToken(Protocol):
    """What one call holds between two attempts. Issued by a strategy, used once."""

    @property
    def retry_count(self) -> int:
        """Attempts so far without the first."""
        ...

    @property
    def retry_delay(self) -> float:
        """Seconds to wait before the attempt that this token stands for."""
        ...


@runtime_checkable
class RetryBackoffStrategy(Protocol):
    """How long to wait; holds nothing of any call.

    A strategy may also take the keywords `previous` (the backoff computed before, in seconds, None at first) and
    `throttling` (whether the last error was one); they are passed only where its signature has them.
    """

    def compute_next_backoff_delay(self, retry_attempt: int) -> float:
        """Seconds before retry `retry_attempt` (1, 2, ...); 0 for attempt 0."""
        ...


@runtime_checkable
class RetryStrategy(Protocol):
    """Issuer of tokens."""

    backoff_strategy: RetryBackoffStrategy
    """What computes the waits."""

    max_attempts: int
    """The first attempt included."""

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> RetryToken:
        """Begin a call within a scope; its delay is to be waited. Raises RetryError where no token can be had."""
        ...

    def refresh_retry_token_for_retry(self, *, token_to_renew: RetryToken, error: Exception) -> RetryToken:
        """Exchange a failed attempt's token for the next one's, or raise RetryError from `error`.

        Raises ValueError for a token that this strategy did not issue or that was used already.
        """
        ...

    def record_success(self, *, token: RetryToken) -> None:
        """The attempt of this token succeeded. Raises ValueError as above."""
        ...
