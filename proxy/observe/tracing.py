"""What makes spans of a call's attempts, if the environment names a collector.

Nothing here imports opentelemetry: that is `proxy.observe.otel`, which is loaded only if an endpoint is set.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from proxy.extras import remedy
from proxy.observe.call_record import CallRecord
from proxy.observe.trace_context import Bits, Trace


class Tracer(Protocol):
    """What makes spans. It is an observer too, of calls that carry a trace."""

    def begin(self, sent: Sequence[str], bits: Bits) -> Trace:
        """The trace of a call; `sent` are the app's traceparent fields, `bits` draws that many bits."""
        ...

    def traced(self, call: CallRecord, trace: Trace) -> None:
        """A call is over: make its spans."""
        ...

    def close(self) -> None:
        """Send what is left, within a moment."""
        ...


def tracer(environ: Mapping[str, str], tell: Callable[..., None]) -> Tracer | None:
    """What makes spans, where the environment names somebody to send them to; else None, and nothing is imported.

    `tell` takes what goes wrong with them, on this loop: an event, lines for people, facts for machines.
    """
    loop = asyncio.get_running_loop()

    def trouble(text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the process has ended meanwhile
            loop.call_soon_threadsafe(lambda: tell("tracing", [f"tracing: {text}"], detail=text))

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
