"""The link that shares a lane's limit and outage with the other machines of a fleet."""

from __future__ import annotations

from typing import Protocol


class FleetLane(Protocol):
    """The link that shares a lane's limit and outage with other machines."""

    def limit_began(self, now: float) -> None:
        """Report that a limit has begun, as attempts of this process show."""

    def limit_over(self, now: float) -> None:
        """Report that the limit is over."""

    def limit_cut(self, part: float, sent: float, now: float) -> None:
        """Report that an attempt, sent at `sent`, was refused or slow, and that the limit was therefore multiplied by
        `part` (below 1), so that the other machines lower it too.
        """

    def outage_began(self, now: float) -> None:
        """Report that an outage has begun, as attempts of this process show."""

    def outage_over(self, now: float) -> None:
        """Report that the outage is over, since an attempt of this process was answered."""

    def held(self, now: float) -> None:
        """Note that a call of this process is held in the lane, so that the link asks other machines for the lane's
        present state.
        """
