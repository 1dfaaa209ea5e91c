"""A call that is over, as a plain value, for the tests of observers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from proxy.observe.call_record import CallRecord
from proxy.observe.recent_calls import NumberedCall
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.facts import Class, FaultKind, Outcome, Request
from proxy.retry.policies.policy import Backoff, Policy, Strategy

STANDARD = Strategy(kind="standard", name="standard", max_attempts=3, backoff=Backoff(base=0.1, max=20))
POLICY = Policy(upstream="payments", route="", strategy=STANDARD, bucket=None)
REQUEST = Request("GET", "api.payments.example", "/v1/x?key=s3cret")
WALL = 1767225600.25  # 2026-01-01T00:00:00.250Z


def ended(request: Request = REQUEST, history: Sequence[AttemptRecord] = (), **more: Any) -> CallRecord:
    """A GET that succeeded at once, but for what is named."""
    known = {
        "wall_started": WALL,
        "started": 10.0,
        "ended": 10.004,
        "policy": POLICY,
        "client": "127.0.0.1:4000",
        "status": 200,
        "outcome": Outcome.SUCCESS,
        "attempts": 1,
        "bytes_in": 0,
        "bytes_out": 12,
        "endpoint": "127.0.0.1:8081",
    }
    asked = {"method": request.method, "authority": request.authority, "path": request.path}
    return CallRecord(history=tuple(history), **(known | asked | more))


def shown(calls: Iterable[NumberedCall]) -> list[dict[str, Any]]:
    """Calls as a reader of the admin port gets them."""
    return [json.loads(call.text) for call in calls]


def retried() -> CallRecord:
    """503, then a reset, then 200."""
    history = [
        AttemptRecord(
            1, 10.0, 10.01, 503, cls=Class.TRANSIENT, because="transient: 503", decision="retried", delay=0.1
        ),
        AttemptRecord(
            2, 10.11, 10.12, fault=FaultKind.RESET, cls=Class.TRANSIENT, because="reset", decision="retried", delay=0.2
        ),
        AttemptRecord(3, 10.32, 10.33, 200, cls=Class.SUCCESS, decision="delivered", price=5),
    ]
    return ended(attempts=3, history=history, ended=10.34)
