"""Attempts as spans, received by an OTLP/HTTP receiver of our own; and no trace of them where nobody asked."""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from support.ports import free_port
from support.process import Redrive, run
from support.scripted import Upstream, answer, close, then_close

from proxy.observe.trace_context import Trace, read

CONFIG = """
strategies: {fast: {kind: standard, backoff: {base: 1ms, max: 2ms}}}
defaults: {strategy: fast}
upstreams: {a: {url: URL, hosts: [a.example]}}
"""
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Receiver:
    """Keeps spans as (resource attributes, span) and the requests' paths."""

    spans: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    came: asyncio.Condition = field(default_factory=asyncio.Condition)
    url: str = ""

    async def take(self, request: web.Request) -> web.Response:
        messages = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        message = messages.ExportTraceServiceRequest.FromString(await request.read())
        self.paths.append(request.path)
        for resource in message.resource_spans:
            about = {item.key: item.value.string_value for item in resource.resource.attributes}
            self.spans += [{**plain(span), "resource": about} for part in resource.scope_spans for span in part.spans]
        async with self.came:
            self.came.notify_all()
        return web.Response(body=messages.ExportTraceServiceResponse().SerializeToString())

    async def until(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(20), self.came:
            await self.came.wait_for(lambda: len(self.spans) >= count)
        return sorted(self.spans, key=lambda span: span["start"])


def plain(span: Any) -> dict[str, Any]:
    attributes = {}
    for item in span.attributes:
        kind = item.value.WhichOneof("value")
        attributes[item.key] = getattr(item.value, kind)
    return {
        "name": span.name,
        "trace": span.trace_id.hex(),
        "span": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "kind": span.kind,
        "error": span.status.code == 2,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        **attributes,
    }


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    pytest.importorskip("opentelemetry.sdk")
    found = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


def exporting(receiver: Receiver, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "20", **more}


async def get(url: str, **headers: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as reply:
        await reply.read()
        return reply.status


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_attempt_is_a_span_and_the_upstream_is_told_which(
    tmp_path: Path, receiver: Receiver, workers: int
) -> None:
    async with (
        Upstream(then_close(answer(503, b"", "Connection: close")), close, answer(200)) as upstream,
        Redrive(
            tmp_path, f"workers: {workers}\n{CONFIG.replace('URL', upstream.url)}", **exporting(receiver)
        ) as running,
    ):
        assert await get(f"{running.url}/a/x?key=s3cret", traceparent=PARENT, tracestate="v=1") == 200
        spans = await receiver.until(3)
        sent = [(request.one("traceparent"), request.one("tracestate")) for request in upstream.requests]
    trace = PARENT.split("-")[1]
    assert [span["trace"] for span in spans] == [trace] * 3
    assert [span["parent"] for span in spans] == [PARENT.split("-")[2]] * 3
    assert sent == [(f"00-{trace}-{span['span']}-01", "v=1") for span in spans]
    assert len({span["span"] for span in spans}) == 3
    assert [span.get("http.request.resend_count") for span in spans] == [None, 1, 2]
    assert [span.get("http.response.status_code") for span in spans] == [503, None, 200]
    assert [span.get("error.type") for span in spans] == ["503", "reset", None]
    assert [span["error"] for span in spans] == [True, True, False]
    assert [span["redrive.decision"] for span in spans] == ["retried", "retried", "delivered"]
    for span in spans:
        assert (span["name"], span["kind"], span["http.request.method"]) == ("GET", 3, "GET")
        assert (span["server.address"], span["server.port"]) == ("127.0.0.1", upstream.port)
        assert span["url.full"] == f"{upstream.url}/x?key=***"
        assert span["redrive.upstream"] == "a"
        assert span["start"] <= span["end"]
        assert span["resource"]["service.name"] == "redrive"
    assert all(one["end"] <= other["start"] for one, other in itertools.pairwise(spans))
    assert set(receiver.paths) == {"/v1/traces"}


async def test_a_trace_is_made_where_there_is_none(tmp_path: Path, receiver: Receiver) -> None:
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(
            tmp_path, CONFIG.replace("URL", upstream.url), **exporting(receiver, OTEL_SERVICE_NAME="sidecar")
        ) as running,
    ):
        assert await get(f"{running.url}/a/1") == 200
        assert await get(f"{running.url}/a/1") == 200
        assert await get(f"{running.url}/a/2", traceparent="00-nonsense", tracestate="left=over") == 200
        spans = await receiver.until(3)
        sent = [request.one("traceparent") for request in upstream.requests]
        assert upstream.requests[2].one("tracestate") is None
    assert [span["parent"] for span in spans] == ["", "", ""]
    assert len({span["trace"] for span in spans}) == 3
    assert sent == [f"00-{span['trace']}-{span['span']}-01" for span in spans]
    assert {span["resource"]["service.name"] for span in spans} == {"sidecar"}
    assert not any("http.request.resend_count" in span for span in spans)


async def test_what_is_not_sampled_is_passed_on_so(tmp_path: Path, receiver: Receiver) -> None:
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url), **exporting(receiver)) as running,
    ):
        assert await get(f"{running.url}/a/quiet", traceparent=PARENT[:-2] + "00") == 200
        assert await get(f"{running.url}/a/loud", traceparent=PARENT) == 200
        (span,) = await receiver.until(1)
        first, second = (str(request.one("traceparent")) for request in upstream.requests)
    assert span["url.full"] == f"{upstream.url}/loud"
    assert re.fullmatch(r"00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-00", first)
    assert second.endswith("-01")


async def test_no_connection_is_a_span_too(tmp_path: Path, receiver: Receiver) -> None:
    async with Redrive(
        tmp_path, CONFIG.replace("URL", f"http://127.0.0.1:{free_port()}"), **exporting(receiver)
    ) as running:
        assert await get(f"{running.url}/a/x") == 502
        spans = await receiver.until(4)
    assert [span["redrive.decision"] for span in spans] == ["transparent", "retried", "retried", "attempts_exhausted"]
    assert {span["error.type"] for span in spans} == {"connect_failure"}
    assert [span.get("http.request.resend_count") for span in spans] == [None, None, 1, 2]


async def test_the_last_spans_are_sent_at_the_end(tmp_path: Path, receiver: Receiver) -> None:
    slow = exporting(receiver, OTEL_BSP_SCHEDULE_DELAY="60000")
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url), **slow) as running,
    ):
        assert await get(f"{running.url}/a/x") == 200
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert len(await receiver.until(1)) == 1


async def test_a_collector_that_is_gone_is_told_once_and_holds_nothing_up(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    gone = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}", "OTEL_BSP_SCHEDULE_DELAY": "20"}
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url), OTEL_EXPORTER_OTLP_TIMEOUT="1", **gone) as running,
    ):
        assert await get(f"{running.url}/a/x") == 200
        event = await running.line(lambda line: line["event"] == "tracing")
        assert event is not None
        assert await get(f"{running.url}/a/x") == 200
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert "Traceback" not in running.errors


async def test_what_nobody_asks_for_is_not_imported_and_changes_nothing(tmp_path: Path) -> None:
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url)) as running,
    ):
        assert await get(f"{running.url}/a/x", traceparent=PARENT) == 200
        assert await get(f"{running.url}/a/x") == 200
        assert [request.one("traceparent") for request in upstream.requests] == [PARENT, None]
    unasked = "'opentelemetry' in m or 'prometheus_client' in m"
    listed = f"import proxy.main, proxy.supervisor.worker, sys; print([m for m in sys.modules if {unasked}])"
    assert await run(sys.executable, "-c", listed) == (0, "[]\n", "")


def test_reading_a_traceparent() -> None:
    whole = (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 1)
    assert read([PARENT]) == whole
    assert read(["cc" + PARENT[2:] + "-what-comes-later"]) == whole
    for bad in (
        [],
        [PARENT, PARENT],
        [PARENT.upper()],
        [PARENT + "-more"],
        ["ff" + PARENT[2:]],
        [f"00-{'0' * 32}-b7ad6b7169203331-01"],
        [f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01"],
        [PARENT[:-1]],
        ["x"],
    ):
        assert read(bad) is None, bad
    made = Trace(1, None, 1, lambda bits: 2**bits - 1)
    made.launch(1)
    assert made.field(1) == f"00-{1:032x}-{'f' * 16}-01"


async def test_a_span_shows_no_secret_of_the_configuration(tmp_path: Path, receiver: Receiver) -> None:
    """Neither what a route holds a header against, nor a url's path that came from the environment."""
    config = CONFIG.replace("URL", '"URL/hooks/${PLANTED}", routes: [{match: {headers: {x-plan: s3cret-plan}}}]')
    async with (
        Upstream(then_close(answer(503, b"", "Connection: close")), answer(200)) as upstream,
        Redrive(
            tmp_path, config.replace("URL", upstream.url), **exporting(receiver, PLANTED="s3cret-environment")
        ) as running,
    ):
        headers = {"X-Plan": "s3cret-plan", "Authorization": "Bearer s3cret", "Cookie": "s3cret"}
        assert await get(f"{running.url}/a/x?key=s3cret", **headers) == 200
        spans = await receiver.until(2)
        assert upstream.requests[0].target == "/hooks/s3cret-environment/x?key=s3cret"
    assert "s3cret" not in repr(spans)
    assert spans[0]["url.full"] == f"{upstream.url}/***/x?key=***"
    assert spans[0]["redrive.route"] == "header x-plan #1"


async def test_a_span_hides_what_a_file_brought_into_an_address(tmp_path: Path, receiver: Receiver) -> None:
    async with Upstream(answer(200)) as upstream:
        (tmp_path / "place").write_text(f"localhost:{upstream.port}/s3cret")
        config = CONFIG.replace("URL", '"http://${file:place}"')
        async with Redrive(tmp_path, config, **exporting(receiver)) as running:
            assert await get(f"{running.url}/a/x") == 200
            (span,) = await receiver.until(1)
        assert upstream.requests[0].target == "/s3cret/x"
    assert "localhost" not in repr(span) and "s3cret" not in repr(span)
    assert span["server.address"] == "${file:place}" and span["url.full"].endswith("/x")
