"""The choice of an attempt's endpoint, if the core and not the driver makes it: by priority, weight and circuit
breakers.

Contract, section 13. An endpoint is passed over while its breaker is open, and while it refuses connections and another
is left (section 6). Of the remaining endpoints, those with the lowest priority number count. Among these, the ones at
which this call has failed are avoided while another is left. So a retry goes to another endpoint of the same priority,
but never to another priority just because the call failed. An endpoint whose breaker is due for a probe comes first;
otherwise endpoints take turns by weight.

Turns are smooth weighted round-robin (nginx): at each turn every endpoint in play gains its weight, and the one with
the most is taken and pays the sum of the weights; so weights 3 and 1 give the order a a b a. A retry takes no turn:
otherwise, with two endpoints, every call would begin with the one that fails.

Under `balance: least` the endpoint with the fewest attempts under way for its weight is taken, over all workers, and
endpoints with equally few take turns. An attempt is under way until its answer's last byte, or until it has failed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.retry.budgets.concurrency import UNLIMITED, Places
from proxy.retry.policies.policy import EndpointShare
from proxy.retry.upstreams.circuit_breaker import CircuitBreaker
from proxy.retry.upstreams.penalty import FIRST, Penalty

#: The most places named by requests whose health is kept (contract, section 3: unmatched places that are kept).
MOST_PLACES = 1000

#: Returns the breaker of the endpoint with this label, or None.
BreakerOf = Callable[[str], CircuitBreaker | None]
#: Returns the count of attempts under way to the endpoint with this label, or None if they are not counted.
LoadOf = Callable[[str], Places | None]


@dataclass(slots=True, eq=False)
class Choice:
    """The endpoint that one attempt is sent to. `index` and `label`: the endpoint's number and label. `breaker`: its
    circuit breaker, None if it has none. `probe`: the number of the breaker's probe that this attempt is, 0 if it is
    none. `turn`: the numbers of the endpoints that take turns, if this choice uses up one of their turns; empty if it
    uses up none.
    """

    index: int
    label: str
    breaker: CircuitBreaker | None = None
    probe: int = 0
    turn: Sequence[int] = ()

    def ended(self, ill: bool, sent: float, now: float) -> bool | None:
        """Report the class of the attempt to the breaker. `ill`: the class is a sign that the endpoint is ill. `sent`:
        the time at which the attempt was sent. Returns True if the breaker opened, False if it closed, None if neither.
        """
        return None if self.breaker is None else self.breaker.ended(ill, sent, self.probe, now)

    def turned_ill(self, sent: float, now: float) -> bool | None:
        """Report to the breaker that the attempt, which was reported as healthy when its head came, has failed after
        all. `sent`: the time at which it was sent. Returns True if the breaker opened, otherwise None.
        """
        return None if self.breaker is None else self.breaker.turned_ill(sent, now)

    def undecided(self, now: float) -> None:
        """Report to the breaker that the attempt was not sent, or was cancelled."""
        if self.breaker is not None and self.probe:
            self.breaker.undecided(self.probe, now)


class Endpoints:
    """The endpoints of one upstream, shared by all calls of a process. If the upstream lists none, this is the single
    endpoint that a request's authority stands for. `loads`: for each endpoint, the count of its attempts under way,
    None if nothing asks for it.
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
        """The seconds until a call may be sent to any of these endpoints; 0 if it may be sent now."""
        if None in self.breakers:
            return 0.0
        return min(breaker.seconds_left(now) for breaker in self.breakers if breaker is not None)

    def choose(
        self, avoid: Sequence[int], now: float, only: int | None = None, *, least: bool = False
    ) -> Choice | None:
        """Choose the endpoint of an attempt, and admit the attempt at its breaker, as a probe if one is due. None if
        every breaker is open. `avoid`: the endpoints at which the call has failed, or has an attempt in flight. `only`:
        the endpoint that was chosen already, because its gates hold the call for the shortest time. `least`: choose the
        endpoint with the fewest attempts under way.
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
        """The choice of the only endpoint, which is the same object for all calls. None if there are several endpoints,
        or if the circuit breaker is open.
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
        """The numbers of the endpoints whose circuit breakers let a call pass."""
        return [index for index, each in enumerate(self.breakers) if each is None or each.passes(now)]

    def choose_any(self, avoid: Sequence[int], now: float, *, least: bool) -> Choice:
        """Choose the endpoint of an attempt without asking the circuit breakers (`mode: observe` and `off`). `avoid`:
        the endpoints to use only if no other is left. `least`: choose the endpoint with the fewest attempts under way.
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
        """Note that no connection to the endpoint with the number `index` could be made, so that it is passed over for
        a while. Several attempts that fail at the same time count once.
        """
        penalty = self._penalties[index]
        if penalty.refused(now) and self.report is not None:
            self.report(self.shares[index].label, penalty.seconds)

    def reached(self, index: int) -> None:
        """Note that a connection to the endpoint with the number `index` could be made."""
        penalty = self._penalties[index]
        if penalty.until or self._elsewhere[index]:
            penalty.reached()
            self._elsewhere[index] = 0.0
            if self.report is not None:
                self.report(self.shares[index].label, 0.0)

    def refused_elsewhere(self, label: str, seconds: float, now: float) -> None:
        """Note that the endpoint with this label refuses the connections of another machine, which passes it over for
        `seconds` seconds; 0 if the endpoint does not refuse them any more.

        This machine passes the endpoint over for at most FIRST seconds. After that a call of this machine may try it: a
        machine that can't reach an endpoint must not keep the other machines from it.
        """
        for index, share in enumerate(self.shares):
            if share.label == label:
                self._elsewhere[index] = now + min(seconds, FIRST) if seconds > 0 else 0.0

    def best(self, able: Sequence[int], avoid: Sequence[int], now: float, least: bool) -> tuple[int, Sequence[int]]:
        """Return the number of the endpoint to use, and the numbers of the endpoints with which it takes turns (empty
        if it uses up no turn).

        `able`: the endpoints whose breakers let a call pass. `avoid`: the endpoints to use only if no other is left;
        then those come first that `avoid` lists least often, so that retries try all in turn. `least`: prefer the
        endpoints with the fewest attempts under way.
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
        """Return a sort key for the endpoint with the number `index`; the endpoint with the smallest key goes first.
        The key is: whether it is passed over because it refuses connections, its priority, and whether `avoid` lists
        it.

        Turns are left out, since they change while a call waits. It does not matter how often `avoid` lists an
        endpoint: otherwise calls that an outage of all endpoints holds would leave an endpoint that is back for one at
        which they have failed less often.
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
    """The endpoints of `able` that `avoid` lists least often (not at all, if there are such)."""
    times = [avoid.count(index) for index in able]
    fewest = min(times)
    return [index for index, count in zip(able, times, strict=True) if count == fewest]


class EndpointGroup:
    """The endpoints of one upstream, as its definition gives them: the `Endpoints` that it lists or, if it lists none,
    one `Endpoints` for each authority that requests name.
    """

    def __init__(self, shares: Sequence[EndpointShare]) -> None:
        self._named = Endpoints(shares) if shares else None
        self._asked: OrderedDict[str, Endpoints] = OrderedDict()
        self._breaker_of: BreakerOf = lambda label: None
        self._load_of: LoadOf = lambda label: None

    def renew(self, breaker_of: BreakerOf, load_of: LoadOf) -> None:
        """Replace the circuit breakers of all endpoints and the counts of their attempts under way, after a reload of
        the configuration. `breaker_of` and `load_of` return the new ones for an endpoint's label.
        """
        self._breaker_of, self._load_of = breaker_of, load_of
        for endpoints in (*self._asked.values(), *((self._named,) if self._named is not None else ())):
            self._fit(endpoints)

    def share(self, report: Callable[[str, float], None] | None) -> None:
        """Have `report` called when an endpoint begins or ends to refuse connections, so that other machines learn of
        it; None if there are none. Its arguments are the endpoint's label and the seconds for which it is passed over
        (0 at the end). Only the endpoints that the upstream lists are reported.
        """
        if self._named is not None:
            self._named.report = report

    def refused_elsewhere(self, label: str, seconds: float, now: float) -> None:
        """Note that the endpoint with this label refuses the connections of another machine, which passes it over for
        `seconds` seconds; 0 if the endpoint does not refuse them any more.
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
