"""A call, played for an explanation: the object that serves traffic, on the virtual clock, against fresh buckets.

Nothing is decided here. Each play has one fate for every sending and one draw for every jitter, so two plays,
with the least and with the greatest draw, bound every schedule that the call can have.
"""

from __future__ import annotations

from proxy.config.settings import Settings
from proxy.lab.clock import Clock
from proxy.lab.explain.question import Fate
from proxy.lab.recorder import FixedDraws, Fresh, Recorder
from proxy.lab.routing import Chosen
from proxy.retry.buckets import Bucket
from proxy.retry.machine import Env
from proxy.retry.registry import Registry
from proxy.retry.waiting_room import WaitingRoom

#: The ends of [0, 1): a draw comes as near to 1 as one likes.
LEAST, GREATEST = 0.0, 1.0


class Play(Recorder):
    """A call whose every sending meets `fate`; `play` drives it to its end."""

    __slots__ = ()

    def __init__(self, fate: Fate) -> None:
        super().__init__(Clock(), lambda attempt, now: fate.sending(self.attempt_timeout))

    @property
    def bucket(self) -> Bucket | None:
        """The bucket that the call moves: in observe mode the real one's shadow."""
        return self.scope.shadow if self.call.policy.mode == "observe" else self.scope.bucket


def play(settings: Settings, chosen: Chosen, fate: Fate, draw: float, wall: float) -> Play:
    """Play a call to its end. `draw` is every jitter's, `wall` in seconds since the epoch."""
    play, policy = Play(fate), Fresh().policy(chosen.policy)
    env = Env(FixedDraws(draw), wall, WaitingRoom(settings.limits.waiting))
    play.enter(chosen.request, policy, Registry().scope(policy, chosen.request), env)
    play.clock.run()
    return play
