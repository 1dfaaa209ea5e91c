"""What was decided for a connection's last request serves the next one only where it would be decided the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from support.front import Answer, Front, to
from support.scripted import Upstream, answer

from proxy.forward.request_plan import Plan
from proxy.retry.policies.routing import Match, Route

WHOLE = answer(200, b"ok", "Date: Thu, 01 Jan 2026 00:00:00 GMT")

#: Requests of one app, each with something that another one lacks. HOST is the proxy's own, UP the upstream's.
REQUESTS = [
    "GET /a/x HTTP/1.1|Host: HOST",
    "GET /a/x?other=1 HTTP/1.1|Host: HOST",
    "GET /a HTTP/1.1|Host: HOST",
    "GET /a/../b/x HTTP/1.1|Host: HOST",
    "GET /a/%2e%2e/x HTTP/1.1|Host: HOST",
    "GET /a/routed/x HTTP/1.1|Host: HOST",
    "GET /a/routed/y HTTP/1.1|Host: HOST|X-Kind: special",
    "GET /b/x HTTP/1.1|Host: HOST",
    "GET /b/deep/x HTTP/1.1|Host: HOST",
    "GET /nowhere/x HTTP/1.1|Host: HOST",
    "HEAD /a/x HTTP/1.1|Host: HOST",
    "POST /a/x HTTP/1.1|Host: HOST|Content-Length: 2||hi",
    "POST /a/y HTTP/1.1|Host: HOST|Content-Length: 3||hey",
    "POST /a/x HTTP/1.1|Host: HOST|Transfer-Encoding: chunked||2\r\nhi\r\n0\r\n\r\n",
    "OPTIONS /a/x HTTP/1.1|Host: HOST|Max-Forwards: 0",
    "OPTIONS /a/x HTTP/1.1|Host: HOST|Max-Forwards: 3",
    "GET /a/x HTTP/1.1|Host: HOST|Via: 1.1 somebody",
    "GET /a/x HTTP/1.1|Host: HOST|Via: 1.1 VIA|Via: 1.1 somebody",
    "GET /a/x HTTP/1.1|Host: HOST|Sec-Fetch-Site: cross-site",
    "GET /a/x HTTP/1.1|Host: evil.example",
    "GET /a/x HTTP/1.1|Host: HOST|Connection: X-Gone|X-Gone: 1",
    "GET /a/x HTTP/1.1|Host: HOST|Connection: X-Gone|Connection: keep-alive|X-Gone: 1",
    "GET /a/x HTTP/1.1|Host: HOST|Connection: keep-alive|X-Gone: 1",
    "GET /a/x HTTP/1.1|Host: HOST|X-Retry-Disable: 1",
    "GET /a/x HTTP/1.1|Host: HOST|X-Tenant: blue",
    "GET /a/x HTTP/1.0|Host: HOST|Connection: keep-alive",
    "GET http://UP/x HTTP/1.1|Host: UP",
    "GET http://UP/x HTTP/1.1|Host: other.example",
    "GET http://named.example/x HTTP/1.1|Host: UP",
    "GET /a/x HTTP/1.1|Host: UP",
    "GET http://UP?q HTTP/1.1|Host: UP",
    "GET http://UP/y?n=1 HTTP/1.1|Host: UP",
    "GET http://named.example/x HTTP/1.1|Host: named.example",
    "GET /x HTTP/1.1|Host: named.example",
]


def raw(text: str, host: str, up: str, via: str) -> bytes:
    text = re.sub(r"\bHOST\b", host, text)
    text = re.sub(r"\bUP\b", up, text)
    head, _, body = re.sub(r"\bVIA\b", via, text).partition("||")
    return (head.replace("|", "\r\n") + "\r\n\r\n" + body).encode()


async def outcome(front: Front, upstream: Upstream, asked: Sequence[bytes]) -> tuple[Any, ...]:
    """What the app sees of the last of these requests on one connection, and what the upstream sees of it."""
    async with front.app() as app:
        for data in asked[:-1]:
            app.send(data)
            await app.read(data.split(b" ", 1)[0].decode())
        before, told = len(upstream.requests), len(front.observed.calls)
        app.send(asked[-1])
        got: Answer = await app.read(asked[-1].split(b" ", 1)[0].decode())
        seen = [(each.head, each.body) for each in upstream.requests[before:]]
        how = [(call["upstream"], call["outcome"], call["status"]) for call in front.observed.calls[told:]]
        kept = re.sub(rb"Date: [^\r]*", b"Date:", got.head)
        return kept, got.body, seen, how


@pytest.mark.parametrize("first", REQUESTS, ids=lambda text: text.split(" HTTP")[0] + text.partition("HOST")[2][:30])
async def test_a_request_behind_another_is_treated_as_one_alone(first: str) -> None:
    async with Upstream(WHOLE) as upstream:
        a = to("a", upstream.url, hosts=["named.example"])
        routed = replace(a.policy, route="r", attempt_headers=frozenset({"envoy"}))
        special = replace(a.policy, route="s", attempt_headers=frozenset({"grpc"}))
        routes = (
            Route(Match(paths=("**",), headers=(("x-kind", "special"),)), special),
            Route(Match(paths=("/routed/*",)), routed),
        )
        deep = replace(to("deep", upstream.url), prefix="/b/deep")
        async with Front(replace(a, routes=routes), to("b", upstream.url), deep) as front:
            here, via = f"127.0.0.1:{front.port}", front.path.context.via
            mine = [raw(text, here, upstream.authority, via) for text in REQUESTS]
            before = raw(first, here, upstream.authority, via)
            stays = b"keep-alive" in (await outcome(front, upstream, [before]))[0] or b"HTTP/1.0" not in before
            for data in mine:
                alone = await outcome(front, upstream, [data])
                if stays:  # else nothing follows it
                    assert await outcome(front, upstream, [before, data]) == alone


@pytest.mark.parametrize("seed", range(4))
async def test_requests_that_take_turns_are_treated_as_ones_alone(seed: int) -> None:
    random = Random(seed)
    async with Upstream(WHOLE) as upstream:
        a = to("a", upstream.url, hosts=["named.example"])
        routed = replace(a.policy, route="r", attempt_headers=frozenset({"envoy"}))
        routes = (Route(Match(paths=("/routed/*",)), routed),)
        async with Front(replace(a, routes=routes), to("b", upstream.url)) as front:
            here, via = f"127.0.0.1:{front.port}", front.path.context.via
            mine = [raw(text, here, upstream.authority, via) for text in REQUESTS if "HTTP/1.0" not in text]
            alone = {data: await outcome(front, upstream, [data]) for data in mine}
            some = random.sample(mine, 6)  # few, so that each comes again and finds what was decided for it
            for _ in range(12):
                row = random.choices(some, k=8)
                assert await outcome(front, upstream, row) == alone[row[-1]], row


async def test_a_plan_that_is_alike_has_every_field() -> None:
    async with Upstream(WHOLE) as upstream, Front(to("a", upstream.url)) as front, front.app() as app:
        await app.ask("GET", "/a/x")
        (connection,) = front.path.acceptor.open
        plan = connection.plan
        assert plan is not None and plan.follow(plan.head, front.settings.router)
        twin = plan.alike(plan.head, front.settings.router)
        assert twin is not None
        own = {"asked", "keyed", "prepared", "request"}  # of one request each
        assert {name for name in Plan.__slots__ if getattr(twin, name) != getattr(plan, name)} <= own
        assert twin.request.path == plan.request.path
