"""Attempts as client spans of OpenTelemetry, sent over OTLP/HTTP (extra `otel`).

A call that is over becomes finished spans, all at once, from its record; while a call lasts, it runs no code of
OpenTelemetry. A collector that is slow or gone delays nothing: spans are queued up to a limit, and dropped beyond it.
Names are those of the semantic conventions for HTTP clients; query values and user info are masked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from proxy import __version__
from proxy.hidden_values import HiddenValues
from proxy.observe import masking
from proxy.observe.call_record import CallRecord
from proxy.observe.otel_export import CLOSING, connected, own_resource, report_to
from proxy.observe.trace_context import Bits, Trace, read
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.facts import Class

#: Methods that a span may be named after (semantic conventions for HTTP: others are named HTTP).
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})

Value = str | int | bool


class Spans:
    """The tracer (`proxy.observe.tracing.Tracer`) that uses OpenTelemetry's SDK, which reads the OTEL_ variables."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        report_to(notify)
        self.hidden: HiddenValues | None = None
        self._provider = TracerProvider(resource=own_resource(), shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(connected(OTLPSpanExporter))
        self._scope = InstrumentationScope("redrive", __version__)

    def begin(self, sent: Sequence[str], bits: Bits) -> Trace:
        """The trace that the app's traceparent fields (`sent`) name, or a new one with an id from `bits`;
        OTEL_TRACES_SAMPLER decides whether the trace is sampled.
        """
        known = read(sent)
        identity, parent, flags = known or (bits(128) or 1, None, 0)
        context = None
        if parent is not None:
            span = SpanContext(identity, parent, is_remote=True, trace_flags=TraceFlags(flags))
            context = set_span_in_context(NonRecordingSpan(span))
        decision = self._provider.sampler.should_sample(context, identity, "HTTP", SpanKind.CLIENT)
        return Trace(identity, parent, int(decision.decision is Decision.RECORD_AND_SAMPLE), bits)

    def traced(self, call: CallRecord, trace: Trace) -> None:
        """Make the finished spans of a call that is over."""
        if not trace.is_sampled:
            return
        for identity, record in _sendings(call, trace):
            self._processor.on_end(self._span(call, trace, identity, record))

    def close(self) -> None:
        """Send the spans that are still queued, within a bounded time."""
        last = threading.Thread(target=self._processor.shutdown, daemon=True)
        last.start()
        last.join(CLOSING)

    def _span(self, call: CallRecord, trace: Trace, identity: int, record: AttemptRecord) -> ReadableSpan:
        flags = TraceFlags(trace.flags)
        parent = None
        if trace.parent is not None:
            parent = SpanContext(trace.identity, trace.parent, is_remote=True, trace_flags=flags)
        ended = call.ended if record.ended is None else record.ended
        offset = call.wall_started - call.started
        attributes, hidden = _attributes(call, trace, record), self.hidden
        if hidden is not None:
            attributes = {key: hidden.text(it) if isinstance(it, str) else it for key, it in attributes.items()}
        return ReadableSpan(
            call.method if call.method in _METHODS else "HTTP",
            context=SpanContext(trace.identity, identity, is_remote=False, trace_flags=flags),
            parent=parent,
            resource=self._provider.resource,
            attributes=attributes,
            kind=SpanKind.CLIENT,
            status=Status(StatusCode.ERROR if "error.type" in attributes else StatusCode.UNSET),
            start_time=int((record.started + offset) * 1e9),
            end_time=int((ended + offset) * 1e9),
            instrumentation_scope=self._scope,
        )


def _sendings(call: CallRecord, trace: Trace) -> Iterator[tuple[int, AttemptRecord]]:
    """Iterate over the sendings of a call to upstreams: yield the id of the span and the record of each."""
    records: Sequence[AttemptRecord] = call.history
    if not records and call.attempts == 1:
        records = [
            AttemptRecord(1, call.started, call.ended, call.status, cls=Class.SUCCESS, decision="delivered",
                          endpoint=call.endpoint)
        ]  # fmt: skip
    left = {attempt: list(spans) for attempt, spans in trace.spans.items()}
    for record in records:
        spans = left.get(record.attempt)
        if spans:
            yield spans.pop(0), record


def _attributes(call: CallRecord, trace: Trace, record: AttemptRecord) -> dict[str, Value]:
    method, status = call.method, record.status
    endpoint = record.endpoint or call.endpoint
    host, _, port = endpoint.rpartition(":")
    if not port.isdigit():
        host, port = endpoint, ""
    ends = getattr(call.policy.target, "endpoints", ())
    scheme, path = trace.urls.get(record.attempt, (str(ends[0].scheme) if ends else "http", call.path))
    failed = str(status) if status is not None and status >= 400 else None
    found: dict[str, Value | None] = {
        "http.request.method": method if method in _METHODS else "_OTHER",
        "redrive.upstream": call.policy.upstream,
        "redrive.decision": record.decision,
        "http.request.method_original": None if method in _METHODS else method,
        "server.address": host.strip("[]") or None,
        "server.port": int(port or 0) or None,
        "url.full": f"{scheme}://{masking.authority(call.authority)}{masking.target(path)}",
        "redrive.route": call.policy.route or None,
        "http.request.resend_count": record.attempt - 1 if record.attempt > 1 else None,
        "http.response.status_code": status,
        "rpc.grpc.status_code": record.grpc_status,
        "redrive.because": record.because or None,
        "redrive.why": record.why or None,
        "error.type": failed if record.fault is None else record.fault.value,
    }
    return {name: value for name, value in found.items() if value is not None}
