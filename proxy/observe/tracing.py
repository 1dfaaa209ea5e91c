"""The factory of the tracer that makes spans of a call's attempts, if the environment names a collector.

This module imports nothing of opentelemetry: `proxy.observe.otel` does, and is loaded only if an endpoint is set.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from proxy.extras import remedy
from proxy.hidden_values import HiddenValues
from proxy.observe.call_record import CallRecord
from proxy.observe.trace_context import Bits, Trace


class Tracer(Protocol):
    """A maker of spans for the attempts of calls: `begin` makes the trace of a call, and `traced` gets the call when it
    is over. `hidden`: what no span shows, None for nothing.
    """

    hidden: HiddenValues | None

    def begin(self, sent: Sequence[str], bits: Bits) -> Trace:
        """The trace of a call. `sent` are the app's traceparent fields; `bits` draws that many random bits."""
        ...

    def traced(self, call: CallRecord, trace: Trace) -> None:
        """Make the spans of a call that is over."""
        ...

    def close(self) -> None:
        """Send the spans that are left, within a moment."""
        ...


def tracer(environ: Mapping[str, str], notify: Callable[..., None]) -> Tracer | None:
    """The tracer, if the environment names a collector; else None, and nothing is imported.

    `notify` takes notices of faults of the tracer, on this loop: an event, lines for people, facts for machines.
    """
    loop = asyncio.get_running_loop()

    def trouble(text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the process has ended meanwhile
            loop.call_soon_threadsafe(lambda: notify("tracing", [f"tracing: {text}"], detail=text))

    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if not any(environ.get(name) for name in names) or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return None
    try:
        from proxy.observe.otel import Spans
    except ImportError as error:
        trouble(f"an OpenTelemetry endpoint is set, but there are no spans: {error} ({remedy('otel')})")
        return None
    return Spans(trouble)
