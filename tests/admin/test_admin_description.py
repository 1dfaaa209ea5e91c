"""The admin port's OpenAPI description, held against a running port."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from jsonschema import Draft202012Validator
from support.process import Redrive
from support.scripted import Upstream, answer, close

from proxy.admin.app import admin_app
from proxy.admin.views import View

FILE = Path(__file__).parents[2] / "proxy/admin/openapi.json"
API: dict[str, Any] = json.loads(FILE.read_text())
TOKEN = "t0ken"
CONFIG = """
buckets: {spare: {kind: budget}, pace: {kind: rate, rate: 50/s}}
strategies: {fast: {kind: standard, backoff: {base: 1ms, max: 2ms}}}
defaults: {strategy: fast}
upstreams:
  a:
    url: URL
    rate: pace
    routes: [{match: {path: /v1/**}, strategy: none, bucket: spare}]
  b: {url: URL, strategy: adaptive, prefix: /b}
  c: {url: URL, strategy: none, fallback: [{to: a, json: {x: 1}}, b]}
  d: {url: URL, strategy: {kind: hedging, hedging_delay: p95}}
"""


def complain(value: Any, schema: dict[str, Any]) -> list[str]:
    """What is wrong with a value, by a schema that may point into the description."""
    whole = {**schema, "components": API["components"]}
    return [
        f"{'/'.join(map(str, error.path))}: {error.message}" for error in Draft202012Validator(whole).iter_errors(value)
    ]


async def held(reply: aiohttp.ClientResponse, operation: dict[str, Any]) -> Any:
    """The answer's body, once it is what the description says."""
    described = operation["responses"].get(str(reply.status))
    assert described is not None, (reply.url, reply.status)
    kinds = described.get("content")
    if kinds is None or reply.content_type == "text/event-stream":
        return None
    assert reply.content_type in kinds or reply.content_type.startswith("application/openmetrics"), reply.url
    if reply.content_type != "application/json":
        return await reply.text()
    value = await reply.json()
    assert complain(value, kinds["application/json"]["schema"]) == [], reply.url
    return value


async def test_every_route_is_described_and_no_other() -> None:
    view = View(*[None] * 5, None, None, None)  # type: ignore[list-item, arg-type]
    routes = {
        (route.method.lower(), route.resource.canonical)
        for route in admin_app(view).router.routes()
        if route.method != "HEAD" and route.resource is not None
    }
    described = {(method, path) for path, methods in API["paths"].items() for method in methods}
    assert described == routes
    Draft202012Validator.check_schema({"$defs": API["components"]["schemas"]})


async def test_what_the_port_answers_is_what_is_described(tmp_path: Path) -> None:
    steps = (answer(503), answer(200), answer(503), answer(429, b"", "Retry-After: 0"), close)
    async with Upstream(*steps) as upstream:
        listen = f"listen: 127.0.0.1:0\nadmin: {{listen: '127.0.0.1:0', token: {TOKEN}}}\n"
        async with (
            Redrive(tmp_path, CONFIG.replace("URL", upstream.url), listen=listen) as running,
            aiohttp.ClientSession() as session,
        ):
            for path in ("/a/x?k=1", "/a/v1/x", "/b/x", "/nowhere", "/a/y", "/c/x", "/d/x"):
                async with session.get(running.url + path) as reply:
                    await reply.read()
            found = {}
            for path in ASKED:
                route = path.partition("?")[0].replace("style.css", "{name}")
                operation = API["paths"][re.sub(r"/[0-9]+", "/{number}", route)]["get"]
                open_to_all = operation.get("security") == []
                async with session.get(running.admin + path) as reply:
                    assert reply.status == (200 if open_to_all else 401), path
                    await held(reply, operation)
                async with session.get(running.admin + path, headers={"Host": "evil.example"}) as reply:
                    assert reply.status == 421, path
                    await held(reply, operation)
                async with session.get(running.admin + path, headers=LET_IN) as reply:
                    assert reply.status == (400 if path in UNREADABLE else 404 if path in MISSING else 200), path
                    found[path] = await held(reply, operation)
            assert {call["outcome"] for call in found["/requests"]["requests"]} > {"success"}
            (gone,) = (call["fallbacks"] for call in found["/requests"]["requests"] if call["upstream"] == "c")
            assert [(each["to"], "skipped" in each) for each in gone] == [("a", True), ("b", False)]
            (row,) = (each for each in found["/upstreams"]["upstreams"] if each["name"] == "c")
            assert (row["fallback"], row["fallbacks"]) == (["a", "b"], {"b": 1})
            kinds = {bucket["kind"] for bucket in found["/buckets"]["buckets"]}
            assert kinds == {"quota", "rate", "budget", "adaptive limiter", "hedging"}
            units = {bucket.get("unit") for bucket in found["/buckets"]["buckets"] if bucket["kind"] == "rate"}
            assert units == {"attempts"}
            assert [each["name"] for each in found["/upstreams?name=b"]["upstreams"]] == ["b"]
            assert all(not values["path"].startswith("upstreams") for values in found["/config/places"]["values"])
            places = {each["path"]: each["from"] for each in found["/config/places?upstream=b"]["values"]}
            assert places["prefix"] == f"{running.file}:12"
            assert places["timeouts.connect"] == "default"


ASKED = (
    "/", "/static/style.css", "/openapi.json", "/livez", "/readyz", "/readyz?verbose", "/metrics", "/config",
    "/buckets",
    "/config/places", "/config/places?upstream=b", "/config/places?upstream=nobody", "/upstreams", "/upstreams?name=b",
    "/series", "/series?name=b", "/series?name=nobody",
    "/requests", "/requests?limit=1", "/requests?since=2", "/requests?only=notable", "/requests?limit=all",
    "/requests?since=-1", "/requests?only=bad", "/requests/1", "/requests/99999", "/events?most=all",
    *(f"/requests/{number}/explain" for number in range(1, 8)), "/requests/99999/explain",
    "/what-if?upstream=a", "/what-if?upstream=nobody",
)  # fmt: skip
UNREADABLE = frozenset({"/requests?limit=all", "/requests?since=-1", "/requests?only=bad", "/events?most=all"})
MISSING = frozenset({
    "/config/places?upstream=nobody", "/series?name=nobody", "/requests/99999", "/requests/99999/explain",
    "/what-if?upstream=nobody",
})  # fmt: skip
LET_IN = {"Authorization": f"Bearer {TOKEN}"}


async def test_events_are_what_is_described(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503), answer(200)) as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url)) as running,
        aiohttp.ClientSession() as session,
        asyncio.timeout(20),
    ):
        async with session.get(f"{running.admin}/events?board", headers={"Last-Event-ID": "0"}) as stream:
            async with session.get(f"{running.url}/a/x") as reply:
                await reply.read()
            told: dict[str, list[Any]] = {"call": [], "board": []}
            while len(told["board"]) < 3 or not told["call"]:
                line = (await stream.content.readline()).decode().rstrip("\n")
                if line.startswith("event: "):
                    data = (await stream.content.readline()).decode().removeprefix("data: ")
                    told[line.removeprefix("event: ")].append(json.loads(data))
        for name, values in told.items():
            for value in values:
                assert complain(value, {"$ref": f"#/components/schemas/{name.capitalize()}"}) == []
        first, *others = told["board"]
        assert first["full"]
        assert {row["name"] for row in first["upstreams"]} == {"a", "b", "c", "d"}
        assert not any(message["full"] for message in others)
        assert not any(row["name"] == "b" for message in others for row in message["upstreams"])


@pytest.mark.parametrize("path", ["/reload", "/drain"])
async def test_what_changes_something_is_described(path: str, tmp_path: Path) -> None:
    operation = API["paths"][path]["post"]
    async with (
        Upstream() as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url)) as running,
        aiohttp.ClientSession() as session,
    ):
        for headers, status in (
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({"Host": "evil.example"}, 421),
            ({}, 200 if path == "/reload" else 202),
        ):
            async with session.post(running.admin + path, headers=headers) as reply:
                assert reply.status == status
                await held(reply, operation)
        if path == "/reload":
            running.file.write_text("listen: nowhere\n")
            async with session.post(running.admin + path) as reply:
                assert reply.status == 422
                assert (await held(reply, operation))["errors"]


async def test_a_draft_is_tried_as_described(tmp_path: Path) -> None:
    operation = API["paths"]["/what-if"]["post"]
    async with (
        Upstream(answer(503), answer(200), answer(200)) as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url)) as running,
        aiohttp.ClientSession() as session,
    ):
        for path in ("/b/x", "/b/y", "/a/z"):
            async with session.get(running.url + path) as reply:
                await reply.read()

        async def tried(status: int = 200, headers: dict[str, str] | None = None, **draft: Any) -> Any:
            async with session.post(f"{running.admin}/what-if", json=draft, headers=headers) as reply:
                assert reply.status == status, await reply.text()
                return await held(reply, operation)

        before = running.file.read_text()
        found = await tried(upstream="b", yaml="strategy: none\n", calls=9)
        assert [row["number"] for row in found["played"]["calls"]] == [2, 1]
        assert (found["played"]["otherwise"], found["played"]["attempts_after"]) == (1, 2)
        assert (await tried(upstream="b", yaml="mode: maybe\n", calls=9))["errors"][0].startswith("edit:1:7: mode: ")
        assert (await tried(upstream="b", yaml=""))["played"] is None
        await tried(404, upstream="nobody", yaml="")
        for wrong in ({"yaml": ""}, {"upstream": "b", "yaml": 1}, {"upstream": "b", "yaml": "", "calls": 201}):
            await tried(400, **wrong)
        for more in ({"calls": True}, {"calls": -1}, {"file": "/etc/passwd"}):
            await tried(400, upstream="b", yaml="", **more)
        await tried(400, upstream="b", yaml="x" * 65537)
        await tried(413, upstream="b", yaml="x" * 1024 * 1024)
        for headers, status in (
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({"Host": "evil.example"}, 421),
            ({"Content-Type": "text/plain"}, 415),
        ):
            await tried(status, headers, upstream="b", yaml="")
        async with session.post(f"{running.admin}/what-if", data=b"{", headers=JSON) as reply:
            assert reply.status == 400
        assert running.file.read_text() == before


JSON = {"Content-Type": "application/json"}
