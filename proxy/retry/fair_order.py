"""The order in which waiting calls of several apps go (contract, section 17, "Queues").

By priority first: while calls of more than one priority wait, one place in eight goes to those of a lower one, which
take turns. Among the apps of one priority by weight: each call has a tag, the virtual time at which its app would be
done with it, and the smallest tag goes first (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996). Within an
app by arrival.

Law: the calls of one app never overtake each other. Without names of apps nothing is reordered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeVar

from proxy.retry.apps import RANKS, NamedApp
from proxy.retry.waiter import Waiter

#: Contract, section 17: of so many places given while several priorities wait, one goes to a lower one.
ONE_OF = 8

V = TypeVar("V", bound=float)
W = TypeVar("W", bound=Waiter)

#: A waiting call: the call, its app, and what it costs.
Waiting = tuple[Waiter, NamedApp, float]
#: The first waiting call of each app, by rank and by the app's name: its app, its price, and when it came.
Heads = dict[int, dict[str, tuple[NamedApp, float, float]]]


class FairOrder:
    """The order in which the calls of one queue go. It remembers which apps have had their turn, so that shares hold
    over time.
    """

    __slots__ = ("_tags", "_time", "given", "turn")

    def __init__(self) -> None:
        self.given = 0  # the places that the best priority had in a row, while others waited
        self.turn = 0  # the turns that lower priorities had
        self._time: dict[int, float] = {}  # by priority: the virtual time at which its last call began
        self._tags: dict[tuple[int, str], float] = {}  # by priority and app: the tag of its last call

    def first(self, queue: Mapping[W, float], now: float) -> W | None:
        """The call that goes next of those that wait in `queue`; None if it is the turn of another process's."""
        return next(iter(queue))

    def sync(self, queue: Mapping[W, float], now: float) -> None:
        """Note which calls wait, for processes that share the order."""

    def next_look(self, now: float, due: float) -> float:
        """The time at which the first call has to look whether it is its turn, if what it waits for comes at `due`."""
        return due

    def copied(self) -> FairOrder:
        """A copy, to see how calls would go."""
        copy = FairOrder()
        copy.given, copy.turn = self.given, self.turn
        copy._time, copy._tags = self._time.copy(), self._tags.copy()
        return copy

    def restore(self, given: int, turn: int, time: dict[int, float], tags: dict[tuple[int, str], float]) -> None:
        """Take over the numbers that `state` returned for another order, as arguments in the same order."""
        self.given, self.turn, self._time, self._tags = given, turn, time, tags

    def state(self) -> tuple[int, int, dict[int, float], dict[tuple[int, str], float]]:
        """The numbers of the order: `given`, `turn`, the virtual time of each rank, the tag of each rank and app."""
        return self.given, self.turn, self._time, self._tags

    def arranged(self, waiting: Iterable[Waiting]) -> list[Waiter]:
        """The waiting calls, given in order of arrival, in the order in which they are to go."""
        ahead, lines = self.copied(), _lines(waiting)
        found: list[Waiter] = []
        while lines:
            rank, name = ahead.choose(
                {rank: {name: (*line[0][1:], 0.0) for name, line in each.items()} for rank, each in lines.items()}
            )
            waiter, app, price = lines[rank][name].popleft()
            ahead.went(app, price, others=len(lines) > 1)
            found.append(waiter)
            if not lines[rank][name]:
                del lines[rank][name]
                if not lines[rank]:
                    del lines[rank]
        return found

    def went(self, app: NamedApp, price: float, *, others: bool) -> None:
        """Note that a call of this app leaves the queue and is sent now. `price`: what it costs at the gate (one, or
        tokens); `others`: calls of another priority wait.
        """
        is_lower = others and self.given >= ONE_OF - 1  # one of eight is for the lower priorities
        self.given = self.given + 1 if others and not is_lower else 0
        self.turn += is_lower
        self._note(app.rank, app, price)

    def choose(self, heads: Heads) -> tuple[int, str]:
        """The rank and the name of the app whose call goes next. `heads`: the first waiting call of each app."""
        rank, *lower = sorted(heads)
        if lower and self.given >= ONE_OF - 1:
            rank = lower[self.turn % len(lower)]
        line = heads[rank]
        return rank, min(line, key=lambda name: (self.tag(line[name][0], max(line[name][1], 1.0)), line[name][2]))

    def came(self, app: NamedApp) -> None:
        """Note that a call of this app comes while no other call of the app waits, so that the app does not save up
        turns while it is idle.
        """
        at = app.rank, app.name
        self._tags[at] = max(self._tags.get(at, 0.0), self._time.get(app.rank, 0.0))

    def tag(self, app: NamedApp, price: float) -> float:
        """The tag that an app gets by calls that cost `price` in all."""
        return self._tags.get((app.rank, app.name), 0.0) + price / app.weight

    def _note(self, rank: int, app: NamedApp, price: float) -> None:
        begun = self._tags.get((rank, app.name), 0.0)
        self._time[rank] = max(self._time.get(rank, 0.0), begun)
        self._tags[rank, app.name] = self.tag(app, max(price, 1.0))


def _lines(waiting: Iterable[Waiting]) -> dict[int, dict[str, deque[Waiting]]]:
    lines: dict[int, dict[str, deque[Waiting]]] = {}
    for each in waiting:
        app = each[1]
        lines.setdefault(app.rank, {}).setdefault(app.name, deque()).append(each)
    return lines


def app_of(waiter: Waiter) -> NamedApp | None:
    """The app of a waiting call; None if the configuration names no apps."""
    app = getattr(waiter, "app", None)
    return app if isinstance(app, NamedApp) else None


def latest_of(waiter: Waiter) -> float:
    """The time until which a call may wait; infinity if the waiter does not say."""
    latest: float = getattr(waiter, "latest", float("inf"))
    return latest


def newest_below(queue: Mapping[Waiter, float], rank: int) -> Waiter | None:
    """The newest call of the lowest priority in a queue (`queue`: when each call came), if that priority is below
    `rank`; else None. A call that was the probe of an outage is never taken.
    """
    found = [
        (app_rank(each), came, number, each)
        for number, (each, came) in enumerate(queue.items())
        if app_rank(each) > rank and not getattr(each, "was_probe", False)
    ]
    return max(found, key=lambda each: each[:3])[3] if found else None


def app_rank(waiter: Waiter) -> int:
    """The rank of a call's priority; that of a call without an app is normal."""
    app = app_of(waiter)
    return RANKS["normal"] if app is None else app.rank


def take_place(
    order: FairOrder | None,
    queue: MutableMapping[W, V],
    *,
    priced: bool = False,
    keep_first: bool = False,
    now: float = 0.0,
    wait_of: Callable[[int], float] | None = None,
) -> FairOrder | None:
    """Move the call that has just come, the last of `queue`, to its place in the queue, by priority and weight. Returns
    `order`, the order of this queue, made here if it is None and needed. `priced`: the queue's values are what the
    calls cost; `keep_first`: the first call stays first. `wait_of`: gives the seconds that a call waits, from the
    number of calls before it; calls that are overtaken, and would now wait for longer than they may, ask again at
    `now`.
    """
    newcomer = next(reversed(list(queue)))
    calls = list(queue.items())
    newest = app_of(calls[-1][0])
    if newest is None:
        return order
    order = order or FairOrder()
    if not any(app_of(waiter) == newest for waiter, _ in calls[:-1]):
        order.came(newest)
    if len(calls) == 1 or app_of(calls[-2][0]) == newest:  # its app's calls are the last, and go by arrival
        return order
    first = calls[:1] if keep_first else []
    known = [(waiter, app_of(waiter) or NamedApp(), value if priced else 1.0) for waiter, value in calls[len(first) :]]
    arranged: list[Any] = [*(waiter for waiter, _ in first), *order.arranged(known)]
    values = dict(calls)
    queue.clear()
    for waiter in arranged:
        queue[waiter] = values[waiter]
    if wait_of is not None:
        place = arranged.index(newcomer)
        for number, waiter in enumerate(arranged[place + 1 :], place + 1):
            if now + wait_of(number) > latest_of(waiter):
                waiter.retime(now)
    return order


def leave_first(order: FairOrder | None, waiter: Waiter, queue: Iterable[Waiter], price: float = 1.0) -> None:
    """Note in `order`, if there is one, that this call, the first of `queue`, leaves the queue now, so that its app's
    next call has its turn later. `price`: what the call costs at the gate.
    """
    app = app_of(waiter)
    if order is not None and app is not None:
        ranks = {each.rank for other in queue if other is not waiter and (each := app_of(other)) is not None}
        order.went(app, price, others=bool(ranks - {app.rank}))
