"""What compiled code writes of a call is what Python writes of it, letter by letter."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from observed import POLICY, ended

from proxy.observe import call_json, compiled
from proxy.observe.call_record import AT_ONCE, NO_POLICY, SUCCESS, CallRecord, Course, at_once_with
from proxy.retry.call.attempt_record import AttemptRecord, FallbackRecord
from proxy.retry.facts import Class, FaultKind, Outcome

pytestmark = pytest.mark.skipif(
    compiled.call_json is call_json.call_json, reason="the compiled writer is not built (make core)"
)


class Placed(str):
    """A text that knows more than its letters, as texts of the configuration do."""


WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80)
#: Any letters: control characters, quotes, surrogates on their own, what JSON needs two escapes for.
LETTERS = WORDS | st.text(max_size=20) | st.text(st.characters(), max_size=5)
TEXTS = LETTERS | LETTERS.map(Placed)
TOKENS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~", max_size=20)
TARGETS = (
    LETTERS
    | st.text('a/?&=@%"\\é', max_size=200)
    | st.from_regex(r"/[a-z]{0,9}\?([a-z]{0,3}=?[a-z]{0,2}&){0,40}", fullmatch=True)
)
SECONDS = (
    st.floats()
    | st.floats(0, 1000)
    | st.integers(0, 10**13).map(lambda whole: whole / 1e6)
    | st.integers(0, 10**13).map(lambda whole: (whole + 0.5) / 1e6)  # in the middle of two, or next to it
)
PROTOCOLS = st.sampled_from(["", "http/1.1", "http/2"])
GRPC = st.none() | st.integers(0, 16)
ATTEMPTS = {
    "attempt": st.integers(0, 2**31),
    "started": SECONDS,
    "ended": st.none() | SECONDS,
    "status": st.none() | st.integers(0, 999),
    "grpc_status": GRPC,
    "fault": st.none() | st.sampled_from(FaultKind),
    "detail": TEXTS,
    "cls": st.none() | st.sampled_from(Class),
    "because": TEXTS,
    "decision": st.sampled_from(["delivered", "retried", *Outcome]),
    "why": TEXTS,
    "delay": st.none() | SECONDS | st.integers(0, 9),
    "pushback": TEXTS,
    "pushback_delay": st.none() | SECONDS,
    "price": st.just(0.0) | st.integers(0, 10) | st.integers(0, 10**7).map(float) | st.floats(),
    "held": st.just(0.0) | st.floats(allow_nan=False, allow_infinity=False),
    "held_by": st.sampled_from(["", "cooldown"]),
    "endpoint": TEXTS,
    "rst_code": st.none() | st.integers(0, 2**32 - 1),
    "protocol": PROTOCOLS,
    "upstream": TEXTS,
    "route": TEXTS,
    "first_byte": st.none() | SECONDS,
    "key": st.none() | st.integers(0, 1000),
    "key_why": TEXTS,
    "aside": st.booleans(),
    "range": st.sampled_from(["", "bytes=7-"]),
    "error": st.sampled_from(["", "dns_error"]),
}
RECORDS = st.builds(AttemptRecord, **ATTEMPTS)
FALLBACKS = st.builds(FallbackRecord, to=TEXTS, outcome=st.sampled_from(Outcome), skipped=TEXTS)
CALLS: dict[str, st.SearchStrategy[Any]] = {
    "wall_started": st.floats(0, 2e9) | st.floats(1e9, 1e9 + 2) | st.floats(0, 1e11),
    "started": st.just(10.0) | SECONDS,
    "ended": st.just(10.0) | SECONDS,
    "policy": st.sampled_from([POLICY, NO_POLICY]),
    "method": TOKENS,
    "authority": LETTERS | st.just("u:p@h"),
    "path": TARGETS,
    "client": st.sampled_from(["", "127.0.0.1:4000", "[::1]:4000"]),
    "status": st.integers(0, 999),
    "outcome": st.sampled_from(Outcome),
    "attempts": st.integers(0, 3),
    "bytes_in": st.integers(0, 2**62),
    "bytes_out": st.integers(0, 2**62),
    "endpoint": LETTERS,
    "history": st.lists(RECORDS, max_size=3),
    "detail": LETTERS,
    "agent": LETTERS,
    "app": LETTERS,
    "app_retry": st.booleans(),
    "number": st.just(0),
    "fallbacks": st.lists(FALLBACKS, max_size=2),
    "protocol": PROTOCOLS,
    "sent_by": PROTOCOLS,
    "grpc_status": GRPC,
}


def drawn(trace: str, **fields: Any) -> CallRecord:
    call = CallRecord(**fields)
    call.course.trace = trace
    return call


DRAWN = st.builds(drawn, st.sampled_from(["", f"00-{5:032x}-{7:016x}-01"]), **CALLS)


def test_every_field_of_a_record_is_drawn() -> None:
    def kept(record: type) -> set[str]:
        return {name for name in dir(record) if name[0] != "_" and not callable(getattr(record, name))}

    assert kept(AttemptRecord) == set(ATTEMPTS)
    assert kept(CallRecord) | kept(Course) == {*CALLS, "course", "trace", "was_sent_once", "key", "key_why"}


@given(DRAWN)
@example(ended())
@example(ended(ended=math.nan))
@example(ended(path="/" + "x" * 10_000 + "?a"))
@example(ended(path="/?" + "&".join("a=b" for _ in range(32))))
@example(ended(path="/?" + "&".join("a=b" for _ in range(33))))
@example(ended(path="/?a=%22&\x7f&b"))
@example(ended(path="/x;a=b/%20%3Bc=d?e=f"))
@example(ended(path="/x;a=b"))
@example(ended(path="/x%3bc%3dd/%"))
@example(ended(path="/%2f%33/x?a;b=%3B"))
@example(ended(authority="u:p@h", path="//u:p@h/?x", detail='"'))
@example(ended(outcome=Outcome.DENIED, status=0, attempts=0, detail="x" * 5000))
def test_a_call_is_written_as_python_writes_it(call: CallRecord) -> None:
    assert compiled.call_json(call) == call_json.call_json(call)


@given(DRAWN)
def test_the_course_that_calls_share_is_written_like_one_of_their_own(call: CallRecord) -> None:
    call.course = Course(SUCCESS, 1)
    own = call_json.call_json(call)
    call.course = AT_ONCE
    assert call_json.call_json(call) == compiled.call_json(call) == own


@given(DRAWN, st.integers(0, 1000))
def test_a_call_at_once_with_a_credential_is_written_like_its_only_attempt(call: CallRecord, key: int) -> None:
    assume(math.isfinite(call.started))  # else the time between two of them is no number
    call.course = at_once_with(key, "it is its turn")
    shared = call_json.call_json(call)
    assert compiled.call_json(call) == shared
    call.course = Course(SUCCESS, 1, call.history)
    assert [(each.key, each.key_why) for each in call.history] == [(key, "it is its turn")]
    own = call_json.call_json(call)
    if call.ended == call.started:  # two ways to write zero
        own = own.replace('"start":0.000000,"duration":0.000000', '"start":0.000000,"duration":0.0')
    assert shared == own


@given(st.lists(DRAWN, max_size=4))
def test_calls_are_written_as_lines(calls: list[CallRecord]) -> None:
    assert compiled.call_lines(calls) == call_json.call_lines(calls)


@given(RECORDS, SECONDS)
def test_an_attempt_is_written_as_python_writes_it(record: AttemptRecord, started: float) -> None:
    assert compiled.attempt_json(record, started) == call_json.attempt_json(record, started)


@given(SECONDS)
@example(0.0000005)
@example(0.0000015)
@example(999999.9999995)
@example(999999.9999996)
@example(1e6)
@example(-0.0)
@example(-1e-9)
@example(math.inf)
@example(math.nan)
def test_seconds_are_rounded_as_python_rounds_them(seconds: float) -> None:
    record = AttemptRecord(1, 0.0, first_byte=seconds)
    assert compiled.attempt_json(record, 0.0) == call_json.attempt_json(record, 0.0)
    assert f'"first_byte":{seconds:.6f}}}' in compiled.attempt_json(record, 0.0)


@pytest.mark.parametrize("attribute", ["authority", "path", "method", "client", "endpoint", "protocol", "policy"])
def test_a_none_where_a_text_was_promised_is_an_exception(attribute: str) -> None:
    call = ended()
    setattr(call, attribute, None)
    with pytest.raises((TypeError, AttributeError)):
        compiled.call_json(call)


@pytest.mark.parametrize("attribute", ["upstream", "endpoint", "protocol", "because", "decision", "fault", "cls"])
def test_a_number_where_a_text_was_promised_is_an_exception(attribute: str) -> None:
    record = AttemptRecord(1, 0.0)
    setattr(record, attribute, 5)
    with pytest.raises(TypeError):
        compiled.attempt_json(record, 0.0)


def test_a_line_of_many_attempts_is_written_whole() -> None:
    history = [AttemptRecord(number, 10.0, 11.0, 503, detail="x" * 90, decision="retried") for number in range(1, 200)]
    call = ended(history=history, attempts=199)
    assert len(json.loads(compiled.call_json(call))["history"]) == 199
    assert compiled.call_json(call) == call_json.call_json(call)
