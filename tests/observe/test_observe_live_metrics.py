"""Metrics of a running redrive: names and labels as the contract has them, series that nobody outside can multiply,
and alert rules and dashboard expressions evaluated over what was really scraped.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.front import request
from support.process import Redrive, run
from support.scripted import Turn, Upstream, answer

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/dashboards/redrive.json"
PROMTOOL = shutil.which("promtool")

#: Contract, section 10.
NAMES = {
    "redrive_calls_total": {"upstream", "route", "outcome", "code_class"},
    "redrive_attempts_total": {"upstream", "route", "result"},
    "redrive_retries_total": {"upstream", "route", "reason"},
    "redrive_retries_failed_total": {"upstream", "route"},
    "redrive_hedges_total": {"upstream", "route"},
    "redrive_transparent_retries_total": {"upstream", "route"},
    "redrive_retry_attempts_total": {"upstream", "route", "ge"},
    "redrive_retries_denied_total": {"upstream", "why"},
    "redrive_app_retries_total": {"upstream", "route", "sure"},
    "redrive_bucket_level": {"bucket"},
    "redrive_bucket_capacity": {"bucket"},
    "redrive_bucket_paid_by": {"bucket", "upstream"},
    "redrive_cooldown_seconds": {"upstream"},
    "redrive_circuit_open": {"upstream", "endpoint"},
    "redrive_credential_usable": {"upstream", "key"},
    "redrive_held_calls": {"upstream", "by"},
    "redrive_concurrency_limit": {"upstream", "endpoint"},
    "redrive_outage": {"upstream", "endpoint"},
    "redrive_call_duration_seconds_bucket": {"upstream", "route", "le"},
    "redrive_call_duration_seconds_sum": {"upstream", "route"},
    "redrive_call_duration_seconds_count": {"upstream", "route"},
    "redrive_attempt_duration_seconds_bucket": {"upstream", "route", "le"},
    "redrive_backoff_seconds_total": {"upstream", "route"},
    "redrive_buffered_bytes": set(),
    "redrive_waiting_calls": set(),
    "redrive_config_reloads_total": {"result"},
    "redrive_connections": {"side", "protocol"},
    "redrive_streams": {"side"},
}

CONFIG = """
buffers: {per_request: 1MiB, total: 1MiB}
limits: {waiting: 2}
defaults: {strategy: {kind: standard, backoff: {base: 1ms, max: 2ms}}}
upstreams:
  down: {url: URL/down, bucket: {kind: quota, capacity: 10}}
  cooling: {url: URL/cooling}
  fine:
    url: URL/fine
    concurrency: {max: 100}
    credentials: {header: x-api-key, values: [a, b]}
    circuit_breaker: {}
    strategy: {kind: hedging, hedging_delay: 10s}
  ill: {url: URL/ill, circuit_breaker: {minimum_attempts: 5, open: 1h}, fallback: [fine]}
  shut: {url: URL/shut, strategy: none, circuit_breaker: {minimum_attempts: 2, open: 1h}}
  keys: {url: URL/keys, credentials: {header: x-api-key, values: [a, b]}}
  rejecting: {url: URL/cooling, strategy: none, pushback: {cooldown: reject}}
  rpc: {url: URL/rpc, services: ["*"]}
  files: {url: URL/files, resume: {max: 1}, answers: off}
  big: {url: URL/big, strategy: {kind: standard, backoff: {base: 60s, max: 60s, jitter: none}}}
"""

Samples = dict[str, float]
#: Alerts about what does not happen here; deploy/prometheus/alerts_test.yml has them.
PLAYED_ALONE = {
    *("RedriveAbsent", "RedriveConcurrencyFull", "RedriveLogLinesLost", "RedriveOutage", "RedriveRedisOut"),
    *("RedriveWorkersDying", "RedriveLimitUsedUp", "RedriveAppOutOfRetries", "RedriveKeyFileUnreadable"),
    "RedriveRateUsedUp",
}


async def step(turn: Turn) -> None:
    await turn.read_body()
    path = turn.request.target
    if path.startswith("/fine"):
        await turn.write(answer(200))
    elif path.startswith("/keys"):
        await turn.write(answer(401))
    elif path.startswith("/files") and turn.request.one("range") is None:  # an answer that breaks, and goes on
        await turn.write(b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 4\r\n\r\nab')
        turn.reset()
    elif path.startswith("/files"):
        await turn.write(answer(206, b"cd", 'ETag: "1"', "Content-Range: bytes 2-3/4"))
    elif path.startswith("/cooling"):
        await turn.write(answer(429, b"", "Retry-After: 50"))
    else:
        await turn.write(answer(503))


async def scrape(running: Redrive) -> Samples:
    """Every sample by its series, as Prometheus would write it."""
    async with aiohttp.ClientSession() as session, session.get(f"{running.admin}/metrics") as reply:
        text = await reply.text()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(sample.labels.items()))
            if not sample.name.endswith("_created"):
                found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


async def call(running: Redrive, path: str, times: int = 1, data: bytes | None = None) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(times):
            method = "GET" if data is None else "PUT"
            async with session.request(method, running.url + path, data=data) as reply:
                await reply.read()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def troubled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Samples, Samples]]:
    """What is scraped before and after all that alerts are about has happened."""
    folder = tmp_path_factory.mktemp("troubled")
    async with Upstream(step) as upstream, Redrive(folder, CONFIG.replace("URL", upstream.url)) as running:
        for name in ("down", "fine"):
            await call(running, f"/{name}/x", 3)
        before = await scrape(running)
        await call(running, "/down/x", 60)
        await call(running, "/fine/x", 60)
        for name in ("ill", "shut", "keys", "rejecting", "files"):
            await call(running, f"/{name}/x", 8)
        async with aiohttp.ClientSession() as session:
            grpc = {"Content-Type": "application/grpc", "TE": "trailers"}
            async with session.post(f"{running.url}/rpc/a.B/C", headers=grpc) as reply:
                await reply.read()
        # One call in its backoff keeps a body that fills the buffers; those behind it find no room to wait.
        tasks = [asyncio.create_task(call(running, "/big/x", data=b"x" * 900_000))]
        tasks.append(asyncio.create_task(call(running, "/cooling/x")))
        await upstream.until(len(upstream.requests) + 2)
        while (await scrape(running))["redrive_waiting_calls{}"] < 2:
            pass  # the proxy has its answers, and is about to wait
        await call(running, "/big/y", 5)
        running.file.write_text("listen: nowhere\n")
        async with aiohttp.ClientSession() as session, session.post(f"{running.admin}/reload") as reply:
            assert reply.status == 422
        after = await scrape(running)
        yield before, after
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def labels_of(samples: Samples) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for series in samples:
        name, _, labels = series.partition("{")
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


async def test_names_and_labels_are_the_contracts(troubled: tuple[Samples, Samples]) -> None:
    found = labels_of(troubled[1])
    assert {name: found.get(name) for name in NAMES if name in found or NAMES[name]} | {
        name: found[name] for name in NAMES if not NAMES[name]
    } == NAMES | {name: labels for name, labels in NAMES.items() if name in found}
    after = troubled[1]
    assert after['redrive_calls_total{code_class="5xx",outcome="bucket_empty",route="",upstream="down"}'] > 50
    assert after['redrive_retries_denied_total{upstream="down",why="bucket_empty"}'] > 50
    assert after['redrive_config_reloads_total{result="failure"}'] == 1
    begun = {name: after[f'redrive_cooldowns_total{{upstream="{name}"}}'] for name in ("cooling", "rejecting", "down")}
    assert begun == {"cooling": 1, "rejecting": 1, "down": 0}
    assert after['redrive_held_calls{by="cooling",upstream="cooling"}'] == 0  # a call's own wait is no hold
    ge = {value for series in after for value in re.findall(r'redrive_retry_attempts_total\{ge="(\d+)"', series)}
    assert ge == {"1", "2", "3", "4", "5", "10", "100", "1000"}


async def test_nothing_that_apps_send_makes_a_series(tmp_path: Path) -> None:
    async with Upstream(step) as upstream, Redrive(tmp_path, CONFIG.replace("URL", upstream.url)) as running:
        host, port = running.authority.split(":")

        async def everything(seed: int) -> None:
            for raw in (
                request(f"M{seed}", f"/fine/{seed}", f"X-Tier: {seed}", host=running.authority),
                request("GET", f"http://127.0.0.1:{upstream.port}/fine/{seed}"),
                request("GET", f"http://localhost:{upstream.port}/fine/{seed}"),
                request("GET", f"http://127.0.0.{seed + 2}:{upstream.port}/{seed}"),
                request("GET", f"/nowhere-{seed}", host=f"host-{seed}.example"),
                f"NONSENSE {seed}\r\n\r\n".encode(),
            ):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(raw.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
                async with asyncio.timeout(20):
                    await reader.read(-1)
                writer.close()

        await everything(0)
        before = await scrape(running)
        for seed in range(1, 6):
            await everything(seed)
        after = await scrape(running)
    # Classes of codes and outcomes may be new, upstreams and buckets may not.
    assert {m for s in after for m in re.findall(r'(?:upstream|route)="[^"]*"', s)} == {
        m for s in before for m in re.findall(r'(?:upstream|route)="[^"]*"', s)
    }
    assert len(after) <= len(before) + 8
    assert not any("host-" in series or "M3" in series or "nowhere" in series for series in after)


def expressions() -> list[str]:
    board = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    filled = [each.replace("$upstream", ".*").replace("$__rate_interval", "5m") for each in found]
    assert not any("$" in each for each in filled)
    return filled


async def test_alerts_and_dashboard_work_on_what_is_scraped(troubled: tuple[Samples, Samples], tmp_path: Path) -> None:
    """Time before is calm, then what happened goes on happening at that rate."""
    if PROMTOOL is None:
        pytest.skip("promtool is not installed")
    before, after = troubled
    series = []
    for name, value in {**after, 'up{job="redrive",instance="a:1"}': 1.0}.items():
        first = before.get(name, 0.0)
        rises = "_total{" in name or re.match(r"\w+_(bucket|sum|count)\{", name)
        values = f"{first}x40 {first}+{value - first}x80" if rises else f"{before.get(name, value)}x40 {value}x80"
        if name.startswith("redrive_concurrency_limit"):  # promtool does not repeat infinity
            values = " ".join([*["Inf"] * 41, *["Inf" if value == float("inf") else str(value)] * 81])
        series.append({"series": name, "values": values})
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    names = sorted({rule["alert"] for rule in rules} - PLAYED_ALONE)
    fired = {
        "expr": "count by (alertname) (group by (alertname) (ALERTS{alertstate='firing'}))",
        "eval_time": "22m",
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names],
    }
    # Two upstreams may be down at once: what counts is that each alert fires.
    fired["expr"] = "count by (alertname) (group by (alertname) (ALERTS{alertstate='firing'}))"
    shown = [
        {"expr": f"count({each}) > bool 0", "eval_time": "22m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for each in expressions()
    ]
    calm = {"expr": 'ALERTS{alertname!="RedriveQuotaDrained"}', "eval_time": "9m", "exp_samples": []}
    played = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "15s",
        "tests": [{"interval": "15s", "input_series": series, "promql_expr_test": [fired, calm, *shown]}],
    }
    file = tmp_path / "played.yaml"
    file.write_text(yaml.safe_dump(played))
    status, out, err = await run(PROMTOOL, "test", "rules", str(file))
    assert status == 0, out + err


async def test_alerts_and_dashboard_name_what_is_scraped(troubled: tuple[Samples, Samples]) -> None:
    """The same without promtool, by names and labels."""
    known = {**labels_of(troubled[1]), "up": {"job"}}
    rules: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    here = [rule["expr"] for rule in rules if rule["alert"] not in PLAYED_ALONE]
    for expression in [*here, *expressions()]:
        found = re.findall(r"\b(redrive_\w+|up)\b(?:\{([^}]*)\})?", expression)
        assert found, expression
        for name, matchers in found:
            assert set(re.findall(r'(\w+)\s*=~?\s*"', matchers)) <= known[name], expression
