"""HTTP/2, and calls at a rate: loads by h2load and grpcio, nghttpd as the upstream, and connections and streams that rest."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import time
from pathlib import Path

from load import FIELDS as HTTP1_FIELDS
from load import Load, Workload
from measure import VENV, Running

HERE = Path(__file__).parent
#: What a grpcio client sends beside its deadline and metadata; the message is framed, and 13 bytes long.
FIELDS = [
    "content-type: application/grpc",
    "te: trailers",
    "user-agent: grpc-python/1.80.0",
    "grpc-accept-encoding: gzip",
]
MESSAGE = b"\x00" + struct.pack(">I", 13) + b"\x0a\x0bhello,world"
SETTINGS, HEADERS, ACK, END_HEADERS = 4, 1, 1, 4


def upstream(folder: Path, port: int, core: int) -> Running:
    """nghttpd: answers of 18 bytes and 10 KiB with a gRPC status in their trailers; it waits for whole requests."""
    answers = folder / "h2" / "bench.h2"
    answers.mkdir(parents=True)
    (answers / "Say").write_bytes(MESSAGE)
    (answers / "Tell").write_bytes(b"\x00" + struct.pack(">I", 10240) + b"x" * 10240)
    (folder / "message").write_bytes(MESSAGE)
    command = [
        "nghttpd",
        "--no-tls",
        "-a",
        "127.0.0.1",
        "-d",
        str(folder / "h2"),
        "-m",
        "2000",
        "--trailer=grpc-status: 0",
    ]
    return Running([*command, str(port)], port, b"", core, folder / "upstream-h2.log")


def run_h2load(folder: Path, work: Workload, port: int, target: str, seconds: int, core: int) -> Load:
    """Load `port` with calls of `target`; where they vary, 64 queries take turns. At a rate they are HTTP/1, and each
    connection sends its share of them; what it could not send because its call lasted it sends as soon as that is over.
    """
    uris, log = folder / "uris", folder / "h2load.log"
    uris.write_text("".join(f"http://127.0.0.1:{port}{target}?n={n}\n" for n in range(64 if work.varied else 1)))
    log.unlink(missing_ok=True)
    fields = [*FIELDS, *(["grpc-timeout: 9S"] if work.deadline else [])] if work.http2 else []
    message = ["-d", str(folder / "message")] if work.http2 else []
    shape = [f"-m{work.streams}", f"-D{seconds}"]
    if work.rate:  # a connection each millisecond, or all of them would send in the same moment
        fields = [f"{name}: {value}" for name, value in HTTP1_FIELDS[: work.fields - 1]]
        shape = ["--h1", "-m1", f"--rps={work.rate / work.connections:g}", f"-n{work.rate * seconds}"]
        shape += ["-r1", "--rate-period=1ms"]
    command = ["taskset", "-c", str(core), "h2load", "-t1", f"-c{work.connections}", *shape]
    command += [f"--log-file={log}", *message, *(f"-H{field}" for field in fields), "-i", str(uris)]
    begun = time.perf_counter()
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 60).stdout
    elapsed = time.perf_counter() - begun - work.connections / 1000 if work.rate else seconds
    count = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", out)
    moved = re.search(r"status codes: \d+ 2xx, (\d+) 3xx", out)
    assert count is not None and moved is not None, out
    times = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines()) or [0]
    return Load(
        int(count[1]),
        elapsed,
        times[len(times) // 2] * 1e-6,
        times[len(times) * 99 // 100] * 1e-6,
        int(count[2]) + int(moved[1]),  # "failed" has those of 4xx, 5xx, errors and timeouts, "succeeded" those of 3xx
    )


def run_grpcio(port: int, method: str, seconds: int, core: int) -> Load:
    """Calls of grpcio, 32 at a time over four channels, each with a deadline: in a process of its own."""
    return run_script("grpc_calls.py", str(VENV / "bin" / "python"), port, method, seconds, core)


def run_script(name: str, python: str, port: int, target: str, seconds: int, core: int) -> Load:
    """Load `port` by a client of the bench's own."""
    command = ["taskset", "-c", str(core), python, str(HERE / name), "client", str(port), target, str(seconds)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 60)
    return Load(**json.loads(out.stdout))


def grpcio_upstream(folder: Path, port: int, core: int) -> Running | None:
    """grpcio's server; None where grpcio is not installed."""
    python = VENV / "bin" / "python"
    found = (
        subprocess.run([str(python), "-c", "import grpc"], capture_output=True, check=False)
        if python.exists()
        else None
    )
    if found is None or found.returncode:
        return None
    return Running(
        [str(python), str(HERE / "grpc_calls.py"), "server", str(port)], port, b"", core, folder / "grpcio.log"
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _block(authority: str, path: str) -> bytes:
    fields = [
        ":method",
        "POST",
        ":scheme",
        "http",
        ":path",
        path,
        ":authority",
        authority,
        "content-type",
        "application/grpc",
    ]
    fields += ["te", "trailers"]
    parts = [struct.pack(">B", len(text)) + text.encode() for text in fields]
    return b"".join(b"\x10" + name + value for name, value in zip(parts[::2], parts[1::2], strict=True))


def rest(port: int, target: str, connections: int, streams: int) -> list[socket.socket]:
    """HTTP/2 connections that have said their SETTINGS, each with so many calls whose message does not come."""
    opened = []
    for _ in range(connections):
        s = socket.create_connection(("127.0.0.1", port))
        s.settimeout(10)
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0))
        assert s.recv(65536)
        block = _block(f"127.0.0.1:{port}", target)
        update = b"\x20"  # the first block says that it has no table, as it must once a table of size 0 is acknowledged
        heads = b"".join(
            _frame(HEADERS, END_HEADERS, 1 + 2 * n, block if n else update + block) for n in range(streams)
        )
        s.sendall(_frame(SETTINGS, ACK, 0) + heads)
        opened.append(s)
    for s in opened:  # what it answers to a PING it answers once it has read all of that
        s.sendall(_frame(6, 0, 0, b"complete"))
        seen = b""
        while b"complete" not in seen:
            seen += (got := s.recv(65536))
            assert got, "it closed a connection that rested"
    return opened
