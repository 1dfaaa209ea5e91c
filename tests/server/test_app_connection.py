"""The app's connection: keep-alive, pipelining, versions, interim answers, early answers, going away, half-closing."""

# ruff: noqa: SIM117  upstream, proxy and app are nested as they depend on each other
from __future__ import annotations

import asyncio
import contextlib
import gc
import socket

import pytest
from support.front import CutError, Front, chunked, request, to
from support.scripted import Turn, Upstream, answer, gated, hang, reset, then_close

from proxy.forward.exchange import Exchange
from proxy.retry.facts import Outcome
from proxy.server.connection import AppConnection


async def test_pipelined_requests_are_answered_in_order() -> None:
    steps = [answer(200, str(n).encode()) for n in range(5)]
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(b"".join(request("GET", f"/api/{n}", host="127.0.0.1") for n in range(5)))
        assert [(await app.read()).body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
        assert [r.target for r in upstream.requests] == ["/0", "/1", "/2", "/3", "/4"]


async def test_a_thousand_pipelined_refusals_do_not_pile_up() -> None:
    async with Front() as front, front.app() as app:
        app.send(request("GET", "/nowhere") * 3000)
        for _ in range(3000):
            assert (await app.read()).status == 404


async def test_a_pipelined_request_behind_a_body() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("POST", "/api/1", body=b"abc", host="localhost") + request("GET", "/api/2", host="localhost"))
        assert (await app.read()).status == 200
        assert (await app.read()).status == 200
        assert [r.body for r in upstream.requests] == [b"abc", b""]


async def test_close_is_said_and_done() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("GET", "/api/", "Connection: close")
        assert reply.one("connection") == "close"
        assert await app.rest() == b""
        assert upstream.requests[0].one("connection") is None


async def test_http_1_0_gets_no_chunks_and_no_interim_answers() -> None:
    parts = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + answer(
        200, b"", "Transfer-Encoding: chunked", length=False
    )
    step = parts + chunked(b"abc", b"def", trailers=b"X-T: 1\r\n")
    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(b"GET /api/ HTTP/1.0\r\n\r\n")
        whole = await app.rest()
        head, _, body = whole.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"chunked" not in head
        assert body == b"abcdef"
        assert upstream.requests[0].line == "GET / HTTP/1.1"
        assert upstream.requests[0].one("via") == f"1.0 {front.path.context.via}"


async def test_http_1_0_keep_alive() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        for _ in range(2):
            reply = await app.ask("GET", "/api/", "Connection: keep-alive", version="1.0")
            assert reply.one("connection") == "keep-alive"


async def test_interim_answers_pass() -> None:
    step = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + answer(200, b"ok")
    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("GET", "/api/")
        assert [info[9:12] for info in reply.infos] == [b"103", b"102"]
        assert b"Link: </x>" in reply.infos[0]
        assert reply.body == b"ok"


async def test_an_interim_answer_commits_nothing() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with Upstream(hint + answer(503), answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front:
        async with front.app() as app:
            reply = await app.ask("GET", "/api/")
            assert reply.status == 200
            assert len(reply.infos) == 1


async def test_the_expectation_is_forwarded_and_its_answer_passed_on() -> None:
    async def step(turn: Turn) -> None:
        assert turn.request.one("expect") == "100-continue"
        await turn.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await turn.read_body() == b"hello"
        await turn.write(answer(200, b"ok"))

    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("POST", "/api/", "Expect: 100-continue", "Content-Length: 5", host="127.0.0.1"))
        assert (await app.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        app.send(b"hello")
        assert (await app.read()).body == b"ok"


async def test_a_final_answer_to_an_expectation_closes_the_connection() -> None:
    async def step(turn: Turn) -> None:
        await turn.write(answer(417))

    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("POST", "/api/", "Expect: 100-continue", "Content-Length: 5", host="127.0.0.1"))
        reply = await app.read()
        assert reply.status == 417
        assert reply.one("connection") == "close"
        assert await app.rest() == b""


async def test_an_expectation_is_kept_over_a_retry() -> None:
    async def fail(turn: Turn) -> None:
        await turn.write(answer(503))

    async def succeed(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await turn.read_body()
        await turn.write(answer(200, b"ok"))

    async with Upstream(fail, succeed) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("PUT", "/api/", "Expect: 100-continue", "Content-Length: 5", host="127.0.0.1"))
        assert (await app.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        app.send(b"hello")
        reply = await app.read()
        assert (reply.status, reply.one("x-attempt-count")) == (200, "2")
        assert upstream.requests[1].body == b"hello"


async def test_head_204_and_304_have_no_body() -> None:
    steps = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        answer(204),
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n",
        answer(200, b"end"),
    )
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        head = await app.ask("HEAD", "/api/")
        assert head.one("content-length") == "5"
        assert (await app.ask("GET", "/api/")).status == 204
        assert (await app.ask("GET", "/api/")).status == 304
        assert (await app.ask("GET", "/api/")).body == b"end"
        assert upstream.connections == 1


async def test_a_close_delimited_answer_comes_whole_and_keeps_the_app_connection() -> None:
    step = then_close(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        for _ in range(2):
            reply = await app.ask("GET", "/api/")
            assert reply.body == b"until the end"
            assert reply.one("transfer-encoding") == "chunked"


async def test_an_http_1_0_upstream() -> None:
    step = then_close(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("GET", "/api/")
        assert reply.head.startswith(b"HTTP/1.1 200")
        assert reply.one("via") == f"1.0 {front.path.context.via}"
        assert (await app.ask("GET", "/api/")).body == b"ok"
        assert upstream.connections == 2


async def test_trailers_pass_both_ways() -> None:
    step = answer(200, b"", "Transfer-Encoding: chunked", "Trailer: X-Sum", length=False) + chunked(
        b"abc", trailers=b"X-Sum: 7\r\nx-two: 2\r\n"
    )
    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        body = chunked(b"hello ", b"you", trailers=b"X-Req: 1\r\n")
        reply = await app.ask("POST", "/api/", "Transfer-Encoding: chunked", body=body)
        assert reply.body == b"abc"
        assert reply.trailers == b"X-Sum: 7\r\nx-two: 2\r\n"
        assert upstream.requests[0].body == b"hello you"
        assert upstream.requests[0].trailers == b"X-Req: 1\r\n"


async def test_the_first_byte_comes_when_it_comes() -> None:
    more = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
    async with Upstream(gated(more, head + b"first", b"secnd")) as upstream, Front(to("api", upstream.url)) as front:
        async with front.app() as app:
            app.send(request("GET", "/api/", host="127.0.0.1"))
            assert b"200 OK" in await app.reader.readuntil(b"\r\n\r\n")
            assert await app.reader.readexactly(5) == b"first"
            more.set()
            assert await app.reader.readexactly(5) == b"secnd"


@pytest.mark.parametrize(
    "begun",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
    ],
)
async def test_a_cut_answer_is_seen_to_be_cut(begun: bytes) -> None:
    async with Upstream(then_close(begun)) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        with pytest.raises(CutError) as cut:
            await app.ask("GET", "/api/")
        assert cut.value.answer.body == b"first" or cut.value.answer.head == b""
        assert (await front.observed.until(1))[0]["outcome"] is Outcome.COMMITTED


async def test_an_answer_that_breaks_its_chunks_is_cut() -> None:
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
    more = asyncio.Event()
    async with Upstream(gated(more, begun, b"zz\r\n")) as upstream, Front(to("api", upstream.url)) as front:
        async with front.app() as app:
            app.send(request("GET", "/api/", host="127.0.0.1"))
            await app.reader.readuntil(b"first\r\n")
            more.set()
            with pytest.raises(ConnectionResetError):
                await app.rest()
            assert bytes(app.reader._buffer) == b""  # type: ignore[attr-defined]  # and no last chunk
            assert (await front.observed.until(1))[0]["outcome"] is Outcome.COMMITTED


async def test_an_answer_that_only_its_connection_ends_is_cut_by_a_reset() -> None:
    more = asyncio.Event()
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"

    async def step(turn: Turn) -> None:
        await turn.write(begun)
        await more.wait()
        turn.close()

    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(b"GET /api/ HTTP/1.0\r\n\r\n")
        await app.reader.readuntil(b"first")
        more.set()
        with pytest.raises(ConnectionError):
            await app.rest()


async def test_a_malformed_answer_is_502() -> None:
    async with (
        Upstream(b"HTTP/1.1 200 OK\r\nBad Field: 1\r\n\r\n") as upstream,
        Front(to("api", upstream.url)) as front,
    ):
        async with front.app() as app:
            reply = await app.ask("POST", "/api/")
            assert reply.status == 502
            assert "error=http_protocol_error" in (reply.one("proxy-status") or "")


async def test_the_app_gone_cancels_the_attempt() -> None:
    async with Upstream(hang) as upstream, Front(to("api", upstream.url)) as front:
        async with front.app() as app:
            app.send(request("GET", "/api/", host="127.0.0.1"))
            await upstream.until(1)
            app.vanish()
            await upstream.gone.wait()
        assert (await front.observed.until(1))[0]["outcome"] is Outcome.CLIENT_GONE


async def test_an_app_that_only_closes_its_socket_is_gone_too() -> None:
    async with Upstream(hang) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("GET", "/api/", host="127.0.0.1"))
        await upstream.until(1)
        app.writer.close()  # a FIN, no RST
        await upstream.gone.wait()
        assert (await front.observed.until(1))[0]["outcome"] is Outcome.CLIENT_GONE


@pytest.mark.parametrize("framing", ["Content-Length: 1000000000", "Transfer-Encoding: chunked"])
async def test_an_app_whose_end_is_stuck_behind_its_upload_is_gone_too(framing: str) -> None:
    """The upstream reads nothing, so nothing is read from the app: its FIN waits in its own kernel for ever."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with Front(to("api", f"http://127.0.0.1:{listener.getsockname()[1]}")) as front:
            app = socket.create_connection(("127.0.0.1", front.port))
            app.setblocking(False)
            await loop.sock_sendall(app, request("POST", "/api/", framing, host="localhost") + b"3b9aca00\r\n")
            peer, _ = await loop.sock_accept(listener)
            (connection,) = front.path.acceptor.open
            while not connection._held:
                with contextlib.suppress(BlockingIOError):
                    app.send(b"x" * 10_000)
                await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    app.send(b"x" * 65536)
            app.close()
            assert (await front.observed.until(1))[0]["outcome"] is Outcome.CLIENT_GONE
            peer.close()


async def test_an_app_that_half_closes_gets_its_answer() -> None:
    more = asyncio.Event()
    async with Upstream(gated(more, b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n\r\nok")) as upstream:
        async with Front(to("api", upstream.url)) as front, front.app() as app:
            app.send(request("GET", "/api/1", host="127.0.0.1") + request("GET", "/api/2", host="127.0.0.1"))
            app.end()
            await upstream.until(1)
            more.set()
            assert (await app.read()).body == b"ok"
            assert (await app.read()).body == b"ok"
            assert await app.rest() == b""


async def test_an_app_that_half_closed_and_then_closes_is_gone() -> None:
    async with Upstream(hang) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("GET", "/api/", host="127.0.0.1"))
        app.end()
        await upstream.until(1)
        app.writer.close()
        await upstream.gone.wait()
        await front.observed.until(1)


async def test_an_app_that_ends_within_its_body_is_gone() -> None:
    async with Upstream(hang) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("POST", "/api/", "Content-Length: 10", host="127.0.0.1") + b"abc")
        await upstream.until(1)
        app.end()
        await upstream.gone.wait()
        assert (await front.observed.until(1))[0]["outcome"] is Outcome.CLIENT_GONE


async def test_a_broken_request_body_is_400() -> None:
    async with Upstream(hang) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("POST", "/api/", "Transfer-Encoding: chunked", host="127.0.0.1") + b"3\r\nabc\r\n")
        await upstream.until(1)
        app.send(b"nonsense\r\n")
        reply = await app.read()
        assert reply.status == 400
        assert reply.one("connection") == "close"
        await upstream.gone.wait()
        assert (await front.observed.until(1))[0]["outcome"] is Outcome.BAD_REQUEST


async def test_an_early_answer_passes_while_the_body_is_still_coming() -> None:
    async def step(turn: Turn) -> None:
        await turn.write(answer(413, b"too much"))
        turn.close()

    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("POST", "/api/", "Content-Length: 1000000", host="127.0.0.1") + b"x" * 1000)
        reply = await app.read()
        assert (reply.status, reply.body) == (413, b"too much")
        assert reply.one("connection") == "close"
        app.send(b"x" * 100_000)
        assert await app.rest() == b""


async def test_an_early_answer_is_retried_while_the_body_is_kept() -> None:
    async def step(turn: Turn) -> None:
        await turn.write(answer(503))
        turn.close()

    async with Upstream(step, answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front:
        async with front.app() as app:
            app.send(request("PUT", "/api/", "Content-Length: 2000", host="127.0.0.1") + b"x" * 1000)
            await upstream.until(2)
            app.send(b"y" * 1000)
            reply = await app.read()
            assert reply.status == 200
            assert upstream.requests[1].body == b"x" * 1000 + b"y" * 1000


async def test_bad_requests_are_refused_and_the_connection_closed() -> None:
    for raw, status in (
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431),
    ):
        async with Front() as front, front.app() as app:
            app.send(raw)
            reply = await app.read()
            assert (raw[:40], reply.status) == (raw[:40], status)
            assert reply.one("connection") == "close"
            assert await app.rest() == b""
            assert front.observed.refusals[0].status == status


async def test_unsolicited_bytes_retire_a_connection() -> None:
    steps = (answer(200, b"ok") + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", answer(200, b"good"))
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("GET", "/api/")).body == b"ok"
        assert (await app.ask("GET", "/api/")).body == b"good"
        assert upstream.connections == 2


async def test_a_reset_while_waiting_for_the_answer_of_a_post_is_502() -> None:
    async with Upstream(reset) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("POST", "/api/")).status == 502
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("steps", [[answer(200, b"ok")], [answer(200, b"ok"), answer(503), answer(200, b"ok")]])
async def test_a_connection_that_closed_is_no_garbage(steps: list[Turn]) -> None:
    """What a connection held is free at once, and not only when garbage is collected."""

    def held() -> list[object]:
        return [each for each in gc.get_objects() if isinstance(each, AppConnection | Exchange)]

    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front:
        gc.collect()
        before = len(held())
        gc.disable()
        try:
            async with front.app() as app:
                for _ in range(len(steps) // 2 + 1):
                    assert (await app.ask("GET", "/api/")).body == b"ok"
                assert len(held()) == before + 2
            async with asyncio.timeout(30):
                while len(held()) > before:  # noqa: ASYNC110  no event tells of it
                    await asyncio.sleep(0)
        finally:
            gc.enable()
