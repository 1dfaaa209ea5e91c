"""A test, played: the calls of a script through the policies of a configuration, on a virtual clock.

Nothing here decides. The router picks the policy, `Call` decides, `Driver` carries out, the function that the data
path uses says which fields an attempt carries; this module turns what the script says into what an upstream does, and
writes down what became of it.
"""

from __future__ import annotations

import random
import uuid

from proxy.forward.headers import attempt_fields
from proxy.lab.clock import BEGIN, Clock
from proxy.lab.driver import BufferBudget, FixedDraws, Fresh, Recorder
from proxy.lab.policy_tests.comparing import PlayedCall
from proxy.lab.policy_tests.script import CallScript, PolicyTest, Suite
from proxy.lab.routing import RefusedCall, choose
from proxy.lab.upstream import Sending
from proxy.retry.backoff import Chance
from proxy.retry.facts import MappingFields
from proxy.retry.machine import Call, Env
from proxy.retry.registry import Registry
from proxy.retry.waiting_room import WaitingRoom
from proxy.wire.field_names import REQUEST_CUT
from proxy.wire.http1.slow_path import NEVER_NOMINATED


def chance(draw: float, seed: int | None) -> Chance:
    """The random source of one test, as `random:` asks for it."""
    if seed is None:
        return FixedDraws(draw)
    return random.Random(seed)  # noqa: TID251, S311 - a driver makes its source; jitter is no secret


def play(test: PolicyTest, suite: Suite) -> list[PlayedCall]:
    """Play one test against fresh buckets. One result for each call, in order."""
    stage = _Stage(suite)
    players = [_Player(stage, script, number) for number, script in enumerate(test.calls, start=1)]
    for player in players:
        stage.clock.at(player.script.at, BEGIN, player.ask)
    stage.clock.run()
    return [player.played for player in players]


class _Stage:
    """What the calls of one test share."""

    def __init__(self, suite: Suite) -> None:
        script, settings = suite.script, suite.settings
        self.settings = settings
        self.clock = Clock()
        self.registry = Registry()
        self.env = Env(chance(script.draw, script.seed), script.wall, WaitingRoom(settings.limits.waiting))
        self.buffers = BufferBudget(settings.buffers.per_request, settings.buffers.total)
        self.fresh = Fresh()


class _Player(Recorder):
    """One call of a test, and what is written down of it."""

    def __init__(self, stage: _Stage, script: CallScript, number: int) -> None:
        super().__init__(stage.clock, self._next_sending, body_size=script.ask.body_size, buffers=stage.buffers)
        self.script = script
        self.played = PlayedCall()
        self._stage = stage
        self._key = str(uuid.UUID(int=number))
        self._steps = 0

    def ask(self) -> None:
        """Ask for what the script says, where a policy takes it."""
        stage, chosen = self._stage, choose(self._stage.settings, self.script.ask)
        if isinstance(chosen, RefusedCall):
            self.played.outcome, self.played.status, self.played.elapsed = chosen.outcome.value, chosen.status, 0.0
            return
        policy = stage.fresh.policy(chosen.policy)
        self.enter(chosen.request, policy, stage.registry.scope(policy, chosen.request), stage.env)
        self.played.starts, self.played.tokens_after_each = self.starts, self.levels

    def _next_sending(self, attempt: int, now: float) -> Sending:
        step = self.script.steps[min(self._steps, len(self.script.steps) - 1)]
        self._steps += 1
        return step.sending(self.attempt_timeout)

    def launched(self, attempt: int) -> None:
        super().launched(attempt)
        played = self.played
        played.attempts = max(played.attempts, attempt)
        # The transparent retry takes the place of what it sends again.
        played.sent[attempt - 1 : attempt] = [fields_of_attempt(self.call, attempt, self.clock.now, self._key)]

    def ended(self, attempt: int) -> None:
        before = len(self.levels)
        super().ended(attempt)
        if len(self.levels) > before and self.scope.pacing is not None:
            self.played.fill_rate = self.scope.pacing.fill_rate
            self.played.measured_rate = self.scope.pacing.measured_rate

    def cancelled(self, attempt: int) -> None:
        """An attempt that the deadline ended has ended; a hedge that lost has not."""
        if not self.call.hedged:
            self.levels.append(self.level)

    def over(self) -> None:
        played, history = self.played, self.history
        played.outcome = self.outcome.value if self.outcome is not None else None
        played.elapsed, played.status, played.tokens = self.elapsed, self.status, self.level
        played.history = history
        played.hedged = self.call.hedged
        delays = [record.delay for record in history if record.delay is not None]
        played.delays = delays[: max(0, played.attempts - 1)]


# -- the fields of an attempt ------------------------------------------------------------------------------------------

#: What no attempt carries as it came, whatever the policy says.
_CUT = frozenset(name.decode() for name in REQUEST_CUT | {b"transfer-encoding"})
_NEVER_NOMINATED = frozenset(name.decode() for name in NEVER_NOMINATED)


def fields_of_attempt(call: Call, attempt: int, now: float, key: str) -> dict[str, str]:
    """Names in lower case; the values of a field that repeats are joined. `key`: what is injected where a key is."""
    request = call.request
    changes = attempt_fields(request, call.policy, attempt, elapsed=now - call.started, key=key)
    pairs = request.fields.pairs() if isinstance(request.fields, MappingFields) else []
    named = {name.strip().lower() for field, value in pairs if field == "connection" for name in value.split(",")}
    named -= _NEVER_NOMINATED
    fields: dict[str, str] = {"host": request.authority}
    for name, value in [*_kept(pairs, changes.drop | named | _CUT | {"host"}), *changes.add]:
        lower = name.lower()
        fields[lower] = f"{fields[lower]}, {value}" if lower in fields else value
    return fields


def _kept(pairs: list[tuple[str, str]], out: set[str] | frozenset[str]) -> list[tuple[str, str]]:
    """The request's own fields that go on. `te: trailers` does: gRPC asks for it."""
    return [pair for pair in pairs if pair[0] not in out or (pair[0] == "te" and pair[1].lower() == "trailers")]
