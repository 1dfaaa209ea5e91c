"""One failure a thousand times over is told a thousand times, and then counted.

The first MOST lines of a second that tell of the same failure (upstream, route, outcome, status) are written; what
comes beyond is left out, and a line at the second's end says how many were. An upstream that goes down under load
fills no disk with what was known after the first lines, and no number is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from proxy.retry.facts import Outcome

#: Lines a second about the same failure.
MOST = 1000
#: Seconds from the first failure of a kind until what was left out is told.
WINDOW = 1.0

Later = Callable[[float, Callable[[], None]], object]


class FailureKind(NamedTuple):
    """What makes two failures the same."""

    upstream: str
    route: str
    outcome: Outcome
    status: int


class FailureSampler:
    """`later(seconds, function)` is the loop's `call_later`; `tell` takes a failure and the lines left out."""

    def __init__(self, later: Later, tell: Callable[[FailureKind, int], None], most: int = MOST) -> None:
        self._later = later
        self._tell = tell
        self._most = most
        self._counts: dict[FailureKind, int] = {}

    def is_wanted(self, failure: FailureKind) -> bool:
        """Whether to write this one's line; it is counted."""
        if not self._counts:
            self._later(WINDOW, self.end)
        count = self._counts[failure] = self._counts.get(failure, 0) + 1
        return count <= self._most

    def end(self) -> None:
        """The second is over: tell what was left out."""
        counts, self._counts = self._counts, {}
        for failure, count in counts.items():
            if count > self._most:
                self._tell(failure, count - self._most)
