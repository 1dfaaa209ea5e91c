"""A chunked answer is passed on in the chunks in which it came; one that breaks off in a chunk never looks whole."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.front import CLASSIFY, NONE, Front, request, to
from support.scripted import Step, Turn, Upstream

from proxy.retry.facts import Class
from proxy.retry.policies.dialect import Dialect, EndMark, EventRule, Rule, StreamEnds
from proxy.retry.policies.policy import Resume

CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\n" + CHUNKED
PART = b'HTTP/1.1 206 Partial Content\r\nETag: "v1"\r\nContent-Range: bytes %d-19/20\r\n'
BODY = bytes(range(97, 117))


def in_pieces(*pieces: bytes, seen: list[asyncio.Event], head: bytes = HEAD) -> Step:
    """An answer whose pieces are written one after the other, each once the app has read the one before; then its
    connection ends, unless it is whole.
    """

    async def step(turn: Turn) -> None:
        await turn.write(head)
        for piece, event in zip(pieces, seen, strict=True):
            await event.wait()
            await turn.write(piece)
        if not (pieces[-1].endswith(b"0\r\n\r\n") or b"\r\n0\r\n" in pieces[-1]):
            turn.close()

    return step


async def body_of(front: Front, pieces: list[bytes], seen: list[asyncio.Event], end: bytes) -> bytes:
    """The answer's body as it came to the app, up to `end`, or to the end of its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(request("GET", "/api/", host="127.0.0.1"))
    await reader.readuntil(b"\r\n\r\n")
    got = b""
    try:
        for event in seen:
            event.set()
            got += await reader.read(65536)
        while not got.endswith(end):
            data = await reader.read(65536)
            assert data, "a FIN within an answer"
            got += data
    except ConnectionResetError:
        return got + b"RST"
    finally:
        writer.transport.abort()
    return got


@pytest.mark.parametrize(
    ("pieces", "came"),
    [
        ([b"5\r\nhello\r\n", b"003\r\nabc\r\n0\r\n\r\n"], b"5\r\nhello\r\n003\r\nabc\r\n0\r\n\r\n"),
        ([b"a\r\n01234", b"56789\r\n1\r\nx\r\n0\r\n\r\n"], b"a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n"),
        ([b"1\r\nx\r\n", b"3;a=b\r\nabc\r\n0;c\r\nA: b\r\n\r\n"], b"1\r\nx\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n"),
    ],
    ids=["whole chunks", "a chunk in two pieces", "extensions and trailers"],
)
async def test_they_come_as_they_came(pieces: list[bytes], came: bytes) -> None:
    seen = [asyncio.Event() for _ in pieces]
    async with Upstream(in_pieces(*pieces, seen=seen)) as upstream, Front(to("api", upstream.url)) as front:
        assert await body_of(front, pieces, seen, b"\r\n\r\n") == came


@pytest.mark.parametrize(
    "piece", [b"5\r\nhe", b"5\r\nhello", b"5\r\nhello\r", b"5\r\nhello\r\n3", b"5\r\nhello\r\n3\r\n"]
)
async def test_one_that_breaks_off_ends_with_a_reset(piece: bytes) -> None:
    seen = [asyncio.Event()]
    policy = {"strategy": NONE}
    async with Upstream(in_pieces(piece, seen=seen)) as upstream, Front(to("api", upstream.url, **policy)) as front:
        got = await body_of(front, [piece], seen, b"0\r\n\r\n")
        assert got.endswith(b"RST")
        assert piece.startswith(got.removesuffix(b"RST"))


async def test_what_breaks_the_grammar_ends_with_a_reset() -> None:
    pieces = [b"5\r\nhello\r\n", b"1\r\nab\r\n0\r\n\r\n"]
    seen = [asyncio.Event() for _ in pieces]
    async with Upstream(in_pieces(*pieces, seen=seen)) as upstream, Front(to("api", upstream.url)) as front:
        assert await body_of(front, pieces, seen, b"0\r\n\r\n") == b"5\r\nhello\r\nRST"


async def test_an_answer_that_goes_on_elsewhere_fills_its_last_chunk() -> None:
    """Whatever was passed on of a chunk when it broke, the app reads the body and its end."""
    whole = b"8\r\n" + BODY[:8] + b"\r\nc\r\n" + BODY[8:] + b"\r\n"
    for cut in range(1, len(whole) - 2):  # of what is whole but for its end, nothing is asked for again
        seen = [asyncio.Event()]
        begins = in_pieces(whole[:cut], seen=seen, head=PART % 0 + CHUNKED)

        async def goes_on(turn: Turn) -> None:
            first = int((turn.request.one("range") or "").removeprefix("bytes=").partition("-")[0])
            await turn.write(PART % first + b"Content-Length: %d\r\n\r\n" % (20 - first) + BODY[first:])

        policy = {"resume": Resume(wait=30.0)}
        async with (
            Upstream(begins, goes_on) as upstream,
            Front(to("api", upstream.url, **policy)) as front,
            front.app() as app,
        ):
            app.send(request("GET", "/api/", "Range: bytes=0-19", host="127.0.0.1"))
            await upstream.until(1)
            seen[0].set()
            reply = await app.read()
            assert (reply.status, reply.body) == (206, BODY), cut


FAILS = Rule(Class.TRANSIENT, "the rule", frozenset({200}), event=EventRule("error"))
WATCHED = {"classify": replace(CLASSIFY, rules=(FAILS,)), "strategy": NONE}
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + CHUNKED


async def test_those_of_a_stream_that_is_watched_come_as_they_came_and_are_read() -> None:
    """The first event is looked at before its head goes to the app; of the others each error is found, however they
    are cut into chunks and packets.
    """
    bad = b"event: error\ndata: y\n\n"
    pieces = [
        b"9\r\ndata: x\n\n\r\n",
        b"9\r\ndata: x\n\n\r\n009\r\ndata: z\n\n\r\n",
        b"%x\r\n" % len(bad) + bad[:9],
        bad[9:] + b"\r\n",
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(bad), bad),
    ]
    seen = [asyncio.Event() for _ in pieces]
    steps = in_pieces(*pieces, seen=seen, head=EVENTS)
    async with Upstream(steps) as upstream, Front(to("api", upstream.url, **WATCHED)) as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(request("GET", "/api/", host="127.0.0.1"))
        seen[0].set()
        await reader.readuntil(b"\r\n\r\n")
        got = await reader.readuntil(b"\n\n\r\n")
        for event, piece in zip(seen[1:], pieces[1:], strict=True):
            event.set()
            assert await reader.readexactly(len(piece)) == piece
        assert got == pieces[0]
        writer.close()
        await front.observed.until(1)
        assert front.observed.stream_errors == [("api", "the rule")] * 2


@pytest.mark.parametrize("unfinished", ["tell", "break", "event"])
async def test_a_stream_whose_end_lacks_its_last_event_never_looks_whole(unfinished: str) -> None:
    """The last chunks came with the end of the body: they go to the app before what is done about the missing event."""
    ends = StreamEnds(ends=(EndMark("", "[DONE]"),), known=(EndMark("", "x"),), path="/", error=b"event: error\n\n")
    pieces = [b"9\r\ndata: x\n\n\r\n", b"9\r\ndata: y\n\n\r\n0\r\n\r\n"]
    seen = [asyncio.Event() for _ in pieces]
    policy = {
        "classify": replace(CLASSIFY, dialects=(Dialect("ours", stream_ends=ends),)),
        "unfinished": unfinished,
        "strategy": NONE,
    }
    steps = in_pieces(*pieces, seen=seen, head=EVENTS)
    async with Upstream(steps) as upstream, Front(to("api", upstream.url, **policy)) as front:
        seen[0].set()  # the head waits for the first event
        got = await body_of(front, pieces, seen, b"0\r\n\r\n")
        assert front.observed.unfinished == ["api"]
    last = {"tell": b"0\r\n\r\n", "break": b"RST", "event": b"e\r\nevent: error\n\n\r\n0\r\n\r\n"}
    whole = pieces[0] + b"9\r\ndata: y\n\n\r\n" + last[unfinished]
    assert got == whole or (unfinished == "break" and got.endswith(b"RST") and whole.startswith(got[:-3]))


EVENT = b"9\r\ndata: x\n\n\r\n"


@pytest.mark.parametrize("end", ["whole", "reset", "close"])
async def test_events_of_many_streams_arrive_and_none_that_breaks_off_looks_whole(end: str) -> None:
    """Streams of events are read past their transports, many in one turn of the loop."""

    async def events(turn: Turn) -> None:
        await turn.write(EVENTS)
        for _ in range(30):
            await turn.write(EVENT)
            await asyncio.sleep(0)
        if end == "whole":
            await turn.write(EVENT + b"0\r\n\r\n")
        else:
            await turn.write(EVENT[:7])
            await asyncio.sleep(0)
            (turn.reset if end == "reset" else turn.close)()

    async def body(front: Front) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(request("GET", "/api/", host="127.0.0.1"))
        await reader.readuntil(b"\r\n\r\n")
        got = b""
        try:
            while not got.endswith(b"0\r\n\r\n"):
                data = await reader.read(65536)
                assert data, "a FIN within an answer"
                got += data
        except ConnectionResetError:
            got += b"RST"
        finally:
            writer.transport.abort()
        return got

    async with Upstream(events) as upstream, Front(to("api", upstream.url, **WATCHED)) as front:
        for got in await asyncio.gather(*(body(front) for _ in range(70))):
            payload = got.removesuffix(b"RST").removesuffix(b"0\r\n\r\n")
            assert payload.count(b"data: x\n\n") >= (31 if end == "whole" else 0)
            assert got.endswith(b"0\r\n\r\n" if end == "whole" else b"RST")


async def test_an_app_that_stalls_holds_the_events_back_and_loses_none() -> None:
    event = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    count, written = 4000, 0

    async def events(turn: Turn) -> None:
        nonlocal written
        await turn.write(EVENTS)
        for _ in range(count):
            await turn.write(event)
            await asyncio.sleep(0)
            written += 1
        await turn.write(b"0\r\n\r\n")

    async with Upstream(events) as upstream, Front(to("api", upstream.url, strategy=NONE)) as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(request("GET", "/api/", host="127.0.0.1"))
        await reader.readuntil(b"\r\n\r\n")
        held = -1
        while written != held:  # until the upstream is held up
            held = written
            for _ in range(200):
                await asyncio.sleep(0)
        assert held < count
        got = 0
        while got < count * len(event) + 5:
            data = await reader.read(1 << 20)
            assert data
            got += len(data)
        writer.transport.abort()
    assert got == count * len(event) + 5
