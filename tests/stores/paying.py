"""Calls that pay a rate of a fleet as fast as they may, on the loop's clock, and the bound that they keep to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from fleet import Sidecar
from support.redis_server import RedisServer

from proxy.retry.budgets.buckets import RateBucket

Make = Callable[..., Sidecar]


class Alarmed:
    """A caller that asks (`ask`, given the time for which its alarm was set) whenever its alarm rings, until it is
    stopped.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self.stopped = False

    def ask(self, due: float = float("inf")) -> None:
        raise NotImplementedError

    def retime(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if not self.stopped and at < float("inf"):
            self._alarm = self._loop.call_at(at, self.ask, max(at, self._loop.time()))

    def stop(self) -> None:
        self.stopped = True
        if self._alarm is not None:
            self._alarm.cancel()


class Calls(Alarmed):
    """Calls that wait at a sidecar's gate: as soon as one is sent, the next one comes. `most`: sendings a second, if
    each call takes its time before it asks. `sent` has the times at which the gate lets them go: a machine that stands
    still sends them later, and then together.
    """

    def __init__(self, rate: RateBucket, sent: list[float], most: float = 0.0, price: float = 1.0) -> None:
        super().__init__()
        self._gate, self._sent, self._most, self._price = rate.gate, sent, most, price
        self.count = 0

    def ask(self, due: float = float("inf")) -> None:
        while not self.stopped:
            now = self._loop.time()
            at = self._gate.ask(self, now, self._price)
            if at > now:
                self.retime(at)
                return
            self._sent.append(min(now, due))
            due = now
            self.count += 1
            if self._most:
                self.retime(now + 1 / self._most)
                return


async def live(sidecars: Make, server: RedisServer, count: int, **options: object) -> list[Sidecar]:
    loop = asyncio.get_running_loop()
    options = {"timeout": 2.0, "on_outage": "share", **options}
    fleet = [sidecars(server, clock=loop.time, **options) for _ in range(count)]
    for each in fleet:
        each.now = loop.time()
        await each.store.open()
        each.factory.listen()
        await each.factory.listening.wait()
    return fleet


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  a state
            await asyncio.sleep(0.002)


#: Seconds by which the loop's clock, which stands while a callback runs, may be behind Redis's on a busy machine.
STALL = 0.1


def check(sent: Sequence[float], rate: float, burst: float) -> None:
    """In any time t at most rate * t + burst is sent, but for what clocks differ by."""
    burst += rate * STALL
    lowest, sent = float("inf"), sorted(sent)
    for number, at in enumerate(at - sent[0] for at in sent):
        lowest = min(lowest, number - rate * at)
        assert number + 1 - rate * at - lowest <= burst
