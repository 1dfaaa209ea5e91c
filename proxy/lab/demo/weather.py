"""The demo's upstream and its weather, which repeats: calm, failures, an outage, throttling, slow answers.

The weather is a function of the time since the beginning. The upstream behaves as the weather says, and counts its
requests. Each app has its own upstream under the same weather, so that no app can harm another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

HOST = "127.0.0.1"
#: Seconds that a request hangs: longer than any caller waits.
_HANGS = 5.0
_RETRY_AFTER = 1
#: Seconds that answers under way get at the end: those that hang are not waited for.
_END = 0.1


@dataclass(frozen=True, slots=True)
class Weather:
    """The behaviour of the demo's upstream during one part of a round, for example an outage. `share` is the part's
    share of the round; `failing`, `reset` and `hanging` are shares of requests, `latency` is in seconds, `limit` is the
    rate of requests that are admitted, as a multiple of the rate of calls.
    """

    name: str
    share: float
    failing: float = 0.01
    reset: float = 0.0
    hanging: float = 0.0
    latency: float = 0.02
    limit: float = 4.0


#: One round. Calm follows each trouble, so that one sees what recovers and when.
ROUND = (
    Weather("calm", 0.16),
    Weather("failures", 0.14, failing=0.3),
    Weather("calm", 0.10),
    Weather("outage", 0.14, failing=1.0, reset=0.5),
    Weather("calm", 0.14),
    Weather("throttling", 0.10, limit=0.7),
    Weather("calm", 0.08),
    Weather("slow", 0.14, hanging=0.15, latency=0.25),
)


def at(elapsed: float, round_seconds: float) -> Weather:
    """The weather `elapsed` seconds after the beginning, if a round of weather takes `round_seconds`."""
    return ROUND[_place(elapsed, round_seconds)[0]]


def left(elapsed: float, round_seconds: float) -> float:
    """The seconds until the weather changes, `elapsed` seconds after the beginning."""
    return _place(elapsed, round_seconds)[1]


def _place(elapsed: float, round_seconds: float) -> tuple[int, float]:
    into = elapsed % round_seconds
    end = 0.0
    for number, weather in enumerate(ROUND):
        end += weather.share * round_seconds
        if into < end:
            return number, end - into
    return len(ROUND) - 1, 0.0


class DemoUpstream:
    """The upstream of one app. `requests` are counted as they come."""

    def __init__(self, weather: Callable[[], Weather], calls_per_second: float, seed: int) -> None:
        self.requests = 0
        self._weather = weather
        self._rate = calls_per_second
        self._rng = random.Random(seed)  # noqa: S311, TID251 - a driver: it plays the world's part
        self._admitted = self._rate
        self._refilled = 0.0
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=_END)

    async def open(self) -> int:
        """Listen on a port that the system chooses; return the port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0, backlog=512).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop the upstream at once."""
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
        """Whether the weather's limit, a token bucket of one second's worth of requests, admits a request."""
        now = asyncio.get_running_loop().time()
        rate = self._rate * weather.limit
        self._admitted = min(rate, self._admitted + (now - self._refilled) * rate)
        self._refilled = now
        if self._admitted < 1:
            return False
        self._admitted -= 1
        return True
