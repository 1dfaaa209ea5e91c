"""Timeouts of attempts that follow each other without a wait: each has its own."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from support.front import Front, request, to
from support.scripted import Upstream, answer, gated, hang

from proxy.retry.facts import Outcome
from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.retry.policies.policy import Backoff, Strategy, Timeouts

FINE = answer(200, b"ok", "Date: Thu, 01 Jan 2026 00:00:00 GMT")


async def test_a_retry_that_is_sent_as_an_attempt_times_out_has_its_own_timeout() -> None:
    """Connections rest for all attempts, and none waits: the next is sent while the last one's timeout is seen to."""
    strategy = Strategy("standard", "standard", 3, Backoff(0.0, 0.0), QuotaSpec())
    timeouts = Timeouts(total=None, attempt=0.3)
    together = asyncio.Event()
    async with AsyncExitStack() as held:
        upstream = await held.enter_async_context(Upstream(*[gated(together, b"", FINE)] * 3, hang))
        api, warm = to("api", upstream.url, strategy=strategy, timeouts=timeouts), to("warm", upstream.url)
        front = await held.enter_async_context(Front(api, warm))
        apps = [await held.enter_async_context(front.app()) for _ in range(3)]
        for app in apps:
            app.send(request("GET", "/warm/x", host=app.authority))
        await upstream.until(3)
        together.set()
        assert [(await app.read()).status for app in apps] == [200] * 3
        async with asyncio.timeout(30):
            assert (await apps[0].ask("GET", "/api/x")).status == 504
        assert upstream.connections == 3
        assert front.observed.outcomes[3] is Outcome.ATTEMPTS_EXHAUSTED
        assert [record.detail for record in front.observed.calls[3]["history"]] == [
            "no answer within 0.3s (timeouts.attempt)"
        ] * 3
