"""Which endpoint an attempt is sent to, where that is the core's to say: by priority, weight and circuit breakers.

Contract, section 13. An endpoint is passed over while its breaker is open, and while it refuses connections and another
is left (section 6). The lowest priority counts of which one endpoint is not passed over; among those the call's own
failures are avoided while another is left, so that a retry goes elsewhere within its priority, and no further: that a
call failed at an endpoint does not make it one that is passed over. An endpoint whose breaker asks for a probe comes
first; else they take turns by weight.

Turns are smooth weighted round-robin (nginx): each endpoint in play gains its weight, the one with most is taken and
pays the sum, so that 3 to 1 goes a a b a. A retry takes no turn: else, of two endpoints, every call would begin with
the one that fails.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from proxy.retry.circuit_breaker import CircuitBreaker
from proxy.retry.penalty import Penalty
from proxy.retry.policy import EndpointShare

#: Places that requests named, whose health is kept (contract, section 3: unmatched places that are kept).
MOST_PLACES = 1000

#: Has the breaker of the endpoint with this label.
BreakerOf = Callable[[str], CircuitBreaker | None]


@dataclass(slots=True, eq=False)
class Choice:
    """Where one attempt is sent. `label` is its endpoint's; `probe`: its number, where it is one; `turn`: the endpoints
    whose turns it counts in, empty where it takes none.
    """

    index: int
    label: str
    breaker: CircuitBreaker | None = None
    probe: int = 0
    turn: Sequence[int] = ()

    def ended(self, ill: bool, sent: float, now: float) -> bool | None:
        """The class of the attempt is known, which was sent at `sent`. Whether it opened or closed the breaker."""
        return None if self.breaker is None else self.breaker.ended(ill, sent, self.probe, now)

    def turned_ill(self, sent: float, now: float) -> bool | None:
        """The attempt had ended well by its head, and was ill after all. As above."""
        return None if self.breaker is None else self.breaker.turned_ill(sent, now)

    def undecided(self, now: float) -> None:
        """The attempt is not sent, or was cancelled."""
        if self.breaker is not None and self.probe:
            self.breaker.undecided(self.probe, now)


class Endpoints:
    """The endpoints of one upstream, or the one place that a request named, as the calls of a process share them."""

    def __init__(self, shares: Sequence[EndpointShare]) -> None:
        self.shares = shares
        self.breakers: list[CircuitBreaker | None] = [None] * len(shares)
        self._standing = [0] * len(shares)  # what each has gained by its weight, and not paid yet
        self._penalties = [Penalty() for _ in shares]

    def seconds_left(self, now: float) -> float:
        """Seconds until a call may be sent to any of them; 0 where one may be now."""
        if None in self.breakers:
            return 0.0
        return min(breaker.seconds_left(now) for breaker in self.breakers if breaker is not None)

    def choose(self, avoid: Collection[int], now: float) -> Choice | None:
        """Where an attempt goes, and its place as a probe is taken; None where every breaker is open. `avoid`: where
        the call has failed, or flies.
        """
        if len(self.breakers) == 1:  # there is nothing to choose
            (breaker,) = self.breakers
            probe = 0 if breaker is None else breaker.enter(now)
            return None if probe is None else Choice(0, self.shares[0].label, breaker, probe)
        able = [index for index, each in enumerate(self.breakers) if each is None or each.passes(now)]
        while able:
            index, here = self._best(able, avoid, now)
            breaker = self.breakers[index]
            probe = 0 if breaker is None else breaker.enter(now)
            if probe is not None:
                return Choice(index, self.shares[index].label, breaker, probe, () if avoid else here)
            able.remove(index)  # another worker was quicker
        return None

    def choose_any(self, avoid: Collection[int], now: float) -> Choice:
        """The same where no breaker holds anybody (`mode: observe` and `off`)."""
        index, here = self._best(range(len(self.shares)), avoid, now)
        return Choice(index, self.shares[index].label, turn=() if avoid else here)

    def took(self, choice: Choice) -> None:
        """The attempt is sent: its turn is over."""
        if choice.turn:
            for index in choice.turn:
                self._standing[index] += self.shares[index].weight
            self._standing[choice.index] -= sum(self.shares[index].weight for index in choice.turn)

    def refused(self, index: int, now: float) -> None:
        """Note that the endpoint could not be connected to. Attempts that fail together count once."""
        self._penalties[index].refused(now)

    def reached(self, index: int) -> None:
        """Note that the endpoint could be connected to."""
        self._penalties[index].reached()

    def _best(self, able: Sequence[int], avoid: Collection[int], now: float) -> tuple[int, Sequence[int]]:
        """The endpoint to use, of those whose breakers let a call pass, and those whose turns go with it."""
        shares = self.shares
        well = [index for index in able if self._penalties[index].until <= now] or able
        first = min(shares[index].priority for index in well)
        here = [index for index in well if shares[index].priority == first]
        others = [index for index in here if index not in avoid] or here
        for index in others:
            breaker = self.breakers[index]
            if breaker is not None and breaker.is_open:
                return index, ()  # a probe is due: it takes nobody's turn
        return max(others, key=lambda index: self._standing[index] + shares[index].weight), here


class EndpointGroup:
    """The endpoints that one definition stands for: those of the upstream, or each place that a request names."""

    def __init__(self, shares: Sequence[EndpointShare]) -> None:
        self._named = Endpoints(shares) if shares else None
        self._asked: OrderedDict[str, Endpoints] = OrderedDict()
        self._breaker_of: BreakerOf = lambda label: None

    def renew(self, breaker_of: BreakerOf) -> None:
        """Look the breakers up again: another generation of the configuration has begun."""
        self._breaker_of = breaker_of
        for endpoints in (*self._asked.values(), *((self._named,) if self._named is not None else ())):
            self._fit(endpoints)

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
