"""A user's own `RetryStrategy` (contract, section 7), as a call asks it.

Law: a strategy that raises anything but what its interface says loses the retry, never the call.
"""

from __future__ import annotations

import math
from typing import Any

from proxy.retry.checks import Failure
from proxy.retry.facts import Class, Outcome
from proxy.retry.interfaces import RetryError


class AttemptFailed(Exception):  # noqa: N818 - it is what happened, told to a strategy, and is raised by nobody
    """A failed attempt as an `ErrorRetryInfo` with `HasFault`: what a strategy is asked about."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.verdict.because)
        self.is_retry_safe: bool | None = True  # the checks before this one have seen to it
        self.retry_after: float | None = failure.pushback.delay
        self.is_throttling_error = failure.verdict.cls is Class.THROTTLING
        self.is_timeout_error = failure.verdict.cls is Class.TIMEOUT
        self.fault = "server"


class CustomToken:
    """One call's token of a custom strategy."""

    __slots__ = ("_strategy", "_token", "initial_delay")

    def __init__(self, strategy: Any, scope: str) -> None:
        self._strategy = strategy
        #: Seconds to wait before the first attempt.
        self.initial_delay = 0.0
        try:
            self._token = strategy.acquire_initial_retry_token(token_scope=scope)
            self.initial_delay = _seconds(self._token)
        except Exception:  # if no initial token can be had, one attempt is made all the same
            self._token = None

    def next_delay(self, failure: Failure) -> float | Outcome:
        """Seconds to wait before the next attempt, or the *no*."""
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
        # A pushback holds whatever the strategy says.
        return wait if failure.pushback.delay is None else max(wait, failure.pushback.delay)

    def succeeded(self) -> None:
        """The call has succeeded."""
        if self._token is not None:
            try:
                self._strategy.record_success(token=self._token)
            except Exception:  # its bookkeeping is its own affair: the answer is on its way already
                self._token = None


def _seconds(token: Any) -> float:
    """A token's delay. Raises where it is none that anybody could wait."""
    delay = float(token.retry_delay)
    if not delay < math.inf:
        raise ValueError(f"{delay} seconds are no delay")
    return max(0.0, delay)
