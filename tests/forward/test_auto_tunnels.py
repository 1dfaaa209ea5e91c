"""`connect: auto`: cleartext HTTP inside a CONNECT becomes calls, anything else stays blind."""

from __future__ import annotations

import asyncio

import pytest
from support.front import CutError, Front, request, to
from support.ports import free_port
from support.scripted import Upstream, answer, gated

from proxy.retry.facts import Outcome
from proxy.wire.first_bytes import greets, speaks_http
from proxy.wire.http2.frames import PREFACE

SETTINGS = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"


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
        assert [call["attempts"] for call in front.observed.calls] == [2, 1]  # the CONNECT itself needed none


@pytest.mark.parametrize(("value", "status"), [("soon", 400), ("0", 504)])
async def test_a_connect_whose_timeout_cannot_be_read_or_is_over_is_refused(value: str, status: int) -> None:
    async with Upstream() as upstream, Front(to("api", upstream.url, hosts=["svc.test"])) as front, front.app() as app:
        reply = await app.ask("CONNECT", "svc.test:80", f"X-Retry-Timeout: {value}")
        assert (reply.status, reply.one("x-attempt-count")) == (status, "0")
        assert upstream.connections == 0


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


async def test_nothing_is_dialled_for_calls() -> None:
    async with (
        Upstream(answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, hosts=["svc.test"])) as front,
        front.app() as app,
    ):
        reply = await app.ask("CONNECT", "svc.test:80")
        assert (reply.status, reply.one("x-attempt-count")) == (200, "0")
        assert upstream.connections == 0
        assert (await app.ask("GET", "/", "Host: svc.test")).body == b"ok"
        assert upstream.connections == 1
        assert [call["endpoint"] for call in front.observed.calls] == [upstream.authority]


async def test_an_upstream_that_is_not_there_fails_the_calls_and_not_the_connect() -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    async with Front(to("api", dead, hosts=["svc.test"])) as front, front.app() as app:
        assert (await app.ask("CONNECT", "svc.test:80")).status == 200
        assert (await app.ask("GET", "/", "Host: svc.test")).status == 502
        assert front.observed.calls[0]["attempts"] == 3


async def test_what_is_blind_is_dialled_and_cut_where_nobody_is_there() -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    async with Front(to("api", dead, hosts=["svc.test"])) as front, front.app() as app:
        assert (await app.ask("CONNECT", "svc.test:443")).status == 200
        app.send(b"\x16\x03\x01\x02\x00")
        with pytest.raises(ConnectionResetError):
            await app.rest()
        (call,) = await front.observed.until(1)
        assert (call["outcome"], call["attempts"], call["status"]) == (Outcome.ATTEMPTS_EXHAUSTED, 3, 502)


@pytest.mark.parametrize("closed", [False, True], ids=["goes on", "says no more"])
async def test_all_that_was_said_while_it_was_dialled_arrives(closed: bool) -> None:
    came = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(100_005) == b"\x16" * 100_005
        if closed:
            assert await reader.read() == b""
        came.set()
        writer.write(b"bye")
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Front(to("api", f"http://127.0.0.1:{port}", hosts=["svc.test"])) as front, front.app() as app:
        app.send(request("CONNECT", "svc.test:443") + b"\x16" * 5)
        app.send(b"\x16" * 100_000)
        if closed:
            app.writer.write_eof()
        assert (await app.read("CONNECT")).status == 200
        assert await app.rest() == b"bye" and came.is_set()


async def test_silence_is_dialled_and_the_first_bytes_still_decide() -> None:
    async with (
        Upstream(answer(503), answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, hosts=["svc.test"])) as front,
        front.app() as app,
    ):
        assert (await app.ask("CONNECT", "svc.test:80")).status == 200
        await upstream.dialled.wait()
        reply = await app.ask("GET", "/", "Host: svc.test")
        assert (reply.body, reply.one("x-attempt-count")) == (b"ok", "2")
        assert [(call["outcome"], call["attempts"]) for call in front.observed.calls] == [
            (Outcome.SUCCESS, 1),
            (Outcome.SUCCESS, 2),
        ]


@pytest.mark.parametrize("speaks", ["http/2", "not"])
async def test_a_greeting_of_settings_is_held_until_the_app_speaks(speaks: str) -> None:
    """Where the upstream has no url, it is dialled first; servers of gRPC greet."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SETTINGS)
        while data := await reader.read(65536):
            heard.put_nowait(data)
            writer.write(b"reply")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = f"127.0.0.1:{port}"
    async with server, Front(to("api", hosts=[place])) as front, front.app() as app:
        assert (await app.ask("CONNECT", place)).status == 200
        if speaks == "not":
            app.send(b"\x16\x03\x01\x02\x00")
            assert await heard.get() == b"\x16\x03\x01\x02\x00"
            assert await app.reader.readexactly(len(SETTINGS) + 5) == SETTINGS + b"reply"
            return
        app.send(PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        first = await app.reader.readexactly(9)
        assert first[3:] == SETTINGS[3:9] and first + await app.reader.readexactly(first[2]) != SETTINGS
        assert (await front.observed.until(1))[0]["outcome"] is Outcome.SUCCESS
        assert heard.empty()


@pytest.mark.parametrize(
    ("data", "is_so"),
    [
        (SETTINGS, True),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", True),
        (SETTINGS[:4], None),
        (b"", None),
        (b"220 ready\r\n", False),
        (b"\x00\x00\x05\x04\x00\x00\x00\x00\x00", False),
        (b"\x00\x00\x06\x04\x01", False),
        (b"\x4a\x00\x00\x00\x0a8.0", False),
    ],
)
def test_what_a_greeting_is(data: bytes, is_so: bool | None) -> None:
    assert greets(data) is is_so


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
        (PREFACE, True),
        (PREFACE + b"\0", True),
        (PREFACE[:23], None),
        (b"PRI * HTTP/2.0\r\n\r\nSX", False),
    ],
)
def test_what_a_request_line_is(data: bytes, speaks: bool | None) -> None:
    assert speaks_http(data) is speaks


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x02\x00", b"GET / HT", b""])
@pytest.mark.parametrize("url", ["http", "https"])
async def test_an_end_behind_a_pipelined_connect_comes_behind_what_was_said(first: bytes, url: str) -> None:
    """A CONNECT, what goes into its tunnel and the app's end, all while a call before it is under way."""
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    go_on = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set_result(await reader.read(-1))
        writer.write(b"reply")
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        Upstream(gated(go_on, answer(200, b"ok"))) as upstream,
        Front(to("api", upstream.url), to("svc", f"{url}://127.0.0.1:{port}", hosts=["svc.test"])) as front,
        front.app() as app,
        asyncio.timeout(10),
    ):
        app.send(request("GET", "/api/x", host=app.authority) + request("CONNECT", "svc.test:443") + first)
        app.end()
        await upstream.until(1)
        (connection,) = front.path.acceptor.open
        while not connection._half_closed:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0)
        go_on.set()
        assert (await app.read()).body == b"ok"
        assert (await app.read("CONNECT")).status == 200
        assert await heard == first
        assert await app.rest() == b"reply"


async def test_an_end_within_a_request_that_a_tunnel_became() -> None:
    """A request whose body is cut short by the app's end is never passed on as a whole one."""
    go_on = asyncio.Event()
    async with (
        Upstream(gated(go_on, answer(200, b"ok")), answer(200, b"whole")) as upstream,
        Front(to("api", upstream.url, hosts=["svc.test"])) as front,
        front.app() as app,
        asyncio.timeout(10),
    ):
        part = request("POST", "/cut", "Transfer-Encoding: chunked", host="svc.test") + b"3\r\nabc\r\n"
        app.send(request("GET", "/api/x", host=app.authority) + request("CONNECT", "svc.test:80") + part)
        app.end()
        await upstream.until(1)
        (connection,) = front.path.acceptor.open
        while not connection._half_closed:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0)
        go_on.set()
        assert (await app.read()).body == b"ok"
        assert (await app.read("CONNECT")).status == 200
        with pytest.raises((CutError, ConnectionError)):
            await app.read()
