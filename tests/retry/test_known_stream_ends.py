"""Which answers are streams whose ends a pack knows."""

from __future__ import annotations

import pytest

from proxy.retry.dialect import Classify, Dialect, EndMark, StreamEnds
from proxy.retry.facts import MappingFields, Reply, Request
from proxy.retry.stream_ends import ends_of

ENDS = StreamEnds(ends=(EndMark(event="done"),), path=":stream")
RULES = Classify(dialects=(Dialect("acme", stream_ends=ENDS),))
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
