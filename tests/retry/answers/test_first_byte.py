"""A success whose head is kept: what counts, what is looked at, and what becomes of the call (contract, section 13)."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.playbook import ANY, Event, Playbook, ended, fault, peeked, reply, request_sent, start, wake

from proxy.config.classification import dialects
from proxy.config.problems import Mark, Problems
from proxy.retry.answers.classification import NEEDS_BODY, classify, may_look_into
from proxy.retry.answers.first_byte import PEEK_LIMIT, BodyWait, asks_for_stream, first_byte_of
from proxy.retry.call.actions import Answer, Cancel, Deliver, Discard, Finish, Hold, Launch, Peek, WakeAt
from proxy.retry.facts import Class, FaultKind, MappingFields, Outcome, Progress, Reply, Request, Verdict
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.dialect import Classify, Dialect, EventRule, Rule
from proxy.retry.policies.policy import AutoLimit, Backoff, Policy, Strategy, Timeouts
from proxy.retry.scopes.registry import Registry

POST = Request("POST", "h", "/v1/messages")
SSE = ("content-type", "text/event-stream; charset=utf-8")
JSON = ("content-type", "application/json")


def pack(name: str) -> Dialect:
    problems = Problems()
    (found,) = dialects([name], [Mark("", 0, 0)], (), problems)
    assert not problems.errors
    return found


ANTHROPIC, OPENAI = pack("anthropic"), pack("openai")
FAULTS = {FaultKind.RESET: Class.TRANSIENT, FaultKind.ATTEMPT_TIMEOUT: Class.TIMEOUT}
STATUSES = {429: Class.THROTTLING, 503: Class.TRANSIENT}


def rules(*packs: Dialect, own: tuple[Rule, ...] = (), unsafe: str = "provider") -> Classify:
    return Classify(STATUSES, {}, FAULTS, own, packs, unsafe_methods=unsafe, own_dialects=True)  # type: ignore[arg-type]


def opens(name: str | None, **data: object) -> bytes:
    line = b"" if name is None else f"event: {name}\n".encode()
    return line + b"data: " + json.dumps(data).encode() + b"\n\n"


def verdict(by: Classify, body: bytes | None, *fields: tuple[str, str], status: int = 200) -> Verdict:
    found = classify(by, POST, Reply(status, MappingFields([*fields])), body)
    assert isinstance(found, Verdict)
    return found


# -- the packs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "body", "cls", "counts_as", "repeated"),
    [
        (ANTHROPIC, opens("error", type="error", error={"type": "overloaded_error"}), Class.TRANSIENT, 529, True),
        (ANTHROPIC, opens("error", type="error", error={"type": "api_error"}), Class.TRANSIENT, 500, True),
        (ANTHROPIC, opens("error", type="error", error={"type": "rate_limit_error"}), Class.THROTTLING, 429, True),
        (ANTHROPIC, opens("error", type="error", error={"type": "invalid_request_error"}), Class.FATAL, 400, False),
        (ANTHROPIC, opens("error"), Class.FATAL, 400, False),
        (ANTHROPIC, opens("content_block_start", type="content_block_start"), Class.SUCCESS, None, False),
        (OPENAI, opens(None, error={"message": "m", "type": "server_error", "code": None}), Class.TRANSIENT, 500, True),
        (OPENAI, opens("error", type="error", code="server_error", message="m"), Class.TRANSIENT, 500, True),
        (OPENAI, opens("error", error={"code": "server_error", "message": "m"}), Class.TRANSIENT, 500, True),
        (OPENAI, opens(None, error={"code": 502, "message": "m"}), Class.TRANSIENT, 500, True),
        (OPENAI, opens(None, error={"code": "rate_limit_exceeded", "message": ""}), Class.THROTTLING, 429, True),
        (OPENAI, opens("response.failed", response={"error": {"code": "server_error"}}), Class.TRANSIENT, 500, True),
        (OPENAI, opens(None, error={"message": "m", "type": "invalid_request_error"}), Class.FATAL, 400, False),
        (OPENAI, opens(None, error={"message": "m", "type": "insufficient_quota"}), Class.FATAL, 429, False),
        (OPENAI, opens(None, id="1", error=None, choices=[]), Class.SUCCESS, None, False),
        (OPENAI, b"data: [DONE]\n\n", Class.SUCCESS, None, False),
    ],
)
def test_a_stream_that_opens_with_an_error_is_a_failure_like_any_other(
    of: Dialect, body: bytes, cls: Class, counts_as: int | None, repeated: bool
) -> None:
    by = rules(of)
    assert may_look_into(by, 200, MappingFields([SSE]))
    found = verdict(by, body, SSE)
    assert (found.cls, found.counts_as, bool(found.repeated_by)) == (cls, counts_as, repeated)
    assert verdict(by, b": hello\n\n" + body, SSE).cls is cls
    for name in of.empty_events:
        assert verdict(by, opens(name, error={"type": "overloaded_error", "message": "m"}) + body, SSE).cls is cls
    assert verdict(by, opens("delta", text="x") + body, SSE).cls is Class.SUCCESS  # it comes later


def test_only_where_a_rule_could_match_is_an_answer_held() -> None:
    busy = Rule(Class.TRANSIENT, "rule 1", frozenset({200}), json=((("error", "code"), "server_busy"),))
    event = Rule(Class.TRANSIENT, "rule 1", frozenset({200}), event=EventRule("error"))
    for rule, held, passed in (
        (event, [(SSE,)], [(JSON,), (), (SSE, ("content-encoding", "br"))]),
        (busy, [(JSON,), (), (("content-type", "application/problem+json"),), (JSON, ("content-length", "65536"))],
         [(SSE,), (("content-type", "text/html"),), (JSON, ("content-length", "65537")),
          (("content-type", "application/x-ndjson"),), (JSON, ("content-encoding", "br, gzip"))]),
    ):  # fmt: skip
        by = rules(own=(rule,))
        assert all(may_look_into(by, 200, MappingFields([*fields])) for fields in held)
        assert not any(may_look_into(by, 200, MappingFields([*fields])) for fields in passed)
        assert not may_look_into(by, 201, MappingFields([*held[0]]))
    unnamed = Rule(Class.TRANSIENT, "rule 1", json=((("error", "code"), "server_busy"),))
    assert not may_look_into(rules(own=(unnamed,)), 200, MappingFields([JSON]))
    assert classify(rules(own=(unnamed,)), POST, Reply(400, MappingFields([JSON])), None) is NEEDS_BODY


def test_json_on_a_success_is_that_of_a_whole_body() -> None:
    busy = Rule(Class.TRANSIENT, "rule 1", frozenset({200, 400}), json=((("error", "code"), "server_busy"),))
    by, said = rules(own=(busy,)), b'{"error": {"code": "server_busy"}}'
    assert verdict(by, said, JSON).cls is Class.TRANSIENT
    assert verdict(by, said, JSON, status=400).cls is Class.TRANSIENT
    assert verdict(by, gzip.compress(said), JSON, ("content-encoding", "gzip")).cls is Class.TRANSIENT
    assert verdict(by, said[:-1], JSON).cls is Class.SUCCESS
    assert verdict(by, b"data: " + said + b"\n\n", SSE).cls is Class.SUCCESS
    assert verdict(by, said, JSON).counts_as == 503
    assert verdict(by, said, JSON, status=400).counts_as is None


def test_an_operators_own_rule_counts_as_503_for_what_clients_repeat() -> None:
    own = Rule(Class.TRANSIENT, "rule 1", frozenset({200}), event=EventRule("oops", ((("a", "b"), "x*"),)))
    by = rules(OPENAI, own=(own,))
    assert verdict(by, opens("oops", a={"b": "xy"}), SSE).repeated_by == "openai"
    assert verdict(by, opens("oops", a={"b": "y"}), SSE).cls is Class.SUCCESS
    assert verdict(by, opens("fine", a={"b": "xy"}), SSE).cls is Class.SUCCESS
    anyone = replace(own, event=EventRule(None, own.event.json if own.event else ()))
    assert verdict(rules(own=(anyone,)), opens(None, a={"b": "xy"}), SSE).cls is Class.TRANSIENT
    assert verdict(rules(own=(replace(own, event=EventRule("message")),)), opens(None), SSE).cls is Class.TRANSIENT
    escaped = b'data: {"\\u0061": {"b": "xyz"}}\n\n'  # the name of the member, as JSON may write it too
    assert verdict(rules(own=(anyone,)), escaped, SSE).cls is Class.TRANSIENT


# -- what bounds the first byte ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        (b'{"model": "m", "stream": true}', True),
        (b' {"stream" : true, "a": {"stream": false}}', True),
        (b'{"a": {"stream": true}}', False),
        (b'{"stream": false}', False),
        (b'{"stream": "true"}', False),
        (b'{"stream": 1}', False),
        (b'[{"stream": true}]', False),
        (b'{"stream": true', False),
        (b"", False),
        (None, False),
        (b"[" * 100_000 + b'"stream"', False),
    ],
)
def test_a_body_that_asks_for_a_stream(body: bytes | None, asked: bool) -> None:
    assert asks_for_stream(None if body is None else [body[:5], body[5:]]) is asked


def test_what_is_bounded() -> None:
    plain = Policy("u", "", Strategy("standard", "standard", 3, Backoff(0.1, 1.0)), None)
    bounded = replace(plain, timeouts=Timeouts(first_byte=20.0))
    streaming = [b'{"stream": true}']
    assert first_byte_of(plain, POST, None) is None
    assert first_byte_of(bounded, POST, None) == 20.0
    packed = replace(bounded, classify=rules(ANTHROPIC))
    assert first_byte_of(packed, POST, streaming) == 20.0
    assert first_byte_of(packed, POST, [b'{"stream": false}']) is None
    assert first_byte_of(packed, POST, None) is None
    assert first_byte_of(replace(bounded, mode="observe"), POST, None) is None
    assert first_byte_of(bounded, Request("CONNECT", "h:443", ""), None) is None
    grpc = Request("POST", "h", "/", MappingFields([("content-type", "application/grpc+proto")]))
    assert first_byte_of(bounded, grpc, None) is None


# -- what counts ------------------------------------------------------------------------------------------------------


def look(*fields: tuple[str, str], whole: bool = False, empty: frozenset[str] = ANTHROPIC.empty_events) -> BodyWait:
    return BodyWait(Reply(200, MappingFields([*fields])), empty, 20.0, whole=whole)


STREAM = b": hi\n\n" + opens("ping") + opens("message_start", message={}) + opens("ping") + opens("delta", text="x")


@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.sampled_from(["", "gzip", "deflate", "bare", "br"]))
def test_the_first_event_that_counts_is_seen_with_its_last_byte(cuts: list[int], coding: str) -> None:
    packers = {
        "": None, "br": None, "gzip": zlib.compressobj(wbits=31), "deflate": zlib.compressobj(wbits=15),
        "bare": zlib.compressobj(wbits=-15),
    }  # fmt: skip
    packer = packers[coding]
    fields = [SSE] + ([("content-encoding", coding.replace("bare", "deflate"))] if coding else [])
    seen = look(*fields, whole=True)
    begun = 0
    for begin, end in pairwise([0, *sorted(cuts), len(STREAM)]):
        piece = STREAM[begin:end]
        if packer is not None:
            piece = packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
        if not piece:
            continue
        begun += 1
        done = seen.feed(piece, float(begun))
        assert done is (seen.counted is not None)
        assert done is (end == len(STREAM) or coding == "br")  # what can't be read counts at once
        if done:
            break


def test_of_anything_else_any_byte_counts_and_json_is_read_to_its_end() -> None:
    assert look(JSON).feed(b" ", 3.0)
    held = look(JSON, whole=True)
    held.began = 1.0
    assert held.due == 21.0
    assert not held.feed(b"{", 3.0)
    assert (held.counted, held.due, held.seconds(0.0)) == (3.0, None, 2.0)
    assert not held.feed(b"}", 4.0)
    held.end(5.0)
    assert held.counted == 3.0
    assert look(whole=True).feed(b"<html>", 3.0)  # no JSON begins so
    assert not look(JSON, ("content-encoding", "gzip"), whole=True).feed(gzip.compress(b"{}")[:1], 3.0)


# -- the call ---------------------------------------------------------------------------------------------------------

STANDARD = Strategy("standard", "standard", 3, Backoff(0.1, 1.0, jitter="none"), QuotaSpec())
POLICY = Policy(
    "u", "", STANDARD, BucketRef(QuotaSpec()), timeouts=Timeouts(first_byte=20.0), classify=rules(ANTHROPIC)
)
HELD = Peek(1, PEEK_LIMIT, ANY)
LATE = FaultKind.ATTEMPT_TIMEOUT


def stream(attempt: int, *, at: float, early: bool = False, status: int = 200) -> Event:
    head = Reply(status, MappingFields([SSE]), early=early)
    return Event(f"head {attempt}: a stream", at, lambda call, now: call.head(attempt, head, now))


def test_a_stream_that_opens_with_an_error_is_made_again() -> None:
    overloaded = opens("error", error={"type": "overloaded_error"})
    play = Playbook(POLICY, method="POST") >> start() << Launch(1) >> stream(1, at=1.0) << HELD
    play = play >> peeked(1, overloaded, at=1.1) << Hold(1) << WakeAt(1.2) >> wake(1.2) << Discard(1) << Launch(2)
    play = play >> stream(2, at=2.0) << Peek(2, PEEK_LIMIT, ANY) >> peeked(2, STREAM, at=2.5) << Deliver(2, ANY)
    assert play >> ended(2, at=3.0) << Finish(Outcome.SUCCESS)
    first, second = play.call.so_far.history
    assert (first.status, first.cls, first.because) == (
        200, Class.TRANSIENT, "dialect anthropic: error overloaded_error"
    )  # fmt: skip
    assert (first.decision, second.decision) == ("retried", "delivered")
    assert second.first_byte == pytest.approx(2.5 - 1.2)


def test_the_last_answer_goes_to_the_app_as_it_came() -> None:
    policy = replace(POLICY, strategy=replace(STANDARD, max_attempts=1))
    play = Playbook(policy, method="POST") >> start() << Launch(1) >> stream(1, at=1.0) << HELD
    play = play >> peeked(1, opens("error", error={"type": "overloaded_error"}), at=1.1)
    assert play << Deliver(1, Outcome.ATTEMPTS_EXHAUSTED) >> ended(1, at=1.2) << Finish(Outcome.ATTEMPTS_EXHAUSTED)


def test_a_stream_that_stalls_after_its_head_is_given_up_and_the_kept_head_is_dropped() -> None:
    play = Playbook(replace(POLICY, strategy=replace(STANDARD, max_attempts=2)), method="POST")
    play = play >> start() << Launch(1) >> request_sent() >> stream(1, at=1.0) << HELD
    play = play >> fault(1, LATE, at=20.0, progress=Progress.ANSWERED) << WakeAt(20.1) >> wake(20.1) << Launch(2)
    play = play >> stream(2, at=21.0) << Peek(2, PEEK_LIMIT, ANY)
    play = play >> fault(2, LATE, at=40.1, progress=Progress.ANSWERED)
    assert play << Answer(504, ANY, ANY, Outcome.ATTEMPTS_EXHAUSTED, ANY, ANY) << Finish(Outcome.ATTEMPTS_EXHAUSTED)


def test_the_deadline_drops_the_kept_head_too() -> None:
    play = Playbook(replace(POLICY, timeouts=Timeouts(first_byte=20.0, total=10.0)))
    play = play >> start() << Launch(1) >> request_sent() >> stream(1, at=1.0) << HELD >> wake(10.0) << Cancel(1)
    assert play << Answer(504, ANY, ANY, Outcome.DEADLINE, ANY, ANY) << Finish(Outcome.DEADLINE)


def test_a_plain_answer_is_kept_until_its_first_byte_where_that_is_bounded() -> None:
    policy = replace(POLICY, classify=rules())
    kept = Playbook(policy) >> start() << Launch(1) >> request_sent() >> reply(1, 200, at=1.0, end=False) << HELD
    assert kept >> peeked(1, b"x", at=2.0) << Deliver(1, Outcome.SUCCESS) >> ended(1, at=2.0) << Finish(Outcome.SUCCESS)
    assert kept.call.so_far.history[0].first_byte == pytest.approx(2.0)
    at_once = Playbook(policy) >> start() << Launch(1) >> reply(1, 200, at=1.0, end=False)
    assert at_once << Deliver(1, Outcome.SUCCESS)
    bodiless = Playbook(policy) >> start() << Launch(1) >> request_sent() >> reply(1, 204, at=1.0)
    assert bodiless << Deliver(1, Outcome.SUCCESS)


@pytest.mark.parametrize(
    ("bound", "began", "waits"),
    [(20.0, "refusals", True), (20.0, "cooldown", False), (20.0, "outage", False), (None, "refusals", False)],
)
def test_the_first_byte_frees_a_place_where_it_is_bounded_and_refusals_began_the_limit_else_the_head_does(
    bound: float | None, began: str, waits: bool
) -> None:
    """Contract, section 14: until its first byte comes, the upstream has done nothing for a stream but answer. Calls
    that return from a cooldown go at the head, by section 5: if each waited for the first bytes of those before it,
    most would be refused, though the upstream could serve them.
    """
    policy = replace(POLICY, timeouts=Timeouts(first_byte=bound), limit=AutoLimit())
    registry = Registry()
    first, second = (Playbook(policy, method="POST", registry=registry) for _ in range(2))
    lane = first.scope.governor.first
    lane.lasts = True
    if began == "refusals":
        lane.limit.begin_at_half(2, 0.0)
    else:
        lane.limit.return_slowly(0.0, cooldown=began == "cooldown")
    first.scope.governor.lanes.look((lane,), 0.0)
    assert first >> start() << Launch(1) >> request_sent() >> stream(1, at=0.5) << HELD
    if waits:
        assert second >> start(at=0.6) << WakeAt(ANY)
        assert not second.call.so_far.history
        assert first >> peeked(1, STREAM, at=0.7) << Deliver(1, ANY)
        assert second >> wake(0.7) << Launch(1)
    else:
        assert second >> start(at=0.6) << Launch(1)


@pytest.mark.parametrize("why", ["early", "101", "observe", "off", "grpc", "committed"])
def test_where_no_head_is_kept(why: str) -> None:
    grpc = {"content-type": "application/grpc"} if why == "grpc" else {}
    mode = why if why in ("observe", "off") else "enforce"
    play = Playbook(replace(POLICY, mode=mode), headers=grpc) >> start() << Launch(1) >> request_sent()  # type: ignore[arg-type]
    assert play
    if why == "committed":
        assert play >> Event("lost", 0.5, lambda call, now: call.replay_lost(now))
    play = play >> stream(1, at=1.0, early=why == "early", status=101 if why == "101" else 200)
    assert play << Deliver(1, Outcome.SUCCESS)


def test_of_hedges_the_one_whose_first_byte_comes_first_wins() -> None:
    hedging = replace(STANDARD, hedging_delay=0.5, non_fatal=frozenset({503, FaultKind.ATTEMPT_TIMEOUT}))
    play = Playbook(replace(POLICY, strategy=hedging))
    play = play >> start() << Launch(1) << WakeAt(0.5) >> request_sent() >> stream(1, at=0.1) << HELD
    play = play >> wake(0.5) << Launch(2) << WakeAt(1.0) >> stream(2, at=0.6) << Peek(2, PEEK_LIMIT, ANY)
    assert play >> peeked(2, STREAM, at=0.7) << Cancel(1) << Deliver(2, Outcome.SUCCESS)


def test_hedges_go_on_from_an_error_in_a_success_by_the_status_that_it_counts_as() -> None:
    own = Rule(Class.TRANSIENT, "rule 1", frozenset({200}), event=EventRule("error"))
    hedging = replace(STANDARD, hedging_delay=0.5, non_fatal=frozenset({503}))
    play = Playbook(replace(POLICY, strategy=hedging, classify=rules(own=(own,))))
    play = play >> start() << Launch(1) << WakeAt(0.5) >> stream(1, at=0.1) << HELD
    assert play >> peeked(1, opens("error"), at=0.2) << Hold(1) << Launch(2) << WakeAt(0.7)
