"""Metrics and log lines over OTLP, received by an OTLP/HTTP receiver of our own that decodes the protobuf."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from support.ports import free_port
from support.process import Redrive
from support.scripted import Upstream, answer

CONFIG = """
strategies: {fast: {kind: standard, backoff: {base: 1ms, max: 2ms}}}
defaults: {strategy: fast}
upstreams: {a: {url: URL, hosts: [a.example]}}
"""
COLLECTOR = "opentelemetry.proto.collector"


class Receiver:
    """Keeps what came, by path: the requests, decoded and made plain (`google.protobuf.json_format`)."""

    def __init__(self) -> None:
        self.came = asyncio.Condition()
        self.requests: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        plain = pytest.importorskip("google.protobuf.json_format")
        name = request.path.removeprefix("/v1/")
        kind = {"traces": "Trace", "metrics": "Metrics", "logs": "Logs"}[name]
        module = {"traces": "trace"}.get(name, name)
        messages = pytest.importorskip(f"{COLLECTOR}.{module}.v1.{module}_service_pb2")
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        message = getattr(messages, f"Export{kind}ServiceRequest").FromString(body)
        async with self.came:
            self.requests[name].append(plain.MessageToDict(message, preserving_proto_field_name=True))
            self.came.notify_all()
        return web.Response(body=getattr(messages, f"Export{kind}ServiceResponse")().SerializeToString())

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self.came:
            await self.came.wait_for(reached)

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics of the last request, by name."""
        (resource,) = self.requests["metrics"][-1]["resource_metrics"] if self.requests["metrics"] else ({},)
        return {each["name"]: each for scope in resource.get("scope_metrics", []) for each in scope["metrics"]}

    @property
    def logs(self) -> list[dict[str, Any]]:
        return [
            record
            for request in self.requests["logs"]
            for resource in request["resource_logs"]
            for scope in resource["scope_logs"]
            for record in scope["log_records"]
        ]


def value_of(value: dict[str, Any]) -> Any:
    """An AnyValue as plain data."""
    ((kind, content),) = value.items()
    if kind == "kvlist_value":
        return plain(content.get("values", []))
    if kind == "array_value":
        return [value_of(each) for each in content.get("values", [])]
    return int(content) if kind == "int_value" else content


def plain(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: value_of(pair["value"]) for pair in pairs}


def points(metric: dict[str, Any], kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(plain(point.get("attributes", [])), point) for point in metric[kind]["data_points"]]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    found = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


async def get(url: str, headers: dict[str, str] | None = None) -> int:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as reply:
        await reply.read()
        return reply.status


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_metrics_of_all_processes_are_sent(tmp_path: Path, receiver: Receiver, workers: int) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_METRIC_EXPORT_INTERVAL": "50"}
    env |= {"OTEL_TRACES_EXPORTER": "none", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"}
    async with (
        Upstream(answer(503), answer(200)) as upstream,
        Redrive(tmp_path, f"workers: {workers}\n{CONFIG.replace('URL', upstream.url)}", **env) as running,
    ):
        for _ in range(3):
            assert await get(f"{running.url}/a/x") == 200

        def all_came() -> bool:
            calls = receiver.metrics.get("redrive_calls_total")
            return calls is not None and sum(point["as_double"] for _, point in points(calls, "sum")) == 3

        await receiver.until(all_came)
        found = receiver.metrics
        async with aiohttp.ClientSession() as session, session.get(f"{running.admin}/metrics") as reply:
            text = await reply.text()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    assert found.keys() <= names
    assert {"redrive_retries_total", "redrive_bucket_level", "redrive_buffered_bytes"} <= found.keys()
    ((labels, point),) = points(found["redrive_calls_total"], "sum")
    assert labels == {"upstream": "a", "route": "", "outcome": "success", "code_class": "2xx"}
    assert int(point["start_time_unix_nano"]) < int(point["time_unix_nano"])
    data = found["redrive_calls_total"]["sum"]
    assert (data["aggregation_temporality"], data["is_monotonic"]) == ("AGGREGATION_TEMPORALITY_CUMULATIVE", True)
    ((labels, point),) = points(found["redrive_retries_total"], "sum")
    assert (labels["reason"], point["as_double"]) == ("transient", 1)
    ((labels, point),) = points(found["redrive_call_duration_seconds"], "histogram")
    assert labels == {"upstream": "a", "route": ""}
    assert sum(map(int, point["bucket_counts"])) == int(point["count"]) == 3
    assert len(point["bucket_counts"]) == len(point["explicit_bounds"]) + 1
    assert found["redrive_call_duration_seconds"]["unit"] == "s"
    resource = plain(receiver.requests["metrics"][-1]["resource_metrics"][0]["resource"]["attributes"])
    assert (resource["service.name"], resource["deployment.environment"]) == ("redrive", "test")
    assert "logs" not in receiver.requests  # they are sent only if they are asked for


async def test_the_last_figures_are_sent_at_the_end(tmp_path: Path, receiver: Receiver) -> None:
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(
            tmp_path,
            CONFIG.replace("URL", upstream.url),
            OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{receiver.url}/v1/metrics",
        ) as running,
    ):
        assert await get(f"{running.url}/a/x") == 200
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        ((_, point),) = points(receiver.metrics["redrive_calls_total"], "sum")
        assert point["as_double"] == 1
        assert receiver.requests.keys() == {"metrics"}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("form", ["json", "console"])
async def test_each_line_of_the_log_is_a_record(tmp_path: Path, receiver: Receiver, workers: int, form: str) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_LOGS_EXPORTER": "otlp", "OTEL_BLRP_SCHEDULE_DELAY": "20"}
    env |= {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
    port, admin = free_port(), free_port()
    listen = f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\nworkers: {workers}\nlog: {{format: {form}}}\n"
    async with Upstream(answer(503), answer(200), answer(404)) as upstream:
        text = CONFIG.replace("URL", upstream.url)
        running = Redrive(tmp_path, text, listen=listen, **env)
        if form == "json":
            async with running:
                await played(port, receiver)
                line = await running.call(1)
        else:
            (tmp_path / "redrive.yaml").write_text(listen + text)
            running.process = await running._begin("run", "-c", str(running.file))
            try:
                await receiver.until(lambda: any(each["event_name"] == "redrive.ready" for each in receiver.logs))
                await played(port, receiver)
            finally:
                running.process.kill()
                await running.process.wait()
            line = None
    calls = [each for each in receiver.logs if each["event_name"] == "redrive.call"]
    first, second = calls
    body = plain(first["body"]["kvlist_value"]["values"])
    assert (body["path"], body["status"], body["attempts"]) == ("/a/x?key=***", 200, 2)
    assert [each["status"] for each in body["history"]] == [503, 200]
    assert line is None or json.loads(json.dumps(body)) == line
    assert plain(first["attributes"]) == {
        "redrive.upstream": "a",
        "redrive.route": "",
        "redrive.outcome": "success",
        "http.request.method": "GET",
        "http.response.status_code": 200,
    }
    assert first["severity_text"] == "INFO"
    assert (second["severity_text"], plain(second["attributes"])["http.response.status_code"]) == ("WARN", 404)
    assert any(each["event_name"] == "redrive.ready" for each in receiver.logs)


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def spans_of(receiver: Receiver) -> list[dict[str, Any]]:
    return [
        span
        for request in receiver.requests["traces"]
        for resource in request["resource_spans"]
        for scope in resource["scope_spans"]
        for span in scope["spans"]
    ]


def placed(each: dict[str, Any]) -> tuple[str, str]:
    """The trace and the span of a record or a span, in hexadecimal digits."""
    return tuple(base64.b64decode(each.get(name, "")).hex() for name in ("trace_id", "span_id"))  # type: ignore[return-value]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_calls_record_names_its_trace_and_the_span_that_answered(
    tmp_path: Path, receiver: Receiver, workers: int
) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_LOGS_EXPORTER": "otlp", "OTEL_BLRP_SCHEDULE_DELAY": "20"}
    env |= {"OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_METRICS_EXPORTER": "none"}
    async with (
        Upstream(answer(503), answer(200), answer(200), answer(200)) as upstream,
        Redrive(tmp_path, f"workers: {workers}\n{CONFIG.replace('URL', upstream.url)}", **env) as running,
    ):
        sent = {"retried": PARENT, "unsampled": f"{PARENT[:-2]}00"}
        for path, parent in sent.items():
            assert await get(f"{running.url}/a/{path}", {"traceparent": parent}) == 200
        assert await get(f"{running.url}/a/own") == 200
        assert await get(f"{running.url}/nowhere", {"traceparent": PARENT}) == 404
        lines = {line["path"]: line for line in [await running.call(number) for number in (1, 2, 3, 4)]}

        def all_came() -> bool:
            return len(spans_of(receiver)) == 3 and len(calls()) == 4

        def calls() -> list[dict[str, Any]]:
            return [each for each in receiver.logs if each["event_name"] == "redrive.call"]

        await receiver.until(all_came)
    records = {plain(each["body"]["kvlist_value"]["values"])["path"]: each for each in calls()}
    retried, unsampled, own = (records[f"/a/{name}"] for name in ("retried", "unsampled", "own"))
    failed, answered, alone = sorted(spans_of(receiver), key=lambda span: int(span["start_time_unix_nano"]))
    trace = PARENT.split("-")[1]
    assert placed(failed)[0] == trace
    assert placed(retried) == placed(answered)  # the attempt whose answer the app got
    assert retried["flags"] == 1
    assert placed(unsampled)[0] == trace
    assert unsampled.get("flags", 0) == 0
    assert placed(unsampled)[1] == upstream.requests[2].one("traceparent").split("-")[2]
    assert placed(own) == placed(alone)  # a trace that began here
    refused, line = records.pop("/nowhere"), lines.pop("/nowhere")  # it became no call
    assert placed(refused) == ("", "")
    assert "trace_id" not in line
    for path, record in records.items():
        assert (lines[path]["trace_id"], lines[path]["span_id"]) == placed(record)
        assert int(lines[path]["trace_flags"], 16) == record.get("flags", 0)


async def played(port: int, receiver: Receiver) -> None:
    """Two calls, the second of which does not succeed, and their records."""
    assert await get(f"http://127.0.0.1:{port}/a/x?key=s3cret") == 200
    await receiver.until(lambda: sum(each["event_name"] == "redrive.call" for each in receiver.logs) == 1)
    assert await get(f"http://127.0.0.1:{port}/a/y") == 404
    await receiver.until(lambda: sum(each["event_name"] == "redrive.call" for each in receiver.logs) == 2)


async def test_a_collector_that_is_gone_is_reported_and_holds_nothing_up(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}", "OTEL_METRIC_EXPORT_INTERVAL": "20"}
    env |= {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url), **env) as running,
    ):
        assert await running.line(lambda line: line["event"] == "telemetry") is not None
        assert await get(f"{running.url}/a/x") == 200
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0


async def test_without_the_extra_it_is_reported(tmp_path: Path) -> None:
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("raise ImportError('not here')")
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "PYTHONPATH": str(tmp_path)}
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url), OTEL_TRACES_EXPORTER="none", **env) as running,
    ):
        line = await running.line(lambda line: line["event"] == "telemetry")
        assert line is not None
        assert "otel" in line["detail"]
