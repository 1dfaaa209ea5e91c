"""The share of attempts that were refused, of the latest few groups of them: older groups count for less."""

from __future__ import annotations

#: How much of an older group counts when a new one is added.
_KEPT = 0.8


class FadingShare:
    """The share of attempts that were refused. `count`: how many attempts it is of; older ones count in part."""

    __slots__ = ("_refused", "count")

    def __init__(self) -> None:
        self.count = self._refused = 0.0

    def add(self, count: int, refused: int) -> None:
        """Add a group of attempts, and how many of them were refused."""
        self.count = _KEPT * self.count + count
        self._refused = _KEPT * self._refused + refused

    @property
    def share(self) -> float:
        """The share of the attempts that was refused (0 to 1)."""
        return self._refused / max(1.0, self.count)
