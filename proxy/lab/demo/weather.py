"""The demo's upstream and its weather, which repeats: five kinds of trouble, with calm after each.

The weather is a function of the time since the beginning. The upstream has a capacity: what comes faster waits in a
queue, and a request whose caller has gone has still used its place. Each app has an upstream of its own under the same
weather, so that no app can harm another.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from dataclasses import dataclass

from aiohttp import web

HOST = "127.0.0.1"
#: The median of the seconds that an answer takes while no request waits.
_LATENCY = 0.08
#: Seconds that answers under way get at the end: those that wait in the queue are not waited for.
_END = 0.1


@dataclass(frozen=True, slots=True)
class Weather:
    """The behaviour of the demo's upstream during one part of a round, for example a restart. `share` is the part's
    share of the round, `failing` the share of requests that get a 503. `capacity` and `limit` are rates of requests, as
    multiples of the rate of calls: what exceeds the capacity waits for up to `queue` seconds, and else gets a 503; what
    exceeds the limit gets a 429. `retry_after` is the seconds that refusals name (0: none). `refuses`: no connection
    is taken.
    """

    name: str
    share: float
    failing: float = 0.0
    capacity: float = 2.0
    queue: float = 2.0
    limit: float | None = None
    retry_after: int = 0
    refuses: bool = False


CALM = Weather("calm", 0.0)


def _calm(share: float) -> Weather:
    return Weather(CALM.name, share)


#: The weather of one round. Calm follows each trouble, so that a viewer sees what recovers and when.
ROUND = (
    _calm(0.06),
    Weather("failures", 0.12, failing=0.3),
    _calm(0.04),
    Weather("restart", 0.08, refuses=True),
    _calm(0.16),
    Weather("no queue", 0.10, capacity=1.5, queue=0.0, retry_after=1),
    _calm(0.06),
    Weather("limit", 0.11, limit=0.7, retry_after=2),
    _calm(0.08),
    Weather("third", 0.10, capacity=0.67),
    _calm(0.09),
)


def at(elapsed: float, round_seconds: float) -> Weather:
    """The weather `elapsed` seconds after the beginning, if a round of weather takes `round_seconds`."""
    return ROUND[_place(elapsed, round_seconds)[0]]


def left(elapsed: float, round_seconds: float) -> float:
    """The seconds until the weather changes, `elapsed` seconds after the beginning, if a round of weather takes
    `round_seconds`.
    """
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
    """The upstream of one demo app. `rate`: the calls that the app makes in a second; `requests`: the number of
    requests that have reached the upstream.
    """

    def __init__(self, rate: float, seed: int) -> None:
        self.requests = 0
        self.url = ""
        self._port = 0
        self._rate = rate
        self._weather = CALM
        self._rng = random.Random(seed)  # noqa: S311, TID251 - a driver: it plays the world's part
        self._free_at = 0.0  # when the request that came last has had its turn
        self._admitted = self._refilled = 0.0
        self._server = web.Server(self._answer)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=_END)
        self._site: web.SockSite | None = None
        self._kept: socket.socket | None = None

    async def open(self) -> None:
        """Listen on a port that the system chooses."""
        await self._runner.setup()
        self._kept = _bound(0)  # does not listen: it keeps the port for the time in which connections are refused
        self._port = self._kept.getsockname()[1]
        self.url = f"http://{HOST}:{self._port}"
        await self._listen()

    async def _listen(self) -> None:
        self._site = web.SockSite(self._runner, _bound(self._port), backlog=512)
        await self._site.start()

    async def turn(self, weather: Weather) -> None:
        """Behave as this weather says from now on."""
        self._weather = weather
        if weather.refuses and self._site is not None:
            await self._site.stop()
            self._site = None
            for connection in list(self._server.connections):
                connection.force_close()
        elif not weather.refuses and self._site is None:
            await self._listen()

    async def close(self) -> None:
        """Stop at once."""
        await self._runner.cleanup()
        if self._kept is not None:
            self._kept.close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests += 1
        weather, loop = self._weather, asyncio.get_running_loop()
        if weather.limit is not None and not self._is_within(weather.limit):
            return _refusal(429, weather)
        wait = max(0.0, self._free_at - loop.time())
        if wait > weather.queue:
            return _refusal(503, weather)
        self._free_at = loop.time() + wait + 1 / (self._rate * weather.capacity)
        latency = _LATENCY * (0.5 + self._rng.random())
        await asyncio.sleep(wait + latency)  # noqa: TID251 - an upstream that takes its time
        if self._rng.random() < weather.failing:
            return web.Response(status=503, text="out of order\n")
        return web.Response(text="here you are\n")

    def _is_within(self, limit: float) -> bool:
        """Whether the limit, a token bucket of one second's worth of requests, admits a request now."""
        now, rate = asyncio.get_running_loop().time(), self._rate * limit
        self._admitted = min(rate, self._admitted + (now - self._refilled) * rate)
        self._refilled = now
        if self._admitted < 1:
            return False
        self._admitted -= 1
        return True


def _refusal(status: int, weather: Weather) -> web.Response:
    named = {"Retry-After": str(weather.retry_after)} if weather.retry_after else None
    return web.Response(status=status, text="too much at once\n", headers=named)


def _bound(port: int) -> socket.socket:
    """A socket that is bound to this port of loopback (0: the system chooses). Other sockets may be bound to the same
    port (SO_REUSEPORT).
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with contextlib.suppress(AttributeError):  # some systems have no such option
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setblocking(False)
    made.bind((HOST, port))
    return made
