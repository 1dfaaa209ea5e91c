"""Calls whose attempts are spans of a trace; nothing of this is on the way of a call where nobody wants spans.

Law: traced calls are decided, sent and answered as any other; their attempts say in `traceparent` which span they are.
"""

from __future__ import annotations

import secrets
from typing import ClassVar

from proxy.forward.attempt import Attempt
from proxy.forward.exchange import Exchange
from proxy.forward.means import Means
from proxy.forward.plan import Plan
from proxy.forward.streams import AppStream
from proxy.observe.events import EndedCall, Observer, Plain, Refusal
from proxy.observe.tracing import Trace, Tracer, read
from proxy.retry.facts import Request
from proxy.retry.policy import Policy
from proxy.transport.origins import Destination
from proxy.wire.head import RequestHead

_PARENT = frozenset({b"traceparent"})
#: The state belongs to a parent: without one that can be read it means nothing (W3C Trace Context, section 3.3).
_BOTH = _PARENT | {b"tracestate"}


class TracedExchange(Exchange):
    """An exchange whose sendings have spans."""

    trace: Trace
    _dropped: frozenset[bytes] = _PARENT

    def _launch(self, number: int, fresh: bool, now: float) -> None:
        self.trace.launch(number)
        super()._launch(number, fresh, now)
        flight = self.flights.get(number)
        if flight is not None:
            endpoint = flight.origin.endpoint
            path = self.request.path if self.rest is None else endpoint.shown_path + self.rest.decode("latin-1")
            self.trace.urls[number] = (endpoint.scheme, path)

    def _fields_for(self, attempt: Attempt, now: float) -> tuple[frozenset[bytes], bytes]:
        drop, add = super()._fields_for(attempt, now)
        return drop | self._dropped, add + f"traceparent: {self.trace.field(attempt.number)}\r\n".encode("ascii")


class TracedPlan(Plan):
    """A plan of such calls. None goes without being decided on: each has a trace of its own."""

    __slots__ = ()
    tracer: ClassVar[Tracer]

    def __init__(
        self, head: RequestHead, request: Request, policy: Policy, destination: Destination, rest: bytes | None
    ) -> None:
        super().__init__(head, request, policy, destination, rest)
        self.swift = False

    def exchange(self, means: Means, app: AppStream) -> Exchange:
        """The exchange of this call, in its trace."""
        made = TracedExchange(means, app, self.head, self.request, self.policy, self.destination, self.rest)
        sent = self.request.fields.get_all("traceparent")
        made.trace = self.tracer.begin(sent, secrets.randbits)
        if read(sent) is None:
            made._dropped = _BOTH
        return made


def plan_type(tracer: Tracer | None) -> type[Plan]:
    """What calls are planned with."""
    if tracer is None:
        return Plan

    class Planned(TracedPlan):
        __slots__ = ()

    Planned.tracer = tracer
    return Planned


class TracingObserver:
    """Tells the tracer of calls that have a trace, and somebody else of all."""

    def __init__(self, tracer: Tracer, others: Observer) -> None:
        self._tracer = tracer
        self._others = others

    def succeeded(self, call: Plain) -> None:
        """A call that has no trace succeeded at once."""
        self._others.succeeded(call)

    def call_ended(self, call: EndedCall) -> None:
        """A call that a policy applied to is over."""
        self._others.call_ended(call)
        if isinstance(call, TracedExchange):
            self._tracer.traced(call, call.trace)

    def app_repeated(self, policy: Policy) -> None:
        """A guess, of which spans say nothing."""
        self._others.app_repeated(policy)

    def refused(self, refusal: Refusal) -> None:
        """A request was turned away: it has no attempts, and so no spans."""
        self._others.refused(refusal)
