"""What somebody sees who looks at the dashboard."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.ports import free_port
from support.process import LISTEN, Redrive
from support.scripted import Turn, Upstream, answer, hang

pytest.importorskip("playwright.async_api", reason="playwright is not installed")
from playwright.async_api import Page, expect

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the browser's

Open = Callable[..., Awaitable[Any]]

#: The board speaks about once a second, and a busy machine takes its time.
expect.set_options(timeout=20_000)

FAST = "strategies: {fast: {kind: standard, backoff: {base: 1ms, max: 2ms}}}\ndefaults: {strategy: fast}\n"


class Moody(Upstream):
    """An upstream that answers with `status` until it is told another one."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        super().__init__(self._step)

    async def _step(self, turn: Turn) -> None:
        await turn.read_body()
        await turn.write(answer(self.status, b"x"))


def config(upstream: Upstream, more: str = "") -> str:
    return f"{FAST}upstreams:\n  payments:\n    url: {upstream.url}\n{more}"


async def call(running: Redrive, path: str, times: int = 1, **options: Any) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(times):
            async with session.get(f"{running.url}{path}", **options) as reply:
                await reply.read()


def row(page: Page, name: str) -> Any:
    return page.locator("#upstream-grid .sheet .row").filter(has=page.locator(f"b:text-is('{name}')"))


async def test_an_upstream_fails_and_recovers(tmp_path: Path, open_page: Open) -> None:
    async with Moody() as upstream, Redrive(tmp_path, config(upstream)) as running:
        page = await open_page(running.admin)
        await expect(row(page, "payments")).to_have_attribute("data-state", "quiet")
        await call(running, "/payments/fine")
        await expect(row(page, "payments").locator(".success")).to_contain_text("100 %")
        upstream.status = 503
        await call(running, "/payments/broken?card=4242", 3)
        await expect(row(page, "payments").locator(".badge")).to_have_text("failing")
        await expect(row(page, "payments").locator(".attempts")).to_have_text("2.50")
        await expect(page.locator("[data-total=success]")).to_have_text("25.0 %")
        # Three clicks: the upstream, the call, and there stands why.
        await row(page, "payments").click()
        await page.locator("aside .latest").first.click()
        story = page.locator("#call-list .story").first
        await expect(story.locator(".waterfall > li")).to_have_count(3)
        await expect(story.locator(".waterfall > li").first).to_contain_text("transient: 503")
        await expect(story.locator(".waterfall > li").first).to_contain_text("→ retried after")
        await expect(story.locator(".waterfall > li").nth(1)).to_contain_text("paid 5 tokens")
        await expect(story.locator(".waterfall > li").last).to_contain_text("→ not retried: attempts_exhausted")
        await expect(story.locator(".verdict")).to_contain_text("Every attempt that the policy allows was made.")
        await expect(story).to_contain_text("card=***")
        assert "4242" not in await page.content()
        upstream.status = 200
        await call(running, "/payments/again", 5)
        await page.keyboard.press("1")
        await expect(row(page, "payments").locator(".badge")).to_have_text("errors")
        await expect(row(page, "payments").locator(".success")).to_contain_text("66.7 %")
        await page.locator("#span").select_option("all")
        await expect(row(page, "payments").locator(".calls")).to_have_text("9")


async def test_a_retried_success_is_told_from_a_plain_one(tmp_path: Path, open_page: Open) -> None:
    async with (
        Upstream(answer(503), answer(200), answer(200)) as upstream,
        Redrive(tmp_path, config(upstream)) as running,
    ):
        await call(running, "/payments/x", 2)
        page = await open_page(running.admin)
        share = row(page, "payments").locator(".success span").last
        await expect(share).to_have_text("100 %")
        await expect(share).to_have_attribute("title", "1 with the first attempt, 1 after retries, 0 failed")
        await page.locator("#tab-calls").click()
        await expect(page.locator("button.call")).to_have_count(2)
        await page.locator("#call-kind").select_option("notable")
        await expect(page.locator("button.call")).to_have_count(1)
        await expect(page.locator("button.call .chip")).to_have_text(["503", "200"])
        await page.locator("#call-kind").select_option("failed")
        await expect(page.locator("#call-list .empty")).to_contain_text("No recorded call matches.")
        await page.get_by_role("button", name="Show all calls").click()
        await expect(page.locator("button.call")).to_have_count(2)
        await page.locator("#call-filter").fill("transient")  # a number might be a port's
        await expect(page.locator("button.call")).to_have_count(1)


async def test_a_reload_with_errors(tmp_path: Path, open_page: Open) -> None:
    async with Moody() as upstream, Redrive(tmp_path, config(upstream)) as running:
        good = running.file.read_text()
        page = await open_page(running.admin, quiet=("422",))
        await page.keyboard.press("3")
        await expect(page.locator("#places .row")).to_have_count(2)
        await page.locator("#places .row", has_text="payments").click()
        await expect(page.locator("#values tr", has_text="strategy.backoff.base")).to_contain_text("1ms")
        await expect(page.locator("#values tr", has_text="strategy.backoff.base")).to_contain_text("redrive.yaml:3")
        running.file.write_text(good + "    strategie: patient\n")
        await page.get_by_role("button", name="Reload the file").click()
        line = len(good.splitlines()) + 1
        await expect(page.locator("#reload-result")).to_contain_text("Refused: 1 error")
        await expect(page.locator(".problems.bad")).to_contain_text(
            f"redrive.yaml:{line}:5: upstreams.payments.strategie"
        )
        await expect(page.locator(".problems.bad")).to_contain_text("did you mean strategy?")
        await page.keyboard.press("1")
        await expect(page.locator(".notice.bad")).to_contain_text("the earlier configuration stays in force")
        running.file.write_text(good.replace("payments:", "billing:"))
        running.signal(signal.SIGHUP)
        await expect(row(page, "billing")).to_be_visible()
        await expect(row(page, "payments")).to_have_count(0)
        await expect(page.locator(".notice.bad")).to_have_count(0)
        await page.keyboard.press("3")
        await expect(page.locator("#places")).to_contain_text("billing")


@pytest.mark.parametrize("workers", [1, 3])
async def test_it_comes_back_after_a_restart(tmp_path: Path, open_page: Open, workers: int) -> None:
    listen = f"workers: {workers}\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:{free_port()}\n"
    async with Moody() as upstream:
        async with Redrive(tmp_path, config(upstream), listen=listen) as running:
            await call(running, "/payments/before")
            page = await open_page(running.admin)
            await page.keyboard.press("2")
            await expect(page.locator("button.call")).to_contain_text("/payments/before")
            running.signal(signal.SIGTERM)
            await running.ended()
            await expect(page.locator("#link")).to_contain_text("no answer")
            await expect(page.locator(".notice.bad")).to_contain_text("redrive does not answer")
            await expect(page.locator("button.call")).to_contain_text("/payments/before")
        async with Redrive(tmp_path, config(upstream), listen=listen) as running:
            await call(running, "/payments/after")
            await expect(page.locator("#link")).to_have_text("live")
            await expect(page.locator(".notice.info")).to_contain_text("restarted")
            await expect(page.locator("button.call")).to_have_count(1)
            await expect(page.locator("button.call")).to_contain_text("/payments/after")
            await page.get_by_role("button", name="Dismiss").click()
            await expect(page.locator(".notice")).to_have_count(0)


async def test_by_keyboard_alone(tmp_path: Path, open_page: Open) -> None:
    more = "  alpha: {url: 'http://127.0.0.1:1'}\n  beta: {url: 'http://127.0.0.1:1/b'}\n"
    async with Moody() as upstream, Redrive(tmp_path, config(upstream, more)) as running:
        await call(running, "/alpha/a")
        page = await open_page(running.admin)
        await page.keyboard.press("/")
        await expect(page.locator("#upstream-filter")).to_be_focused()
        await page.keyboard.type("a")
        await expect(page.locator("#upstream-grid .sheet .row")).to_have_count(3)
        await page.keyboard.type("lpha")
        await expect(page.locator("#upstream-grid .sheet .row")).to_have_count(1)
        await page.keyboard.press("Escape")
        await expect(page.locator("#upstream-filter")).to_have_value("")
        await page.keyboard.press("Escape")
        await page.keyboard.press("1")
        grid = page.get_by_role("grid", name="Upstreams")
        await expect(grid).to_be_focused()
        await expect(grid).to_have_attribute("aria-rowcount", "3")
        sorted_by = page.locator("#upstream-grid [aria-sort]")
        await page.keyboard.press("s")
        await expect(sorted_by).to_have_text("Upstream")
        await expect(sorted_by).to_have_attribute("aria-sort", "ascending")
        await expect(page.locator("#upstream-grid .sheet .row[aria-rowindex='1']")).to_contain_text("alpha")
        await page.keyboard.press("Shift+S")
        await expect(sorted_by).to_have_attribute("aria-sort", "descending")
        await expect(page.locator("#upstream-grid .sheet .row[aria-rowindex='1']")).to_contain_text("payments")
        await page.keyboard.press("Shift+S")
        await page.keyboard.press("Home")
        chosen = page.locator("#upstream-grid .row.chosen")
        await expect(chosen).to_contain_text("alpha")
        identity = await chosen.get_attribute("id")
        await expect(grid).to_have_attribute("aria-activedescendant", str(identity))
        await page.keyboard.press("Enter")
        await expect(page.locator("aside h2")).to_have_text("alpha")
        await page.keyboard.press("Escape")
        await expect(page.locator("aside")).to_be_hidden()
        await expect(grid).to_be_focused()
        await page.keyboard.press("c")
        await expect(page.locator("#call-upstream")).to_contain_text("upstream: alpha")
        await expect(page.locator("button.call").first).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator(".story")).to_contain_text("no connection")
        await page.keyboard.press("p")
        await expect(page.locator("#link")).to_have_text("paused")
        await call(running, "/alpha/while-paused")
        await page.keyboard.press("p")
        await expect(page.locator("button.call", has_text="while-paused")).to_be_visible()
        await page.keyboard.press("?")
        await expect(page.locator("#help-dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.keyboard.press("t")
        await expect(page.locator("html")).to_have_attribute("data-theme", "light")
        await page.keyboard.press("t")
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_on_a_phone(tmp_path: Path, open_page: Open) -> None:
    more = f"  {'a-long-name-' * 8}: {{url: 'http://127.0.0.1:1'}}\n"
    async with Moody(503) as upstream, Redrive(tmp_path, config(upstream, more)) as running:
        await call(running, f"/payments/{'deep/' * 60}")
        page = await open_page(running.admin, viewport={"width": 360, "height": 700}, has_touch=True, is_mobile=True)

        async def fits() -> None:
            wide = "() => document.scrollingElement.scrollWidth <= innerWidth && innerWidth <= 360"
            assert await page.evaluate(wide)

        await expect(row(page, "payments")).to_be_visible()
        await fits()
        await row(page, "payments").tap()
        await expect(page.locator("aside h2")).to_have_text("payments")
        box = await page.locator("aside").bounding_box()
        assert box is not None
        assert (box["x"], box["width"]) == (0, 360)
        await fits()
        await page.get_by_role("button", name="Its calls").tap()
        apart = "[time, of] = ['time', '.of'].map((s) => document.querySelector(`.call ${s}`).getBoundingClientRect())"
        assert await page.evaluate(f"() => {{ const {apart}; return time.right <= of.left && of.right <= innerWidth }}")
        assert await page.evaluate(
            "() => { const t = document.querySelector('.tabs'); return t.scrollWidth <= t.clientWidth }"
        )
        await page.locator("button.call").first.tap()
        await expect(page.locator(".story .verdict")).to_be_visible()
        await fits()
        await page.locator("#tab-config").tap()
        await page.locator("#places .row", has_text="payments").tap()
        await expect(page.locator("#values")).to_contain_text("max_attempts")
        await fits()


async def test_a_long_path_pushes_nothing_out_of_sight(tmp_path: Path, open_page: Open) -> None:
    async with Moody(503) as upstream, Redrive(tmp_path, config(upstream)) as running:
        await call(running, f"/payments/{'deep/' * 60}")
        page = await open_page(running.admin)
        await row(page, "payments").click()
        await expect(page.locator("aside .latest .outcome")).to_be_in_viewport(ratio=1)
        await expect(page.locator("aside .close")).to_be_in_viewport(ratio=1)
        assert await page.evaluate(
            "() => { const a = document.querySelector('aside'); return a.scrollWidth <= a.clientWidth }"
        )


async def test_what_nobody_asked_for_is_no_upstream_that_fails(tmp_path: Path, open_page: Open) -> None:
    async with Moody() as upstream, Redrive(tmp_path, config(upstream)) as running:
        await call(running, "/nowhere")
        page = await open_page(running.admin)
        await expect(row(page, "(refused)").locator(".badge")).to_have_text("turned away")
        await page.keyboard.press("2")
        await expect(page.locator("button.call")).to_contain_text("/nowhere")


async def test_a_token_is_asked_for_and_kept_in_the_tab(tmp_path: Path, open_page: Open) -> None:
    listen = "listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0', token: open-sesame}\n"
    async with Moody() as upstream, Redrive(tmp_path, config(upstream), listen=listen) as running:
        page = await open_page(running.admin, live=False, quiet=("401",))
        await expect(page.locator("#token-dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#token-dialog")).to_be_visible()
        await page.locator("#token").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.locator("#token-wrong")).to_have_text("This is not the token.")
        await page.locator("#token").fill("open-sesame")
        await page.keyboard.press("Enter")
        await expect(page.locator("#link")).to_have_text("live")
        await expect(row(page, "payments")).to_be_visible()
        await page.reload()
        await expect(page.locator("#link")).to_have_text("live")
        assert "open-sesame" not in page.url
        kept = await page.evaluate("[document.cookie, JSON.stringify(localStorage), Object.values(sessionStorage)]")
        assert "open-sesame" not in kept[0] + kept[1]
        assert kept[2] == ["open-sesame"]
        assert "open-sesame" not in await page.content()


NASTY = "<img src=x onerror=window.bad=1><script>window.bad=2</script>"


async def test_what_an_attacker_sends_is_text(tmp_path: Path, open_page: Open) -> None:
    route = "/v1/<b/onclick='window.bad=3'>&quot;</b>"
    more = f'    routes: [{{match: {{path: "{route}"}}, strategy: none}}]\n'
    async with Moody(503) as upstream, Redrive(tmp_path, config(upstream, more)) as running:
        path, query = NASTY.replace(" ", "/"), NASTY.replace(" ", "+")
        await call(running, f"/payments/{path}", headers={"X-Tier": NASTY})
        await call(running, f"/payments/x?{query}=1")
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{running.url}/nowhere", headers={"Host": "<i>evil</i>"}) as reply,
        ):
            assert reply.status >= 400
        page = await open_page(running.admin)
        await row(page, "payments").click()
        await expect(page.locator("aside")).to_contain_text("<b/onclick=")
        await page.keyboard.press("Escape")
        await page.keyboard.press("2")
        await expect(page.locator("button.call")).to_have_count(3)
        for head in await page.locator("button.call").all():
            await head.click()
        await expect(page.locator(".story")).to_have_count(3)
        await page.keyboard.press("3")
        await page.locator("#places .row", has_text="onclick").click()
        await expect(page.locator("#values h2")).to_contain_text("<b/onclick=")
        made = "document.querySelectorAll('main img, main script, main b[onclick]').length"
        assert await page.evaluate(f"[window.bad ?? null, {made}]") == [None, 0]


async def test_the_page_may_do_nothing_but_what_it_does(tmp_path: Path, open_page: Open) -> None:
    async with Moody() as upstream, Redrive(tmp_path, config(upstream)) as running:
        page = await open_page(running.admin, quiet=("Content Security Policy", "Trusted"))
        refused = await page.evaluate("""() => {
            const attempts = [
                () => { document.body.innerHTML = "<b>x</b>"; },
                () => { setTimeout("1"); },
            ];
            return attempts.map((attempt) => { try { attempt(); return false; } catch { return true; } });
        }""")
        assert refused == [True, True]
        outside = await page.evaluate("fetch('http://127.0.0.2:9/').then(() => 'let through', () => 'refused')")
        assert outside == "refused"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{running.admin}/") as reply:
                policy = reply.headers["Content-Security-Policy"]
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert reply.headers["X-Content-Type-Options"] == "nosniff"
            for path in ("/static/..%2fpages.py", "/static/../pages.py", "/static/.hidden", "/static/"):
                async with session.get(f"{running.admin}{path}") as reply:
                    assert reply.status == 404


async def test_a_thousand_upstreams(tmp_path: Path, open_page: Open) -> None:
    more = "".join(f"  service-{n:04}: {{url: 'http://10.9.{n // 250}.{n % 250}'}}\n" for n in range(999))
    async with Moody(503) as upstream, Redrive(tmp_path, config(upstream, more)) as running:
        await call(running, "/payments/x")
        page = await open_page(running.admin)
        grid = page.get_by_role("grid", name="Upstreams")
        await expect(grid).to_have_attribute("aria-rowcount", "1000")
        await expect(page.locator("#upstream-grid .sheet .row").first).to_contain_text("payments")
        assert await page.locator("#upstream-grid .sheet .row").count() < 60
        await page.keyboard.press("1")
        await page.keyboard.press("End")
        await expect(page.locator("#upstream-grid .row.chosen")).to_contain_text("service-0998")
        await expect(page.locator("#upstream-grid .row.chosen")).to_be_in_viewport()
        assert await page.locator("#upstream-grid .sheet .row").count() < 60
        await page.locator("#upstream-filter").fill("10.9.2.17")
        await expect(grid).to_have_attribute("aria-rowcount", "11")
        await page.locator("#upstream-filter").fill("no such thing")
        await expect(page.locator("#upstream-grid .empty")).to_contain_text("No upstream matches the filter.")
        await page.get_by_role("button", name="Show all").click()
        await expect(grid).to_have_attribute("aria-rowcount", "1000")
        await page.locator("#only-trouble").check()
        await expect(grid).to_have_attribute("aria-rowcount", "1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_empty_pages_say_what_to_do(tmp_path: Path, open_page: Open, scheme: str) -> None:
    async with Redrive(tmp_path, "upstreams: {}\n", listen=LISTEN) as running:
        page = await open_page(running.admin, color_scheme=scheme)
        empty = page.locator("#upstream-grid .empty")
        await expect(empty).to_contain_text("No upstream is named yet")
        await expect(empty).to_contain_text(str(running.file))
        await page.keyboard.press("2")
        await expect(page.locator("#call-list .empty")).to_contain_text("No call has come through yet")
        await expect(page.locator("#call-list .empty")).to_contain_text(f"HTTP_PROXY={running.url}")
        dark = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part < 64)"
        assert await page.evaluate(dark) == (scheme == "dark")


async def test_two_workers_are_shown_as_one(tmp_path: Path, open_page: Open) -> None:
    async with Moody(503) as upstream, Redrive(tmp_path, f"workers: 2\n{config(upstream)}") as running:
        await asyncio.gather(*(call(running, f"/payments/{n}") for n in range(12)))
        page = await open_page(running.admin)
        await page.locator("#span").select_option("all")
        await expect(row(page, "payments").locator(".calls")).to_have_text("12")
        await page.keyboard.press("2")
        await expect(page.locator("button.call")).to_have_count(12)


async def test_a_grpc_call_shows_its_own_status_and_what_was_spoken(tmp_path: Path, open_page: Open) -> None:
    reply = answer(200, b"", "Content-Type: application/grpc", "grpc-status: 5")
    async with Upstream(reply) as upstream, Redrive(tmp_path, config(upstream)) as running:
        await call(running, "/payments/x.Y/z", headers={"content-type": "application/grpc"})
        page = await open_page(running.admin)
        await page.locator("#tab-calls").click()
        head = page.locator("button.call").first
        await expect(head.locator(".status")).to_have_text("g5")
        await head.click()
        await expect(page.locator(".facts")).to_contain_text("protocolhttp/1.1")
        await expect(page.locator(".facts")).to_contain_text("gRPC status5 NOT_FOUND")
        await expect(page.locator(".because").first).to_contain_text("by http/1.1")


async def test_an_endpoint_whose_circuit_breaker_is_open_is_marked(tmp_path: Path, open_page: Open) -> None:
    async with Moody(503) as ill, Moody() as well:
        text = f"upstreams:\n  payments:\n    url: [{ill.url}, {well.url}]\n    strategy: none\n"
        async with Redrive(tmp_path, text + "    circuit_breaker: {minimum_attempts: 1, open: 1h}\n") as running:
            await call(running, "/payments/x", 9)
            page = await open_page(running.admin)
            await page.locator("#span").select_option("all")
            await expect(row(page, "payments").locator(".badge")).to_have_text("circuit open")
            await expect(row(page, "payments").locator(".cooldown span")).to_have_text("1 open")
            title = await row(page, "payments").locator(".cooldown span").get_attribute("title")
            assert title is not None and title.startswith(f"{ill.authority}: open, the next probe in ")
            await row(page, "payments").click()
            await expect(page.locator("#upstream-detail")).to_contain_text(f"{ill.authority}: open")


async def test_attempts_under_way_are_shown_beside_how_many_may_be(tmp_path: Path, open_page: Open) -> None:
    async with Upstream(hang) as upstream:
        text = config(upstream, "    concurrency: {max: 2}\n")
        async with Redrive(tmp_path, text) as running:
            page = await open_page(running.admin)
            limit = row(page, "payments").locator(".limiter")
            await expect(limit).to_have_text("0/2")
            calls = [asyncio.create_task(call(running, "/payments/x")) for _ in range(3)]
            await expect(limit).to_have_text("2/2")
            waits = limit.locator("[data-tone=wait]")
            await expect(waits).to_have_attribute("title", "1 call waits for a place among the attempts under way")
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await expect(limit).to_have_text("0/2")


async def test_a_page_whose_redrive_is_of_an_earlier_release_says_so(tmp_path: Path, open_page: Open) -> None:
    async with Moody() as upstream, Redrive(tmp_path, config(upstream)) as running:
        page = await open_page(running.admin)
        board = 'event: board\ndata: {"board": "b", "full": true, "upstreams": [], "buckets": []}\n\n'
        events = {"content_type": "text/event-stream", "body": board}
        await page.route("**/events?*", lambda route: route.fulfill(**events))
        await page.reload()
        await expect(page.locator("#notices")).to_contain_text("of another release than this page: load the page again")
