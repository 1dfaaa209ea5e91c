"""The worker whose first call has waited longest in a lane that several workers share.

Each worker sends its calls in order of arrival, and whoever asks when a place is free gets it. A worker in which an
attempt has just ended asks first, and its next call takes the place; so calls of a worker that has had less luck could
wait for as long as a call is held, while calls that came later were sent. Therefore the lane's record says which
worker's first call has waited longest. While it waits for more than AHEAD seconds longer than the first call of another
worker, that other worker sends none.
"""

from __future__ import annotations

#: The seconds by which a call may have waited for less than the one that waits longest, and be sent all the same: a
#: place that has to go to another worker is unused until that one asks again.
AHEAD = 0.5
#: Seconds after which a worker that has not asked is passed over.
_PASSED_OVER = 0.25


class LongestWait:
    """The longest wait of a lane, as one worker knows it. `row`: this worker's row of the memory. Times are seconds on
    the callers' clock.
    """

    __slots__ = ("_asked_at", "_of", "_row", "_since")

    def __init__(self, row: int) -> None:
        self._row = row
        self._of = 0  # the row of the worker whose first call waits longest, 0 for none,
        self._since = self._asked_at = 0.0  # since when that call waits, and when its worker asked last

    def may_send(self, since: float, now: float) -> bool:
        """Whether this worker may send its first call, which waits since the time `since`."""
        return self._is_free(now) or since <= self._since + AHEAD

    def note(self, since: float | None, now: float) -> None:
        """Note since when this worker's first call waits; None if no call waits here."""
        if since is None:
            if self._of == self._row:
                self._of = 0
        elif self._is_free(now) or since < self._since:
            self._of, self._since, self._asked_at = self._row, since, now

    def _is_free(self, now: float) -> bool:
        """Whether no other worker is known to have a call that waits longest, or that worker does not ask any more."""
        return self._of in (0, self._row) or now > self._asked_at + _PASSED_OVER

    def restore(self, of: float, since: float, asked_at: float) -> None:
        """Take over the numbers that `state` returned in another worker."""
        self._of, self._since, self._asked_at = int(of), since, asked_at

    def state(self) -> tuple[float, float, float]:
        """Return the numbers to store in the memory that workers share; `restore` takes them over in another worker."""
        return self._of, self._since, self._asked_at
