"""What a GiB of answers' bodies costs: `python bench/bodies.py`, beside HAProxy if it is on the path.

The upstream and the client are this process; what is read is the proxy's own CPU time and page faults, from /proc, over
answers of 1 MiB on four connections, with a length and in chunks of 16 KiB. The proxies take turns, and each has one
thread, as in run.py. Page faults hardly depend on what else the machine does, times do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import uvloop
from measure import free_port, tree

MIB = 1024 * 1024
PIECE = bytes(16 * 1024)
CONNECTIONS = 4
TICK = 1000 / os.sysconf("SC_CLK_TCK")
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MIB
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with 1 MiB, in chunks if its path ends in c."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        chunked = head.split(b" ", 2)[1].endswith(b"c")
        writer.write(CHUNKED if chunked else LENGTH)
        for _ in range(MIB // len(PIECE)):
            writer.write(b"4000\r\n" + PIECE + b"\r\n" if chunked else PIECE)
            await writer.drain()
        if chunked:
            writer.write(b"0\r\n\r\n")


async def ask(port: int, path: str, count: int) -> None:
    """Read so many answers on a connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    for _ in range(count):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" not in head.lower():
            await reader.readexactly(MIB)
            continue
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    writer.close()


def used(pid: int) -> tuple[float, int]:
    """The CPU milliseconds and the page faults of a process and its children so far."""
    rows = [Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split() for each in tree(pid)]
    return sum(int(row[11]) + int(row[12]) for row in rows) * TICK, sum(int(row[7]) for row in rows)


def begin(name: str, folder: Path, port: int, upstream: int) -> subprocess.Popen[bytes]:
    """Start a proxy that listens on this port."""
    if name == "redrive":
        text = f"listen: 127.0.0.1:{port}\nadmin: off\nupstreams: {{a: {{url: 'http://127.0.0.1:{upstream}'}}}}\n"
        command = [sys.executable, "-m", "proxy", "run", "-c"]
    else:
        text = (
            "global\n nbthread 1\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n"
        )
        text += f"listen a\n bind 127.0.0.1:{port}\n server s 127.0.0.1:{upstream}\n"
        command = ["haproxy", "-db", "-f"]
    file = folder / name
    file.write_text(text)
    return subprocess.Popen([*command, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def measure(name: str, pid: int, port: int, kind: str, mebibytes: int) -> None:
    """Print one row of one proxy."""
    cpu, faults = used(pid)
    path = f"/a/{kind[0]}"
    await asyncio.gather(*(ask(port, path, mebibytes // CONNECTIONS) for _ in range(CONNECTIONS)))
    after = used(pid)
    each = 1024 / mebibytes
    print(f"{name:8} {kind:8} {(after[0] - cpu) * each:7.0f} ms/GiB {(after[1] - faults) * each:8.0f} faults/GiB")


async def until_it_answers(port: int) -> None:
    """Wait until a proxy answers, which has been started."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask(port, "/a/l", 2)
            except OSError:
                await asyncio.sleep(0.1)


async def main() -> None:
    """Measure each proxy in turn."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mebibytes", type=int, default=1024, help="how many are sent for each row")
    options.add_argument("--rounds", type=int, default=1)
    chosen = options.parse_args()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        names = [name for name in ("redrive", "haproxy") if name == "redrive" or shutil.which(name)]
        ports = {name: free_port() for name in names}
        started = {name: begin(name, Path(folder), port, upstream) for name, port in ports.items()}
        try:
            for port in ports.values():
                await until_it_answers(port)
            for kind in ("length", "chunked") * chosen.rounds:
                for name, process in started.items():
                    await measure(name, process.pid, ports[name], kind, chosen.mebibytes)
        finally:
            for process in started.values():
                process.terminate()
                process.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(main())
