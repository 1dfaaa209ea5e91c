"""How a call's parts are shown: one form for the log, /requests and /events.

Law: times are UTC, durations seconds, and what is absent is left out.
"""

from __future__ import annotations

import json
import time
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.facts import Class


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
    shown: dict[str, Any] = json.loads(attempt_json(record, started))
    return shown


def attempt_json(record: AttemptRecord, started: float) -> str:
    """The same as JSON, put together by hand: a call that was retried has its line written while others wait."""
    line = f'{{"attempt":{record.attempt},"start":{record.started - started:.6f}'
    if record.ended is not None:
        line += f',"duration":{record.ended - record.started:.6f}'
    said = record.detail or record.why or record.pushback or record.held_by
    if not (said or record.held or record.fault) and record.pushback_delay is None:
        line += _usual(
            *(record.endpoint, record.status, record.grpc_status, record.cls, record.because),
            *(record.price, record.decision),
        )
    else:
        line += _middle(record)
    if record.delay is not None:
        line += f',"delay":{record.delay:.6f}'
    return line + "}"


@lru_cache(maxsize=256, typed=True)  # a price of 5 is not written as the 5.0 that another bucket takes
def _usual(
    endpoint: str,
    status: int | None,
    grpc_status: int | None,
    cls: Class | None,
    because: str,
    price: float,
    decision: str,
) -> str:
    """The middle of most, which repeats."""
    record = AttemptRecord(0, 0.0, status=status, grpc_status=grpc_status, cls=cls, because=because, decision=decision)
    record.endpoint, record.price = endpoint, price
    return _middle(record)


def _middle(record: AttemptRecord) -> str:
    line = ""
    if record.endpoint:
        line += f',"endpoint":{quote(record.endpoint)}'
    if record.status is not None:
        line += f',"status":{record.status}'
    if record.grpc_status is not None:
        line += f',"grpc_status":{record.grpc_status}'
    if record.fault is not None:
        line += f',"fault":"{record.fault.value}"'
    if record.detail:
        line += f',"detail":{quote(record.detail)}'
    if record.cls is not None:
        line += f',"class":"{record.cls.value}"'
    if record.because:
        line += f',"because":{quote(record.because)}'
    if record.pushback:
        line += f',"pushback":{quote(record.pushback)}'
    if record.pushback_delay is not None:
        line += f',"pushback_delay":{record.pushback_delay:.3f}'
    if record.price:
        line += f',"price":{record.price!r}'
    if round(record.held, 6):
        line += f',"held":{record.held:.6f}'
    if record.held_by:
        line += f',"held_by":{quote(record.held_by)}'
    line += f',"decision":{quote(record.decision)}'
    if record.why:
        line += f',"why":{quote(record.why)}'
    return line
