"""gRPC's statuses on HTTP/1.1, where no frame says that a head is the whole answer (contract, section 12, "Outcomes of
an attempt"): a successful head that names no status commits its call, whatever its trailers say, and however the
answer came.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.front import CLASSIFY, Front, chunked, request, to
from support.scripted import Step, Upstream, answer, gated

from proxy.retry.facts import Class, Outcome

GRPC = ("Content-Type: application/grpc", "TE: trailers", "Idempotency-Key: one")
NAMED = replace(CLASSIFY, grpc={14: Class.TRANSIENT})
HEAD = answer(200, b"", "Content-Type: application/grpc", "Transfer-Encoding: chunked", length=False)
END = b"0\r\ngrpc-status: 14\r\ngrpc-retry-pushback-ms: 1\r\n\r\n"


@pytest.mark.parametrize("body", [b"7\r\nmessage\r\n", b""])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_failure_in_trailers_is_not_retried(body: bytes, at_once: bool) -> None:
    head_came = asyncio.Event()
    step: Step = HEAD + body + END if at_once else gated(head_came, HEAD, body + END)
    async with Upstream(step) as upstream, Front(to("api", upstream.url, classify=NAMED)) as front, front.app() as app:
        app.send(request("POST", "/api/svc/M", *GRPC, host="127.0.0.1"))
        assert b"\r\nX-Attempt-Count: 1\r\n" in await app.reader.readuntil(b"\r\n\r\n")
        head_came.set()
        assert await app.reader.readuntil(b"\r\n\r\n") == body + END
        assert len(upstream.requests) == 1
        assert front.observed.outcomes == [Outcome.COMMITTED]


async def test_a_status_in_the_head_is_retried() -> None:
    failed = answer(200, b"", "Content-Type: application/grpc", "grpc-status: 14")
    fine = HEAD + chunked(b"message", trailers=b"grpc-status: 0\r\n")
    async with Upstream(failed, fine) as upstream, Front(to("api", upstream.url, classify=NAMED)) as front:
        async with front.app() as app:
            reply = await app.ask("POST", "/api/svc/M", *GRPC, body=b"1")
        assert (reply.body, reply.trailers) == (b"message", b"grpc-status: 0\r\n")
        assert [each.one("x-attempt-count") for each in upstream.requests] == ["1", "2"]
        assert front.observed.outcomes == [Outcome.SUCCESS]


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_error_is_judged_by_its_head_alone(at_once: bool) -> None:
    head = answer(503, b"", "Content-Type: application/grpc", "Transfer-Encoding: chunked", length=False)
    head_came = asyncio.Event()
    step: Step = head + END if at_once else gated(head_came, head, END)
    async with Upstream(step) as upstream, Front(to("api", upstream.url, classify=NAMED)) as front, front.app() as app:
        app.send(request("POST", "/api/svc/M", *GRPC[:2], host="127.0.0.1"))  # without a key
        assert b"outcome=not_retryable" in await app.reader.readuntil(b"\r\n\r\n")
        head_came.set()
        assert await app.reader.readuntil(b"\r\n\r\n") == END
        assert len(upstream.requests) == 1  # the 503 stands for UNAVAILABLE, which may have been carried out
