"""Credentials that stand in files: a value that changes while calls run costs no call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.front import FAST, NONE, App, CutError, Front, to
from support.scripted import Step, Turn, Upstream, answer

from proxy.config.settings import Buffers
from proxy.retry.call.key_files import is_outdated, read_again
from proxy.retry.facts import FaultKind
from proxy.retry.policies.policy import Concurrency, Credentials, KeyFile, Strategy
from proxy.retry.policies.routing import Router
from proxy.retry.policies.routing import Upstream as UpstreamPolicy

DATE = "Date: Thu, 01 Jan 2026 00:00:00 GMT"
FINE = answer(200, b"ok", DATE)
REFUSED = answer(401, b"no", DATE)
SLOW = answer(429, b"slow", DATE)
BROKEN = answer(503, b"", DATE)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("old\n")
    return file


def put(file: Path, content: str | None) -> None:
    """Give the file this content; None: take it away."""
    file.unlink() if content is None else file.write_text(content)


@asynccontextmanager
async def calling(file: Path, *steps: Step, **changes: Any) -> AsyncIterator[tuple[Upstream, Front, App]]:
    """An upstream whose key stands in the file, and an app that calls it."""
    async with (
        Upstream(*steps) as upstream,
        Front(to("api", upstream.url, credentials=standing_in(file), **changes)) as front,
        front.app() as app,
    ):
        yield upstream, front, app


def standing_in(file: Path) -> Credentials:
    return Credentials("Authorization", ("Bearer old",), files=(KeyFile(str(file), "Bearer {}"),))


def carried(upstream: Upstream) -> list[str | None]:
    return [each.one("authorization") for each in upstream.requests]


async def test_a_401_is_answered_with_the_new_value(key: Path) -> None:
    async with calling(key, REFUSED, FINE, FINE) as (upstream, front, app):
        put(key, "new\n")
        reply = await app.ask("POST", "/api/x", body=b"once")
        assert (reply.status, reply.one("x-attempt-count")) == (200, "2")
        assert (await app.ask("GET", "/api/y")).status == 200
        assert carried(upstream) == ["Bearer old", "Bearer new", "Bearer new"]
        assert [each.body for each in upstream.requests] == [b"once", b"once", b""]
        records = await front.observed.until(2)
        assert [each.decision for each in records[0]["history"]] == ["key renewed", "delivered"]


async def test_a_request_that_is_repeated_carries_the_new_value_from_then_on(key: Path) -> None:
    """The compiled core finds the same head again, and keeps the request that it was sent as."""
    async with calling(key, FINE, FINE, REFUSED, FINE) as (upstream, _front, app):
        for content in ("old", "old", "new", "new"):
            put(key, content)
            assert (await app.ask("GET", "/api/x")).status == 200
        assert carried(upstream) == ["Bearer old"] * 3 + ["Bearer new"] * 2


def test_the_value_that_attempts_carry_is_renewed_where_shared_state_has_an_equal_definition(key: Path) -> None:
    """Such a definition is of the configuration before a reload that changed nothing about the policy."""
    own, shared = standing_in(key), standing_in(key)
    env = SimpleNamespace(read_key_file=lambda _: "new")
    upcoming = SimpleNamespace(keys=SimpleNamespace(ring=SimpleNamespace(definition=shared)), env=env)
    call: Any = SimpleNamespace(policy=SimpleNamespace(credentials=own), next_attempt=upcoming)
    flight: Any = SimpleNamespace(key=0, since=0.0)
    assert own is not shared and not is_outdated(call, flight)
    read_again(call, flight, 1.0)
    assert own.lines == shared.lines == [b"Authorization: Bearer new\r\n"]
    assert own.digests == shared.digests
    assert is_outdated(call, flight)


@pytest.mark.parametrize("is_retry", [False, True])
async def test_a_call_that_waits_carries_what_the_latest_configuration_has_read(key: Path, is_retry: bool) -> None:
    """Also if several reloads came meanwhile: no 401 has to say that the value is an old one, which a call that was
    answered before could not survive.
    """
    gates = [asyncio.Event(), asyncio.Event()]

    def gated(gate: asyncio.Event, with_answer: bytes) -> Step:
        async def step(turn: Turn) -> None:
            await gate.wait()
            await turn.write(with_answer)

        return step

    def upstreams_with(value: str) -> tuple[UpstreamPolicy, ...]:
        keys = Credentials("Authorization", (f"Bearer {value}",), files=(KeyFile(str(key), "Bearer {}"),))
        return (to("api", upstream.url, credentials=keys, concurrency=Concurrency(1)),)

    async def until(waiting: int) -> None:
        async with asyncio.timeout(60):
            while front.path.waiting != waiting:  # noqa: ASYNC110 - what is waited for sets no event
                await asyncio.sleep(0.001)

    first = gated(gates[0], BROKEN if is_retry else FINE)
    async with (
        Upstream(first, gated(gates[1], FINE), FINE) as upstream,
        Front(*upstreams_with("old")) as front,
        front.app() as one,
        front.app() as two,
    ):
        calls = [asyncio.create_task(one.ask("GET", "/api/x"))]
        await upstream.until(1)
        calls.append(asyncio.create_task(two.ask("GET", "/api/x")))
        await until(1)
        if is_retry:  # the second call takes the place, and the first one's retry waits for it
            gates[0].set()
            await upstream.until(2)
            await until(1)
        for value in ("newer", "newest"):
            front.path.use(
                replace(front.settings, router=Router(upstreams_with(value), front.settings.router.fallback))
            )
        for gate in gates:
            gate.set()
        assert [(await call).status for call in calls] == [200, 200]
        assert carried(upstream) == ["Bearer old"] * (1 + is_retry) + ["Bearer newest"]


async def test_it_does_not_count_among_the_attempts_of_the_policy(key: Path) -> None:
    async with calling(key, REFUSED, FINE, strategy=NONE) as (_upstream, _front, app):
        put(key, "new")
        assert (await app.ask("GET", "/api/x")).status == 200


async def test_a_value_that_is_refused_again_goes_to_the_app(key: Path) -> None:
    async with calling(key, REFUSED, REFUSED) as (_upstream, front, app):
        put(key, "new")
        reply = await app.ask("GET", "/api/x")
        assert (reply.status, reply.one("x-attempt-count")) == (401, "2")
        records = await front.observed.until(1)
        assert [each.aside for each in records[0]["history"]] == [
            False,
            True,
        ]  # the current value alone is put aside


@pytest.mark.parametrize("content", [None, "", "old", "old\n", "two\nlines"])
async def test_without_a_new_value_the_401_goes_to_the_app(key: Path, content: str | None) -> None:
    async with calling(key, REFUSED) as (upstream, _front, app):
        put(key, content)
        assert (await app.ask("GET", "/api/x")).status == 401
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("before", [SLOW, BROKEN])
async def test_an_earlier_attempt_that_was_answered_forbids_it(key: Path, before: bytes) -> None:
    async with calling(key, before, REFUSED) as (upstream, _front, app):
        put(key, "new")
        assert (await app.ask("GET", "/api/x")).status == 401
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_modes_without_retries_do_not_make_it(key: Path, mode: str) -> None:
    async with calling(key, REFUSED, mode=mode) as (_upstream, _front, app):
        put(key, "new")
        assert (await app.ask("GET", "/api/x")).status == 401


async def test_an_app_that_forbids_retries_gets_the_401(key: Path) -> None:
    async with calling(key, REFUSED) as (_upstream, _front, app):
        put(key, "new")
        assert (await app.ask("GET", "/api/x", "X-Retry-Disable: true")).status == 401


HEDGED = Strategy("hedging", "hedging", 2, FAST, None, hedging_delay=0.0, non_fatal=frozenset({503, FaultKind.RESET}))


async def test_a_hedged_call_keeps_the_401_until_the_new_value_has_failed_too(key: Path) -> None:
    old: asyncio.Queue[Turn] = asyncio.Queue()
    renewed = asyncio.Event()

    async def step(turn: Turn) -> None:
        if turn.request.one("authorization") == "Bearer new":
            renewed.set()
            turn.reset()
            return
        old.put_nowait(turn)
        if turn.request.one("x-attempt-count") == "2":
            await renewed.wait()
            turn.reset()
            return
        await old.get()
        await old.get()  # both were sent with the old value
        put(key, "new")
        await turn.write(REFUSED[:-1])
        turn.reset()  # and of its answer no more comes

    async with calling(key, step, strategy=HEDGED, bucket=None) as (upstream, front, app):
        with pytest.raises(CutError) as cut:
            await app.ask("GET", "/api/x")
        assert (cut.value.answer.status, cut.value.answer.one("x-attempt-count")) == (401, "3")
        (record,) = await front.observed.until(1)
        decisions = [each.decision for each in record["history"]]
        assert (record["attempts"], decisions) == (3, ["cancelled", "key renewed", "attempts_exhausted"])
        assert len(upstream.requests) == 3


async def test_a_hedged_call_succeeds_with_the_new_value_though_others_are_refused_the_old_one(key: Path) -> None:
    old: asyncio.Queue[Turn] = asyncio.Queue()
    refused = asyncio.Event()

    async def step(turn: Turn) -> None:
        if turn.request.one("authorization") == "Bearer new":
            refused.set()
            await asyncio.sleep(0)
            await turn.write(FINE)
            return
        old.put_nowait(turn)
        if turn.request.one("x-attempt-count") == "2":
            await refused.wait()
            await turn.write(REFUSED)
            return
        await old.get()
        await old.get()
        put(key, "new")
        await turn.write(REFUSED)

    async with calling(key, step, strategy=HEDGED, bucket=None) as (upstream, _front, app):
        reply = await app.ask("GET", "/api/x")
        assert (reply.status, reply.one("x-attempt-count"), len(upstream.requests)) == (200, "3", 3)


async def test_a_hedged_call_whose_body_is_not_kept_gets_the_401(key: Path) -> None:
    async def step(turn: Turn) -> None:
        await turn.read_body()
        put(key, "new")
        await turn.write(REFUSED)

    tiny = Buffers(1000, 1 << 20)
    async with (
        Upstream(step) as upstream,
        Front(
            to("api", upstream.url, credentials=standing_in(key), strategy=HEDGED, bucket=None), buffers=tiny
        ) as front,
        front.app() as app,
    ):
        reply = await app.ask("PUT", "/api/x", body=b"x" * 300_000)
        assert (reply.status, {each.one("authorization") for each in upstream.requests}) == (401, {"Bearer old"})
