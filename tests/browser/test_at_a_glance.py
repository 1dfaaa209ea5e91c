"""What the page says before anything is clicked: how many are in trouble, in which states, and for what reasons."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from support.capacity import CapacityServer
from support.process import Redrive
from support.scripted import Upstream, answer

pytest.importorskip("playwright.async_api", reason="playwright is not installed")
from browser.conftest import Open
from browser.test_dashboard import FAST, Moody, call, expect, row

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the browser's

#: One retry is paid for.
SMALL = "    bucket: {kind: quota, capacity: 5, retry_cost: 5}\n"


async def test_states_and_reasons_of_few_upstreams(tmp_path: Path, open_page: Open) -> None:
    async with Moody(503) as down, Moody() as fine:
        config = f"{FAST}upstreams:\n  shop:\n    url: {down.url}\n{SMALL}  mail: {{url: {fine.url}}}\n"
        async with Redrive(tmp_path, config) as running:
            await call(running, "/shop/v1/items", 4)
            await call(running, "/mail/send", 4)
            page = await open_page(running.admin)
            await expect(row(page, "shop").locator(".badge")).to_have_text("failing")
            await expect(row(page, "shop").locator(".also").first).to_have_text("bucket empty")
            await expect(page.locator("#count-upstreams")).to_have_text("1")
            await expect(page.locator("#count-upstreams")).to_have_attribute("data-tone", "bad")
            reason = page.locator("#reasons li").first
            await expect(reason).to_contain_text("bucket_empty")
            await expect(reason).to_contain_text("the bucket has 0, and a retry costs 5")
            await expect(reason).to_contain_text("What helps: ")
            await row(page, "shop").click()
            await expect(page.locator("aside")).to_contain_text("point at a chart")
            said = await page.locator("aside").inner_text()
            assert said.index("How its calls ended") < said.index("point at a chart"), "above the charts"
            await reason.locator("button").click()
            await expect(page.locator("#call-list .story")).to_contain_text("bucket_empty")


async def test_what_holds_calls_is_said_before_anything_is_clicked(tmp_path: Path, open_page: Open) -> None:
    async with (
        CapacityServer(places=100, seconds=0.0) as upstream,
        Redrive(tmp_path, f"upstreams:\n  shop: {{url: {upstream.url}}}\n") as running,
    ):
        await call(running, "/shop/items", 20)
        page = await open_page(running.admin)
        await expect(row(page, "shop").locator(".badge")).to_have_text("")
        await expect(page.locator("#holding")).to_be_hidden()
        await upstream.stop()
        held = asyncio.create_task(call(running, "/shop/items"))
        await expect(row(page, "shop").locator(".holds")).to_have_text("1 held")
        said = page.locator("#holding li")
        await expect(said).to_contain_text("1 call is held now by the upstream's outage.")
        await expect(said).to_contain_text("An outage since ")
        await expect(said).to_contain_text("connect_failure")
        await said.locator("button").focus()
        before = await said.inner_text()
        await expect(said).not_to_have_text(before, use_inner_text=True)
        await expect(said.locator("button")).to_be_focused()  # its text changes each second
        await said.locator("button").click()
        await expect(page.locator("aside h2")).to_have_text("shop")
        await upstream.start()
        await held
        await expect(page.locator("#holding")).to_be_hidden()
        await expect(row(page, "shop").locator(".holds")).to_have_text("")


async def test_which_answer_began_a_cooldown_is_said_before_anything_is_clicked(
    tmp_path: Path, open_page: Open
) -> None:
    async with (
        CapacityServer(places=100, seconds=0.0) as upstream,
        Redrive(
            tmp_path, f"upstreams:\n  shop:\n    url: {upstream.url}\n    pushback: {{max_delay: 300s, hold: 300s}}\n"
        ) as running,
    ):
        page = await open_page(running.admin)
        upstream.throttled = 200
        waits = asyncio.create_task(call(running, "/shop/items"))
        said = page.locator("#holding li")
        await expect(said).to_contain_text("Since ")
        await expect(said).to_contain_text(": an answer 429 asked callers to wait for 3 min, of which 3 min are left.")
        waits.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waits


async def test_a_few_failures_are_not_as_red_as_many(tmp_path: Path, open_page: Open) -> None:
    async with (
        Upstream(answer(400), *[answer(200)] * 19) as rare,
        Upstream(answer(400), *[answer(200)] * 2) as often,
    ):
        config = f"{FAST}upstreams:\n  rare: {{url: {rare.url}}}\n  often: {{url: {often.url}}}\n"
        async with Redrive(tmp_path, config) as running:
            await call(running, "/rare/x", 20)
            await call(running, "/often/x", 3)
            page = await open_page(running.admin)
            await expect(row(page, "rare").locator(".success span").last).to_have_text("95.0 %")
            await expect(row(page, "rare").locator(".success span").last).to_have_attribute("data-tone", "wait")
            await expect(row(page, "often").locator(".success span").last).to_have_attribute("data-tone", "bad")
            await expect(page.locator("#count-upstreams")).to_have_text("2")
            assert await page.locator("#count-upstreams").get_attribute("data-tone") is None


async def test_how_many_calls_are_held_is_not_cut_on_a_phone(tmp_path: Path, open_page: Open) -> None:
    async with (
        CapacityServer(places=100, seconds=0.0) as upstream,
        Redrive(
            tmp_path,
            f"upstreams:\n  inventory:\n    url: {upstream.url}\n    pushback: {{max_delay: 300s, hold: 300s}}\n",
        ) as running,
    ):
        upstream.throttled = 200
        await call(running, "/inventory/items", headers={"X-Retry-Disable": "true"})
        waits = [asyncio.create_task(call(running, "/inventory/items"))]
        page = await open_page(running.admin, viewport={"width": 390, "height": 844}, is_mobile=True)
        shown = row(page, "inventory")
        await expect(shown.locator(".badge").first).to_have_text("cooling down")
        waits += [asyncio.create_task(call(running, "/inventory/items")) for _ in range(120)]
        await expect(shown.locator(".also").first).to_have_text("failing")
        await expect(shown.locator(".holds")).to_have_text("120 held")
        held, cell = await shown.locator(".holds").bounding_box(), await shown.locator(".cell.name").bounding_box()
        assert held is not None and cell is not None
        assert held["x"] + held["width"] <= cell["x"] + cell["width"], "the second state is what is shortened"
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def test_rows_of_calls_are_equally_high_whatever_their_path(tmp_path: Path, open_page: Open) -> None:
    async with Moody() as upstream, Redrive(tmp_path, f"{FAST}upstreams: {{a: {{url: {upstream.url}}}}}\n") as running:
        for path in ("/a/x", "/a/x?page=7", "/a/very/long/way/that/leads/to/orders/4711/items?page=7"):
            await call(running, path)
        page = await open_page(running.admin)
        await page.locator("#tab-calls").click()
        rows = page.locator("li > button.call")
        await expect(rows).to_have_count(3)
        heights = {await each.evaluate("row => row.getBoundingClientRect().height") for each in await rows.all()}
        assert len(heights) == 1, "a path stands on the line of its method"


async def test_a_path_keeps_its_end_on_a_phone(tmp_path: Path, open_page: Open) -> None:
    async with Moody() as upstream, Redrive(tmp_path, f"{FAST}upstreams: {{a: {{url: {upstream.url}}}}}\n") as running:
        await call(running, "/a/a/very/long/way/that/leads/to/orders/4711/items?page=7")
        page = await open_page(running.admin, viewport={"width": 390, "height": 844}, is_mobile=True)
        await page.locator("#tab-calls").click()
        tail = page.locator("button.call .tail")
        await expect(tail).to_have_text("orders/4711/items"[-16:])
        box = await tail.bounding_box()
        assert box is not None and box["x"] + box["width"] <= 390 - 60, "it stands left of the time that the call took"
        assert await tail.evaluate("element => element.scrollWidth <= element.clientWidth + 1")


async def test_four_hundred_upstreams_on_a_phone(tmp_path: Path, open_page: Open) -> None:
    async with Moody(503) as down, Moody() as fine:
        named = [f"  service-{n:03d}-with-a-name: {{url: {down.url if n == 234 else fine.url}}}" for n in range(400)]
        async with Redrive(tmp_path, f"{FAST}upstreams:\n" + "\n".join(named) + "\n") as running:
            for n in (0, 234, 399):
                await call(running, f"/service-{n:03d}-with-a-name/v1/items", 2)
            page = await open_page(running.admin, viewport={"width": 390, "height": 844}, is_mobile=True)
            rows = page.locator("#upstream-grid .sheet .row")
            await expect(rows.first.locator(".badge")).to_have_text("failing")
            await expect(rows.first.locator("b").first).to_contain_text("service-234")
            assert 5 < await rows.count() < 40, "those in sight, and a few more"
            assert await page.evaluate("document.documentElement.scrollWidth") == 390
            assert len(await page.screenshot()) > 10_000
