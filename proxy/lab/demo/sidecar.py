"""The demo's redrive: the real command, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

CONFIG = Path(__file__).parent / "redrive.yaml"
#: The code of the process that serves. The process ends when its standard input ends, so it never outlives the demo.
_CODE = """
import os, signal, sys, threading

def watch():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=watch, daemon=True).start()

from proxy.cli import main

sys.exit(main())
"""
#: Seconds that it gets to end when it is told to.
_END = 5.0


@dataclass(frozen=True, slots=True)
class SidecarState:
    """The state of the demo's upstream as redrive sees it: its bucket's tokens, the calls that are held now, and what
    holds them, in words; and how many transparent retries were sent so far.
    """

    level: float = 0.0
    capacity: float = 0.0
    held: int = 0
    reasons: tuple[str, ...] = ()
    transparent: int = 0


class SidecarError(Exception):
    """A sidecar that did not start, or ended by itself; the message says so after the words "the proxy"."""


class Sidecar:
    """The demo's redrive. `url` is the base URL of the demo's upstream through it, `admin` its admin port."""

    url = ""
    admin = ""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the process, and wait until it serves. Raises SidecarError."""
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _CODE, "run", "-c", str(CONFIG)),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,  # the terminal's Ctrl-C is for us; it is told by us
            env={
                **surroundings(),
                "REDRIVE_DEMO_UPSTREAM": self._upstream,
            },
        )
        assert process.stdout is not None and process.stderr is not None
        ready: dict[str, Any] = {}
        while ready.get("event") != "ready":
            line = await process.stdout.readline()
            if not line:
                raise SidecarError(f"did not start: {(await process.stderr.read()).decode().strip()}")
            ready = json.loads(line)
        self.url = f"http://{ready['listen'][0]}/demo"
        self.admin = f"http://{ready['admin'][0]}"
        self._reader = asyncio.create_task(_drain(process.stdout, process.stderr))

    def check(self) -> None:
        """Raise SidecarError if the process has ended."""
        status = None if self._process is None else self._process.returncode
        if status is not None:
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
            raise SidecarError(f"ended before the demo did, {how}")

    async def state(self, session: aiohttp.ClientSession) -> SidecarState | None:
        """The state that the admin port reports; None before the first call, which makes the upstream's bucket."""
        bucket = next(iter((await _ask(session, f"{self.admin}/buckets"))["buckets"]), None)
        if bucket is None:
            return None
        upstream = (await _ask(session, f"{self.admin}/upstreams"))["upstreams"][0]
        weather = upstream["weather"] or ()
        reasons = [
            *("an outage" for each in weather if each["outage"]),
            *(f"a limit of {each['limit']['attempts']} at a time" for each in weather if each["limit"]),
            *([f"a cooldown of {upstream['cooldown_seconds']:.1f} s"] if upstream["cooldown_seconds"] else []),
        ]
        return SidecarState(
            level=bucket["level"],
            capacity=bucket["capacity"],
            held=upstream["held_calls"],
            reasons=tuple(reasons),
            transparent=await self._transparent(session),
        )

    async def _transparent(self, session: aiohttp.ClientSession) -> int:
        """The number of transparent retries, which redrive leaves out of X-Attempt-Count."""
        async with session.get(f"{self.admin}/metrics") as answer:
            text = await answer.text()
        lines = (line for line in text.splitlines() if line.startswith("redrive_transparent_retries_total{"))
        return round(sum(float(line.rpartition(" ")[2]) for line in lines))

    async def close(self) -> None:
        """End the sidecar."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
                process.terminate()  # told twice, it ends at once
            try:
                await asyncio.wait_for(process.wait(), _END)
            except TimeoutError:
                process.kill()
        if self._reader is not None:
            await self._reader


def surroundings() -> dict[str, str]:
    """The environment variables for the demo's redrive, without those that would change its policy. It runs in Python
    alone where the demo itself does.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "REDRIVE_"))}
    pure = os.environ.get("REDRIVE_PURE")
    return kept if pure is None else {**kept, "REDRIVE_PURE": pure}


async def _ask(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as answer:
        return await answer.json()


async def _drain(*streams: asyncio.StreamReader) -> None:
    """Read the process's output, so that no pipe fills up."""

    async def read(stream: asyncio.StreamReader) -> None:
        while await stream.read(1 << 16):
            pass

    await asyncio.gather(*(read(stream) for stream in streams))
