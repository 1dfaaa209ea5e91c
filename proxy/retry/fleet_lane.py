"""The link that shares a lane's limit and outage with the other machines of a fleet. A lane is the queue of a group of
callers.
"""

from __future__ import annotations

from typing import Protocol


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
