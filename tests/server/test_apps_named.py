"""Apps by name: what names them, what is refused without a name, and what is never forwarded."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.front import Front, request, to
from support.scripted import Upstream, answer

from proxy.config.settings import Address
from proxy.retry.apps import RANKS, Apps, NamedApp
from proxy.retry.policies.bucket_specs import BucketRef, RateSpec
from proxy.retry.policies.policy import HeaderEdits
from proxy.retry.policies.routing import Router
from proxy.server.app_names import unix_user

DATE = "Date: Thu, 01 Jan 2026 00:00:00 GMT"
FINE = answer(200, b"ok", DATE)
KNOWN = {"web": NamedApp("web", 4, RANKS["high"]), "batch": NamedApp("batch", 1, RANKS["low"])}


def basic(user: str) -> str:
    return "Proxy-Authorization: Basic " + base64.b64encode(f"{user}:x".encode()).decode()


@asynccontextmanager
async def serving(apps: Apps, **settings: Any) -> AsyncIterator[tuple[Upstream, Front]]:
    edits = HeaderEdits(remove=apps.never_forwarded)
    async with (
        Upstream(FINE) as upstream,
        Front(to("api", upstream.url, request_headers=edits), apps=apps, **settings) as front,
    ):
        yield upstream, front


async def names(front: Front, *requests: tuple[str, ...]) -> list[str]:
    async with front.app() as app:
        for fields in requests:
            assert (await app.ask("GET", "/api/x", *fields)).status == 200
    return [call["app"] for call in await front.observed.until(len(requests))]


async def test_the_user_of_the_proxys_url_names_the_app_of_each_request() -> None:
    async with serving(Apps(known=KNOWN)) as (upstream, front):
        asked = [(basic("batch"),), (basic("web"),), (basic("unheard-of"),), (), ("Proxy-Authorization: Basic !",)]
        assert await names(front, *asked) == ["batch", "web", "others", "others", "others"]
        assert all(each.one("proxy-authorization") is None for each in upstream.requests)


async def test_a_field_names_the_app_and_is_not_forwarded() -> None:
    apps = Apps(by=("x-app", "proxy_user"), known=KNOWN, fields=frozenset({"x-app"}))
    async with serving(apps) as (upstream, front):
        asked = [("X-App: web", basic("batch")), (basic("batch"),), ("X-App: web", "X-Retry-Priority: low")]
        assert await names(front, *asked) == ["web", "batch", "web"]
        for each in upstream.requests:
            assert each.one("x-app") is None and each.one("x-retry-priority") is None


async def test_requests_of_one_connection_are_of_the_app_that_each_names() -> None:
    apps = Apps(by=("x-app", "proxy_user"), known=KNOWN, fields=frozenset({"x-app"}))
    async with serving(apps) as (upstream, front):
        same = ("X-App: web", "A: 1")
        asked = [
            same,
            same,
            ("X-App: web", "A: 2"),
            ("X-App: batch", "A: 2"),
            ("A: 2",),
            (basic("batch"), "A: 2"),
            same,
            ("x-app:web", "A: 3"),
            ("X-App: webs", "A: 3"),
            ("X-App: web", "A: 4", "X-App: batch"),
            ("X-App: batch", "A: 5", "X-App: web"),
            ("X-App: batch", "A: 6"),
        ]
        of = ["web", "web", "web", "batch", "others", "batch", "web", "web", "others", "web", "batch", "batch"]
        assert await names(front, *asked) == of
        assert [each.one("x-app") for each in upstream.requests] == [None] * 12
        assert all(each.one("proxy-authorization") is None for each in upstream.requests)
        assert "".join(str(each.one("a")) for each in upstream.requests) == "112222133456"


async def test_the_app_of_a_request_that_differs_only_in_its_path_is_the_same() -> None:
    apps = Apps(by=("x-app",), known=KNOWN, fields=frozenset({"x-app"}))
    async with serving(apps) as (upstream, front), front.app() as app:
        for path, name in (("/api/1", "web"), ("/api/22", "web"), ("/api/22", "batch"), ("/api/3", "batch")):
            assert (await app.ask("GET", path, f"X-App: {name}")).status == 200
        assert [call["app"] for call in await front.observed.until(4)] == ["web", "web", "batch", "batch"]
        assert all(each.one("x-app") is None for each in upstream.requests)


async def test_after_a_reload_other_fields_name_the_app_on_open_connections() -> None:
    by_app = Apps(by=("x-app",), known=KNOWN, fields=frozenset({"x-app"}))
    by_team = Apps(by=("x-team", "x-app"), known=KNOWN, fields=frozenset({"x-app", "x-team"}))
    by_odd = Apps(by=("x_app",), known=KNOWN, fields=frozenset({"x_app"}))
    said = []
    async with serving(by_team) as (upstream, front), front.app() as one, front.app() as other:
        for apps in (by_team, by_app, by_team, by_odd, by_app):
            edits = HeaderEdits(remove=apps.never_forwarded)
            routed = Router([to("api", upstream.url, request_headers=edits)], front.settings.router.unmatched)
            front.path.acceptor.use(replace(front.settings, apps=apps, router=routed))
            for app, name in ((one, "web"), (other, "batch")):
                for path in ("/api/1", "/api/2", "/api/2"):
                    lines = (f"X-App: {name}", f"x_app:{name}", f"A: {path}")
                    assert (await app.ask("GET", path, *lines)).status == 200
                    said.append(name)
                    here = upstream.requests[-1]
                    gone = apps.never_forwarded
                    assert (here.one("x-app") is None, here.one("x_app") is None) == ("x-app" in gone, "x_app" in gone)
        assert [call["app"] for call in await front.observed.until(len(said))] == said


@pytest.mark.parametrize("name", ["authorization", "content-type", "x_app", "x-" + "a" * 60])
async def test_any_field_may_name_the_app(name: str) -> None:
    apps = Apps(by=(name,), known=KNOWN, fields=frozenset({name}))
    async with serving(apps) as (upstream, front):
        asked = [(f"{name}: {app}", f"A: {n}") for n, app in enumerate(("web", "web", "batch", "batch", "web"))]
        assert await names(front, *asked) == ["web", "web", "batch", "batch", "web"]
        assert all(each.one(name) is None for each in upstream.requests)


async def test_the_listener_comes_before_what_a_request_says() -> None:
    listen = Address("127.0.0.1", 0, app="batch")
    async with serving(Apps(known=KNOWN), listen=listen) as (_, front):
        assert await names(front, (basic("web"),)) == ["batch"]


async def test_the_user_of_a_unix_socket_names_the_app(tmp_path: Path) -> None:
    user = unix_user_here()
    apps = Apps(known={user: NamedApp(user)})
    async with serving(apps, listen=Address(unix=str(tmp_path / "s"))) as (_, front):
        assert await names(front, (basic("web"),)) == [user]


def unix_user_here() -> str:
    import socket

    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        return unix_user(one)


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("GET", "/api/x", 403), ("GET", "http://api.test/x", 407), ("CONNECT", "api.test:443", 407)],
)
async def test_a_name_may_be_required(method: str, target: str, status: int) -> None:
    async with serving(Apps(known=KNOWN, required=True)) as (upstream, front):
        async with front.app() as app:
            reply = await app.ask(method, target)
        assert reply.status == status
        assert reply.one("proxy-authenticate") == ('Basic realm="redrive"' if status == 407 else None)
        assert not upstream.requests
        async with front.app() as app:
            assert (await app.ask("GET", "/api/x", basic("anyone"))).status == 200


async def test_a_407_advises_a_user_of_the_proxys_url_only_where_that_names_an_app() -> None:
    for by, advised in ((("listener", "proxy_user"), True), (("x-app",), False)):
        apps = Apps(by=by, required=True, known=KNOWN, fields=frozenset({"x-app"} & {*by}))
        async with serving(apps) as (_upstream, front), front.app() as app:
            reply = await app.ask("GET", "http://api.test/x")
        said = reply.one("proxy-status") or ""
        assert reply.status == 407
        assert ("redrive env --app" in said, "see `apps.by`" in said) == (advised, not advised)


async def test_a_tunnels_name_holds_for_the_calls_inside() -> None:
    async with serving(Apps(known=KNOWN)) as (upstream, front), front.app() as app:
        place = f"127.0.0.1:{upstream.port}"
        assert (await app.ask("CONNECT", place, basic("batch"))).status == 200
        assert (await app.ask("GET", "/x")).status == 200
    calls = await front.observed.until(1)
    assert {call["app"] for call in calls} == {"batch"}


async def test_without_apps_nothing_is_named_and_nothing_is_kept_back() -> None:
    async with Upstream(FINE) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("GET", "/api/x", "X-Retry-Priority: low", basic("web"))).status == 200
        assert upstream.requests[0].one("x-retry-priority") == "low"
        assert (await front.observed.until(1))[0]["app"] == ""


def test_an_app_may_lower_its_priority_and_not_raise_it() -> None:
    assert KNOWN["web"].lowered().rank == RANKS["low"]
    assert KNOWN["batch"].lowered() is KNOWN["batch"]


async def test_a_call_of_a_better_priority_overtakes_those_that_wait_for_a_rate() -> None:
    apps = Apps(known=KNOWN)
    rate = BucketRef(RateSpec(20.0, 1.0), "pace")
    async with (
        Upstream(FINE) as upstream,
        Front(to("api", upstream.url, rate=rate), apps=apps) as front,
        AsyncExitStack() as stack,
    ):
        callers = [await stack.enter_async_context(front.app()) for _ in range(7)]
        for number, caller in enumerate(callers[:6]):
            caller.send(request("GET", f"/api/{number}", basic("batch"), host=caller.authority))
        while front.path.waiting < 5:  # noqa: ASYNC110  no event tells of a waiting call
            await asyncio.sleep(0)
        assert (await callers[6].ask("GET", "/api/web", basic("web"))).status == 200
        for caller in callers[:6]:
            assert (await caller.read()).status == 200
        order = [each.target for each in upstream.requests]
        assert order.index("/web") < 5 and len(order) == 7
