"""A test, played: the calls of a script through the policies of a configuration, on a virtual clock.

Law: nothing here decides. The router picks the policy, `Call` decides, `Driver` carries out; this module turns what
the script says into what an upstream does, and writes down what became of it.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field

from proxy.config.settings import Settings
from proxy.lab.clock import BEGIN, Clock
from proxy.lab.driver import Buffers, Driver, Sending
from proxy.lab.fresh import Fresh
from proxy.lab.policy_tests.choosing import Refused, choose
from proxy.lab.policy_tests.comparing import Played
from proxy.lab.policy_tests.loading import Suite
from proxy.lab.policy_tests.script import CallScript, PolicyTest, Step
from proxy.lab.policy_tests.sent import fields_of_attempt
from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.backoff import Chance
from proxy.retry.facts import Fault, FaultKind, MappingFields, Progress, Reply
from proxy.retry.gated import Env
from proxy.retry.hedging import HedgedCall, make_call
from proxy.retry.registry import Registry, ScopeState
from proxy.retry.waiting_room import WaitingRoom

_FAULTS = {
    FaultKind.CONNECT_FAILURE: Fault(
        FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT, detail="connection refused", error="connection_refused"
    ),
    FaultKind.REFUSED_STREAM: Fault(FaultKind.REFUSED_STREAM, Progress.REFUSED, detail="the stream was refused"),
    FaultKind.RESET: Fault(FaultKind.RESET, Progress.UNKNOWN, detail="the connection was reset"),
    FaultKind.ATTEMPT_TIMEOUT: Fault(
        FaultKind.ATTEMPT_TIMEOUT, Progress.UNKNOWN, detail="no answer in time", error="http_response_timeout"
    ),
}


class FixedDraws:
    """Every draw is the same number."""

    def __init__(self, draw: float) -> None:
        self._draw = draw

    def random(self) -> float:
        """The number."""
        return self._draw


def chance(draw: float, seed: int | None) -> Chance:
    """The random source of one test, as `random:` asks for it."""
    if seed is None:
        return FixedDraws(draw)
    return random.Random(seed)  # noqa: TID251, S311 - a driver makes its source; jitter is no secret


def play(test: PolicyTest, suite: Suite) -> list[Played]:
    """Play one test against fresh buckets. One result for each call, in order."""
    clock = Clock()
    script, settings = suite.script, suite.settings
    env = Env(chance(script.draw, script.seed), script.wall, WaitingRoom(settings.limits.waiting))
    buffers = Buffers(settings.buffers.per_request, settings.buffers.total)
    stage = _Stage(clock, settings, Registry(), env, buffers)
    players = [_Player(stage, script, number) for number, script in enumerate(test.calls, start=1)]
    for player in players:
        clock.at(player.script.at, BEGIN, player.enter)
    clock.run()
    return [player.played for player in players]


@dataclass(slots=True)
class _Stage:
    """What the calls of one test share."""

    clock: Clock
    settings: Settings
    registry: Registry
    env: Env
    buffers: Buffers
    fresh: Fresh = field(default_factory=Fresh)


class _Player(Driver):
    """One call of a test, and what is written down of it."""

    __slots__ = ("key", "played", "scope", "script", "stage", "steps")

    def __init__(self, stage: _Stage, script: CallScript, number: int) -> None:
        super().__init__(stage.clock, self._next_sending, body_size=script.ask.body_size, buffers=stage.buffers)
        self.stage = stage
        self.script = script
        self.key = str(uuid.UUID(int=number))
        self.steps = 0
        self.scope: ScopeState | None = None
        self.played = Played(began=script.at)

    def enter(self) -> None:
        """The app's request comes."""
        chosen = choose(self.stage.settings, self.script.ask)
        if isinstance(chosen, Refused):
            self.played.outcome, self.played.status, self.played.elapsed = chosen.outcome.value, chosen.status, 0.0
            return
        request, policy = chosen.request, self.stage.fresh.policy(chosen.policy)
        self.attempt_timeout, self.idle_timeout = policy.timeouts.attempt, policy.timeouts.idle
        self.scope = self.stage.registry.scope(policy, request)
        self.begin(make_call(request, policy, self.scope, self.stage.env, self.set_alarm))

    def _next_sending(self, attempt: int, now: float) -> Sending:
        step = self.script.steps[min(self.steps, len(self.script.steps) - 1)]
        self.steps += 1
        return sending(step, self.attempt_timeout)

    def launched(self, attempt: int) -> None:
        """Write down when it was sent, and with which fields."""
        played, now = self.played, self.clock.now
        played.attempts = max(played.attempts, attempt)
        assert self.call is not None
        fields = fields_of_attempt(self.call, attempt, now, self.key)
        if attempt > len(played.starts):
            played.starts.append(now - self.began)
            played.sent.append(fields)
        else:
            played.sent[attempt - 1] = fields  # the transparent retry: the attempt's number and start stay

    def ended(self, attempt: int) -> None:
        """Write down the levels, once for each attempt."""
        assert self.call is not None and self.scope is not None
        latest = next((record for record in reversed(self.call.history) if record.attempt == attempt), None)
        if latest is not None and latest.decision == "transparent" and self.outcome is None:
            return
        self.played.tokens_after_each.append(self._level())
        if self.scope.pacing is not None:
            self.played.fill_rate = self.scope.pacing.fill_rate
            self.played.measured_rate = self.scope.pacing.measured_rate

    def cancelled(self, attempt: int) -> None:
        """An attempt that the deadline ended has ended; a hedge that lost has not."""
        assert self.call is not None
        if not isinstance(self.call, HedgedCall):
            self.played.tokens_after_each.append(self._level())

    def over(self) -> None:
        """Write down how it ended."""
        assert self.call is not None
        played, history = self.played, self.call.history
        played.outcome = self.outcome.value if self.outcome is not None else None
        played.elapsed = self.clock.now - self.began
        played.tokens = self._level()
        played.status = self._status()
        played.history = history
        played.hedged = isinstance(self.call, HedgedCall)
        played.delays = _delays(history)[: max(0, played.attempts - 1)]

    def _level(self) -> float | None:
        assert self.scope is not None
        return self.scope.bucket.level(self.clock.now) if self.scope.bucket is not None else None

    def _status(self) -> int | None:
        assert self.call is not None
        if self.answer is None:
            return self.delivered_status
        return 200 if self.call.request.is_grpc else self.answer.status


def _delays(history: list[AttemptRecord]) -> list[float]:
    return [record.delay for record in history if record.delay is not None]


#: gRPC A6's pushback, published and draft.
_GRPC_PUSHBACK = frozenset({"grpc-retry-pushback-ms", "x-grpc-retry-pushback-ms"})


def sending(step: Step, attempt_timeout: float | None) -> Sending:
    """What the upstream does, of what the script says."""
    if step.fail is not None:
        after = step.after
        if after is None:
            after = (attempt_timeout or 0.0) if step.fail is FaultKind.ATTEMPT_TIMEOUT else 0.0
        return Sending(after, fault=_FAULTS[step.fail])
    after = step.after or 0.0
    head, trailers = list(step.headers), list(step.trailers)
    if step.grpc_status is not None:
        trailers.append(("grpc-status", str(step.grpc_status)))
        if not step.body:  # trailers-only: the head is the trailers
            return Sending(after, Reply(step.status, MappingFields([*head, *trailers]), end=True))
        # A pushback comes where the status comes (gRPC A6: in the trailing metadata).
        trailers += [field for field in head if field[0].lower() in _GRPC_PUSHBACK]
        head = [field for field in head if field[0].lower() not in _GRPC_PUSHBACK]
    reply = Reply(step.status, MappingFields(head), end=not step.body and not trailers)
    return Sending(after, reply, step.body, trailers=MappingFields(trailers) if trailers else None)
