"""How a call's parts are shown: one form for the log, /requests and /events.

Law: times are UTC, durations seconds, and what is absent is left out.
"""

from __future__ import annotations

import time
from typing import Any

from proxy.retry.records import AttemptRecord


class Stamps:
    """Seconds since the epoch as RFC 3339 in UTC with milliseconds; the part before them is made once a second."""

    __slots__ = ("_prefix", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""

    def at(self, wall: float) -> str:
        """`2026-01-01T00:00:00.000Z`."""
        second = int(wall)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{int((wall - second) * 1000):03d}Z"


def attempt(record: AttemptRecord, started: float) -> dict[str, Any]:
    """One sending: when (seconds into the call), how long, what came back, why it was or was not retried."""
    shown: dict[str, Any] = {
        "attempt": record.attempt,
        "start": round(record.started - started, 6),
        "duration": None if record.ended is None else round(record.ended - record.started, 6),
        "endpoint": record.endpoint or None,
        "status": record.status,
        "grpc_status": record.grpc_status,
        "fault": record.fault and record.fault.value,
        "detail": record.detail or None,
        "class": record.cls and record.cls.value,
        "because": record.because or None,
        "pushback": record.pushback or None,
        "pushback_delay": None if record.pushback_delay is None else round(record.pushback_delay, 3),
        "price": record.price or None,
        "held": round(record.held, 6) or None,
        "held_by": record.held_by or None,
        "decision": record.decision,
        "why": record.why or None,
        "delay": None if record.delay is None else round(record.delay, 6),
    }
    return {key: value for key, value in shown.items() if value is not None}
