"""The times between a client's own attempts, which show whether an upstream serves attempts that are sent at once."""

from __future__ import annotations

#: The served attempts that are looked at, and so many of them have to be sent at once.
_LATEST, _SEVERAL = 16, 2
#: Attempts are sent at once if the time between them is less than this part of the time between two calls that come.
_AT_ONCE = 0.01
#: The most attempts of which it is remembered how long after another they were sent.
_REMEMBERED = 128

_NEVER = float("inf")


class OwnGaps:
    """The times between the latest attempts of one lane (the queue of a group of callers), in seconds."""

    __slots__ = ("_gaps", "_last", "_served")

    def __init__(self) -> None:
        self._last = -_NEVER  # when an attempt was sent last
        self._gaps: dict[object, float] = {}  # of attempts that have not been served
        self._served: list[float] = []  # of the latest served ones

    def clear(self) -> None:
        """Forget all attempts."""
        self._last = -_NEVER
        self._gaps.clear()
        self._served.clear()

    def sent(self, attempt: object, now: float) -> None:
        """Note that an attempt is sent."""
        self._gaps[attempt], self._last = now - self._last, now
        if len(self._gaps) > _REMEMBERED:
            del self._gaps[next(iter(self._gaps))]

    def refused(self, attempt: object) -> None:
        """Note that an attempt was refused."""
        self._gaps.pop(attempt, None)

    def served(self, attempt: object) -> None:
        """Note that an attempt was served."""
        gap = self._gaps.pop(attempt, None)
        if gap is not None:
            self._served = [*self._served[1 - _LATEST :], gap]

    def are_at_once(self, rate: float) -> bool:
        """Whether several of the latest served attempts were sent at once. An upstream without a queue that serves one
        attempt at a time does not serve these; one that counts requests over time does. `rate`: how many calls come in
        a second.
        """
        return sum(gap * rate < _AT_ONCE for gap in self._served) >= _SEVERAL
