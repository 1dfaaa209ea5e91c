"""A source of random draws that is not random, for calls whose waits must come out alike."""

from __future__ import annotations


class FixedDraws:
    """A source of random draws that always gives the same number."""

    def __init__(self, draw: float) -> None:
        self._draw = draw

    def random(self) -> float:
        """The number that every draw gives."""
        return self._draw
