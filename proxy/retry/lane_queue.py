"""The queue of one lane: the calls that it holds, in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from proxy.retry.fair_order import FairOrder, app_of, leave_first, take_place
from proxy.retry.queue_walk import QueueWalks
from proxy.retry.waiter import Waiter


class LaneQueue:
    """The calls that a lane holds. Times are seconds on the callers' clock.

    `calls`: the held calls in order of arrival or, if they are several apps', of these apps' turns, each with the time
    from which it waits; `order`: the order of these turns, None while no call has an app; `returned`: the calls that
    were put back and have not asked since, so that they may still stand in the queue of another gate.
    """

    __slots__ = ("_walks", "calls", "order", "returned")

    def __init__(self) -> None:
        self.calls: dict[Waiter, float] = {}
        self.order: FairOrder | None = None
        self.returned: set[Waiter] = set()
        self._walks = QueueWalks()

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self.calls)

    def __contains__(self, waiter: object) -> bool:
        return waiter in self.calls

    def first(self) -> Waiter | None:
        """The first call, None if no call waits."""
        return next(iter(self.calls), None)

    def join(self, waiter: Waiter, now: float) -> None:
        """Add a call that comes at `now`, as the last."""
        self.calls[waiter] = now
        self._walks.joined(waiter)

    def arrange(self, keep_first: bool, now: float, wait_of: Callable[[int], float] | None) -> None:
        """Move the last call to its place by the turns of apps, if it has an app. `keep_first`: the first call stays
        first; `wait_of`: gives the seconds that a call waits, from the number of calls before it, by which calls that
        are overtaken ask again.
        """
        if app_of(next(reversed(self.calls))) is not None:
            self._walks.end()
            self.order = take_place(self.order, self.calls, keep_first=keep_first, now=now, wait_of=wait_of)

    def put_first(self, calls: Iterable[Waiter], now: float) -> None:
        """Put these calls at the head of the queue, in their order, as if they came at `now`."""
        self._walks.end()
        back = dict.fromkeys(calls, now)
        self.calls = {**back, **self.calls}
        self.returned.update(back)

    def asks(self, waiter: Waiter) -> None:
        """Note that this call, which is in the queue, asks when it may be sent."""
        self.returned.discard(waiter)

    def admit(self, waiter: Waiter) -> float:
        """Take a call out because its turn has come. Returns the time from which it waited."""
        self._walks.end()
        self.returned.discard(waiter)
        if self.order is not None:
            leave_first(self.order, waiter, self.calls)
        return self.calls.pop(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Take a call out, if it is in the queue, though its turn has not come."""
        if self.calls.pop(waiter, None) is not None:
            self.returned.discard(waiter)
            self._walks.left(waiter)

    def take_all(self) -> list[Waiter]:
        """Take all calls out. Returns them in their order."""
        every = list(self.calls)
        self.calls.clear()
        self.returned.clear()
        return every

    def ahead_of(self, waiter: Waiter) -> int:
        """The number of calls that are sent before the waiter, which is last if it does not wait here yet."""
        if waiter is next(iter(self.calls), None):
            return 0
        if waiter is next(reversed(self.calls), None):
            return len(self.calls) - 1
        return self._walks.number_of(waiter, self.calls)

    def turn_of(self, waiter: Waiter, start: float, gap: float, patience: float) -> float:
        """The time at which the call is sent, if the first call is sent at `start`, one more each `gap` seconds, and
        calls that are not sent within `patience` seconds leave.
        """
        return self._walks.turn_of(waiter, self.calls, start, gap, patience)
