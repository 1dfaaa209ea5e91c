"""Errors in a stream that is going to the app: which events are reported, and by which rule's words."""

from __future__ import annotations

import json
from random import Random

import pytest

from proxy.retry.answers.stream_errors import watch_for_errors
from proxy.retry.facts import Class, MappingFields, Reply
from proxy.retry.policies.dialect import Classify, EndMark, EventRule, Rule, StreamEnds

STREAM = Reply(200, MappingFields([("content-type", "text/event-stream")]))


def reported(rule: EventRule, data: bytes, as_: Class = Class.TRANSIENT) -> list[str]:
    watch = watch_for_errors(Classify(rules=(Rule(as_, "the rule", frozenset({200}), event=rule),)), STREAM)
    assert watch is not None
    return watch.feed(data)


@pytest.mark.parametrize("name", ["error", "err*", None])
def test_an_event_of_a_rules_name_is_reported_whatever_its_data(name: str | None) -> None:
    assert len(reported(EventRule(name), b"event: error\ndata: stop\n\n")) == 1


def test_an_event_of_another_name_is_not_reported() -> None:
    assert reported(EventRule("error"), b"event: delta\ndata: error\n\n") == []


def test_a_name_alone_does_not_meet_a_rule_that_asks_for_data() -> None:
    rule = EventRule("error", ((("type",), "overloaded"),))
    assert reported(rule, b'event: error\ndata: {"type": "gone"}\n\n') == []
    assert len(reported(rule, b'event: error\ndata: {"type": "overloaded"}\n\n')) == 1


@pytest.mark.parametrize("name", ["error", "0", "\u00e9", "e\u00e9", "a-b"])
def test_data_in_which_the_name_may_be_escaped_or_be_no_name_at_all_are_read(name: str) -> None:
    """Data of events of any name are parsed only if they contain a name that the rule asks for, in quotes."""
    rule = EventRule(None, (((name, "type"), "overloaded"),))
    error = {"type": "overloaded"}
    for document in ({name: error}, [error]) if name == "0" else ({name: error},):
        for ascii_ in (False, True):
            data = json.dumps(document, ensure_ascii=ascii_).encode()
            assert len(reported(rule, b"data: " + data + b"\n\n")) == 1
    assert reported(rule, b'data: {"type": "overloaded"}\n\n') == []


def test_data_are_read_whose_last_name_is_an_index() -> None:
    rule = EventRule(None, ((("errors", "0"), "overloaded"),))
    assert len(reported(rule, b'data: {"errors": ["overloaded"]}\n\n')) == 1


def test_an_answer_is_judged_by_its_own_headers_and_status_whatever_came_before() -> None:
    by_status = Rule(Class.TRANSIENT, "by status", frozenset({201}), event=EventRule("error"))
    by_header = Rule(Class.TRANSIENT, "by header", headers=(("x-kind", "model*"),), event=EventRule("failed"))
    rules, kind = Classify(rules=(by_status, by_header)), ("content-type", "text/event-stream")
    answers = [
        Reply(200, MappingFields([kind])),
        Reply(200, MappingFields([kind, ("x-kind", "models")])),
        Reply(201, MappingFields([kind])),
        Reply(201, MappingFields([kind, ("x-kind", "models")])),
    ]
    data = b"event: error\ndata: stop\n\nevent: failed\ndata: stop\n\n"
    seen = []
    for answer in answers * 2:
        watch = watch_for_errors(rules, answer)
        seen.append(0 if watch is None else len(watch.feed(data)))
    assert seen == [0, 1, 1, 2] * 2


def test_an_answer_of_the_same_status_is_judged_as_the_one_before() -> None:
    rules = Classify(rules=(Rule(Class.TRANSIENT, "by status", frozenset({201}), event=EventRule("error")),))
    seen = []
    for status in (200, 201, 200, 201):
        watch = watch_for_errors(rules, Reply(status, MappingFields([("content-type", "text/event-stream")])))
        seen.append(0 if watch is None else len(watch.feed(b"event: error\ndata: stop\n\n")))
    assert seen == [0, 1, 0, 1]


def test_what_a_rule_calls_a_success_is_no_error() -> None:
    assert reported(EventRule("error"), b"event: error\ndata: stop\n\n", as_=Class.SUCCESS) == []


ENDS = (
    StreamEnds(ends=(EndMark(data="[DONE]"),), known=(EndMark(present=("choices",)),)),
    StreamEnds(ends=(EndMark(event="message_stop"), EndMark(event="err*")), known=(EndMark(event="ping"),)),
)
EVENTS = (
    *(
        b"data: hello",
        b"event: error\ndata: stop",
        b": a comment",
        b"data: one\ndata: two",
        b"event: delta\ndata: error",
    ),
    *(b"id: 1", b'data: {"error": {"type": "overloaded"}}', b"event:message\ndata:x", b"data: [DONE]", b"event: ping"),
    *(b'event: message_stop\ndata: {"type": "message_stop"}', b'data: {"choices": [{"finish_reason": "stop"}]}'),
)


@pytest.mark.parametrize("name", ["error", "message", "err*", None])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_what_is_found_does_not_depend_on_how_a_stream_is_cut(name: str | None, line_end: bytes) -> None:
    """Whole events in which nothing can matter are not cut out; the others are, with the same result."""
    rule = Rule(Class.TRANSIENT, "the rule", frozenset({200}), event=EventRule(name))
    rules = Classify(rules=(rule,))
    chance = Random(18)
    for _ in range(100):
        events = [chance.choice(EVENTS).replace(b"\n", line_end) + 2 * line_end for _ in range(8)]
        at_once, each, by_bytes = (watch_for_errors(rules, STREAM, ENDS) for _ in range(3))
        assert at_once is not None and each is not None and by_bytes is not None
        stream = b"".join(events)
        found = at_once.feed(stream)
        assert [words for event in events for words in each.feed(event)] == found
        assert [words for at in range(len(stream)) for words in by_bytes.feed(stream[at : at + 1])] == found
        assert each.unfinished == by_bytes.unfinished == at_once.unfinished
        assert each.is_between_events == by_bytes.is_between_events


def test_whole_chunks_that_are_passed_over_would_have_said_nothing() -> None:
    """A stream in chunks of any size, of which those that can be are passed over, is judged as one that is read."""
    mark = EndMark(present=("choices", "*", "finish_reason"))
    ends = (StreamEnds(ends=(EndMark(data="[DONE]"), mark), known=(EndMark(present=("choices",)),)),)
    rules = Classify(rules=(Rule(Class.TRANSIENT, "the rule", frozenset({200}), event=EventRule("error")),))
    lines = [b'data: {"choices": [{"finish_reason": null}]}', b'data: {"choices": [{"finish_reason": "stop"}]}']
    lines += [b"data: x", b"\n", b"", b": error", b"event: error", b"data: [DONE]", b"", b'data: {"choices": 1}', b"x"]
    random, skipped, several = Random(5), 0, 0
    for seed in range(3000):
        end = (b"\n", b"\r\n", b"\r")[seed % 3]
        stream = b"".join(
            line + end * random.choice((1, 2, 2)) for line in random.choices(lines, k=random.randrange(12))
        )
        read, passed = (watch_for_errors(rules, STREAM, ends) for _ in range(2))
        assert read is not None
        assert passed is not None
        at, found, wanted = 0, list[str](), list[str]()
        while at < len(stream):
            size = random.choice((1, 2, 3, 5, len(lines[0]) + 2 * len(end), 200))
            if random.random() < 0.5 and (blank := stream.find(end * 2, at)) >= 0:
                size = blank + 2 * len(end) - at
            piece = stream[at : at + size]
            at += size
            pieces = [piece]
            if piece.endswith(b"\n") and random.random() < 0.5:  # another chunk in the same read
                blank = stream.find(end * 2, at) + 2 * len(end)
                pieces.append(
                    stream[at : blank if blank > at and random.random() < 0.5 else at + random.choice((1, 2, 50))]
                )
                at += len(pieces[1])
                piece = b"".join(pieces)
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces if each)
            if passed.passes_over(chunks, len(piece)):
                skipped += 1
                several += len(pieces) > 1
            else:
                found += passed.feed(piece)
            wanted += read.feed(piece)
            assert found == wanted
        assert passed.unfinished == read.unfinished
    assert skipped > 300
    assert several > 50
