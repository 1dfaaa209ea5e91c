"""Calls that are sent at once though their policy hedges, bounds the first byte, or has a rule for the body of a
success: each goes and is recorded as if its `Call` had existed from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.front import AT_ONCE, CutError, Front, request, to
from support.scripted import Step, Upstream, answer, gated, hang, then_close

from proxy.forward import request_plan
from proxy.retry.facts import Class, FaultKind
from proxy.retry.policies.dialect import Classify, Rule
from proxy.retry.policies.policy import Timeouts
from proxy.retry.strategies.presets import HEDGING

DATE = "Date: Thu, 01 Jan 2026 00:00:00 GMT"
JSON = "Content-Type: application/json"
OK = answer(200, b"ok", DATE)
BUSY = Rule(Class.TRANSIENT, "busy", statuses=frozenset({200}), json=((("error",), "busy"),))
LATER = replace(HEDGING, hedging_delay=30.0, non_fatal=frozenset({503, FaultKind.RESET}))
POLICIES: dict[str, dict[str, Any]] = {
    "first byte": {"timeouts": Timeouts(first_byte=5.0)},
    "rule": {"classify": Classify(rules=(BUSY,))},
    "hedging": {"strategy": LATER},
    "hedging and first byte": {"strategy": LATER, "timeouts": Timeouts(first_byte=5.0)},
}
ANSWERS: dict[str, Sequence[Step]] = {
    "plain": (OK,),
    "empty": (answer(200, b"", DATE),),
    "JSON that fits": (answer(200, b'{"error": "none"}', DATE, JSON),),
    "JSON that is busy": (answer(200, b'{"error": "busy"}', DATE, JSON), answer(200, b"{}", DATE, JSON)),
    "JSON under another status": (answer(201, b'{"error": "busy"}', DATE, JSON),),
    "an event": (answer(200, b"data: 1\n\n", DATE, "Content-Type: text/event-stream"),),
    "a failure": (answer(503), OK),
    "fatal": (answer(404, b"none", DATE),),
    "a cut": (then_close(answer(200, b"ok", DATE)[:-1]), OK),
}


async def _played(policy: dict[str, Any], steps: Sequence[Step]) -> tuple[list[Any], bool]:
    """The answer to a call and its record, and whether calls of its plan may be sent at once."""
    async with (
        Upstream(OK, *steps) as upstream,
        Front(to("api", upstream.url, **policy)) as front,
        front.app() as app,
    ):
        await app.ask("GET", "/api/first")
        (connection,) = front.path.acceptor.open
        assert connection.plan is not None
        try:
            reply = await app.ask("GET", "/api/x")
        except CutError as cut:
            reply = cut.answer
        call = (await front.observed.until(2))[1]
        history = [
            (each.attempt, each.status, each.cls, each.decision, each.protocol, each.first_byte is not None)
            for each in call.pop("history")
        ]
        seen = {key: value for key, value in call.items() if key not in ("took", "client", "endpoint")}
        return [reply.status, reply.body, reply.one("x-attempt-count"), history, seen], connection.plan.plain


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("steps", ANSWERS)
async def test_a_call_goes_as_a_decided_one_does(policy: str, steps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    undecided, is_plain = await _played(POLICIES[policy], ANSWERS[steps])
    assert is_plain
    monkeypatch.setattr(request_plan, "may_start_undecided", lambda *_: False)
    decided, is_plain = await _played(POLICIES[policy], ANSWERS[steps])
    assert not is_plain
    assert undecided == decided


async def test_a_hedge_is_sent_when_it_is_due() -> None:
    soon = replace(LATER, max_attempts=2, hedging_delay=0.02)
    async with (
        Upstream(OK, hang, OK) as upstream,
        Front(to("api", upstream.url, strategy=soon)) as front,
        front.app() as app,
    ):
        await app.ask("GET", "/api/first")
        reply = await app.ask("GET", "/api/x")
        assert (reply.status, reply.one("x-attempt-count")) == (200, "2")
        await upstream.gone.wait()  # the first attempt is cancelled
        call = (await front.observed.until(2))[1]
        assert [each.decision for each in call["history"]] == ["cancelled", "delivered"]


async def test_no_hedge_is_sent_beside_an_answer_that_is_delivered() -> None:
    more = asyncio.Event()
    soon = replace(LATER, max_attempts=2, hedging_delay=0.02)
    begun = answer(200, b"onetwo", DATE)[:-3]
    async with (
        Upstream(OK, gated(more, begun, b"two")) as upstream,
        Front(to("api", upstream.url, strategy=soon)) as front,
        front.app() as app,
    ):
        await app.ask("GET", "/api/first")
        app.send(request("GET", "/api/x", host="127.0.0.1"))
        await app.reader.readuntil(b"one")
        (connection,) = front.path.acceptor.open
        exchange = connection.exchange
        assert exchange is not None
        while not exchange.decided:  # noqa: ASYNC110  no event says that the hedge's time has come
            await asyncio.sleep(0)
        more.set()
        await app.reader.readexactly(3)
        call = (await front.observed.until(2))[1]
        assert (call["attempts"], len(upstream.requests)) == (1, 2)


async def test_an_answer_without_a_first_byte_in_time_is_given_up() -> None:
    never = asyncio.Event()
    head = answer(200, b"ok", DATE)[:-2]
    policy = {"timeouts": Timeouts(first_byte=30.0), "strategy": AT_ONCE}
    for first, missed in ((hang, "answer"), (gated(never, head), "byte of the body")):
        async with (
            Upstream(OK, first, OK) as upstream,
            Front(to("api", upstream.url, **policy)) as front,
            front.app() as app,
        ):
            await app.ask("GET", "/api/first")
            app.send(request("GET", "/api/x", host="127.0.0.1"))
            await upstream.until(2)
            if first is not hang:
                await front.head_kept()
            front.pass_time(30.0)
            reply = await app.read()
            assert (reply.status, reply.one("x-attempt-count")) == (200, "2")
            failed = (await front.observed.until(2))[1]["history"][0]
            assert failed.detail == f"no {missed} within 30s (timeouts.first_byte)"
            never.set()
