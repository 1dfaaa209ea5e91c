"""The waiting room that all calls share: how many may wait at one time, and how many of one upstream's.

Law: whatever gate holds them (a cooldown, a rate bucket, the adaptive limiter), one upstream's held calls take at most
half of `limits.waiting`, so that one slow provider, or one slow rate, does not fill the room for the others. A call's
own backoff is not a hold: it has been paid for, and takes a place of the whole room (contract, sections 4 and 5).
"""

from __future__ import annotations


class WaitingRoom:
    """Counts the calls that wait. `capacity` is `limits.waiting`; `waiting` is how many of this process wait now."""

    __slots__ = ("_held", "capacity", "waiting")

    def __init__(self, capacity: int = 2000) -> None:
        self.capacity = capacity
        self.waiting = 0
        self._held: dict[str, int] = {}

    def enter(self, upstream: str, held: bool = False) -> bool:
        """Take a place; False if the room is full. `held`: a gate holds the call, so that the upstream's share counts
        too.
        """
        return self._enter(upstream, held, 0, 0)

    def leave(self, upstream: str, held: bool = False) -> None:
        """Free a place that `enter` took with the same arguments."""
        self.waiting -= 1
        if held:
            left = self._held[upstream] - 1
            if left:
                self._held[upstream] = left
            else:
                del self._held[upstream]

    def held_for(self, upstream: str) -> int:
        """The number of this upstream's calls that a gate holds now."""
        return self._held.get(upstream, 0)

    def _enter(self, upstream: str, held: bool, waiting: int, holding: int) -> bool:
        """Take a place as `enter` does, given that other processes use `waiting` places of the room, `holding` of them
        for held calls of this upstream.
        """
        if self.waiting + waiting >= self.capacity:
            return False
        if held:
            mine = self._held.get(upstream, 0)
            if mine + holding >= max(1, self.capacity // 2):
                return False
            self._held[upstream] = mine + 1
        self.waiting += 1
        return True
