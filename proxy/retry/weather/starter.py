"""The starter of a cooldown: the call whose answer began the cooldown, which is sent first once the delay is over."""

from __future__ import annotations

from proxy.retry.queues.waiter import Waiter

_NEVER = float("inf")


class Starter:
    """The starter of the cooldown of a lane (the queue of a group of callers). Times are seconds.

    `waiter`: the starter, None if there is none. `named_until`: the end of the delay that the cooldown's first answer
    named; an earlier answer's delay may end later. `own_until`: the end of the delay that the answer to the starter's
    own attempt named.
    """

    __slots__ = ("named_until", "own_until", "waiter")

    def __init__(self) -> None:
        self.waiter: Waiter | None = None
        self.named_until = -_NEVER
        self.own_until = -_NEVER

    def claim(self, waiter: Waiter) -> None:
        """Make this call the starter, because the answer to its own attempt began the cooldown in force."""
        self.waiter, self.own_until = waiter, self.named_until

    def may_go(self, now: float, until: float) -> bool:
        """Whether nothing holds the starter now. `until`: the time at which the longest delay that was named ends."""
        return now >= until or until == self.own_until
