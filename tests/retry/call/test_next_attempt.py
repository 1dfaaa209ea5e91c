"""What a call keeps of the gates while it waits for its next attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.playbook import ANY, Playbook, app_gone, ended, reply, start, wake

from proxy.retry.budgets.token_bucket import TokenGate
from proxy.retry.call.actions import Answer, Cancel, Deliver, Discard, Finish, Hold, Launch, WakeAt
from proxy.retry.call.states import Next
from proxy.retry.facts import Class, Outcome
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import AutoLimit, Backoff, Concurrency, Policy, Strategy, Timeouts
from proxy.retry.scopes.registry import Registry
from proxy.retry.weather.route_names import names_of
from proxy.retry.weather.usual_times import KNOWN

POLICY = Policy(
    "u",
    "",
    Strategy("standard", "standard", 3, Backoff(0.1, 20.0, 2.0, "none")),
    BucketRef(QuotaSpec()),
    classify=Classify(statuses={503: Class.TRANSIENT}),
)


def test_a_call_that_no_gate_held_forgets_the_gates_while_it_waits() -> None:
    book = Playbook(replace(POLICY, concurrency=Concurrency(max=1)))
    next_attempt = book.call.so_far.next_attempt
    assert book >> start() << Launch(1)
    assert next_attempt.admission is not None
    assert book >> reply(1, 503, at=0.01) << Hold(1) << WakeAt(0.11)
    assert (next_attempt.admission, next_attempt._caller) == (None, None)
    assert book.scope.places is not None
    assert book.scope.places.in_use == 0
    assert book >> wake(0.11) << Discard(1) << Launch(2)
    assert book.scope.places.in_use == 1, "it asked the gate again"
    assert book >> reply(2, 200, at=0.12) << Deliver(2, Outcome.SUCCESS) >> ended(2, at=0.12) << Finish(Outcome.SUCCESS)
    assert book.scope.places.in_use == 0


def test_a_call_that_a_gate_held_remembers_it() -> None:
    policy = replace(POLICY, rate=BucketRef(RateSpec(rate=10.0, burst=1.0)))
    registry = Registry()
    first, book = Playbook(policy, registry=registry), Playbook(policy, registry=registry)
    assert first >> start() << Launch(1)
    assert book >> start() << WakeAt(0.1) >> wake(0.1) << Launch(1) >> reply(1, 503, at=0.2) << Hold(1) << WakeAt(0.3)
    assert book.call.so_far.next_attempt.was_held
    assert book.call.so_far.history[0].held == pytest.approx(0.1)


def test_a_call_that_waits_ahead_no_more_does_not_begin_to_again() -> None:
    policy = replace(POLICY, pushback=replace(POLICY.pushback, ahead=True))
    book = Playbook(policy)
    assert book >> start() << Launch(1)
    book.call.so_far.next_attempt.gates().forgo_ahead(0.0)
    assert book >> reply(1, 503, at=0.01) << Hold(1) << WakeAt(0.11)
    assert not book.call.so_far.next_attempt.caller().ahead


def test_a_retry_that_can_not_be_paid_leaves_the_waiting_room() -> None:
    next_attempt = Playbook(POLICY).call.so_far.next_attempt
    assert next_attempt.pay_for(Next(due=1.0, price=600.0), 0.0) is Outcome.BUCKET_EMPTY
    assert next_attempt.env.waiting.waiting == 0
    assert isinstance(next_attempt.pay_for(Next(due=1.0, price=500.0), 0.0), Next)
    assert next_attempt.env.waiting.waiting == 1


def test_a_call_that_waits_for_the_rate_holds_no_place_under_the_limit() -> None:
    registry = Registry()
    policy = replace(POLICY, rate=BucketRef(RateSpec(rate=10.0, burst=1.0)), limit=AutoLimit())
    first, second, third = (Playbook(policy, registry=registry) for _ in range(3))
    governor = first.scope.governor
    lane = governor.first
    lane.lasts = True
    lane.limit._begin(2.0, 2.0, 0.0)
    governor.lanes.look((lane,), 0.0)
    assert first >> start() << Launch(1)
    assert second >> start() << WakeAt(0.1)
    assert (second.call.so_far.next_attempt.gates().held_by, lane.places.in_use()) == ("rate", 1)
    assert third >> start() << WakeAt(1.0)
    assert third.call.so_far.next_attempt.gates().held_by == "limit", "it is the second's turn"
    assert second >> wake(0.1) << Launch(1)
    assert lane.places.in_use() == 2


def test_no_token_of_the_rate_goes_to_a_call_that_cannot_be_answered_before_its_deadline() -> None:
    registry = Registry()
    policy = replace(
        POLICY, rate=BucketRef(RateSpec(rate=1.0, burst=1.0)), timeouts=Timeouts(total=1.0), limit=AutoLimit()
    )
    first, second, third = (Playbook(policy, registry=registry) for _ in range(3))
    assert first >> start() << Launch(1)
    assert second >> start() << WakeAt(1.0), "how long answers take is not known"
    assert second >> app_gone(0.0) << Finish(Outcome.CLIENT_GONE)
    usual, route = first.scope.governor.usual, names_of(policy.route, third.request).timed
    for _ in range(KNOWN):
        usual.learn("GET another", 0.5, 0.0)
    assert third >> start() << WakeAt(1.0), "how long answers of other routes take decides nothing"
    assert third >> app_gone(0.0) << Finish(Outcome.CLIENT_GONE)
    for _ in range(KNOWN):
        usual.learn(route, 0.5, 0.0)
    fourth = Playbook(policy, registry=registry)
    why = "the upstream's rate bucket lets it go in 1 s, and an answer may take 0.5 s: too late for the deadline"
    why += ", which is in 1 s"
    assert fourth >> start() << Answer(504, ANY, why, Outcome.DEADLINE, ANY, ANY, ANY) << Finish(Outcome.DEADLINE)
    fifth = Playbook(replace(policy, limit=None), registry=registry)
    assert fifth >> start() << WakeAt(1.0), "concurrency: off"


def test_a_call_that_waits_for_a_place_holds_no_token_of_the_rate() -> None:
    registry = Registry()
    policy = replace(POLICY, rate=BucketRef(RateSpec(rate=0.1, burst=2.0)), concurrency=Concurrency(max=1))
    first, second = Playbook(policy, registry=registry), Playbook(policy, registry=registry)
    assert first >> start() << Launch(1) >> reply(1, 200, at=0.1) << Deliver(1, Outcome.SUCCESS)
    assert second >> start(0.1) << WakeAt(30.1)
    gate = first.scope.rate
    assert isinstance(gate, TokenGate)
    assert second.call.so_far.next_attempt.gates().held_by == "concurrency"
    assert gate.bucket.level(0.1) > 1.0
    assert first >> ended(1, at=0.2) << Finish(Outcome.SUCCESS)
    assert second >> wake(0.2) << Launch(1)
    assert gate.bucket.level(0.2) < 0.1


def test_an_app_that_leaves_while_no_gate_holds_its_call_shows_no_impatience() -> None:
    registry = Registry()
    for _ in range(3):
        book = Playbook(POLICY, registry=registry)
        assert book >> start() << Launch(1) >> app_gone(1.0) << Cancel(1) << Finish(Outcome.CLIENT_GONE)
    assert book.scope.governor.patience.of("", 1.0) == float("inf")


def test_a_call_that_passed_the_limiter_before_it_was_on_gives_no_token_back() -> None:
    registry, strategy = Registry(), replace(POLICY.strategy, kind="adaptive", paced=True, max_attempts=1)
    classify = Classify(statuses={429: Class.THROTTLING})
    policy = replace(POLICY, strategy=strategy, concurrency=Concurrency(max=1), classify=classify)
    first, second = Playbook(policy, registry=registry), Playbook(policy, registry=registry)
    assert first >> start() << Launch(1)
    assert second >> start(0.1) << WakeAt(30.1)
    assert first >> reply(1, 429, at=0.2) << Deliver(1, Outcome.ATTEMPTS_EXHAUSTED)
    limiter = first.scope.pacing
    assert limiter is not None and limiter.enabled
    level = limiter.level(0.2)
    assert second >> app_gone(0.2) << Finish(Outcome.CLIENT_GONE)
    assert limiter.level(0.2) == level
