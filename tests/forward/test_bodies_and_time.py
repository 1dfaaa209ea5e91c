"""Bodies that stream, bodies that outgrow their buffer, timeouts, hedges, connections that are and are not reused."""

# ruff: noqa: SIM117  upstream, proxy and app are nested as they depend on each other
from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from support.front import AT_ONCE, FAST, STANDARD, CutError, Front, chunked, request, to
from support.scripted import Turn, Upstream, answer, close, hang, reset

from proxy.config.settings import Buffers, PoolLimits
from proxy.forward.attempt import HOLDING, PEEKING, State
from proxy.retry.facts import Class, FaultKind, Outcome
from proxy.retry.policies.dialect import Classify, Rule
from proxy.retry.policies.policy import Backoff, Concurrency, IdempotencyKey, Strategy, Timeouts
from proxy.transport.dial import Way
from proxy.transport.origins import Origin

BLOB = bytes(range(256)) * 20_000  # 5 MB
HEDGED = Strategy("hedging", "hedging", 3, FAST, None, hedging_delay=0.0, non_fatal=frozenset({503, FaultKind.RESET}))


async def reach(front: Front, state: State) -> None:
    """Wait until an attempt is in this state."""
    while state not in [each.state for call in front.calls for each in call.flights.values()]:  # noqa: ASYNC110
        await asyncio.sleep(0)  # no event tells of it


async def test_a_large_download_and_upload_come_whole() -> None:
    steps = (answer(200, BLOB), answer(200, b"thanks"))
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("GET", "/api/")).body == BLOB
        assert (await app.ask("POST", "/api/", body=BLOB)).body == b"thanks"
        assert upstream.requests[1].body == BLOB
        chunks = chunked(*(BLOB[at : at + 100_000] for at in range(0, len(BLOB), 100_000)))
        assert (await app.ask("POST", "/api/", "Transfer-Encoding: chunked", body=chunks)).body == b"thanks"
        assert upstream.requests[2].body == BLOB


async def test_a_slow_reader_holds_the_upstream_back() -> None:
    written = 0

    async def step(turn: Turn) -> None:
        nonlocal written
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(BLOB) * 10))
        for _ in range(10):
            for at in range(0, len(BLOB), 65536):
                await turn.write(BLOB[at : at + 65536])
                written += 65536

    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        app.writer.transport.pause_reading()
        app.send(request("GET", "/api/", host="127.0.0.1"))
        await upstream.until(1)
        before = -1
        while before != written:  # until nothing moves any more
            before = written
            for _ in range(20):
                await asyncio.sleep(0.005)
        assert written < len(BLOB) * 9
        app.writer.transport.resume_reading()
        await app.reader.readuntil(b"\r\n\r\n")
        assert len(await app.reader.readexactly(len(BLOB) * 10)) == len(BLOB) * 10


async def test_a_body_that_outgrows_its_buffer_streams_on_in_one_attempt() -> None:
    small = Buffers(100_000, 1 << 20)
    async with Upstream(answer(503)) as upstream, Front(to("api", upstream.url), buffers=small) as front:
        async with front.app() as app:
            reply = await app.ask("PUT", "/api/", body=BLOB)
            assert reply.status == 503
            assert upstream.requests[0].body == BLOB
            assert front.observed.outcomes == [Outcome.COMMITTED]
            assert len(upstream.requests) == 1
            reply = await app.ask("PUT", "/api/", body=b"x" * 100_000)
            assert len(upstream.requests) == 4


@pytest.mark.parametrize("framing", ["chunked", "by length"])
@pytest.mark.parametrize("rest", [1, 5_000, 90_000, 100_000])
async def test_the_rest_of_a_body_and_its_end_come_together(rest: int, framing: str) -> None:
    """The end is known when the last bytes are taken. If these outgrow the buffer, the body is still sent, once."""
    begun = asyncio.Event()
    last = b"y" * rest

    async def step(turn: Turn) -> None:
        if not begun.is_set():
            begun.set()
        await turn.read_body()
        await turn.write(answer(503 if len(upstream.requests) == 1 else 200))

    small = Buffers(100_000, 1 << 20)
    async with Upstream(step) as upstream, Front(to("api", upstream.url, strategy=AT_ONCE), buffers=small) as front:
        async with front.app() as app:
            is_chunked = framing == "chunked"
            line = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {rest + 5}"
            app.send(request("PUT", "/api/", line, host="127.0.0.1"))
            app.send(b"5\r\nfirst\r\n" if is_chunked else b"first")
            await begun.wait()
            app.send(b"%x\r\n%b\r\n0\r\nA: b\r\n\r\n" % (rest, last) if is_chunked else last)
            reply = await app.read()
        kept = rest + 5 <= small.per_request
        assert (reply.status, reply.one("x-attempt-count")) == ((200, "2") if kept else (503, "1"))
        assert [each.body for each in upstream.requests] == [b"first" + last] * (2 if kept else 1)
        assert all(each.trailers == (b"A: b\r\n" if is_chunked else b"") for each in upstream.requests)


async def test_a_body_that_outgrows_its_buffer_while_it_waits_is_held_back() -> None:
    small = Buffers(100_000, 1 << 20)

    async def step(turn: Turn) -> None:
        await turn.write(answer(503))
        turn.close()

    slow = replace(STANDARD, backoff=Backoff(0.2, 0.2, jitter="none"))
    async with Upstream(step, answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, strategy=slow), buffers=small) as front, front.app() as app:
            reply = await app.ask("PUT", "/api/", body=BLOB)
            assert (reply.status, reply.one("x-attempt-count")) in ((200, "2"), (503, "1"))
            assert upstream.requests[-1].body in (BLOB, b"")


async def test_an_app_that_is_paused_while_its_call_waits_is_not_silent() -> None:
    small, first_goes = Buffers(100_000, 1 << 20), asyncio.Event()

    async def step(turn: Turn) -> None:
        await first_goes.wait()
        await turn.write(answer(200))

    policy: dict[str, Any] = {"timeouts": Timeouts(idle=30.0), "concurrency": Concurrency(1)}
    async with Upstream(step, answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, **policy), buffers=small) as front:
            async with front.app() as one, front.app() as two:
                one.send(request("GET", "/api/", host="127.0.0.1"))
                await upstream.until(1)
                two.send(request("PUT", "/api/", host="127.0.0.1", body=BLOB))
                while not any(call.upload and call.upload.paused for call in front.calls):  # noqa: ASYNC110  a state
                    await asyncio.sleep(0.001)
                front.pass_time(30.0)
                front.pass_time(60.0)
                first_goes.set()
                assert (await one.read()).status == 200
                assert (await two.read()).body == b"ok"
            assert upstream.requests[1].body == BLOB


async def test_an_app_that_waits_for_100_continue_while_its_call_waits_is_not_silent() -> None:
    first_goes = asyncio.Event()

    async def step(turn: Turn) -> None:
        await first_goes.wait()
        await turn.write(answer(200))

    async def continues(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await turn.read_body()
        await turn.write(answer(200, b"ok"))

    policy: dict[str, Any] = {"timeouts": Timeouts(idle=30.0), "concurrency": Concurrency(1)}
    async with Upstream(step, continues) as upstream, Front(to("api", upstream.url, **policy)) as front:
        async with front.app() as one, front.app() as two:
            one.send(request("GET", "/api/", host="127.0.0.1"))
            await upstream.until(1)
            two.send(request("PUT", "/api/", "Expect: 100-continue", "Content-Length: 4", host="127.0.0.1"))
            while len(front.calls) < 2:  # noqa: ASYNC110  no event tells of it
                await asyncio.sleep(0)
            front.pass_time(30.0)
            first_goes.set()
            assert (await one.read()).status == 200
            await upstream.until(2)
            two.send(b"body")
            assert (await two.read()).body == b"ok"
        assert upstream.requests[1].body == b"body"


async def test_a_body_does_not_go_on_to_an_attempt_whose_answer_is_held() -> None:
    small = Buffers(100_000, 1 << 20)

    async def step(turn: Turn) -> None:
        await turn.write(answer(429, b"", "Content-Length: 10", length=False) + b"half")
        await turn.gone()

    slow = replace(STANDARD, backoff=Backoff(0.2, 0.2, jitter="none"))
    async with Upstream(step, answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, strategy=slow), buffers=small) as front, front.app() as app:
            app.send(request("PUT", "/api/", f"Content-Length: {len(BLOB)}", host="127.0.0.1") + BLOB[:50_000])
            await reach(front, HOLDING)
            app.send(BLOB[50_000:])
            reply = await app.read()
            assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, b"ok", "2")
            assert upstream.requests[1].body == BLOB


async def test_an_answer_that_was_held_while_another_attempt_sent_the_whole_body_is_delivered() -> None:
    small, sent = Buffers(100_000, 1 << 20), asyncio.Event()

    async def first(turn: Turn) -> None:
        await turn.write(answer(503, b"", "Content-Length: 10", length=False) + b"half")
        await sent.wait()
        await turn.write(b"whole!")
        await turn.gone()

    async def second(turn: Turn) -> None:
        await turn.read_body()
        turn.reset()
        sent.set()

    hedged = replace(HEDGED, max_attempts=2, hedging_delay=0.01)
    async with Upstream(first, second) as upstream:
        async with Front(to("api", upstream.url, strategy=hedged), buffers=small) as front, front.app() as app:
            app.send(request("PUT", "/api/", f"Content-Length: {len(BLOB)}", host="127.0.0.1") + BLOB[:50_000])
            await reach(front, HOLDING)
            await upstream.until(2)
            app.send(BLOB[50_000:])
            reply = await app.read()
            assert (reply.status, reply.body) == (503, b"halfwhole!")


@pytest.mark.parametrize("ends", ["reset", "answer", "half an answer"])
async def test_a_hedge_gets_the_rest_of_a_body_that_another_attempt_was_too_slow_for(ends: str) -> None:
    """The app is paused for the slow one, and nothing else would have it go on: it was answered 408."""
    large, full = bytes(32 << 20), asyncio.Event()

    async def step(turn: Turn) -> None:
        if turn.request.one("x-attempt-count") == "2":
            await turn.read_body()
            await turn.write(answer(200, b"ok"))
            return
        await full.wait()
        if ends == "reset":
            turn.reset()
            return
        await turn.write(answer(503, b"", "Content-Length: 10", length=False) + b"half")
        if ends == "answer":
            await turn.write(b"whole!")
        await turn.gone()

    def waits_for_the_slow_one(call: Any) -> bool:
        slow, other = call.flights[1], call.flights[2]
        return bool(call.upload.paused and slow.stream.blocked and other.cursor == call.upload.size)

    api = {"strategy": replace(HEDGED, max_attempts=2), "bucket": None}
    async with Upstream(step) as upstream:
        async with Front(to("api", upstream.url, **api), buffers=Buffers(1 << 26, 1 << 27)) as front:
            async with front.app() as app:
                app.send(request("PUT", "/api/", f"Content-Length: {len(large)}", host="127.0.0.1"))
                await upstream.until(2)
                app.send(large)
                (call,) = front.calls
                while not waits_for_the_slow_one(call):  # noqa: ASYNC110  no event tells of it
                    await asyncio.sleep(0)
                before = call.upload.size
                full.set()
                while 1 in call.flights and call.flights[1].state is not HOLDING:  # noqa: ASYNC110
                    await asyncio.sleep(0)  # no event tells of it
                assert not call.upload.paused or call.upload.size > before
                assert (await app.read()).body == b"ok"


async def test_a_body_in_flight_is_not_held_where_its_call_began_without_a_decision() -> None:
    async def step(turn: Turn) -> None:
        await turn.read_body()
        await there.wait()
        await turn.write(answer(200, b"ok"))

    there = asyncio.Event()
    hedged = replace(HEDGED, max_attempts=2, hedging_delay=60.0)
    async with Upstream(answer(200), step) as upstream:
        async with Front(to("api", upstream.url, strategy=hedged, bucket=None)) as front, front.app() as app:
            await app.ask("GET", "/api/")
            app.send(request("PUT", "/api/", host="127.0.0.1", body=b"body"))
            await upstream.until(2)
            (call,) = front.calls
            assert not call.decided
            call.decider()
            store = front.path.context.store
            assert (store.used, store.held) == (4, 0)
            there.set()
            assert (await app.read()).body == b"ok"


async def test_the_total_of_all_buffers_is_bounded() -> None:
    small = Buffers(1 << 20, 150_000)
    async with Upstream(hang, hang) as upstream, Front(to("api", upstream.url), buffers=small) as front:
        async with front.app() as one, front.app() as two:
            one.send(request("PUT", "/api/", host="127.0.0.1", body=b"x" * 100_000))
            await upstream.until(1)
            two.send(request("PUT", "/api/", host="127.0.0.1", body=b"y" * 100_000))
            await upstream.until(2)
            assert front.path.buffered <= 150_000


async def test_an_attempt_timeout_is_504_after_the_retries() -> None:
    api = {"timeouts": Timeouts(attempt=20.0), "strategy": AT_ONCE}
    async with Upstream(hang) as upstream, Front(to("api", upstream.url, **api)) as front:
        async with front.app() as app:
            app.send(request("GET", "/api/", host="127.0.0.1"))
            for attempt in range(3):
                await upstream.until(attempt + 1)
                front.pass_time(20.0)
            reply = await app.read()
            assert (reply.status, reply.one("x-attempt-count")) == (504, "3")
            assert "error=http_response_timeout" in (reply.one("proxy-status") or "")
            assert len(upstream.requests) == 3


async def test_an_attempt_timeout_ends_with_the_head() -> None:
    limits = Timeouts(attempt=0.2)

    async def step(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        await asyncio.sleep(0.3)
        await turn.write(b"cd")

    async with Upstream(step) as upstream, Front(to("api", upstream.url, timeouts=limits)) as front:
        async with front.app() as app:
            assert (await app.ask("GET", "/api/")).body == b"abcd"


async def test_the_deadline_ends_what_flies() -> None:
    limits = Timeouts(total=60.0)
    async with Upstream(hang) as upstream, Front(to("api", upstream.url, timeouts=limits)) as front:
        async with front.app() as app:
            app.send(request("GET", "/api/", host="127.0.0.1"))
            await upstream.until(1)
            front.pass_time(60.0)
            reply = await app.read()
            assert reply.status == 504
            assert reply.one("x-should-retry") == "false"
            assert front.observed.outcomes == [Outcome.DEADLINE]
            await upstream.gone.wait()


async def test_silence_within_an_answer_breaks_it_off() -> None:
    limits = Timeouts(idle=0.05)

    async def step(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        await turn.gone()

    async with Upstream(step) as upstream, Front(to("api", upstream.url, timeouts=limits)) as front:
        async with front.app() as app:
            try:
                await app.ask("GET", "/api/")
                raise AssertionError
            except CutError as cut:
                assert cut.answer.body == b"ab"
            assert (await front.observed.until(1))[0]["outcome"] is Outcome.COMMITTED


async def test_an_error_whose_body_falls_silent_is_judged_by_what_came() -> None:
    async def step(turn: Turn) -> None:
        await turn.write(answer(503, b"", "Content-Length: 100", length=False) + b'{"error')
        await turn.gone()

    rule = Rule(Class.THROTTLING, "rule 1", frozenset({503}), json=((("error",), "slow_down"),))
    looks = Classify(statuses={503: Class.TRANSIENT}, rules=(rule,))
    limits = Timeouts(idle=30.0)
    async with Upstream(step, answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, strategy=AT_ONCE, classify=looks, timeouts=limits)) as front:
            async with front.app() as app:
                app.send(request("GET", "/api/", host="127.0.0.1"))
                await reach(front, PEEKING)
                front.pass_time(30.0)
                reply = await app.read()
            assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, b"ok", "2")


async def test_an_app_that_is_silent_within_its_body_gets_408() -> None:
    limits = Timeouts(idle=30.0)
    async with Upstream(hang) as upstream, Front(to("api", upstream.url, timeouts=limits)) as front:
        async with front.app() as app:
            app.send(request("POST", "/api/", "Content-Length: 10", host="127.0.0.1") + b"abc")
            await upstream.until(1)
            front.pass_time(30.0)
            assert (await app.read()).status == 408
            await upstream.gone.wait()


async def test_hedges_go_at_once_and_the_first_good_answer_wins() -> None:
    async def wait(turn: Turn) -> None:
        await turn.read_body()
        await turn.gone()

    steps = (wait, answer(503), answer(200, b"won"))
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url, strategy=HEDGED, bucket=None)) as front:
        async with front.app() as app:
            reply = await app.ask("PUT", "/api/", body=b"x" * 1000)
            assert reply.body == b"won"
            assert {r.body for r in upstream.requests} == {b"x" * 1000}
            assert sorted(r.one("x-attempt-count") or "" for r in upstream.requests) == ["1", "2", "3"]


async def test_what_came_at_once_and_is_above_the_buffer_goes_once_over_a_connection_at_rest_too() -> None:
    tiny = Buffers(1000, 1000)
    async with Upstream(answer(200, b"warm"), answer(503, b"no"), answer(200, b"again")) as upstream:
        async with Front(to("api", upstream.url), buffers=tiny) as front, front.app() as app:
            await app.ask("GET", "/api/")
            reply = await app.ask("PUT", "/api/", body=b"x" * 1001)
            assert (reply.status, reply.body, reply.one("x-attempt-count")) == (503, b"no", "1")
            assert front.observed.outcomes[-1] is Outcome.COMMITTED
        assert len(upstream.requests) == 2


async def test_hedges_share_a_body_that_is_never_kept() -> None:
    tiny = Buffers(1000, 1000)
    async with Upstream(answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, strategy=HEDGED, bucket=None), buffers=tiny) as front:
            async with front.app() as app:
                assert (await app.ask("PUT", "/api/", body=BLOB)).status == 200
        assert BLOB in [r.body for r in upstream.requests]


async def test_hedges_share_it_too_where_the_first_finds_a_connection_at_rest() -> None:
    """It begins at once, while the others are still connecting: what it has sent they need yet."""
    tiny, body = Buffers(1000, 1000), Random(7).randbytes(300_000)  # bytes that repeat nowhere
    all_read = asyncio.Barrier(3)

    async def read(turn: Turn) -> None:
        await turn.read_body()
        await all_read.wait()
        await turn.write(answer(200, b"ok"))

    async with Upstream(answer(200, b"warm"), read) as upstream:
        hedged, plain = to("api", upstream.url, strategy=HEDGED, bucket=None), to("plain", upstream.url)
        async with Front(hedged, plain, buffers=tiny) as front:
            async with front.app() as app:
                await app.ask("GET", "/plain/")
                assert (await app.ask("PUT", "/api/", body=body)).body == b"ok"
        assert [r.body for r in upstream.requests[1:]] == [body] * 3
        assert upstream.connections == 3


async def test_a_body_above_its_buffer_goes_on_where_most_of_it_has_gone() -> None:
    """The first attempt still dials (its end says nothing in the handshake): the hedge that reads is not cancelled."""
    tiny, body = Buffers(1000, 1000), Random(11).randbytes(300_000)
    later = replace(HEDGED, max_attempts=2, hedging_delay=0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dialled = f"https://127.0.0.1:{silent.getsockname()[1]}"
        async with Upstream(answer(200, b"ok")) as upstream:
            api = to("api", dialled, upstream.url, strategy=later, bucket=None)
            async with Front(api, buffers=tiny) as front, front.app() as app:
                assert (await app.ask("PUT", "/api/", body=body)).body == b"ok"
                (call,) = await front.observed.until(1)
                assert [(each.attempt, each.decision) for each in call["history"]] == [
                    (1, "cancelled"),
                    (2, "delivered"),
                ]
        assert upstream.requests[0].body == body


async def test_a_shared_body_above_its_buffer_is_bounded_by_the_deadline() -> None:
    limits = Timeouts(total=0.3, idle=None)
    api = {"strategy": HEDGED, "bucket": None, "timeouts": limits}
    async with Upstream(hang) as upstream, Front(to("api", upstream.url, **api), buffers=Buffers(1000, 1000)) as front:
        async with front.app() as app:
            assert (await app.ask("PUT", "/api/", body=b"x" * 5000)).status == 504
            assert front.observed.outcomes == [Outcome.DEADLINE]


async def test_a_shared_body_above_its_buffer_is_bounded_by_the_attempt_s_timeout() -> None:
    limits = Timeouts(attempt=0.2, total=None, idle=None)
    api = {"strategy": HEDGED, "bucket": None, "timeouts": limits}
    async with Upstream(hang) as upstream, Front(to("api", upstream.url, **api), buffers=Buffers(1000, 1000)) as front:
        async with front.app() as app:
            assert (await app.ask("PUT", "/api/", body=b"x" * 5000)).status == 504
            assert front.observed.outcomes == [Outcome.NOT_RETRYABLE]  # its `non_fatal` names no attempt_timeout


async def test_an_idempotency_key_is_the_same_on_every_attempt() -> None:
    key = IdempotencyKey(inject=True)
    async with Upstream(answer(500), answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, idempotency_key=key)) as front, front.app() as app:
            assert (await app.ask("POST", "/api/", body=b"x")).status == 200
            first, second = (r.one("idempotency-key") for r in upstream.requests)
            assert first == second is not None
            await app.ask("POST", "/api/", "Idempotency-Key: mine", body=b"x")
            assert upstream.requests[2].all("idempotency-key") == ["mine"]


async def test_a_key_of_ours_may_be_a_structured_fields_string() -> None:
    key = IdempotencyKey(inject=True, form="string")
    async with Upstream(answer(500), answer(200, b"ok"), reset, answer(200)) as upstream:
        async with Front(to("api", upstream.url, idempotency_key=key)) as front, front.app() as app:
            assert (await app.ask("POST", "/api/", body=b"x")).status == 200
            first, second = (each.one("idempotency-key") or "" for each in upstream.requests)
            assert first == second == f'"{UUID(first.strip(chr(34)))}"'
            for own in ("mine", '"mine"'):  # an app's own counts in either form, and stays as it came
                del upstream.requests[:]
                assert (await app.ask("POST", "/api/", f"Idempotency-Key: {own}", body=b"x")).status == 200
                assert {each.one("idempotency-key") for each in upstream.requests} == {own}


@pytest.mark.parametrize("none", [("Idempotency-Key:",), ("Idempotency-Key: mine", "Connection: idempotency-key")])
async def test_a_key_that_the_upstream_would_not_see_is_replaced(none: tuple[str, ...]) -> None:
    """An empty one, and one that Connection ends here: with nothing injected each attempt would go without."""
    key = IdempotencyKey(inject=True)
    async with Upstream(answer(500), answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, idempotency_key=key)) as front, front.app() as app:
            assert (await app.ask("POST", "/api/", *none, body=b"x")).status == 200
            keys = [r.all("idempotency-key") for r in upstream.requests]
            assert len(keys) == 2
            assert keys[0] == keys[1]
            assert len(keys[0]) == 1
            assert keys[0][0] not in ("", "mine")


async def test_a_key_that_connection_ends_here_repeats_nothing() -> None:
    async with Upstream(reset) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        fields = ("Idempotency-Key: mine", "Connection: idempotency-key")
        assert (await app.ask("POST", "/api/", *fields, body=b"x")).status == 502
        assert [r.all("idempotency-key") for r in upstream.requests] == [[]]


async def test_a_post_takes_no_connection_that_has_rested_for_long() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        await app.ask("GET", "/api/")
        (connection,) = front.path.context.pool.connections
        connection.since -= 1.5
        await app.ask("POST", "/api/", body=b"x")
        assert upstream.connections == 2
        connection.since -= 1.5
        await app.ask("GET", "/api/")
        assert upstream.connections == 2


async def test_what_rests_too_long_or_is_too_many_is_closed() -> None:
    pool = PoolLimits(4.0, 2, 30.0)
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url), pool=pool) as front:
        async with front.app() as one, front.app() as two, front.app() as three:
            for app in (one, two, three):
                app.send(request("GET", "/api/", host="127.0.0.1"))
            for app in (one, two, three):
                await app.read()
        resting = front.path.context.pool
        assert len(resting.connections) >= 1
        resting._look_over()
        assert sum(c.is_open for c in resting.connections) <= 2
        for connection in list(resting.connections):
            connection.since -= 10
        resting._look_over()
        assert not any(c.is_open for c in resting.connections)


async def test_idle_connections_of_http2_alone_are_looked_at_seldom() -> None:
    """They are kept for a minute, and a look each half second would be most of what a process does at rest."""
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        pool, loop = front.path.context.pool, asyncio.get_running_loop()

        def next_look() -> float:
            return float(pool._timer.when() - loop.time())

        assert (await app.ask("GET", "/api/")).status == 200
        (connection,) = pool.connections
        other = Origin(connection.origin.endpoint, Way(http2=True))
        drained = list[bool]()
        shared = SimpleNamespace(is_resting=True, since=connection.since, drain=lambda: drained.append(True))
        other.shared.append(shared)
        pool._resting.add(other)
        pool._look_over()
        assert next_look() <= 0.6  # HTTP/1 is idle too, which is kept for 4 s, and of which too many may be
        connection.abort()
        await pool._empty()
        pool._look_over()
        assert 4.0 < next_look() <= 5.1
        assert (await app.ask("GET", "/api/")).status == 200
        assert next_look() <= 0.6
        for connection in list(pool.connections):
            connection.abort()
        await pool._empty()
        shared.since -= 58.0
        pool._look_over()
        assert next_look() <= 2.1  # no later than the first may be closed
        assert not drained
        shared.since -= 2.0
        pool._look_over()
        assert drained


async def test_negotiate_pins_its_connection_to_the_app_connection() -> None:
    offer = answer(401, b"", "WWW-Authenticate: Negotiate")
    steps = (offer, answer(200, b"welcome"), answer(200, b"still you"), answer(200, b"other"))
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        await app.ask("GET", "/api/")
        await app.ask("GET", "/api/", "Authorization: Negotiate abc")
        await app.ask("GET", "/api/")
        async with front.app() as other:
            assert (await other.ask("GET", "/api/")).body == b"other"
        assert [r.connection for r in upstream.requests] == [1, 1, 1, 2]


async def test_a_call_that_comes_while_its_own_connection_closes_is_sent_on_another() -> None:
    steps = (answer(401, b"", "WWW-Authenticate: Negotiate"), answer(200, b"welcome"))
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        await app.ask("GET", "/api/")
        (own,) = front.path.context.pool.connections
        (connection,) = front.path.acceptor.connections
        assert own.transport is not None
        own.transport.close()  # as when its end comes at the same moment as the request
        connection.data_received(request("POST", "/api/", host="127.0.0.1", body=b"x"))
        assert (await app.read()).body == b"welcome"
        assert [r.connection for r in upstream.requests] == [1, 2]


async def test_an_app_that_goes_while_its_upload_is_held_back_is_noticed() -> None:
    async def stuck(turn: Turn) -> None:
        turn.writer.transport.pause_reading()
        await turn.upstream.gone.wait()
        turn.close()

    async with Upstream(stuck) as upstream, Front(to("api", upstream.url)) as front:
        async with front.app() as app:
            app.send(request("PUT", "/api/", "Content-Length: 100000000", host="127.0.0.1") + BLOB)
            await upstream.until(1)
            while not any(c.blocked for c in front.path.context.pool.connections):  # noqa: ASYNC110  a state, no event
                await asyncio.sleep(0.001)
            app.vanish()
            await front.observed.until(1)
            assert front.observed.outcomes == [Outcome.CLIENT_GONE]
        upstream.gone.set()


async def test_a_reset_of_a_fresh_connection_is_no_transparent_retry() -> None:
    async with Upstream(reset, close, answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front:
        async with front.app() as app:
            reply = await app.ask("GET", "/api/")
            assert reply.one("x-attempt-count") == "3"
            assert not front.observed.calls[0]["resent"]


async def test_a_retry_after_that_was_held_is_reduced() -> None:
    # The wait would pass the deadline, so the answer goes at once and as it came.
    limits = Timeouts(total=20.0)
    async with Upstream(answer(503, b"", "Retry-After: 30")) as upstream:
        async with Front(to("api", upstream.url, timeouts=limits)) as front, front.app() as app:
            reply = await app.ask("GET", "/api/")
            assert reply.one("retry-after") == "30"
            assert reply.one("x-should-retry") == "false"
            assert front.observed.outcomes == [Outcome.DEADLINE]


class Watched:
    """A loop that tells of the first timer that is set on it for more than six seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.long: asyncio.Future[asyncio.TimerHandle] = loop.create_future()

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)

    def call_later(self, seconds: float, *given: Any, **named: Any) -> asyncio.TimerHandle:
        timer = self._loop.call_later(seconds, *given, **named)
        if seconds > 6.0 and not self.long.done():
            self.long.set_result(timer)
        return timer


async def test_a_deadline_stops_an_alarm_that_has_not_rung() -> None:
    slow = replace(STANDARD, backoff=Backoff(10.0, 10.0, jitter="none"))
    api = {"timeouts": Timeouts(total=20.0), "strategy": slow}
    async with Upstream(answer(503)) as upstream, Front(to("api", upstream.url, **api)) as front, front.app() as app:
        loop = front.path.context.loop = Watched(front.path.context.loop)
        app.send(request("GET", "/api/", host="127.0.0.1"))
        backoff = await loop.long
        front.pass_time(20.0)
        await app.read()
        assert backoff.cancelled()
