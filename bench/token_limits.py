"""Limits of tokens a minute: how often providers refuse, and how many tokens they serve, with redrive and without it.

    .venv/bin/python bench/token_limits.py [--only openai,google] [--at-once 1,50] [--window 10] [--windows 4]

Each provider has an upstream that counts tokens in its way (tests/support/token_providers.py), with a window of some
seconds for the minute (`--window 60` plays real minutes). Its official client for Python, or for Node (`--clients node`,
after `npm install --prefix bench/node_clients`, or with their folder in REDRIVE_NODE_MODULES), makes calls for some windows, one at a
time and 50 at once: a third answers in one piece, a third streams with its usage, a third without. Limits begin
empty, and the first window is not counted. WAYS says who waits.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
NODE = ROOT / "bench/node_clients"
sys.path.insert(0, str(ROOT / "tests"))

from support.llm_clients import CLIENTS, MAXIMUM, PROMPT, Call  # noqa: E402
from support.process import Redrive  # noqa: E402
from support.redis_server import RedisServer  # noqa: E402
from support.token_providers import PROVIDERS, Provider  # noqa: E402

#: Seconds that an answer takes, and the fewest and most tokens of an output.
SECONDS, OUTPUTS = 0.2, (20, 200)
#: The limit of a window, in calls: for one at a time it is less than a caller can make, for 50 at once, too.
CALLS_A_SECOND = {1: 2.0, 50: 8.0}

WAYS = {
    "alone": "the client by itself, with its own retries",
    "redrive": "redrive, without a rate",
    "rate": "redrive, with a rate of tokens",
    "ahead": "redrive, with ahead: on",
    "both": "redrive, with both",
}

#: Providers whose minutes begin on their own. There, rate and burst together give no more in a minute than the limit, and
#: the burst is a hundredth of it, or one call's: what a call costs at most, by the unit that the rate counts.
IN_WINDOWS, ONE_CALL = ("azure", "google"), {"requested": PROMPT / 4 + MAXIMUM, "prompt": PROMPT / 4}
#: The burst of other rates: a share of the limit, and the calls that it has room for at least, since what comes back to a
#: full bucket is lost.
BURST, CALLS = 0.05, 3
#: Tokens that a provider counts for a call, about.
PRICES = {"openai": 300, "azure": 300, "anthropic": 110, "google": 100}


@dataclass
class Row:
    """What came of a client's calls, of all windows but the first. `refused`: answers of 429; `served`: requests that
    the upstream served; `share`: the tokens that it counted for them, as a share of the limit. `succeeded` and
    `failed`: calls, as the client saw them, in all windows.
    """

    provider: str
    at_once: int
    way: str
    refused: int = 0
    served: int = 0
    share: float = 0.0
    succeeded: int = 0
    failed: int = 0


def bucket(provider: str, upstream: Provider, unit: str, redis: str) -> str:
    """The rate of a unit that the provider counts."""
    if provider in IN_WINDOWS:
        burst = max(ONE_CALL[unit], upstream.limit / 100)
        rate = (upstream.limit - burst) / upstream.window
    else:
        burst = max(upstream.limit * BURST, CALLS * (PROMPT / 4 + MAXIMUM))
        rate = upstream.limit / upstream.window
    store = ", store: redis" if redis else ""
    return f"{{kind: rate, rate: {rate}/s, burst: {burst:.0f}, unit: {unit}{store}}}"


def config(provider: str, upstream: Provider, way: str, redis: str) -> str:
    """The configuration of redrive; `redis`: the URL of the Redis that sidecars share, "" for one sidecar alone."""
    keys = [f'url: "{upstream.url}"', f"dialects: {upstream.dialects}"]
    if way in ("rate", "both"):
        keys.append("rate: [" + ", ".join(bucket(provider, upstream, unit, redis) for unit in upstream.counts) + "]")
    if way in ("ahead", "both"):
        keys.append("pushback: {ahead: on}")
    shared = f"redis: {{url: {redis}}}\n" if redis else ""
    return f"{shared}upstreams: {{llm: {{{', '.join(keys)}}}}}\n"


def in_python(row: Row, urls: list[str]) -> list[Coroutine[None, None, None]]:
    """What makes the calls with the client for Python, one for each of those at once; they take turns among `urls`."""
    calls = [CLIENTS[row.provider](url, retries=row.way == "alone") for url in urls]
    numbers = itertools.count()

    async def app(call: Call) -> None:
        for number in numbers:
            try:
                await call(number)
            except Exception as error:
                ended(row, str(error))
            else:
                ended(row)

    return [app(calls[each % len(calls)]) for each in range(row.at_once)]


def in_node(row: Row, urls: list[str]) -> list[Coroutine[None, None, None]]:
    """What makes the calls with the client for Node: one process that makes all of those at once."""

    async def apps() -> None:
        process = await asyncio.create_subprocess_exec(
            "node", str(NODE / "calls.cjs"), row.provider, urls[0], str(row.way == "alone").lower(), str(row.at_once),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "NODE_PATH": os.environ.get("REDRIVE_NODE_MODULES", str(NODE / "node_modules"))},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                ended(row, "" if line == b"ok\n" else line.decode().strip())
        finally:
            process.kill()
            await process.wait()

    return [apps()]


def ended(row: Row, wrong: str = "") -> None:
    """Count a call that ended; `wrong`: the error that its client raised, if it did."""
    if wrong:
        row.failed += 1
        if "429" not in wrong and "503" not in wrong:
            print(row.provider, row.way, wrong, file=sys.stderr)
    else:
        row.succeeded += 1


async def play(row: Row, window: float, windows: int, sidecars: int, *, node: bool) -> Row:
    """Let the clients make calls for so many windows, through so many sidecars, which share a Redis if there are several.
    The limit is that of one sidecar's calls, however many there are.
    """
    limit = CALLS_A_SECOND[row.at_once] * PRICES[row.provider] * window
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(
            PROVIDERS[row.provider](limit, window, seconds=SECONDS, outputs=OUTPUTS, left=0.0)
        )
        urls = [upstream.url]
        if row.way != "alone":
            redis = ""
            if sidecars > 1:
                server = RedisServer()
                stack.callback(server.close)
                redis = server.url
            urls = []
            for _ in range(sidecars):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                redrive = await stack.enter_async_context(
                    Redrive(folder, config(row.provider, upstream, row.way, redis))
                )
                urls.append(f"{redrive.url}/llm")
        apps = [asyncio.create_task(each) for each in (in_node if node else in_python)(row, urls)]
        await upstream.asked_first.wait()
        await asyncio.sleep(window)
        refused, served, tokens, began = upstream.refused, upstream.served, upstream.tokens, time.monotonic()
        await asyncio.sleep(window * (windows - 1))
        took = time.monotonic() - began
        row.refused, row.served = upstream.refused - refused, upstream.served - served
        row.share = (upstream.tokens - tokens) / (limit * took / window)
        for each in apps:
            each.cancel()
        await asyncio.gather(*apps, return_exceptions=True)
    return row


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CLIENTS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--clients", choices=["python", "node"], default="python")
    parser.add_argument("--at-once", default="1,50")
    parser.add_argument("--window", type=float, default=10.0)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument(
        "--sidecars", type=int, default=1, help="over one Redis (redis-server); clients for Python only"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for at_once in map(int, given.at_once.split(",")):
        for way in given.ways.split(","):
            for row in [Row(name, at_once, way) for name in given.only.split(",")]:
                rows.append(await play(row, given.window, given.windows, given.sidecars, node=given.clients == "node"))
                print(f"{row.provider:10} {row.at_once:3} {row.way:8} 429s {row.refused:5}  served {row.served:5}  "
                      f"of the limit {row.share:6.1%}  succeeded {row.succeeded:5}  failed {row.failed:5}", flush=True)  # fmt: skip
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    asyncio.run(main())
