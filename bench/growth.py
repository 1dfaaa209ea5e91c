"""`python bench/growth.py`: what more of everything costs redrive: upstreams, connections, parked calls, a reload, workers.

CPU microseconds for each call (user + system, from /proc) under the same load; medians over the rounds. Prints a table
and writes bench/results/growth.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from load import Workload, run_wrk
from measure import Running, cpu_seconds, free_port
from peers import PEERS, Place
from run import LOAD_CORE, PROXY_CORE, upstream

VARIED = Workload("small GET, another query each", varied=True)
ROUTES = "".join(f"      - {{match: {{path: /route{n}/*}}, timeouts: {{total: {n + 1}s}}}}\n" for n in range(10))


def configuration(place: Place, upstreams: int, *, workers: int = 1, more: str = "") -> str:
    """So many upstreams with ten routes each; the load goes to the last one in the file."""
    names = [f"u{n}" for n in range(upstreams - 1)] + ["plain"]
    blocks = "".join(
        f"  {name}:\n    url: http://127.0.0.1:{place.upstream}\n    hosts: [{name}.example]\n    routes:\n{ROUTES}"
        for name in names
    )
    return f"listen: 127.0.0.1:{place.port}\nadmin: off\nworkers: {workers}\nupstreams:\n{blocks}{more}"


@contextlib.contextmanager
def serving(place: Place, text: str, cores: str = str(PROXY_CORE)) -> Iterator[tuple[Running, Path]]:
    """A redrive with this configuration."""
    place.port = free_port()
    file = place.folder / "growth.yaml"
    file.write_text(text.replace("127.0.0.1:0\n", f"127.0.0.1:{place.port}\n", 1))
    probe = b"GET /plain/small HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    command = [sys.executable, "-m", "proxy", "run", "-c", str(file)]
    running = Running(command, place.port, probe, cores, place.folder / "growth.log")
    try:
        yield running, file
    finally:
        running.stop()


def cost(place: Place, running: Running, seconds: int, work: Workload = VARIED) -> float:
    """CPU microseconds of a call."""
    run_wrk(place.folder, work, place.port, "/plain/small", 1, LOAD_CORE)
    before = cpu_seconds(running.pid)
    load = run_wrk(place.folder, work, place.port, "/plain/small", seconds, LOAD_CORE)
    return (cpu_seconds(running.pid) - before) / load.requests * 1e6


def with_upstreams(place: Place, count: int, seconds: int) -> float:
    """The cost with so many upstreams."""
    place.port = 0
    with serving(place, configuration(place, count)) as (running, _):
        return cost(place, running, seconds)


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


def longest_call(port: int, stop: threading.Event) -> list[float]:
    """Ask again and again over one connection; how long each call took, seconds."""
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while not stop.is_set():
            begun = time.perf_counter()
            connection.sendall(b"GET /plain/small HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while not connection.recv(4096).endswith(b"\n"):
                pass
            took.append(time.perf_counter() - begun)
    return took


def reload_stalls(place: Place, seconds: int) -> tuple[float, float]:
    """The slowest call of a client, ms: at rest, and while 1,000 upstreams are loaded again five times."""
    place.port = 0
    with serving(place, configuration(place, 1000)) as (running, file):
        worst = []
        for reloads in (0, 5):
            stop, took = threading.Event(), list[float]()
            asking = threading.Thread(target=lambda: took.extend(longest_call(place.port, stop)))  # noqa: B023
            asking.start()
            for _ in range(max(reloads, 1)):
                if reloads:
                    file.write_text(file.read_text() + "# once more\n")
                    os.kill(running.pid, 1)
                time.sleep(seconds)
            stop.set()
            asking.join()
            worst.append(max(took) * 1000)
    return worst[0], worst[1]


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
    running = Running(command, place.port, probe, f"{PROXY_CORE},{LOAD_CORE}", place.folder / "growth.log")
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
    chosen = options.parse_args()
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    idle = min(10_000, descriptors * 2 // 5)  # half of them are for connections upstream
    folder = Path(tempfile.mkdtemp(prefix="redrive-growth-"))
    behind, place = upstream(folder)
    seconds = chosen.seconds
    rows: dict[str, Callable[[], float]] = {
        "1 upstream, us/call": lambda: with_upstreams(place, 1, seconds),
        "100 upstreams, us/call": lambda: with_upstreams(place, 100, seconds),
        "1,000 upstreams, us/call": lambda: with_upstreams(place, 1000, seconds),
        f"{idle:,} idle connections, us/call": lambda: with_idle(place, idle, seconds),
        "1,000 parked calls, us/call": lambda: with_parked(place, 1000, seconds),
        "two workers, one bucket, us/call": lambda: two_workers(place, seconds),
        "Envoy, two threads, us/call": lambda: two_threads(place, seconds),
        "redrive check, CPU seconds": lambda: check_seconds(place),
    }
    figures: dict[str, list[float]] = {}
    try:
        for number in range(chosen.rounds):
            for name, measure in rows.items():
                figures.setdefault(name, []).append(measure())
                print(f"round {number + 1}: {name}: {figures[name][-1]:.2f}", flush=True)
            for name, worst in zip(
                ("at rest", "over reloads of 1,000 upstreams"), reload_stalls(place, 1), strict=True
            ):
                figures.setdefault(f"slowest call {name}, ms", []).append(worst)
    finally:
        behind.stop()
    lines = ["| | median | lowest | highest |", "| --- | --- | --- | --- |"]
    for name, values in figures.items():
        lines.append(f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} |")
    text = "\n".join(lines) + "\n"
    (Path(__file__).parent / "results" / "growth.md").write_text(text)
    print("\n" + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
