"""The proxy ends with calls in progress: each app is told, or sees that its answer is not whole; nobody holds it up."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from support.front import STANDARD, Front, request, to
from support.scripted import Upstream, answer, gated, hang

from proxy.retry.call.reasons import CUT_SHORT, SHUT_DOWN
from proxy.retry.facts import Outcome
from proxy.retry.policies.policy import Backoff
from proxy.server import acceptor

BEGUN = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"


async def test_a_call_without_an_answer_is_told() -> None:
    async with Upstream(hang) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("GET", "/api/", host="127.0.0.1"))
        await upstream.until(1)
        ended = asyncio.create_task(front.path.close())
        response = await app.read()
        assert (response.status, response.one("connection"), response.one("retry-after")) == (503, "close", "1")
        assert "error=connection_terminated" in (response.one("proxy-status") or "")
        members = json.loads(response.body)
        assert (members["outcome"], members["detail"]) == ("overloaded", SHUT_DOWN)
        assert await app.rest() == b""
        app.vanish()
        await ended
        assert front.observed.outcomes == [Outcome.OVERLOADED]


@pytest.mark.parametrize(("scheme", "expected"), [("http", (502, None, CUT_SHORT)), ("https", (503, "1", SHUT_DOWN))])
async def test_a_post_that_was_not_sent_may_be_sent_again(scheme: str, expected: tuple[object, ...]) -> None:
    """The upstream takes the connection, and says nothing: nothing of a request is sent before TLS begins."""
    came = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        came.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Front(to("api", url)) as front, front.app() as app:
            app.send(request("POST", "/api/", "Content-Length: 3", host="127.0.0.1") + b"abc")
            await came.wait()
            ended = asyncio.create_task(front.path.close())
            response = await app.read()
            app.vanish()
            await ended
            assert (response.status, response.one("retry-after"), json.loads(response.body)["detail"]) == expected


@pytest.mark.parametrize("before", [0, 1], ids=["the first call", "one that went at once"])
async def test_a_call_that_waits_for_a_retry_gets_the_answer_that_was_kept(before: int) -> None:
    slow = replace(STANDARD, backoff=Backoff(300.0, 300.0, jitter="none"))
    steps = [answer(200)] * before + [answer(503, b"busy")]
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url, strategy=slow)) as front, front.app() as app:
        for _ in range(before):
            await app.ask("GET", "/api/", "Host: 127.0.0.1")
        app.send(request("GET", "/api/", host="127.0.0.1"))
        while front.path.waiting != 1:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0)
        ended = asyncio.create_task(front.path.close())
        response = await app.read()
        assert (response.status, response.body, response.one("connection")) == (503, b"busy", "close")
        app.vanish()
        await ended
        call = front.observed.calls[-1]
        assert (call["status"], call["outcome"]) == (503, Outcome.OVERLOADED)
        assert [(record.status, record.decision) for record in call["history"]] == [(503, "overloaded")]
        assert call["history"][0].why == SHUT_DOWN


@pytest.mark.parametrize("before", [0, 1], ids=["the first call", "one that went at once"])
async def test_an_answer_that_has_begun_is_seen_to_be_cut(before: int) -> None:
    steps = [answer(200)] * before + [gated(asyncio.Event(), BEGUN, b"")]
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        for _ in range(before):
            await app.ask("GET", "/api/", "Host: 127.0.0.1")
        app.send(request("GET", "/api/", host="127.0.0.1"))
        await app.reader.readuntil(b"first\r\n")
        await front.path.close()
        with pytest.raises(ConnectionResetError):
            await app.rest()
        assert bytes(app.reader._buffer) == b""  # type: ignore[attr-defined]  # and no last chunk
        call = front.observed.calls[-1]
        assert (call["status"], call["outcome"], call["detail"]) == (200, Outcome.COMMITTED, SHUT_DOWN)
        assert call["history"][-1].decision == "committed"


async def test_what_only_its_connection_ends_ends_with_a_reset() -> None:
    async with (
        Upstream(gated(asyncio.Event(), BEGUN, b"")) as upstream,
        Front(to("api", upstream.url)) as front,
        front.app() as app,
    ):
        app.send(b"GET /api/ HTTP/1.0\r\n\r\n")
        await app.reader.readuntil(b"first")
        await front.path.close()
        with pytest.raises(ConnectionError):
            await app.rest()


async def test_an_app_that_stays_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its answer and our FIN, and neither closes nor says a word."""
    monkeypatch.setattr(acceptor, "LAST_WORDS_SECONDS", 0.01)
    async with Upstream(hang) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.send(request("GET", "/api/", host="127.0.0.1"))
        await upstream.until(1)
        await front.path.close()
        assert not front.path.acceptor.open
        assert (await app.read()).status == 503
