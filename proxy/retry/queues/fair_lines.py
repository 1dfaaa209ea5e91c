"""The calls that wait at one gate (a limit that holds calls), in a line for each app: which of them goes next
(contract, section 17, "Queues").

A call joins the end of its app's line, and the lines are compared only when a call is to go
(`proxy.retry.queues.fair_order`). So a call that comes costs the same however many wait. Calls without an app count as
calls of `others`.

The apps that `others` stands for share one line, in which they take turns.

Law: the calls of one app never overtake each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import count

from proxy.retry.apps import NamedApp
from proxy.retry.queues.fair_order import ONE_OF, FairOrder, Heads, app_of, in_turns, latest_of
from proxy.retry.queues.waiter import Waiter

#: How many calls of an app wait, and what they cost in all.
Sum = tuple[float, float]


class AppLine:
    """The waiting calls of one app that have the same priority, in order of arrival; the apps that `others` stands for
    take turns. `app`: the app, as the call that came last has it. `calls`: each call's price and the time at which it
    came. `total`: the sum of the prices.
    """

    __slots__ = ("_names", "app", "calls", "total")

    def __init__(self, app: NamedApp) -> None:
        self.app = app
        self.calls: dict[Waiter, tuple[float, float]] = {}
        self.total = 0.0
        #: The calls of each name that `others` stands for, the one whose turn it is first. Others have a single name.
        self._names: dict[str, dict[Waiter, None]] = {}

    def add(self, waiter: Waiter, app: NamedApp, price: float, now: float) -> None:
        """Put a call of the app, which has come at the time `now`, at its end of the line."""
        self.app = app
        self.calls[waiter] = price, now
        self.total += price
        self._names.setdefault(app.who, {})[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        """Remove a call from the line."""
        self.total -= self.calls.pop(waiter)[0]
        who = _who(waiter)
        del self._names[who][waiter]
        if not self._names[who]:
            del self._names[who]

    def had_its_turn(self, waiter: Waiter) -> None:
        """Note that this call goes now, so that it is another name's turn."""
        who = _who(waiter)
        self._names[who] = self._names.pop(who)

    def first(self) -> Waiter:
        """The call that goes next."""
        return next(iter(next(iter(self._names.values()))))

    def in_order(self) -> Iterator[tuple[Waiter, tuple[float, float]]]:
        """Iterate over the calls in the order in which they go, each with its price and the time at which it came."""
        return ((waiter, self.calls[waiter]) for waiter in in_turns(self._names.values()))

    def head(self) -> tuple[NamedApp, float, float]:
        """The app of the first call, its price, and the time at which it came."""
        price, came = self.calls[self.first()]
        return self.app, price, came

    def before(self, waiter: Waiter) -> Sum:
        """The number of calls in the line before this one, and the sum of their prices; if names take turns, their sum
        as estimated.
        """
        if len(self._names) > 1:
            return self._before_in_turns(waiter)
        if waiter is next(reversed(self.calls)):
            return len(self.calls) - 1.0, self.total - self.calls[waiter][0]
        number = price = 0.0
        for other, (cost, _) in self.calls.items():
            if other is waiter:
                break
            number, price = number + 1, price + cost
        return number, price

    def _before_in_turns(self, waiter: Waiter) -> Sum:
        own = _who(waiter)
        calls = self._names[own]
        if waiter is next(reversed(calls)):
            turns = len(calls) - 1
        else:
            turns = next(number for number, other in enumerate(calls) if other is waiter)
        if turns == 0 and own == next(reversed(self._names)):
            number = len(self._names) - 1.0  # each other name has one turn before this one's first
        else:
            number, passed = float(turns), 0
            for who, others in self._names.items():
                if who == own:
                    passed = 1
                else:
                    number += min(len(others), turns + 1 - passed)
        return number, self.total * number / len(self.calls)


def _who(waiter: Waiter) -> str:
    """The hash of the name by which a call's app goes, if `others` stands for the app; else ""."""
    app = app_of(waiter)
    return "" if app is None else app.who


class FairLines:
    """The calls that wait at one gate, in a line for each app and priority. `order`: decides whose turn it is, and
    remembers which apps have had theirs.
    """

    __slots__ = ("_lines", "_of", "order")

    def __init__(self) -> None:
        self.order = FairOrder()
        self._lines: dict[int, dict[str, AppLine]] = {}  # by the rank of the priority, and by the app's name
        self._of: dict[Waiter, AppLine] = {}

    def __contains__(self, waiter: object) -> bool:
        return waiter in self._of

    def __len__(self) -> int:
        return len(self._of)

    def add(self, waiter: Waiter, price: float, now: float) -> None:
        """Put a call, which has come at the time `now`, at the end of its app's line. `price`: what its attempt costs
        in tokens.
        """
        app = app_of(waiter) or NamedApp()
        lines = self._lines.setdefault(app.rank, {})
        line = lines.get(app.name)
        if line is None:
            line = lines[app.name] = AppLine(app)
            self._begins(app, now)
        line.add(waiter, app, price, now)
        self._of[waiter] = line

    def remove(self, waiter: Waiter, now: float) -> None:
        """Remove a call from its line, if it waits here, because it waits no more or goes elsewhere."""
        line = self._of.pop(waiter, None)
        if line is None:
            return
        line.remove(waiter)
        if not line.calls:
            lines = self._lines[line.app.rank]
            del lines[line.app.name]
            if not lines:
                del self._lines[line.app.rank]

    def went(self, waiter: Waiter, price: float, now: float) -> None:
        """Remove a call that goes now, and note that its app has had its turn. `price`: what the call costs at the
        gate.
        """
        line = self._of.get(waiter)
        if line is not None:
            app = line.app
            line.had_its_turn(waiter)
            self.remove(waiter, now)
            self.order.went(app, price, others=any(rank != app.rank for rank in self._lines))

    def waits_elsewhere(self, now: float) -> bool:
        """Whether calls wait at this gate in other processes."""
        return False

    def is_next(self, waiter: Waiter, now: float) -> bool:
        """Whether it is this call's turn."""
        return waiter is self.first()

    def next_look(self, now: float, due: float, spare: float = float("inf")) -> float:
        """The time at which the first call should check whether it is its turn. `due`: the time at which what it waits
        for is there. `spare`: how many seconds after `due` it may check without tokens being lost.
        """
        return due

    def later_look(self, now: float, due: float) -> float:
        """The time at which a call that is not the first should check whether it is its turn. `due`: the time at which
        what it waits for is there. If the call becomes the first, its alarm is moved.
        """
        return due

    def first(self) -> Waiter | None:
        """The call that goes next among those that wait in this process; None if none waits."""
        lines = self._lines
        if not lines:
            return None
        if len(lines) == 1 and len(self._of) == len((line := next(iter(next(iter(lines.values())).values()))).calls):
            return line.first()
        rank, name = self.order.choose(self._heads())
        return lines[rank][name].first()

    def others(self, queue: Container[Waiter]) -> list[Waiter]:
        """The calls that wait here but are not in `queue`."""
        return [waiter for waiter in self._of if waiter not in queue]

    def came(self, waiter: Waiter) -> float:
        """The time at which this call, which waits here, came."""
        return self._of[waiter].calls[waiter][1]

    def __iter__(self) -> Iterator[Waiter]:
        """Iterate over the calls in the order in which they will go if no other call comes."""
        ahead, lines = self.order.copied(), self._heads()
        left = {rank: {name: each.in_order() for name, each in found.items()} for rank, found in self._lines.items()}
        next_attempt = {rank: {name: next(calls) for name, calls in found.items()} for rank, found in left.items()}
        while lines:
            rank, name = ahead.choose(lines)
            app, price, _ = lines[rank][name]
            waiter, _ = next_attempt[rank][name]
            ahead.went(app, price, others=len(lines) > 1)
            following = next(left[rank][name], None)
            if following is not None:
                next_attempt[rank][name] = following
                lines[rank][name] = app, *following[1]
            else:
                del lines[rank][name]
                if not lines[rank]:
                    del lines[rank]
            yield waiter

    def before(self, waiter: Waiter) -> Sum:
        """An estimate of how many calls will go before this one, which waits here, and of the sum of their prices.
        Calls that come later are not counted.
        """
        line = self._of[waiter]
        app, order, sums = line.app, self.order, self._sums()
        number, price = self._before_in_line(line, waiter)
        done = order.tag(app, price + max(line.calls[waiter][0], 1.0))
        for name, (each, (calls, total)) in sums[app.rank].items():
            if name != app.name:
                part = min(1.0, max(0.0, done - order.tag(each, 0.0)) * each.weight / max(total, 1e-9))
                number, price = number + part * calls, price + part * total
        alike = {rank: _sum(found) for rank, found in sums.items()}
        for rank, calls in _of_other_ranks(order.given, order.turn, app.rank, number, alike).items():
            number, price = number + calls, price + calls * alike[rank][1] / alike[rank][0]
        return number, price

    def _before_in_line(self, line: AppLine, waiter: Waiter) -> Sum:
        return line.before(waiter)

    def _begins(self, app: NamedApp, now: float) -> None:
        """Note that a call of this app has come while no other call of the app was waiting."""
        self.order.came(app)

    def _heads(self) -> Heads:
        return {rank: {name: line.head() for name, line in lines.items()} for rank, lines in self._lines.items()}

    def _sums(self) -> dict[int, dict[str, tuple[NamedApp, Sum]]]:
        """The app of each line, the number of its waiting calls and the sum of their prices. The keys are the rank and
        the name of the app.
        """
        return {
            rank: {name: (line.app, (float(len(line.calls)), line.total)) for name, line in lines.items()}
            for rank, lines in self._lines.items()
        }


class Spare:
    """The calls that wait at one rate bucket, and how many seconds later each could still be sent in time.

    Each call that comes may delay those that wait. Every delay is counted against all of them, even if some of them are
    not overtaken. So a call that the method `overtaken` returns may still be in time, and should ask the gate again. A
    call that may wait for ever is not kept here.
    """

    __slots__ = ("_calls", "_number", "_until", "_used")

    def __init__(self) -> None:
        self._used = 0.0
        self._calls: list[tuple[float, int, Waiter]] = []
        self._until: dict[Waiter, float] = {}  # the calls that wait, with the use at which each has nothing to spare
        self._number = count()

    def note(self, waiter: Waiter, at: float) -> None:
        """Note that the call will be sent at the time `at`, if no other call overtakes it."""
        latest = latest_of(waiter)
        if latest == float("inf"):
            return
        until = self._until[waiter] = self._used + max(0.0, latest - at)
        heapq.heappush(self._calls, (until, next(self._number), waiter))
        if len(self._calls) > 64 + 4 * len(self._until):
            self._calls = [each for each in self._calls if self._until.get(each[2]) == each[0]]
            heapq.heapify(self._calls)

    def forget(self, waiter: Waiter) -> None:
        """Forget a call that does not wait any more."""
        self._until.pop(waiter, None)

    def overtaken(self, seconds: float) -> list[Waiter]:
        """Note that a call has come which may delay all others by `seconds`. Returns the calls that may now be too
        late, and forgets them.
        """
        self._used += seconds
        found: list[Waiter] = []
        while self._calls and self._calls[0][0] < self._used:
            until, _, waiter = heapq.heappop(self._calls)
            if self._until.get(waiter) == until:
                del self._until[waiter]
                found.append(waiter)
        return found


def _sum(lines: Mapping[str, tuple[NamedApp, Sum]]) -> Sum:
    return sum(each[1][0] for each in lines.values()), sum(each[1][1] for each in lines.values())


def _of_other_ranks(given: int, turn: int, rank: int, number: float, sums: Mapping[int, Sum]) -> dict[int, float]:
    """How many calls of each other rank go before a call of the rank `rank`. `number`: how many calls of its own rank
    go before it. `sums`: for each rank, how many calls wait, and their total price. `given`: how many places in a
    row went to the highest priority while calls of others waited. `turn`: how many turns the lower priorities have had.
    """
    left = {each: calls for each, (calls, _) in sums.items()}
    found = dict.fromkeys((each for each in left if each != rank), 0.0)
    while len(left) > 1:
        best, *lower = sorted(left)
        if rank == best:
            turns = (given + number) // (ONE_OF - 1)
            for each in lower:
                found[each] += min(left[each], turns / len(lower))
            break
        needed = len(lower) * number + (lower.index(rank) - turn) % len(lower) + 1
        turns = min(needed, (left[best] + given) // (ONE_OF - 1))
        found[best] += left[best] if turns < needed else min(left[best], max(0.0, (ONE_OF - 1) * needed - given))
        for each in lower:
            if each != rank:
                goes = min(left[each], turns / len(lower))
                found[each] += goes
                left[each] -= goes
        if turns == needed:
            break
        number, given = max(0.0, number - turns / len(lower)), 0
        del left[best]
    return found


def turns(lines: FairLines | None, queue: Iterable[Waiter]) -> Iterable[Waiter]:
    """The calls of a queue in the order in which they will go: by `lines`, or by arrival if it is None."""
    return queue if lines is None else lines


def first_of(lines: FairLines | None, queue: Iterable[Waiter]) -> Waiter | None:
    """The call of a queue that goes next; None if none waits. `lines`: the lines of the apps, which decide; None if
    there are none, so that the first call of the queue goes.
    """
    return next(iter(queue), None) if lines is None else lines.first()
