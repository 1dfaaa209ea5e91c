"""What happened to each attempt of a call, and why: read by the access log, /requests, explain and the tests."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.retry.facts import Class, Failure, Fault, FaultKind, Outcome, Reply

#: The decision on the last attempt at an upstream, where the call goes on at another one.
FELL_BACK = "fell back"


class AttemptRecord:
    """One sending. Times are seconds on the driver's clock; `delay` is the wait decided on before the next attempt.

    `decision` is "delivered", "retried", "transparent" (sent again at once, same number), "cancelled", "hedged on",
    "fell back" or the outcome that ended the call; `why` is what such a *no* was about. `pushback` is the field that
    named `pushback_delay` (seconds), or said to stop. `price` is what the retry that this attempt is had paid. `held`
    are the seconds for which a gate (`held_by`: cooldown, rate or limiter) held it before it was sent. `endpoint` is
    where it was sent, if a driver said so (`Call.sent`). `rst_code`: the HTTP/2 error code that it broke off with.
    `protocol`: what it was sent by, http/1.1 or http/2; "" where nothing was sent. `upstream` and `route`: where it
    went, of a call that went on to another upstream; "" of any other, whose policy says so. `first_byte`: the seconds
    from its request's last byte to the first that counted of its answer, where that was waited for. `key`: the number
    of the credential that it carried, from 0, None without one; `key_why`: why it was this one; `aside`: with its end
    that value was put aside.
    """

    __slots__ = (
        "aside", "attempt", "because", "cls", "decision", "delay", "detail", "ended", "endpoint", "fault",
        "first_byte", "grpc_status", "held", "held_by", "key", "key_why", "price", "protocol", "pushback",
        "pushback_delay", "route", "rst_code", "started", "status", "upstream", "why",
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

    def judge(self, failure: Failure, reply: Reply | None) -> None:
        """Write down what the sending was judged to be. `reply`: the last answer that was judged."""
        self.status, self.cls, self.because = failure.status, failure.verdict.cls, failure.verdict.because
        self.pushback, self.pushback_delay = failure.pushback.source, failure.pushback.delay
        if failure.fault is not None:
            self.meet(failure.fault)
        elif reply is not None:
            self.grpc_status = reply.grpc_status

    def meet(self, fault: Fault) -> None:
        """Write down the fault that it ended with."""
        self.fault, self.detail, self.rst_code = fault.kind, fault.detail, fault.code


@dataclass(frozen=True, slots=True)
class FallbackRecord:
    """A call would have ended with `outcome`, and went on to the upstream `to`; or did not, and `skipped` says why."""

    to: str
    outcome: Outcome
    skipped: str = ""
