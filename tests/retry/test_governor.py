"""The governor of a scope: what it remembers of attempts."""

from __future__ import annotations

from proxy.retry.caller import Caller
from proxy.retry.facts import Request
from proxy.retry.governor import Governor


class Waiting:
    """A call that waits."""

    def retime(self, at: float) -> None:
        """Nothing: the test asks itself."""


def test_an_attempt_that_is_cancelled_is_not_remembered() -> None:
    governor, waiter, attempt = Governor(), Waiting(), object()
    request = Request("GET", "u.example", "/")
    caller = Caller(request, request.fields, "")
    caller.cools = caller.limits = True
    governor.requests_wait(caller, 503, 1.0, sent=0.0, now=0.0, whole=True)
    assert governor.ask(waiter, caller, 1.0) == (1.0, "")
    assert governor.sent(waiter, attempt, 1.0)
    assert attempt in governor
    governor.dropped(attempt, 1.0, 1.5)
    assert attempt not in governor
    assert governor.first.in_use() == 0
