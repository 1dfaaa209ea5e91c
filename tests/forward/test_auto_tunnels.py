"""`connect: auto`: cleartext HTTP/1 inside a CONNECT becomes calls, anything else stays blind."""

from __future__ import annotations

import asyncio

import pytest
from support.front import Front, request, to
from support.scripted import Upstream, answer

from proxy.forward.tunnel import speaks_http
from proxy.wire.http2.frames import INITIAL_WINDOW_SIZE, PREFACE, settings


async def test_cleartext_requests_in_a_tunnel_become_calls() -> None:
    async with (
        Upstream(answer(503), answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, hosts=["svc.test"])) as front,
        front.app() as app,
    ):
        assert (await app.ask("CONNECT", "svc.test:80")).status == 200
        reply = await app.ask("GET", "/x?y", "Host: svc.test")
        assert (reply.status, reply.one("x-attempt-count")) == (200, "2")
        assert [r.line for r in upstream.requests] == ["GET /x?y HTTP/1.1"] * 2
        assert upstream.requests[0].one("host") == "svc.test"
        assert (await app.ask("GET", "/again", "Host: svc.test:80")).status == 200
        assert (await app.ask("GET", "/", "Host: other.test")).status == 421
        assert [call["attempts"] for call in front.told.calls] == [1, 2, 1]


async def test_a_request_line_in_pieces_and_early() -> None:
    async with (
        Upstream(answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, hosts=["svc.test"])) as front,
        front.app() as app,
    ):
        app.send(request("CONNECT", "svc.test:80") + b"GET /pie")
        assert (await app.read("CONNECT")).status == 200
        app.send(b"ces HTTP/1.1\r\nHost: svc.test\r\n\r\n")
        assert (await app.read()).body == b"ok"
        assert upstream.requests[0].target == "/pieces"


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x02\x00", b"SSH-2.0-x\r\n", b"hello", b"GET / HTTP/2.0\r\n"])
async def test_anything_else_stays_blind(first: bytes) -> None:
    heard = asyncio.Event()
    came = b""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came = await reader.readexactly(len(first))
        heard.set()
        writer.write(b"reply")
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Front(to("api", f"http://127.0.0.1:{port}", hosts=["svc.test"])) as front, front.app() as app:
        await app.ask("CONNECT", "svc.test:443")
        app.send(first)
        assert await app.reader.readexactly(5) == b"reply"
        assert came == first


#: What gRPC servers say before anybody has said anything.
GREETING = settings({INITIAL_WINDOW_SIZE: 77_777})


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Greet; then send back what comes."""
    writer.write(GREETING)
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()


async def test_a_server_that_greets_with_settings_and_an_app_that_speaks_something_else() -> None:
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Front(to("api", f"http://127.0.0.1:{port}", hosts=["svc.test"])) as front, front.app() as app:
        assert (await app.ask("CONNECT", "svc.test:80")).status == 200
        app.send(b"\x16\x03\x01")
        assert await app.reader.readexactly(len(GREETING) + 3) == GREETING + b"\x16\x03\x01"


async def test_a_preface_in_a_tunnel_makes_calls_though_the_server_has_greeted() -> None:
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Front(to("api", f"http://127.0.0.1:{port}", hosts=["svc.test"])) as front, front.app() as app:
        assert (await app.ask("CONNECT", "svc.test:80")).status == 200
        app.send(PREFACE[:10])
        app.send(PREFACE[10:] + settings({}))
        first = await app.reader.readexactly(9)
        assert (first[3], first[5:]) == (4, bytes(4))
        said = await app.reader.readexactly(int.from_bytes(first[:3]))
        assert said != GREETING[9:] and len(said) > 6  # ours, not the server's
        assert front.told.calls[0]["outcome"] == "success"


async def test_a_server_that_speaks_first_stays_blind() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        assert await reader.readexactly(18) == b"GET / HTTP/1.1\r\n\r\n"
        writer.write(b"yes")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Front(to("api", f"http://127.0.0.1:{port}", hosts=["svc.test"])) as front, front.app() as app:
        await app.ask("CONNECT", "svc.test:25")
        assert await app.reader.readexactly(11) == b"220 ready\r\n"
        app.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await app.rest() == b"yes"


@pytest.mark.parametrize(
    ("data", "speaks"),
    [
        (b"GET / HTTP/1.1\r\nHost", True),
        (b"M-SEARCH * HTTP/1.0\r\n", True),
        (b"GET", None),
        (b"GET ", None),
        (b"GET /x HT", None),
        (b"GET /x HTTP/1.1\r", None),
        (b"GET /x HTTP/2", False),
        (b"GET / HTTP/1.1\n", False),
        (b"\x16\x03", False),
        (b"GET  ", False),
    ],
)
def test_what_a_request_line_is(data: bytes, speaks: bool | None) -> None:
    assert speaks_http(data) is speaks
