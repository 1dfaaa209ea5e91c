"""Calls whose attempts are spans of a trace; without tracing, none of this is on the path of a call.

Traced calls are decided, sent and answered like any other; the `traceparent` of their attempts names the attempt's
span.
"""

from __future__ import annotations

import secrets
from typing import Any

from proxy.forward.attempt import Attempt
from proxy.forward.context import Context
from proxy.forward.exchange import Exchange
from proxy.forward.request_plan import Plan
from proxy.forward.streams import AppStream
from proxy.observe.call_record import CallRecord
from proxy.observe.trace_context import Trace, read
from proxy.observe.tracing import Tracer
from proxy.retry.actions import Launch
from proxy.wire.head import Trailers

_PARENT = frozenset({b"traceparent"})
#: The state belongs to a parent: without one that can be read it means nothing (W3C Trace Context, section 3.3).
_BOTH = _PARENT | {b"tracestate"}


class TracedExchange(Exchange):
    """An exchange whose sendings have spans, which `tracer` makes when it is over."""

    __slots__ = ("_dropped", "_tracer", "trace")

    trace: Trace

    def __init__(self, means: Context, app: AppStream, tracer: Tracer) -> None:
        super().__init__(means, app)
        self._tracer = tracer
        self._dropped = _PARENT

    def start(
        self, plan: Plan, now: float, body: bytes = b"", done: bool = True, trailers: Trailers | None = None
    ) -> None:
        """The request's head is whole: its trace is known."""
        sent = plan.request.fields.get_all("traceparent")
        self.trace = self._tracer.begin(sent, secrets.randbits)
        if read(sent) is None:
            self._dropped = _BOTH
        super().start(plan, now, body, done, trailers)

    def _launch(self, action: Launch, now: float) -> None:
        number = action.attempt
        self.trace.launch(number)
        super()._launch(action, now)
        flight = self.flights.get(number)
        if flight is not None:
            place, rest = flight.origin.endpoint, self.plan.rest
            path = self.request.path if rest is None else place.shown_path + rest.decode("latin-1")
            self.trace.urls[number] = (place.scheme, path)

    def _own_fields(self, attempt: Attempt) -> tuple[frozenset[bytes], bytes]:
        return self._dropped, f"traceparent: {self.trace.field(attempt.number)}\r\n".encode("ascii")

    def _tell_of(self, *facts: Any) -> CallRecord:
        record = super()._tell_of(*facts)
        self._tracer.traced(record, self.trace)
        return record
