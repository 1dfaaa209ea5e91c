"""Transcripts of `Call`: gRPC A6's table of five kinds of answer, its state diagrams, and the turns of redrive's own.

Each reads from top to bottom as the call lives it: `>>` what happens, `<<` what it asks of its driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.playbook import (
    ANY,
    Event,
    Playbook,
    app_gone,
    cut,
    ended,
    fault,
    peeked,
    replay_lost,
    reply,
    start,
    wake,
)

from proxy.retry.call.actions import Answer, Cancel, Deliver, Discard, Finish, Hold, Launch, Peek, WakeAt
from proxy.retry.facts import Class, FaultKind, MappingFields, Outcome, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.dialect import Classify, Dialect, Rule
from proxy.retry.policies.policy import Backoff, IdempotencyKey, Policy, PushbackPolicy, Strategy, Timeouts
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry

UNAVAILABLE, INTERNAL, OK, INVALID_ARGUMENT = 14, 13, 0, 3

CLASSIFY = Classify(
    statuses={429: Class.THROTTLING, 503: Class.TRANSIENT, 504: Class.TIMEOUT},
    faults={
        FaultKind.CONNECT_FAILURE: Class.TRANSIENT,
        FaultKind.REFUSED_STREAM: Class.TRANSIENT,
        FaultKind.RESET: Class.TRANSIENT,
        FaultKind.ATTEMPT_TIMEOUT: Class.TIMEOUT,
    },
    dialects=(Dialect("http"), Dialect("grpc", grpc=True)),
)
GRPC = {"content-type": "application/grpc"}

RETRY = Policy(
    "u",
    "",
    Strategy("grpc", "grpc", 4, Backoff(1.0, 5.0, 3.0, "none"), exact_pushback=True),
    None,
    classify=CLASSIFY,
)
HEDGE = Policy(
    "u",
    "",
    Strategy(
        "hedging",
        "hedging",
        4,
        Backoff(0, 0),
        hedging_delay=1.0,
        non_fatal=frozenset({"UNAVAILABLE", 503, FaultKind.RESET}),
        safe_methods=True,
    ),
    None,
    classify=CLASSIFY,
)
STANDARD = Policy(
    "u",
    "",
    Strategy("standard", "standard", 3, Backoff(0.1, 20.0, 2.0, "none"), QuotaSpec()),
    BucketRef(QuotaSpec()),
    classify=CLASSIFY,
)


def retry() -> Playbook:
    return Playbook(RETRY, method="POST", headers=GRPC)


def hedge() -> Playbook:
    return Playbook(HEDGE, method="POST", headers=GRPC)


class TestFiveKindsOfAnswerUnderARetryPolicy:
    """A6, "Summary of Retry and Hedging Logic"."""

    def test_ok(self) -> None:
        assert (
            retry()
            >> start()
            << Launch(1)
            >> reply(1, 200, grpc=OK, at=0.2)
            << Deliver(1, Outcome.SUCCESS)
            >> ended(1, at=0.2)
            << Finish(Outcome.SUCCESS)
        )

    def test_ok_to_a_retried_call(self) -> None:
        assert (
            retry()
            >> start()
            << Launch(1)
            >> reply(1, 200, grpc=UNAVAILABLE, at=0.2)
            << Hold(1)
            << WakeAt(1.2)
            >> wake(1.2)
            << Discard(1)
            << Launch(2)
            >> reply(2, 200, grpc=OK, at=1.3)
            << Deliver(2, Outcome.SUCCESS)
            >> ended(2, at=1.3)
            << Finish(Outcome.SUCCESS)
        )

    def test_a_fatal_status(self) -> None:
        assert (
            retry()
            >> start()
            << Launch(1)
            >> reply(1, 200, grpc=INVALID_ARGUMENT, at=0.2)
            << Deliver(1, Outcome.NOT_RETRYABLE)
            >> ended(1, at=0.2)
            << Finish(Outcome.NOT_RETRYABLE)
        )

    def test_a_retryable_status_without_pushback(self) -> None:
        """The series 1 s, 3 s, 5 s; then the attempts are used up and the last answer is the app's."""
        assert (
            retry()
            >> start()
            << Launch(1)
            >> reply(1, 200, grpc=UNAVAILABLE, at=0)
            << Hold(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Discard(1)
            << Launch(2)
            >> reply(2, 200, grpc=UNAVAILABLE, at=1.0)
            << Hold(2)
            << WakeAt(4.0)
            >> wake(4.0)
            << Discard(2)
            << Launch(3)
            >> reply(3, 200, grpc=UNAVAILABLE, at=4.0)
            << Hold(3)
            << WakeAt(9.0)
            >> wake(9.0)
            << Discard(3)
            << Launch(4)
            >> reply(4, 200, grpc=UNAVAILABLE, at=9.0)
            << Deliver(4, Outcome.ATTEMPTS_EXHAUSTED)
            >> ended(4, at=9.0)
            << Finish(Outcome.ATTEMPTS_EXHAUSTED)
        )

    @pytest.mark.parametrize("value", ["-1", "soon", ""])
    def test_a_pushback_that_says_do_not_retry(self, value: str) -> None:
        assert (
            retry()
            >> start()
            << Launch(1)
            >> reply(1, 200, grpc=UNAVAILABLE, headers={"grpc-retry-pushback-ms": value}, at=0.2)
            << Deliver(1, Outcome.PUSHBACK_STOP)
            >> ended(1, at=0.2)
            << Finish(Outcome.PUSHBACK_STOP)
        )

    def test_a_pushback_of_n_ms_and_the_series_starts_again(self) -> None:
        pushed = {"grpc-retry-pushback-ms": "40"}
        assert (
            retry()
            >> start()
            << Launch(1)
            >> reply(1, 200, grpc=UNAVAILABLE, at=0)
            << Hold(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Discard(1)
            << Launch(2)
            >> reply(2, 200, grpc=UNAVAILABLE, headers=pushed, at=1.0)
            << Hold(2)
            << WakeAt(1.04)
            >> wake(1.04)
            << Discard(2)
            << Launch(3)
            >> reply(3, 200, grpc=UNAVAILABLE, at=2.0)
            << Hold(3)
            << WakeAt(3.0)
        )


class TestFiveKindsOfAnswerUnderAHedgingPolicy:
    def test_ok_cancels_the_others(self) -> None:
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Launch(2)
            << WakeAt(2.0)
            >> reply(2, 200, grpc=OK, at=1.5)
            << Cancel(1)
            << Deliver(2, Outcome.SUCCESS)
            >> ended(2, at=1.5)
            << Finish(Outcome.SUCCESS)
        )

    def test_a_fatal_status_cancels_the_others(self) -> None:
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Launch(2)
            << WakeAt(2.0)
            >> reply(1, 200, grpc=INVALID_ARGUMENT, at=1.5)
            << Hold(1)
            << Cancel(2)
            << Deliver(1, Outcome.NOT_RETRYABLE)
            >> ended(1, at=1.5)
            << Finish(Outcome.NOT_RETRYABLE)
        )

    def test_a_non_fatal_status_sends_the_next_hedge_at_once_and_the_rest_from_there(self) -> None:
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> reply(1, 200, grpc=UNAVAILABLE, at=0.4)
            << Hold(1)
            << Launch(2)
            << WakeAt(1.4)
            >> wake(1.4)
            << Launch(3)
            << WakeAt(2.4)
        )

    def test_a_pushback_that_says_do_not_retry_ends_hedging_and_no_more(self) -> None:
        stop = {"grpc-retry-pushback-ms": "-1"}
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Launch(2)
            << WakeAt(2.0)
            >> reply(1, 200, grpc=UNAVAILABLE, headers=stop, at=1.5)
            << Hold(1)
            >> wake(2.0)
            >> reply(2, 200, grpc=OK, at=3.0)
            << Discard(1)
            << Deliver(2, Outcome.SUCCESS)
            >> ended(2, at=3.0)
            << Finish(Outcome.SUCCESS)
        )

    def test_the_last_to_fail_after_a_stop_tells_the_last_no(self) -> None:
        stop = {"grpc-retry-pushback-ms": "-1"}
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Launch(2)
            << WakeAt(2.0)
            >> reply(1, 200, grpc=UNAVAILABLE, headers=stop, at=1.5)
            << Hold(1)
            >> reply(2, 200, grpc=UNAVAILABLE, at=3.0)
            << Discard(1)
            << Hold(2)
            << Deliver(2, Outcome.PUSHBACK_STOP)
            >> ended(2, at=3.0)
            << Finish(Outcome.PUSHBACK_STOP)
        )

    def test_a_pushback_of_n_ms_puts_the_next_hedge_there_and_the_rest_from_there(self) -> None:
        pushed = {"grpc-retry-pushback-ms": "700"}
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> reply(1, 200, grpc=UNAVAILABLE, headers=pushed, at=0.1)
            << Hold(1)
            << WakeAt(0.8)
            >> wake(0.8)
            << Launch(2)
            << WakeAt(1.8)
            >> wake(1.8)
            << Launch(3)
            << WakeAt(2.8)
        )


class TestTransparentRetries:
    """A6, "Transparent Retries"; one for each call."""

    def test_never_left_the_proxy(self) -> None:
        assert (
            retry()
            >> start()
            << Launch(1)
            >> fault(1, "connect_failure", at=0.1)
            << Launch(1, fresh=True)
            >> fault(1, "connect_failure", at=0.2)
            << WakeAt(1.2)
            >> wake(1.2)
            << Launch(2)
        )

    def test_refused_before_any_attempt_was_processed(self) -> None:
        assert (
            retry()
            >> start()
            << Launch(1)
            >> fault(1, "refused_stream", at=0.1)
            << Launch(1, fresh=True)
            >> fault(1, "refused_stream", at=0.2)
            << WakeAt(1.2)
        )

    def test_refused_after_one_was_processed_is_a_failure_like_any_other(self) -> None:
        assert (
            retry()
            >> start()
            << Launch(1)
            >> reply(1, 200, grpc=UNAVAILABLE, at=0)
            << Hold(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Discard(1)
            << Launch(2)
            >> fault(2, "refused_stream", at=1.1)
            << WakeAt(4.1)
        )

    def test_a_reused_connection_that_closed(self) -> None:
        assert (
            Playbook(STANDARD)
            >> start()
            << Launch(1)
            >> fault(1, "reset", reused=True, at=0.1)
            << Launch(1, fresh=True)
            >> reply(1, 200, at=0.2)
            << Deliver(1, Outcome.SUCCESS)
            >> ended(1, at=0.3)
            << Finish(Outcome.SUCCESS)
        )

    def test_a_reused_connection_proves_nothing_for_a_post(self) -> None:
        assert (
            Playbook(STANDARD, method="POST")
            >> start()
            << Launch(1)
            >> fault(1, "reset", reused=True, at=0.1)
            << Answer(502, ANY, ANY, Outcome.NOT_RETRYABLE, None, ANY)
            << Finish(Outcome.NOT_RETRYABLE)
        )

    def test_not_after_the_body_was_lost(self) -> None:
        assert (
            retry()
            >> start()
            << Launch(1)
            >> replay_lost(0.05)
            >> fault(1, "refused_stream", at=0.1)
            << Answer(502, ANY, ANY, Outcome.COMMITTED, None, ANY)
            << Finish(Outcome.COMMITTED)
        )


class TestCommitted:
    def test_an_answer_that_has_begun_and_breaks(self) -> None:
        assert (
            Playbook(STANDARD)
            >> start()
            << Launch(1)
            >> reply(1, 200, end=False, at=0.1)
            << Deliver(1, Outcome.SUCCESS)
            >> fault(1, "reset", at=0.2)
            << Finish(Outcome.COMMITTED)
        )

    def test_a_grpc_status_in_the_trailers_comes_too_late(self) -> None:
        assert (
            retry()
            >> start()
            << Launch(1)
            >> reply(1, 200, end=False, at=0.1)
            << Deliver(1, Outcome.SUCCESS)
            >> ended(1, trailers={"grpc-status": "14"}, at=0.2)
            << Finish(Outcome.COMMITTED)
        )

    def test_a_body_that_outgrew_its_buffer(self) -> None:
        assert (
            Playbook(STANDARD, method="PUT")
            >> start()
            << Launch(1)
            >> replay_lost(0.1)
            >> reply(1, 503, at=0.2)
            << Deliver(1, Outcome.COMMITTED)
            >> ended(1, at=0.2)
            << Finish(Outcome.COMMITTED)
        )

    def test_a_body_that_outgrows_while_a_retry_waits(self) -> None:
        play = Playbook(STANDARD, method="PUT")
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0)
            << Hold(1)
            << WakeAt(0.1)
            >> replay_lost(0.05)
            << Deliver(1, Outcome.COMMITTED)
            >> ended(1, at=0.05)
            << Finish(Outcome.COMMITTED)
        )
        assert level(play) == 500  # the granted retry never happened

    def test_hedges_are_cancelled_and_the_oldest_streams_on(self) -> None:
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Launch(2)
            << WakeAt(2.0)
            >> replay_lost(1.5)
            << Cancel(2)
            >> wake(2.0)
            >> reply(1, 200, grpc=OK, at=9)
            << Deliver(1, Outcome.SUCCESS)
            >> ended(1, at=9)
            << Finish(Outcome.SUCCESS)
        )

    def test_hedges_are_cancelled_and_the_one_that_has_sent_most_streams_on(self) -> None:
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Launch(2)
            << WakeAt(2.0)
            >> replay_lost(1.5, furthest=2)
            << Cancel(1)
            >> fault(1, "connect_failure", at=1.6)
            >> reply(2, 200, grpc=OK, at=9)
            << Deliver(2, Outcome.SUCCESS)
            >> ended(2, at=9)
            << Finish(Outcome.SUCCESS)
        )

    def test_an_attempt_that_has_failed_meanwhile_does_not_stream_on(self) -> None:
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> reply(1, 200, grpc=UNAVAILABLE, at=0.5)
            << Hold(1)
            << Launch(2)
            << WakeAt(1.5)
            >> replay_lost(0.6, furthest=1)
            >> reply(2, 200, grpc=OK, at=9)
            << Discard(1)
            << Deliver(2, Outcome.SUCCESS)
            >> ended(2, at=9)
            << Finish(Outcome.SUCCESS)
        )

    def test_the_deadline_holds_where_hedges_share_the_stream(self) -> None:
        at_once = replace(
            HEDGE, strategy=replace(HEDGE.strategy, hedging_delay=0.0, max_attempts=2), timeouts=Timeouts(total=3.0)
        )
        assert (
            Playbook(at_once, method="POST", headers=GRPC)
            >> start()
            << Launch(1)
            << Launch(2)
            >> replay_lost(0.1)
            >> wake(3.0)
            << Cancel(1)
            << Cancel(2)
            << Answer(504, ANY, ANY, Outcome.DEADLINE, None, ANY)
            << Finish(Outcome.DEADLINE)
        )

    def test_hedges_without_a_delay_share_the_stream(self) -> None:
        at_once = replace(HEDGE, strategy=replace(HEDGE.strategy, hedging_delay=0.0))
        assert (
            Playbook(at_once, method="POST", headers=GRPC)
            >> start()
            << Launch(1)
            << Launch(2)
            << Launch(3)
            << Launch(4)
            >> replay_lost(0.1)
            >> reply(3, 200, grpc=OK, at=1)
            << Cancel(1)
            << Cancel(2)
            << Cancel(4)
            << Deliver(3, Outcome.SUCCESS)
            >> ended(3, at=1)
            << Finish(Outcome.SUCCESS)
        )

    def test_a_great_many_hedges_without_a_delay_all_go(self) -> None:
        many = replace(HEDGE, strategy=replace(HEDGE.strategy, hedging_delay=0.0, max_attempts=3000))
        call = Playbook(many, method="POST", headers=GRPC).call
        actions, launched = call.start(0.0), 0
        while launched < 3000:
            now = [action.attempt for action in actions if isinstance(action, Launch)]
            assert now == list(range(launched + 1, launched + 1 + len(now)))
            launched += len(now)
            alarms = [action.at for action in actions if isinstance(action, WakeAt)]
            assert alarms == ([0.0] if launched < 3000 else [])  # something flies, and the alarm for the rest is set
            actions = call.woke(0.0)


class TestTheAppGoesAway:
    def test_while_an_attempt_flies(self) -> None:
        assert (
            Playbook(STANDARD)
            >> start()
            << Launch(1)
            >> app_gone(0.1)
            << Cancel(1)
            << Finish(Outcome.CLIENT_GONE)
            >> reply(1, 200, at=0.2)
        )

    def test_while_a_retry_waits_its_price_comes_back(self) -> None:
        play = Playbook(STANDARD)
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0)
            << Hold(1)
            << WakeAt(0.1)
            >> app_gone(0.05)
            << Discard(1)
            << Finish(Outcome.CLIENT_GONE)
            >> wake(0.1)
        )
        assert level(play) == 500

    def test_while_an_answer_goes_to_it(self) -> None:
        assert (
            Playbook(STANDARD)
            >> start()
            << Launch(1)
            >> reply(1, 200, end=False, at=0.1)
            << Deliver(1, Outcome.SUCCESS)
            >> app_gone(0.2)
            << Cancel(1)
            << Finish(Outcome.CLIENT_GONE)
        )

    def test_while_hedges_fly(self) -> None:
        assert (
            hedge()
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Launch(2)
            << WakeAt(2.0)
            >> app_gone(1.5)
            << Cancel(1)
            << Cancel(2)
            << Finish(Outcome.CLIENT_GONE)
            >> wake(2.0)
        )


class TestTheProcessEnds:
    def test_while_an_attempt_flies(self) -> None:
        play = Playbook(STANDARD)
        assert (
            play
            >> start()
            << Launch(1)
            >> cut(0.1)
            << Cancel(1)
            << Answer(
                503,
                "Overloaded",
                "the proxy shut down, and no longer waited for it",
                Outcome.OVERLOADED,
                1.0,
                "connection_terminated",
            )
            << Finish(Outcome.OVERLOADED)
            >> reply(1, 200, at=0.2)
            >> cut(0.3)
        )
        assert [(record.decision, record.because) for record in play.call.so_far.history] == [
            ("overloaded", "the proxy shut down, and no longer waited for it")
        ]

    def test_what_may_have_been_carried_out_is_not_answered_like_what_was_not(self) -> None:
        """A POST flies, or waits for its retry. A key that redrive added will not be on the app's next request."""
        keyed = replace(STANDARD, idempotency_key=IdempotencyKey(inject=True))
        unknown, later = (502, None), (503, 1.0)
        broken = (fault(1, "reset", at=0.05),)
        for policy, events, sent, expected in (
            (STANDARD, (), True, unknown),
            (STANDARD, (), False, later),
            (keyed, (), True, unknown),
            (keyed, broken, False, unknown),
            (keyed, (*broken, wake(0.15)), False, unknown),
            (keyed, (reply(1, 429, at=0.05), wake(0.15)), False, later),
            (keyed, (reply(1, 429, at=0.05), wake(0.15)), True, unknown),
        ):
            call = Playbook(policy, method="POST").call
            for event in (start(), *events):
                event.happen(call, event.at)
            actions = call.cut(0.2, sent)
            (answer,) = [action for action in actions if isinstance(action, Answer)]
            assert (answer.status, answer.retry_after) == expected, (policy.idempotency_key, events, sent)

    def test_while_a_retry_waits_the_kept_answer_goes_to_the_app_and_its_price_comes_back(self) -> None:
        play = Playbook(STANDARD)
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0)
            << Hold(1)
            << WakeAt(0.1)
            >> cut(0.05)
            << Deliver(1, Outcome.OVERLOADED)
            >> ended(1, at=0.05)
            << Finish(Outcome.OVERLOADED)
        )
        assert level(play) == 500
        assert [record.decision for record in play.call.so_far.history] == ["overloaded"]

    def test_while_a_kept_answer_that_is_not_whole_goes_to_the_app(self) -> None:
        assert (
            Playbook(STANDARD)
            >> start()
            << Launch(1)
            >> reply(1, 503, end=False, at=0)
            << Hold(1)
            << WakeAt(0.1)
            >> cut(0.05)
            << Deliver(1, Outcome.OVERLOADED)
            >> cut(0.05)
            << Cancel(1)
            << Finish(Outcome.COMMITTED)
        )

    def test_while_an_answer_goes_to_the_app(self) -> None:
        play = Playbook(STANDARD)
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 200, end=False, at=0.1)
            << Deliver(1, Outcome.SUCCESS)
            >> cut(0.2)
            << Cancel(1)
            << Finish(Outcome.COMMITTED)
        )
        assert [(record.status, record.decision) for record in play.call.so_far.history] == [(200, "committed")]

    def test_while_hedges_fly(self) -> None:
        play = hedge()
        assert (
            play
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Launch(2)
            << WakeAt(2.0)
            >> reply(1, 503, at=1.1)
            << Hold(1)
            << Launch(3)
            << WakeAt(2.1)
            >> cut(1.5)
            << Cancel(2)
            << Cancel(3)
            << Deliver(1, Outcome.OVERLOADED)
            >> ended(1, at=1.5)
            << Finish(Outcome.OVERLOADED)
        )
        assert {record.attempt: record.decision for record in play.call.so_far.history} == {
            1: "hedged on",
            2: "overloaded",
            3: "overloaded",
        }


class TestDeadlines:
    POLICY = replace(STANDARD, timeouts=Timeouts(total=1.0))

    def test_one_that_ends_an_attempt_in_flight(self) -> None:
        assert (
            Playbook(self.POLICY)
            >> start()
            << Launch(1)
            >> wake(1.0)
            << Cancel(1)
            << Answer(504, ANY, ANY, Outcome.DEADLINE, None, ANY)
            << Finish(Outcome.DEADLINE)
        )

    def test_a_wait_that_would_end_past_it_is_not_begun(self) -> None:
        assert (
            Playbook(self.POLICY)
            >> start()
            << Launch(1)
            >> reply(1, 503, headers={"retry-after": "2"}, at=0.1)
            << Deliver(1, Outcome.DEADLINE)
            >> ended(1, at=0.1)
            << Finish(Outcome.DEADLINE)
        )

    def test_a_wait_that_ends_exactly_then_is_begun(self) -> None:
        assert (
            Playbook(self.POLICY)
            >> start()
            << Launch(1)
            >> reply(1, 503, headers={"retry-after": "1"}, at=0)
            << Hold(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Discard(1)
            << Launch(2)
            >> wake(1.0)
            << Cancel(2)
            << Answer(504, ANY, ANY, Outcome.DEADLINE, None, ANY)
            << Finish(Outcome.DEADLINE)
        )

    def test_under_hedging_it_ends_everything(self) -> None:
        policy = replace(HEDGE, timeouts=Timeouts(total=1.5))
        assert (
            Playbook(policy, method="POST", headers=GRPC)
            >> start()
            << Launch(1)
            << WakeAt(1.0)
            >> wake(1.0)
            << Launch(2)
            << WakeAt(2.0)
            >> wake(1.5)
            << Cancel(1)
            << Cancel(2)
            << Answer(504, ANY, ANY, Outcome.DEADLINE, None, ANY)
            << Finish(Outcome.DEADLINE)
        )


class TestPeeking:
    POLICY = replace(
        STANDARD,
        classify=replace(
            CLASSIFY,
            rules=(Rule(Class.THROTTLING, "rule 1", frozenset({400}), json=((("error", "code"), "rate_limited"),)),),
        ),
    )

    def test_the_body_decides(self) -> None:
        assert (
            Playbook(self.POLICY)
            >> start()
            << Launch(1)
            >> reply(1, 400, end=False, at=0.1)
            << Peek(1, 65536)
            >> peeked(1, b'{"error": {"code": "rate_limited"}}', at=0.2)
            << Hold(1)
            << WakeAt(0.3)
        )

    def test_the_body_decides_otherwise(self) -> None:
        assert (
            Playbook(self.POLICY)
            >> start()
            << Launch(1)
            >> reply(1, 400, end=False, at=0.1)
            << Peek(1, 65536)
            >> peeked(1, b'{"error": {"code": "bad"}}', at=0.2)
            << Deliver(1, Outcome.NOT_RETRYABLE)
            >> ended(1, at=0.2)
            << Finish(Outcome.NOT_RETRYABLE)
        )

    def test_it_breaks_before_it_was_seen(self) -> None:
        assert (
            Playbook(self.POLICY)
            >> start()
            << Launch(1)
            >> reply(1, 400, end=False, at=0.1)
            << Peek(1, 65536)
            >> fault(1, "reset", at=0.2)
            << WakeAt(0.3)
        )

    def test_the_deadline_comes_while_it_is_waited_for(self) -> None:
        policy = replace(self.POLICY, timeouts=Timeouts(total=1.0))
        assert (
            Playbook(policy)
            >> start()
            << Launch(1)
            >> reply(1, 400, end=False, at=0.1)
            << Peek(1, 65536)
            >> wake(1.0)
            << Deliver(1, Outcome.DEADLINE)
            >> ended(1, at=1.2)
            << Finish(Outcome.DEADLINE)
        )


class TestGates:
    def test_a_rate_bucket_makes_the_second_call_wait(self) -> None:
        policy = replace(STANDARD, rate=BucketRef(RateSpec(1.0, 1.0), "pace"))
        registry = Registry()
        assert Playbook(policy, registry=registry) >> start(0) << Launch(1)
        assert Playbook(policy, registry=registry) >> start(0) << WakeAt(1.0) >> wake(1.0) << Launch(1)

    def test_a_rate_bucket_that_rejects(self) -> None:
        policy = replace(STANDARD, rate=BucketRef(RateSpec(1.0, 1.0, when_empty="reject"), "pace"))
        registry = Registry()
        assert Playbook(policy, registry=registry) >> start(0) << Launch(1)
        assert (
            Playbook(policy, registry=registry)
            >> start(0)
            << Answer(503, ANY, ANY, Outcome.RATE_LIMITED, 1.0, ANY)
            << Finish(Outcome.RATE_LIMITED)
        )

    def test_a_retry_that_the_rate_rejects_gives_its_price_back(self) -> None:
        policy = replace(STANDARD, rate=BucketRef(RateSpec(1.0, 1.0, when_empty="reject"), "pace"))
        play = Playbook(policy)
        assert (
            play
            >> start(0)
            << Launch(1)
            >> reply(1, 503, at=0)
            << Hold(1)
            << WakeAt(0.1)
            >> wake(0.1)
            << Deliver(1, Outcome.RATE_LIMITED)
            >> ended(1, at=0.1)
            << Finish(Outcome.RATE_LIMITED)
        )
        assert level(play) == 500
        assert play.call.so_far.history[-1].why == "the upstream's rate bucket has no token for it"

    def test_a_cooldown_holds_other_calls_and_not_the_one_that_met_it(self) -> None:
        registry = Registry()
        policy = STANDARD
        one = Playbook(policy, registry=registry)
        assert one >> start(0) << Launch(1) >> reply(1, 429, headers={"retry-after": "2"}, at=0) << Hold(1) << WakeAt(2)
        two = Playbook(policy, registry=registry)
        assert two >> start(1) << WakeAt(2.0)
        assert one >> wake(2.0) << Discard(1) << Launch(2) >> reply(2, 200, at=2.0) << Deliver(2, Outcome.SUCCESS)
        assert two >> wake(2.0) << Launch(1)

    def test_a_cooldown_that_another_call_made_longer_is_never_missed(self) -> None:
        registry = Registry()
        policy = STANDARD
        flying = Playbook(policy, registry=registry)
        assert flying >> start(0) << Launch(1)
        first = Playbook(policy, registry=registry)
        assert (
            first >> start(0) << Launch(1) >> reply(1, 429, headers={"retry-after": "2"}, at=0) << Hold(1) << WakeAt(2)
        )
        held = Playbook(policy, registry=registry)
        assert held >> start(1) << WakeAt(2.0)
        assert flying >> reply(1, 429, headers={"retry-after": "5"}, at=1.5) << Hold(1) << WakeAt(6.5)
        assert held >> wake(2.0) << WakeAt(6.5)
        assert first >> app_gone(at=3) << Discard(1) << Finish(Outcome.CLIENT_GONE)
        assert held >> wake(6.5) << Launch(1)

    def test_no_room_to_wait_in(self) -> None:
        room = WaitingRoom(0)
        assert (
            Playbook(STANDARD, room=room)
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0)
            << Deliver(1, Outcome.OVERLOADED)
            >> ended(1, at=0)
            << Finish(Outcome.OVERLOADED)
        )

    def test_a_throttle_counts_failures_and_refuses_at_half(self) -> None:
        spec = ThrottleSpec(max_tokens=2)
        assert (
            Playbook(replace(RETRY, bucket=BucketRef(spec)), method="POST", headers=GRPC)
            >> start()
            << Launch(1)
            >> reply(1, 200, grpc=UNAVAILABLE, at=0)
            << Deliver(1, Outcome.BUCKET_EMPTY)
            >> ended(1, at=0)
            << Finish(Outcome.BUCKET_EMPTY)
        )


def level(play: Playbook) -> float:
    """The bucket's level after a play."""
    scope = play.registry.scope(play.call.so_far.policy, Request("GET", "u.test", "/x", MappingFields([])))
    assert scope.bucket is not None
    return scope.bucket.level(0.0)


def test_a_play_that_goes_otherwise_prints_both_columns() -> None:
    with pytest.raises(AssertionError, match=r"(?s)written +\| happened.*Launch\([^)]*attempt=2.*<-- differs"):
        bool(Playbook(STANDARD) >> start() << Launch(2))


def misdirected(at: float, headers: Mapping[str, str]) -> Event:
    """A 421 on a connection that had carried other requests."""
    head = Reply(421, MappingFields(list(headers.items())), end=True)
    head.follows = True
    return Event("head 1: 421", at, lambda call, now: call.head(1, head, now))


def test_an_attempt_after_a_421_is_sent_at_once_unless_the_421_names_a_delay() -> None:
    book = Playbook(RETRY)
    assert book >> start() << Launch(1) >> misdirected(0.1, {}) << Discard(1) << Launch(2, fresh=True, alone=True)
    book = Playbook(RETRY)
    assert book >> start() << Launch(1) >> misdirected(0.1, {"retry-after": "3"}) << Hold(1) << WakeAt(3.1)


def test_a_call_that_a_cooldown_refuses_knows_what_is_left_of_it_and_which_delay_its_own_answer_named() -> None:
    policy = replace(RETRY, pushback=PushbackPolicy(cooldown="reject"))
    registry = Registry()
    first, second = Playbook(policy, registry=registry), Playbook(policy, registry=registry)
    assert first >> start() << Launch(1)
    assert second >> start() << Launch(1)
    assert first.call.so_far.kept_off == (0.0, 0.0)
    assert first >> reply(1, 429, at=0.1, headers={"retry-after": "3"}) << Hold(1) << WakeAt(3.1)
    assert second >> reply(1, 429, at=1.0, headers={"retry-after": "10"}) << Hold(1) << WakeAt(11.0)
    assert first >> wake(3.1) << Deliver(1, Outcome.COOLING)
    assert first.call.so_far.kept_off == pytest.approx((7.9, 3.0))
