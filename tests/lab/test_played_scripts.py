"""What simulations play of Redis is what Redis runs: each script in Python beside the Lua one, in a real Redis whose
time is the test's.

Reports are drawn by chance, as holders could make them: they come and go, lose replies, meet a key that was made again,
ask for much and for little.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from support.redis_server import client_of_own, needs_redis
from support.timed_scripts import timed

from proxy.lab.fleet.budget import BudgetKey
from proxy.lab.fleet.members import MembersKey
from proxy.lab.fleet.places import PlacesKey
from proxy.lab.fleet.rate import RateKey
from proxy.lab.fleet.tokens import TokensKey
from proxy.lab.fleet.weather import WeatherKey

pytestmark = needs_redis

DEAD, FORGET = 10.0, 60_000


redis = pytest.fixture(scope="module")(client_of_own)


class Said:
    """One holder's sums, as it reports them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sequence = 0
        self.made = ""
        self.sums = [0.0, 0.0]
        self.before = [0.0, 0.0]
        self.part = 0.0
        self.lease = 0.0

    def spend(self, most: float) -> None:
        """Some is spent, and sometimes some is earned, or spent in an outage."""
        self.sums[0] += self.rng.choice([0.0, 0.0, 1.0, 2.5, most / 3])
        self.sums[1] += self.rng.choice([0.0, 0.0, 0.0, 1.0, -2.0])


class Fleet:
    """Holders of one key, in Redis and played."""

    def __init__(self, redis: Redis, name: str, key: Any, seed: int) -> None:
        self.rng = random.Random(f"{name}/{seed}")
        self.key = f"{name}/{seed}"
        self.holders = {f"holder{number}": Said(self.rng) for number in range(self.rng.choice([1, 2, 5, 12, 30]))}
        self._redis, self._make, self._played = redis, key, key()
        self._script = timed(name)
        self._seconds, self._micros = 5_000_000, 0

    @property
    def now(self) -> float:
        return self._seconds + self._micros / 1e6

    def pass_time(self) -> None:
        self._micros += self.rng.choice([0, 1_000, 20_000, 130_000, 700_000, 3_000_000, 11_000_000])
        if self.rng.random() < 0.02:
            self._micros -= 5_000_000  # the clock is set back
        self._seconds, self._micros = self._seconds + self._micros // 1_000_000, self._micros % 1_000_000

    def lose_data(self) -> None:
        self._redis.delete(self.key)
        self._played = self._make()

    def say(self, name: str, words: list[object]) -> list[Any] | None:
        """One report; the reply, and None if it is not heard."""
        said = self.holders[name]
        said.sequence += 1
        text = [each if isinstance(each, str) else repr(float(each)) for each in words]  # type: ignore[arg-type]
        making = f"making{self.rng.random()}"
        arguments = [name, said.sequence, said.made, *text, making, DEAD, FORGET]
        late = self.rng.random() < 0.05
        if late:
            arguments[1] = max(0, said.sequence - 2)
        reply = self._redis.eval(self._script, 1, self.key, *arguments, self._seconds, self._micros)  # type: ignore[arg-type]
        assert isinstance(reply, list)
        calls: list[str] = []
        played = self._played.run(arguments, self.now, calls.append)
        assert played[0] == reply[0]
        assert [f"call {each}".encode() for each in calls] == [each for each in reply if each.startswith(b"call ")]
        real = [float(each) for each in reply[1:] if not each.startswith(b"call ")]
        assert played[1:] == pytest.approx(real, rel=1e-9, abs=1e-9), (self.key, self.now, arguments)
        if reply[0] == b"late" or self.rng.random() < 0.1:
            return None
        said.made, said.before = reply[0].decode(), list(said.sums)
        return real


def play(fleet: Fleet, report: Callable[[Said], list[object]], learn: Callable[[Said, list[Any]], None]) -> None:
    for _ in range(400):
        fleet.pass_time()
        if fleet.rng.random() < 0.01:
            fleet.lose_data()
        name = fleet.rng.choice(list(fleet.holders))
        if fleet.rng.random() < 0.01:
            fleet.holders[name] = Said(fleet.rng)  # killed, and another has its name: all it had is forgotten
            fleet.holders[name].sequence = 10_000
        reply = fleet.say(name, report(fleet.holders[name]))
        if reply is not None:
            learn(fleet.holders[name], reply)


@pytest.mark.parametrize("seed", range(12))
def test_tokens(redis: Redis, seed: int) -> None:
    fleet = Fleet(redis, "tokens", TokensKey, seed)
    rng = fleet.rng
    capacity, refill, unit = rng.choice([20.0, 500.0]), rng.choice([0.0, 0.0, 3.5]), rng.choice([0.0, 5.0])

    def report(said: Said) -> list[object]:
        said.spend(said.lease)
        keep = rng.choice([0.0, said.lease, said.lease / 2])
        prices = " ".join(repr(rng.choice([5.0, 10.0, 1.5])) for _ in range(rng.choice([0, 0, 1, 4])))
        known = rng.choice(["", capacity / 2, capacity])
        more = rng.choice([0.0, 5.0, 40.0])
        return [*said.sums, *said.before, keep, prices, more, unit, known, capacity, capacity, refill, 0.0]

    def learn(said: Said, reply: list[Any]) -> None:
        said.lease = reply[0]

    play(fleet, report, learn)


@pytest.mark.parametrize("seed", range(24))
def test_rate(redis: Redis, seed: int) -> None:
    fleet = Fleet(redis, "rate", RateKey, seed)
    rng = fleet.rng
    rate, capacity = rng.choice([5.0, 50.0, 1000.0]), rng.choice([1.0, 10.0, 60.0])

    def report(said: Said) -> list[object]:
        said.spend(said.lease)
        keep = rng.choice([0.0, said.lease, said.lease / 2])
        waiting = float(rng.choice([0, 0, 1, 7]))
        first_call, next_calls = rng.choice([0.0, 1.0, 1.0, capacity]), float(rng.randint(0, int(waiting)))
        demand = rng.choice([0.0, 0.4, rate / 20, rate / 3, rate, 3 * rate])
        known = rng.choice(["", capacity / 2, capacity])
        more, crowd = rng.choice([0.0, 1.0, 5.0]), float(len(fleet.holders))
        sums = [*said.sums, *said.before, keep, waiting, first_call, more, demand, said.part, crowd]
        return [*sums, known, capacity, capacity, rate, 0.0, rng.choice([0.0, 0.0, keep / 2]), next_calls, "channel:"]

    def learn(said: Said, reply: list[Any]) -> None:
        said.lease, said.part = reply[0] - reply[4], reply[7]

    play(fleet, report, learn)


@pytest.mark.parametrize("seed", range(12))
def test_budget(redis: Redis, seed: int) -> None:
    fleet = Fleet(redis, "budget", BudgetKey, seed)
    rng = fleet.rng
    window, percent, minimum = rng.choice([1.0, 10.0]), rng.choice([20.0, 5.0]), rng.choice([0.0, 10.0])

    def report(said: Said) -> list[object]:
        said.sums[0] += rng.choice([0, 1, 40])
        said.sums[1] = max(0.0, said.sums[1] + rng.choice([0, 0, 1, 5, -2]))
        known: list[object] = ["", "", ""]
        if rng.random() < 0.5:
            known = [50.0, 3.0, 1.0]
        return [*said.sums, *said.before, rng.choice([0.0, 0.05, 2.0]), *known, window, percent, minimum]

    play(fleet, report, lambda said, reply: None)


@pytest.mark.parametrize("seed", range(12))
def test_members(redis: Redis, seed: int) -> None:
    fleet = Fleet(redis, "members", MembersKey, seed)
    play(fleet, lambda said: [float(fleet.rng.random() < 0.03)], lambda said, reply: None)


@pytest.mark.parametrize("seed", range(16))
def test_places(redis: Redis, seed: int) -> None:
    fleet = Fleet(redis, "places", PlacesKey, seed)
    rng, place_seconds = fleet.rng, 2.0

    def report(said: Said) -> list[object]:
        said.sums[0] += rng.choice([0.0, 0.0, 1.0, 4.0])
        age, delay = rng.choice(["", "", "", 0.0, 0.05, 1.0]), rng.choice([0.0, 0.5, 4.0])
        wanted = float(rng.choice([0, 0, 1, 3, 20]))
        queued = float(rng.choice([0, 1])) if wanted else 0.0
        return [age, delay, said.sums[0], wanted, rng.choice([1.0, 7.5]), place_seconds, queued]

    play(fleet, report, lambda said, reply: None)


@pytest.mark.parametrize("seed", range(24))
def test_weather(redis: Redis, seed: int) -> None:
    fleet = Fleet(redis, "weather", WeatherKey, seed)
    rng = fleet.rng
    eventful, pause = rng.choice([0.02, 0.1, 0.3]), rng.choice([0.27, 0.27, 1.5])

    def report(said: Said) -> list[object]:
        said.sums[0] += rng.choice([0.0, 0.0, 1.0, 4.0])
        events = [float(rng.random() < eventful) for _ in range(4)]
        cut = rng.choice([1.0, 1.0, 1.0, 0.5, 0.7])
        wanted = float(rng.choice([0, 1, 1, 3, 20]))
        queued = float(rng.choice([0, 1, 5])) if wanted else 0.0
        ages = [rng.choice([0.0, 0.3, 5.0]), rng.choice([0.0, 0.2, 1e9])]
        own = [rng.choice([0.0, 0.5, 3.0]), cut, rng.choice([0.0, 0.1, 2.0]), said.sums[0]]
        served = rng.choice([0.0, 0.4, 30.0, 1e9])
        return [*events, *own, wanted, queued, *ages, float(rng.random() < 0.02), pause, served]

    play(fleet, report, lambda said, reply: None)
