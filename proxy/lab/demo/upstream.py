"""The demo's upstream: it does what the weather says, and counts what it is asked.

Each app has an upstream of its own under the same weather, so that what one does to it harms no other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from aiohttp import web

from proxy.lab.demo.weather import Weather

HOST = "127.0.0.1"
#: Seconds that a request hangs: longer than anybody waits.
_HANGS = 5.0
_RETRY_AFTER = 1
#: Seconds that answers under way get at the end: those that hang are not waited for.
_END = 0.1


class DemoUpstream:
    """`requests` are counted as they come."""

    def __init__(self, weather: Callable[[], Weather], calls_per_second: float, seed: int) -> None:
        self.requests = 0
        self._weather = weather
        self._rate = calls_per_second
        self._rng = random.Random(seed)  # noqa: S311, TID251 - a driver: it plays the world's part
        self._admitted = self._rate
        self._refilled = 0.0
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=_END)

    async def open(self) -> int:
        """Listen on a port of the system's choice; which."""
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0, backlog=512).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop at once."""
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests += 1
        weather = self._weather()
        if not self._admits(weather):
            return web.Response(status=429, text="too much at once\n", headers={"Retry-After": str(_RETRY_AFTER)})
        hangs = self._rng.random() < weather.hanging
        latency = _HANGS if hangs else weather.latency * (0.5 + self._rng.random())
        await asyncio.sleep(latency)  # noqa: TID251 - an upstream that takes its time
        if self._rng.random() >= weather.failing:
            return web.Response(text="here you are\n")
        if self._rng.random() < weather.reset and request.transport is not None:
            request.transport.abort()
        return web.Response(status=503, text="out of order\n")

    def _admits(self, weather: Weather) -> bool:
        """A token bucket of one second's worth."""
        now = asyncio.get_running_loop().time()
        rate = self._rate * weather.limit
        self._admitted = min(rate, self._admitted + (now - self._refilled) * rate)
        self._refilled = now
        if self._admitted < 1:
            return False
        self._admitted -= 1
        return True
