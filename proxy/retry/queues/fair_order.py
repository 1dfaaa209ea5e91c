"""The order in which waiting calls of several apps go (contract, section 17, "Queues").

Calls go by priority first: while calls of several priorities wait, seven of eight places go to the highest, and one
goes to a lower priority; the lower priorities take turns. Among the apps of one priority, calls go by weight: each call
has a tag, the virtual time at which its app would be done with the call, and the smallest tag goes first (start-time
fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996). Within an app, calls go in order of arrival; the apps that `others`
stands for take turns, a call each.

Law: the calls of one app never overtake each other. Without names of apps nothing is reordered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from proxy.retry.apps import OTHERS, RANKS, NamedApp
from proxy.retry.queues.waiter import Waiter

#: Contract, section 17: of so many places given while several priorities wait, one goes to a lower one.
ONE_OF = 8

T = TypeVar("T")
V = TypeVar("V", bound=float)
W = TypeVar("W", bound=Waiter)

#: A waiting call: the call, its app, and what it costs.
Waiting = tuple[Waiter, NamedApp, float]
#: The first waiting call of each app, by rank and by the app's name: its app, its price, and when it came.
Heads = dict[int, dict[str, tuple[NamedApp, float, float]]]
#: A call's turn in a queue that is in order: its rank, its tag, and the order's `given` and `turn` once it has gone.
Turn = tuple[int, float, int, int]


class FairOrder:
    """The order in which the calls of one queue go. It remembers which apps have had their turn, so that the apps'
    shares hold over time. `given`: how many places in a row went to the highest priority while calls of others waited.
    `turn`: how many turns the lower priorities have had.
    """

    __slots__ = ("_last", "_tags", "_time", "_turns", "given", "turn")

    def __init__(self) -> None:
        self.given = 0  # the places that the best priority had in a row, while others waited
        self.turn = 0  # the turns that lower priorities had
        self._time: dict[int, float] = {}  # by priority: the virtual time at which its last call began
        self._tags: dict[tuple[int, str], float] = {}  # by priority and app: the tag of its last call
        #: The turns of the calls that `arranged` and `insert` put in order; empty if the queue has changed otherwise.
        self._turns: dict[Waiter, Turn] = {}
        self._last: dict[tuple[int, str], float] = {}  # by priority and app: the tag of its last call among these

    def first(self, queue: Mapping[W, float], now: float) -> W | None:
        """The call in `queue` that goes next; None if it is the turn of a call in another process."""
        return next(iter(queue))

    def sync(self, queue: Mapping[W, float], now: float) -> None:
        """Report which calls wait here, if processes share the order; here, do nothing."""

    def next_look(self, now: float, due: float) -> float:
        """The time at which the first call should check whether it is its turn. `due`: the time at which what it waits
        for is there.
        """
        return due

    def copied(self) -> FairOrder:
        """A copy, on which the order of future calls can be tried out."""
        copy = FairOrder()
        copy.given, copy.turn = self.given, self.turn
        copy._time, copy._tags = self._time.copy(), self._tags.copy()
        return copy

    def restore(self, given: int, turn: int, time: dict[int, float], tags: dict[tuple[int, str], float]) -> None:
        """Take over the numbers that the method `state` returned for another order. The arguments are these numbers, in
        the same order.
        """
        self.given, self.turn, self._time, self._tags = given, turn, time, tags

    def state(self) -> tuple[int, int, dict[int, float], dict[tuple[int, str], float]]:
        """The order's numbers: `given`, `turn`, the virtual time of each rank, and the tag of each rank and app."""
        return self.given, self.turn, self._time, self._tags

    def arranged(self, waiting: Iterable[Waiting]) -> list[Waiter]:
        """Sort the waiting calls, which are given in order of arrival, into the order in which they are to go. A queue
        that is in order stays as it is.
        """
        last: dict[tuple[int, str], float] = {}
        self._last = last
        sorted_by_tag: dict[int, list[tuple[float, int, Waiter]]] = {}
        for number, (waiter, app, price) in _others_in_turns(waiting):
            at = app.rank, app.name
            last[at] = tag = last.get(at, self._tags.get(at, 0.0)) + max(price, 1.0) / app.weight
            sorted_by_tag.setdefault(app.rank, []).append((tag, number, waiter))
        lines = {
            rank: deque((waiter, tag) for tag, _, waiter in sorted(found)) for rank, found in sorted_by_tag.items()
        }
        self._turns = dict(_merged(lines, self.given, self.turn))
        return list(self._turns)

    def insert(self, queue: dict[Any, V], app: NamedApp, kept: int) -> int | None:
        """Move the last call of `queue`, which belongs to `app`, to its place among the others, and return this place.
        Returns None, and does nothing, if the others are not known to be in order. `kept`: how many calls at the head
        stay there.
        """
        turns, newcomer = self._turns, next(reversed(queue))
        if (
            app.name == OTHERS
            or len(turns) != len(queue) - 1 - kept
            or next(iter(turns)) is not next(islice(queue, kept, None))
        ):
            return None
        at = app.rank, app.name
        if at not in self._last:
            self.came(app)
        tag = self._last[at] = (self._last[at] if at in self._last else self._tags[at]) + 1.0 / app.weight
        given, turn, behind = self.given, self.turn, []
        for each in reversed(turns):
            rank, other, *then = turns[each]
            if rank == app.rank and other <= tag:
                given, turn = then
                break
            behind.append(each)
        lines = {app.rank: deque([(newcomer, tag)])}
        for each in reversed(behind):
            lines.setdefault(turns[each][0], deque()).append((each, turns[each][1]))
        place, moves = len(queue) - 1 - len(behind), False
        for each, found in _merged(lines, given, turn):
            moves = moves or each is newcomer
            if moves:
                turns.pop(each, None)
                queue[each] = queue.pop(each)
            else:
                place += 1
            turns[each] = found
        return place

    def leaves(self, waiter: Waiter, app: NamedApp, queue: Iterable[Waiter]) -> None:
        """Note that this call of `app`, which is still in `queue`, goes now."""
        turns = self._turns
        if next(iter(turns), None) is waiter is next(iter(queue), None):
            _, tag, *then = turns.pop(waiter)
            if self._last[app.rank, app.name] == tag:
                del self._last[app.rank, app.name]
            self.went(app, 1.0, others=then != [0, self.turn])
        else:
            self.disturb()
            ranks = (app_rank(other) for other in queue if other is not waiter)
            self.went(app, 1.0, others=any(rank != app.rank for rank in ranks))

    def disturb(self) -> None:
        """Note that calls left the queue although it was not their turn, or were put at its head: the next call that
        comes has the whole queue sorted.
        """
        self._turns.clear()

    def went(self, app: NamedApp, price: float, *, others: bool) -> None:
        """Note that a call of this app leaves the queue and is sent now. `price`: what the call costs at the gate (1,
        or tokens). `others`: calls of another priority wait.
        """
        is_lower = others and self.given >= ONE_OF - 1  # one of eight is for the lower priorities
        self.given = self.given + 1 if others and not is_lower else 0
        self.turn += is_lower
        self._note(app.rank, app, price)

    def choose(self, heads: Heads) -> tuple[int, str]:
        """The rank and the name of the app whose call goes next. `heads`: the first waiting call of each app, by rank
        and name.
        """
        rank, *lower = sorted(heads)
        if lower and self.given >= ONE_OF - 1:
            rank = lower[self.turn % len(lower)]
        line = heads[rank]
        return rank, min(line, key=lambda name: (self.tag(line[name][0], max(line[name][1], 1.0)), line[name][2]))

    def came(self, app: NamedApp) -> None:
        """Note that a call of this app has come while no other call of the app was waiting. An app does not save up
        turns while it is idle.
        """
        at = app.rank, app.name
        self._tags[at] = max(self._tags.get(at, 0.0), self._time.get(app.rank, 0.0))

    def tag(self, app: NamedApp, price: float) -> float:
        """The tag of the app after calls that cost `price` in all: the virtual time at which the app would be done with
        them.
        """
        return self._tags.get((app.rank, app.name), 0.0) + price / app.weight

    def _note(self, rank: int, app: NamedApp, price: float) -> None:
        begun = self._tags.get((rank, app.name), 0.0)
        self._time[rank] = max(self._time.get(rank, 0.0), begun)
        self._tags[rank, app.name] = self.tag(app, max(price, 1.0))


def _others_in_turns(waiting: Iterable[Waiting]) -> Iterator[tuple[int, Waiting]]:
    """Number the waiting calls, and yield those of apps that `others` stands for after the rest, in turns."""
    lines: dict[tuple[int, str], list[tuple[int, Waiting]]] = {}
    for number, each in enumerate(waiting):
        if each[1].name == OTHERS:
            lines.setdefault((each[1].rank, each[1].who), []).append((number, each))
        else:
            yield number, each
    yield from in_turns(lines.values())


def _merged(lines: dict[int, deque[tuple[Waiter, float]]], given: int, turn: int) -> Iterator[tuple[Waiter, Turn]]:
    """Merge the calls of each rank, which are in order, each with its tag, into the order in which they go; yield each
    with its turn. `given`, `turn`: the order's numbers before the first of them.
    """
    ranks = sorted(lines)
    while ranks:
        rank, *lower = ranks
        if not lower:
            given = 0
        elif given < ONE_OF - 1:
            given += 1
        else:
            rank, given, turn = lower[turn % len(lower)], 0, turn + 1
        waiter, tag = lines[rank].popleft()
        if not lines[rank]:
            ranks.remove(rank)
        yield waiter, (rank, tag, given, turn)


def in_turns(groups: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield one item of each group, then the second one of each that has two, and so on."""
    left = deque(iter(group) for group in groups)
    while left:
        group = left.popleft()
        for item in group:
            yield item
            left.append(group)
            break


def app_of(waiter: Waiter) -> NamedApp | None:
    """The app of a waiting call; None if the configuration names no apps."""
    app = getattr(waiter, "app", None)
    return app if isinstance(app, NamedApp) else None


def latest_of(waiter: Waiter) -> float:
    """The time until which a call may wait; infinity if the waiter does not say."""
    latest: float = getattr(waiter, "latest", float("inf"))
    return latest


def newest_below(queue: Mapping[Waiter, float], rank: int) -> Waiter | None:
    """The newest call of the lowest priority in a queue, if that priority is lower than that of the rank `rank`;
    otherwise None. A call that was the probe of an outage is never chosen. `queue`: the waiting calls, each with the
    time at which it came.
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
    queue: dict[Any, V],
    *,
    keep_first: bool = False,
    now: float = 0.0,
    wait_of: Callable[[int], float] | None = None,
) -> FairOrder | None:
    """Move the call that has just come, the last of `queue`, to its place in the queue, by priority and weight. Returns
    `order`, the order of this queue, which is made here if it is None and needed.

    `keep_first`: the first call stays first. `wait_of`: given the number of calls before a call, returns the seconds
    that the call waits. Calls that were overtaken, and would now wait for longer than they may, are woken to ask again.
    """
    latest = reversed(queue)
    newcomer = next(latest)
    newest, before = app_of(newcomer), next(latest, None)
    if newest is None:
        return order
    order = order or FairOrder()
    kept = int(keep_first and before is not None)
    place = order.insert(queue, newest, kept) if len(queue) > 1 + kept else None
    if place is None:
        apps = (app_of(waiter) for waiter in queue if waiter is not newcomer)
        if not any(each is not None and (each.rank, each.name) == (newest.rank, newest.name) for each in apps):
            order.came(newest)
        if before is not None and app_of(before) == newest:  # its app's calls are the last, and go by arrival
            return order
        known = [(waiter, app_of(waiter) or NamedApp(), 1.0) for waiter in islice(queue, kept, None)]
        for waiter in order.arranged(known):
            queue[waiter] = queue.pop(waiter)
        if wait_of is not None:
            place = list(queue).index(newcomer)
    if wait_of is not None and place is not None:
        for number, waiter in enumerate(list(islice(reversed(queue), len(queue) - 1 - place))[::-1], place + 1):
            if now + wait_of(number) > latest_of(waiter):
                waiter.retime(now)
    return order


def leave_first(order: FairOrder | None, waiter: Waiter, queue: Iterable[Waiter]) -> None:
    """Note in `order`, if there is one, that this call, the first of `queue`, leaves the queue now. The next call of
    its app then has its turn later.
    """
    app = app_of(waiter)
    if order is not None and app is not None:
        order.leaves(waiter, app, queue)
