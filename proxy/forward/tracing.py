"""Calls whose attempts are spans of a trace. If nothing is traced, no call runs this code.

Traced calls are decided, sent and answered like any other; the `traceparent` of an attempt names the attempt's span.
"""

from __future__ import annotations

import secrets
from typing import Any

from proxy.forward.attempt import Attempt, AttemptOwner
from proxy.forward.sending import Sender
from proxy.observe.call_record import CallRecord
from proxy.observe.trace_context import Trace, read
from proxy.observe.tracing import Tracer
from proxy.retry.call.actions import Launch

_PARENT = frozenset({b"traceparent"})
#: Dropped with an unreadable `traceparent`, without which the state means nothing (W3C Trace Context, section 3.3).
_BOTH = _PARENT | {b"tracestate"}


class TracedSender(Sender):
    """A sender whose attempts have spans, which `tracer` makes when the call is over."""

    __slots__ = ("_dropped", "_trace", "_tracer")

    _dropped: frozenset[bytes]
    _trace: Trace
    _tracer: Tracer

    def begin_trace(self, tracer: Tracer) -> None:
        """Begin the call's trace, or join the one that its request names."""
        parents = self.plan.request.fields.get_all("traceparent")
        self._tracer = tracer
        self._trace = tracer.begin(parents, secrets.randbits)
        self._dropped = _BOTH if read(parents) is None else _PARENT

    def launch(self, owner: AttemptOwner, action: Launch, now: float) -> Attempt:
        """Send an attempt, and begin its span."""
        self._trace.launch(action.attempt)
        attempt = super().launch(owner, action, now)
        place, rest = attempt.origin.endpoint, self.plan.rest
        path = self.plan.request.path if rest is None else place.shown_path + rest.decode("latin-1")
        self._trace.urls[action.attempt] = (place.scheme, path)
        return attempt

    def own_fields(self, attempt: Attempt) -> tuple[frozenset[bytes], bytes]:
        """Return the names of the fields to leave out of an attempt's head, and the lines to add: the attempt's
        `traceparent` replaces what the app sent.
        """
        return self._dropped, f"traceparent: {self._trace.field(attempt.number)}\r\n".encode("ascii")

    def call_ended(self, record: CallRecord) -> None:
        """Add the trace to the call's record, and make the spans of the call's attempts."""
        record.course.trace = self._trace.shown(record.history)
        self._tracer.traced(record, self._trace)


def traced_sender(tracer: Tracer, *parts: Any) -> TracedSender:
    """Return a sender of a traced call, made of the parts of a `Sender`."""
    sender = TracedSender(*parts)
    sender.begin_trace(tracer)
    return sender
