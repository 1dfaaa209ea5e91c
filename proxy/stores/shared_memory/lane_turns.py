"""The order of the calls that a lane holds in all workers of one machine: by priority and weight of their apps, as if
all waited in one process.

Law: only the order is decided here. The lane decides how many calls may be sent, and when (`lane`).

Theory. Each call is held in the lane's queue of its own worker. The turns of their apps are those of lines that the
workers share (`fair_lines`); the lines are made when the first call of an app is held. Every operation on the lane
brings the lines up to date with the queue. The lines say which app's turn it is, and in which worker. In that worker,
the first of the app's calls in the queue is sent: a call that was the probe of an outage is in the queue before the
other calls of its app.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from proxy.retry.apps import NamedApp
from proxy.retry.queues.fair_order import FairOrder, app_of
from proxy.retry.queues.waiter import Waiter
from proxy.stores.shared_memory.fair_lines import SharedLines

W = TypeVar("W", bound=Waiter)


class LaneTurns(FairOrder):
    """The order of the calls that one worker holds in a lane, among those of all workers. `make_lines`: makes the lines
    that the workers share.
    """

    __slots__ = ("_at", "_is_behind", "_lines", "_make_lines", "_picked")

    def __init__(self, make_lines: Callable[[], SharedLines]) -> None:
        super().__init__()
        self._make_lines = make_lines
        self._lines: SharedLines | None = None
        self._picked: Waiter | None = None  # the call whose turn it was found to be
        self._at = 0.0  # when that was
        self._is_behind = False  # calls have left the queue that are in the lines

    def first(self, queue: Mapping[W, float], now: float) -> W | None:
        self.sync(queue, now)
        if self._lines is None:
            return next(iter(queue))
        self._at = now
        turn = self._lines.next_here(now)
        if turn is None:
            return None
        app = app_of(turn)
        self._picked = first = next(each for each in queue if app_of(each) == app or each is turn)
        return first

    def sync(self, queue: Mapping[W, float], now: float) -> None:
        lines = self._lines
        if lines is None:
            if not queue or app_of(next(iter(queue))) is None:
                return
            lines = self._lines = self._make_lines()
        if len(lines) == len(queue) and not self._is_behind:
            return
        for gone in lines.others(queue):
            lines.remove(gone, now)
        for waiter in queue:
            if waiter not in lines:
                lines.add(waiter, 1.0, now)
        self._is_behind = False

    def went(self, app: NamedApp, price: float, *, others: bool) -> None:
        super().went(app, price, others=others)
        picked, self._picked = self._picked, None
        if picked is None or self._lines is None:
            self._is_behind = True  # a probe, whose turn it need not be
        else:
            self._lines.went(picked, price, self._at)

    def next_look(self, now: float, due: float) -> float:
        return due if self._lines is None or not len(self._lines) else self._lines.next_look(now, due)
