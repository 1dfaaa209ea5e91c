"""Calls in the dashboard: links that lead back to what was seen, columns, and what can be taken away of a call."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.process import Redrive
from support.scripted import Turn, Upstream, answer

pytest.importorskip("playwright.async_api", reason="playwright is not installed")
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the browser's

Open = Callable[..., Awaitable[Any]]
expect.set_options(timeout=20_000)

CONFIG = """
strategies: {{fast: {{kind: standard, backoff: {{base: 1ms, max: 2ms}}}}}}
defaults: {{strategy: fast}}
upstreams:
  payments: {{url: "{url}"}}
  search: {{url: "{url}", prefix: /find, strategy: none}}
  queue: {{url: "{url}", concurrency: {{max: 1, queue: 5, wait: 50ms}}}}
"""


async def call(running: Redrive, path: str, **options: Any) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{running.url}{path}", **options) as reply:
        await reply.read()


class Gate(Upstream):
    """Answers 503 below /down, 200 elsewhere, and `/payments/slow` once `opened` is set."""

    def __init__(self) -> None:
        self.opened, self.came = asyncio.Event(), asyncio.Event()
        super().__init__(self._step)

    async def _step(self, turn: Turn) -> None:
        await turn.read_body()
        if "slow" in turn.request.target:
            self.came.set()
            await self.opened.wait()
        await turn.write(answer(503 if "down" in turn.request.target else 200, b"x"))


async def test_calls_can_be_linked_sorted_and_taken_away(tmp_path: Path, open_page: Open) -> None:
    async with Gate() as upstream, Redrive(tmp_path, CONFIG.format(url=upstream.url)) as running:
        slow = asyncio.create_task(call(running, "/payments/slow"))
        await upstream.came.wait()
        await call(running, "/payments/down?card=4242&a='b")
        await call(running, "/find/down")
        upstream.opened.set()
        await slow
        page = await open_page(running.admin, quiet=("404",), permissions=["clipboard-read", "clipboard-write"])

        # Outcome counts lead to their calls. (The latest calls, which are drawn sooner, name their outcome too.)
        await page.locator("#upstream-grid .sheet .row").filter(has=page.locator("b:text-is('payments')")).click()
        await expect(page).to_have_url(f"{running.admin}/#upstreams?upstream=payments")
        await page.locator("aside").get_by_role("button", name="attempts_exhausted", exact=True).click()
        await expect(page.locator("#call-upstream")).to_contain_text("upstream: payments, outcome: attempts_exhausted")
        paths = page.locator("li > button.call .path")
        await expect(paths).to_have_text(["/payments/down?card=***&a=***"])
        await expect(page).to_have_url(f"{running.admin}/#calls?upstream=payments&outcome=attempts_exhausted")

        # By when they began, whichever ended first; and by other columns.
        await page.get_by_role("button", name="Calls of every upstream and outcome").click()
        await expect(paths).to_have_text(["/find/down", "/payments/down?card=***&a=***", "/payments/slow"])
        await page.get_by_role("button", name="Attempts", exact=True).click()
        await expect(paths.first).to_have_text("/payments/down?card=***&a=***")
        await page.keyboard.press("Enter")  # the other way round
        await expect(paths.last).to_have_text("/payments/down?card=***&a=***")
        await page.locator("#call-filter").fill("payments")
        await page.locator("li > button.call", has_text="card").click()
        await expect(page.locator(".story .verdict")).to_contain_text("attempts_exhausted")
        seen = page.url
        assert "q=payments" in seen
        assert "sort=chips" in seen
        assert "call=" in seen

        # Back, forward, reload and a link show what was seen.
        await page.go_back()
        await expect(page.locator(".story")).to_have_count(0)
        await page.go_forward()
        await expect(page.locator(".story")).to_have_count(1)
        await page.reload()
        await expect(page.locator(".story")).to_contain_text("card=***")
        await expect(page.locator("#call-filter")).to_have_value("payments")
        await expect(paths).to_have_text(["/payments/slow", "/payments/down?card=***&a=***"])
        assert page.url == seen

        async def taken(button: str) -> str:
            await page.get_by_role("button", name=button).click()
            await expect(page.locator(".actions [role=status]")).to_contain_text("Copied")
            return str(await page.evaluate("navigator.clipboard.readText()"))

        await page.get_by_role("button", name="Explain this call").click()
        explained = page.get_by_role("region", name="Explanation")
        await expect(explained).to_contain_text("If every attempt ends with 503")
        await expect(explained).to_contain_text("not retried: attempts_exhausted")
        await explained.get_by_text("Where each value comes from").click()
        await expect(explained.locator("tr", has_text="strategy.backoff.base")).to_contain_text("redrive.yaml:4")
        comment, command, _ = (await taken("Copy as curl")).split("\n")
        words = shlex.split(command)
        assert (words[0], words[-1]) == ("curl", f"{running.url}/payments/down?card=***&a=***")
        assert comment.startswith("# what is masked stands as three asterisks")
        assert not set(comment) & set("*'\"`$;&|<>()!\\")  # a shell that takes # for no comment does nothing with it
        data = json.loads(await taken("Copy as JSON"))
        one = f"{running.admin}/requests/{data['number']}"
        async with aiohttp.ClientSession() as session, session.get(one) as reply:
            assert await reply.json() == data
        link = await taken("Copy link")
        await page.goto("about:blank")
        await page.goto(link)
        await expect(page.locator(".story")).to_contain_text("card=***")
        await expect(page.locator("li > button.call[aria-expanded=true]")).to_be_focused()
        await page.goto(link.replace("call=", "call=9"))
        await expect(page.locator("#call-list > .gone")).to_contain_text("is no longer kept")
        await page.goto(f"{running.admin}/#config?upstream=payments&q=backoff.base")
        await expect(page.locator("#values h2")).to_have_text("payments")
        await expect(page.locator("#values tbody tr")).to_have_count(1)

        # What if it had another policy? Checked while it is typed, played when asked for; the file stays as it is.
        written = running.file.read_text()
        await page.get_by_role("button", name="What if…").focus()
        await page.keyboard.press("Enter")
        draft = page.get_by_role("textbox", name="The policy of payments, as YAML")
        await draft.fill("mode: maybe\n")
        await expect(page.locator(".lines .bad")).to_contain_text("line 1, column 7 mode: ")
        await page.get_by_role("button", name="line 1, column 7").focus()
        await page.keyboard.press("Enter")
        await expect(draft).to_be_focused()
        assert await draft.evaluate("field => field.selectionStart") == 6
        await draft.fill("strategy: none\n")
        await page.keyboard.press("Control+Enter")
        await expect(page.locator(".sums")).to_contain_text("2 less")
        await expect(page.locator("table.trial tbody tr")).to_contain_text("3 attempts")
        await expect(page.locator("table.trial tbody tr")).to_contain_text("1 attempt,")
        assert "try=1" in page.url
        assert running.file.read_text() == written
        await page.get_by_role("button", name="Back to its values").click()
        await expect(page.locator("#values h2")).to_have_text("payments")

        # A quote in a call is no way out of the command.
        made = await page.evaluate("""async () => {
            const { curl } = await import("/static/copy.js");
            const call = { method: "G'E`T", host: "a.example", path: "/x'$(id)'`id`", endpoint: "a.example:443" };
            return curl(call, undefined, ["127.0.0.1:8080"]);
        }""")
        assert shlex.split(made.split("\n")[1]) == ["curl", "-i", "-g", "-X", "G'E`T", "https://a.example/x'$(id)'`id`"]

        # A call that waited until its end was held: that is no attempt, and no 0 either.
        upstream.opened.clear()
        upstream.came.clear()
        await page.goto(f"{running.admin}/#calls")
        first = asyncio.create_task(call(running, "/queue/slow"))
        await upstream.came.wait()
        await call(running, "/queue/held")
        held = page.locator("li > button.call", has_text="/queue/held")
        await expect(held.locator(".chip")).to_contain_text("held ")
        await held.click()
        await expect(page.locator(".story")).to_contain_text("No attempt was made: the call was held for")
        upstream.opened.set()
        await first


async def test_the_call_of_a_link_is_whole_whichever_answer_comes_first(tmp_path: Path, open_page: Open) -> None:
    """The page asks for the call, for the last calls and for the upstreams at the same time."""
    async with Gate() as upstream, Redrive(tmp_path, CONFIG.format(url=upstream.url)) as running:
        for _ in range(120):  # more than the page lists at first
            await call(running, "/find/down")
        page = await open_page(running.admin)
        story = page.locator("#call-list .story")
        opened = asyncio.Event()

        async def later(route: Any) -> None:
            await opened.wait()
            await route.continue_()

        for path in ("upstreams", "requests?*"):
            await page.route(f"**/{path}", later)
        await page.goto("about:blank")
        await page.goto(f"{running.admin}/#calls?kind=notable&call=1")
        await expect(story).to_contain_text("attempts_exhausted")
        opened.set()
        await expect(story).to_contain_text("What if")
        await expect(story).to_contain_text("at most 1 attempt")
        await expect(page.locator("li > button.call")).to_have_count(120)
        await expect(story).to_be_in_viewport()
