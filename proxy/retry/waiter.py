"""A call that waits at a gate, as gates see it."""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """A call that waits at a gate, as gates see it."""

    def retime(self, at: float) -> None:
        """Move the waiter's alarm, so that it asks again at `at` (seconds)."""
