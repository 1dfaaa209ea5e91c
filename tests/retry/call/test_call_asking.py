"""Transcripts of calls whose bucket is kept elsewhere: asked in the backoff, decided when the retry is due."""

from __future__ import annotations

from dataclasses import replace

from elsewhere import Elsewhere, ElsewhereFactory
from support.playbook import (
    ANY,
    Event,
    Playbook,
    app_gone,
    ended,
    fault,
    granted,
    refused,
    replay_lost,
    reply,
    start,
    wake,
)

from proxy.lab.clock import BEGIN, Clock
from proxy.lab.driver import Driver, Sending
from proxy.retry.budgets.buckets import RateBucket
from proxy.retry.budgets.token_bucket import REJECTED, TokenGate
from proxy.retry.call.actions import Answer, Ask, Cancel, Deliver, Discard, Finish, Hold, Launch, WakeAt
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.call.payment import PATIENCE
from proxy.retry.call.states import Flying
from proxy.retry.facts import Class, Fault, FaultKind, MappingFields, Outcome, Progress, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Backoff, BreakerSpec, EndpointShare, Policy, Resume, Strategy, Timeouts
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.factory import Factory
from proxy.retry.scopes.registry import Registry
from proxy.retry.weather.caller import Caller, Name
from proxy.retry.weather.cooldown import ALL_CALLERS, NO_CREDENTIAL
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.lane import Lane

SPEC = QuotaSpec(store="redis", initial=0)
POLICY = Policy(
    "u",
    "",
    Strategy("standard", "standard", 3, Backoff(0.1, 20.0, 2.0, "none")),
    BucketRef(SPEC),
    classify=Classify(statuses={503: Class.TRANSIENT, 429: Class.THROTTLING}),
)
AT_ONCE = replace(POLICY, strategy=Strategy("standard", "standard", 3, Backoff(0.0, 0.0, 2.0, "none")))
HEDGED = replace(
    POLICY,
    strategy=Strategy("hedging", "hedging", 3, Backoff(0, 0), hedging_delay=1.0, non_fatal=frozenset({503})),
)


def play(policy: Policy = POLICY, *, room: WaitingRoom | None = None) -> Playbook:
    return Playbook(policy, registry=Registry(ElsewhereFactory()), room=room)


def bucket_of(book: Playbook) -> Elsewhere:
    bucket = book.scope.bucket
    assert isinstance(bucket, Elsewhere)
    return bucket


def failed_once(book: Playbook) -> Playbook:
    """The first attempt fails at 0.01; the retry is due at 0.11."""
    return book >> start() << Launch(1) >> reply(1, 503, at=0.01) << Hold(1) << WakeAt(0.11) << Ask(5, 0.11)


def test_granted_in_the_backoff_it_goes_when_it_is_due() -> None:
    book = play()
    assert (
        failed_once(book)
        >> granted(5, at=0.02)
        >> wake(0.11)
        << Discard(1)
        << Launch(2)
        >> reply(2, 200, at=0.12)
        << Deliver(2, Outcome.SUCCESS)
        >> ended(2, at=0.12)
        << Finish(Outcome.SUCCESS)
    )
    assert bucket_of(book).level(1) == 5  # what the retry had paid has come back


def test_refused_in_the_backoff_it_ends_when_it_is_due() -> None:
    book = play()
    assert (
        failed_once(book)
        >> refused(5, at=0.02)
        << WakeAt(0.11)
        >> wake(0.11)
        << Deliver(1, Outcome.BUCKET_EMPTY)
        >> ended(1, at=0.11)
        << Finish(Outcome.BUCKET_EMPTY)
    )
    assert book.call.so_far.history[-1].decision == "bucket_empty"
    assert book.call.so_far.next_attempt.env.waiting.waiting == 0


def test_refused_but_here_when_it_is_due() -> None:
    book = play()
    assert failed_once(book) >> refused(5, at=0.02) << WakeAt(0.11)
    bucket_of(book).comes(6)
    assert book >> wake(0.11) << Discard(1) << Launch(2)
    assert bucket_of(book).level(1) == 1


def test_due_before_the_answer_it_waits_for_it() -> None:
    assert failed_once(play()) >> wake(0.11) << WakeAt(0.11 + PATIENCE) >> granted(5, at=0.2) << Discard(1) << Launch(2)
    assert (
        failed_once(play())
        >> wake(0.11)
        << WakeAt(0.11 + PATIENCE)
        >> refused(5, at=0.2)
        << Deliver(1, Outcome.BUCKET_EMPTY)
    )
    assert (
        failed_once(play())
        >> wake(0.11)
        << WakeAt(0.11 + PATIENCE)
        >> wake(0.11 + PATIENCE)
        << Deliver(1, Outcome.BUCKET_EMPTY)
    )


def test_without_a_backoff_it_waits_for_the_answer() -> None:
    assert (
        play(AT_ONCE)
        >> start()
        << Launch(1)
        >> reply(1, 503, at=0.01)
        << Hold(1)
        << WakeAt(0.01)
        << Ask(5, 0.01)
        >> granted(5, at=0.01)
        << Discard(1)
        << Launch(2)
    )


def test_the_deadline_ends_the_wait_for_an_answer() -> None:
    assert (
        failed_once(play(replace(POLICY, timeouts=Timeouts(total=0.3))))
        >> wake(0.11)
        << WakeAt(0.3)
        >> wake(0.3)
        << Deliver(1, Outcome.DEADLINE)
    )


def test_a_grant_that_nobody_wants_any_more_goes_back() -> None:
    book = play()
    assert failed_once(book) >> app_gone(0.05) << Discard(1) << Finish(Outcome.CLIENT_GONE) >> granted(5, at=0.06)
    assert bucket_of(book).level(1) == 5
    book = play()
    assert failed_once(book) >> replay_lost(0.05) << Deliver(1, Outcome.COMMITTED) >> granted(5, at=0.06)
    assert bucket_of(book).level(1) == 5


def test_what_is_here_pays_when_it_is_due_and_the_late_grant_goes_back() -> None:
    book = play()
    assert failed_once(book)
    bucket_of(book).comes(5)
    assert book >> wake(0.11) << Discard(1) << Launch(2) >> granted(5, at=0.12)
    assert bucket_of(book).level(1) == 5


def test_an_answer_to_an_earlier_question_is_none_to_a_later_one() -> None:
    """The first retry was paid from here before its answer came; the second asks at another price."""
    book = play(replace(POLICY, bucket=BucketRef(replace(SPEC, throttling_cost=7))))
    assert failed_once(book)
    bucket_of(book).comes(5)
    assert (
        book
        >> wake(0.11)
        << Discard(1)
        << Launch(2)
        >> reply(2, 429, at=0.2)
        << Hold(2)
        << WakeAt(0.4)
        << Ask(7, 0.4)
        >> refused(5, at=0.21)
        >> granted(7, at=0.22)
        >> wake(0.4)
        << Discard(2)
        << Launch(3)
    )


def test_no_question_where_the_answer_is_known() -> None:
    book = play()
    bucket_of(book).known_empty = True
    assert book >> start() << Launch(1) >> reply(1, 503, at=0.01) << Deliver(1, Outcome.BUCKET_EMPTY)


def test_no_question_without_room_to_wait() -> None:
    book = play(AT_ONCE, room=WaitingRoom(0))
    assert book >> start() << Launch(1) >> reply(1, 503, at=0.01) << Deliver(1, Outcome.OVERLOADED)


class TestHedging:
    def test_a_hedge_asks_when_it_is_due_and_goes_when_granted(self) -> None:
        book = play(HEDGED)
        assert (
            book
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << WakeAt(1.0 + PATIENCE)
            << Ask(5, 1.0)
            >> granted(5, at=1.01)
            << Launch(2)
            << WakeAt(2.01)
            >> reply(2, 200, at=1.5)
            << Cancel(1)
            << Deliver(2, Outcome.SUCCESS)
            >> ended(2, at=1.5)
            << Finish(Outcome.SUCCESS)
        )
        assert bucket_of(book).level(2) == 5

    def test_refused_or_silent_it_ends_hedging_and_what_flies_goes_on(self) -> None:
        asked = (
            play(HEDGED) >> start() << Launch(1) << WakeAt(1.0) >> wake(1.0) << WakeAt(1.0 + PATIENCE) << Ask(5, 1.0)
        )
        assert asked >> refused(5, at=1.01) >> reply(1, 503, at=1.2) << Hold(1) << Deliver(1, Outcome.BUCKET_EMPTY)
        asked = (
            play(HEDGED) >> start() << Launch(1) << WakeAt(1.0) >> wake(1.0) << WakeAt(1.0 + PATIENCE) << Ask(5, 1.0)
        )
        assert (
            asked
            >> wake(1.0 + PATIENCE)
            >> reply(1, 503, at=1.2 + PATIENCE)
            << Hold(1)
            << Deliver(1, Outcome.BUCKET_EMPTY)
        )

    def test_with_nothing_in_flight_a_no_ends_the_call(self) -> None:
        failed = play(HEDGED) >> start() << Launch(1) << WakeAt(1.0) >> reply(1, 503, at=0.5) << Hold(1)
        assert failed << WakeAt(0.5 + PATIENCE) << Ask(5, 0.5) >> refused(5, at=0.6) << Deliver(1, Outcome.BUCKET_EMPTY)

    def test_an_answer_wins_while_the_question_is_out_and_the_grant_goes_back(self) -> None:
        book = play(replace(HEDGED, rate=BucketRef(RateSpec(1, 2), name="pace")))
        assert (
            book
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << WakeAt(1.0 + PATIENCE)
            << Ask(5, 1.0)
            >> reply(1, 200, at=1.1)
            << Deliver(1, Outcome.SUCCESS)
            >> granted(5, at=1.2)
        )
        assert bucket_of(book).level(2) == 5
        assert book.scope.rates
        assert book.scope.rates[0].level(1.2) == 2  # the token of the hedge that was not sent

    def test_a_failure_while_the_question_is_out_asks_no_other(self) -> None:
        assert (
            play(HEDGED)
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << WakeAt(1.0 + PATIENCE)
            << Ask(5, 1.0)
            >> reply(1, 503, at=1.1)
            << Hold(1)
            << WakeAt(1.0 + PATIENCE)
            >> granted(5, at=1.2)
            << Launch(2)
            << WakeAt(2.2)
        )

    def test_a_pushback_meanwhile_puts_the_hedge_off(self) -> None:
        book = play(HEDGED)
        assert (
            book
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << WakeAt(1.0 + PATIENCE)
            << Ask(5, 1.0)
            >> reply(1, 503, at=1.1, headers={"retry-after": "3"})
            << Hold(1)
            << WakeAt(1.0 + PATIENCE)
            >> granted(5, at=1.2)
            << WakeAt(4.1)
            >> wake(4.1)
            << Launch(2)
            << WakeAt(5.1)
        )
        assert bucket_of(book).level(5) == 0

    def test_hedges_that_all_go_at_once_ask_one_after_another(self) -> None:
        policy = replace(HEDGED, strategy=replace(HEDGED.strategy, hedging_delay=0.0))
        assert (
            play(policy)
            >> start()
            << Launch(1)
            << WakeAt(PATIENCE)
            << Ask(5, 0.0)
            >> granted(5, at=0.01)
            << Launch(2)
            << WakeAt(0.01 + PATIENCE)
            << Ask(5, 0.01)
            >> granted(5, at=0.02)
            << Launch(3)
        )

    def test_a_grant_beside_an_attempt_whose_breaker_opened_ends_hedging_only(self) -> None:
        breaker = BreakerSpec(0.5, 1, 30.0, 10.0)
        book = play(replace(HEDGED, circuit_breaker=breaker, endpoints=(EndpointShare("u:80"),)))
        assert asked(book, endpoint=0)
        open_up(book)
        assert book >> granted(5, at=1.1)
        assert bucket_of(book).level(2) == 5
        assert book >> reply(1, 200, at=1.5) << Deliver(1, Outcome.SUCCESS)
        assert under_way(book) == 0

    def test_a_refusal_at_the_deadline_leaves_the_attempt_in_flight_until_the_deadline_rings(self) -> None:
        book = play(replace(HEDGED, timeouts=Timeouts(total=1.5)))
        assert asked(book, limit=1.5) >> refused(5, at=1.5)
        assert under_way(book) == 1
        assert (
            book
            >> wake(1.5)
            << Cancel(1)
            << Answer(504, ANY, ANY, Outcome.DEADLINE, ANY, ANY, ANY)
            << Finish(Outcome.DEADLINE)
        )
        assert under_way(book) == 0

    def test_an_answer_at_the_deadline_counts_after_the_refusal(self) -> None:
        book = play(replace(HEDGED, timeouts=Timeouts(total=1.5)))
        assert asked(book, limit=1.5) >> refused(5, at=1.5) >> reply(1, 200, at=1.5) << Deliver(1, Outcome.SUCCESS)

    def test_a_granted_hedge_that_an_outage_holds_waits_beside_the_attempt_and_pays_once(self) -> None:
        book = play(replace(HEDGED, outage="hold"))
        assert asked(book)
        begin_outage(book, 1.05)
        assert book >> granted(5, at=1.1) << WakeAt(ANY)
        assert isinstance(book.call.so_far.state, Flying)
        assert list(book.call.so_far.state.flights) == [1]
        book.scope.governor.first.end_outage(1.3)
        assert book >> wake(1.3) << Launch(2) << WakeAt(2.3)  # and the bucket is not asked again
        assert book >> reply(2, 200, at=1.5) << Cancel(1) << Deliver(2, Outcome.SUCCESS)
        assert under_way(book) == 0

    def test_a_granted_hedge_that_an_outage_holds_pays_anew_if_it_is_put_off(self) -> None:
        book = play(replace(HEDGED, outage="hold"))
        assert asked(book)
        begin_outage(book, 1.05)
        assert book >> granted(5, at=1.1) << WakeAt(ANY)
        assert book >> reply(1, 503, at=1.2, headers={"retry-after": "3"}) << Hold(1) << WakeAt(4.2)
        assert bucket_of(book).level(2) == 5

    def test_a_first_attempt_that_was_a_probe_is_sent_again_whatever_the_bucket_has(self) -> None:
        """A first attempt pays nothing, and the probe was not processed: it does not count."""
        unconnected = FaultKind.CONNECT_FAILURE
        strategy = replace(HEDGED.strategy, non_fatal=frozenset({unconnected}))
        classify = Classify(faults={unconnected: Class.TRANSIENT})
        empty = BucketRef(ThrottleSpec(max_tokens=4, initial=2))
        book = Playbook(replace(HEDGED, outage="hold", strategy=strategy, classify=classify, bucket=empty))
        begin_outage(book, 0.9, holds=False)
        assert book >> start(0.95) << WakeAt(1.0) >> wake(1.0) << Launch(1) << WakeAt(2.0)
        assert book >> fault(1, "connect_failure", at=1.1) << Launch(1, fresh=True)
        assert book >> fault(1, "connect_failure", at=1.2) << WakeAt(ANY)
        assert book >> wake(1.5) << Launch(2) << WakeAt(2.5)

    def test_the_probe_of_an_outage_that_failed_waits_again_beside_the_attempt(self) -> None:
        unconnected = FaultKind.CONNECT_FAILURE
        strategy = replace(HEDGED.strategy, non_fatal=frozenset({503, unconnected}))
        classify = Classify(faults={unconnected: Class.TRANSIENT})
        book = play(replace(HEDGED, outage="hold", strategy=strategy, classify=classify))
        bucket_of(book).comes(6)
        assert book >> start() << Launch(1) << WakeAt(1.0)
        begin_outage(book, 0.9, holds=False)
        assert book >> wake(1.0) << Launch(2) << WakeAt(2.0)
        assert book >> fault(2, "connect_failure", at=1.1) << Launch(2, fresh=True)
        assert book >> fault(2, "connect_failure", at=1.2) << WakeAt(ANY)
        assert under_way(book) == 1
        assert bucket_of(book).level(2) == 1  # what the probe paid is kept for the next
        assert (
            book >> reply(1, 200, at=1.3) << Deliver(1, Outcome.SUCCESS) >> ended(1, at=1.3) << Finish(Outcome.SUCCESS)
        )
        assert under_way(book) == 0
        assert bucket_of(book).level(2) == 7  # the price that came back, and the token of a success without a retry


def asked(book: Playbook, *, limit: float = 1.0 + PATIENCE, endpoint: int | None = None) -> Playbook:
    """The first attempt is in flight, and the bucket is asked for the price of a hedge."""
    launch = Launch(1, endpoint=endpoint)
    return book >> start() << launch << WakeAt(1.0) >> wake(1.0) << WakeAt(limit) << Ask(5, 1.0)


def under_way(book: Playbook) -> int:
    """The attempts that the governor counts as under way."""
    return book.scope.governor.traffic.flying


def open_up(book: Playbook) -> None:
    """Open the circuit breakers of all endpoints."""
    assert book.scope.endpoints is not None
    for breaker in book.scope.endpoints.of("u.test").breakers:
        assert breaker is not None
        breaker.ended(True, 1.0, 0, 1.0)


def begin_outage(book: Playbook, now: float, *, holds: bool = True) -> None:
    """Let two attempts of another call fail to connect, so that an outage begins; it `holds` a third call."""
    governor, caller = book.scope.governor, Caller(book.request, MappingFields([]), "")
    caller.outages = True
    book.scope.governor.traffic.answered_at = now - 1.0  # an outage of what never answered is none
    for lost in range(2):
        ending = AttemptEnding(False, True, False, False, "endpoint", "connect_failure")
        governor.failed(object(), caller, ending, now, now, again=lost > 0, cools=False)
    assert governor.first.outage.is_on
    if holds:
        assert governor.ask(Waiting(), caller, now)[1] == "outage"


def test_a_driver_on_the_virtual_clock_asks_and_is_answered() -> None:
    clock, registry = Clock(), Registry(ElsewhereFactory())
    request = Request("GET", "u.test", "/")
    scope = registry.scope(POLICY, request)

    def fails(attempt: int, now: float) -> Sending:
        return Sending(0.01, Reply(503 if attempt == 1 else 200, MappingFields([])))

    driver = Driver(clock, fails)
    call = Call(request, POLICY, scope, Env(_NoDraw()), driver.set_alarm)
    clock.at(0.0, BEGIN, driver.begin, call)
    clock.run(0.05)
    bucket = scope.bucket
    assert isinstance(bucket, Elsewhere)
    ((price, answer),) = bucket.asked
    answer(price, True)
    clock.run()
    assert (driver.outcome, call.so_far.attempts) == (Outcome.SUCCESS, 2)


class _NoDraw:
    def random(self) -> float:
        return 0.0


def test_a_gate_that_is_being_asked_turns_nobody_away() -> None:
    bucket = RateBucket(RateSpec(0.001, 1))
    gate = TokenGate(bucket, rejects=True)
    one, other, third = Waiting(), Waiting(), Waiting()
    assert bucket.take(0.0)
    gate.asking = True
    assert 0 < gate.ask(one, 0.0) < REJECTED
    assert 0 < gate.ask(other, 0.0) < REJECTED
    gate.asking = False
    bucket.give_back(0.1)
    assert gate.ask(one, 0.1) == 0.1
    assert gate.ask(other, 0.1) == REJECTED
    assert gate.ask(third, 0.1) == REJECTED
    assert not gate.queue


def test_who_starts_a_cooldown_says_so() -> None:
    told: list[object] = []

    class Telling:
        def adopt(self, name: Name, lane: Lane) -> None:
            told.append(name)

        def forget(self, name: Name) -> None:
            told.append(name)

        def began(self, name: Name, status: int, delay: float, *, sent: float, now: float) -> None:
            told.append((name, status, delay, sent, now))

        def asked(self, name: Name, now: float) -> None:
            told.append((name, now))

    class Announcing(Factory):
        def governor(self, upstream: str, value: str) -> Governor:
            made = super().governor(upstream, value)
            made.lanes.join(Telling())
            return made

    policy = replace(POLICY, bucket=None)
    book = Playbook(policy, registry=Registry(Announcing()))
    assert (
        book >> start() << Launch(1) >> reply(1, 429, at=1.0, headers={"retry-after": "20"}) << Hold(1) << WakeAt(21.0)
    )
    lane = ("", NO_CREDENTIAL)
    assert told == [("", ALL_CALLERS), lane, (lane, 429, 20.0, 0.0, 1.0)]
    assert book >> wake(21.0) << Discard(1) << Launch(2) >> reply(2, 200, at=21.1) << Deliver(2, Outcome.SUCCESS)


class Waiting:
    def retime(self, at: float) -> None:
        pass


def test_a_hedge_that_a_pushback_put_off_is_decided_when_it_is_due() -> None:
    """Its bucket's no comes while it is put off; what is here by then pays."""
    book = play(HEDGED)
    assert (
        book
        >> start()
        << Launch(1)
        << WakeAt(1.0)
        >> wake(1.0)
        << WakeAt(1.0 + PATIENCE)
        << Ask(5, 1.0)
        >> reply(1, 503, at=1.5, headers={"retry-after": "3"})
        << Hold(1)
        << WakeAt(1.0 + PATIENCE)
        >> refused(5, at=1.6)
        << WakeAt(4.5)
    )
    bucket_of(book).comes(6)
    assert book >> wake(4.5) << Launch(2) << WakeAt(5.5)


def broke(attempt: int, *, at: float) -> Event:
    """The answer that goes to the app breaks after 10 bytes."""
    what = Fault(FaultKind.RESET, Progress.UNKNOWN)
    return Event(f"broke {attempt}", at, lambda call, now: call.broke(attempt, what, 10, now, now))


def test_the_rest_of_a_broken_answer_is_not_asked_for_before_its_price_is_granted() -> None:
    book = play(replace(AT_ONCE, resume=Resume(), classify=Classify(faults={FaultKind.RESET: Class.TRANSIENT})))
    assert (
        book
        >> start()
        << Launch(1)
        >> reply(1, 200, at=0.01, end=False)
        << Deliver(1, Outcome.SUCCESS)
        >> broke(1, at=0.02)
        << WakeAt(0.02)
        << Ask(5, 0.02)
        >> granted(5, at=0.03)
        << Launch(2)
    )
