"""A waiter: a call that waits at a gate, as the gate sees it."""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """A call that waits at a gate, as the gate sees it: the gate can move the call's alarm, and nothing else."""

    def retime(self, at: float) -> None:
        """Move the call's alarm, so that the call asks again at the time `at` (seconds)."""
