"""What CPython's `ssl` alone costs of a TLS connection that closes after a call: `python bench/tls_floor.py`.

A handshake, one small request and its answer, on a blocking socket: no event loop, no proxy, nothing read of the answer.
No proxy on CPython's `ssl` can be cheaper. Microseconds of CPU (user, system) for each connection, beside those of
HAProxy for the whole call in the same minutes; the upstream is that of run.py.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import sys
import tempfile
from pathlib import Path

from load import Workload, run_wrk
from measure import TICK, Running, free_port
from peers import haproxy, on_path, redrive
from run import LOAD_CORE, PROXY_CORE, upstream

REQUEST = b"GET /bye HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: The rows: names of upstreams of run.py, and whether their sessions can be resumed.
ROWS = {"tls": True, "tls_once": False}


def connect(context: ssl.SSLContext, port: int, session: ssl.SSLSession | None) -> ssl.SSLObject:
    """One connection, its request and its answer, over memory as asyncio and uvloop do it."""
    came, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    with socket.create_connection(("127.0.0.1", port)) as sock:
        tls = context.wrap_bio(came, to_send, server_hostname="localhost", session=session)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(to_send.read())
                came.write(sock.recv(65536))
        tls.write(REQUEST)
        sock.sendall(to_send.read())
        while data := sock.recv(65536):
            came.write(data)
        assert tls.read(65536).startswith(b"HTTP/1.1 200")
    return tls


def bare(context: ssl.SSLContext, port: int, count: int, *, resumes: bool) -> tuple[float, float]:
    """User and system microseconds of a connection of this process."""
    session = connect(context, port, None).session if resumes else None
    before = os.times()
    resumed = sum(connect(context, port, session).session_reused or False for _ in range(count))
    after = os.times()
    assert resumed == (count if resumes else 0), resumed
    return (after.user - before.user) / count * 1e6, (after.system - before.system) / count * 1e6


def used(pid: int) -> tuple[float, float]:
    """User and system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) / TICK, int(fields[12]) / TICK


def main() -> int:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--count", type=int, default=1000)
    chosen = options.parse_args()
    os.sched_setaffinity(0, {PROXY_CORE})
    folder = Path(tempfile.mkdtemp(prefix="redrive-tls-"))
    nginx, place = upstream(folder)
    context = ssl.create_default_context(cafile=str(place.ca))
    made = {"redrive": redrive} | ({"haproxy": haproxy} if on_path("haproxy")() else {})
    try:
        for number in range(1, chosen.rounds + 1):
            for name, resumes in ROWS.items():
                port = place.upstream_tls if resumes else place.upstream_tls_once
                user, system = bare(context, port, chosen.count, resumes=resumes)
                print(f"round {number}: {name:9} {'bare':8} {user:6.0f} user {system:6.0f} system", flush=True)
                for peer, command in made.items():
                    place.port = free_port()
                    host = f"Host: 127.0.0.1:{place.port}\r\nConnection: close\r\n\r\n"
                    probe = f"GET /plain/small HTTP/1.1\r\n{host}".encode()
                    running = Running(command(place), place.port, probe, PROXY_CORE, folder / "log")
                    work = Workload(name, path="bye", upstream=name)
                    run_wrk(folder, work, place.port, f"/{name}/bye", 1, LOAD_CORE)
                    before = used(running.pid)
                    seen = run_wrk(folder, work, place.port, f"/{name}/bye", 2, LOAD_CORE)
                    after = used(running.pid)
                    running.stop()
                    each = [(b - a) / seen.requests * 1e6 for a, b in zip(before, after, strict=True)]
                    print(f"round {number}: {name:9} {peer:8} {each[0]:6.0f} user {each[1]:6.0f} system", flush=True)
    finally:
        nginx.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
