"""Counts of calls and attempts while an upstream names delays. They show how many calls are served when calls are held
for these delays.
"""

from __future__ import annotations

import math

_NEVER = float("inf")

#: Seconds over which is counted.
_MEASURED_OVER = 20.0


class HeldCounts:
    """Counts of a lane (the queue of a group of callers) while delays hold its calls. Events count for less the longer
    ago they were. `came`: the calls that came. `served`: the attempts that were served. `refused`: the attempts that
    were refused.
    """

    __slots__ = ("_at", "_since", "came", "refused", "served")

    def __init__(self) -> None:
        self.came = self.served = self.refused = 0.0
        self._at = 0.0  # when these counts were true
        self._since = _NEVER  # since when calls are counted

    def fade(self, now: float) -> None:
        """Reduce all counts for the time since they were last changed, so that older events count for less."""
        faded = math.exp(min(0.0, self._at - now) / _MEASURED_OVER)
        self.came, self.served, self.refused = self.came * faded, self.served * faded, self.refused * faded
        self._at = now

    def call_came(self, now: float) -> None:
        """Count a call that has come."""
        self._since = min(self._since, now)
        self.fade(now)
        self.came += 1

    def skip(self, now: float) -> None:
        """Leave the time since the counts were last changed out of the measured time."""
        self._since += now - self._at
        self._at = now

    @property
    def gives(self) -> float:
        """The share (0 to 1) of the latest calls that were served: what holding calls gives."""
        return min(1.0, self.served / max(1.0, self.came))

    @property
    def chance(self) -> float:
        """The share (0 to 1) of the latest attempts that were served."""
        return self.served / max(1.0, self.served + self.refused)

    @property
    def rate(self) -> float:
        """The number of calls that come in a second."""
        return self.came / self._over

    @property
    def served_rate(self) -> float:
        """The number of attempts that the upstream served in a second, lately."""
        return self.served / self._over

    @property
    def _over(self) -> float:
        """The length of the measured time, in seconds."""
        return max(1.0, _MEASURED_OVER * (1.0 - math.exp((self._since - self._at) / _MEASURED_OVER)))
