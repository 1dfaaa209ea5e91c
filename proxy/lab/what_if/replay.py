"""Recorded calls of one upstream, played again under a policy: the same `Call` that serves traffic, on the virtual
clock.

Each attempt gets the results that the call's attempts got, in order. If a policy makes an attempt more than was made,
or waits for one longer than the call did, its result is unknown: the call is reported as far as it is known, and
nothing is made up. All calls are played together, from when they came, so that they share buckets and cooldowns. No
cooldown is in force when they begin, and buckets are full or, to play an outage that has lasted, empty. Jitter is drawn
in the middle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.config.settings import Settings
from proxy.lab.clock import BEGIN, DEADLINE, UPSTREAM
from proxy.lab.fixed_draws import FixedDraws
from proxy.lab.kept_calls import Kept, KeptCall, gave_up, kept_call, result_of
from proxy.lab.recorder import Recorder
from proxy.lab.routing import AppRequest, Chosen
from proxy.lab.stage import Stage
from proxy.lab.upstream import Sending
from proxy.retry.budgets.buckets import Bucket
from proxy.retry.facts import Class, Outcome, Request
from proxy.retry.policies.policy import Policy
from proxy.retry.scopes.scope_state import ScopeState

#: Alarms and sendings of one run at most: some hundred calls of a few attempts take some thousands.
MOST_STEPS = 50_000
#: Seconds by which a clock's reading may miss the limit that ended an attempt.
_SLACK = 0.05
#: The duration, in seconds, of an attempt whose end was not seen.
_NEVER = 1e9


class TooMuchError(Exception):
    """Raised if a replay of calls takes more than MOST_STEPS steps."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a replayed call. `outcome` is None if it is unknown, and `unknown` says why. `waited`: the seconds in
    which no attempt was under way; `took`: the seconds until the call's end, or as long as anything is known.
    """

    outcome: str | None
    attempts: int
    waited: float
    took: float
    unknown: str = ""
    classes: tuple[str | None, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """The ending for JSON; seconds to the millisecond."""
        data = {
            "outcome": self.outcome,
            "attempts": self.attempts,
            "waited": round(self.waited, 3),
            "took": round(self.took, 3),
        }
        return {**data, "unknown": self.unknown} if self.unknown else data


def play_kept(settings: Settings, calls: Sequence[Kept], *, empty: bool = False) -> list[Ending | str]:
    """Play calls, in order of their beginning. A call that can't be played gets the reason in a clause. `empty`:
    buckets begin empty. Raises TooMuchError if playing takes more than MOST_STEPS steps.
    """
    stage = _CountedStage(settings, empty)
    players: list[_KeptPlayer | str] = []
    first: float | None = None
    for kept in calls:
        try:
            call = kept_call(settings, kept)
        except ValueError as error:
            players.append(str(error))
            continue
        if not isinstance(call.chosen, Chosen) or kept["method"] == "CONNECT":
            players.append("no policy takes it")
            continue
        first = call.began if first is None else min(first, call.began)
        players.append(_KeptPlayer(stage, call))
    for player in players:
        if isinstance(player, _KeptPlayer):
            player.come(player.kept_call.began - (first or 0.0))
    stage.clock.run()
    return [player.ending if isinstance(player, _KeptPlayer) else player for player in players]


class _CountedStage(Stage):
    """The stage of the calls of one run: its buckets may begin empty, and its steps are counted."""

    def __init__(self, settings: Settings, empty: bool) -> None:
        super().__init__(settings, FixedDraws(0.5))
        self._empty, self._emptied = empty, list[Bucket]()
        self._steps = 0

    def scope(self, policy: Policy, request: Request) -> ScopeState:
        scope = self.registry.scope(policy, request, self.clock.now)
        self._take_all(scope.bucket)
        return scope

    def _take_all(self, bucket: Bucket | None) -> None:
        """Take all tokens of a quota or a throttle, when a call uses it for the first time, if buckets are to begin
        empty.
        """
        if not self._empty or bucket is None or any(bucket is each for each in self._emptied):
            return
        self._emptied.append(bucket)
        now = self.clock.now
        if bucket.spec.kind == "quota":
            bucket.take(bucket.level(now), now)
        elif bucket.spec.kind == "throttle":
            for _ in range(math.ceil(bucket.level(now))):
                bucket.failed(now)

    def step(self) -> None:
        """Count one step of the replay; raise TooMuchError if there are more than MOST_STEPS."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise TooMuchError


class _KeptPlayer(Recorder):
    """The player of one recorded call."""

    def __init__(self, stage: _CountedStage, call: KeptCall) -> None:
        super().__init__(stage.clock, self._next)
        assert isinstance(call.chosen, Chosen)
        self.kept_call, self._chosen, self._stage = call, call.chosen, stage
        self._results = call.sent
        self._unknown = ""

    def come(self, at: float) -> None:
        """Schedule the app's request, `at` seconds into the run. If the recorded call ended because the app left,
        schedule that too.
        """
        self.clock.at(at, BEGIN, self._ask)
        kept = self.kept_call.kept
        if kept["outcome"] == Outcome.CLIENT_GONE.value:
            self.clock.at(at + kept.get("duration", 0.0), DEADLINE, self._leave)

    def _ask(self) -> None:
        self._stage.enter(self, self._chosen, AppRequest())  # the record does not say what is in a body

    def _leave(self) -> None:
        if self.call is not None:
            self.go_away()

    def set_alarm(self, at: float) -> None:
        self._stage.step()
        super().set_alarm(at)

    def _next(self, attempt: int, now: float) -> Sending:
        """Return the answer or fault in which this sending of `attempt` ends: the next one that was recorded for the
        same upstream. If none is left, or the recorded attempt was given up before its end, the replay stops there,
        since the end of the call is not known.
        """
        self._stage.step()
        here, first = self.call.so_far.policy.upstream, self.kept_call.kept["upstream"]
        kept = next((each for each in self._results if each.get("upstream", first) == here), None)
        if kept is None:
            whose = "" if here == first else f", at {here}"
            self._stop(now, f"attempt {attempt} would be made{whose}; its result is not known")
            return Sending(_NEVER)
        self._results.remove(kept)
        fate, took = result_of(kept), kept.get("duration", 0.0)
        if fate is not None and not gave_up(kept):
            return fate.step.sending(self.longest)
        why = f"attempt {attempt} would have had more time than it had; what would have come is not known"
        self._stop(now + took + _SLACK, why, attempt)
        return Sending(_NEVER)

    def _stop(self, at: float, why: str, attempt: int | None = None) -> None:
        """Stop the replay of the call at the time `at`, because what follows is unknown (`why`); do nothing if
        `attempt` has ended by then.
        """

        def stop() -> None:
            if self.finished is None and (attempt is None or attempt in self._flying):
                self._unknown = why
                self.go_away()

        self.clock.at(at, UPSTREAM, stop)

    @property
    def ending(self) -> Ending:
        """The end of the replayed call."""
        took, history = self.elapsed, self.call.so_far.history
        outcome = None if self._unknown or self.outcome is None else self.outcome.value
        if not history and self.starts:  # nothing had to be decided
            return Ending(outcome, 1, self.starts[0], took, self._unknown, (Class.SUCCESS.value,))
        over = self.began + took
        ended = [(record.started, over if record.ended is None else record.ended) for record in history]
        spans = [(start - self.began, end - self.began) for start, end in ended]
        classes = tuple(None if record.cls is None else record.cls.value for record in history)
        waited = max(0.0, took - _covered(spans))
        return Ending(outcome, len(self.starts), waited, took, self._unknown, classes)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of several stretches of time, in seconds."""
    covered, until = 0.0, 0.0
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered
