"""This process's part of the limit and the cooldown that the machines of a fleet share for one lane (the queue of a
group of callers), and the link that shares them.
"""

from __future__ import annotations

from typing import Protocol

_NEVER = float("inf")


class FleetLane(Protocol):
    """The link that shares a lane's limit and outage with other machines. Its methods report what this process finds
    out.
    """

    def limit_began(self, now: float) -> None:
        """Report that a limit has begun, because of attempts of this process."""

    def limit_over(self, now: float) -> None:
        """Report that the limit is over."""

    def limit_cut(self, part: float, sent: float, now: float) -> None:
        """Report that the limit was multiplied by `part` (below 1), because an attempt was refused or slow, so that the
        other machines lower it too. `sent`: the time at which that attempt was sent.
        """

    def outage_began(self, now: float) -> None:
        """Report that an outage has begun, because of attempts of this process."""

    def outage_over(self, now: float) -> None:
        """Report that the outage is over, since an attempt of this process was answered."""

    def held(self, now: float) -> None:
        """Note that a call of this process is held in the lane. The link then asks the other machines for the lane's
        present state.
        """


class FleetPart:
    """The part of one lane's places (calls that may be under way) that the fleet leaves to this process, and whether
    other machines hold calls.

    `link`: the link that reports limit and outage to other machines, None if there is none. `share`: how many places of
    a slow start this process may have, infinity if no other machine shares them. `elsewhere`: another machine holds
    calls, as far as is known. `limit_share`: how many places this process may have under a limit that began for want of
    capacity. `limited_elsewhere`: other machines need that limit. `may_probe`: this process may send the probes of an
    outage, since no other machine does.
    """

    __slots__ = ("elsewhere", "limit_share", "limited_elsewhere", "link", "may_probe", "share")

    def __init__(self) -> None:
        self.link: FleetLane | None = None
        self.share = _NEVER
        self.elsewhere = False
        self.limit_share = _NEVER
        self.limited_elsewhere = False
        self.may_probe = True

    def places(self, returns: bool) -> float:
        """The number of places that this process may have; infinity if no other machine shares them. `returns`: the
        places are those of a slow start, in which calls return after a cooldown.
        """
        return self.share if returns else self.limit_share

    def cooldown_began(self) -> None:
        """Assume half of the places, but at least one, for this process, until the fleet has settled which machine was
        the first to be answered with the delay.
        """
        if self.share < _NEVER:
            self.share, self.elsewhere = max(1.0, self.share // 2), True

    def limit_over(self) -> None:
        """Forget the limit that is shared with other machines, because it is over."""
        self.limit_share, self.limited_elsewhere = _NEVER, False
