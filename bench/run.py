"""`make bench`: redrive and its peers in one run, interleaved, on one core; the load and the upstream on the other.

Prints a table as it goes and writes bench/results/latest.json, latest.md and latest.svg. Figures are medians over the
rounds, with their spread. CPU microseconds for each call are the figure to trust on a noisy machine. What takes long and
no target needs in every round is done in the first one alone: peers without a target, and memory after the loads.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import http2
from load import WORKLOADS, Load, Workload, download, run_curl, run_wrk
from measure import Running, at_rest, cpu_seconds, free_port, memory
from peers import PEERS, Peer, Place, redrive, write_nginx
from report import write_reports
from targets import DIRECT, INTERCEPTED, TUNNEL, without_gaps

HERE = Path(__file__).parent
PROXY_CORE, LOAD_CORE = 1, 0
#: Bodies of so many MiB are sent by curl, one at a time: wrk counts no answer that its last second cuts.
LARGE = 16
#: Seconds for which a proxy rests before its memory after the loads is read: redrive gives back what it has freed once it
#: has been at rest for ten to twenty seconds.
REST = 21.0
#: Seconds for which it is watched then.
WATCHED = 10.0


def upstream(folder: Path) -> tuple[Running, Place]:
    """nginx as the upstream: a small answer, 64 KiB, 512 MiB, TLS (200 MiB), and one that fails a tenth of attempts."""
    plain, tls, once, flaky = (free_port() for _ in range(4))
    for name in ("www", "written"):
        (folder / name).mkdir()
    (folder / "www" / "64k").write_bytes(b"x" * 65536)
    for name, size in (("big", 512), ("large", 200), ("100m", 100), ("1m", 1)):
        with (folder / "www" / name).open("wb") as file:
            file.truncate(size * 2**20)
    ca, key = folder / "ca.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
        + ["-keyout", str(key), "-out", str(ca), "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True,
        capture_output=True,
    )
    small = 'location /small { return 200 "hello, world\\n"; }'
    small += """ location /json { default_type application/json; return 200 '{"model": "m", "choices": []}'; }"""
    small += ' location /bye { keepalive_timeout 0; return 200 "hello, world\\n"; }'
    small += f" location /chunked/ {{ alias {folder}/www/; ssi on; ssi_types application/octet-stream; }}"
    small += f" location /sink {{ client_body_buffer_size 1m; proxy_pass http://127.0.0.1:{plain}/small;"
    small += (
        ' proxy_pass_request_body off; proxy_set_header Content-Length ""; proxy_set_header Transfer-Encoding ""; }'
    )
    small += ' location /own { add_header X-Request-Id $request_id; return 200 "hello, world\\n"; }'
    http = f"""
split_clients "$request_id" $fails {{ 10% 1; * 0; }}
server {{ listen 127.0.0.1:{plain} backlog=4096; root {folder}/www; client_max_body_size 1g; {small} }}
server {{ listen 127.0.0.1:{tls} ssl backlog=4096; listen [::1]:{tls} ssl; ssl_certificate {ca};
  ssl_certificate_key {key}; root {folder}/www; {small} }}
server {{ listen 127.0.0.1:{once} ssl backlog=4096; listen [::1]:{once} ssl; ssl_certificate {ca};
  ssl_certificate_key {key}; ssl_session_tickets off; ssl_session_cache off; {small} }}
server {{ listen 127.0.0.1:{flaky} backlog=4096; location /small {{ if ($fails) {{ return 503 "no\\n"; }}
  return 200 "hello, world\\n"; }}
  location /own {{ add_header X-Request-Id $request_id; if ($fails) {{ return 503 "no\\n"; }}
  return 200 "hello, world\\n"; }} }}
"""
    command = write_nginx(folder / "nginx-upstream", http, more="sendfile on; open_file_cache max=10;\n")
    probe = b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    running = Running(command, plain, probe, LOAD_CORE, folder / "upstream.log")
    return running, Place(folder, 0, plain, tls, once, flaky, ca)


def other_upstreams(place: Place) -> list[Running]:
    """Start the upstreams that stream, and those that speak HTTP/2, where there are any; what is missing is said in a
    line.
    """
    place.upstream_streams = free_port()
    command = [sys.executable, str(HERE / "streams.py"), "server", str(place.upstream_streams)]
    started = [Running(command, place.upstream_streams, b"", LOAD_CORE, place.written / "streams.log")]
    if shutil.which("h2load") and shutil.which("nghttpd"):
        place.upstream_h2 = free_port()
        started.append(http2.upstream(place.written, place.upstream_h2, LOAD_CORE))
    else:
        print("left out, h2load or nghttpd is not installed (Debian: nghttp2): HTTP/2, and calls at a rate")
    port = free_port()
    if found := http2.grpcio_upstream(place.written, port, LOAD_CORE):
        place.upstream_grpcio = port
        started.append(found)
    else:
        print("left out, grpcio is not installed in bench/.venv: grpcio end to end")
    return started


def make_local_ca(place: Place) -> bool:
    """Make the CA of interception beside redrive's configuration; what is missing is said in a line."""
    made = subprocess.run(
        [sys.executable, "-m", "proxy", "ca", "init", "--for", "localhost", "-c", redrive(place)[-1]],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        print(f"left out, the local CA could not be made ({made.stderr.strip()}): the intercepted download")
    return made.returncode == 0


def serves(peer: Peer, work: Workload) -> bool:
    """Whether a peer can do a workload at all."""
    if peer.rows and work.name not in peer.rows:
        return False
    if work.via == "forward":
        return peer.forward
    if work.http2 or work.by == "h2load" or work.upstream == "to_h2":
        return peer.http2
    if work.rate and not (peer.judged and shutil.which("h2load")):
        return False
    if work.upstream in ("streams", "watched"):
        return peer.streams
    if work.upstream.startswith("tls") and not peer.tls:
        return False
    if work.upstream == "flaky" and not peer.retries:
        return False
    return peer.reverse


def target(peer: Peer, work: Workload, place: Place) -> str:
    """What is asked for: a path under the upstream's prefix, or a URL."""
    if work.via == "forward":
        return f"http://127.0.0.1:{place.upstream}/{work.path}"
    if work.http2:  # gRPC calls are led by their services
        return f"/bench.{work.upstream}/{work.path}"
    return f"/{work.path}" if peer.name == "bare relay" else f"/{work.upstream}/{work.path}"


def load(work: Workload, place: Place, port: int, target: str, seconds: int) -> Load:
    """Load `port` with a workload from the other core."""
    if work.mebibytes >= LARGE:
        return run_curl(place.written, work, port, target, seconds, LOAD_CORE)
    if work.by == "websocket":
        return http2.run_script("streams.py", sys.executable, port, target, seconds, LOAD_CORE)
    if work.upstream == "grpcio":
        return http2.run_grpcio(port, target, seconds, LOAD_CORE)
    return (http2.run_h2load if work.http2 or work.rate or work.by == "h2load" else run_wrk)(
        place.written, work, port, target, seconds, LOAD_CORE
    )


def probe_of(peer: Peer, place: Place) -> bytes:
    """The request by which a start is timed."""
    via = Workload("probe", via="reverse" if peer.reverse else "forward")
    where = target(peer, via, place)
    host = f"127.0.0.1:{place.port if peer.reverse else place.upstream}"
    return f"GET {where} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def idle_connections(port: int, count: int) -> list[socket.socket]:
    """Connections that say nothing."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


def fetch(pid: int, place: Place, url: str, size: int, ca: Path | None = None) -> dict[str, float]:
    """Fetch `size` MiB through CONNECT of a proxy, trusting `ca`."""
    before = cpu_seconds(pid)
    rate = download(url, LOAD_CORE, proxy=place.port, ca=ca)
    return {"MiB/s": rate / 2**20, "cpu ms/GiB": (cpu_seconds(pid) - before) * 1000 * 1024 / size}


def fetch_intercepted(place: Place) -> dict[str, float]:
    """Fetch 200 MiB over TLS, which redrive reads: a process of its own, since what interception needs takes memory."""
    intercepting = replace(place, port=free_port(), intercepts=True)
    peer = next(peer for peer in PEERS if peer.name == "redrive")
    log = place.written / "peers.log"
    running = Running(redrive(intercepting), intercepting.port, probe_of(peer, intercepting), PROXY_CORE, log)
    try:
        url = f"https://localhost:{place.upstream_tls}/large"
        return fetch(running.pid, intercepting, url, 200, place.folder / "ca" / "cert.pem")
    finally:
        running.stop()


def held_by_http2(pid: int, port: int) -> dict[str, float]:
    """What 500 connections hold that have said their SETTINGS, and what 1,000 calls whose message does not come."""
    figures = {}
    for key, connections, streams in (("connection", 500, 0), ("stream", 10, 100)):
        before = memory(pid)
        opened = http2.rest(port, "/bench.h2/Say", connections, streams)
        figures[f"KiB for an idle HTTP/2 {key}"] = (memory(pid) - before) / (connections * max(streams, 1)) / 1024
        for each in opened:
            each.close()
    return figures


def measure_peer(
    peer: Peer,
    place: Place,
    works: list[Workload],
    seconds: int,
    say: Callable[[str, str, dict[str, float]], None],
    rests: bool,
) -> dict[str, dict[str, float]]:
    """One round of one peer: a fresh process, every workload it can do, and, if it `rests` after them, what it holds
    then.
    """
    place.port = free_port()
    running = Running(peer.command(place), place.port, probe_of(peer, place), PROXY_CORE, place.written / "peers.log")
    figures: dict[str, dict[str, float]] = {
        "process": {"start to first answer, s": running.started, "memory at rest, MiB": memory(running.pid) / 2**20}
    }
    try:
        for work in works:
            if not serves(peer, work) or work.upstream not in place.upstreams():
                continue
            load(work, place, place.port, target(peer, work, place), 0 if work.mebibytes >= LARGE else 1)  # warm
            before = cpu_seconds(running.pid)
            seen = load(work, place, place.port, target(peer, work, place), seconds)
            used = cpu_seconds(running.pid) - before
            if not seen.requests:
                print(f"  {peer.name:12} {work.name:40} answered no call, left out of this round", flush=True)
                continue
            figures[work.name] = {
                "cpu us/call": used / max(seen.requests, 1) * 1e6,
                "calls/s": seen.requests / seen.seconds,
                "p50 us": seen.p50 * 1e6,
                "p99 us": seen.p99 * 1e6,
                "failed": seen.failed,
            }
            say(peer.name, work.name, figures[work.name])
        if peer.connect and any(not work.http2 for work in works):
            figures[TUNNEL] = fetch(running.pid, place, f"http://127.0.0.1:{place.upstream}/big", 512)
            say(peer.name, TUNNEL, figures[TUNNEL])
        if rests:
            figures["process"] |= held_at_rest(peer, place, running.pid)
    finally:
        running.stop()
    return figures


def held_at_rest(peer: Peer, place: Place, pid: int) -> dict[str, float]:
    """What a proxy holds when it has come to rest after the loads, what it does then, and what connections that say
    nothing add. Peers without a target are not waited for.
    """
    rest = {}
    if peer.judged:
        time.sleep(REST)
        before = at_rest(pid)
        time.sleep(WATCHED)
        switches, seconds = (b - a for a, b in zip(before, at_rest(pid), strict=True))
        rest = {"switches a second at rest": switches / WATCHED, "ms of CPU a second at rest": seconds * 1000 / WATCHED}
    held = memory(pid)
    idle = idle_connections(place.port, 1000)
    socket.create_connection(("127.0.0.1", place.port)).close()
    each = (memory(pid) - held) / 1000 / 1024
    for connection in idle:
        connection.close()
    rest |= {"memory after the loads, MiB": held / 2**20, "KiB for an idle connection": each}
    return rest | (held_by_http2(pid, place.port) if peer.http2 and place.upstream_h2 else {})


def cannot_run() -> str:
    """What this machine lacks for the bench; "" if nothing."""
    missing = [name for name in ("wrk", "nginx", "taskset", "curl", "openssl") if not shutil.which(name)]
    if missing:
        return f"missing on this machine: {', '.join(missing)} (make bench installs them where it may)"
    if (os.cpu_count() or 1) < 2:
        return "two cores are needed, one for the proxy and one for the load"
    return ""


def main() -> int:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=int, default=2, help="length of each load")
    options.add_argument("--only", default="", help="peers, separated by commas")
    options.add_argument("--works", default="", help="only workloads whose name contains one of these words")
    chosen = options.parse_args()
    if why := cannot_run():
        print(f"bench: {why}")
        return 2
    # An installed package and the image have byte code, and so do the peers: the first start of a checkout writes it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    peers = [peer for peer in PEERS if not chosen.only or peer.name in chosen.only.split(",")]
    for peer in [peer for peer in peers if not peer.available()]:
        print(f"left out, not installed: {peer.name}")
        peers.remove(peer)
    works = [work for work in WORKLOADS if any(word in work.name for word in chosen.works.split(","))]
    results: dict[str, dict[str, dict[str, list[float | None]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )

    def keep(number: int, name: str, work: str, figures: dict[str, float]) -> None:
        for key, value in figures.items():
            kept = results[name][work][key]
            kept += [None] * (number - 1 - len(kept))  # rounds that failed: the places are those of the rounds
            kept.append(value)

    def say(name: str, work: str, figures: dict[str, float]) -> None:
        shown = "  ".join(f"{key} {value:,.1f}" for key, value in figures.items())
        print(f"  {name:12} {work:40} {shown}", flush=True)

    with tempfile.TemporaryDirectory(prefix="redrive-bench-") as scratch:
        running, place = upstream(Path(scratch))
        others = other_upstreams(place)
        with_interception = make_local_ca(place)
        try:
            for number in range(1, chosen.rounds + 1):
                print(f"round {number} of {chosen.rounds}", flush=True)
                for work in works:
                    if (
                        work.via == "reverse"
                        and work.upstream == "plain"
                        and work.mebibytes < LARGE
                        and not (work.by or work.rate)
                    ):
                        alone = run_wrk(place.written, work, place.upstream, f"/{work.path}", 1, LOAD_CORE)
                        record = {"calls/s": alone.requests / alone.seconds, "p50 us": alone.p50 * 1e6}
                        keep(number, "upstream alone", work.name, record)
                if any(not work.http2 for work in works):
                    direct = download(f"http://127.0.0.1:{place.upstream}/big", LOAD_CORE)
                    keep(number, DIRECT, TUNNEL, {"MiB/s": direct / 2**20})
                if with_interception and any(peer.name == "redrive" for peer in peers):
                    direct = download(f"https://localhost:{place.upstream_tls}/large", LOAD_CORE, ca=place.ca)
                    keep(number, DIRECT, INTERCEPTED, {"MiB/s": direct / 2**20})
                    intercepted = fetch_intercepted(place)
                    say("redrive", INTERCEPTED, intercepted)
                    keep(number, "redrive", INTERCEPTED, intercepted)
                for peer in [peer for peer in peers if peer.judged or number == 1]:
                    try:
                        figures = measure_peer(peer, place, works, chosen.seconds, say, rests=number == 1)
                    except (RuntimeError, OSError, subprocess.SubprocessError, AssertionError) as error:
                        print(f"  {peer.name:12} failed: {error}", flush=True)
                        continue
                    for work, values in figures.items():
                        keep(number, peer.name, work, values)
        finally:
            for each in (running, *others):
                each.stop()
    machine = (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    plain = json.loads(json.dumps(results))
    medians = {
        name: {work: {key: statistics.median(values) for key, values in keys.items()} for work, keys in rows.items()}
        for name, rows in without_gaps(plain).items()
    }
    write_reports(HERE / "results", plain, medians, machine, chosen.rounds, chosen.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
