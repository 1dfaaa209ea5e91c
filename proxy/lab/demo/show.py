"""`redrive demo` itself: the run with its picture, or with its figures."""

from __future__ import annotations

import asyncio
import json
import sys

from rich.console import Console
from rich.live import Live

from proxy.lab.demo.play import ROUND, Play
from proxy.lab.demo.screen import picture
from proxy.lab.demo.sidecar import SidecarError


def demo(seconds: float | None, as_json: bool) -> int:
    """Play until Ctrl-C, or for so many seconds, which then hold one round of weather. The exit status."""
    try:
        asyncio.run(_demo(seconds, as_json))
    except KeyboardInterrupt:
        return 0
    except SidecarError as error:
        print(f"redrive: the demo's proxy did not start: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"redrive: the demo can't listen on loopback: {error}", file=sys.stderr)
        return 1
    return 0


async def _demo(seconds: float | None, as_json: bool) -> None:
    async with Play(ROUND if seconds is None else min(ROUND, seconds)) as play:
        if as_json:
            await play.run(seconds, asyncio.Event())
            print(json.dumps(play.figures(), indent=2))
            return
        console = Console()
        console.print(f"admin port: {play.sidecar.admin}")
        shown = asyncio.Event()
        with Live(console=console, auto_refresh=False) as live:
            running = asyncio.create_task(play.run(seconds, shown))
            running.add_done_callback(lambda _: shown.set())
            try:
                while not running.done():
                    await shown.wait()
                    shown.clear()
                    live.update(picture(play), refresh=True)
                await running
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
