"""`redrive demo`: a flaky upstream, redrive in front of it, traffic, and a live view (contract, section 2).

Nothing is staged. The proxy is the real command in its own process, upstream and apps speak HTTP over loopback, and
every figure is counted where it arises: calls by the apps, load by the upstream, tokens by redrive. Three apps make the
same calls at the same instants under the same weather: one never retries, one retries at once, as many times as redrive
may, and one leaves retrying to redrive. The result is shown as a picture, as lines if there is no terminal, or as
figures.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from proxy.lab.demo.play import ROUND, Counts, DemoRun
from proxy.lab.demo.screen import line, picture, verdict
from proxy.lab.demo.sidecar import SidecarError

#: Ctrl-C, a stop from outside, and a terminal that was closed: the proxy must not be left behind.
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def demo(seconds: float | None, as_json: bool) -> int:
    """Play until Ctrl-C, or one round of weather in so many seconds; print figures instead of a picture if `as_json`.
    Returns the exit status.
    """
    try:
        asyncio.run(_until_ended(seconds, as_json))
    except SidecarError as error:
        print(f"redrive: the demo's proxy {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of the output is gone
        raise
    except OSError as error:
        print(f"redrive: the demo can't listen on loopback: {error}", file=sys.stderr)
        return 1
    return 0


async def _until_ended(seconds: float | None, as_json: bool) -> None:
    """Run the demo to its end, or to a signal. `seconds`: how long one round of weather takes and the demo lasts, None
    for until Ctrl-C; `as_json`: print figures instead of a picture.
    """
    loop = asyncio.get_running_loop()
    running = loop.create_task(_demo(seconds, as_json))
    ended = False

    def end() -> None:
        nonlocal ended
        if not ended:  # once: what is being put away is not interrupted
            ended = True
            running.cancel()

    for number in _ENDS:
        loop.add_signal_handler(number, end)
    try:
        await running
    except asyncio.CancelledError:
        if not ended:
            raise


async def _demo(seconds: float | None, as_json: bool) -> None:
    async with DemoRun(ROUND if seconds is None else min(ROUND, seconds)) as play:
        if as_json:
            await play.run(seconds, asyncio.Event())
            print(json.dumps({**play.figures(), "verdict": verdict(play)}, indent=2))
            return
        console = Console()
        console.print(f"admin port: {play.sidecar.admin}", soft_wrap=True)
        if console.is_terminal and not console.is_dumb_terminal:
            with Live(console=console, auto_refresh=False) as live:
                try:
                    await _follow(play, seconds, lambda _: live.update(picture(play, console.width), refresh=True))
                finally:
                    live.update(picture(play, console.width, over=True), refresh=True)
                    live.stop()
                    console.print(verdict(play), soft_wrap=True, highlight=False)
        else:
            await _print_spells(console, play, seconds)


async def _follow(play: DemoRun, seconds: float | None, show: Callable[[bool], None]) -> None:
    """Run the demo `play` to its end, for `seconds` (None: until cancelled), and call `show` at every regular sample of
    its figures; the argument of `show` says whether that was the last one.
    """
    shown = asyncio.Event()
    running = asyncio.create_task(play.run(seconds, shown))
    running.add_done_callback(lambda _: shown.set())
    try:
        while not running.done():
            await shown.wait()
            shown.clear()
            show(running.done())
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _print_spells(console: Console, play: DemoRun, seconds: float | None) -> None:
    """Print a line for each part of the demo's scripted weather (trouble of one kind, or calm) when it is over, and the
    demo's picture at the end, after so many seconds (None: until the demo is interrupted).
    """
    before = [app.counts - Counts() for app in play.apps]
    spell = ""

    def show(last: bool) -> None:
        nonlocal before, spell
        if not play.skies:
            return
        spell = spell or play.skies[-1]
        if last or play.skies[-1] != spell:
            console.print(line(spell, play, before), soft_wrap=True, highlight=False)
            before = [app.counts - Counts() for app in play.apps]
        spell = play.skies[-1]

    try:
        await _follow(play, seconds, show)
    finally:
        console.print(picture(play, console.width, over=True))
        console.print(verdict(play), soft_wrap=True, highlight=False)
