"""The record of what happened to each attempt of a call, and why: for the access log, the admin port's page /requests,
the command `explain`, and the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.retry.facts import Class, Fault, FaultKind, Outcome

#: The decision on the last attempt at an upstream, if the call goes on at another upstream.
FELL_BACK = "fell back"


class AttemptRecord:
    """The record of one attempt. Times are seconds on the driver's clock; `delay` is the wait before the next attempt.

    `decision` is "delivered", "retried", "transparent" (sent again at once, with the same number), "cancelled", "hedged
    on", "fell back" or the outcome that ended the call. If the decision was against another attempt, `why` names the
    reason. `pushback` is the field of the answer that named `pushback_delay` (seconds), or that forbade a retry.
    `price` is the number of tokens that this attempt paid if it is a retry. `held` is how many seconds a gate held the
    attempt before it was sent, and `held_by` is that gate: cooldown, rate or limiter. `endpoint` is the endpoint that
    the attempt was sent to, if a driver reported it (`Call.sent`). `error` is the RFC 9209 proxy error type of the
    fault that the attempt ended with, or "". `rst_code` is the HTTP/2 error code that ended the attempt. `protocol` is
    http/1.1 or http/2, or "" if nothing was sent.

    `upstream` and `route` are set only in a call that fell back to another upstream; otherwise they are "", and the
    call's policy has them. `first_byte` is the time (seconds) from the request's last byte to the first byte of the
    answer that counts, if a timeout waited for it. `key` is the number of the credential that the attempt carried, from
    0, or None; `key_why` says why that credential was chosen; `aside` says whether this attempt's end put the
    credential aside (no attempt carries it for some time). `range` is the Range that the attempt asked for, to go on
    with an answer that broke; otherwise "".
    """

    __slots__ = (
        "aside", "attempt", "because", "cls", "decision", "delay", "detail", "ended", "endpoint", "error", "fault",
        "first_byte", "grpc_status", "held", "held_by", "key", "key_why", "price", "protocol", "pushback",
        "pushback_delay", "range", "route", "rst_code", "started", "status", "upstream", "why",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913  a record: one argument a column
        self,
        attempt: int,
        started: float,
        ended: float | None = None,
        status: int | None = None,
        grpc_status: int | None = None,
        fault: FaultKind | None = None,
        detail: str = "",
        cls: Class | None = None,
        because: str = "",
        decision: str = "",
        why: str = "",
        delay: float | None = None,
        pushback: str = "",
        pushback_delay: float | None = None,
        price: float = 0.0,
        held: float = 0.0,
        held_by: str = "",
        endpoint: str = "",
        rst_code: int | None = None,
        protocol: str = "",
        upstream: str = "",
        route: str = "",
        first_byte: float | None = None,
        key: int | None = None,
        key_why: str = "",
        aside: bool = False,
        range: str = "",
        error: str = "",
    ) -> None:
        self.attempt = attempt
        self.started = started
        self.ended = ended
        self.status = status
        self.grpc_status = grpc_status
        self.fault = fault
        self.detail = detail
        self.cls = cls
        self.because = because
        self.decision = decision
        self.why = why
        self.delay = delay
        self.pushback = pushback
        self.pushback_delay = pushback_delay
        self.price = price
        self.held = held
        self.held_by = held_by
        self.endpoint = endpoint
        self.rst_code = rst_code
        self.protocol = protocol
        self.upstream = upstream
        self.route = route
        self.first_byte = first_byte
        self.key = key
        self.key_why = key_why
        self.aside = aside
        self.range = range
        self.error = error

    def record_fault(self, fault: Fault) -> None:
        """Record the fault that the attempt ended with."""
        self.fault, self.detail, self.error, self.rst_code = fault.kind, fault.detail, fault.error, fault.code


@dataclass(frozen=True, slots=True)
class FallbackRecord:
    """A fallback to another upstream that was considered when the call would have ended with `outcome`. `to`: the name
    of that upstream. `skipped`: the reason why the call did not go on there; "" if it did.
    """

    to: str
    outcome: Outcome
    skipped: str = ""
