"""A headless Chromium for the dashboard's tests. Without playwright or chromium they are left out, by name."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--renderer-process-limit=1",  # pages come one after the other, and a process for each takes long to begin
)  # fmt: skip

Open = Callable[..., Awaitable[Any]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    """One browser for a module; each page that is opened in it has cookies and storage of its own."""
    api = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    async with api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def open_page(browser: Any) -> AsyncIterator[Open]:
    """Opens the dashboard of an admin port. What the browser complains about fails the test, and so does a request to
    anywhere else. That nothing answers is no complaint, nor what `quiet` has parts of.
    """
    from playwright.async_api import expect

    complaints: list[str] = []
    contexts: list[Any] = []

    async def open_it(admin: str, *, live: bool = True, quiet: tuple[str, ...] = (), **options: Any) -> Any:
        context = await browser.new_context(**{"viewport": {"width": 1360, "height": 820}, **options})
        contexts.append(context)
        page = await context.new_page()
        page.set_default_timeout(20_000)

        def heard(text: str) -> None:
            if not any(part in text for part in ("net::ERR_", *quiet)):
                complaints.append(text)

        page.on("console", lambda message: heard(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: heard(str(error)))
        page.on("dialog", lambda dialog: heard(f"a dialog: {dialog.message}"))
        page.on("request", lambda request: None if request.url.startswith(f"{admin}/") else heard(request.url))
        await page.goto(f"{admin}/")
        if live:
            await expect(page.locator("#link")).to_have_text("live", timeout=20_000)
        return page

    yield open_it
    for context in contexts:
        await context.close()
    assert complaints == []
