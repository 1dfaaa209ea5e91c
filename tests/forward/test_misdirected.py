"""A 421 over a connection that had carried other requests: the call goes once more, on a connection of its own."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from support.certificates import Authority
from support.front import CLASSIFY, FAST, NONE, App, Front, to
from support.scripted import Step, Turn, Upstream, answer

from proxy.config.settings import Buffers
from proxy.retry.facts import Class, Outcome
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.dialect import Rule
from proxy.retry.policies.policy import BreakerSpec, Strategy

TWICE = Strategy("standard", "standard", 2, FAST, QuotaSpec())
MISDIRECTED = answer(421, b"elsewhere")
FATAL = Rule(Class.FATAL, "rule 1", frozenset({421}))


async def picky(turn: Turn) -> None:
    """A server that takes one host on a connection: the first that is asked for."""
    await turn.read_body()
    first = next(each for each in turn.upstream.requests if each.connection == turn.request.connection)
    is_same = first.one("x-site") == turn.request.one("x-site")
    await turn.write(answer(200, turn.request.body) if is_same else MISDIRECTED)


class Pair(AsyncExitStack):
    """An upstream with these steps, the proxy in front of it, and an app."""

    def __init__(self, *steps: Step, authority: Authority | None = None, **changes: Any) -> None:
        super().__init__()
        self._steps, self._authority = steps, authority
        self._changes = {"strategy": TWICE, "bucket": BucketRef(QuotaSpec(capacity=100)), **changes}

    async def __aenter__(self) -> Pair:
        await super().__aenter__()
        tls = None if self._authority is None else self._authority.server
        target = None if self._authority is None else {"verify": str(self._authority.ca)}
        self.upstream = await self.enter_async_context(Upstream(*self._steps, tls=tls))
        self.front = await self.enter_async_context(Front(to("api", self.upstream.url, target=target, **self._changes)))
        self.app: App = await self.enter_async_context(self.front.app())
        return self

    @property
    def on(self) -> list[int]:
        """The connection that each request came on."""
        return [each.connection for each in self.upstream.requests]


@pytest.mark.parametrize("is_tls", [False, True], ids=["cleartext", "tls"])
async def test_a_post_goes_once_more_on_a_connection_of_its_own(authority: Authority, is_tls: bool) -> None:
    async with Pair(picky, authority=authority if is_tls else None) as pair:
        assert (await pair.app.ask("GET", "/api/", "X-Site: a")).status == 200
        reply = await pair.app.ask("POST", "/api/", "X-Site: b", body=b"order")
        assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, b"order", "2")
        assert pair.on == [1, 1, 2]
        _, call = await pair.front.observed.until(2)
        first, second = call["history"]
        assert (first.status, first.decision, first.delay, second.price) == (421, "retried", 0.0, 5.0)
        assert first.because == "421 on a connection that had carried other requests"


async def test_one_on_a_connection_of_its_own_goes_to_the_app() -> None:
    async with Pair(MISDIRECTED) as pair:
        reply = await pair.app.ask("POST", "/api/", body=b"order")
        assert (reply.status, reply.body, reply.one("x-attempt-count")) == (421, b"elsewhere", "1")
        assert pair.on == [1]


async def test_it_is_done_once_for_a_call() -> None:
    three = replace(TWICE, max_attempts=4)
    steps = (answer(200), MISDIRECTED, answer(503), MISDIRECTED)
    async with Pair(*steps, strategy=three) as pair:
        await pair.app.ask("GET", "/api/")
        assert (await pair.app.ask("GET", "/api/")).status == 421  # the 503's connection is kept, and used again
        assert pair.on[:3] == [1, 1, 2] and len(pair.on) == 4


@pytest.mark.parametrize(
    ("changes", "fields", "outcome"),
    [
        ({"strategy": NONE}, (), Outcome.ATTEMPTS_EXHAUSTED),
        ({"mode": "off"}, (), Outcome.DISABLED),
        ({"mode": "observe"}, (), Outcome.DISABLED),
        ({"strategy": replace(TWICE, hedging_delay=60.0, non_fatal=frozenset({503}))}, (), Outcome.NOT_RETRYABLE),
        ({"bucket": BucketRef(QuotaSpec(capacity=5, retry_cost=6))}, (), Outcome.BUCKET_EMPTY),
        ({}, ("X-Retry-Disable: true",), Outcome.DISABLED),
        ({"classify": replace(CLASSIFY, unsafe_methods="never")}, (), Outcome.NOT_RETRYABLE),
        ({"classify": replace(CLASSIFY, rules=(FATAL,))}, (), Outcome.NOT_RETRYABLE),
    ],
    ids=[
        "one attempt",
        "mode off",
        "mode observe",
        "hedging",
        "an empty bucket",
        "disabled",
        "never",
        "fatal by a rule",
    ],
)
async def test_the_policy_decides(changes: dict[str, Any], fields: tuple[str, ...], outcome: Outcome) -> None:
    async with Pair(answer(200), MISDIRECTED, **changes) as pair:
        await pair.app.ask("GET", "/api/")
        reply = await pair.app.ask("POST", "/api/", *fields, body=b"order")
        assert (reply.status, reply.body) == (421, b"elsewhere")
        assert (await pair.front.observed.until(2))[1]["outcome"] is outcome
        assert pair.on == [1, 1]


async def test_a_circuit_breaker_does_not_count_it() -> None:
    breaker = BreakerSpec(failure_ratio=0.1, minimum_attempts=1)
    async with Pair(answer(200), MISDIRECTED, answer(200), circuit_breaker=breaker) as pair:
        for _ in range(3):
            assert (await pair.app.ask("GET", "/api/")).status == 200


async def test_a_body_that_outgrew_its_buffer_is_not_sent_again() -> None:
    async with Upstream(answer(200), MISDIRECTED) as upstream:
        front = Front(to("api", upstream.url, strategy=TWICE), buffers=Buffers(10, 100))
        async with front, front.app() as app:
            await app.ask("GET", "/api/")
            reply = await app.ask("POST", "/api/", body=b"order" * 100)
            assert (reply.status, reply.body) == (421, b"elsewhere")
            assert (await front.observed.until(2))[1]["outcome"] is Outcome.COMMITTED
            assert [each.connection for each in upstream.requests] == [1, 1]
