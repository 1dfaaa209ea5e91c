"""The proxy's own answer to a call whose last attempt ended without one: its HTTP status and its gRPC status."""

from __future__ import annotations

import pytest

from proxy.retry.call.gates import GATES
from proxy.retry.call.reasons import held_in_vain, held_too_long, own_answer, wanted_past_deadline
from proxy.retry.facts import Fault, FaultKind, Outcome, Progress

UNAVAILABLE, RESOURCE_EXHAUSTED = 14, 8
ENHANCE_YOUR_CALM = 0xB  # RFC 9113 section 7
FAULTS = [
    (FaultKind.CONNECT_FAILURE, None, 502, UNAVAILABLE),
    (FaultKind.RESET, ENHANCE_YOUR_CALM, 502, RESOURCE_EXHAUSTED),
    (FaultKind.RESET, None, 502, None),
    (FaultKind.REFUSED_STREAM, None, 502, None),
    (FaultKind.REFUSED_STREAM, 7, 502, None),
    (FaultKind.ATTEMPT_TIMEOUT, None, 504, None),
]


@pytest.mark.parametrize(("kind", "code", "status", "grpc_status"), FAULTS)
def test_a_fault_determines_both(kind: FaultKind, code: int | None, status: int, grpc_status: int | None) -> None:
    answer = own_answer(Outcome.ATTEMPTS_EXHAUSTED, Fault(kind, Progress.UNKNOWN, code=code))
    assert (answer.status, answer.grpc_status) == (status, grpc_status)


def test_a_connection_that_did_not_come_in_time_is_a_timeout_but_for_grpc() -> None:
    late = Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT, error="connection_timeout")
    answer = own_answer(Outcome.NOT_RETRYABLE, late)
    assert (answer.status, answer.error, answer.grpc_status) == (504, "connection_timeout", UNAVAILABLE)


def test_a_call_that_was_held_up_to_its_deadline_names_no_instants() -> None:
    assert held_too_long("outage", 0.2, 0.0) == "the upstream's outage did not let it go before its deadline"
    assert held_too_long("outage", 0.2, 0.1) == (
        "the upstream's outage lets it go in 0.2 s, after the deadline, which is in 0.1 s"
    )


def test_a_call_whose_answer_would_come_too_late_is_told_how_long_answers_take() -> None:
    late = "and an answer may take 0.8 s: too late for the deadline, which is in 2 s"
    rate, limit = GATES["rate"], GATES["limit"]
    assert held_too_long("rate", 1.5, 2.0, 0.8) == f"{rate} lets it go in 1.5 s, {late}"
    assert held_too_long("rate", 2.5, 2.0, 0.8) == f"{rate} lets it go in 2.5 s, after the deadline, which is in 2 s"
    assert held_in_vain("limit", 1.5, "deadline", 0.8, 1.2) == f"{limit} lets it go in 1.5 s, {late}"


def test_an_endpoints_own_delay_that_ends_after_the_deadline_is_told_of() -> None:
    why = "the endpoint that is left asked this call to wait for 30 s more, after the deadline, which is in 2 s"
    assert wanted_past_deadline(30.0, 2.0) == why


def test_what_is_due_a_moment_after_the_deadline_is_not_said_to_be_due_at_it() -> None:
    """Seen: "would begin in 1 s, after the deadline, which is in 1 s"."""
    assert wanted_past_deadline(1.0, 0.996).endswith("to wait for 1 s more, just after the deadline")
    assert held_too_long("rate", 2.04, 2.0).endswith("lets it go in 2 s, just after the deadline")


def test_a_call_that_was_held_for_all_of_a_bound_is_not_told_of_a_wait_of_nothing() -> None:
    cooldown = GATES["cooldown"]
    assert held_in_vain("cooldown", 3.0, "hold", 20.0, 1.0) == (
        f"{cooldown} would hold it for 3 s more, beyond pushback.hold, 20 s in all"
    )
    assert (
        held_in_vain("cooldown", 0.004, "hold", 20.0, 0.0) == f"{cooldown} did not let it go within pushback.hold, 20 s"
    )
