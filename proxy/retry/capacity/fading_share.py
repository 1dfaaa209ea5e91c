"""The share of refused attempts in the latest few groups of attempts; older groups count for less."""

from __future__ import annotations

#: How much of an older group counts when a new one is added.
_KEPT = 0.8


class FadingShare:
    """The share of attempts that were refused. `count`: the number of attempts that the share is based on; older
    attempts count only in part. `refused`: how many of these were refused.
    """

    __slots__ = ("count", "refused")

    def __init__(self) -> None:
        self.count = self.refused = 0.0

    def add(self, count: int, refused: int) -> None:
        """Add a group of `count` attempts, of which `refused` were refused."""
        self.count = _KEPT * self.count + count
        self.refused = _KEPT * self.refused + refused

    @property
    def share(self) -> float:
        """The share of the attempts that was refused (0 to 1)."""
        return self.refused / max(1.0, self.count)
