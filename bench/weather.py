"""Bad weather on the wire: what calls get of an upstream in trouble, without a proxy, through redrive, and through Envoy.

    .venv/bin/python bench/weather.py [--only restart,half,throttled] [--json FILE]

The upstream has a capacity, a queue and an end (tests/support/capacity.py); its phases are those of SCENES. Each
contender has an upstream of its own, and all of them play a scene in the same seconds, each with the same calls at the
same moments, which chance has drawn. An app gives a call up after 20 s; every tenth app does after 0.5 s, and says so.
Envoy has its adaptive concurrency filter, outlier detection and retries, and takes part where its binary is found
(bench/.venv/bin or PATH); else that is said.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from measure import VENV, Running, free_port

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.capacity import CapacityServer  # noqa: E402

#: Seconds after which an app gives its call up; and after which every tenth app does.
PATIENCE, SHORT = 20.0, 0.5
#: What chance draws is the same in every run.
SEED = 31
#: Seconds after which an attempt counts as timed out, for each contender; an app without a proxy makes one attempt.
ATTEMPT = 1.0


@dataclass(frozen=True)
class Scene:
    """`rate`: calls a second, for `seconds`, at random moments; every fifth is a POST with a key, the others are GETs.
    `places` and `work`: each upstream's capacity, and the seconds that a request takes. `happens`: the second and what
    is done then.
    """

    name: str
    title: str
    rate: float
    seconds: float
    places: int
    work: float
    happens: tuple[tuple[float, Callable[[list[CapacityServer]], Awaitable[None]]], ...]
    endpoints: int = 1


async def stop(servers: list[CapacityServer]) -> None:
    await servers[0].stop()


async def start(servers: list[CapacityServer]) -> None:
    await servers[0].start()


async def halve(servers: list[CapacityServer]) -> None:
    servers[0].places //= 2


async def double(servers: list[CapacityServer]) -> None:
    servers[0].places *= 2


async def throttle(servers: list[CapacityServer]) -> None:
    servers[0].throttled = 4


async def unthrottle(servers: list[CapacityServer]) -> None:
    servers[0].throttled = None


def refuse(status: int) -> Callable[[list[CapacityServer]], Awaitable[None]]:
    """What lets an upstream refuse, with this status, each request that comes sooner than 50 ms after the one before."""

    async def happens(servers: list[CapacityServer]) -> None:
        servers[0].gap, servers[0].refusal = 0.05, status

    return happens


SCENES = [
    Scene("restart", "a restart of 8 s, 30 calls/s", 30, 28, 4, 0.05, ((5, stop), (13, start))),
    Scene("half", "half the capacity for 20 s, 30 calls/s of 40/s", 30, 55, 4, 0.1, ((5, halve), (25, double))),
    Scene("too_much", "a third too much: 40 calls/s of 30/s", 40, 60, 3, 0.1, ()),
    Scene(
        "throttled", "one endpoint of two answers 429, Retry-After 4, for 20 s, 30 calls/s", 30, 35, 4, 0.05,
        ((5, throttle), (25, unthrottle)), 2,
    ),
    Scene("no_queue_503", "a limit without a queue: 503, Retry-After 1, 15 calls/s of 20/s", 15, 60, 4, 0.04, ((0, refuse(503)),)),
    Scene("no_queue_429", "a limit without a queue: 429, Retry-After 1, 15 calls/s of 20/s", 15, 60, 4, 0.04, ((0, refuse(429)),)),
]  # fmt: skip


@dataclass
class Result:
    """What the calls of one contender got: of `calls` calls, the patient ones took these `times` (seconds) if they were
    served, and `lost` were not; of the `short` calls, whose apps give up after half a second, `short_served` were served,
    and the others waited for the times of `vain` before they were refused. `load`: requests that the upstream got for
    each call, and `peak`: the most that it got in a second, as a multiple of the rate of calls.
    """

    calls: int = 0
    lost: int = 0
    short: int = 0
    short_served: int = 0
    load: float = 0.0
    peak: float = 0.0
    times: list[float] = field(default_factory=list)
    vain: list[float] = field(default_factory=list)

    def of_all(self, part: float) -> str:
        """The time within which this part of all patient calls were served: a call that was not is never answered."""
        number = int((len(self.times) + self.lost) * part)
        return f"{sorted(self.times)[number]:.2f} s" if number < len(self.times) else "never"

    def row(self) -> list[str]:
        times = sorted(self.times) or [0.0]
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        share = f"{100 * len(self.times) / max(1, len(self.times) + self.lost):.1f} %"
        short = f"{100 * self.short_served / max(1, self.short):.0f} %"
        vain = f", {statistics.median(self.vain):.2f} s" if self.vain else ""
        return [
            share,
            f"{statistics.median(times):.3f} s",
            f"{p99:.2f} s",
            self.of_all(0.5),
            self.of_all(0.99),
            f"{self.load:.2f}",
            f"{self.peak:.1f}",
            short + vain,
        ]


def redrive(port: int, urls: list[str], folder: Path) -> list[str]:
    file = folder / f"redrive-{port}.yaml"
    file.write_text(
        f"listen: 127.0.0.1:{port}\nadmin: off\nupstreams:\n  up:\n    url: [{', '.join(urls)}]\n"
        f"    hosts: [up.test]\n    timeouts: {{attempt: {ATTEMPT:g}s}}\n"
    )
    return [sys.executable, "-m", "proxy", "run", "-c", str(file)]


def envoy(port: int, urls: list[str], folder: Path) -> list[str]:
    binary = envoy_binary()
    assert binary is not None  # the contender takes part only then
    endpoints = "".join(
        f"\n        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {url.rpartition(':')[2]}}}}}}}"
        for url in urls
    )
    file = folder / f"envoy-{port}.yaml"
    file.write_text(
        f"""static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: weather
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: "/"}}
                route:
                  cluster: up
                  timeout: {PATIENCE:g}s
                  retry_policy:
                    retry_on: "5xx,reset,connect-failure,retriable-status-codes"
                    retriable_status_codes: [429]
                    num_retries: 2
                    per_try_timeout: {ATTEMPT:g}s
                    retry_host_predicate: [{{name: envoy.retry_host_predicates.previous_hosts, typed_config: {{
                      "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate}}}}]
                    host_selection_retry_max_attempts: 3
                    rate_limited_retry_back_off: {{reset_headers: [{{name: Retry-After, format: SECONDS}}]}}
          http_filters:
          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
              gradient_controller_config:
                sample_aggregate_percentile: {{value: 50}}
                concurrency_limit_params: {{concurrency_update_interval: 0.1s}}
                min_rtt_calc_params: {{interval: 30s, request_count: 50, jitter: {{value: 10}}}}
              enabled: {{default_value: true, runtime_key: adaptive_concurrency.enabled}}
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: up
    type: STATIC
    connect_timeout: 5s
    outlier_detection: {{consecutive_5xx: 5, consecutive_gateway_failure: 5, interval: 1s, base_ejection_time: 5s,
      max_ejection_percent: 50}}
    load_assignment:
      cluster_name: up
      endpoints:
      - lb_endpoints:{endpoints}
"""
    )
    return [binary, "-c", str(file), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]


def envoy_binary() -> str | None:
    """Envoy's binary, where the benchmark installed it or on the path; None if there is none."""
    own = VENV / "bin" / "envoy"
    return str(own) if own.exists() else shutil.which("envoy")


CONTENDERS: dict[str, Callable[[int, list[str], Path], list[str]] | None] = {
    "no proxy": None,
    "redrive": redrive,
    "Envoy": envoy,
}


async def call(number: int, port: int, patience: float, result: Result) -> None:
    """Make one call on a connection of its own, and note what becomes of it."""
    is_short = number % 10 == 7
    method = "POST" if number % 5 == 0 else "GET"
    lines = [f"{method} /items HTTP/1.1", "Host: up.test", "Connection: close"]
    if method == "POST":
        lines += [f"Idempotency-Key: {number}", "Content-Length: 2"]
    if is_short:
        lines += [f"X-Retry-Timeout: {SHORT:g}", f"x-envoy-upstream-rq-timeout-ms: {SHORT * 1000:.0f}"]
        patience = min(patience, SHORT + 0.1)
    begun = time.perf_counter()
    result.calls += 1
    is_served = await is_answered(port, "\r\n".join(lines) + "\r\n\r\n" + "{}" * (method == "POST"), patience)
    took = time.perf_counter() - begun
    if is_short:
        result.short += 1
        result.short_served += is_served
        if not is_served:
            result.vain.append(took)
    elif is_served:
        result.times.append(took)
    else:
        result.lost += 1


async def is_answered(port: int, request: str, patience: float) -> bool:
    """Whether the request is answered with 200 within `patience` seconds."""
    writer = None
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request.encode())
            line = await reader.readline()
            if not line.startswith(b"HTTP/1.1 200"):
                return False
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            return True
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()


async def compete(name: str, scene: Scene, folder: Path, ready: asyncio.Barrier) -> Result:
    """Play a scene for one contender."""
    make, result = CONTENDERS[name], Result()
    async with AsyncExitStack() as kept:
        servers = [
            await kept.enter_async_context(CapacityServer(scene.places, scene.work)) for _ in range(scene.endpoints)
        ]
        ports, patience = [server.port for server in servers], ATTEMPT
        if make is not None:
            port, patience = free_port(), PATIENCE
            command = make(port, [server.url for server in servers], folder)
            running = await asyncio.to_thread(Running, command, port, b"", "0-1", folder / f"{name}.log")
            kept.callback(running.stop)
            ports = [port]
        await ready.wait()
        weather = asyncio.create_task(play(scene, servers))
        counting = asyncio.create_task(count(scene, servers, result))
        begun, at, calls = time.perf_counter(), 0.0, []
        chance = random.Random(SEED)
        for number in range(int(scene.rate * scene.seconds)):
            at += chance.expovariate(scene.rate)
            await asyncio.sleep(max(0.0, begun + at - time.perf_counter()))
            calls.append(asyncio.create_task(call(number, ports[number % len(ports)], patience, result)))
        await asyncio.gather(*calls)
        await weather
        counting.cancel()
        result.load = sum(server.requests for server in servers) / result.calls
    return result


async def play(scene: Scene, servers: list[CapacityServer]) -> None:
    """Do to the upstream what happens in this scene."""
    begun = time.perf_counter()
    for at, happens in scene.happens:
        await asyncio.sleep(max(0.0, begun + at - time.perf_counter()))
        await happens(servers)


async def count(scene: Scene, servers: list[CapacityServer], result: Result) -> None:
    """Note the most requests that the upstream gets in a second."""
    before = 0
    while True:
        await asyncio.sleep(1.0)
        now = sum(server.requests for server in servers)
        result.peak, before = max(result.peak, (now - before) / scene.rate), now


async def compare(scene: Scene, names: list[str]) -> dict[str, Result]:
    """Play a scene for all contenders in the same seconds."""
    ready = asyncio.Barrier(len(names))  # all processes have started
    with tempfile.TemporaryDirectory() as folder:
        playing = [asyncio.create_task(compete(name, scene, Path(folder), ready)) for name in names]
        return dict(zip(names, await asyncio.gather(*playing), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="scenes, with commas: " + ", ".join(each.name for each in SCENES))
    parser.add_argument("--json", type=Path, help="a file for the figures")
    arguments = parser.parse_args()
    wanted = set(filter(None, arguments.only.split(",")))
    names = list(CONTENDERS)
    if envoy_binary() is None:
        names.remove("Envoy")
        print("Envoy is left out: it is neither in bench/.venv nor on the path (sh bench/install)\n", file=sys.stderr)
    found = {}
    print(
        "| weather | contender | served | median | p99 | median of all | p99 of all | requests a call | peak "
        "| of 0.5 s: served, others refused after |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for scene in SCENES:
        if wanted and scene.name not in wanted:
            continue
        results = asyncio.run(compare(scene, names))
        for name, result in results.items():
            print("| " + " | ".join([scene.title, name, *result.row()]) + " |", flush=True)
        found[scene.name] = {name: asdict(result) for name, result in results.items()}
    print(f"load of the machine over the last five minutes: {os.getloadavg()[1]:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
