"""This process's part of the limit and the cooldown that the machines of a fleet share for one lane."""

from __future__ import annotations

from proxy.retry.fleet_lane import FleetLane

_NEVER = float("inf")


class FleetPart:
    """The part of one lane's places that the fleet leaves to this process, and what holds calls on other machines.

    `link`: the link by which other machines are notified of limit and outage, None if none is. `share`: how many places
    of a slow start this process may have, infinity if no other machine shares them; `elsewhere`: another machine holds
    calls, as far as is known. `limit_share`: how many places this process may have of a limit that began for want of
    capacity; `limited_elsewhere`: other machines need that limit. `may_probe`: no other machine sends the probes of an
    outage.
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
        """The number of places that this process may have; infinity if no other machine shares them. `returns`: they
        are those of a slow start.
        """
        return self.share if returns else self.limit_share

    def cooldown_began(self) -> None:
        """Expect half of the places, at least one, until the fleet reports who was first to be told of a delay."""
        if self.share < _NEVER:
            self.share, self.elsewhere = max(1.0, self.share // 2), True

    def limit_over(self) -> None:
        """Forget the limit that other machines share, because it is over."""
        self.limit_share, self.limited_elsewhere = _NEVER, False
