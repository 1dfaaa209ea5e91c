"""Three clicks: who never saw this page finds out why a call was, or was not, retried, whatever came of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.ports import free_port
from support.process import Redrive
from support.scripted import Turn, Upstream, answer

pytest.importorskip("playwright.async_api", reason="playwright is not installed")
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the browser's

Open = Callable[..., Awaitable[Any]]

CONFIG = """
buckets:
  poor: {{kind: quota, capacity: 4}}
  pace: {{kind: rate, rate: 1/m, burst: 1, when_empty: reject}}
strategies:
  fast: {{kind: standard, backoff: {{base: 1ms, max: 2ms}}}}
  hedge: {{kind: hedging, hedging_delay: 20ms}}
defaults: {{strategy: fast, bucket: off, pushback: {{cooldown: off}}}}
upstreams:
  saved: {{url: "{url}"}}
  fallen: {{url: "{url}", fallback: [saved]}}
  gone: {{url: "{url}"}}
  unnamed: {{url: "{url}"}}
  unsafe: {{url: "{url}"}}
  exhausted: {{url: "{url}"}}
  poor: {{url: "{url}", bucket: poor}}
  stopped: {{url: "{url}"}}
  too-long: {{url: "{url}"}}
  late: {{url: "{url}", timeouts: {{total: 3s}}}}
  no-time: {{url: "{url}", timeouts: {{total: 5s}}}}
  broken: {{url: "{url}"}}
  disabled: {{url: "{url}", mode: "off"}}
  paced: {{url: "{url}", rate: pace}}
  cooling: {{url: "{url}", pushback: {{cooldown: reject}}}}
  cooled: {{url: "{url}", pushback: {{cooldown: wait}}}}
  held: {{url: "{url}", pushback: {{cooldown: wait}}}}
  hedged: {{url: "{url}", strategy: hedge}}
  tripped: {{url: "{url}", strategy: none, circuit_breaker: {{minimum_attempts: 1, open: 1h}}}}
  dead: {{url: "http://127.0.0.1:{dead}"}}
"""

#: Which upstream, the words that have to be there, in the order in which they stand.
TOLD = {
    "saved": ("transient: 503", "retried after", "passed to the app", "success"),
    "fallen": (
        *("→ saved", "to fallen", "the call went on at another upstream: attempts_exhausted: that was the last of 3"),
        *("to saved", "passed to the app", "Taken over by saved (attempts_exhausted)."),
    ),
    "gone": ("the app went away", "client_gone", "The app went away before its answer came."),
    "unnamed": ("not named: 404", "not retried: not_retryable, since nothing names it as retryable"),
    "unsafe": ("transient: 503", "not_retryable, since POST may have been carried out, and is not idempotent"),
    "exhausted": ("retried after", "not retried: attempts_exhausted, since that was the last of 3 attempts"),
    "poor": ("not retried: bucket_empty, since the bucket has 4, and a retry costs 5",),
    "stopped": ("not retried: pushback_stop, since the upstream said not to retry (x-should-retry)",),
    "too-long": (
        "the upstream said retry-after: 60 min",
        "pushback_too_long, since retry-after names 3600 s, more than pushback.max_delay, 60 s",
    ),
    "late": ("the deadline came first", "not retried: deadline", "The call ran out of time"),
    "no-time": ("the upstream said retry-after: 20 s", "deadline, since the next attempt would begin in 20 s"),
    "broken": ("in the middle of its answer", "committed, since its answer had begun to go to the app"),
    "disabled": ("not retried: disabled, since the mode is off",),
    "paced": ("rate_limited", "the upstream's rate bucket is empty"),
    "cooling": ("cooling", "or its policy answers at once (cooldown: reject)"),
    "cooled": ("cooling", "for longer than this call may be held"),
    "tripped": ("circuit_open", "its circuit breaker is open: calls are answered at once until a probe succeeds"),
    "dead": ("sent again at once, for free", "the connection was refused", "that was the last of 3 attempts"),
    "hedged": ("cancelled: another attempt ended the call", "passed to the app"),
    "unmatched": ("not sent: denied", "denied", "the address is on the deny list"),
    "(refused)": ("bad_request", "no upstream has this host, or a prefix that the path begins with"),
}


async def behave(turn: Turn) -> None:
    """The path says what is done to the first attempt; later ones succeed where it says so."""
    await turn.read_body()
    words = turn.request.target.strip("/").split("/")
    word = words[min(int(turn.request.one("x-attempt-count") or 1), len(words)) - 1]
    match word.partition("="):
        case ("hang", _, _):
            await turn.gone()
        case ("cut", _, _):
            await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
            turn.close()
        case ("wait", _, seconds):
            await turn.write(answer(503, b"", f"Retry-After: {seconds}"))
        case ("stop", _, _):
            await turn.write(answer(503, b"", "x-should-retry: false"))
        case (status, _, _):
            await turn.write(answer(int(status)))


FIRST = (
    "/fallen/503/503/503/200",
    "/saved/503/200", "/unnamed/404", "/exhausted/503", "/poor/503", "/stopped/stop", "/too-long/wait=3600",
    "/late/hang", "/no-time/wait=20", "/broken/cut", "/disabled/503", "/dead/x", "/hedged/hang/200", "/paced/200",
    "/nowhere",
)  # fmt: skip


async def everything(running: Redrive, upstream: Upstream) -> None:
    """Have everything happen."""
    async with aiohttp.ClientSession() as session:

        async def call(path: str, method: str = "GET", **headers: str) -> None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.request(method, f"{running.url}{path}", headers=headers) as reply:
                    await reply.read()

        soon = {"X-Retry-Timeout": "10s"}  # its own retry would wait longer
        waits = (call("/cooling/wait=30", **soon), call("/cooled/wait=30", **soon))
        await asyncio.gather(*map(call, FIRST), call("/unsafe/503", "POST"), *waits)
        in_vain = call("/cooled/200", **{"X-Retry-Timeout": "2s"})
        await call("/tripped/503")
        await call("/tripped/200")
        await call("/held/wait=5", **{"X-Retry-Timeout": "4s"})
        await asyncio.gather(call("/paced/200"), call("/cooling/200"), call("/held/200"), in_vain)
        async with session.get("http://169.254.169.254/", proxy=running.url) as reply:
            assert reply.status == 403
        gone = asyncio.create_task(call("/gone/hang/gone"))
        while not any(request.target == "/hang/gone" for request in upstream.requests):
            await upstream.until(len(upstream.requests) + 1)
        gone.cancel()


async def test_three_clicks_say_why(tmp_path: Path, open_page: Open) -> None:
    async with (
        Upstream(behave) as upstream,
        Redrive(tmp_path, "workers: 3\n" + CONFIG.format(url=upstream.url, dead=free_port())) as running,
    ):
        await everything(running, upstream)
        page = await open_page(running.admin)
        for name, told in TOLD.items():
            await page.keyboard.press("1")
            row = page.locator("#upstream-grid .sheet .row").filter(has=page.locator(f"b:text-is('{name}')"))
            await page.locator("#upstream-filter").fill("" if name == "(refused)" else name)
            await row.click()
            await page.locator("aside .latest").first.click()
            story = page.locator("#call-list .story").first
            await expect(story).to_be_visible()
            shown = await page.locator("button.call[aria-expanded=true]").first.inner_text()
            text = " ".join(f"{shown} {await story.inner_text()}".split())
            at = 0
            for words in told:
                assert words in text[at:], (name, words, text)
                at = text.index(words, at)
            await page.keyboard.press("Escape")
        await page.locator("#call-upstream button").click()
        await page.locator("#call-kind").select_option("all")
        await page.locator("#call-filter").fill("held/200")
        await page.locator("button.call").click()
        await expect(page.locator(".story")).to_contain_text("by the upstream's cooldown")
        await expect(page.locator(".story .lane .wait")).to_have_count(1)
