"""Which answers are streams whose ends a pack knows."""

from __future__ import annotations

import pytest
from support.playbook import ANY, Playbook, peeked, reply, start

from proxy.retry.answers.event_stream import SseReader
from proxy.retry.answers.first_byte import PEEK_LIMIT
from proxy.retry.answers.stream_ends import ends_of
from proxy.retry.answers.stream_errors import watch_for_errors
from proxy.retry.call.actions import Cancel, Deliver, Launch, Peek, WakeAt
from proxy.retry.facts import Class, FaultKind, MappingFields, Outcome, Reply, Request
from proxy.retry.policies.dialect import Classify, Dialect, EndMark, StreamEnds
from proxy.retry.policies.policy import Backoff, Policy, Strategy

ENDS = StreamEnds(ends=(EndMark(event="done"),), path=":stream")
RULES = Classify(faults={FaultKind.RESET: Class.TRANSIENT}, dialects=(Dialect("acme", stream_ends=ENDS),))
EVENTS = [("content-type", "text/event-stream")]


def asked_for(path: str) -> Request:
    return Request("POST", "api.example", path, MappingFields([]))


@pytest.mark.parametrize("status", [200, 206, 399])
def test_a_stream_that_was_asked_for_ends_as_the_pack_says(status: int) -> None:
    assert ends_of(RULES, asked_for("/v1/model:stream?alt=sse"), Reply(status, MappingFields(EVENTS))) == (ENDS,)


@pytest.mark.parametrize("status", [400, 500])
def test_an_error_has_no_end_that_a_pack_knows(status: int) -> None:
    assert ends_of(RULES, asked_for("/v1/model:stream"), Reply(status, MappingFields(EVENTS))) == ()


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/model", EVENTS),
        ("/v1/model:stream", [("content-type", "application/json")]),
        ("/v1/model:stream", [*EVENTS, ("content-encoding", "br")]),
    ],
)
def test_any_other_answer_is_none_of_these_streams(path: str, fields: list[tuple[str, str]]) -> None:
    assert ends_of(RULES, asked_for(path), Reply(200, MappingFields(fields))) == ()


CHAT = StreamEnds(
    ends=(EndMark(data="[DONE]"), EndMark(present=("finish_reason",))),
    known=(EndMark(present=("choices",)),),
    path=":stream",
)
BEGUN = b'data: {"choices": []}\n\n'


@pytest.mark.parametrize(
    ("last", "complete"),
    [
        (b"data: [DONE]\n\n", True),
        (b"data: [DONE]\n", True),  # cut short by its end, but it says nothing else
        (b"data: [DONE]", True),
        (b"data:[DONE]\r", True),
        (b"event: x\ndata: [DONE]", True),
        (b"data: [DONE", False),
        (b"[DONE]", False),
        (b": [DONE]", False),
        (b"data: more\ndata: [DONE]", False),
        (b'data: {"finish_reason": "stop"}\n\n', True),
        (b'data: {"finish_reason": "stop"}\n', False),  # clients drop this event, and what it says with it
        (b"", False),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_mark_that_is_all_of_its_event_ends_a_stream_without_a_blank_line_too(
    last: bytes, complete: bool, size: int
) -> None:
    watch = watch_for_errors(Classify(), Reply(200, MappingFields(EVENTS)), (CHAT,))
    assert watch is not None
    stream = BEGUN + last
    for at in range(0, len(stream), size):
        watch.feed(stream[at : at + size])
    assert watch.unfinished is not complete


def test_an_event_that_is_too_long_is_not_remembered_as_cut_short() -> None:
    reader = SseReader()
    reader.feed(b"data: " + bytes(70_000) + b"\ndata: [DONE]")
    assert reader.cut_short() == b""


@pytest.mark.parametrize(("media", "is_broken"), [("text/event-stream", True), ("application/json", False)])
def test_a_stream_that_ends_with_its_head_has_not_come(media: str, is_broken: bool) -> None:
    policy = Policy("u", "", Strategy("standard", "standard", 2, Backoff(1.0, 1.0, 1.0, "none")), None, classify=RULES)
    book = Playbook(policy, path="/v1/model:stream")
    assert book >> start() << Launch(1)
    if is_broken:
        assert book >> reply(1, 200, at=0.1, headers={"content-type": media}) << Cancel(1) << WakeAt(1.1)
    else:
        assert book >> reply(1, 200, at=0.1, headers={"content-type": media}) << Deliver(1, Outcome.SUCCESS)


def test_a_stream_is_kept_until_it_has_begun_so_that_one_that_ends_before_is_made_again() -> None:
    """Also where the pack names nothing else that would be looked for in the stream."""
    policy = Policy("u", "", Strategy("standard", "standard", 2, Backoff(1.0, 1.0, 1.0, "none")), None, classify=RULES)
    book = Playbook(policy, path="/v1/model:stream")
    head = reply(1, 200, at=0.1, headers=dict(EVENTS), end=False)
    assert book >> start() << Launch(1) >> head << Peek(1, PEEK_LIMIT, ANY)
    assert book >> peeked(1, b"", at=0.2) << Cancel(1) << WakeAt(1.2)
