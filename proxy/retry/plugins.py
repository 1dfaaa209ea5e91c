"""The Smithy retry interfaces (contract, section 7), and the adapter that a call uses for a user's own `RetryStrategy`.

The state of one call is kept in its token, and the state that calls share in the strategy. Every method is a plain
function: a strategy decides, and its caller waits. The protocols can be used with `isinstance`. A strategy learns
everything about a failure from attributes of the exception. If a strategy raises an exception that its interface does
not allow, the call loses the retry, but never its answer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from proxy.retry.facts import Class, Failure, Outcome


class RetryError(Exception):
    """The refusal of a further attempt, raised `from` the failure that the caller should see."""


@runtime_checkable
class ErrorRetryInfo(Protocol):
    """An exception with attributes that say whether and when to retry (`is_retry_safe`, `retry_after`,
    `is_throttling_error`). An exception without the attribute `is_timeout_error` counts as no timeout.
    """

    is_retry_safe: bool | None = None
    """Whether a retry is allowed; None if that is unknown."""

    retry_after: float | None = None
    """Seconds that should pass before a retry, as the server named them; a strategy may wait longer."""

    is_throttling_error: bool = False
    """Whether the server was shedding load."""


@runtime_checkable
class HasFault(Protocol):
    """An exception whose attribute `fault` says whose fault the failure is, the client's or the server's; None if
    unknown.
    """

    fault: Literal["client", "server"] | None


if TYPE_CHECKING:
    from dataclasses import dataclass as _dataclass_to_type_checkers
else:

    def _dataclass_to_type_checkers(**options):
        return lambda protocol: protocol


@runtime_checkable
@_dataclass_to_type_checkers(kw_only=True)
class RetryToken(Protocol):
    """The token that one call holds from one attempt to the next. A strategy issues it, and it is used once.

    For type checkers, its members are those of the Smithy Python design, where it is a dataclass, so that either is
    accepted for the other. At run time any object with the attributes `retry_count` and `retry_delay` is a token.
    """

    retry_count: int
    """The number of retries so far: attempts without the first."""

    retry_delay: float
    """Seconds to wait before the attempt that this token stands for."""


@runtime_checkable
class RetryBackoffStrategy(Protocol):
    """The computation of waits, which keeps no state of any call.

    A backoff strategy may also take the keywords `previous` (the last backoff in seconds, None at first) and
    `throttling` (whether the last error was a throttling). They are passed only if its signature has them.
    """

    def compute_next_backoff_delay(self, retry_attempt: int) -> float:
        """The seconds to wait before the retry with the number `retry_attempt` (1, 2, ...); 0 for attempt 0."""


@runtime_checkable
class RetryStrategy(Protocol):
    """A strategy that issues the tokens of calls, and so decides on their retries."""

    backoff_strategy: RetryBackoffStrategy
    """The backoff strategy, which computes the waits."""

    max_attempts: int
    """The number of attempts, including the first."""

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> RetryToken:
        """Begin a call in the scope named `token_scope` (None: the scope without a name). Returns the token of the
        call's first attempt; the caller waits the token's delay before it sends the attempt. Raises RetryError if no
        token is available.
        """

    def refresh_retry_token_for_retry(self, *, token_to_renew: RetryToken, error: Exception) -> RetryToken:
        """Exchange `token_to_renew`, a failed attempt's token, for the next attempt's token, or raise RetryError from
        `error` if there is no next attempt.

        Raises ValueError for a token that this strategy did not issue or that was used already.
        """

    def record_success(self, *, token: RetryToken) -> None:
        """Record that the attempt of this token succeeded. Raises ValueError for a token that this strategy did not
        issue or that was used already.
        """


class AttemptFailed(Exception):  # noqa: N818 - an argument for a strategy, never raised
    """A failed attempt as an exception (with `ErrorRetryInfo` and `HasFault`), by which a user's own strategy
    decides.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.verdict.because)
        self.is_retry_safe: bool | None = True  # the core's checks, which come first, found it safe
        self.retry_after: float | None = failure.pushback.delay
        self.is_throttling_error = failure.verdict.cls is Class.THROTTLING
        self.is_timeout_error = failure.verdict.cls is Class.TIMEOUT
        self.fault = "server"


class CustomToken:
    """The token that one call holds under a user's own strategy. `initial_delay`: the seconds to wait before the first
    attempt.
    """

    __slots__ = ("_strategy", "_token", "initial_delay")

    def __init__(self, strategy: Any, scope: str) -> None:
        self._strategy = strategy
        #: Seconds to wait before the first attempt.
        self.initial_delay = 0.0
        try:
            self._token = strategy.acquire_initial_retry_token(token_scope=scope)
            self.initial_delay = _seconds(self._token)
        except Exception:  # if no initial token is available, one attempt is made all the same
            self._token = None

    def next_delay(self, failure: Failure) -> float | Outcome:
        """The seconds to wait before the next attempt, as the user's own strategy says, but no less than a pushback. If
        the strategy refuses the attempt or fails, the result is the outcome that ends the call.
        """
        if self._token is None:
            return Outcome.BUCKET_EMPTY
        try:
            self._token = self._strategy.refresh_retry_token_for_retry(
                token_to_renew=self._token, error=AttemptFailed(failure)
            )
            wait = _seconds(self._token)
        except RetryError:
            return Outcome.BUCKET_EMPTY
        except Exception:
            return Outcome.ATTEMPTS_EXHAUSTED
        # A pushback is obeyed whatever the strategy says.
        return wait if failure.pushback.delay is None else max(wait, failure.pushback.delay)

    def succeeded(self) -> None:
        """Report to the user's own strategy that the call has succeeded."""
        if self._token is not None:
            try:
                self._strategy.record_success(token=self._token)
            except Exception:  # a fault in the strategy's accounts must not fail a call whose answer is on its way
                self._token = None


def _seconds(token: Any) -> float:
    """A token's delay in seconds, 0 for a negative one. Raises ValueError for a delay that is infinite or not a
    number.
    """
    delay = float(token.retry_delay)
    if not delay < math.inf:
        raise ValueError(f"{delay} seconds are not a valid delay")
    return max(0.0, delay)
