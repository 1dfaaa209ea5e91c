"""Calls of upstreams that say `via: off`: no Via either way, and loops are seen by X-Redrive-Loop all the same."""

from __future__ import annotations

from typing import Any

import pytest
from support.front import STANDARD, Front, request, to
from support.scripted import Upstream, answer

from proxy.retry.policies.policy import Credentials, HeaderEdits

EDITS = HeaderEdits(set=(("X-Of", "policy"),))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"request_headers": EDITS, "response_headers": EDITS},
        {"attempt_headers": frozenset({"envoy"})},
        {"strategy": STANDARD},
    ],
)
async def test_no_via_either_way(changes: dict[str, Any]) -> None:
    async with (
        Upstream(answer(503), answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, via=False, **changes)) as front,
        front.app() as app,
    ):
        own = front.path.context.via
        for _ in range(2):
            reply = await app.ask("GET", "/api/x")
            assert (reply.status, reply.all("via"), reply.all("x-redrive-loop")) == (200, [], [])
        for sent in upstream.requests:
            assert (sent.all("via"), sent.all("x-redrive-loop")) == ([], [own])


async def test_by_default_there_is_a_via_and_nothing_in_its_place() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("GET", "/api/x")
        assert reply.one("via") == upstream.requests[0].one("via") == f"1.1 {front.path.context.via}"
        assert upstream.requests[0].all("x-redrive-loop") == []


@pytest.mark.parametrize("via", [True, False])
async def test_a_loop_is_508(via: bool) -> None:
    """Whichever upstream it comes back to, and through however many others like this one."""
    async with (
        Upstream(answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, via=via)) as front,
        front.app() as app,
    ):
        own = front.path.context.via
        for line in (f"X-Redrive-Loop: {own}", f"X-Redrive-Loop: redrive-00000000, {own}", f"Via: 1.1 {own}"):
            assert (await app.ask("GET", "/api/x")).status == 200  # a plan is kept for the next one
            looped = await app.ask("GET", "/api/x", line)
            assert looped.status == 508
            assert "error=proxy_loop_detected" in (looped.one("proxy-status") or "")
            hidden = await app.ask("GET", "/api/x", line, f"Connection: {line.partition(':')[0]}")
            assert hidden.status == 508
        other = "X-Redrive-Loop: redrive-00000000"
        assert (await app.ask("GET", "/api/x", other)).status == 200
        assert upstream.requests[-1].all("x-redrive-loop")[0] == "redrive-00000000"
        app.send(request("CONNECT", "u.test:443", f"X-Redrive-Loop: {own}", host="u.test:443"))
        assert (await app.read()).status == 508


async def test_two_proxies_in_a_ring() -> None:
    """A request that comes back by way of another proxy, both without Via, ends at the first one."""
    async with Upstream(answer(200)) as nowhere, Front(to("api", nowhere.url, via=False)) as first:
        one = f"http://127.0.0.1:{first.port}"
        async with Front(to("api", f"{one}/api", via=False), to("ring", nowhere.url)) as second, second.app() as app:
            assert (await app.ask("GET", "/api/x")).status == 200
            (sent,) = nowhere.requests
            names = [second.path.context.via, first.path.context.via]
            assert sent.all("x-redrive-loop") == names
            back = [f"X-Redrive-Loop: {name}" for name in names]
            assert (await app.ask("GET", "/api/x", *back)).status == 508


async def test_with_a_credential() -> None:
    keys = Credentials("x-api-key", ("a",))
    async with Upstream(answer(200)) as upstream, Front(to("api", upstream.url, via=False, credentials=keys)) as front:
        async with front.app() as app:
            for _ in range(2):
                await app.ask("GET", "/api/x")
        assert [(each.all("via"), len(each.all("x-redrive-loop"))) for each in upstream.requests] == [([], 1)] * 2
