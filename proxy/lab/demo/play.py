"""A run of the demo: it opens everything, lets the apps make their calls at a steady pace, and keeps the figures.

Calls begin at their instants whatever happens to earlier ones, as the calls of independent users do; an app that gets
slower does not send fewer. The apps make the same calls, with three ways to deal with failures and the same patience
with one attempt; each app counts only what it sees.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import astuple, dataclass, field
from operator import sub
from typing import Any

import aiohttp

from proxy.lab.demo import weather
from proxy.lab.demo.sidecar import Sidecar, SidecarState
from proxy.lab.demo.weather import DemoUpstream, left

#: Attempts that may be made for a call, by the impatient app and by redrive (the default), the first among them.
MAX_ATTEMPTS = 3
#: Seconds that an attempt of any app may take.
PATIENCE = 1.0
#: Samples of the recent past that are kept, and seconds between them.
KEPT, EVERY = 120, 0.5
#: Calls a second that each app begins.
CALLS_PER_SECOND = 20.0
#: Seconds of one round of weather, where the command does not ask for less.
ROUND = 75.0
#: Seconds that calls in flight get when a bounded run is over.
_END = 20.0


@dataclass(slots=True)
class Counts:
    """The numbers of an app's calls, and of the requests that reached the upstream in the same time. `attempts` counts
    every sending of a request, also those that found no connection, and those that redrive's transparent retries made.
    """

    calls: int = 0
    succeeded: int = 0
    attempts: int = 0
    requests: int = 0

    def __sub__(self, before: Counts) -> Counts:
        """The counts that were added since `before`."""
        return Counts(*map(sub, astuple(self), astuple(before)))


@dataclass(slots=True)
class App:
    """An app of the demo, which makes calls and counts their results. `retries`: the app retries at once, by itself;
    otherwise it makes one request a call.
    """

    name: str
    url: str
    upstream: DemoUpstream
    retries: bool = False
    counts: Counts = field(default_factory=Counts)
    in_flight: int = 0
    seconds: list[float] = field(default_factory=list)
    samples: deque[Counts] = field(default_factory=lambda: deque(maxlen=KEPT))
    _last: Counts = field(default_factory=Counts)

    async def call(self, session: aiohttp.ClientSession, number: int) -> None:
        """Make call `number` to its end, with the app's own retries if it makes any, and count its result."""
        began = asyncio.get_running_loop().time()
        self.in_flight += 1
        attempts = 0
        try:
            for _ in range(MAX_ATTEMPTS if self.retries else 1):
                status, made = await self._attempt(session, number)
                attempts += made
                if status < 400:
                    break
        finally:
            self.in_flight -= 1
        self.counts.calls += 1
        self.counts.attempts += attempts
        self.counts.succeeded += status < 400
        self.seconds.append(asyncio.get_running_loop().time() - began)

    async def _attempt(self, session: aiohttp.ClientSession, number: int) -> tuple[int, int]:
        """Make one request; return the status of its answer (599 for none), and the number of attempts that redrive
        made for it (1 without redrive).
        """
        try:
            async with session.get(f"{self.url}/v1/orders/{number}") as answer:
                await answer.read()
                return answer.status, int(answer.headers.get("X-Attempt-Count", "1"))
        except (aiohttp.ClientError, TimeoutError):
            return 599, 1

    @property
    def failed(self) -> int:
        """The calls that ended without a good answer."""
        return self.counts.calls - self.counts.succeeded

    def sample(self) -> None:
        """Add what was counted since the last sample to `samples`."""
        self.counts.requests = self.upstream.requests
        now = self.counts - Counts()
        self.samples.append(now - self._last)
        self._last = now

    def quantile(self, share: float) -> float:
        """The duration in seconds that this share (0 to 1) of the app's calls did not exceed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass(slots=True)
class Watched:
    """The state that redrive reports of the demo's upstream: the latest one (`now`), and the lowest level that the
    upstream's bucket has had (`lowest`).
    """

    now: SidecarState = field(default_factory=SidecarState)
    lowest: float = float("inf")

    def take(self, state: SidecarState) -> None:
        """Take a sample of the state that redrive reports."""
        self.now = state
        self.lowest = min(self.lowest, state.level)


class DemoRun:
    """A run of the demo. `apps` are in the order in which they are shown; `skies` has the name of the scripted weather
    at each sample of the figures.
    """

    def __init__(self, round_seconds: float = ROUND) -> None:
        self.round_seconds = round_seconds
        self.elapsed = 0.0
        self.watched = Watched()
        self.skies: deque[str] = deque(maxlen=KEPT)
        self.apps: list[App] = []
        self.sidecar = Sidecar("")
        self._began: float | None = None
        self._loop = asyncio.get_running_loop()
        self._calls: set[asyncio.Task[None]] = set()
        self._upstreams = [DemoUpstream(CALLS_PER_SECOND, seed=7) for _ in range(3)]
        self._instants = random.Random(7)  # noqa: S311, TID251 - a driver: it plays the world's part

    def sky(self) -> weather.Weather:
        """Return the demo's scripted weather at this moment: how its upstreams behave. Before the run begins, it is
        calm.
        """
        now = 0.0 if self._began is None else self._loop.time() - self._began
        return weather.at(now, self.round_seconds)

    async def __aenter__(self) -> DemoRun:
        none, at_once, ours = self._upstreams
        self._session = apps_session(aiohttp.ClientTimeout(total=PATIENCE))
        self._patient = apps_session(aiohttp.ClientTimeout())
        try:
            for upstream in self._upstreams:
                await upstream.open()
            self.sidecar = Sidecar(ours.url)
            await self.sidecar.open()
        except BaseException:
            await self.__aexit__()
            raise
        self.apps = [
            App("no retries", none.url, none),
            App(f"{MAX_ATTEMPTS} quick tries", at_once.url, at_once, retries=True),
            App("redrive", self.sidecar.url, ours),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._patient.close()
        await self._session.close()
        await self.sidecar.close()
        await asyncio.gather(*(upstream.close() for upstream in self._upstreams))

    async def run(self, seconds: float | None, shown: asyncio.Event) -> None:
        """Let the apps make calls for `seconds` (None: until cancelled); the event `shown` is set at every sample of
        the figures. On a machine that is too busy for all calls, those that are late at the end are not begun. Raises
        SidecarError if redrive has ended meanwhile.
        """
        self._began = began = self._loop.time()
        beside = [asyncio.create_task(self._sample(began, shown)), asyncio.create_task(self._change_weather())]
        try:
            number = 0
            while seconds is None or (number < seconds * CALLS_PER_SECOND and self._loop.time() < began + seconds):
                await self._until(began + (number + self._instants.random()) / CALLS_PER_SECOND)
                for app in self.apps:
                    self._begin(app, number)
                number += 1
            if self._calls:
                await asyncio.wait(self._calls, timeout=_END)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        await self._look()
        for app in self.apps:
            app.sample()
        self.sidecar.check()

    def _begin(self, app: App, number: int) -> None:
        session = self._patient if app is self.apps[-1] else self._session
        call = self._loop.create_task(app.call(session, number))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _sample(self, began: float, shown: asyncio.Event) -> None:
        number = 0
        while True:
            number += 1
            await self._until(began + number * EVERY)
            self.elapsed = self._loop.time() - began
            self.skies.append(self.sky().name)
            for app in self.apps:
                app.sample()
            await self._look()
            shown.set()

    async def _change_weather(self) -> None:
        while True:
            weather = self.sky()
            for upstream in self._upstreams:
                await upstream.turn(weather)
            assert self._began is not None
            now = self._loop.time()
            await self._until(now + max(0.01, left(now - self._began, self.round_seconds)))

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(_END):  # a busy machine may need longer than an app would wait
                state = await self.sidecar.state(self._patient)
        except (aiohttp.ClientError, TimeoutError):  # it hangs, or is gone: what it said before stands
            return
        if state is not None:
            self.apps[-1].counts.attempts += state.transparent - self.watched.now.transparent
            self.watched.take(state)

    async def _until(self, when: float) -> None:
        await asyncio.sleep(max(0.0, when - self._loop.time()))  # noqa: TID251 - a driver: calls have their instants

    def figures(self) -> dict[str, Any]:
        """The figures of the whole run, for `--json`."""
        return {
            "seconds": round(self.elapsed, 1),
            "calls_per_second": CALLS_PER_SECOND,
            "admin": self.sidecar.admin,
            "apps": {key: _figures(app) for key, app in zip(("none", "at_once", "redrive"), self.apps, strict=True)},
            "bucket": {
                "level": self.watched.now.level,
                "lowest": min(self.watched.lowest, self.watched.now.level),
                "capacity": self.watched.now.capacity,
            },
        }


def apps_session(timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
    """A client session that makes one attempt a call. By default aiohttp repeats a request whose connection broke, and
    the repetition would not be counted.
    """
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=timeout)
    session._retry_connection = False
    return session


def _figures(app: App) -> dict[str, Any]:
    counts = app.counts
    return {
        "calls": counts.calls,
        "unfinished": app.in_flight,
        "succeeded": counts.succeeded,
        "success_rate": round(counts.succeeded / max(counts.calls, 1), 4),
        "attempts": counts.attempts,
        "attempts_per_call": round(counts.attempts / max(counts.calls, 1), 3),
        "upstream_requests": counts.requests,
        "peak_requests_per_second": max((sample.requests for sample in app.samples), default=0) / EVERY,
        "seconds_half": round(app.quantile(0.5), 3),
        "seconds_95": round(app.quantile(0.95), 3),
    }
