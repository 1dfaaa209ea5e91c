"""`python bench/growth.py`: what more of everything costs redrive: upstreams, connections, parked calls, a reload, workers.

CPU microseconds for each call (user + system, from /proc) under the same load; medians over the rounds. Prints a table
and writes bench/results/growth.md.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from load import Workload, run_wrk
from measure import Running, cpu_seconds, free_port, memory
from peers import PEERS, Place
from run import LOAD_CORE, PROXY_CORE, upstream
from targets import growth_verdict

#: Seconds after a reload in which the old configuration is let go.
AFTERWARDS = 1.0
VARIED = Workload("small GET, another query each", varied=True)
ROUTES = "".join(f"      - {{match: {{path: /route{n}/*}}, timeouts: {{total: {n + 1}s}}}}\n" for n in range(10))


def configuration(
    place: Place, upstreams: int, *, workers: int = 1, more: str = "", routes: bool = True, admin: str = "off"
) -> str:
    """So many upstreams with ten routes each; the load goes to the last one in the file."""
    names = [f"u{n}" for n in range(upstreams - 1)] + ["plain"]
    with_routes = f"    routes:\n{ROUTES}" if routes else ""
    blocks = "".join(
        f"  {name}:\n    url: http://127.0.0.1:{place.upstream}\n    hosts: [{name}.example]\n{with_routes}"
        for name in names
    )
    return f"listen: 127.0.0.1:{place.port}\nadmin: {admin}\nworkers: {workers}\nupstreams:\n{blocks}{more}"


@contextlib.contextmanager
def serving(
    place: Place, text: str, cores: str = str(PROXY_CORE), variables: Sequence[str] = ()
) -> Iterator[tuple[Running, Path]]:
    """A redrive with this configuration, and `variables` (NAME=value) in its environment."""
    place.port = free_port()
    file = place.folder / "growth.yaml"
    file.write_text(text.replace("127.0.0.1:0\n", f"127.0.0.1:{place.port}\n", 1))
    probe = b"GET /plain/small HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    command = ["env", *variables, sys.executable, "-m", "proxy", "run", "-c", str(file)]
    running = Running(command, place.port, probe, cores, place.written / "growth.log")
    try:
        yield running, file
    finally:
        running.stop()


def cost(place: Place, running: Running, seconds: int, work: Workload = VARIED) -> float:
    """CPU microseconds of a call."""
    run_wrk(place.written, work, place.port, "/plain/small", 1, LOAD_CORE)
    before = cpu_seconds(running.pid)
    load = run_wrk(place.written, work, place.port, "/plain/small", seconds, LOAD_CORE)
    return (cpu_seconds(running.pid) - before) / load.requests * 1e6


def with_upstreams(place: Place, count: int, seconds: int, *, routes: bool = True) -> float:
    """The cost with so many upstreams."""
    place.port = 0
    with serving(place, configuration(place, count, routes=routes)) as (running, _):
        return cost(place, running, seconds)


def with_hosts(place: Place, count: int, seconds: int) -> float:
    """The cost beside an upstream of so many hosts."""
    place.port = 0
    hosts = ", ".join(f"h{n}.example" for n in range(count))
    more = f"  many: {{url: http://127.0.0.1:{place.upstream}, hosts: [{hosts}]}}\n"
    with serving(place, configuration(place, 1, more=more)) as (running, _):
        return cost(place, running, seconds)


def with_fields(place: Place, count: int, seconds: int) -> float:
    """The cost of a request with so many fields."""
    place.port = 0
    with serving(place, configuration(place, 1)) as (running, _):
        return cost(place, running, seconds, replace(VARIED, fields=count))


def with_scrapes(place: Place, seconds: int) -> float:
    """The cost while /metrics is read ten times a second."""
    place.port, admin, stop = 0, free_port(), threading.Event()

    def scrape() -> None:
        while not stop.wait(0.1):
            asked = http.client.HTTPConnection("127.0.0.1", admin, timeout=10)
            asked.request("GET", "/metrics")
            assert asked.getresponse().read()
            asked.close()

    with serving(place, configuration(place, 1, admin=f"127.0.0.1:{admin}")) as (running, _):
        scraping = threading.Thread(target=scrape)
        scraping.start()
        try:
            return cost(place, running, seconds)
        finally:
            stop.set()
            scraping.join()


def with_log(place: Place, seconds: int, log: str) -> float:
    """The cost with this `log:`, to a file."""
    place.port = 0
    with serving(place, f"{configuration(place, 1)}log: {log}\n") as (running, _):
        return cost(place, running, seconds, replace(VARIED, varied=False))


def with_telemetry(place: Place, seconds: int, *signals: str) -> float:
    """The cost with these signals of OpenTelemetry on; the collector is the upstream, which takes all and keeps
    nothing. Metrics are sent once a second.
    """
    place.port, to = 0, f"http://127.0.0.1:{place.upstream}/sink"
    variables = [f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT={to}" for signal in signals]
    with serving(place, configuration(place, 1), variables=[*variables, "OTEL_METRIC_EXPORT_INTERVAL=1000"]) as (
        running,
        _,
    ):
        return cost(place, running, seconds, replace(VARIED, varied=False))


def with_idle(place: Place, count: int, seconds: int) -> float:
    """The cost beside so many connections that say nothing."""
    place.port = 0
    text = configuration(place, 1) + "limits: {connections: 20000}\n"
    with serving(place, text) as (running, _):
        idle = [socket.create_connection(("127.0.0.1", place.port)) for _ in range(count)]
        try:
            return cost(place, running, seconds)
        finally:
            for connection in idle:
                connection.close()


def with_parked(place: Place, count: int, seconds: int) -> float:
    """The cost beside so many calls that wait for a rate."""
    place.port = 0
    slow = f"  slow:\n    url: http://127.0.0.1:{place.upstream}\n    hosts: [slow.example]\n    rate: {{rate: 1/m, burst: 1}}\n"
    text = configuration(place, 1, more=slow) + "limits: {waiting: 2000}\n"
    with serving(place, text) as (running, _):
        parked = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", place.port))
            connection.sendall(b"GET /slow/small HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            parked.append(connection)
        try:
            return cost(place, running, seconds)
        finally:
            for connection in parked:
                connection.close()


def steady(port: int, connections: int, stop: threading.Event, calls: list[tuple[float, float]]) -> None:
    """Ask again and again, over one connection after the other; when each call began, and how long it took, seconds."""
    opened = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    while not stop.is_set():
        for connection in opened:
            begun = time.perf_counter()
            connection.sendall(b"GET /plain/small HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while not connection.recv(4096).endswith(b"\n"):
                pass
            calls.append((begun, time.perf_counter() - begun))
    for connection in opened:
        connection.close()


def reloads(place: Place, workers: int, routes: bool, times: int = 4) -> dict[str, float]:
    """What loading 1,000 upstreams again costs a client, beside a time of rest after each as long as the reload."""
    place.port, admin = 0, free_port()
    text = configuration(place, 1000, workers=workers, routes=routes, admin=f"127.0.0.1:{admin}")
    cores = str(PROXY_CORE) if workers == 1 else f"{PROXY_CORE},{LOAD_CORE}"
    calls: list[tuple[float, float]] = []
    windows: list[tuple[float, float, float]] = []
    answered: list[float] = []
    with serving(place, text, cores) as (running, _):
        stop = threading.Event()
        asking = threading.Thread(target=steady, args=(place.port, 16 if workers > 1 else 1, stop, calls))
        asking.start()
        time.sleep(AFTERWARDS)
        before = memory(running.pid)
        for _ in range(times):
            begun = time.perf_counter()
            asked = http.client.HTTPConnection("127.0.0.1", admin, timeout=60)
            asked.request("POST", "/reload")
            assert asked.getresponse().status == 200
            answered.append(time.perf_counter() - begun)
            asked.close()
            time.sleep(AFTERWARDS)
            rests = time.perf_counter()
            time.sleep(rests - begun)
            windows.append((begun, rests, time.perf_counter()))
        stop.set()
        asking.join()
        after = memory(running.pid)

    def slowest(start: int) -> float:
        return max(took for at, took in calls for window in windows if window[start] <= at < window[start + 1]) * 1000

    return {
        "slowest call at rest, ms": slowest(1),
        "slowest call over reloads, ms": slowest(0),
        "a reload, s": statistics.median(answered),
        "start to the first answer, s": running.started,
        "memory after the start, MB": before / 1e6,
        f"memory after {times} reloads, MB": after / 1e6,
    }


def two_workers(place: Place, seconds: int) -> float:
    """The cost with two workers that share the bucket; they and the load have both cores."""
    place.port = 0
    with serving(place, configuration(place, 1, workers=2), f"{PROXY_CORE},{LOAD_CORE}") as (running, _):
        return cost(place, running, seconds, replace(VARIED, varied=False))


def two_threads(place: Place, seconds: int) -> float:
    """The same of Envoy's two threads."""
    (envoy,) = [peer for peer in PEERS if peer.name == "envoy"]
    place.port = free_port()
    command = [word if word != "1" else "2" for word in envoy.command(place)]
    probe = b"GET /plain/small HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    running = Running(command, place.port, probe, f"{PROXY_CORE},{LOAD_CORE}", place.written / "growth.log")
    try:
        return cost(place, running, seconds, replace(VARIED, varied=False))
    finally:
        running.stop()


def check_seconds(place: Place) -> float:
    """CPU seconds of `redrive check` of a small file."""
    file = place.folder / "small.yaml"
    file.write_text(f"upstreams:\n  a: {{url: 'http://127.0.0.1:{place.upstream}'}}\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "proxy", "check", "-c", str(file)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=int, default=2)
    options.add_argument("--reloads", action="store_true", help="measure reloads alone, and print them only")
    options.add_argument(
        "--only", default="", help="only rows whose name contains one of these words; they are printed only"
    )
    chosen = options.parse_args()
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    idle = min(10_000, descriptors * 2 // 5)  # half of them are for connections upstream
    folder = Path(tempfile.mkdtemp(prefix="redrive-growth-"))
    behind, place = upstream(folder)
    seconds = chosen.seconds
    rows: dict[str, Callable[[], float]] = (
        {}
        if chosen.reloads
        else {
            "1 upstream, us/call": lambda: with_upstreams(place, 1, seconds),
            "100 upstreams, us/call": lambda: with_upstreams(place, 100, seconds),
            "1,000 upstreams, us/call": lambda: with_upstreams(place, 1000, seconds),
            "10,000 upstreams without routes, us/call": lambda: with_upstreams(place, 10_000, seconds, routes=False),
            "100,000 hosts, us/call": lambda: with_hosts(place, 100_000, seconds),
            "30 fields, us/call": lambda: with_fields(place, 30, seconds),
            "100 fields, us/call": lambda: with_fields(place, 100, seconds),
            "ten scrapes a second, us/call": lambda: with_scrapes(place, seconds),
            "one request repeated, us/call": lambda: with_log(place, seconds, "{format: json}"),
            "the same, log for people, us/call": lambda: with_log(place, seconds, "{format: console}"),
            "the same, log of failures alone, us/call": lambda: with_log(place, seconds, "{level: warning}"),
            "the same, OpenTelemetry's metrics, us/call": lambda: with_telemetry(place, seconds, "metrics"),
            "the same, OpenTelemetry's traces, us/call": lambda: with_telemetry(place, seconds, "traces"),
            "the same, OpenTelemetry's log, us/call": lambda: with_telemetry(place, seconds, "logs"),
            f"{idle:,} idle connections, us/call": lambda: with_idle(place, idle, seconds),
            "1,000 parked calls, us/call": lambda: with_parked(place, 1000, seconds),
            "two workers, one bucket, us/call": lambda: two_workers(place, seconds),
            "Envoy, two threads, us/call": lambda: two_threads(place, seconds),
            "redrive check, CPU seconds": lambda: check_seconds(place),
        }
    )
    if chosen.only:
        rows = {name: row for name, row in rows.items() if any(word in name for word in chosen.only.split(","))}
    figures: dict[str, list[float]] = {}
    try:
        for number in range(chosen.rounds):
            for name, measure in rows.items():
                figures.setdefault(name, []).append(measure())
                print(f"round {number + 1}: {name}: {figures[name][-1]:.2f}", flush=True)
            for workers, routes in () if chosen.only else ((1, False), (1, True), (2, False), (2, True)):
                kind = f"1,000 upstreams{' of ten routes' if routes else ''}, {workers} worker{'s' * (workers > 1)}"
                for what, value in reloads(place, workers, routes).items():
                    figures.setdefault(f"{kind}: {what}", []).append(value)
                    print(f"round {number + 1}: {kind}: {what}: {value:.2f}", flush=True)
    finally:
        behind.stop()
    lines = ["| | median | lowest | highest | reached (asked for at most) |", "| --- | --- | --- | --- | --- |"]
    for name, values in figures.items():
        spread = f"{statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f}"
        lines.append(f"| {name} | {spread} | {growth_verdict(name, figures)} |")
    text = "\n".join(lines) + "\n"
    if not (chosen.reloads or chosen.only):
        (Path(__file__).parent / "results" / "growth.md").write_text(text)
    print("\n" + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
