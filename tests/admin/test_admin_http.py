"""The admin port's HTTP, byte by byte where an ordinary client would not go."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop
from aiohttp import web
from support.pages import Asking

from proxy.admin import connections
from proxy.admin.app import BODY, bare_app, get, post
from proxy.admin.connections import MOST
from proxy.admin.live_board import CLOSING

HOST = b"Host: 127.0.0.1\r\n"


class Desk:
    """Pages to try connections with."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.left = asyncio.Event()
        self.errors: list[dict[str, Any]] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.each: Callable[[int], object] = bool

    def app(self) -> web.Application:
        app = bare_app()
        app.add_routes(
            [
                get("/echo", self.echo),
                post("/echo", self.echo),
                get("/of/{name}", self.echo),
                get("/broken", self.broken),
                get("/stream", self.stream),
                get("/breaks-off", self.breaks_off),
                get("/large", self.large),
                get("/slow", self.slow),
                get("/floods", self.floods),
            ]
        )
        return app

    async def echo(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        self.each(len(self.asked))
        return web.Response(text=f"{request.method} {request.path}\n")

    async def broken(self, request: web.Request) -> web.Response:
        raise ValueError("oops")

    async def large(self, request: web.Request) -> web.Response:
        return web.Response(body=bytes(32 << 20))

    async def slow(self, request: web.Request) -> web.Response:
        self.begun.set()
        await self.go.wait()
        return web.Response(text="at last\n")

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = await self.begin(request)
        if request.method == "HEAD":
            return response
        try:
            await response.write(b"one\n")
            while not request.app[CLOSING].is_set() and not connections.has_said_all(request):  # noqa: ASYNC110
                await asyncio.sleep(0)
            await response.write(b"last\n")
        finally:
            self.left.set()
        return response

    async def breaks_off(self, request: web.Request) -> web.StreamResponse:
        response = await self.begin(request)
        await response.write(b"one\n")
        raise ValueError("oops")

    async def floods(self, request: web.Request) -> web.StreamResponse:
        response = await self.begin(request)
        try:
            while True:
                await response.write(bytes(1 << 20))
        finally:
            self.left.set()

    async def begin(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if request.version < (1, 1):
            response.force_close()
        await response.prepare(request)
        return response


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    asyncio.get_running_loop().set_exception_handler(lambda _, error: desk.errors.append(error))
    return desk


@pytest.fixture
async def asking(desk: Desk) -> AsyncIterator[Asking]:
    async with asyncio.timeout(20), Asking(desk.app()) as asking:
        yield asking


async def test_requests_are_answered_in_turn_however_they_come(asking: Asking) -> None:
    first, second = b"GET /echo?a=1 HTTP/1.1\r\n" + HOST + b"\r\n", b"GET /of/x%20y HTTP/1.1\r\n" + HOST + b"\r\n"
    said = await asking.raw(first + second, first[:9], first[9:])
    assert said.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert said.index(b"GET /echo\n") < said.index(b"GET /of/x y\n") < said.rindex(b"GET /echo\n")
    assert b"Connection" not in said
    assert said.count(b"\r\nDate: ") == said.count(b"\r\nContent-Length: ") == 3


async def test_others_have_a_turn_between_two_requests(asking: Asking, desk: Desk) -> None:
    """RFC 9112, section 9.3.2: requests may be pipelined. Thousands of them in a read must not contain calls up."""
    turns: list[tuple[int, int]] = []
    desk.each = lambda asked: asyncio.get_running_loop().call_soon(lambda: turns.append((asked, len(desk.asked))))
    await asking.raw((b"GET /echo HTTP/1.1\r\n" + HOST + b"\r\n") * 100)
    assert turns == [(asked, asked) for asked in range(1, 101)]


async def test_a_query_is_read_and_the_first_value_counts(asking: Asking, desk: Desk) -> None:
    await asking.get("/echo?a=1&b=%C3%A4+x&a=2&c")
    assert [desk.asked[0].query[name] for name in "abc"] == ["1", "ä x", ""]
    said = await asking.raw(b"GET /echo?a=%ff HTTP/1.1\r\n" + HOST + b"\r\n")
    assert said.startswith(b"HTTP/1.1 200 ")
    for raw in (b"\xc3\xa4", b"\xff"):  # RFC 3986, section 2.1: they would come percent-encoded
        said = await asking.raw(b"GET /echo?a=" + raw + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        assert int(said.split()[1]) == 400


@pytest.mark.parametrize(
    ("line", "more"), [(b"GET /echo HTTP/1.1", b"Connection: close\r\n"), (b"GET /echo HTTP/1.0", b"")]
)
async def test_who_closes(asking: Asking, line: bytes, more: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", asking.port)
    writer.write(line + b"\r\n" + HOST + more + b"\r\n")
    said = await reader.read()
    assert (said[:8], said.count(b" 200 OK\r\n")) == (line[-8:], 1)
    assert more in said
    writer.close()


async def test_who_stays(asking: Asking) -> None:
    said = await asking.raw((b"GET /echo HTTP/1.0\r\n" + HOST + b"Connection: keep-alive\r\n\r\n") * 2)
    assert said.count(b"\r\nConnection: keep-alive\r\n") == said.count(b"GET /echo\n") == 2


@pytest.mark.parametrize(
    ("line", "more", "fields"),
    [
        (b"GET /stream HTTP/1.1", b"Connection: close\r\n", {b"Connection: close", b"Transfer-Encoding: chunked"}),
        (b"GET /stream HTTP/1.0", b"Connection: keep-alive\r\n", set()),
    ],
)
async def test_who_closes_behind_a_stream(asking: Asking, line: bytes, more: bytes, fields: set[bytes]) -> None:
    """RFC 9112, section 9.6: who closes says so. A stream to an HTTP/1.0 reader ends with its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", asking.port)
    writer.write(line + b"\r\n" + HOST + more + b"\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    assert {
        line for line in head if line.startswith((b"Connection", b"Transfer-Encoding", b"Content-Length"))
    } == fields
    writer.close()


async def test_a_stream_to_who_has_said_all_ends_whole(asking: Asking) -> None:
    said = await asking.raw(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n")
    assert said.endswith(b"last\n\r\n0\r\n\r\n")


async def test_a_head_has_no_body(asking: Asking) -> None:
    for path in (b"/echo", b"/stream"):
        said = await asking.raw(b"HEAD " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        assert said.startswith(b"HTTP/1.1 200 OK\r\n")
        assert said.endswith(b"\r\n\r\n")


async def test_a_body_is_read_over(asking: Asking, desk: Desk) -> None:
    get = b"GET /of/x HTTP/1.1\r\n" + HOST + b"\r\n"
    post = b"POST /echo HTTP/1.1\r\n" + HOST
    for said in (
        await asking.raw(post + b"Content-Length: 3\r\n\r\nabc" + get),
        await asking.raw(post + b"Content-Length: 3\r\n\r\n", b"a", b"bc" + get),
        await asking.raw(post + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + get),
    ):
        assert said.count(b"HTTP/1.1 200 OK\r\n") == 2
        assert b"POST /echo\n" in said
        assert b"GET /of/x\n" in said
    asked = len(desk.asked)
    assert await asking.raw(post + b"Content-Length: 3\r\n\r\nab") == b""  # never whole: never a request
    assert len(desk.asked) == asked


async def test_who_waits_with_a_body_is_told_to_go_on(asking: Asking) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", asking.port)
    writer.write(b"POST /echo HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await reader.readuntil(b"\r\n")) == b"HTTP/1.1 200 OK\r\n"
    writer.close()


async def test_a_body_that_no_page_takes_is_refused_while_it_comes(asking: Asking) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", asking.port)
    size = 8 * BODY
    writer.write(b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size)
    writer.write(bytes(BODY + 70000))
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close\r\n" in await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def test_a_body_that_will_be_too_large_is_not_waited_for(asking: Asking) -> None:
    """RFC 9110, section 10.1.1: a server that can say the final status at once need not ask for the content."""
    reader, writer = await asyncio.open_connection("127.0.0.1", asking.port)
    writer.write(b"POST /echo HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % 10**9)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413 ")
    writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /echo HTTP/2.0\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n" + HOST + b"A: " + b"a" * 70000 + b"\r\n\r\n", 431),
        (b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nno size", 400),
    ],
)
async def test_what_is_no_request_is_answered_and_the_connection_closed(
    asking: Asking, desk: Desk, sent: bytes, status: int
) -> None:
    said = await asking.raw(sent + b"GET /echo HTTP/1.1\r\n" + HOST + b"\r\n")
    assert int(said.split()[1]) == status
    assert said.count(b"\r\nDate: ") == 1
    assert b"Connection: close\r\n" in said
    assert desk.asked == desk.errors == []


async def test_where_there_is_no_page(asking: Asking) -> None:
    for path in ("/", "/echo/", "/of/x/y", "/{name}", "/of"):
        assert (await asking.get(path)).status == 404
    refused = await asking.head("/of/x"), await asking.post("/of/x")
    assert [each.status for each in refused] == [200, 405]
    assert refused[1].headers["Allow"] == "GET, HEAD"


async def test_a_page_that_fails_is_told_of_and_the_next_one_answers(asking: Asking, desk: Desk) -> None:
    assert (await asking.get("/broken")).status == 500
    assert [str(error["exception"]) for error in desk.errors] == ["oops"]
    assert (await asking.get("/echo")).status == 200


def test_who_goes_while_a_page_is_made_is_no_news() -> None:
    """On the loop that serves: a write to who has gone is an error there that no network has."""

    async def gone() -> list[dict[str, Any]]:
        desk = Desk()
        asyncio.get_running_loop().set_exception_handler(lambda _, error: desk.errors.append(error))
        async with asyncio.timeout(20), Asking(desk.app()) as asking:
            with socket.create_connection(("127.0.0.1", asking.port)) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it closes with a reset
                sock.sendall(b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n")
                await desk.begun.wait()
            assert (await asking.get("/echo")).status == 200
            desk.go.set()
            assert (await asking.get("/echo")).status == 200
        return desk.errors

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(gone()) == []


async def test_a_stream_that_fails_is_seen_to_be_cut(asking: Asking, desk: Desk) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", asking.port)
    writer.write(b"GET /breaks-off HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (await reader.read()).endswith(b"\r\n\r\n4\r\none\n\r\n")
    writer.close()
    assert [str(error["exception"]) for error in desk.errors] == ["oops"]


async def test_a_stream_ends_when_its_reader_goes(asking: Asking, desk: Desk) -> None:
    async with asking.get("/stream") as stream:
        assert await stream.content.readline() == b"one\n"
        assert not desk.left.is_set()
    await desk.left.wait()


async def test_a_stream_ends_with_the_port_and_whole(desk: Desk) -> None:
    async with asyncio.timeout(20), Asking(desk.app(), patience=60) as asking:
        await streams_to_the_end(asking)


async def streams_to_the_end(asking: Asking) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", asking.port)
    old_reader, old_writer = await asyncio.open_connection("127.0.0.1", asking.port)
    writer.write(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n")
    old_writer.write(b"GET /stream HTTP/1.0\r\n" + HOST + b"\r\n")
    assert b"Transfer-Encoding: chunked\r\n" in await reader.readuntil(b"one\n")
    assert b"Transfer-Encoding" not in await old_reader.readuntil(b"one\n")
    await asking.close()
    assert await reader.read() == b"\r\n5\r\nlast\n\r\n0\r\n\r\n"
    assert await old_reader.read() == b"last\n"
    writer.close()
    old_writer.close()


async def test_nobody_holds_the_end_up(desk: Desk) -> None:
    """Who rests, who has not said all, who sends no body, and who takes nothing of a large answer."""
    async with asyncio.timeout(20), Asking(desk.app(), patience=0.01) as asking:
        await end_before(asking)


async def end_before(asking: Asking) -> None:
    begun = (b"", b"GET /ec", b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n")
    large = b"GET /large HTTP/1.1\r\n" + HOST + b"\r\n"
    streams = [await asyncio.open_connection("127.0.0.1", asking.port, limit=1) for _ in range(4)]
    for (_, writer), sent in zip(streams, (*begun, large), strict=True):
        writer.write(sent)
    assert await streams[3][0].readexactly(1) == b"H"
    await asking.close()
    for reader, _ in streams[:3]:
        assert await reader.read() == b""
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", asking.port)
    for _, writer in streams:
        writer.transport.abort()


async def test_who_comes_takes_the_place_of_who_rested_longest(asking: Asking) -> None:
    """Any number of connections, and no more descriptors than are kept for them: the next one is heard."""
    streams = [await asyncio.open_connection("127.0.0.1", asking.port)]
    streams[0][1].write(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n")
    await streams[0][0].readuntil(b"one\n")
    streams += [await asyncio.open_connection("127.0.0.1", asking.port) for _ in range(3 * MOST)]
    for reader, _ in streams[1:-MOST]:
        assert await reader.read() == b""
    assert (await asking.get("/echo")).status == 200
    assert not streams[0][0].at_eof()  # who is being told something is not at rest
    for _, writer in streams:
        writer.transport.abort()


async def test_where_nobody_rests_the_oldest_makes_room(asking: Asking) -> None:
    streams = []
    for _ in range(MOST + 1):
        reader, writer = await asyncio.open_connection("127.0.0.1", asking.port)
        writer.write(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n")
        await reader.readuntil(b"one\n")
        streams.append((reader, writer))
    assert await streams[0][0].read() == b"\r\n"
    assert (await asking.get("/echo")).status == 200
    for _, writer in streams:
        writer.transport.abort()


async def test_who_takes_nothing_is_given_up(asking: Asking, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED", 0.05)
    _, writer = await asyncio.open_connection("127.0.0.1", asking.port, limit=1)
    writer.write(b"GET /floods HTTP/1.1\r\n" + HOST + b"\r\n")
    await desk.left.wait()
    writer.transport.abort()
