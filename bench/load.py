"""Loads: wrk with one thread, and curl for downloads. Each run is some seconds long and answers with its counts."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass
class Load:
    """What wrk saw. Latencies in seconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    failed: int


@dataclass(frozen=True)
class Workload:
    """One row of the table. `via`: reverse or forward; `upstream`: plain, tls, flaky, or h2 and grpcio, which speak
    HTTP/2. `varied`: no two requests that follow each other are the same bytes; else the same one again and again, as
    wrk sends it by itself. `shapes`: a GET, a GET with other fields, a PUT with a body and a DELETE take turns, as the
    calls of one SDK's pool do. `streams`: calls at a time of an HTTP/2 connection; `deadline`: they bear a grpc-timeout.
    `closes`: each request asks for the end of its connection, so that the next one opens another. `mebibytes`: the size
    of the answer's body, or of the request's where it is a `post`; `chunked`: that body has no length. `rate`: calls
    a second that are offered, by h2load, however soon they are answered; 0: each connection sends as soon as it has its
    answer. `by`: who loads, if it is not wrk, or h2load for HTTP/2 and at a rate: `h2load` with GETs, `websocket` with messages that
    are echoed, or `grpc stream` with calls of a hundred messages.
    """

    name: str
    connections: int = 32
    path: str = "small"
    fields: int = 5
    post: bool = False
    via: str = "reverse"
    upstream: str = "plain"
    varied: bool = False
    shapes: bool = False
    streams: int = 8
    deadline: bool = False
    closes: bool = False
    mebibytes: int = 0
    chunked: bool = False
    rate: int = 0
    by: str = ""

    @property
    def http2(self) -> bool:
        """Whether it is HTTP/2, from the client to the upstream."""
        return self.upstream in ("h2", "grpcio")


#: Calls a second of the rows at a rate: each peer can serve so many with a tenth failing, on one core.
OFFERED = 10_000

WORKLOADS = [
    Workload("small GET, 32 connections, 5 fields"),
    Workload("small GET, 32 connections, 12 fields", fields=12),
    Workload("small GET, 32 connections, 30 fields", fields=30),
    Workload("small GET, 32 connections, 5 fields, another query each", varied=True),
    Workload("small GET, 32 connections, 12 fields, another query and request id each", fields=12, varied=True),
    Workload(
        "small GET, 32 connections, 12 fields, queries, ids and answers' ids differ", path="own", fields=12, varied=True
    ),
    Workload("GET, GET, PUT, DELETE in turn, everything differs", path="own", fields=12, varied=True, shapes=True),
    Workload("small GET, 1 connection", connections=1),
    Workload("small GET, 256 connections", connections=256),
    Workload("64 KiB GET", path="64k"),
    Workload("10 KiB POST", post=True),
    Workload("1 MiB GET, with a length", 4, "1m", mebibytes=1),
    Workload("1 MiB GET, chunked", 4, "chunked/1m", mebibytes=1, chunked=True),
    Workload("1 MiB POST, with a length", 4, "sink", post=True, mebibytes=1),
    Workload("1 MiB POST, chunked", 4, "sink", post=True, mebibytes=1, chunked=True),
    Workload("100 MiB GET, with a length", 1, "100m", mebibytes=100),
    Workload("100 MiB GET, chunked", 1, "chunked/100m", mebibytes=100, chunked=True),
    Workload("100 MiB POST, with a length", 1, "sink", post=True, mebibytes=100),
    Workload("100 MiB POST, chunked", 1, "sink", post=True, mebibytes=100, chunked=True),
    Workload("small GET, TLS upstream", upstream="tls"),
    Workload("small GET, 10 % of attempts fail", upstream="flaky"),
    Workload("10 % of attempts fail, everything differs", path="own", fields=12, upstream="flaky", varied=True),
    Workload("small GET, 10 % of attempts fail, 128 connections", connections=128, upstream="flaky"),
    Workload(
        "10 % of attempts fail, everything differs, 128 connections",
        connections=128,
        path="own",
        fields=12,
        upstream="flaky",
        varied=True,
    ),
    Workload("small GET, 10,000 calls/s", 128, rate=OFFERED),
    Workload("everything differs, 10,000 calls/s", 128, "own", 12, varied=True, rate=OFFERED),
    Workload("small GET, 10,000 calls/s, 10 % of attempts fail", 128, upstream="flaky", rate=OFFERED),
    Workload(
        "10 % of attempts fail, everything differs, 10,000 calls/s",
        128,
        "own",
        12,
        upstream="flaky",
        varied=True,
        rate=OFFERED,
    ),
    Workload("small GET, the app closes each call", closes=True),
    Workload("small GET, the upstream closes each call", path="bye"),
    Workload("small GET, TLS upstream closes each call", path="bye", upstream="tls"),
    Workload("small GET, TLS upstream without tickets closes each call", path="bye", upstream="tls_once"),
    Workload("small GET, forward", via="forward"),
    Workload("64 KiB GET, forward", path="64k", via="forward"),
    Workload("100 server-sent events", path="events", upstream="streams"),
    Workload("100 server-sent events, watched", path="events", upstream="watched"),
    Workload("a WebSocket message and its echo", path="echo", upstream="streams", by="websocket"),
    Workload("HTTP/2 to HTTP/1, 4 connections of 8 streams", 4, upstream="to_h1", by="h2load"),
    Workload("HTTP/1 to HTTP/2, 32 connections", path="bench.h2/Say", upstream="to_h2"),
    Workload("HTTP/2: gRPC unary, 4 connections of 8 streams", 4, "Say", upstream="h2"),
    Workload("HTTP/2: gRPC unary, with a deadline", 4, "Say", upstream="h2", deadline=True),
    Workload("HTTP/2: gRPC unary, another query each", 4, "Say", upstream="h2", varied=True),
    Workload("HTTP/2: gRPC unary, 10 KiB answers", 4, "Tell", upstream="h2"),
    Workload("HTTP/2: grpcio end to end, with deadlines", 4, "Say", upstream="grpcio"),
    Workload("HTTP/2: grpcio end to end, 100 messages streamed", 4, "Stream", upstream="grpcio", by="grpc stream"),
]

#: Fields as services send them; the first five are what every client sends.
FIELDS = [
    ("User-Agent", "bench/1.0 (linux; x86_64)"),
    ("Accept", "application/json"),
    ("Accept-Encoding", "gzip, deflate, br"),
    ("Authorization", "Bearer 0123456789abcdef0123456789abcdef"),
    ("Accept-Language", "en-GB,en;q=0.9"),
    ("X-Request-Id", "7f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("Cache-Control", "no-cache"),
    ("Cookie", "session=0123456789abcdef; theme=dark"),
    ("Referer", "http://shop.example/cart?step=2"),
    ("X-Tenant", "blue"),
]


#: Makes of a request with a length one in chunks of 16 KiB.
IN_CHUNKS = """  local head, rest = made[n]:match("^(.-\\r\\n\\r\\n)(.*)$")
  local chunks = {}
  for at = 1, #rest, 16384 do
    local piece = rest:sub(at, at + 16383)
    chunks[#chunks + 1] = string.format("%x\\r\\n%s\\r\\n", #piece, piece)
  end
  head = head:gsub("Content%-Length: %d+", "Transfer-Encoding: chunked")
  made[n] = head .. table.concat(chunks) .. "0\\r\\n\\r\\n"
"""


def script(folder: Path, work: Workload, url: str) -> Path:
    """wrk's requests, made once and taken in turn: 64 where they vary, each with its own query and request id."""
    fields = (FIELDS + [(f"X-Extra-{n}", f"value-{n}-of-some-length") for n in range(100)])[: work.fields - 1]
    lines = "".join(f'  wrk.headers["{name}"] = "{value}"\n' for name, value in fields)
    if work.fields > 5 and work.varied:
        lines += '  wrk.headers["X-Request-Id"] = string.format("7f1c2d3e-4b5a-6978-8796-%012x", n)\n'
    if work.closes:
        lines += '  wrk.headers["Connection"] = "close"\n'
    body = f'  wrk.body = string.rep("x", {work.mebibytes * 2**20 or 10240})\n' if work.post else ""
    if work.shapes:
        body += """  local shape = n % 4
  wrk.method = shape == 2 and "PUT" or shape == 3 and "DELETE" or "GET"
  wrk.headers["Accept-Language"] = shape == 0 and "en-GB,en;q=0.9" or nil
  wrk.headers["If-None-Match"] = shape == 1 and string.format('"%x"', n) or nil
  wrk.headers["Content-Type"] = shape == 2 and "application/json" or nil
  wrk.body = shape == 2 and string.rep("x", 200 + n) or nil
"""
    method = "nil" if work.shapes else '"POST"' if work.post else '"GET"'
    file = folder / "request.lua"
    file.write_text(
        f"local made = {{}}\nlocal turn = 0\nlocal count = {64 if work.varied else 1}\n"
        "function init(args)\n for n = 1, count do\n"
        f"{lines}{body}"
        f'  made[n] = wrk.format({method}, "{url}?n=" .. n)\n{IN_CHUNKS if work.post and work.chunked else ""} end\nend\n'
        "function request()\n  turn = turn % count + 1\n  return made[turn]\nend\n"
    )
    return file


def run_wrk(folder: Path, work: Workload, port: int, target: str, seconds: int, core: int) -> Load:
    """Load `port` with requests for `target` (a path, or a URL for a forward proxy)."""
    made = script(folder, work, target)
    out = subprocess.run(
        ["taskset", "-c", str(core), "wrk", "-t1", f"-c{work.connections}", f"-d{seconds}s", "--latency"]
        + ["-s", str(made), f"http://127.0.0.1:{port}/"],
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 60,
    ).stdout
    count = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)", out)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", out)
    assert count is not None, out
    return Load(
        int(count[1]),
        float(count[2]) * UNITS[count[3]],
        _percentile(out, 50),
        _percentile(out, 99),
        (int(bad[1]) if bad else 0) + (sum(map(int, errors.groups())) if errors else 0),
    )


def _percentile(out: str, which: int) -> float:
    match = re.search(rf"^\s+{which}%\s+([\d.]+)(us|ms|s|m)", out, re.M)
    return float(match[1]) * UNITS[match[2]] if match else 0.0


def run_curl(folder: Path, work: Workload, port: int, target: str, seconds: int, core: int) -> Load:
    """Load `port` with one large transfer after the other, each by a curl of its own."""
    command = ["taskset", "-c", str(core), "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{time_total}\n"]
    if work.post:
        file = folder / f"{work.mebibytes}m-to-send"
        if not file.exists():
            with file.open("wb") as made:
                made.truncate(work.mebibytes * 2**20)
        command += ["-T", str(file), "-H", "Expect:"]
        command += ["-H", "Transfer-Encoding: chunked"] if work.chunked else []
    begun, times, failed = time.perf_counter(), [], 0
    while not times or time.perf_counter() - begun < seconds:
        out = subprocess.run(
            [*command, f"http://127.0.0.1:{port}{target}"], capture_output=True, text=True, check=True, timeout=120
        ).stdout.split()
        times.append(float(out[1]))
        failed += out[0] != "200"
    elapsed = time.perf_counter() - begun
    times.sort()
    return Load(len(times), elapsed, times[len(times) // 2], times[-1], failed)


def download(url: str, core: int, *, proxy: int = 0, ca: Path | None = None) -> float:
    """Fetch `url` by curl, through the proxy at this port (0: directly), trusting `ca`; bytes a second."""
    out = subprocess.run(
        ["taskset", "-c", str(core), "curl", "-sS", "-o", "/dev/null", "-w", "%{size_download} %{time_total}"]
        + (["-p", "-x", f"http://127.0.0.1:{proxy}"] if proxy else [])
        + (["--cacert", str(ca)] if ca else [])
        + [url],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.split()
    return float(out[0]) / float(out[1])
