"""The last fifteen minutes as charts, and an upstream's pane in an outage: one process for all that is looked at."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.process import Redrive
from support.scripted import Turn, Upstream, answer

pytest.importorskip("playwright.async_api", reason="playwright is not installed")
from playwright.async_api import Page, expect

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the browser's

Open = Callable[..., Awaitable[Any]]

expect.set_options(timeout=20_000)

CONFIG = """
workers: 2
upstreams:
  slow: {url: URL/slow, strategy: none, pushback: {cooldown: reject}}
  ill: {url: URL/ill, strategy: none, fallback: [backup]}
  backup: {url: URL/well}
  keys: {url: URL/keys, strategy: none, credentials: {header: X-Api-Key, values: [key-a, key-b], pick: first}}
"""

#: The contrast of a colour to the ground behind it, as WCAG 2 computes it.
CONTRAST = """([colour, ground]) => {
    const shade = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).map((part) => part / 255)
            .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const [one, other] = [shade(colour), shade(ground)];
    return Math.max(one, other) / Math.min(one, other);
}"""


async def judge(turn: Turn) -> None:
    await turn.read_body()
    target, key = turn.request.target, turn.request.one("x-api-key")
    if target.startswith("/slow/") or key == "key-a":
        await turn.write(answer(429, b"", "Retry-After: 50"))
    else:
        await turn.write(answer(503 if target.startswith("/ill/") else 200, b"x"))


def row(page: Page, name: str) -> Any:
    return page.locator("#upstream-grid .sheet .row").filter(has=page.locator(f"b:text-is('{name}')"))


#: The marks of the chart of latencies around these two, as its axis words them.
MARKS = """async ([least, most]) => {
    const [{ marks_of_times }, { plain, seconds }] = [await import("/static/chart.js"), await import("/static/dom.js")];
    return marks_of_times([least, most]).map((mark) => plain(seconds(mark)));
}"""


async def test_charts_and_the_pane_in_an_outage(tmp_path: Path, open_page: Open) -> None:
    async with (
        Upstream(judge) as upstream,
        Redrive(tmp_path, CONFIG.replace("URL", upstream.url)) as running,
        aiohttp.ClientSession() as session,
    ):
        page = await open_page(running.admin, color_scheme="dark")
        for path in ("/slow/x?card=4242", "/slow/held", "/ill/a", "/ill/b", "/keys/x", "/keys/y", "/keys/z"):
            async with session.get(running.url + path) as reply:
                await reply.read()

        # What was not sent, and what came from another upstream, does not look like retrying.
        await expect(row(page, "backup").locator(".badge")).to_have_text("taking over")
        await expect(row(page, "backup").locator(".attempts span")).to_have_text("1.00")
        await expect(row(page, "backup").locator(".calls span")).to_have_attribute(
            "title", "and 2 calls from other upstreams, as their fallback"
        )
        await expect(row(page, "slow").locator(".attempts span")).to_have_text("1.00")
        await expect(row(page, "keys").locator(".badge")).to_have_text("key cooling")
        await expect(row(page, "keys").locator(".cooldown span")).to_have_text("1/2 keys")
        await expect(page.locator("[data-total=attempts]")).to_have_text("1.33")  # eight for six calls

        # All upstreams of both workers together, by keyboard, in words.
        calls = page.get_by_role("slider", name="Calls, per second, last 15 minutes")
        await expect(calls).to_have_attribute(
            "aria-label", re.compile(r"calls: 0 to [\d.]+, the most at \d\d:\d\d:\d\d")
        )
        await calls.focus()
        for key in ("Home", "End", "ArrowLeft", "PageUp"):
            await page.keyboard.press(key)
        await expect(page.locator("#overview .when")).to_contain_text("seconds up to")
        await expect(page.locator("#overview .cursor")).to_have_count(3)  # the same moment in every chart
        await page.keyboard.press("Escape")
        await expect(page.locator("#overview .cursor")).to_have_count(0)

        # The marks of times, long ones too, are such as people say, and no line ends before their unit.
        assert await page.evaluate(MARKS, [0.05, 0.2]) == ["10\u00a0ms", "100\u00a0ms", "1\u00a0s"]
        assert await page.evaluate(MARKS, [0.05, 500]) == ["10\u00a0ms", "1\u00a0s", "60\u00a0s", "60\u00a0min"]
        assert await page.evaluate(MARKS, [2, 4000]) == ["100\u00a0ms", "10\u00a0s", "10\u00a0min", "10\u00a0h"]

        # Of one upstream, and who began its cooldown; what an alarm is about stays in sight.
        await row(page, "slow").click()
        pane = page.locator("#upstream-detail")
        await expect(pane.locator(".waits")).to_contain_text("Calls are asked to wait for another")
        await expect(pane.locator(".waits")).to_contain_text("GET /slow/x?card=*** (attempt 1, at 127.0.0.1:")
        await expect(pane.locator(".waits")).to_contain_text("was answered 429, and retry-after asked for 50 s.")
        await expect(pane.locator(".charts .band").first).to_be_visible()
        await expect(pane.get_by_role("slider").first).to_have_attribute(
            "aria-label", re.compile(r"cooldown or outage: \d\d:")
        )
        await pane.locator("h3", has_text="Policy").scroll_into_view_if_needed()
        for figure in ("Cooldown", "Limit", "p95"):
            await expect(pane.locator("dt", has_text=figure)).to_be_in_viewport()
        await pane.get_by_role("button", name="Show this call").click()
        await expect(page.locator("#call-list .story")).to_contain_text("card=***")
        await page.keyboard.press("1")
        await row(page, "keys").click()
        await expect(pane.locator(".waits li")).to_have_text([re.compile("key 1: cooling down"), "key 2: in use"])

        # Lines and hatching are told from their ground (WCAG 2.2, 1.4.11), figures are read (1.4.3), in both themes.
        colours = """([path, name]) => [...document.querySelectorAll(path)].map((each) => [
            getComputedStyle(each)[name], getComputedStyle(each.closest("aside, body")).backgroundColor])"""
        for _ in range(2):
            await page.keyboard.press("t")
            for line, ground, least in (
                (".chart .line", "stroke", 3.0),
                (".chart .hatch", "stroke", 3.0),
                (".chart .tick", "fill", 4.5),
            ):
                found = await page.evaluate(colours, [line, ground])
                assert found
                for pair in found:
                    assert await page.evaluate(CONTRAST, pair) >= least, (line, pair)
