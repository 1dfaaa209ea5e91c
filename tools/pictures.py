"""The pictures of the dashboard in docs/guides: `make pictures` makes them again.

A redrive with five upstreams serves a mixed load for five minutes: one upstream fails most calls, one fails some, one
asks its callers to wait, and two are fine. A headless Chromium then photographs the page. The load is drawn with a
fixed seed, but with real sockets, so the figures in the pictures differ a little each time.

    python tools/pictures.py                  write docs/guides/dashboard-*.png again
    python tools/pictures.py --every FOLDER   write every view into a folder: desktop and phone, light and dark
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

from aiohttp import ClientError, ClientSession, ClientTimeout, web

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.process import Redrive  # noqa: E402

from proxy import stale_build  # noqa: E402

GUIDES = ROOT / "docs" / "guides"
SEED = 7
#: The time in which the load runs before the first picture, so that the charts have something to show.
SECONDS = 300.0
#: Each upstream's calls in a second.
PACE = 4.0
DESKTOP, PHONE = (1240, 620), (390, 844)

CONFIG = """\
apps:
  by: [{{header: x-app}}]
  known: {{web: {{weight: 4, priority: high}}, batch: {{priority: low}}}}
upstreams:
  geo:
    url: {url}/geo
    bucket: {{kind: quota, capacity: 60, retry_cost: 5}}
    routes:
      - match: {{methods: [POST], path: /v1/orders/*/items}}
        timeouts: {{attempt: 5s}}
  inventory: {{url: "{url}/inventory"}}
  payments: {{url: "{url}/payments", strategy: {{kind: hedging, hedging_delay: 200ms}}, bucket: off}}
  search: {{url: "{url}/search", rate: {{kind: rate, rate: 10/s, burst: 20}}}}
  mail: {{url: "{url}/mail", pushback: {{hold: 30s}}}}
"""
#: Further upstreams, which only `--every` has: what else the dashboard can show.
MORE = """\
  model:
    url: "{url}/model"
    dialects: [http, openai]
    rate: {{kind: rate, rate: 3000/m, burst: 200, unit: tokens}}
    pushback: {{ahead: on}}
    credentials: {{header: authorization, format: "Bearer {{}}", values: [sk-good, sk-revoked]}}
  stock:
    url: ["{url}/stock", "{url}/stock-b"]
    circuit_breaker: {{failure_ratio: 50%, minimum_attempts: 5, window: 30s, open: 10s}}
    fallback: [search]
  reports: {{url: "{url}/reports", concurrency: {{max: 2, queue: 20, wait: 4s}}}}
  weather: {{url: "{url}/weather", timeouts: {{attempt: 2s}}}}
"""
NAMES, MORE_NAMES = ("geo", "inventory", "payments", "search", "mail"), ("model", "stock", "reports", "weather")
PATHS = ("/v1/orders/{}/items", "/v1/search/products?category=shoes&size={}&token=secret")


class Upstreams:
    """All upstreams as one server: the first part of the path names the one, and with it how its answers fail."""

    def __init__(self, drawn: random.Random) -> None:
        self._drawn = drawn
        self._mail = count(1)
        self._began = time.monotonic()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer as the upstream that the path names: after some milliseconds, with a failure now and then."""
        await request.read()
        name = request.path.split("/")[1]
        await asyncio.sleep(self._drawn.lognormvariate(-4.0, 0.9))
        if name == "mail" and next(self._mail) % 60 == 0:
            return web.Response(status=429, headers={"Retry-After": "6"}, text="slow down\n")
        if name == "payments" and self._drawn.random() < 0.05:
            await asyncio.sleep(0.6)
        if name == "reports":
            await asyncio.sleep(0.7)
        if name == "model":
            return self._as_a_model(request)
        if name == "weather" and (time.monotonic() - self._began) % 45 > 33 and request.transport is not None:
            request.transport.abort()  # away for 12 seconds of 45
        if self._drawn.random() < {"geo": 0.6, "inventory": 0.12, "payments": 0.01, "stock": 0.9}.get(name, 0.0):
            return web.Response(status=502 if name == "geo" else 503, text="no\n")
        return web.json_response({"fine": True})

    def _as_a_model(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer sk-good":
            return web.json_response({"error": {"code": "invalid_api_key"}}, status=401)
        left = {
            "x-ratelimit-limit-tokens": "3000",
            "x-ratelimit-remaining-tokens": "40",
            "x-ratelimit-reset-tokens": "8s",
        }
        return web.json_response({"usage": {"prompt_tokens": 20, "completion_tokens": 40}}, headers=left)


@contextlib.asynccontextmanager
async def serve(drawn: random.Random) -> AsyncIterator[str]:
    """Serve the upstreams on a port that the system chooses, and give their url."""
    runner = web.ServerRunner(web.Server(Upstreams(drawn).answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def load(proxy: str, names: tuple[str, ...], drawn: random.Random) -> None:
    """Call the upstreams by turns until cancelled, without waiting for answers."""
    timeout = ClientTimeout(total=60)
    async with (
        ClientSession(timeout=timeout, headers={"User-Agent": "shop/1.2"}) as session,
        asyncio.TaskGroup() as calls,
    ):

        async def call(name: str, app: str) -> None:
            path = drawn.choice(PATHS).format(drawn.randrange(1000))
            method = drawn.choice(("GET", "GET", "GET", "POST"))
            body = {"model": "m", "max_tokens": 50, "messages": []} if name == "model" else None
            with contextlib.suppress(ClientError, TimeoutError):
                async with session.request(
                    method, f"{proxy}/{name}{path}", headers={"x-app": app}, json=body
                ) as answer:
                    await answer.read()

        while True:
            for name in names:
                calls.create_task(call(name, drawn.choice(("web", "web", "batch"))))
                await asyncio.sleep(drawn.expovariate(len(names) * PACE))


@dataclass(frozen=True)
class View:
    """One view of the page: its address's fragment, what is clicked there (`press ?`: a key that is pressed), and the
    size of its picture.
    """

    name: str
    fragment: str
    click: str = ""
    size: tuple[int, int] = DESKTOP


class Photographer:
    """A browser that opens views of the dashboard, and a folder for its pictures."""

    def __init__(self, browser: Any, admin: str, folder: Path) -> None:
        self._browser = browser
        self._admin = admin
        self._folder = folder

    async def take(self, view: View, *, theme: Literal["light", "dark"] = "light", suffix: str = "") -> None:
        """Write the view's picture into the folder."""
        width, height = view.size
        size = {"width": width, "height": height}
        context = await self._browser.new_context(viewport=size, color_scheme=theme)
        page = await context.new_page()
        await page.goto(f"{self._admin}/{view.fragment}")
        await page.locator("#link", has_text="live").wait_for()
        await page.wait_for_timeout(1200)
        if view.click.startswith("press "):
            await page.keyboard.press(view.click.removeprefix("press "))
        elif view.click:
            await page.locator(view.click).first.click(timeout=60_000)
        if view.click:
            await page.wait_for_timeout(2500)
        await page.mouse.move(width - 1, 1)
        write_with_palette(await page.screenshot(), self._folder / f"{view.name}{suffix}.png")
        await context.close()

    async def newest(self, **wanted: object) -> str:
        """Give the fragment of the newest kept call that has these values."""
        async with ClientSession() as session, session.get(f"{self._admin}/requests?only=notable&limit=500") as answer:
            calls = (await answer.json())["requests"]
        for call in sorted(calls, key=lambda call: -call["number"]):
            if all(call.get(key) == value for key, value in wanted.items()):
                return f"#calls?kind=notable&call={call['number']}"
        return "#calls?kind=notable"

    async def for_the_guide(self) -> None:
        """Write the guide's five pictures."""
        await self.take(View("dashboard-upstreams", "#upstreams"))  # too low for charts: they are folded away
        await self.take(View("dashboard-charts", "#upstreams?upstream=mail", size=(1240, 900)))
        saved = await self.newest(outcome="success", upstream="inventory", attempts=2)
        await self.take(View("dashboard-calls", saved, size=(1240, 560)))
        refused = await self.newest(outcome="not_retryable", upstream="geo", method="POST")
        await self.take(View("dashboard-not-retried", refused, size=(1240, 560)))
        await self.take(View("dashboard-phone", "#upstreams", size=PHONE))

    async def every(self) -> None:
        """Write every view: for a desktop and for a phone, light and dark."""
        views = [
            View("upstreams", "#upstreams"),
            *(View(f"upstream-{name}", f"#upstreams?upstream={name}") for name in NAMES + MORE_NAMES),
            View("calls", "#calls"),
            View("calls-failed", "#calls?kind=failed"),
            View("config", "#config"),
            View("config-upstream", "#config?upstream=geo"),
            View("what-if", "#config?upstream=geo", "button:has-text('What if')"),
            View("keys", "#upstreams", "press ?"),
        ]
        opened = {
            "saved": {"outcome": "success", "upstream": "inventory", "attempts": 2},
            "refused": {"outcome": "not_retryable", "upstream": "geo", "method": "POST"},
            "empty": {"outcome": "bucket_empty"},
            "hedged": {"upstream": "payments", "attempts": 2},
            "key": {"upstream": "model"},
            "fell-back": {"upstream": "stock"},
            "held": {"upstream": "weather"},
            "queued": {"upstream": "reports"},
        }
        shown: list[tuple[View, dict[str, object] | None]] = [(view, None) for view in views]
        shown += [(View(f"call-{name}", ""), wanted) for name, wanted in opened.items()]
        shown.append((View("call-explained", "", "button:has-text('Explain this call')"), opened["refused"]))
        shown.append((View("call-what-if", "", ".story button:has-text('What if')"), opened["refused"]))
        for view, wanted in shown:
            for theme in ("light", "dark"):
                for width, size in {"desktop": (1240, 800), "phone": PHONE}.items():
                    # Looked up for each picture, since only the last calls are kept.
                    fragment = view.fragment if wanted is None else await self.newest(**wanted)
                    picture = replace(view, size=size, fragment=fragment)
                    await self.take(picture, theme=theme, suffix=f"-{width}-{theme}")


def write_with_palette(png: bytes, file: Path) -> None:
    """Write a picture with a palette of 256 colours to a file: a third of the size of `png`, as a browser writes it."""
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB")
    palette = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    palette.save(file, optimize=True)


async def photograph(folder: Path | None, seconds: float) -> None:
    """Run the load, and write the guide's pictures; into a folder, if one is named, every view instead."""
    from playwright.async_api import async_playwright

    drawn = random.Random(SEED)
    names = NAMES if folder is None else NAMES + MORE_NAMES
    config = CONFIG if folder is None else CONFIG + MORE
    with tempfile.TemporaryDirectory() as place:
        async with serve(drawn) as url, Redrive(Path(place), config.format(url=url)) as redrive:
            calling = asyncio.create_task(load(redrive.url, names, drawn))
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                await asyncio.sleep(seconds)
                photographer = Photographer(browser, redrive.admin, folder or GUIDES)
                await (photographer.for_the_guide() if folder is None else photographer.every())
                await browser.close()
            calling.cancel()
            await asyncio.wait([calling])


def main() -> int:
    """Run this module's own command line, and return the exit status."""
    parser = argparse.ArgumentParser(description="write the pictures of the dashboard again")
    parser.add_argument("--every", type=Path, metavar="FOLDER", help="write every view into this folder instead")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="how long the load runs before the first picture"
    )
    options = parser.parse_args()
    if shutil.which("chromium") is None:
        print("pictures: chromium is not installed (scripts/system-packages installs it)", file=sys.stderr)
        return 2
    if said := stale_build.warning():
        print(f"pictures: {said}, or set REDRIVE_PURE=1", file=sys.stderr)
        return 2
    if options.every is not None:
        options.every.mkdir(parents=True, exist_ok=True)
    asyncio.run(photograph(options.every, options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
