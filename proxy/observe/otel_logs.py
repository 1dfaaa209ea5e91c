"""The log's lines as OTLP log records, sent by OpenTelemetry's exporter (extra `otel`).

A record's body is the JSON object of the log's line, of a call or of a notice, masked in the same way. A thread of its
own reads the lines and sends them. If a collector is slow or gone, lines are lost, but no call waits.
"""

from __future__ import annotations

import json
import queue
import threading
from datetime import datetime
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from proxy import __version__
from proxy.observe.otel_export import CLOSING, Trouble, connected, own_resource, report_to

#: The most batches of lines that wait for the thread; later ones are dropped.
_MOST = 4096
#: Attributes by the member of a line that they are made of (semantic conventions, and redrive's own as in spans).
_ATTRIBUTES = {
    "upstream": "redrive.upstream",
    "route": "redrive.route",
    "outcome": "redrive.outcome",
    "method": "http.request.method",
    "status": "http.response.status_code",
}
_NO_CONTEXT = Context()


class LogSender:
    """A sink (`proxy.observe.sink.Sink`) of JSON lines that sends each as a log record."""

    def __init__(self, trouble: Trouble) -> None:
        report_to(trouble)
        self._provider = LoggerProvider(resource=own_resource(), shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(connected(OTLPLogExporter)))
        self._logger = self._provider.get_logger("redrive", __version__)
        self._lines: queue.Queue[str | None] = queue.Queue(_MOST)
        self._reader = threading.Thread(target=self._read, name="otel-logs", daemon=True)
        self._reader.start()

    def add(self, lines: str) -> None:
        """Take one line, or several at once."""
        try:
            self._lines.put_nowait(lines)
        except queue.Full:
            return  # the log itself has them

    def close(self) -> None:
        """Send the lines that are left, within a bounded time."""
        last = threading.Thread(target=self._end, daemon=True)
        last.start()
        last.join(CLOSING)

    def _end(self) -> None:
        self._lines.put(None)
        self._reader.join()
        self._provider.shutdown()

    def _read(self) -> None:
        while (lines := self._lines.get()) is not None:
            for line in lines.splitlines():
                self._logger.emit(record_of(json.loads(line)))


def record_of(entry: dict[str, Any]) -> LogRecord:
    """The log record of a line's JSON object."""
    severity = _severity(entry)
    return LogRecord(
        timestamp=int(datetime.fromisoformat(entry["time"]).timestamp() * 1e9),
        severity_number=severity,
        severity_text=severity.name,
        body=entry,
        attributes={name: entry[key] for key, name in _ATTRIBUTES.items() if key in entry},
        event_name=f"redrive.{entry['event']}",
        context=_context(entry),
    )


def _context(entry: dict[str, Any]) -> Context:
    """The context that names the trace and the span of a line, an empty one if it names none."""
    if "trace_id" not in entry:
        return _NO_CONTEXT
    identity, span, flags = (int(entry[name], 16) for name in ("trace_id", "span_id", "trace_flags"))
    return set_span_in_context(
        NonRecordingSpan(SpanContext(identity, span, is_remote=True, trace_flags=TraceFlags(flags))), _NO_CONTEXT
    )


def _severity(entry: dict[str, Any]) -> SeverityNumber:
    """The severity of a line, as `log.level` divides them: a call that ended with a 5xx or without an answer is an
    error, and one that did not succeed for another reason a warning.
    """
    outcome = entry.get("outcome", "success")
    if outcome == "success":
        return SeverityNumber.INFO
    return SeverityNumber.WARN if 0 < entry.get("status", 0) < 500 else SeverityNumber.ERROR
