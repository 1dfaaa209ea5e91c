"""The choice of the endpoints of one call's attempts, if the core and not the driver makes it. gRPC too calls such an
object a picker.

The upstream's endpoints (`proxy.retry.upstreams.endpoints`) and their circuit breakers are shared by all calls. The
picker knows at which endpoints its own call has failed, or has an attempt in flight. The choice for an attempt is made
with the attempt's payment, since it may become a breaker's probe, and is given back with the payment if the attempt is
not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.retry.budgets.concurrency import Places
from proxy.retry.call.payment import Payment
from proxy.retry.call.states import Flight, Flying, State
from proxy.retry.facts import Fault, FaultKind
from proxy.retry.instants import EPSILON, NEVER
from proxy.retry.policies.policy import Policy
from proxy.retry.upstreams.endpoints import Choice, Endpoints

#: Called when a breaker opens or closes: upstream, endpoint, whether it is open, seconds until a probe may be sent.
CircuitChanged = Callable[[str, str, bool, float], None]


class EndpointPicker:
    """The picker of the endpoints of one call's attempts, among `endpoints`; it also reports to these how the attempts
    ended. `policy`: the call's policy. `only`: the number of the endpoint that all further attempts must go to, because
    they ask for the rest of an answer that this endpoint began; None for any.
    """

    __slots__ = ("_circuit_changed", "_failed_at", "_least", "_pushed", "_turn", "_upstream", "endpoints", "only")

    def __init__(self, endpoints: Endpoints, policy: Policy, circuit_changed: CircuitChanged) -> None:
        self.endpoints = endpoints
        self._least = policy.balance == "least"
        self._upstream = policy.upstream
        self._circuit_changed = circuit_changed
        self.only: int | None = None
        self._failed_at: tuple[int, ...] = ()  # endpoints that are avoided while another is left
        self._pushed: dict[int, float] | None = None  # until when endpoints don't want this call, None if none said so
        self._turn: Sequence[int] = ()  # the endpoints among which the one that was preferred last takes its turn

    def choose(self, payment: Payment, state: State, now: float, only: int | None = None) -> bool:
        """Choose the endpoint of the next attempt. Returns False if every circuit breaker is open. `state`: the call's
        state, which shows the endpoints in use. `only`: the number of the endpoint to use, None to choose among all.
        """
        only = only if self.only is None else self.only
        if only is None and self._pushed is not None:
            only = self.prefer(state, now, _waits_nowhere)
            if only is None or self.left(only, now) > 0:
                return False
        avoid = self._avoided(state)
        chosen = payment.choose(self.endpoints, avoid, now, only, least=self._least)
        if only in self._turn and not avoid and payment.choice is not None:
            payment.choice.turn = self._turn
        return chosen

    def push_back(self, until: float) -> None:
        """Note that the endpoint at which the call failed last does not want this call before the time `until`, while
        the call goes on elsewhere at once.
        """
        self._pushed = {**(self._pushed or {}), self._failed_at[-1]: until}

    @property
    def is_pushed(self) -> bool:
        """Whether an endpoint has asked this call to wait, while the call went on elsewhere at once."""
        return self._pushed is not None

    def was_pushed_last(self, now: float) -> bool:
        """Whether the endpoint at which the call failed last will not want the call yet at the time `now`."""
        return self._pushed is not None and bool(self._failed_at) and self.left(self._failed_at[-1], now) > 0

    def left(self, index: int, now: float) -> float:
        """The seconds for which the endpoint with the number `index` does not want this call, by its own answer to it;
        0 if it said nothing of the kind.
        """
        left = 0.0 if self._pushed is None else self._pushed.get(index, now) - now
        return left if left > EPSILON else 0.0

    def soonest(self, now: float) -> float:
        """The seconds until the first endpoint wants this call again; 0 if one does now."""
        if self._pushed is None:
            return 0.0
        return min((self.left(index, now) for index in self.endpoints.able(now)), default=0.0)

    def sooner(self, now: float, waits: Callable[[str], float]) -> float:
        """The seconds until one of the endpoints but that at which the call failed last is free for it; infinity if
        there is none. `waits`: returns the seconds for which the endpoint with a given label would hold the call.
        """
        others = (index for index in self.endpoints.able(now) if index != self._failed_at[-1])
        return min((max(waits(self.label(index)), self.left(index, now)) for index in others), default=NEVER)

    def load(self, index: int) -> Places | None:
        """The count of the attempts under way to the endpoint with the number `index`; None if they are not counted."""
        return self.endpoints.loads[index]

    @property
    def several(self) -> bool:
        """Whether there is more than one endpoint."""
        return len(self.endpoints.shares) > 1

    def label(self, index: int) -> str:
        """The label of the endpoint with the number `index`."""
        return self.endpoints.shares[index].label

    def prefer(self, state: State, now: float, waits: Callable[[str], float]) -> int | None:
        """The number of the endpoint to use. If some endpoints would not hold the call, it is the best of these by
        `Endpoints.best`. If all would, it is the one that is free first and, of several, the first by `Endpoints.rank`.
        None if every breaker is open. `state`: the call's state, which shows the endpoints in use. `waits`: returns the
        seconds for which the endpoint with a given label would hold the call.
        """
        self._turn = ()
        if self.only is not None:
            return self.only
        able = self.endpoints.able(now)
        if not able:
            return None
        held = {index: max(waits(self.label(index)), self.left(index, now)) for index in able}
        free = [index for index in able if held[index] <= 0]
        if free:
            best, self._turn = self.endpoints.best(free, self._avoided(state), now, least=self._least)
            return best
        avoid = self._avoided(state)  # one delay may hold all endpoints, and the retry goes elsewhere even so
        return min(able, key=lambda index: (held[index], *self.endpoints.rank(index, avoid, now)))

    def is_left(self, now: float, waits: Callable[[str], float]) -> bool:
        """Whether there is an endpoint at which the call has not failed, and which would not hold it. `waits`: returns
        the seconds for which the endpoint with a given label would hold the call.
        """
        able = (index for index in self.endpoints.able(now) if index not in self._failed_at)
        return any(waits(self.label(index)) <= 0 for index in able)

    def take(self, payment: Payment | None, state: State, now: float) -> int:
        """Return the number of the endpoint to which an attempt is being sent, and count that endpoint's turn.
        `payment`: what the attempt has paid, None if it has paid nothing.

        The endpoint that was chosen with the payment is used. If none was chosen, one is chosen now, without asking the
        circuit breakers: if possible one at which the call has neither failed nor has an attempt in flight. `state`:
        the call's state, which shows the attempts in flight.
        """
        choice = payment.choice if payment is not None else None
        if choice is None:
            choice = self.endpoints.choose_any(self._avoided(state), now, least=self._least)
        self.endpoints.took(choice)
        return choice.index

    def take_again(
        self, flight: Flight, state: State, fault: Fault, now: float, waits: Callable[[str], float]
    ) -> int | None:
        """The number of the endpoint for an attempt that is sent again because its first sending was not processed. It
        is another endpoint, or the same if no other is left; None if the driver chooses. `fault`: how the first sending
        ended. `waits`: returns the seconds for which the endpoint with a given label would hold the call.
        """
        if flight.endpoint is None:
            return None
        endpoints = self.endpoints
        refused = self.failed(flight, fault, now)
        avoid = self._avoided(state)
        before = None if flight.payment is None else flight.payment.choice
        if before is None:
            choice: Choice | None = endpoints.choose_any(avoid, now, least=self._least)
        else:
            only = self._again_at(flight.endpoint, avoid, waits, now) if self.several else None
            choice = endpoints.choose(avoid, now, only, least=self._least)
        if choice is None or (choice.index == flight.endpoint and not choice.probe):
            return flight.endpoint
        if before is not None and flight.payment is not None:
            if refused and before.probe:
                self.report_to_breaker(flight, ill=True, now=now)
            before.undecided(now)
            flight.payment.choice = choice
        flight.endpoint = choice.index
        return choice.index

    def _again_at(self, before: int, avoid: tuple[int, ...], waits: Callable[[str], float], now: float) -> int | None:
        """The number of the endpoint for an attempt that is sent again at once, after the endpoint `before` did not
        take it; None if every breaker is open. Endpoints that asked this call to wait are passed over, and so are those
        that would hold it for longer than `before`, which has let it go. `avoid` and `waits` are as for `take_again`.
        """
        able = self.endpoints.able(now)
        wanted = [index for index in able if self.left(index, now) <= 0]
        if not wanted:
            return before if able else None
        held = waits(self.label(before))
        free = [index for index in wanted if waits(self.label(index)) <= held]
        return self.endpoints.best(free or wanted, avoid, now, least=self._least)[0]

    def failed(self, flight: Flight, fault: Fault | None, now: float) -> bool:
        """Note that an attempt failed at its endpoint. `fault`: the fault that ended it, None if it was answered.
        Returns whether no connection to the endpoint could be made.
        """
        endpoint = flight.endpoint
        assert endpoint is not None  # chosen before the attempt was sent
        refused = fault is not None and fault.kind is FaultKind.CONNECT_FAILURE
        if refused:
            self.endpoints.refused(endpoint, now)
        else:
            self.endpoints.reached(endpoint)
        if fault is None or not fault.reused:  # a dead pooled connection says nothing about the endpoint
            self._failed_at = (*self._failed_at, endpoint)
        return refused

    def report_to_breaker(self, flight: Flight, *, ill: bool, now: float, after_all: bool = False) -> None:
        """Report the class of an attempt to its endpoint's circuit breaker. `ill`: the class is a sign that the
        endpoint is ill. `after_all`: the attempt was reported as healthy when its head came, and has failed since.
        """
        choice = None if flight.payment is None else flight.payment.choice
        if choice is None or choice.breaker is None:
            return
        changed = choice.turned_ill(flight.since, now) if after_all else choice.ended(ill, flight.since, now)
        if changed is not None:
            self._circuit_changed(self._upstream, choice.label, changed, choice.breaker.seconds_left(now))

    def _avoided(self, state: State) -> tuple[int, ...]:
        """The numbers of the endpoints that the next attempt avoids while another is left: those at which the call has
        failed, or has an attempt in flight. `state`: the call's state, which shows the attempts in flight.
        """
        flying = state.flights.values() if type(state) is Flying else ()
        return (*self._failed_at, *(each.endpoint for each in flying if each.endpoint is not None))


def _waits_nowhere(label: str) -> float:
    """The seconds for which an endpoint would hold the call while nothing holds calls."""
    return 0.0
