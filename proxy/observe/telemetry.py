"""The factories of the senders of metrics and log lines over OTLP, which are made if the environment asks for them.

This module imports nothing of opentelemetry: `proxy.observe.otel_metrics` and `proxy.observe.otel_logs` do, and are
loaded only then. Spans have a factory of their own (`proxy.observe.tracing`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from proxy.extras import remedy
from proxy.observe.sink import ClosingSink

if TYPE_CHECKING:  # loaded only where it is asked for
    from proxy.observe.otel_metrics import MetricSender

#: Seconds between two exports of the metrics (OTEL_METRIC_EXPORT_INTERVAL of the specification).
_INTERVAL = 60.0


def metric_sender(environ: Mapping[str, str], began: float, notify: Callable[..., None]) -> MetricSender | None:
    """The sender of the metrics of a process that `began` at this time (seconds since 1970); None if the environment
    variables `environ` ask for none. `notify`: called if something goes wrong, with an event, lines for people, and
    facts for machines, all for the log.
    """
    if not _is_wanted(environ, "METRICS", otherwise="otlp"):
        return None
    trouble = _reporter(notify)
    try:
        from proxy.observe.otel_metrics import MetricSender
    except ImportError as error:
        trouble(f"metrics are not sent: {error} ({remedy('otel')})")
        return None
    return MetricSender(began, trouble)


def log_sender(environ: Mapping[str, str], notify: Callable[..., None]) -> ClosingSink | None:
    """The sender of log lines over OTLP; None if the environment variables `environ` ask for none. `notify`: called if
    something goes wrong, with an event, lines for people, and facts for machines.
    """
    if not _is_wanted(environ, "LOGS", otherwise="none"):
        return None
    trouble = _reporter(notify)
    try:
        from proxy.observe.otel_logs import LogSender
    except ImportError as error:
        trouble(f"log lines are not sent: {error} ({remedy('otel')})")
        return None
    return LogSender(trouble)


def interval(environ: Mapping[str, str]) -> float:
    """The seconds between two exports of the metrics, by the environment variables `environ`."""
    try:
        return max(0.01, float(environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")) / 1000)
    except ValueError:
        return _INTERVAL


def _is_wanted(environ: Mapping[str, str], signal: str, *, otherwise: str) -> bool:
    """Whether the environment variables `environ` ask for one of OpenTelemetry's signals (`signal`: METRICS or LOGS, as
    in the variables' names). The signal is wanted if OTEL_…_EXPORTER is otlp and there is an endpoint. If that variable
    is not set, it is wanted if the signal has an endpoint of its own, or if `otherwise` is "otlp" and there is an
    endpoint for all signals.
    """
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter, own = environ.get(f"OTEL_{signal}_EXPORTER", ""), environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    if exporter:
        return exporter == "otlp" and bool(own or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"))
    return bool(own) or (otherwise == "otlp" and bool(environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")))


def _reporter(notify: Callable[..., None]) -> Callable[[str], None]:
    """Return a function that takes a fault as text, and may be called from any thread. Each text is passed to `notify`,
    on the event loop that runs now.
    """
    loop = asyncio.get_running_loop()

    def trouble(text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the process has ended meanwhile
            loop.call_soon_threadsafe(lambda: notify("telemetry", [f"telemetry: {text}"], detail=text))

    return trouble
