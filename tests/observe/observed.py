"""A call that is over, as a plain value, for the tests of observers."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.facts import Class, FaultKind, Outcome, Request
from proxy.retry.policy import Backoff, Policy, Strategy

STANDARD = Strategy(kind="standard", name="standard", max_attempts=3, backoff=Backoff(base=0.1, max=20))
POLICY = Policy(upstream="payments", route="", strategy=STANDARD, bucket=None)
WALL = 1767225600.25  # 2026-01-01T00:00:00.250Z


@dataclass(slots=True)
class Call:
    policy: Policy = POLICY
    request: Request = field(default_factory=lambda: Request("GET", "api.payments.example", "/v1/x?key=s3cret"))
    client: str = "127.0.0.1:4000"
    outcome: Outcome = Outcome.SUCCESS
    status: int = 200
    attempts: int = 1
    history: list[AttemptRecord] = field(default_factory=list)
    started: float = 10.0
    ended: float = 10.004
    wall_started: float = WALL
    bytes_in: int = 0
    bytes_out: int = 12
    endpoint: str = "127.0.0.1:8081"
    detail: str = ""
    app_retry: bool = False


def retried() -> Call:
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
    return Call(attempts=3, history=history, ended=10.34)
