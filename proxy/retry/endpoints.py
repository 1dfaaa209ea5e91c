"""The choice of an attempt's endpoint, if the core makes it: by priority, weight and circuit breakers.

Contract, section 13. An endpoint is passed over while its breaker is open, and while it refuses connections and another
is left (section 6). Of the endpoints that are not passed over, those of the lowest priority number count; among them
the ones at which this call has failed are avoided while another is left. So a retry goes elsewhere within its priority,
but not to another priority: that a call failed at an endpoint does not make the endpoint one that is passed over. An
endpoint whose breaker is due for a probe comes first; else endpoints take turns by weight.

Turns are smooth weighted round-robin (nginx): each endpoint in play gains its weight, the one with the most is taken
and pays the sum, so that 3 to 1 goes a a b a. A retry takes no turn: else, with two endpoints, every call would begin
with the one that fails.

Under `balance: least` the endpoint with the fewest attempts under way for its weight is taken, over all workers, and
endpoints with equally few take turns. An attempt is under way until its answer's last byte, or until it has failed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.retry.circuit_breaker import CircuitBreaker
from proxy.retry.concurrency import UNLIMITED, Places
from proxy.retry.penalty import FIRST, Penalty
from proxy.retry.policy import EndpointShare

#: The most places named by requests whose health is kept (contract, section 3: unmatched places that are kept).
MOST_PLACES = 1000

#: Returns the breaker of the endpoint with this label, or None.
BreakerOf = Callable[[str], CircuitBreaker | None]
#: Returns the count of attempts under way to the endpoint with this label, or None if they are not counted.
LoadOf = Callable[[str], Places | None]


@dataclass(slots=True, eq=False)
class Choice:
    """The endpoint that one attempt is sent to. `index` and `label`: the endpoint's number and label. `probe`: the
    number of the probe if the attempt is sent as a probe of the endpoint's circuit breaker, else 0. `turn`: the
    endpoints that take turns, if the choice takes one of these turns; empty if it takes none.
    """

    index: int
    label: str
    breaker: CircuitBreaker | None = None
    probe: int = 0
    turn: Sequence[int] = ()

    def ended(self, ill: bool, sent: float, now: float) -> bool | None:
        """Report to the breaker the class of the attempt, which was sent at `sent`. `ill`: the class is a sign that the
        endpoint is ill. Returns True if that opened the breaker, False if it closed it, None if neither.
        """
        return None if self.breaker is None else self.breaker.ended(ill, sent, self.probe, now)

    def turned_ill(self, sent: float, now: float) -> bool | None:
        """Report to the breaker that the attempt, sent at `sent`, has failed after all: it was reported as healthy when
        its head came. Returns True if that opened the breaker, else None.
        """
        return None if self.breaker is None else self.breaker.turned_ill(sent, now)

    def undecided(self, now: float) -> None:
        """Report to the breaker that the attempt is not sent, or was cancelled."""
        if self.breaker is not None and self.probe:
            self.breaker.undecided(self.probe, now)


class Endpoints:
    """The endpoints of one upstream, or the one endpoint that a request's authority stands for if the upstream has
    none; shared by all calls of a process. `loads`: for each endpoint, the count of its attempts under way, None if
    nothing asks for it.
    """

    def __init__(self, shares: Sequence[EndpointShare]) -> None:
        self.shares = shares
        self.breakers: list[CircuitBreaker | None] = [None] * len(shares)
        self.loads: list[Places | None] = [None] * len(shares)
        self._standing = [0] * len(
            shares
        )  # each endpoint's balance: what it gained by its weight less what its turns cost
        self._penalties = [Penalty() for _ in shares]
        self._elsewhere = [0.0] * len(shares)  # until when endpoints are passed over because they refuse other machines
        self._only: Choice | None = None  # the choice of the only endpoint, kept for all calls
        #: Called with the label of an endpoint that refuses connections, and for how many seconds it is passed over; 0
        #: when it refuses none any more. None if no other machine has to know.
        self.report: Callable[[str, float], None] | None = None

    def seconds_left(self, now: float) -> float:
        """Seconds until a call may be sent to any of these endpoints; 0 if one may be now."""
        if None in self.breakers:
            return 0.0
        return min(breaker.seconds_left(now) for breaker in self.breakers if breaker is not None)

    def choose(
        self, avoid: Sequence[int], now: float, only: int | None = None, *, least: bool = False
    ) -> Choice | None:
        """Choose the endpoint of an attempt, and enter its breaker, as a probe if one is due; None if every breaker is
        open. `avoid`: the endpoints at which the call has failed, or has an attempt in flight; `only`: the endpoint
        that was chosen already, because its gates hold the call for the shortest time; `least`: choose the one with the
        fewest attempts under way.
        """
        if len(self.breakers) == 1:  # there is nothing to choose
            (breaker,) = self.breakers
            probe = 0 if breaker is None else breaker.enter(now)
            return None if probe is None else Choice(0, self.shares[0].label, breaker, probe)
        able = self.able(now) if only is None else [only]
        while able:
            index, here = self.best(able, avoid, now, least)
            breaker = self.breakers[index]
            probe = 0 if breaker is None else breaker.enter(now)
            if probe is not None:
                return Choice(index, self.shares[index].label, breaker, probe, () if avoid else here)
            able.remove(index)  # another worker sent the probe first
        return None

    def choose_only(self) -> Choice | None:
        """The choice of the only endpoint, which is one object for all calls; None if there are several, or if the
        circuit breaker is open.
        """
        if len(self.breakers) > 1:
            return None
        (breaker,) = self.breakers
        if breaker is not None and breaker.is_open:
            return None
        choice = self._only
        if choice is None or choice.breaker is not breaker:
            choice = self._only = Choice(0, self.shares[0].label, breaker)
        return choice

    def able(self, now: float) -> list[int]:
        """The endpoints whose circuit breakers let a call pass."""
        return [index for index, each in enumerate(self.breakers) if each is None or each.passes(now)]

    def choose_any(self, avoid: Sequence[int], now: float, *, least: bool = False) -> Choice:
        """Choose the endpoint of an attempt without asking the circuit breakers (`mode: observe` and `off`). `avoid`:
        the endpoints to use only if no other is left; `least`: choose the one with the fewest attempts under way.
        """
        index, here = self.best(range(len(self.shares)), avoid, now, least)
        return Choice(index, self.shares[index].label, turn=() if avoid else here)

    def took(self, choice: Choice) -> None:
        """Note that the attempt is sent to this choice, so that the chosen endpoint has had its turn."""
        if choice.turn:
            for index in choice.turn:
                self._standing[index] += self.shares[index].weight
            self._standing[choice.index] -= sum(self.shares[index].weight for index in choice.turn)

    def refused(self, index: int, now: float) -> None:
        """Note that the endpoint with the number `index` could not be connected to, so that it is passed over for a
        while. Several attempts that fail at the same time count once.
        """
        penalty = self._penalties[index]
        if penalty.refused(now) and self.report is not None:
            self.report(self.shares[index].label, penalty.seconds)

    def reached(self, index: int) -> None:
        """Note that the endpoint with the number `index` could be connected to."""
        penalty = self._penalties[index]
        if penalty.until or self._elsewhere[index]:
            penalty.reached()
            self._elsewhere[index] = 0.0
            if self.report is not None:
                self.report(self.shares[index].label, 0.0)

    def refused_elsewhere(self, label: str, seconds: float, now: float) -> None:
        """Note that the endpoint with this label refuses the connections of another machine, where it is passed over
        for `seconds` seconds; 0 if it does not refuse them any more.

        Here it is passed over for FIRST seconds at most, after which a call of this machine may find out itself: one
        machine that can't reach an endpoint must not keep it from the others.
        """
        for index, share in enumerate(self.shares):
            if share.label == label:
                self._elsewhere[index] = now + min(seconds, FIRST) if seconds > 0 else 0.0

    def best(self, able: Sequence[int], avoid: Sequence[int], now: float, least: bool) -> tuple[int, Sequence[int]]:
        """Return the number of the endpoint to use, and the endpoints with which it takes turns, empty if it uses up no
        turn. `able`: the endpoints whose breakers let a call pass; `avoid`: those to use only if no other is left, and
        then those first that are in it least often, so that retries go round all; `least`: prefer those with the fewest
        attempts under way.
        """
        shares = self.shares
        well = [index for index in able if self._penalties[index].until <= now and self._elsewhere[index] <= now]
        well = well or list(able)
        first = min(shares[index].priority for index in well)
        here = [index for index in well if shares[index].priority == first]
        others = _least_often(here, avoid) if avoid else here
        for index in others:
            breaker = self.breakers[index]
            if breaker is not None and breaker.is_open:
                return index, ()  # a probe is due, and takes no turn
        if least and len(others) > 1:
            others = here = self._least(others, now)
        return max(others, key=lambda index: self._standing[index] + shares[index].weight), here

    def rank(self, index: int, avoid: Sequence[int], now: float) -> tuple[bool, int, bool]:
        """Return the order of the endpoint with the number `index` among others, but for the turns, which change while
        a call waits (the smaller goes first): whether it is passed over because it refuses connections, its priority,
        and whether it is one of those to `avoid`. How often does not count here: calls that an outage of all endpoints
        holds would leave the one that is back for the one at which they have failed less often.
        """
        refuses = self._penalties[index].until > now or self._elsewhere[index] > now
        return refuses, self.shares[index].priority, index in avoid

    def _least(self, able: Sequence[int], now: float) -> list[int]:
        """The endpoints of `able` that have the fewest attempts under way for their weight, in all workers."""
        under_way: dict[int, float] = {}
        for index in able:
            load = self.loads[index]
            count = 0 if load is None else load.total(now)[0]
            if load is not None and count >= UNLIMITED:  # the workers' memory has no room for this count
                count = load.in_use
            under_way[index] = count / self.shares[index].weight
        fewest = min(under_way.values())
        return [index for index in able if under_way[index] == fewest]


def _least_often(able: Sequence[int], avoid: Sequence[int]) -> list[int]:
    """The endpoints of `able` that are in `avoid` least often: not at all, if there are such."""
    times = [avoid.count(index) for index in able]
    fewest = min(times)
    return [index for index, count in zip(able, times, strict=True) if count == fewest]


class EndpointGroup:
    """The `Endpoints` that one upstream's definition stands for: those that it lists or, if it lists none, one for each
    authority that requests name.
    """

    def __init__(self, shares: Sequence[EndpointShare]) -> None:
        self._named = Endpoints(shares) if shares else None
        self._asked: OrderedDict[str, Endpoints] = OrderedDict()
        self._breaker_of: BreakerOf = lambda label: None
        self._load_of: LoadOf = lambda label: None

    def renew(self, breaker_of: BreakerOf, load_of: LoadOf) -> None:
        """Replace the circuit breakers of all endpoints, and the counts of their attempts under way, after a reload of
        the configuration: `breaker_of` and `load_of` give the ones to use from now on.
        """
        self._breaker_of, self._load_of = breaker_of, load_of
        for endpoints in (*self._asked.values(), *((self._named,) if self._named is not None else ())):
            self._fit(endpoints)

    def share(self, report: Callable[[str, float], None]) -> None:
        """Have `report` called with the label of each endpoint that begins or ends to refuse connections and the
        seconds for which it is passed over (0 at the end), so that other machines learn of it. Done only for endpoints
        that the upstream lists.
        """
        if self._named is not None:
            self._named.report = report

    def refused_elsewhere(self, label: str, seconds: float, now: float) -> None:
        """Note that the endpoint with this label refuses the connections of another machine, where it is passed over
        for `seconds` seconds; 0 if it does not refuse them any more.
        """
        if self._named is not None:
            self._named.refused_elsewhere(label, seconds, now)

    def of(self, authority: str) -> Endpoints:
        """The endpoints of a call to this authority."""
        if self._named is not None:
            return self._named
        endpoints = self._asked.get(authority)
        if endpoints is None:
            endpoints = self._asked[authority] = Endpoints((EndpointShare(authority),))
            self._fit(endpoints)
            if len(self._asked) > MOST_PLACES:
                self._asked.popitem(last=False)
        return endpoints

    def _fit(self, endpoints: Endpoints) -> None:
        endpoints.breakers = [self._breaker_of(share.label) for share in endpoints.shares]
        if len(endpoints.shares) > 1:
            endpoints.loads = [self._load_of(share.label) for share in endpoints.shares]
