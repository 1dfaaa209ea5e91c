"""A call, played for an explanation: the object that serves traffic, on the virtual clock, against fresh buckets.

Law: nothing is decided here. Each play has one fate for every sending and one draw for every jitter, so two plays,
with the least and with the greatest draw, bound every schedule that the call can have.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.config.settings import Settings
from proxy.lab.clock import Clock
from proxy.lab.driver import Driver, Sending
from proxy.lab.explain.question import Fate
from proxy.lab.fresh import Fresh
from proxy.lab.policy_tests.choosing import Chosen
from proxy.lab.policy_tests.playing import FixedDraws
from proxy.retry.actions import Answer
from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.buckets import Bucket
from proxy.retry.call import Call
from proxy.retry.facts import Outcome
from proxy.retry.gated import Env
from proxy.retry.hedging import make_call
from proxy.retry.registry import Registry, ScopeState
from proxy.retry.waiting_room import WaitingRoom

#: The ends of [0, 1): a draw comes as near to 1 as one likes.
LEAST, GREATEST = 0.0, 1.0


@dataclass(slots=True)
class Play:
    """What became of a call. Times are seconds from its beginning; `levels` are the bucket's after each end."""

    call: Call
    scope: ScopeState
    starts: list[float] = field(default_factory=list)
    levels: list[float | None] = field(default_factory=list)
    prices: list[float] = field(default_factory=list)
    outcome: Outcome | None = None
    status: int | None = None
    answer: Answer | None = None
    elapsed: float = 0.0

    @property
    def history(self) -> list[AttemptRecord]:
        """Every sending, and why it was or was not followed by another."""
        return self.call.history

    @property
    def waited(self) -> float:
        """Seconds for which the last answer was kept before it went on."""
        ends = [record.ended for record in self.history if record.ended is not None]
        return self.elapsed - max(ends, default=self.elapsed)


def play(settings: Settings, chosen: Chosen, fate: Fate, draw: float, wall: float) -> Play:
    """Play the call to its end; every sending meets `fate`."""
    driver = _Watched(settings, chosen, fate, draw, wall)
    driver.begin(driver.play.call)
    driver.clock.run()
    return driver.play


class _Watched(Driver):
    """The driver, with what is written down."""

    __slots__ = ("_fate", "play")

    def __init__(self, settings: Settings, chosen: Chosen, fate: Fate, draw: float, wall: float) -> None:
        policy = Fresh().policy(chosen.policy)
        super().__init__(Clock(), self._next, attempt_timeout=policy.timeouts.attempt)
        self._fate = fate
        scope = Registry().scope(policy, chosen.request)
        env = Env(FixedDraws(draw), wall, WaitingRoom(settings.limits.waiting))
        self.play = Play(make_call(chosen.request, policy, scope, env, self.set_alarm), scope)

    def _next(self, attempt: int, now: float) -> Sending:
        return self._fate.sending(self.attempt_timeout)

    def launched(self, attempt: int) -> None:
        """When it was sent, and what it had paid; the transparent retry keeps its attempt's number and start."""
        if attempt > len(self.play.starts):
            self.play.starts.append(self.clock.now)

    def ended(self, attempt: int) -> None:
        """The level after this end was dealt with, once for each attempt."""
        if self.play.history[-1:] and self.play.history[-1].decision == "transparent" and self.outcome is None:
            return
        self.play.levels.append(self._level())

    def over(self) -> None:
        """How it ended."""
        made, play = self.play.call, self.play
        play.outcome, play.answer, play.elapsed = self.outcome, self.answer, self.clock.now
        own = None if self.answer is None else (200 if made.request.is_grpc else self.answer.status)
        play.status = self.delivered_status if own is None else own

    def _level(self) -> float | None:
        bucket = bucket_of(self.play)
        return None if bucket is None else bucket.level(self.clock.now)


def bucket_of(play: Play) -> Bucket | None:
    """The bucket that the call moves: in observe mode the real one's shadow."""
    return play.scope.shadow if play.call.policy.mode == "observe" else play.scope.bucket
