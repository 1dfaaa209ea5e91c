"""Walks along a queue of held calls, which work out for each call when its turn comes.

When an upstream names a delay, all calls that it holds ask again how long they wait, one after the other and in the
order of the queue (`retime_all` in `proxy.retry.weather.lane`). Each answer depends on the calls before the one that
asks. A walk goes on from the call for which it was asked last, so that a thousand calls take a thousand steps instead
of half a million.
"""

from __future__ import annotations

from proxy.retry.queues.waiter import Waiter

_NEVER = float("inf")

#: The share by which two times may differ that are the same but for rounding.
_ALIKE = 1e-9


class QueueWalk:
    """The turns of the calls in `queue`, which maps each held call to the time since which it waits.

    A call's turn is the time at which it would be sent. The first call's turn is `start`, and each further call's turn
    is `gap` later than the turn of the call before it. A call waits for at most `patience`. If one more `gap` after its
    turn would be too late for it, it is taken to leave before its turn, and the next call has the same turn. All are
    seconds, and turns are on the same clock as the times in the queue. With a start of 0, a gap of 1 and an infinite
    patience, a call's turn is the number of calls before it.
    """

    __slots__ = ("_at", "_calls", "_queue", "_size", "_turn", "_turns", "gap", "patience", "start")

    def __init__(self, queue: dict[Waiter, float], start: float, gap: float, patience: float) -> None:
        self.start = start
        self.gap = gap
        self.patience = patience
        self._queue = queue
        self._size = len(queue)
        self._calls = list(queue)
        self._at = 0  # the first call that the walk has not passed yet
        self._turn = start  # that call's turn
        self._turns: dict[Waiter, float] = {}  # of the calls that were passed

    def is_of(self, queue: dict[Waiter, float], start: float, gap: float, patience: float) -> bool:
        """Whether this walk is along the queue `queue`, as it is now, with the same start, gap and patience."""
        return (
            queue is self._queue
            and len(queue) == self._size
            and patience == self.patience
            and abs(start - self.start) <= _ALIKE * abs(start)  # rounded by a sum
            and abs(gap - self.gap) <= _ALIKE * gap  # rounded by a product
        )

    def turn_of(self, waiter: Waiter) -> float:
        """The turn of a call. For a call that is not in the queue, it is the turn after all others."""
        known = self._turns.get(waiter)
        if known is not None:
            return known
        calls, queue = self._calls, self._queue
        while self._at < len(calls):
            call = calls[self._at]
            self._turns[call] = turn = self._turn
            self._at += 1
            if turn + self.gap <= queue[call] + self.patience:
                self._turn = turn + self.gap
            if call is waiter:
                return turn
        return self._turn

    def joined(self, waiter: Waiter) -> None:
        """Note that a call has come, as the last in the queue."""
        self._calls.append(waiter)
        self._size += 1

    def left(self, waiter: Waiter) -> bool:
        """Note that a call has left the queue. Returns whether the walk can go on, which it can if that call was the
        last that it passed. If not, the walk must not be used again.
        """
        if not self._at or self._calls[self._at - 1] is not waiter:
            return False
        self._at -= 1
        del self._calls[self._at]
        self._turn = self._turns.pop(waiter)
        self._size -= 1
        return True


class QueueWalks:
    """The two walks along a lane's queue: one for the number of calls before each call, one for the times at which the
    calls are sent.
    """

    __slots__ = ("_numbers", "_turns")

    def __init__(self) -> None:
        self._numbers: QueueWalk | None = None
        self._turns: QueueWalk | None = None

    def number_of(self, waiter: Waiter, queue: dict[Waiter, float]) -> int:
        """The number of calls before this one in the queue; all of them if it is not in the queue."""
        walk = self._numbers
        if walk is None or not walk.is_of(queue, 0.0, 1.0, _NEVER):
            walk = self._numbers = QueueWalk(queue, 0.0, 1.0, _NEVER)
        return int(walk.turn_of(waiter))

    def turn_of(self, waiter: Waiter, queue: dict[Waiter, float], start: float, gap: float, patience: float) -> float:
        """The time at which the call is sent. `start`: the time at which the first call in the queue is sent. `gap`:
        the seconds from one call to the next. `patience`: the seconds after which calls that are not sent leave.
        """
        walk = self._turns
        if walk is None or not walk.is_of(queue, start, gap, patience):
            walk = self._turns = QueueWalk(queue, start, gap, patience)
        return walk.turn_of(waiter)

    def joined(self, waiter: Waiter) -> None:
        """Note that a call has come, as the last in the queue."""
        if self._numbers is not None:
            self._numbers.joined(waiter)
        if self._turns is not None:
            self._turns.joined(waiter)

    def left(self, waiter: Waiter) -> None:
        """Note that a call has left the queue."""
        if self._numbers is not None and not self._numbers.left(waiter):
            self._numbers = None
        if self._turns is not None and not self._turns.left(waiter):
            self._turns = None

    def end(self) -> None:
        """Forget both walks, because calls joined, left or moved elsewhere than at the queue's end. A walk begins again
        when it is next needed.
        """
        self._numbers = self._turns = None
