"""The limit on how many attempts of one scope are under way at a time, and the queue for a place among them (contract,
section 13, "Concurrency").

Law: an attempt has at most one place, from its sending to its answer's last byte or to the judgement that it failed,
and gives it back exactly once (`proxy.retry.payment.Payment`). There are never more than `most` places in use.

Theory. A waiter asks for a place; no place is ever assigned to it. A place that becomes free is offered to the first in
the queue, whose alarm rings at once (`retime`); it asks again, and the next one is offered what is left. A call that
comes while others wait goes to the end of the queue, so no call is overtaken, unless apps have names
(`proxy.retry.fair_order`). A call that gives up its turn offers it to the next.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from proxy.retry.fair_lines import FairLines, first_of, turns
from proxy.retry.fair_order import app_of, newest_below
from proxy.retry.policy import Concurrency
from proxy.retry.token_bucket import REJECTED, STEP
from proxy.retry.waiter import Waiter

#: The number of places under a limit that the configuration does not name any more.
UNLIMITED = 2**62
_NEVER = float("inf")


class Elsewhere(NamedTuple):
    """How other processes use the same places: `in_use`, the number that they hold; `waiting`, the number of their
    calls that wait for one; `earlier`, whether one of those calls came before the call that asks.
    """

    in_use: int = 0
    waiting: int = 0
    earlier: bool = False


NONE_ELSEWHERE = Elsewhere()


class FleetPlaces(Protocol):
    """The link to the machines that share places: through it this process gets its share of them."""

    @property
    def may_give(self) -> bool:
        """Whether the other machines may still give this process more places, as far as this process knows."""

    def changed(self, now: float) -> None:
        """Note that the number of this process's attempts under way, or of its waiting calls, has changed, so that
        other machines learn of it.
        """


class Places:
    """The places of one scope: `most` of them, `in_use` by this process. `queue` holds this process's calls that wait
    for one, in order of arrival, with the time at which each came (seconds). `share`: how many places this process may
    use, infinity if no other machine shares them.
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

    def allot(self, share: float, *, now: float, until: float = _NEVER) -> None:
        """Set how many places this process may use (`share`), up to the time `until` (seconds)."""
        self.share, self._share_until = share, until
        gave, self._gives = self._gives, self._fleet is not None and self._fleet.may_give
        if gave and not self._gives:
            for waiter in list(self.queue):  # those for which the queue has no room any more ask again
                waiter.retime(now)
        self._offer(now)

    def ask(self, waiter: Waiter, rules: Concurrency, now: float) -> float:
        """Take a place for the waiter and return `now`; else return the time to ask again, or REJECTED if the call may
        not wait: as many calls wait as `rules.queue` allows, it has waited for as long as `rules.wait` allows, or a
        call of a higher priority took its place.
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
        """How many places are free for calls in the queue that have not asked again yet: such a call takes no room from
        one that comes meanwhile.
        """
        return max(0, self.most - self.in_use - others.in_use) if self.queue and self._has_share(now) else 0

    def _enter(self, waiter: Waiter, now: float) -> float:
        """Take a place for a call whose turn it is. Returns `now`."""
        if self._lines is not None:
            self._lines.went(waiter, 1.0, now)
        self.queue.pop(waiter, None)
        self.in_use += 1
        self._changed(now)
        self._offer(now)
        return now

    def _line_up(self, waiter: Waiter, now: float) -> None:
        """Put a call that comes into the queue."""
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
        """Take a place for a call that has not waited; False if others wait, or none is free."""
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
        """Remove the waiter from the queue, if it is in it."""
        self._ousted.discard(waiter)
        if self._drop(waiter, now):
            self._changed(now)
            self._offer(now)

    def _drop(self, waiter: Waiter, now: float) -> bool:
        """Remove the waiter from the queue. Returns whether it was in it."""
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
        """Whether an attempt would get a place at once, as far as is known."""
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
        """Whether this process may use another of the places that machines share."""
        return self.in_use < self.share and now < self._share_until

    def _room(self, rules: Concurrency) -> int:
        """The number of calls that may wait for a place in this process: `rules.queue`. While other machines may still
        give it places, it is at least the number of all places, since calls could then be sent soon.
        """
        if self._fleet is None or rules.queue < 0 or not self._fleet.may_give:
            return max(0, rules.queue)
        return max(rules.queue, self.most)

    def _is_in_room(self, waiter: Waiter, rules: Concurrency) -> bool:
        """Whether this waiting call may go on waiting. Fewer calls may wait now than when it came if other machines can
        give no more places; then the last in the queue may not.
        """
        room = self._room(rules)
        return len(self.queue) <= room or waiter in list(turns(self._lines, self.queue))[:room]

    def _elsewhere(self, came: float, now: float) -> Elsewhere:
        """How other processes use these places. `came`: the time at which the call that asks came, since a call that
        came earlier in another process goes first.
        """
        return NONE_ELSEWHERE

    def _changed(self, now: float) -> None:
        """Report to the machines that share the places, if any do, that the use of the places, or the queue, has
        changed here. Subclasses that share places with other processes report to these as well.
        """
        if self._fleet is not None:
            self._fleet.changed(now)

    def _next_look(self, others: Elsewhere, now: float) -> float:
        """The time at which the first call in the queue asks again, even if no place becomes free in this process.
        `others`: how other processes use the places, which may free one then.
        """
        return REJECTED
