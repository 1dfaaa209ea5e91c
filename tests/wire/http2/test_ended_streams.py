"""What a session remembers of streams that are over: how each of the latest ended, in whatever order they did."""

from __future__ import annotations

import random

import pytest
from talk import GET, OK, POST, Side, app, data, goaways, headers, resets, upstream

from proxy.wire.http2.frames import CANCEL, PROTOCOL_ERROR, STREAM_CLOSED
from proxy.wire.http2.heads import own_block
from proxy.wire.http2.peer_limits import PeerLimits


def serve(side: Side, *numbers: int) -> None:
    """Streams that come and are answered at once."""
    for number in numbers:
        side.feed(headers(number, GET))
        side.accepted.pop().send_head(own_block(200, b""), True)
    side.out()


@pytest.mark.parametrize("later", [1, 400, 600, 3000])
@pytest.mark.parametrize("jump", [2, 1400, 1_000_000])
def test_a_stream_that_ends_long_after_it_was_opened_is_remembered(later: int, jump: int) -> None:
    side = app()
    serve(side, 1)
    side.feed(headers(3, POST, end=False))
    old = side.accepted.pop()
    numbers = range(3 + jump, 3 + jump + 2 * later, 2)
    serve(side, *numbers)
    old.reset(CANCEL)
    assert resets(side.said()) == [(3, CANCEL)]
    serve(side, *range(numbers[-1] + 2, numbers[-1] + 802, 2))
    side.feed(data(3, b"what was under way"))
    assert side.failure is None and resets(side.said()) == []


@pytest.mark.parametrize("skip", [20, 1_500, 3_000, 1_000_000])
@pytest.mark.parametrize("later", [1, 500])
def test_a_peer_that_skips_ids_may_still_send_what_was_under_way(skip: int, later: int) -> None:
    """Trailers, say, of a stream that we broke off."""
    side = app()
    serve(side, 1, 3)
    side.feed(headers(5, POST, end=False))
    side.accepted.pop().reset(CANCEL)
    serve(side, *range(5 + skip, 5 + skip + later * skip, skip))
    side.feed(headers(5, ((b"x-sum", b"1"),)))
    assert side.failure is None and goaways(side.said()) == []


def test_a_head_on_a_stream_that_ended_is_refused_and_on_one_that_never_was_ends_the_connection() -> None:
    side = app()
    serve(side, 1, 5)
    side.feed(headers(1, GET))
    assert side.failure is None and resets(side.said()) == [(1, STREAM_CLOSED)]
    side.feed(headers(1, GET))  # from now on it is one that we broke off
    assert side.failure is None and resets(side.said()) == []
    side.feed(headers(3, GET))
    assert side.failure is not None and side.failure[0] == PROTOCOL_ERROR
    assert goaways(side.said())


def test_a_head_on_a_stream_that_only_a_server_could_have_opened_ends_the_connection() -> None:
    side = app()
    serve(side, 1, 3)
    side.feed(headers(2, GET))
    assert side.failure is not None and side.failure[0] == PROTOCOL_ERROR
    client = upstream()
    for _ in range(2):
        stream = client.request()
        client.feed(headers(stream.id, OK))
    client.out()
    client.feed(headers(2, OK))
    assert client.failure is not None and client.failure[0] == PROTOCOL_ERROR


def test_streams_that_end_in_any_order_are_remembered_as_they_ended() -> None:
    chance = random.Random(35)
    side = app(PeerLimits(resets=1e9))
    held, ended = {}, {}
    for number in range(1, 12_001, 2):
        side.feed(headers(number, POST, end=False))
        held[number] = side.accepted.pop()
        if len(held) > 900 or chance.random() < 0.4:
            leaving = chance.choice(list(held))
            ended[leaving] = chance.random() < 0.5
            stream = held.pop(leaving)
            if ended[leaving]:
                stream.reset(CANCEL)
            else:
                stream.send_head(own_block(200, b""), True)
                side.feed(data(leaving, b"", end=True))
        side.out()
        for asked, was_reset in list(ended.items())[-400:][:: 400 if number % 64 > 1 else 7]:
            side.feed(data(asked, b"late"))
            assert side.failure is None
            assert resets(side.said()) == ([] if was_reset else [(asked, STREAM_CLOSED)])
            ended[asked] = True
