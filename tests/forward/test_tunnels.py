"""CONNECT and Upgrade: bytes both ways, half-closes, refusals, retries before the tunnel and never after."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.front import CutError, Front, request, to
from support.ports import free_port
from support.scripted import Turn, Upstream, answer

from proxy.config.settings import Limits
from proxy.retry.facts import Outcome

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write(b"the end")
    writer.close()


async def test_a_tunnel_carries_bytes_both_ways_and_half_closes() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Front() as front, front.app() as app:
        app.send(request("CONNECT", f"127.0.0.1:{port}") + b"early ")
        reply = await app.read("CONNECT")
        assert reply.status == 200
        assert reply.one("content-length") is None
        app.send(b"and late")
        assert await app.reader.readexactly(14) == b"early and late"
        app.end()
        assert await app.rest() == b"the end"
        call = (await front.observed.until(1))[0]
        assert (call["outcome"], call["status"], call["bytes_in"], call["bytes_out"]) == (Outcome.SUCCESS, 200, 14, 21)


async def test_a_server_that_speaks_first() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Front() as front, front.app() as app:
        assert (await app.ask("CONNECT", f"127.0.0.1:{port}")).status == 200
        assert await app.reader.readexactly(11) == b"220 hello\r\n"


async def test_a_large_tunnelled_stream_is_held_back_and_comes_whole() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    blob = bytes(range(256)) * 40_000
    async with server, Front() as front, front.app() as app:
        await app.ask("CONNECT", f"127.0.0.1:{port}")

        async def send() -> None:
            for at in range(0, len(blob), 65536):
                app.send(blob[at : at + 65536])
                await app.writer.drain()

        sending = asyncio.ensure_future(send())
        assert await app.reader.readexactly(len(blob)) == blob
        await sending


async def test_a_dial_that_fails_is_retried_and_then_502() -> None:
    async with Front() as front, front.app() as app:
        reply = await app.ask("CONNECT", f"127.0.0.1:{free_port()}")
        assert reply.status == 502
        assert reply.one("x-attempt-count") == "3"
        assert front.observed.outcomes == [Outcome.ATTEMPTS_EXHAUSTED]


async def test_a_dial_goes_to_another_endpoint() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    urls = (f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{port}")
    async with server, Front(to("api", *urls, hosts=["svc.test"], connect="tunnel")) as front, front.app() as app:
        assert (await app.ask("CONNECT", "svc.test:443")).status == 200
        app.send(b"x")
        assert await app.reader.readexactly(1) == b"x"


async def test_what_may_not_be_tunnelled() -> None:
    limits = Limits(65536, 256, 10000, 2000, frozenset({443}))
    upstream = to("api", "http://127.0.0.1:9", hosts=["closed.test"], connect="deny")
    async with Front(upstream, limits=limits) as front:
        for place in ("closed.test:443", "other.test:444"):
            async with front.app() as app:
                reply = await app.ask("CONNECT", place)
                assert (reply.status, reply.one("connection")) == (403, "close")  # RFC 9931: no request behind it
                assert await app.rest() == b""
        assert "connect_ports" in front.observed.refusals[1].detail
    async with Front(unmatched="deny") as front, front.app() as app:
        assert (await app.ask("CONNECT", "other.test:443")).status == 403


async def test_the_proxy_itself_and_metadata_are_no_destination() -> None:
    async with Front() as front:
        for place in (
            f"127.0.0.1:{front.port}",
            "169.254.169.254:80",
            "[::ffff:a9fe:a9fe]:80",
            "[64:ff9b::a9fe:a9fe]:80",
        ):
            for method, target in (("GET", f"http://{place}/"), ("CONNECT", place)):
                async with front.app() as app:
                    reply = await app.ask(method, target)
                    assert reply.status == 403, place
                    assert "error=destination_ip_prohibited" in (reply.one("proxy-status") or "")
        assert set(front.observed.outcomes) == {Outcome.DENIED}


async def test_an_app_that_goes_takes_its_tunnel_with_it() -> None:
    gone = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        gone.set()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Front() as front:
        async with front.app() as app:
            await app.ask("CONNECT", f"127.0.0.1:{port}")
        await gone.wait()
        await front.observed.until(1)


async def test_a_websocket_passes_end_to_end() -> None:
    async def step(turn: Turn) -> None:
        assert turn.request.one("upgrade") == "websocket"
        assert turn.request.one("connection") == "Upgrade"
        await turn.write(SWITCH + b"greeting")
        assert await turn.reader.readexactly(4) == b"ping"
        await turn.write(b"pong")
        await turn.gone()

    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front:
        async with front.app() as app:
            reply = await app.ask("GET", "/api/ws", *WEBSOCKET)
            assert reply.status == 101
            assert (reply.one("connection"), reply.one("upgrade")) == ("Upgrade", "websocket")
            assert await app.reader.readexactly(8) == b"greeting"
            app.send(b"ping")
            assert await app.reader.readexactly(4) == b"pong"
            app.end()
            assert await app.rest() == b""
        assert (await front.observed.until(1))[0]["outcome"] is Outcome.SUCCESS


async def test_a_websocket_is_retried_only_before_its_101() -> None:
    async def step(turn: Turn) -> None:
        await turn.write(SWITCH)
        turn.close()

    async with Upstream(answer(503), step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("GET", "/api/ws", *WEBSOCKET)
        assert (reply.status, reply.one("x-attempt-count")) == (101, "2")
        app.end()
        assert await app.rest() == b""
        assert len(upstream.requests) == 2


async def test_an_upgrade_that_is_turned_down_is_a_call_like_any_other() -> None:
    async with Upstream(answer(200, b"no")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("GET", "/api/ws", *WEBSOCKET)).body == b"no"
        assert (await app.ask("GET", "/api/")).body == b"no"


async def test_a_101_that_nobody_asked_for_is_a_bad_answer() -> None:
    async with Upstream(SWITCH) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("POST", "/api/")).status == 502


async def test_h2c_is_cut_and_the_call_goes_on() -> None:
    fields = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("GET", "/api/", *fields)).body == b"ok"
        assert upstream.requests[0].one("upgrade") is None
        assert upstream.requests[0].one("http2-settings") is None


@pytest.mark.parametrize("size", [10, 1_000_000])
async def test_a_tunnel_that_is_reset_is_seen_to_be_reset(size: int) -> None:
    async def step(turn: Turn) -> None:
        await turn.write(SWITCH + b"x" * size)
        await turn.reader.read(1)
        turn.reset()

    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("GET", "/api/ws", *WEBSOCKET)
        assert reply.status == 101
        await app.reader.readexactly(size)
        app.send(b"!")
        with pytest.raises((ConnectionError, CutError, AssertionError)):
            assert await app.rest() != b""
        await front.observed.until(1)


def test_limits_can_be_replaced() -> None:
    assert replace(Limits(1, 2, 3, 4, None), waiting=5).waiting == 5
