"""The first byte of answers that trickle: straight, through redrive with `answers: off`, and through redrive as it is.

    .venv/bin/python bench/first_bytes.py [--calls N] [--json FILE]

An answer without a length is kept for `answers.pause` (50 ms) unless all of it comes sooner, so its first byte may be
that much later; a stream of events is never kept. The upstream sends its first piece with the head, and the rest after
100 ms. Times are from the request's first byte to the first byte of the body; the contenders take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.front import chunked  # noqa: E402
from support.process import Redrive  # noqa: E402
from support.scripted import Turn, Upstream  # noqa: E402

CONFIG = """
upstreams:
  off: {{url: "{url}", answers: off}}
  kept: {{url: "{url}"}}
"""
#: Seconds after which the rest of an answer comes.
REST = 0.1


@dataclass(frozen=True)
class Kind:
    """A kind of answer: its media type, its first piece and the rest; `sized`: it names its length."""

    name: str
    media: str
    first: bytes
    rest: bytes
    sized: bool = False

    def begun(self) -> bytes:
        """Return the head and the first piece."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {self.media}\r\n"
        if self.sized:
            return f"{head}Content-Length: {len(self.first + self.rest)}\r\n\r\n".encode() + self.first
        return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunked(self.first)[:-5]

    def ended(self) -> bytes:
        """Return the rest."""
        return self.rest if self.sized else chunked(self.rest)


KINDS = (
    Kind("server-sent events", "text/event-stream", b"data: a\n\n", b"data: b\n\n"),
    Kind("Kubernetes watch", "application/json", b'{"type":"ADDED"}\n', b'{"type":"MODIFIED"}\n'),
    Kind("Docker events", "application/x-ndjson", b'{"status":"start"}\n', b'{"status":"die"}\n'),
    Kind("chunks that trickle", "text/plain", b"one", b"two"),
    Kind("a length, in two pieces", "application/json", b'{"a":', b"1}", sized=True),
)


@dataclass(frozen=True)
class Row:
    """The milliseconds until the first byte: the median, and what 99 in 100 take at most."""

    kind: str
    way: str
    median: float
    p99: float


async def _first_byte(place: str, path: str) -> float:
    host, _, port = place.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        began = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(1)
        took = time.perf_counter() - began
        await reader.read()
        return took
    finally:
        writer.close()


async def measure(calls: int) -> list[Row]:
    """Measure every kind in every way, in turns."""

    async def step(turn: Turn) -> None:
        kind = KINDS[int(turn.request.target.rpartition("/")[2])]
        await turn.write(kind.begun())
        await asyncio.sleep(REST)
        await turn.write(kind.ended())
        turn.close()

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async with Upstream(step) as upstream, Redrive(Path(folder), CONFIG.format(url=upstream.url)) as redrive:
            ways = {
                "straight": (upstream.url, ""),
                "answers: off": (redrive.url, "/off"),
                "redrive": (redrive.url, "/kept"),
            }
            for number, kind in enumerate(KINDS):
                took: dict[str, list[float]] = {way: [] for way in ways}
                for _ in range(calls):
                    for way, (place, prefix) in ways.items():
                        took[way].append(1000 * await _first_byte(place, f"{prefix}/{number}"))
                for way, times in took.items():
                    rows.append(Row(kind.name, way, statistics.median(times), statistics.quantiles(times, n=100)[98]))
                    print(f"{kind.name:26} {way:14} {rows[-1].median:8.1f} ms {rows[-1].p99:8.1f} ms", flush=True)
    return rows


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = asyncio.run(measure(arguments.calls))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
