"""Going on elsewhere: transcripts of calls that other upstreams take over, and what of a request goes along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.playbook import ANY, Playbook, app_gone, cut, ended, fault, replay_lost, reply, start, wake

from proxy.retry.call.actions import Answer, Cancel, Deliver, Discard, FallBack, Finish, Hold, Launch, WakeAt
from proxy.retry.call.fallback import LeftBehind, stays
from proxy.retry.facts import Class, FaultKind, MappingFields, Outcome, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec
from proxy.retry.policies.dialect import Classify, Dialect, Repeats
from proxy.retry.policies.policy import (
    Backoff,
    BreakerSpec,
    Concurrency,
    EndpointShare,
    Fallback,
    Policy,
    PushbackPolicy,
    Strategy,
    Timeouts,
)
from proxy.retry.queues.waiting_room import WaitingRoom

T, H = Class.TRANSIENT, Class.THROTTLING
CLASSIFY = Classify(
    statuses={429: H, 500: T, 503: T},
    faults=dict.fromkeys((FaultKind.CONNECT_FAILURE, FaultKind.REFUSED_STREAM, FaultKind.RESET), T),
)
ONCE = Strategy("none", "none", 1, Backoff(0.0, 0.0))
TWICE = Strategy("standard", "standard", 2, Backoff(0.1, 20.0, jitter="none"), QuotaSpec())
A, B, C = (Policy(name, "", TWICE, BucketRef(QuotaSpec()), classify=CLASSIFY) for name in "abc")
TO_B, TO_C = Fallback("b"), Fallback("c")
LIST = replace(A, fallback=(TO_B, TO_C))
BRIEF = replace(LIST, strategy=ONCE)
HEDGED = replace(TWICE, hedging_delay=0.5, non_fatal=frozenset({503, FaultKind.RESET}))


def takes(entry: Fallback) -> str:
    """Every upstream takes the call."""
    return ""


def book(policy: Policy = LIST, **more: Any) -> Playbook:
    return Playbook(policy, elsewhere=takes, **more)


class TestWhereACallGoesOn:
    def test_a_chain_of_three(self) -> None:
        play = book()
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0.0)
            << Hold(1)
            << WakeAt(0.1)
            >> wake(0.1)
            << Discard(1)
            << Launch(2)
            >> reply(2, 503, at=0.2)
            << Hold(2)
            << FallBack(TO_B)
            >> play.go_on(B, at=0.2)
            << Discard(2)
            << Launch(3)
            >> reply(3, 503, at=0.3)
            << Hold(3)
            << WakeAt(0.4)  # the backoff begins anew
            >> wake(0.4)
            << Discard(3)
            << Launch(4)
            >> fault(4, "reset", at=0.5)
            << FallBack(TO_C)
            >> play.go_on(C, at=0.5)
            << Launch(5)
            >> reply(5, 200, at=0.6)
            << Deliver(5, Outcome.SUCCESS)
            >> ended(5, at=0.6)
            << Finish(Outcome.SUCCESS)
        )
        records = play.call.so_far.history
        assert [(each.attempt, each.upstream, each.decision) for each in records] == [
            *((1, "a", "retried"), (2, "a", "fell back"), (3, "b", "retried"), (4, "b", "fell back")),
            (5, "c", "delivered"),
        ]
        assert records[1].why == "attempts_exhausted: that was the last of 2 attempts"
        told = play.call.so_far.fallbacks
        assert told is not None
        assert [(each.to, each.outcome) for each in told.records] == [
            ("b", Outcome.ATTEMPTS_EXHAUSTED),
            ("c", Outcome.ATTEMPTS_EXHAUSTED),
        ]

    def test_the_last_of_the_list_ends_it(self) -> None:
        play = book(replace(BRIEF, fallback=(TO_B,)))
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0.0)
            << Hold(1)
            << FallBack(TO_B)
            >> play.go_on(replace(B, strategy=ONCE, fallback=(TO_C,)), at=0.0)  # only the first one's list counts
            << Discard(1)
            << Launch(2)
            >> reply(2, 500, at=0.1)
            << Deliver(2, Outcome.ATTEMPTS_EXHAUSTED)
            >> ended(2, at=0.1)
            << Finish(Outcome.ATTEMPTS_EXHAUSTED)
        )

    def test_a_first_attempt_elsewhere_costs_nothing_and_its_success_pays_back(self) -> None:
        low = BucketRef(QuotaSpec(initial=100))
        play = book(replace(LIST, bucket=low))
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0.0)
            << Hold(1)
            << WakeAt(0.1)
            >> wake(0.1)
            << Discard(1)
            << Launch(2)
            >> reply(2, 503, at=0.2)
            << Hold(2)
            << FallBack(TO_B)
            >> play.go_on(replace(B, bucket=low), at=0.2)
            << Discard(2)
            << Launch(3)
            >> reply(3, 200, at=0.3)
            << Deliver(3, Outcome.SUCCESS)
            >> ended(3, at=0.3)
            << Finish(Outcome.SUCCESS)
        )
        first = play.registry.scope(replace(LIST, bucket=low), play.request)
        assert first.bucket is not None and play.scope.bucket is not None
        assert first.bucket.level(0.3) == 95  # what its retry there had paid is lost: it failed there
        assert play.scope.bucket.level(0.3) == 101

    @pytest.mark.parametrize(
        ("policy", "answer", "no"),
        [
            (replace(LIST, bucket=BucketRef(QuotaSpec(initial=4))), {}, Outcome.BUCKET_EMPTY),
            (LIST, {"retry-after": "61"}, Outcome.PUSHBACK_TOO_LONG),
            (replace(LIST, timeouts=Timeouts(total=0.05)), {}, Outcome.DEADLINE),  # a wait that is not begun
            (BRIEF, {}, Outcome.ATTEMPTS_EXHAUSTED),
        ],
    )
    def test_the_outcomes_after_an_attempt(self, policy: Policy, answer: Mapping[str, str], no: Outcome) -> None:
        play = book(policy)
        assert play >> start() << Launch(1) >> reply(1, 503, headers=answer, at=0.0) << Hold(1) << FallBack(TO_B)
        assert play.call.so_far.fallbacks is not None
        assert [each.outcome for each in play.call.so_far.fallbacks.records] == [no]

    def test_before_any_attempt(self) -> None:
        pace = BucketRef(RateSpec(1.0, 1.0, "reject", initial=0))
        play = book(replace(LIST, rate=pace))
        assert (
            play
            >> start()
            << FallBack(TO_B)
            >> play.go_on(B, at=0.0)
            << Launch(1)
            >> reply(1, 200, at=0.1)
            << Deliver(1, Outcome.SUCCESS)
            >> ended(1, at=0.1)
            << Finish(Outcome.SUCCESS)
        )
        assert [(each.attempt, each.upstream) for each in play.call.so_far.history] == [(1, "b")]

    def test_no_place_among_the_attempts_under_way(self) -> None:
        policy = replace(LIST, concurrency=Concurrency(1, queue=0, wait=1.0))
        first = Playbook(policy)
        assert first >> start() << Launch(1)
        play = book(policy, registry=first.registry)
        assert play >> start() << FallBack(TO_B)
        assert play.call.so_far.fallbacks is not None
        assert play.call.so_far.fallbacks.records[0].outcome is Outcome.OVERLOADED

    def test_no_place_to_wait_in_is_no_reason(self) -> None:
        policy = replace(LIST, rate=BucketRef(RateSpec(1.0, 1.0, initial=0)))
        play = book(policy, room=WaitingRoom(0))
        assert play >> start() << Answer(503, ANY, ANY, Outcome.OVERLOADED, 1.0, ANY) << Finish(Outcome.OVERLOADED)

    def test_an_open_circuit(self) -> None:
        breaker = BreakerSpec(0.5, 1, 30.0, 10.0)
        policy = replace(BRIEF, circuit_breaker=breaker, endpoints=(EndpointShare("a:80"),))
        play = book(policy)
        launched = Launch(1, endpoint=0)
        assert play >> start() << launched >> reply(1, 503, at=0.0) << Hold(1) << FallBack(TO_B)
        again = book(policy, registry=play.registry)
        assert again >> start(1.0) << FallBack(TO_B)
        assert again.call.so_far.fallbacks is not None
        assert again.call.so_far.fallbacks.records[0].outcome is Outcome.CIRCUIT_OPEN

    @pytest.mark.parametrize("disabled", [False, True])
    def test_the_cooldown_of_the_first(self, disabled: bool) -> None:
        """A call that nothing was sent of goes on with X-Retry-Disable too: it makes its one attempt elsewhere."""
        policy = replace(LIST, pushback=PushbackPolicy(cooldown="reject"))
        first = Playbook(policy)
        assert (
            first
            >> start()
            << Launch(1)
            >> reply(1, 503, headers={"retry-after": "30"}, at=0.0)
            << Hold(1)
            << WakeAt(30)
        )
        headers = {"x-retry-disable": "true"} if disabled else {}
        play = book(policy, registry=first.registry, headers=headers)
        play = play >> start() << (Launch(1) if disabled else FallBack(TO_B))
        assert play

    @pytest.mark.parametrize("headers", [{"x-should-retry": "false"}, {}])
    def test_what_ends_for_good(self, headers: dict[str, str]) -> None:
        status = 503 if headers else 404
        no = Outcome.PUSHBACK_STOP if headers else Outcome.NOT_RETRYABLE
        assert book() >> start() << Launch(1) >> reply(1, status, headers=headers, at=0.0) << Deliver(1, no)

    def test_a_disabled_call_stays(self) -> None:
        headers = {"x-retry-disable": "true"}
        play = book(BRIEF, headers=headers)
        assert play >> start() << Launch(1) >> reply(1, 503, at=0.0) << Deliver(1, Outcome.DISABLED)

    @pytest.mark.parametrize("mode", ["observe", "off"])
    def test_modes_that_hold_nobody_do_not_go_on(self, mode: Any) -> None:
        play = book(replace(BRIEF, mode=mode))
        assert play >> start() << Launch(1) >> reply(1, 503, at=0.0) << Deliver(1, Outcome.DISABLED)

    def test_a_deadline_in_flight_is_the_end(self) -> None:
        play = book(replace(LIST, timeouts=Timeouts(total=1.0)))
        answer = Answer(504, ANY, ANY, Outcome.DEADLINE, None, ANY)
        assert play >> start() << Launch(1) >> wake(1.0) << Cancel(1) << answer << Finish(Outcome.DEADLINE)

    def test_a_body_that_is_lost_stays(self) -> None:
        play = book(BRIEF, method="PUT")
        assert (
            play >> start() << Launch(1) >> replay_lost(0.1) >> reply(1, 503, at=0.2) << Deliver(1, Outcome.COMMITTED)
        )

    def test_the_end_of_the_process_is_no_reason(self) -> None:
        play = book()
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0.0)
            << Hold(1)
            << WakeAt(0.1)
            >> cut(0.05)
            << Deliver(1, Outcome.OVERLOADED)
        )

    def test_the_end_of_the_process_is_no_reason_after_a_hedge_found_no_place(self) -> None:
        at_once = replace(HEDGED, hedging_delay=0.0)
        policy = replace(LIST, strategy=at_once, concurrency=Concurrency(1, queue=0, wait=1.0))
        assert (
            book(policy)
            >> start()
            << Launch(1)
            >> cut(0.05)
            << Cancel(1)
            << Answer(503, ANY, ANY, Outcome.OVERLOADED, ANY, ANY)
            << Finish(Outcome.OVERLOADED)
        )

    def test_the_app_leaves_while_it_waits_elsewhere(self) -> None:
        play = book(BRIEF)
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0.0)
            << Hold(1)
            << FallBack(TO_B)
            >> play.go_on(replace(B, rate=BucketRef(RateSpec(1.0, 1.0, initial=0))), at=0.0)
            << WakeAt(1.0)
            >> app_gone(0.5)
            << Discard(1)
            << Finish(Outcome.CLIENT_GONE)
        )
        assert play.call.so_far.history[-1].decision == "fell back"


class TestTheTimeThatIsLeft:
    def test_the_earlier_deadline_stands(self) -> None:
        play = book(replace(BRIEF, timeouts=Timeouts(total=1.0)))
        late = replace(B, timeouts=Timeouts(total=60.0))
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0.75)
            << Hold(1)
            << FallBack(TO_B)
            >> play.go_on(late, at=0.75)
            << Discard(1)
            << Launch(2)
        )
        assert play.call.so_far.deadline == 1.0

    def test_a_shorter_one_of_the_next_holds(self) -> None:
        play = book(BRIEF)
        brief = replace(B, timeouts=Timeouts(total=1.0))
        assert play >> start() << Launch(1) >> reply(1, 503, at=5.0) << Hold(1) << FallBack(TO_B)
        assert play >> play.go_on(brief, at=5.0) << Discard(1) << Launch(2)
        assert play.call.so_far.deadline == 6.0


class TestWhatTheAppGetsInTheEnd:
    def test_the_last_answer_where_nothing_was_sent_elsewhere(self) -> None:
        play = book(replace(BRIEF, fallback=(TO_B,)))
        full = replace(B, rate=BucketRef(RateSpec(1.0, 1.0, "reject", initial=0)))
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0.0)
            << Hold(1)
            << FallBack(TO_B)
            >> play.go_on(full, at=0.0)
            << Deliver(1, Outcome.RATE_LIMITED)
            >> ended(1, at=0.0)
            << Finish(Outcome.RATE_LIMITED)
        )
        (record,) = play.call.so_far.history
        assert record.decision == "rate_limited"
        assert record.why == "attempts_exhausted: the strategy makes one attempt; b: rate_limited"

    def test_hedges_elsewhere_let_go_of_it(self) -> None:
        play = book(BRIEF)
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0.0)
            << Hold(1)
            << FallBack(TO_B)
            >> play.go_on(replace(B, strategy=HEDGED), at=0.0)
            << Discard(1)
            << Launch(2)
            << WakeAt(0.5)
            >> wake(0.5)
            << Launch(3)
            >> fault(2, "reset", at=0.6)
            >> fault(3, "reset", at=0.7)
            << FallBack(TO_C)
        )

    def test_hedges_that_all_failed_go_on(self) -> None:
        play = book(replace(LIST, strategy=HEDGED))
        assert (
            play
            >> start()
            << Launch(1)
            << WakeAt(0.5)
            >> wake(0.5)
            << Launch(2)
            >> reply(1, 503, at=0.6)
            << Hold(1)
            >> reply(2, 503, at=0.7)
            << Discard(1)
            << Hold(2)
            << FallBack(TO_B)
            >> play.go_on(B, at=0.7)
            << Discard(2)
            << Launch(3)
        )


KEY = {"idempotency-key": "k"}
OPENAI = Dialect("openai", repeats=Repeats("a client", statuses=frozenset({503}), faults=frozenset({FaultKind.RESET})))
BY_KEY = (
    Dialect("aws", repeats=Repeats("an SDK", statuses=frozenset({503}))),
    Dialect("stripe", repeats=Repeats("an SDK", statuses=frozenset({503}))),
)


def provider(*dialects: Dialect) -> Classify:
    return replace(CLASSIFY, unsafe_methods="provider", own_dialects=True, dialects=dialects)


class TestWhatIsSafeElsewhere:
    """Case 3 at any attempt binds a call, but where carrying it out twice does no harm."""

    @pytest.mark.parametrize(
        ("method", "headers", "classify", "goes"),
        [
            ("GET", {}, CLASSIFY, True),
            ("HEAD", {}, CLASSIFY, True),
            ("OPTIONS", {}, CLASSIFY, True),
            ("TRACE", {}, CLASSIFY, True),
            ("PUT", {}, CLASSIFY, False),
            ("DELETE", {}, CLASSIFY, False),
            ("POST", KEY, CLASSIFY, False),
            ("POST", {}, replace(CLASSIFY, unsafe_methods="always"), True),
            ("POST", {}, provider(OPENAI), True),
            ("PUT", KEY, provider(*BY_KEY), False),
            ("POST", KEY, provider(*BY_KEY), False),
            ("PUT", {}, provider(*BY_KEY, OPENAI), True),
        ],
    )
    def test_an_unknown_end(self, method: str, headers: dict[str, str], classify: Classify, goes: bool) -> None:
        play = book(replace(BRIEF, classify=classify), method=method, headers=headers)
        play = play >> start() << Launch(1) >> reply(1, 503, at=0.0)
        assert play << Hold(1) << FallBack(TO_B) if goes else play << Deliver(1, Outcome.ATTEMPTS_EXHAUSTED)
        if not goes:
            assert play.call.so_far.fallbacks is not None
            (record,) = play.call.so_far.fallbacks.records
            assert record.skipped == f"{method} may have been carried out"

    @pytest.mark.parametrize("end", ["throttled", "refused", "never sent"])
    def test_what_was_not_carried_out_goes_whatever_it_is(self, end: str) -> None:
        play = book(BRIEF, method="POST")
        if end == "throttled":
            assert play >> start() << Launch(1) >> reply(1, 429, at=0.0) << Hold(1) << FallBack(TO_B)
            return
        kind = "refused_stream" if end == "refused" else "connect_failure"
        again = Launch(1, fresh=True)
        play = play >> start() << Launch(1) >> fault(1, kind, at=0.0) << again
        assert play >> fault(1, kind, at=0.1) << FallBack(TO_B)

    def test_any_attempt_counts_and_not_the_last_alone(self) -> None:
        play = book(method="PUT")
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 503, at=0.0)
            << Hold(1)
            << WakeAt(0.1)
            >> wake(0.1)
            << Discard(1)
            << Launch(2)
            >> reply(2, 429, at=0.2)
            << Deliver(2, Outcome.ATTEMPTS_EXHAUSTED)
        )

    def test_an_attempt_elsewhere_counts_by_the_first_ones_word(self) -> None:
        play = book(BRIEF, method="POST")
        generous = replace(B, strategy=ONCE, classify=replace(CLASSIFY, unsafe_methods="always"))
        assert (
            play
            >> start()
            << Launch(1)
            >> reply(1, 429, at=0.0)
            << Hold(1)
            << FallBack(TO_B)
            >> play.go_on(generous, at=0.0)
            << Discard(1)
            << Launch(2)
            >> reply(2, 503, at=0.1)
            << Deliver(2, Outcome.ATTEMPTS_EXHAUSTED)
        )

    def test_a_request_lost_on_a_reused_connection_may_have_been_carried_out(self) -> None:
        play = book(BRIEF, method="PUT")
        assert (
            play
            >> start()
            << Launch(1)
            >> fault(1, "reset", reused=True, at=0.0)
            << Launch(1, fresh=True)
            >> reply(1, 429, at=0.1)
            << Deliver(1, Outcome.ATTEMPTS_EXHAUSTED)
        )

    @pytest.mark.parametrize(
        ("path", "headers"),
        [
            ("/x", {"authorization": "AWS4-HMAC-SHA256 Credential=a/b"}),
            ("/x", {"authorization": "AWS4-ECDSA-P256-SHA256 Credential=a/b"}),
            ("/x?a=1&X-Amz-Signature=00", {}),
            ("/x?x%2Damz-signature=00", {}),
            ("/x", {"connection": "upgrade", "upgrade": "websocket"}),
        ],
    )
    def test_what_never_goes(self, path: str, headers: dict[str, str]) -> None:
        assert stays(Request("GET", "u.test", path, MappingFields(list(headers.items()))))
        play = book(BRIEF, path=path, headers=headers)
        assert play >> start() << Launch(1) >> reply(1, 429, at=0.0) << Deliver(1, Outcome.ATTEMPTS_EXHAUSTED)

    def test_a_tunnel_never_goes(self) -> None:
        assert stays(Request("CONNECT", "u.test:443", ""))
        assert not stays(Request("GET", "u.test", "/x", MappingFields([("upgrade", "h2c")])))


def test_an_upstream_that_can_not_take_it_is_passed_over() -> None:
    play = Playbook(BRIEF, elsewhere=lambda entry: "" if entry is TO_C else "the body is not JSON")
    assert play >> start() << Launch(1) >> reply(1, 503, at=0.0) << Hold(1) << FallBack(TO_C)
    assert play.call.so_far.fallbacks is not None
    assert [(each.to, each.skipped) for each in play.call.so_far.fallbacks.records] == [
        ("b", "the body is not JSON"),
        ("c", ""),
    ]


def test_where_none_takes_it_it_ends_as_ever() -> None:
    play = Playbook(BRIEF, elsewhere=lambda entry: "no")
    assert play >> start() << Launch(1) >> reply(1, 503, at=0.0) << Deliver(1, Outcome.ATTEMPTS_EXHAUSTED)


# -- what goes along --------------------------------------------------------------------------------------------------

LEFT = LeftBehind(frozenset({"x-llm"}), frozenset({"x-trace-token", "page_key", "sid"}), frozenset({"idempotency-key"}))
FORTY_TWO = "Xb9-Rk_27vQzLm0TtYc4WnEo-Pa81sHdGf6UjKx_i3B"


@pytest.mark.parametrize(
    "name",
    [
        *("authorization", "proxy-authorization", "cookie", "api-key", "x-api-key", "x-goog-api-key"),
        *("x-amz-security-token", "x-auth", "my-secret", "x-session-id", "password", "signature-input", "x-llm"),
        *("x-jwt", "x-bearer", "x-credential", "x-pwd", "x-passwd", "x-passphrase", "dpop", "client-cert", "x-pin"),
        *("x-forwarded-client-cert", "cookie2", "x-csrf-token", "x-otp", "saml-assertion", "x-stainless-api-key"),
    ],
)
def test_fields_that_are_left_out_whatever_their_values(name: str) -> None:
    assert LEFT.field(name, ["1"])
    assert LEFT.field(name, ["abc"])


@pytest.mark.parametrize(
    "name",
    [
        *("referer", "x-team", "x-forwarded-for", "forwarded", "from", "baggage", "last-event-id", "x-acme-grant"),
        *("openai-organization", "stripe-account", "x-goog-user-project"),
    ],
)
def test_a_field_that_is_not_known_is_left_out(name: str) -> None:
    """No list of words could have known these: a field is left out unless it is known to be harmless."""
    assert LEFT.field(name, ["https://a.test/?x"])


@pytest.mark.parametrize(
    "name",
    [
        *("accept", "accept-encoding", "content-type", "content-encoding", "content-length", "transfer-encoding", "te"),
        *("host", "expect", "idempotency-key", "x-trace-token", "keep-alive", "user-agent", "anthropic-version", "via"),
        *("x-redrive-loop", "traceparent", "tracestate", "x-request-id", "if-match", "range", "x-stainless-lang"),
        *("x-stainless-retry-count", "grpc-timeout", "grpc-encoding", "x-amz-checksum-crc32", "x-retry-disable"),
        *("x-http-method-override", "anthropic-beta", "openai-beta"),
    ],
)
def test_fields_that_go_along(name: str) -> None:
    assert not LEFT.field(name, ["any value at all, of 60 characters or more: it is the name that counts"])


@pytest.mark.parametrize(
    ("values", "goes"),
    [
        *((["1"], True), (["250"], True), (["True"], True), (["off"], True), ([""], True), (["1", "no"], True)),
        *((["a"], True), (["1", "abc"], True), (["1, 2"], True), (["1.5"], True), (["acme-prod"], True)),
        *((["2024-01-01"], True), (["de-DE, de;q=0.9"], True), (["eu-west-1"], True), (["BlockBlob"], True)),
        *((["AES256"], True), (["tools/list"], True), (["Europe/Berlin"], True)),
        *((["1234"], False), (["4111-1111-1111-1111"], False), (["s3cr3t"], False), (["aXbYcZdQ"], False)),
        *((["user:pass"], False), (["sk-abc"], False), (["token=abc"], False), (["dXNlcjpwYXNz"], False)),
        *((["a-" * 21], False), (["https://a.test"], False), (["abcdefghijklmnopqrstuvwxyz"], False)),
        *((["plain", "s3cr3t"], False), (["550e8400-e29b-41d4-a716-446655440000"], False), (["Bearer a"], False)),
    ],
)
def test_a_value_that_can_hold_no_secret_goes_along(values: list[str], goes: bool) -> None:
    assert LEFT.field("x-dry-run", values) is not goes


@pytest.mark.parametrize(
    ("value", "goes"),
    [
        *(("acme", True), ("acme_eu.1234", True), ("123456789012", True)),
        *(("550e8400-e29b-41d4-a716-446655440000", True), ("sk-abc", False), (FORTY_TWO, False)),
        *(("9f86d081884c7d65", False), ("a" * 65, False), ("a=b&c=d/e?", False)),
    ],
)
def test_a_tenants_id_goes_along(value: str, goes: bool) -> None:
    """Without it the other upstream would answer for another tenant, or for none."""
    assert LEFT.field("x-tenant-id", [value]) is not goes
    for name in ("x-session-id", "x-sid", "chatgpt-account-id"):
        assert LEFT.field(name, [value])


@pytest.mark.parametrize(
    "name",
    [
        *("if", "x-goog-if-generation-match", "x-ms-if-tags", "x-amz-if-match-size"),  # conditions of a write
        *("x-amz-copy-source", "x-amz-copy-source-range", "upload-offset", "mcp-method", "mcp-name"),
    ],
)
def test_a_field_that_gives_the_request_its_meaning_goes_along(name: str) -> None:
    """A write that loses its condition overwrites, a copy that loses its source empties."""
    assert not LEFT.field(name, ["1699999999999999, /bucket/a%20key?versionId=9f86d081884c7d65"])


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (b"/x", b"/x"),
        (b"/x?", b"/x?"),
        (b"/x?a=1&b=%20&&c", b"/x?a=1&b=%20&&c"),
        (b"/x?key=1", b"/x"),
        (b"/x?key=1&a=2", b"/x?a=2"),
        (b"/x?a=2&Key=1", b"/x?a=2"),
        (b"/x?a=2&%6bey=1&b", b"/x?a=2&b"),
        (b"/x?a=2&sig=1&code=2&b=sig", b"/x?a=2&b=sig"),
        (b"/x?a=2;access_token=1;b=3", b"/x?a=2;b=3"),
        (b"/x?a=2;api-key=1&b=3", b"/x?a=2&b=3"),
        (b"/x?code2=1&signal=2&page_key=3", b"/x?code2=1&signal=2&page_key=3"),
        (b"/token?a=1", b"/token?a=1"),
        (b"/x?jwt=1&pwd=2&user.pin=3&userOtp=4&cookie=5&csrf=6&spin=7", b"/x?spin=7"),
        (b"/x?sid=1&PHPSESSID=2", b"/x?sid=1"),
        (b"/x?sk-abc123", b"/x"),
        (b"/x?wsdl", b"/x?wsdl"),
        (b"/x?hunter2&a=1", b"/x?a=1"),
        (b"/x?abc;sk-abc123", b"/x?abc"),
        (b"/x?sk-abc123=", b"/x"),
        (b"/a;jsessionid=1/b;v=2?c=3", b"/a/b?c=3"),
        (b"/a;secret", b"/a"),
        (b"/a;sid=1;v=2", b"/a;sid=1"),
        (b"/a%3Bjsessionid=1/b", b"/a/b"),
        (b"/a%3bjsessionid%3d1", b"/a"),
        (b"/a%3Bb/c", b"/a%3Bb/c"),
        (b"/;x=1/..;y=2/z", b"//../z"),
    ],
)
def test_parameters_of_the_query_and_the_path_that_are_left_out(path: bytes, wanted: bytes) -> None:
    assert LEFT.target(path) == wanted


@pytest.mark.parametrize(
    "value",
    [
        *(
            "sk-abc123",
            "sk_live_1",
            "ghp_x",
            "AKIAIOSFODNN7EXAMPLE",
            "AIzaSyA1234567",
            "xoxb-1",
            "eyJhbGciOiJIUzI1NiJ9",
        ),
        *("Bearer+abc", "Basic%20dXNlcjpwYXNz", "9f86d081884c7d65", "key-3ax6", FORTY_TWO, "sk%2Dabc", "sk%252Dabc"),
        *("https://u:p@host/", "https%3A%2F%2Fu:p@host%2F", "https://host/?token=abc", "a%3Fpassword%3Dabc"),
        "QWxhZGRpbjpvcGVuIHNlc2FtZSBhbmQgbW9yZQ==",
    ],
)
def test_a_value_that_looks_like_a_key_is_left_out(value: str) -> None:
    assert LEFT.target(f"/x?a=1&x={value}".encode()) == b"/x?a=1"
    assert LEFT.target(f"/x?a=1&page_key={value}".encode()) == f"/x?a=1&page_key={value}".encode()


@pytest.mark.parametrize(
    "value",
    [
        *("1", "claude-3-5-sonnet-20241022", "Meta-Llama-3-70B-Instruct-Turbo", "2026-11-23T17:58:27Z", "a=b"),
        *("20261123T175827Z", "550e8400-e29b-41d4-a716-446655440000", "00000000000000000000", "name:asc", "desk-1"),
        *("https://host/path?page=2", "a+few+plain+words", "internationalization", "50%25"),
    ],
)
def test_a_value_that_looks_like_none_goes_along(value: str) -> None:
    path = f"/x?x={value}".encode()
    assert LEFT.target(path) == path
