"""What is written down of each sending: one record for one sending, its own times and price, and why it ended so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.front import CLASSIFY, policy
from support.playbook import Event, FixedDraws, Playbook, app_gone, ended, fault, replay_lost, reply, start, wake

from proxy.retry import RetryError
from proxy.retry.call.actions import Action
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.facts import Class, FaultKind, MappingFields, Outcome, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.policy import Backoff, Credentials, Fallback, Policy, PushbackPolicy, Strategy, Timeouts
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry

STANDARD = policy(strategy=Strategy("standard", "standard", 3, Backoff(0.1, 1.0, jitter="none")))
HEDGING = replace(
    STANDARD,
    strategy=Strategy(
        "hedging", "hedging", 3, Backoff(0, 0), hedging_delay=1.0, non_fatal=frozenset({503, FaultKind.RESET})
    ),
)
RETRY_AFTER = {"retry-after": "70"}


def play(what: Policy, *events: object, **options: object) -> Call:
    """The call after these events, whatever it answered."""
    book = Playbook(what, **options)  # type: ignore[arg-type]
    for event in events:
        event.happen(book.call, event.at)  # type: ignore[attr-defined]
    return book.call


def brief(call: Call) -> list[tuple[int, str, str]]:
    return [(record.attempt, record.decision, record.why) for record in call.so_far.history]


def test_an_answer_that_breaks_off_is_written_down() -> None:
    call = play(STANDARD, start(), reply(1, 200, end=False, at=0.1), fault(1, "reset", at=0.4))
    assert brief(call) == [(1, "committed", "its answer had begun to go to the app")]
    (record,) = call.so_far.history
    assert (record.status, record.fault, record.started, record.ended) == (200, FaultKind.RESET, 0.0, 0.4)


@pytest.mark.parametrize(
    "rest",
    [[reply(2, 200, at=0.3), ended(2, at=0.4)], [fault(2, "reset", at=0.3)], [app_gone(at=0.3)]],
    ids=["delivered", "failed", "left"],
)
def test_a_record_that_a_call_makes_has_each_field(rest: list[Event]) -> None:
    first, last = play(STANDARD, start(), reply(1, 503, at=0.1), wake(0.2), *rest).so_far.history
    assert (first.decision, first.status, first.cls, first.delay) == (
        "retried",
        503,
        Class.TRANSIENT,
        pytest.approx(0.1),
    )
    told = {"ended", "status", "cls", "because", "decision", "price", "fault", "detail", "error", "why", "delay"}
    for name in {*AttemptRecord.__slots__} - told:  # nothing happened that these fields tell of
        assert getattr(last, name) == getattr(AttemptRecord(2, 0.2), name), name
    assert {name for name in told if not hasattr(last, name) or not hasattr(first, name)} == set()


NOTHING = "nothing names it as retryable"
IF_MATCH, IF_NONE_MATCH = {"if-match": '"a"'}, {"if-none-match": "*"}


@pytest.mark.parametrize(
    ("method", "fields", "ends", "own"),
    [
        ("PUT", IF_NONE_MATCH, ["reset", 412], 1),
        ("PUT", IF_NONE_MATCH, ["reset", 409], 1),
        ("PUT", IF_MATCH, ["attempt_timeout", 412], 1),
        ("PUT", IF_MATCH, [500, 412], 1),
        ("DELETE", IF_MATCH, ["reset", 412], 1),
        ("DELETE", {}, ["connect_failure", "reset", 404], 1),  # the first is sent again as what it was
        ("DELETE", {}, [502, 410], 1),
        ("DELETE", {}, [429, "reset", 404], 2),
        ("PATCH", {"idempotency-key": "a"}, ["reset", 412], 1),
        ("PUT", IF_MATCH, [412], None),
        ("PUT", IF_MATCH, [429, 412], None),  # it was not processed
        ("PUT", IF_MATCH, ["refused_stream", 412], None),
        ("PUT", IF_MATCH, [503, 412], 1),
        ("PUT", {}, ["reset", 404], None),
        ("PUT", {}, ["reset", 409], None),
        ("GET", {"if-match": '"a"'}, ["reset", 412], None),  # nothing was changed
    ],
)
def test_an_answer_that_may_be_the_calls_own_success_says_so(
    method: str, fields: dict[str, str], ends: list[str | int], own: int | None
) -> None:
    book = Playbook(replace(STANDARD, bucket=None), method=method, headers=fields)
    call = book.call
    call.start(0.0)
    for number, end in enumerate(ends):
        attempt = call.so_far.attempts
        event = reply(attempt, end, at=number * 5.0) if isinstance(end, int) else fault(attempt, end, at=number * 5.0)
        event.happen(call, event.at)
        if call.so_far.attempts == attempt and number + 1 < len(ends):
            call.woke(number * 5.0 + 4.0)
    said = f"; attempt {own} may have been carried out, so the {ends[-1]} may be its own success" if own else ""
    assert call.so_far.history[-1].why == f"{NOTHING}{said}"


def test_a_server_error_that_is_throttling_was_not_carried_out() -> None:
    """S3 answers 503 for what others answer 429 for."""
    throttling = replace(STANDARD.classify, statuses={503: Class.THROTTLING})
    book = Playbook(replace(STANDARD, bucket=None, classify=throttling), method="PUT", headers=IF_MATCH)
    for event in (start(), reply(1, 503, at=0.0), wake(4.0), reply(2, 412, at=5.0)):
        event.happen(book.call, event.at)
    assert book.call.so_far.history[-1].why == NOTHING


def test_a_strategy_that_makes_one_attempt_has_not_failed() -> None:
    own = Strategy("own:Failing", "own:Failing", 1, Backoff(0, 0), custom=Failing(ZeroDivisionError()))
    call = play(replace(STANDARD, strategy=own, bucket=None), start(), reply(1, 503, at=0))
    assert brief(call) == [(1, "attempts_exhausted", "the strategy makes one attempt")]


def test_a_hedge_may_meet_the_success_of_another() -> None:
    hedging = replace(HEDGING, bucket=None)
    book = Playbook(hedging, method="PUT", headers=IF_NONE_MATCH)
    for event in (start(), wake(1.0), reply(2, 412, at=1.5)):
        event.happen(book.call, event.at)
    why = "non_fatal does not name it; attempt 1 may have been carried out, so the 412 may be its own success"
    assert [record.why for record in book.call.so_far.history if record.attempt == 2] == [why]


def test_a_failure_that_breaks_off_is_written_down_once() -> None:
    call = play(STANDARD, start(), reply(1, 404, end=False, at=0.1), fault(1, "reset", at=0.4))
    assert brief(call) == [(1, "not_retryable", "nothing names it as retryable")]
    assert call.so_far.outcome is Outcome.COMMITTED


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([start(), app_gone(0.2)], [(1, "client_gone", "")]),
        ([start(), reply(1, 200, end=False, at=0.1), app_gone(0.2)], [(1, "client_gone", "")]),
        (
            [start(), reply(1, 404, end=False, at=0.1), app_gone(0.2)],
            [(1, "not_retryable", "nothing names it as retryable")],
        ),
        ([start(), reply(1, 503, at=0.1), app_gone(0.15)], [(1, "client_gone", "")]),
        ([start(), reply(1, 503, at=0.1), wake(0.2), app_gone(0.3)], [(1, "retried", ""), (2, "client_gone", "")]),
    ],
    ids=["in flight", "while it is answered", "while it is given a failure", "in a backoff", "in a retry"],
)
def test_an_app_that_leaves_adds_no_sending(events: list[object], told: list[tuple[int, str, str]]) -> None:
    assert brief(play(STANDARD, *events)) == told


def test_an_app_that_leaves_while_it_is_held_has_no_sending() -> None:
    paced = replace(STANDARD, rate=BucketRef(RateSpec(rate=1.0, burst=1.0), "pace"))
    registry = Registry()
    assert play(paced, start(), registry=registry).so_far.attempts == 1
    held = play(paced, start(at=0.0), app_gone(0.5), registry=registry)
    assert held.so_far.history == ()
    assert held.so_far.held_by == "rate"


def test_each_hedge_has_its_own_times_and_price() -> None:
    call = play(HEDGING, start(), wake(1.0), wake(2.0), reply(2, 200, at=2.5), ended(2, at=2.6))
    times = {record.attempt: (record.started, record.ended, record.price) for record in call.so_far.history}
    assert times == {1: (0.0, 2.5, 0.0), 2: (1.0, 2.6, 5.0), 3: (2.0, 2.5, 5.0)}
    assert {record.attempt: record.decision for record in call.so_far.history} == {
        1: "cancelled",
        2: "delivered",
        3: "cancelled",
    }


def test_hedges_that_nobody_waits_for_were_not_beaten() -> None:
    gone = play(HEDGING, start(), wake(1.0), app_gone(1.5))
    assert brief(gone) == [(1, "client_gone", ""), (2, "client_gone", "")]
    late = play(replace(HEDGING, timeouts=Timeouts(total=1.5)), start(), wake(1.0), wake(1.5))
    assert [(record.attempt, record.decision) for record in late.so_far.history] == [(1, "deadline"), (2, "deadline")]


def test_a_gate_that_held_an_attempt_is_named() -> None:
    paced = replace(STANDARD, rate=BucketRef(RateSpec(rate=1.0, burst=1.0), "pace"))
    registry = Registry()
    play(paced, start(), registry=registry)
    call = play(paced, start(at=0.25), wake(1.0), reply(1, 200, at=1.1), ended(1, at=1.1), registry=registry)
    (record,) = call.so_far.history
    assert (record.decision, record.started, record.held, record.held_by) == ("delivered", 1.0, 0.75, "rate")


def test_an_attempt_that_no_gate_held_was_held_for_no_time() -> None:
    call = play(STANDARD, start(), reply(1, 503, at=0.1), wake(0.2), reply(2, 200, at=0.3), ended(2, at=0.3))
    assert [(record.held, record.held_by) for record in call.so_far.history] == [(0.0, "")] * 2
    ends = [(record.status, record.cls) for record in call.so_far.history]
    assert ends == [(503, Class.TRANSIENT), (200, Class.SUCCESS)]


def test_what_a_cooldown_holds_past_the_deadline_says_so() -> None:
    registry, cooled = Registry(), replace(STANDARD, timeouts=Timeouts(total=2.0))
    play(cooled, start(), reply(1, 503, headers={"retry-after": "30"}, at=0.0), registry=registry)
    (answer, _) = _actions(cooled, registry)
    assert getattr(answer, "detail", "") == (
        "the upstream's cooldown lets it go in 30 s, after the deadline, which is in 2 s"
    )


def _actions(what: Policy, registry: Registry) -> tuple[Action, ...]:
    request = Request("GET", "u.test", "/x")
    env = Env(FixedDraws(1.0), 0.0, WaitingRoom(10))
    return Call(request, what, registry.scope(what, request), env).start(0.0)


POOR = replace(STANDARD, bucket=BucketRef(QuotaSpec(capacity=4), "poor"))
THROTTLE = replace(STANDARD, bucket=BucketRef(ThrottleSpec(max_tokens=2), "spare"))
NO = [
    (STANDARD, "GET", [reply(1, 503, headers={"x-should-retry": "false"}, at=0)],
     "pushback_stop", "the upstream said not to retry (x-should-retry)"),
    (STANDARD, "GET", [reply(1, 404, at=0)], "not_retryable", "nothing names it as retryable"),
    (STANDARD, "POST", [reply(1, 503, at=0)],
     "not_retryable", "POST may have been carried out, and is not idempotent"),
    (replace(STANDARD, classify=replace(CLASSIFY, unsafe_methods="never")), "POST", [reply(1, 429, at=0)],
     "not_retryable", "POST is not idempotent, and unsafe_methods is never"),
    (HEDGING, "GET", [reply(1, 404, at=0)], "not_retryable", "non_fatal does not name it"),
    (STANDARD, "PUT", [replay_lost(0), reply(1, 503, at=0)],
     "committed", "the request's body outgrew its replay buffer"),
    (replace(STANDARD, mode="off"), "GET", [reply(1, 503, at=0)], "disabled", "the mode is off"),
    (replace(STANDARD, strategy=Strategy("none", "none", 1, Backoff(0, 0))), "GET", [reply(1, 503, at=0)],
     "attempts_exhausted", "the strategy makes one attempt"),
    (POOR, "GET", [reply(1, 503, at=0)], "bucket_empty", "the bucket has 4, and a retry costs 5"),
    (THROTTLE, "GET", [reply(1, 503, at=0)], "bucket_empty", "the bucket has 1, and retries need more than 1"),
    (STANDARD, "GET", [reply(1, 429, headers=RETRY_AFTER, at=0)],
     "pushback_too_long", "retry-after names 70 s, more than pushback.max_delay, 60 s"),
    (replace(STANDARD, timeouts=Timeouts(total=5), pushback=PushbackPolicy(max_delay=100)), "GET",
     [reply(1, 503, headers=RETRY_AFTER, at=1)],
     "deadline", "the next attempt would begin in 70 s, after the deadline, which is in 4 s"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "method", "events", "decision", "why"), NO, ids=[case[-1][:40] for case in NO])
def test_every_no_says_what_it_was_about(
    what: Policy, method: str, events: list[object], decision: str, why: str
) -> None:
    call = play(what, start(), *events, method=method)
    assert brief(call)[-1][1:] == (decision, why)


def test_no_place_to_wait_in() -> None:
    call = play(STANDARD, start(), reply(1, 503, at=0), room=WaitingRoom(0))
    assert brief(call) == [(1, "overloaded", "limits.waiting has no place for the wait")]


def test_x_retry_disable_is_named() -> None:
    call = play(STANDARD, start(), reply(1, 503, at=0), headers={"x-retry-disable": "true"})
    assert brief(call) == [(1, "disabled", "X-Retry-Disable")]


class Failing:
    """A user's own strategy that does what it is told to when it is asked for another attempt."""

    max_attempts = 3

    def __init__(self, error: Exception) -> None:
        self.error = error

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> Failing:
        return self

    retry_delay = 0.0

    def refresh_retry_token_for_retry(self, *, token_to_renew: object, error: Exception) -> Failing:
        raise self.error


@pytest.mark.parametrize(
    ("error", "decision", "why"),
    [
        (RetryError("enough"), "bucket_empty", "the strategy refuses it"),
        (
            ZeroDivisionError(),
            "attempts_exhausted",
            "the strategy itself failed: what it raised is not a RetryError, or its delay is not valid",
        ),
    ],
)
def test_a_strategy_of_ones_own_is_told_from_the_last_attempt(error: Exception, decision: str, why: str) -> None:
    own = Strategy("own:Failing", "own:Failing", 3, Backoff(0, 0), custom=Failing(error))
    call = play(replace(STANDARD, strategy=own, bucket=None), start(), reply(1, 503, at=0))
    assert brief(call) == [(1, decision, why)]


def test_it_is_told_so_at_an_upstream_that_took_the_call_over_too() -> None:
    """The attempts that were made elsewhere are none of its three."""
    own = Strategy("own:Failing", "own:Failing", 3, Backoff(0, 0), custom=Failing(ZeroDivisionError()))
    once = replace(STANDARD, strategy=Strategy("none", "none", 1, Backoff(0, 0)), fallback=(Fallback("b"),))
    book = Playbook(once, elsewhere=lambda entry: "")
    for event in (start(), reply(1, 503, at=0)):
        event.happen(book.call, event.at)
    book.go_on(replace(STANDARD, upstream="b", strategy=own, bucket=None), at=0.1).happen(book.call, 0.1)
    event = reply(2, 503, at=0.2)
    event.happen(book.call, event.at)
    assert brief(book.call)[-1][1:] == (
        "attempts_exhausted",
        "the strategy itself failed: what it raised is not a RetryError, or its delay is not valid",
    )


def denied(attempt: int, *, at: float) -> Event:
    return Event(f"denied {attempt}", at, lambda call, now: call.denied(attempt, "not allowed", now))


def test_a_hedge_that_is_sent_again_begins_when_it_is_sent_again() -> None:
    call = play(HEDGING, start(), fault(1, "connect_failure", at=0.4), reply(1, 200, at=0.5), ended(1, at=0.5))
    assert [(record.decision, record.started, record.ended) for record in call.so_far.history] == [
        ("transparent", 0.0, 0.4),
        ("delivered", 0.4, 0.5),
    ]


def test_a_denied_hedge_gives_back_its_own_price_and_no_other() -> None:
    spent = play(HEDGING, start(), wake(1.0), denied(1, at=1.1))  # the second was sent, and is cancelled
    assert spent.so_far.next_attempt.bucket is not None and spent.so_far.next_attempt.bucket.level(2) == 495
    back = play(HEDGING, start(), wake(1.0), denied(2, at=1.1))
    assert back.so_far.next_attempt.bucket is not None and back.so_far.next_attempt.bucket.level(2) == 500
    assert [(record.attempt, record.decision, record.price) for record in back.so_far.history] == [
        (1, "cancelled", 0.0),
        (2, "denied", 0.0),
    ]


def test_a_denied_attempt_gives_back_its_token_of_the_rate() -> None:
    rated = replace(STANDARD, rate=BucketRef(RateSpec(rate=1.0, burst=1.0), name="pace"))
    call = play(rated, start(), denied(1, at=0.0))
    assert call.so_far.next_attempt.scope.rates and call.so_far.next_attempt.scope.rates[0].level(0.0) == 1


def no_room(attempt: int, *, at: float) -> Event:
    return Event(f"no room {attempt}", at, lambda call, now: call.no_room(attempt, "no descriptor is left", now))


def test_an_attempt_without_a_connection_of_ours_costs_nothing_and_ends_the_call() -> None:
    rated = replace(STANDARD, rate=BucketRef(RateSpec(rate=1.0, burst=1.0), name="pace"))
    call = play(rated, start(), no_room(1, at=0.0))
    so_far = call.so_far
    assert (so_far.outcome, so_far.attempts) == (Outcome.OVERLOADED, 0)
    assert so_far.next_attempt.scope.rates[0].level(0.0) == 1
    assert so_far.next_attempt.scope.governor.traffic.flying == 0
    again = play(STANDARD, start(), reply(1, 503, at=0.1), wake(0.3), no_room(2, at=0.3))
    assert (again.so_far.outcome, again.so_far.attempts) == (Outcome.OVERLOADED, 1)
    assert again.so_far.next_attempt.bucket is not None and again.so_far.next_attempt.bucket.level(1) == 500


def test_a_hedge_without_a_connection_of_ours_is_left_out() -> None:
    call = play(HEDGING, start(), wake(1.0), no_room(2, at=1.0), reply(1, 200, at=1.1), ended(1, at=1.1))
    assert (call.so_far.outcome, call.so_far.attempts) == (Outcome.SUCCESS, 1)
    assert call.so_far.next_attempt.bucket is not None and call.so_far.next_attempt.bucket.level(2) == 500


def test_a_hedge_that_waits_when_the_body_outgrows_its_buffer_says_so() -> None:
    call = play(HEDGING, start(), reply(1, 503, at=0.1, headers={"retry-after": "5"}), replay_lost(0.2))
    assert brief(call) == [(1, "committed", "the request's body outgrew its replay buffer")]


@pytest.mark.parametrize(
    ("credentials", "key"),
    [(None, 0), (Credentials("X-Key", ("one", "two")), 1)],
    ids=["the app's own", "of the policy"],
)
def test_an_answer_that_begins_a_cooldown_is_reported_with_the_credential_that_it_met(
    credentials: Credentials | None, key: int
) -> None:
    cooled, reports = replace(STANDARD, credentials=credentials), []
    request = Request("GET", "u.test", "/x")
    env = Env(FixedDraws(1.0), 0.0, WaitingRoom(10), cooldown_began=reports.append)
    call = Call(request, cooled, Registry().scope(cooled, request), env)
    call.start(0.0)
    call.head(1, Reply(429, MappingFields([("retry-after", "70")]), end=True), 0.5)
    (began,) = reports
    assert (began.key, began.attempt, began.status, began.field, began.at) == (key, 1, 429, "retry-after", 0.5)
    assert (began.delay, began.method, began.path) == (60.0, "GET", "/x")  # of 70 s, as many as max_delay allows
