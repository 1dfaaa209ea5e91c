"""The queue of one lane: the calls that it holds, in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from proxy.retry.queues.fair_order import FairOrder, app_of, leave_first, take_place
from proxy.retry.queues.queue_walk import QueueWalks
from proxy.retry.queues.waiter import Waiter


class LaneQueue:
    """The calls that a lane holds. Times are seconds on the callers' clock.

    `calls`: the held calls, each with the time from which it waits, in order of arrival; if they belong to several
    apps, in the order of these apps' turns. `order`: the object that decides these turns, None while no call has an
    app. `returned`: the calls that were put back and have not asked since; they may still be in the queue of another
    gate.
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
        """Add a call that comes at the time `now`, as the last."""
        self.calls[waiter] = now
        self._walks.joined(waiter)

    def arrange(self, keep_first: bool, now: float, wait_of: Callable[[int], float] | None) -> None:
        """Move the last call to the place that the apps' turns give it, if it has an app. `keep_first`: the first call
        stays first. `wait_of`: given the number of calls before a call, returns the seconds that the call waits. Calls
        that are overtaken, and would now wait for too long, are woken to ask again.
        """
        if app_of(next(reversed(self.calls))) is not None:
            self._walks.end()
            self.order = take_place(self.order, self.calls, keep_first=keep_first, now=now, wait_of=wait_of)

    def put_first(self, calls: Iterable[Waiter], now: float) -> None:
        """Put these calls at the head of the queue, in their order, as if they had come at the time `now`."""
        self._walks.end()
        if self.order is not None:
            self.order.disturb()
        back = dict.fromkeys(calls, now)
        self.calls = {**back, **self.calls}
        self.returned.update(back)

    def ask_again(self, now: float) -> None:
        """Have all calls ask again at once, in their order, since another lane holds them from now on."""
        self.returned.update(self.calls)
        for waiter in list(self.calls):
            waiter.retime(now)

    def asks(self, waiter: Waiter) -> None:
        """Note that this call, which is in the queue, asks when it may be sent."""
        self.returned.discard(waiter)

    def admit(self, waiter: Waiter) -> float:
        """Remove a call because its turn has come. Returns the time from which it waited."""
        self._walks.end()
        self.returned.discard(waiter)
        if self.order is not None:
            leave_first(self.order, waiter, self.calls)
        return self.calls.pop(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Remove a call, if it is in the queue, although its turn has not come."""
        if self.calls.pop(waiter, None) is not None:
            self.returned.discard(waiter)
            self._walks.left(waiter)
            if self.order is not None:
                self.order.disturb()

    def take_all(self) -> list[Waiter]:
        """Remove all calls. Returns them in their order."""
        every = list(self.calls)
        if self.order is not None:
            self.order.disturb()
        self.calls.clear()
        self.returned.clear()
        return every

    def ahead_of(self, waiter: Waiter) -> int:
        """The number of calls that are sent before this waiting call. A call that does not wait here yet counts as the
        last.
        """
        if waiter is next(iter(self.calls), None):
            return 0
        if waiter is next(reversed(self.calls), None):
            return len(self.calls) - 1
        return self._walks.number_of(waiter, self.calls)

    def turn_of(self, waiter: Waiter, start: float, gap: float, patience: float) -> float:
        """The time at which the call is sent. `start`: the time at which the first call is sent. `gap`: the seconds
        from one call to the next. `patience`: the seconds after which calls that are not sent leave.
        """
        return self._walks.turn_of(waiter, self.calls, start, gap, patience)
