from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient
from multidict import CIMultiDict
from pytest_aiohttp import AiohttpClient
from support.pages import Asking

from proxy.admin.app import Access, admin_app, host_is_known, probe_app
from proxy.admin.views import Readiness, View
from proxy.observe.call_record import refused
from proxy.observe.exposition import Gauges, render
from proxy.observe.metrics import Metrics
from proxy.observe.recent_calls import RecentCalls
from proxy.retry.facts import Outcome

Client = TestClient[web.Request, web.Application]


class ServerProcess:
    """What the composition root would be."""

    def __init__(self) -> None:
        self.state = Readiness(ready=True, draining=False, config_file="x.yaml", warnings=["x.yaml:1:1: a: odd"])
        self.reload_errors: list[str] = []
        self.asked: list[str] = []
        self.recent = RecentCalls()
        self.metrics = Metrics()

    def view(self) -> View:
        return View(
            readiness=lambda: self.state,
            metrics=self.exposition,
            config=lambda: {"version": 1},
            upstreams=self.upstreams,
            buckets=self.buckets,
            recent=self.recent,
            reload=self.reload,
            drain=lambda: self.asked.append("drain"),
        )

    async def upstreams(self, only: str | None) -> list[dict[str, Any]]:
        return [{"name": "a"}]

    async def buckets(self) -> list[dict[str, Any]]:
        return [{"bucket": "b", "kind": "quota", "level": 3}]

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        return render(self.metrics, Gauges(), accept)

    async def reload(self) -> list[str]:
        self.asked.append("reload")
        return self.reload_errors

    def called(self, detail: str = "") -> None:
        self.recent.add([refused(0.0, "", 400, Outcome.BAD_REQUEST, detail)])


@pytest.fixture
def server() -> ServerProcess:
    return ServerProcess()


@pytest.fixture
async def admin(server: ServerProcess, aiohttp_client: AiohttpClient) -> Client:
    return await aiohttp_client(admin_app(server.view(), lambda: Access(hosts=["redrive.internal"])))


async def test_buckets_come_in_pages(server: ServerProcess, aiohttp_client: AiohttpClient) -> None:
    async def many() -> list[dict[str, Any]]:
        return [{"bucket": str(n)} for n in range(2500)]

    admin = await aiohttp_client(admin_app(replace(server.view(), buckets=many), lambda: Access()))
    first = await (await admin.get("/buckets")).json()
    assert (first["total"], first["next"], len(first["buckets"])) == (2500, 1000, 1000)
    names, after = [], 0
    while after is not None:
        page = await (await admin.get(f"/buckets?limit=700&after={after}")).json()
        names += [bucket["bucket"] for bucket in page["buckets"]]
        after = page["next"]
    assert names == [str(n) for n in range(2500)]
    beyond = await (await admin.get("/buckets?after=2500")).json()
    assert beyond == {"total": 2500, "next": None, "buckets": []}
    for wrong in ("limit=0", "limit=10001", "limit=x", "limit=-1", "after=-1", "after=1.5", "after=", "limit="):
        got = await admin.get(f"/buckets?{wrong}")
        assert got.status == 400
        assert await got.text() == "limit must be a whole number from 1 to 10000, and after a whole number.\n"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("/upstreams?upstream=a", "There is no parameter upstream: use name.\n"),
        ("/buckets?name=a", "There is no parameter name: use limit, after.\n"),
        ("/series?upstream=a", "There is no parameter upstream: use name.\n"),
        ("/config/places?name=a", "There is no parameter name: use upstream, route.\n"),
        ("/config?upstream=a", "There is no parameter upstream: this page has none.\n"),
        ("/what-if?name=a", "There is no parameter name: use upstream.\n"),
    ],
)
async def test_a_parameter_that_a_page_does_not_have_is_refused(admin: Client, page: str, said: str) -> None:
    """Else a page that was asked for one upstream, by a wrong name, would show all of them."""
    got = await admin.get(page)
    assert (got.status, await got.text()) == (400, said)


async def test_every_page_answers(admin: Client, server: ServerProcess) -> None:
    server.called("first")
    server.called("second")
    assert await (await admin.get("/livez")).text() == "ok\n"
    assert await (await admin.get("/readyz")).text() == "ok\n"
    page = await admin.get("/")
    assert page.content_type == "text/html"
    assert "POST /reload" in await page.text()
    assert await (await admin.get("/config")).json() == {"version": 1}
    assert await (await admin.get("/upstreams")).json() == {"upstreams": [{"name": "a"}]}
    bucket = {"bucket": "b", "kind": "quota", "level": 3}
    assert await (await admin.get("/buckets")).json() == {"total": 1, "next": None, "buckets": [bucket]}
    metrics = await admin.get("/metrics")
    assert metrics.headers["Content-Type"].startswith("text/plain")
    assert "redrive_waiting_calls 0.0" in await metrics.text()
    requests = await (await admin.get("/requests?limit=1")).json()
    assert requests["seen"] == 2
    assert [r["detail"] for r in requests["requests"]] == ["second"]
    assert (await admin.get("/requests?limit=all")).status == 400
    assert (await admin.get("/nothing")).status == 404
    assert (await admin.head("/livez")).status == 200


async def test_a_large_configuration_holds_nobody_up(server: ServerProcess, aiohttp_client: AiohttpClient) -> None:
    view = replace(server.view(), config=lambda: {"on the loop": threading.current_thread() is threading.main_thread()})
    admin = await aiohttp_client(admin_app(view))
    assert await (await admin.get("/config")).json() == {"on the loop": False}


async def test_readiness_says_why(admin: Client, server: ServerProcess) -> None:
    verbose = await admin.get("/readyz?verbose")
    assert verbose.status == 200
    assert (await verbose.json())["warnings"] == ["x.yaml:1:1: a: odd"]
    server.state = Readiness(ready=False, draining=True, config_file="x.yaml", reload_errors=["x.yaml:2:1: b: bad"])
    assert (await admin.get("/readyz")).status == 503
    verbose = await admin.get("/readyz?verbose")
    assert verbose.status == 503
    assert (await verbose.json())["reload_errors"] == ["x.yaml:2:1: b: bad"]


async def test_reload_and_drain(admin: Client, server: ServerProcess) -> None:
    assert await (await admin.post("/reload")).json() == {"reloaded": True, "errors": []}
    server.reload_errors = ["x.yaml:1:1: oops"]
    refused = await admin.post("/reload")
    assert refused.status == 422
    assert (await refused.json())["errors"] == ["x.yaml:1:1: oops"]
    assert (await admin.post("/drain")).status == 202
    assert (await admin.get("/drain")).status == 405
    assert server.asked == ["reload", "reload", "drain"]


async def test_a_reload_is_done_whatever_becomes_of_who_asked(server: ServerProcess) -> None:
    begun, go, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def reload() -> list[str]:
        begun.set()
        await go.wait()
        done.set()
        return []

    async with Asking(admin_app(replace(server.view(), reload=reload)), patience=0.01) as admin:
        asking = asyncio.ensure_future(admin.raw(b"POST /reload HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        await begun.wait()
        await admin.close()
        assert await asking == b""
        go.set()
        async with asyncio.timeout(20):
            await done.wait()


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:9901", True),
        ("localhost", True),
        ("LOCALHOST:9901", True),
        ("[::1]:9901", True),
        ("10.0.0.7", True),
        ("redrive.internal:9901", True),
        ("Redrive.Internal", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:9901", False),
        ("", False),
        ("0.0.0.0:9901", False),
        ("[::]:9901", False),
        ("[::ffff:0.0.0.0]", False),
    ],
)
async def test_hosts(admin: Client, host: str, known: bool) -> None:
    assert host_is_known(host, {"redrive.internal"}) is known
    for path in ("/livez", "/config"):
        assert (await admin.get(path, headers={"Host": host})).status == (200 if known else 421)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "http://127.0.0.1:9901", "Host": "127.0.0.1:9901"}, 200),
        ({"Origin": "http://localhost:80", "Host": "LOCALHOST"}, 200),
        ({"Origin": "https://127.0.0.1", "Host": "127.0.0.1:443"}, 200),
        ({"Origin": "http://0.0.0.0:9901", "Host": "127.0.0.1:9901"}, 403),
        ({"Origin": "http://127.0.0.1:9901", "Host": "127.0.0.1:9901", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_no_other_site_changes_anything(
    admin: Client, server: ServerProcess, headers: dict[str, str], status: int
) -> None:
    assert (await admin.post("/reload", headers=headers)).status == status
    assert server.asked == (["reload"] if status == 200 else [])


async def test_whoever_says_two_things_is_not_believed(admin: Client, server: ServerProcess) -> None:
    own = f"http://127.0.0.1:{admin.port}"
    for name, good, bad in (("Origin", own, "http://evil.example"), ("Sec-Fetch-Site", "same-origin", "cross-site")):
        headers = CIMultiDict([("Host", own.removeprefix("http://")), (name, good), (name, bad)])
        assert (await admin.post("/reload", headers=headers)).status == 403
    assert server.asked == []


@pytest.mark.parametrize("token", ["s3cret", "à la carte à"])
async def test_a_token(server: ServerProcess, token: str, aiohttp_client: AiohttpClient) -> None:
    admin = await aiohttp_client(admin_app(server.view(), lambda: Access(token=token)))

    async def get(authorization: str | None, path: str = "/config") -> ClientResponse:
        return await admin.get(path, headers={"Authorization": authorization} if authorization else {})

    refused = await get(None)
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    for wrong in ("Bearer wrong", f"Basic {token}", token, f"Bearer {token}2", f"bearer{token}", "\xff x"):
        assert (await get(wrong)).status == 401
    assert (await get(f"Bearer {token}")).status == 200
    assert (await get(f"bearer  {token} ")).status == 200
    for path in ("/", "/static/style.css"):
        assert (await get(None, path)).status == 200
    for path in ("/static/../config", "/static/%2e%2e/config", "/nothing", "/static", "/livez/"):
        assert (await get(None, path)).status == 401


async def test_the_probe_is_three_pages_for_any_host(server: ServerProcess, aiohttp_client: AiohttpClient) -> None:
    probe = await aiohttp_client(probe_app(server.view()))
    for path in ("/livez", "/readyz", "/metrics"):
        for host in ("10-0-0-1.pod.example", ""):
            assert (await probe.get(path, headers={"Host": host})).status == 200
    assert await (await probe.get("/readyz?verbose")).text() == "ok\n"
    for path in ("/", "/config", "/requests", "/events"):
        assert (await probe.get(path)).status == 404
    assert (await probe.post("/reload")).status == 404


async def event(response: ClientResponse) -> dict[str, Any]:
    """The next event's data."""
    async for line in response.content:
        if line.startswith(b"data: "):
            found: dict[str, Any] = json.loads(line[6:])
            return found
    raise AssertionError("the stream ended")


async def test_events_follow_and_take_up_where_a_reader_left_off(admin: Client, server: ServerProcess) -> None:
    server.called("before")
    async with asyncio.timeout(60):
        async with admin.get("/events") as stream:
            assert stream.headers["Content-Type"] == "text/event-stream"
            assert await stream.content.readline() == b"retry: 1000\n"
            server.called("now")
            assert (await event(stream))["detail"] == "now"
        server.called("missed")
        async with admin.get("/events", headers={"Last-Event-ID": "2"}) as stream:
            assert (await event(stream))["detail"] == "missed"
        async with admin.get("/events", headers={"Last-Event-ID": "999"}) as stream:  # from before a restart
            assert (await event(stream))["detail"] == "before"


async def test_a_reader_of_one_head_is_not_followed(admin: Client) -> None:
    async with asyncio.timeout(60):
        head = await admin.head("/events")
        assert head.headers["Content-Type"] == "text/event-stream"
        assert await head.read() == b""


async def test_open_event_streams_do_not_hold_the_end_up(admin: Client) -> None:
    async with asyncio.timeout(60):
        async with admin.get("/events") as stream, admin.get("/livez"):
            await admin.server.close()
            assert await stream.content.read() == b"retry: 1000\n\n"  # whole: its last chunk has come


async def test_samples_that_fail_are_told(server: ServerProcess) -> None:
    async def broken() -> list[dict[str, Any]]:
        raise ValueError("oops")

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with asyncio.timeout(60), Asking(admin_app(replace(server.view(), buckets=broken))):
        pass
    assert [str(context["exception"]) for context in told] == ["oops"]


async def test_every_answer_says_that_it_is_not_to_be_kept_and_not_who_serves(admin: Client) -> None:
    for path, status in (("/livez", 200), ("/config", 200), ("/nothing", 404), ("/drain", 405)):
        reply = await admin.get(path)
        assert (reply.status, reply.headers["Cache-Control"]) == (status, "no-store")
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert "Server" not in reply.headers


async def test_one_call_is_shown_as_long_as_it_is_kept(admin: Client, server: ServerProcess) -> None:
    server.called("first")
    server.called("second")
    found = await admin.get("/requests/2")
    assert (await found.json())["detail"] == "second"
    for number in ("0", "3", "x", "9" * 40, "-1"):
        gone = await admin.get(f"/requests/{number}")
        assert (gone.status, await gone.text()) == (404, "This call is no longer kept.\n")


async def test_one_draft_is_played_at_a_time_and_nobody_else_waits(
    server: ServerProcess, aiohttp_client: AiohttpClient
) -> None:
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def what_if(upstream: str, text: str, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(20)
        return {"on the loop": threading.current_thread() is threading.main_thread(), "calls": len(calls)}

    server.called()
    admin = await aiohttp_client(admin_app(replace(server.view(), what_if=what_if)))
    draft = {"upstream": "", "yaml": "", "calls": 5}
    first = asyncio.create_task(admin.post("/what-if", json=draft))
    await begun.wait()
    second = await admin.post("/what-if", json=draft)
    assert (second.status, second.headers["Retry-After"]) == (503, "1")
    assert (await admin.get("/livez")).status == 200
    go_on.set()
    assert await (await first).json() == {"on the loop": False, "calls": 1}
