"""Where the attempts of one call go, where the core chooses that: its picker, in gRPC's word for it.

The upstream's endpoints are shared by all calls (`proxy.retry.endpoints`), and so are their circuit breakers; what one
call adds to that is where it has failed, and where it flies. An attempt's choice is made with its payment, since a
breaker's probe is taken with it, and given back like the rest where the attempt is not sent.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.retry.admission import Payment
from proxy.retry.endpoints import Endpoints
from proxy.retry.facts import Fault, FaultKind
from proxy.retry.states import Flight, Flying, State

#: Is told where a breaker opens, or closes: upstream, endpoint, whether it is open, seconds until a probe may go.
CircuitChanged = Callable[[str, str, bool, float], None]


class EndpointPicker:
    """Picks the endpoints of one call's attempts among `endpoints`, and tells those what became of them."""

    __slots__ = ("_circuit_changed", "_failed_at", "_upstream", "endpoints")

    def __init__(self, endpoints: Endpoints, upstream: str, circuit_changed: CircuitChanged) -> None:
        self.endpoints = endpoints
        self._upstream = upstream
        self._circuit_changed = circuit_changed
        self._failed_at: tuple[int, ...] = ()  # endpoints that it is not sent to again while another is left

    def choose(self, payment: Payment, state: State, now: float) -> bool:
        """Choose where the next attempt goes; False: every breaker is open. `state` is the call's."""
        return payment.choose(self.endpoints, self._avoided(state), now)

    def take(self, payment: Payment | None, state: State, now: float) -> int:
        """The endpoint of an attempt that is being sent. Without a choice no breaker was asked: none holds the call."""
        choice = payment.choice if payment is not None else None
        if choice is None:
            choice = self.endpoints.choose_any(self._avoided(state), now)
        self.endpoints.took(choice)
        return choice.index

    def take_again(self, flight: Flight, state: State, fault: Fault, now: float) -> int | None:
        """Where an attempt is sent again whose first sending was not processed: elsewhere, or where there is nowhere
        else to where it was, as what it was.
        """
        if flight.endpoint is None:
            return None
        endpoints = self.endpoints
        refused = self.failed(flight, fault, now)
        avoid = self._avoided(state)
        before = None if flight.payment is None else flight.payment.choice
        choice = endpoints.choose_any(avoid, now) if before is None else endpoints.choose(avoid, now)
        if choice is None or (choice.index == flight.endpoint and not choice.probe):
            return flight.endpoint
        if before is not None and flight.payment is not None:
            if refused and before.probe:
                self.tell_breaker(flight, ill=True, now=now)
            before.undecided(now)
            flight.payment.choice = choice
        flight.endpoint = choice.index
        return choice.index

    def failed(self, flight: Flight, fault: Fault | None, now: float) -> bool:
        """An attempt failed: note its endpoint. Whether that could not be connected to."""
        endpoint = flight.endpoint
        assert endpoint is not None  # it was chosen
        refused = fault is not None and fault.kind is FaultKind.CONNECT_FAILURE
        if refused:
            self.endpoints.refused(endpoint, now)
        else:
            self.endpoints.reached(endpoint)
        if fault is None or not fault.reused:  # a pooled connection that was dead says nothing of the endpoint
            self._failed_at = (*self._failed_at, endpoint)
        return refused

    def tell_breaker(self, flight: Flight, *, ill: bool, now: float, after_all: bool = False) -> None:
        """The class of an attempt is known: tell its endpoint's circuit breaker. `after_all`: it had ended well."""
        choice = None if flight.payment is None else flight.payment.choice
        if choice is None or choice.breaker is None:
            return
        changed = choice.turned_ill(flight.since, now) if after_all else choice.ended(ill, flight.since, now)
        if changed is not None:
            self._circuit_changed(self._upstream, choice.label, changed, choice.breaker.seconds_left(now))

    def _avoided(self, state: State) -> tuple[int, ...]:
        """Endpoints that the next attempt is not sent to while another is left: it failed there, or flies there."""
        flying = state.flights.values() if type(state) is Flying else ()
        return (*self._failed_at, *(each.endpoint for each in flying if each.endpoint is not None))
