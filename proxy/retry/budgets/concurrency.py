"""The limit on how many attempts of one scope are under way at a time, and the queue of calls for a place among them
(contract, section 13, "Concurrency").

A scope is a set of calls that share limits; a place is one of the attempts that may be under way. Law: an attempt has
at most one place, from its sending to its answer's last byte or to the judgement that it failed, and gives the place
back exactly once (`proxy.retry.call.payment.Payment`). There are never more than `most` places in use.

Theory. A waiting call (a waiter) asks for a place, and is never assigned one. A place that becomes free is offered to
the first call in the queue: its alarm rings at once (`retime`), and it asks again. Places that are left then are
offered to the next. A call that comes while others wait goes to the end of the queue, so no call is overtaken, unless
apps have names (`proxy.retry.queues.fair_order`). A call that gives up its turn offers it to the next.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from proxy.retry.budgets.token_bucket import REJECTED, STEP
from proxy.retry.policies.policy import Concurrency
from proxy.retry.queues.fair_lines import FairLines, first_of, turns
from proxy.retry.queues.fair_order import app_of, newest_below
from proxy.retry.queues.waiter import Waiter

#: The number of places under a limit that the configuration does not name any more.
UNLIMITED = 2**62
_NEVER = float("inf")


class Elsewhere(NamedTuple):
    """How other processes use the same places. `in_use`: how many places they hold. `waiting`: how many of their calls
    wait for a place. `earlier`: whether one of those calls came before the call that asks.
    """

    in_use: int = 0
    waiting: int = 0
    earlier: bool = False


NONE_ELSEWHERE = Elsewhere()


class FleetPlaces(Protocol):
    """The link to the other machines that share the places, through which this process gets its share of them."""

    @property
    def may_give(self) -> bool:
        """Whether the other machines may still give this process more places, as far as this process knows."""

    def changed(self, now: float) -> None:
        """Note that the number of this process's attempts under way, or of its waiting calls, has changed, so that the
        other machines learn of the change.
        """

    def leave(self) -> None:
        """Give back what this process holds: it shares the places no more."""


class Places:
    """The places of one scope. `most`: how many there are. `in_use`: how many this process uses. `queue`: this
    process's calls that wait for a place, in order of arrival, each with the time at which it came (seconds). `share`:
    how many places this process may use, infinity if no other machine shares them.
    """

    #: Whether places may become free in other processes, for which the first call in the queue looks now and then.
    _polls = False
    __slots__ = ("_fleet", "_gives", "_lines", "_ousted", "_share_until", "in_use", "most", "queue", "share")

    def __init__(self, most: int) -> None:
        self.most = most
        self.in_use = 0
        self.queue: dict[Waiter, float] = {}
        self.share = self._share_until = _NEVER
        self._fleet: FleetPlaces | None = None
        self._lines: FairLines | None = None  # the queue by app, once a call has one
        self._ousted: set[Waiter] = set()  # calls that gave their place in a full queue to one of a better priority
        self._gives = False  # there may have been more places for this process

    def join(self, fleet: FleetPlaces) -> None:
        """Share the places with other machines from now on, by the link `fleet`."""
        self._fleet = fleet

    def part(self, now: float) -> None:
        """Share the places with no other machine any more, if they were shared."""
        fleet, self._fleet = self._fleet, None
        if fleet is not None:
            fleet.leave()
            self.allot(_NEVER, now=now)

    def allot(self, share: float, *, now: float, until: float = _NEVER) -> None:
        """Set how many places this process may use (`share`) until the time `until` (seconds)."""
        self.share, self._share_until = share, until
        gave, self._gives = self._gives, self._fleet is not None and self._fleet.may_give
        if gave and not self._gives:
            for waiter in list(self.queue):  # those for which the queue has no room any more ask again
                waiter.retime(now)
        self._offer(now)

    def ask(self, waiter: Waiter, rules: Concurrency, now: float) -> float:
        """Take a place for the waiting call and return `now`. If there is none for it, return the time at which to ask
        again, or REJECTED if the call may not wait: as many calls wait as `rules.queue` allows, this one has waited for
        as long as `rules.wait` allows, or a call of higher priority took its place in the queue.
        """
        queue = self.queue
        if waiter in self._ousted:
            self._ousted.discard(waiter)
            return REJECTED
        came = queue.get(waiter)
        others = self._elsewhere(now if came is None else came, now)
        if self._has_turn(waiter, others, now):
            return self._enter(waiter, now)
        asks_again = came is not None
        if came is None:
            waiting = len(queue) + others.waiting - self._offered(others, now)
            if waiting >= self._room(rules) and not self._oust(waiter, now):
                return REJECTED
            came = now
            self._line_up(waiter, now)
            if self._lines is not None and self._has_turn(waiter, others, now):
                return self._enter(waiter, now)
        until = came + rules.wait
        if now + STEP > until or (self._fleet is not None and not self._is_in_room(waiter, rules)):
            self.leave(waiter, now)
            return REJECTED
        self._changed(now)
        first = first_of(self._lines, queue)
        if first is waiter:
            return min(until, self._next_look(others, now))
        if asks_again and self._polls and first is not None:
            first.retime(now)  # it is first since other processes' calls went, and has to look from now on
        return until

    def _has_turn(self, waiter: Waiter, others: Elsewhere, now: float) -> bool:
        """Whether a place is free, and it is this call's turn. `others`: how other processes use the places."""
        if self.in_use + others.in_use >= self.most or not self._has_share(now):
            return False
        queue = self.queue
        if self._lines is not None and waiter in queue:
            return self._lines.is_next(waiter, now)
        return (not queue or waiter is next(iter(queue))) and not others.earlier

    def _offered(self, others: Elsewhere, now: float) -> int:
        """How many free places are offered to calls in the queue that have not asked again yet. Such calls take no room
        in the queue from a call that comes meanwhile. `others`: how other processes use the places.
        """
        return max(0, self.most - self.in_use - others.in_use) if self.queue and self._has_share(now) else 0

    def _enter(self, waiter: Waiter, now: float) -> float:
        """Take a place for a waiting call whose turn it is. Returns `now`."""
        if self._lines is not None:
            self._lines.went(waiter, 1.0, now)
        self.queue.pop(waiter, None)
        self.in_use += 1
        self._changed(now)
        self._offer(now)
        return now

    def _line_up(self, waiter: Waiter, now: float) -> None:
        """Put a call that has just come into the queue."""
        self.queue[waiter] = now
        if self._lines is not None:
            self._lines.add(waiter, 1.0, now)
        elif app_of(waiter) is not None:
            self._lines = self._make_lines()
            for each, came in self.queue.items():
                self._lines.add(each, 1.0, came)

    def _make_lines(self) -> FairLines:
        """Make the lines that decide the turns of the calls of apps."""
        return FairLines()

    def _oust(self, waiter: Waiter, now: float) -> bool:
        """Make room in the full queue for this call: remove and refuse the newest waiting call of the lowest priority,
        if its priority is lower than this call's. Returns whether there was such a call.
        """
        app = app_of(waiter)
        if app is None or not self.queue:
            return False
        newest = newest_below(self.queue, app.rank)
        if newest is None:
            return False
        self._drop(newest, now)
        self._ousted.add(newest)
        newest.retime(now)
        return True

    def enter_at_once(self, now: float) -> bool:
        """Take a place for a call that has not waited. Returns False if other calls wait, or no place is free."""
        if self.queue:
            return False
        others = self._elsewhere(now, now)
        if others.earlier or self.in_use + others.in_use >= self.most or not self._has_share(now):
            return False
        self.in_use += 1
        self._changed(now)
        return True

    def enter(self, now: float) -> None:
        """Count an attempt as under way, for places that are only counted and not limited."""
        self.in_use += 1
        self._changed(now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Remove the waiting call from the queue, if it is in the queue."""
        self._ousted.discard(waiter)
        if self._drop(waiter, now):
            self._changed(now)
            self._offer(now)

    def _drop(self, waiter: Waiter, now: float) -> bool:
        """Remove the waiting call from the queue. Returns whether it was there."""
        if self._lines is not None:
            self._lines.remove(waiter, now)
        return self.queue.pop(waiter, None) is not None

    def give_back(self, now: float) -> None:
        """Free a place that was taken."""
        self.in_use -= 1
        self._changed(now)
        self._offer(now)

    def resize(self, most: int, now: float) -> None:
        """Change the number of places to `most`. A call that has one keeps it."""
        if most != self.most:
            self.most = most
            self._offer(now)

    def total(self, now: float) -> tuple[int, int]:
        """The number of attempts under way, and of calls that wait, in all processes."""
        others = self._elsewhere(now, now)
        return self.in_use + others.in_use, len(self.queue) + others.waiting

    def is_ready(self, now: float) -> bool:
        """Whether an attempt would get a place at once, as far as this process knows."""
        if self.queue and self.in_use >= self.share:
            return False
        return sum(self.total(now)) < self.most

    @property
    def is_idle(self) -> bool:
        """Whether no attempt of this process is under way, and no call of it waits."""
        return not self.in_use and not self.queue

    def _offer(self, now: float) -> None:
        """Have the first call in the queue ask again now, if there may be a free place for it."""
        if self.queue and self.in_use < self.most and self._has_share(now):
            first = first_of(self._lines, self.queue)
            if first is not None:
                first.retime(now)

    def _has_share(self, now: float) -> bool:
        """Whether this process may use one more of the places that it shares with other machines."""
        return self.in_use < self.share and now < self._share_until

    def _room(self, rules: Concurrency) -> int:
        """The number of calls that may wait for a place in this process: `rules.queue`. While other machines may still
        give this process places, it is at least the number of all places, since the waiting calls could then be sent
        soon.
        """
        if self._fleet is None or rules.queue < 0 or not self._fleet.may_give:
            return max(0, rules.queue)
        return max(rules.queue, self.most)

    def _is_in_room(self, waiter: Waiter, rules: Concurrency) -> bool:
        """Whether this waiting call may go on waiting. If other machines can give this process no more places, fewer
        calls may wait now than when this call came; then the last calls in the queue may not.
        """
        room = self._room(rules)
        return len(self.queue) <= room or waiter in list(turns(self._lines, self.queue))[:room]

    def _elsewhere(self, came: float, now: float) -> Elsewhere:
        """How other processes use these places. `came`: the time at which the asking call came, since a call that came
        earlier in another process goes first.
        """
        return NONE_ELSEWHERE

    def _changed(self, now: float) -> None:
        """Report to the machines that share the places, if any do, that the use of the places or the queue has changed
        here. Subclasses that share places with other processes report the change to these as well.
        """
        if self._fleet is not None:
            self._fleet.changed(now)

    def _next_look(self, others: Elsewhere, now: float) -> float:
        """The time at which the first call in the queue asks again, even if no place becomes free in this process.
        `others`: how other processes use the places; one of theirs may be free by then.
        """
        return REJECTED
