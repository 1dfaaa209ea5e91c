"""Answers that come before their request is whole: the app is told that the connection closes, or its next request is
answered. Nothing is ever taken from it and dropped that could be a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from support.front import App, CutError, Front, chunked, request, to
from support.scripted import Step, Turn, Upstream, answer

from proxy.server import connection_end
from proxy.server.connection import AppConnection

FINE = answer(200, b"fine")
HEAD = b"HTTP/1.1 200 OK\r\n"
LENGTH = (b"Content-Length: 4\r\n\r\nan", b"sw")
CHUNKS = (b"Transfer-Encoding: chunked\r\n\r\n2\r\nan\r\n", b"2\r\nsw\r\n0\r\n\r\n")


def streamed(begun: bytes, rest: bytes, more: asyncio.Event) -> Step:
    """An answer to a request's head, the end of which comes later, and never its connection's."""

    async def step(turn: Turn) -> None:
        await turn.write(begun)
        await more.wait()
        await turn.write(rest)
        await turn.gone()
        turn.closed = True

    return step


@asynccontextmanager
async def begun(step: Step, *steps: Step) -> AsyncIterator[tuple[Front, App]]:
    async with (
        Upstream(step, *(steps or (FINE,))) as upstream,
        Front(to("api", upstream.url)) as front,
        front.app() as app,
    ):
        yield front, app


async def until(so: Callable[[], object]) -> None:
    while not so():  # noqa: ASYNC110  no event tells of it
        await asyncio.sleep(0)


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("parts", [LENGTH, CHUNKS], ids=["an answer with a length", "a chunked answer"])
async def test_what_is_left_of_a_body_is_read_over(parts: tuple[bytes, bytes], version: str, framing: str) -> None:
    """The head of the answer had gone before anybody knew that its end would come first."""
    if version == "1.0" and (framing == "chunks" or parts is CHUNKS):
        pytest.skip("HTTP/1.0 has no chunks")
    more = asyncio.Event()
    async with begun(streamed(HEAD + parts[0], parts[1], more)) as (front, app):
        fields = ["Connection: keep-alive"] if version == "1.0" else []
        body = chunked(b"x" * 20) if framing == "chunks" else b"x" * 20
        length = "Transfer-Encoding: chunked" if framing == "chunks" else "Content-Length: 20"
        fields.append(length)
        app.send(request("POST", "/api/1", *fields, host="127.0.0.1", version=version) + body[:9])
        head = await app.reader.readuntil(b"\r\n\r\n")
        assert b"close" not in head
        more.set()
        await app.reader.readuntil(b"0\r\n\r\n" if parts is CHUNKS else b"answ")
        await front.observed.until(1)
        app.send(body[9:15])
        app.send(body[15:] + request("GET", "/api/2", host="127.0.0.1"))
        assert (await app.read()).body == b"fine"
        assert (await app.ask("GET", "/api/3", "Host: 127.0.0.1")).body == b"fine"


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (b"HTTP/1.1 413 Content Too Large\r\n", []),
        (b"HTTP/1.1 500 Oh\r\n", []),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", []),
        (b"HTTP/1.0 200 OK\r\n", []),
        (HEAD, ["Expect: 100-continue"]),
    ],
    ids=["413", "500", "its upstream closes", "HTTP/1.0 upstream", "the app waits for a 100"],
)
async def test_an_early_answer_that_wants_no_more_says_so(line: bytes, fields: list[str]) -> None:
    more = asyncio.Event()
    async with begun(streamed(line + LENGTH[0], LENGTH[1], more)) as (_, app):
        app.send(request("POST", "/api/", "Content-Length: 20", *fields, host="127.0.0.1") + b"x" * 9)
        more.set()
        reply = await app.read()
        assert (reply.body, reply.one("connection")) == (b"answ", "close")
        app.send(b"x" * 11)
        assert await app.rest() == b""


async def test_an_answer_that_a_100_went_before_is_as_any_other() -> None:
    more = asyncio.Event()

    async def step(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await turn.reader.readexactly(2)
        await streamed(HEAD + LENGTH[0], LENGTH[1], more)(turn)

    async with begun(step) as (_, app):
        app.send(request("POST", "/api/", "Content-Length: 4", "Expect: 100-continue", host="127.0.0.1"))
        assert (await app.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 Continue\r\n")
        app.send(b"ab")
        assert b"close" not in await app.reader.readuntil(b"\r\n\r\n")
        more.set()
        assert await app.reader.readexactly(4) == b"answ"
        app.send(b"cd" + request("GET", "/api/2", host="127.0.0.1"))
        assert (await app.read()).body == b"fine"


@pytest.mark.parametrize("target", ["/nobody", "/api/"])
@pytest.mark.parametrize("framing", ["Content-Length: 20", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("fields", [[], ["Expect: 100-continue"]])
async def test_an_answer_of_ours_says_so(target: str, framing: str, fields: list[str]) -> None:
    async with Front(to("api", "http://127.0.0.1:1")) as front, front.app() as app:
        app.send(request("POST", target, framing, *fields, host="127.0.0.1"))
        reply = await app.read()
        assert (reply.status, reply.one("connection")) == (404 if target == "/nobody" else 502, "close")
        app.send(b"5\r\n" + b"x" * 17)
        assert await app.rest() == b""


@pytest.mark.parametrize("target", ["/nobody", "/api/"])
async def test_an_app_that_reads_only_when_it_has_sent_all_gets_its_answer(target: str) -> None:
    """urllib reads so, and Node loses an answer if sending fails before it was read."""
    more = asyncio.Event()
    more.set()
    async with begun(streamed(b"HTTP/1.1 413 No\r\n" + LENGTH[0], LENGTH[1], more)) as (_, app):
        app.send(request("POST", target, "Content-Length: 8000000", host="127.0.0.1"))
        for _ in range(80):
            app.send(b"x" * 100_000)
            await app.writer.drain()
        reply = await app.read()
        assert (reply.status, reply.one("connection")) == (404 if target == "/nobody" else 413, "close")
        assert await app.rest() == b""


async def send_without_end(app: App) -> None:
    """Send until the connection is reset."""
    with pytest.raises((ConnectionError, CutError)):
        while True:
            app.send(b"x" * 100_000)
            await app.writer.drain()
            await asyncio.sleep(0)


@pytest.mark.parametrize("target", ["/nobody", "/api/"])
async def test_a_body_without_end_is_not_read_for_ever(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes whole; what the app sends on is not taken any more, and it sees that by a RST."""
    monkeypatch.setattr(connection_end, "LINGER", 0.01)
    more = asyncio.Event()
    async with begun(streamed(HEAD + LENGTH[0], LENGTH[1], more)) as (front, app):
        app.send(request("POST", target, "Content-Length: 1000000000000", host="127.0.0.1") + b"x")
        if target == "/api/":
            await app.reader.readuntil(b"an")
            more.set()
            assert await app.reader.readexactly(2) == b"sw"
        else:
            assert (await app.read()).status == 404
        await send_without_end(app)
        await until(lambda: not front.path.acceptor.open)


async def test_an_app_that_still_sends_gets_its_answer_while_the_proxy_ends() -> None:
    """The end of the process would reset the connection, and the answer with it."""
    async with Front() as front, front.app() as app:
        app.send(request("POST", "/nobody", "Content-Length: 20", host="127.0.0.1"))
        assert (await app.read()).status == 404
        (connection,) = front.path.acceptor.open
        assert isinstance(connection, AppConnection)
        assert connection.is_silent(0.0)
        app.send(b"x")
        await until(lambda: connection._ending is not None and connection._ending.is_sent_more)
        assert not connection.is_silent(0.0)
        app.end()
        await until(lambda: not front.path.acceptor.open)


async def test_a_body_that_does_not_go_on_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_end, "LINGER", 0.01)
    more = asyncio.Event()
    async with begun(streamed(HEAD + LENGTH[0], LENGTH[1], more)) as (front, app):
        app.send(request("POST", "/api/", "Content-Length: 20", host="127.0.0.1") + b"x")
        await app.reader.readuntil(b"an")
        more.set()
        assert await app.reader.readexactly(2) == b"sw"
        assert await app.rest() == b""  # our FIN
        await until(lambda: not front.path.acceptor.open)


async def test_a_body_that_breaks_its_chunks_ends_there() -> None:
    more = asyncio.Event()
    async with begun(streamed(HEAD + LENGTH[0], LENGTH[1], more)) as (front, app):
        app.send(request("POST", "/api/", "Transfer-Encoding: chunked", host="127.0.0.1") + b"1\r\nx\r\n")
        await app.reader.readuntil(b"an")
        more.set()
        assert await app.reader.readexactly(2) == b"sw"
        await front.observed.until(1)
        (connection,) = front.path.acceptor.open
        assert isinstance(connection, AppConnection)
        assert connection._rest is not None
        app.send(b"nonsense\r\n" + request("GET", "/api/2", host="127.0.0.1"))
        assert await app.rest() == b""
        assert connection._rest._timer is None, "it is not waited for any more, which ended the wait of the close"


async def test_an_app_that_gives_its_body_up_may_close() -> None:
    more = asyncio.Event()
    async with begun(streamed(HEAD + LENGTH[0], LENGTH[1], more)) as (front, app):
        app.send(request("POST", "/api/", "Content-Length: 20", host="127.0.0.1") + b"x")
        await app.reader.readuntil(b"an")
        more.set()
        assert await app.reader.readexactly(2) == b"sw"
        app.end()
        assert await app.rest() == b""
        await until(lambda: not front.path.acceptor.open)
