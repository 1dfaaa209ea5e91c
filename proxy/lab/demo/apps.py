"""The demo's apps: the same calls at the same instants, with three ways to deal with failures.

An app counts what it sees and nothing else. Every way has the same patience with one attempt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

import aiohttp

from proxy.lab.demo.upstream import DemoUpstream

#: Attempts that may be made for a call, by the impatient app and by redrive (redrive.yaml), the first among them.
MAX_ATTEMPTS = 4
#: Seconds that an attempt may take, for everybody.
PATIENCE = 1.0
#: Samples of the recent past that are kept, and seconds between them.
KEPT, EVERY = 120, 0.5


@dataclass(slots=True)
class Counts:
    """How calls went, and what the upstream was asked meanwhile."""

    calls: int = 0
    succeeded: int = 0
    attempts: int = 0
    requests: int = 0

    def __sub__(self, before: Counts) -> Counts:
        """What came between the two."""
        return Counts(
            self.calls - before.calls,
            self.succeeded - before.succeeded,
            self.attempts - before.attempts,
            self.requests - before.requests,
        )


@dataclass(slots=True)
class App:
    """One way to make calls. `retries`: it retries at once, by itself; `through_proxy`: redrive does."""

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
        """One call to its end."""
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
        """What came back (599 for nothing), and how many attempts it stands for."""
        try:
            async with session.get(f"{self.url}/{number}") as answer:
                await answer.read()
                return answer.status, int(answer.headers.get("X-Attempt-Count", "1"))
        except (aiohttp.ClientError, TimeoutError):
            return 599, 1

    def sample(self) -> None:
        """Keep what has happened since the last one."""
        self.counts.requests = self.upstream.requests
        now = self.counts - Counts()
        self.samples.append(now - self._last)
        self._last = now

    def quantile(self, share: float) -> float:
        """Of the seconds that calls took."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
