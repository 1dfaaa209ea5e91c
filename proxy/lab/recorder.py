"""One call on the virtual clock, and what is written down of it.

Nothing here decides. `Call` does, `Driver` carries out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.lab.driver import Driver
from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.buckets import Bucket
from proxy.retry.facts import Request
from proxy.retry.machine import Call, Env
from proxy.retry.policy import Policy
from proxy.retry.registry import ScopeState


class FixedDraws:
    """Every draw is the same number."""

    def __init__(self, draw: float) -> None:
        self._draw = draw

    def random(self) -> float:
        """The number."""
        return self._draw


class Recorder(Driver):
    """A call, driven to its end. `starts` are seconds from the call's beginning, `levels` the bucket's after the end of
    each attempt.
    """

    __slots__ = ("levels", "scope", "starts")
    call: Call
    scope: ScopeState

    def enter(self, request: Request, policy: Policy, scope: ScopeState, env: Env) -> None:
        """The app's request comes."""
        self.starts: list[float] = []
        self.levels: list[float | None] = []
        self.scope = scope
        self.attempt_timeout, self.idle_timeout = policy.timeouts.attempt, policy.timeouts.idle
        self.begin(Call(request, policy, scope, env, self.set_alarm))

    def launched(self, attempt: int) -> None:
        """Write down when it was sent. The transparent retry keeps its attempt's number and start."""
        if attempt > len(self.starts):
            self.starts.append(self.clock.now - self.began)

    def ended(self, attempt: int) -> None:
        """Write down the level after this end was dealt with, once for each attempt."""
        latest = next((record for record in reversed(self.history) if record.attempt == attempt), None)
        if latest is None or latest.decision != "transparent" or self.outcome is not None:
            self.levels.append(self.level)

    @property
    def history(self) -> list[AttemptRecord]:
        """Every sending, and why it was or was not followed by another."""
        return self.call.history

    @property
    def bucket(self) -> Bucket | None:
        """The bucket whose level is written down."""
        return self.scope.bucket

    @property
    def level(self) -> float | None:
        """What is in the bucket now; None without one."""
        return None if self.bucket is None else self.bucket.level(self.clock.now)

    @property
    def elapsed(self) -> float:
        """Seconds from the call's beginning to its end; 0 before it."""
        return 0.0 if self.finished is None else self.finished - self.began

    @property
    def status(self) -> int | None:
        """The status of the answer that the app got."""
        if self.answer is None:
            return self.delivered_status
        return 200 if self.call.request.is_grpc else self.answer.status


class Fresh:
    """One run's policies, as if nothing had happened yet: what shares a strategy in the configuration shares one here.

    Runs do not touch each other. Buckets, limiters and cooldowns are made anew with each `Registry`; a user's own
    strategy keeps what its calls share in itself, so it is made anew here.
    """

    __slots__ = ("_policies", "_strategies")

    def __init__(self) -> None:
        self._policies: dict[Policy, Policy] = {}
        self._strategies: dict[int, Any] = {}

    def policy(self, made: Policy) -> Policy:
        """This policy, with a strategy of this run's own where it is a user's."""
        strategy = made.strategy
        if strategy.custom is None or strategy.remake is None:
            return made
        known = self._policies.get(made)
        if known is None:
            custom = self._strategies.get(id(strategy.custom))
            if custom is None:
                custom = self._strategies[id(strategy.custom)] = strategy.remake()
            known = self._policies[made] = replace(made, strategy=replace(strategy, custom=custom))
        return known
