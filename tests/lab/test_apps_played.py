"""Several apps at one upstream on the virtual clock: a batch of ten times the web's calls must not be felt by the web
(contract, section 17). The figures of docs/guides/several-apps.md come from here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import yaml

from proxy.config.load import load_tree
from proxy.config.settings import Settings
from proxy.lab.clock import BEGIN
from proxy.lab.recorder import Recorder
from proxy.lab.routing import AppRequest, Chosen, choose
from proxy.lab.stage import Stage
from proxy.lab.upstream import FAULTS, Sending, UpstreamStep
from proxy.retry.facts import FaultKind, Outcome

APPS = """
apps:
  by: [{header: X-App}]
  known: {web: {weight: 4, priority: high}, batch: {weight: 1, priority: low}}
"""
SECONDS = 30.0


@dataclass
class Fared:
    """How the calls of one app fared: of how many, how many succeeded, and their times and ends in seconds."""

    calls: int
    succeeded: int
    times: list[float]
    ends: list[float]

    def within(self, seconds: float) -> int:
        """How many were served in the first seconds."""
        return sum(end <= seconds for end in self.ends)

    @property
    def share(self) -> float:
        return self.succeeded / self.calls

    @property
    def p99(self) -> float:
        return sorted(self.times)[math.ceil(0.99 * len(self.times)) - 1]


class _Call(Recorder):
    def __init__(self, stage: Stage, settings: Settings, app: str, upstream: Callable[[float], Sending]) -> None:
        super().__init__(stage.clock, lambda attempt, now: upstream(now))
        self._stage, self._settings, self.app = stage, settings, app
        self.asked = ()

    def ask(self) -> None:
        asked = AppRequest("GET", "http://api.example/", (("X-App", self.app),))
        chosen = choose(self._settings, asked)
        assert isinstance(chosen, Chosen)
        self._stage.enter(self, chosen, asked)


def play(
    config: str, rates: dict[str, float], upstream: Callable[[float, random.Random], Sending], apps: str = APPS
) -> dict[str, Fared]:
    """Let each app make so many calls a second for half a minute, at random times."""
    settings = load_text(apps + config)
    chance = random.Random(17)
    stage = Stage(settings, chance)
    calls = []
    for app, rate in rates.items():
        arrivals, now = random.Random(app), 0.0
        while (now := now + arrivals.expovariate(rate)) < SECONDS:
            call = _Call(stage, settings, app, lambda now: upstream(now, chance))
            stage.clock.at(now, BEGIN, call.ask)
            calls.append(call)
    stage.clock.run()
    return {app: _fared([call for call in calls if call.app == app]) for app in rates}


def _fared(calls: list[_Call]) -> Fared:
    well = [call for call in calls if call.outcome is Outcome.SUCCESS]
    return Fared(len(calls), len(well), [call.elapsed for call in well], [call.began + call.elapsed for call in well])


def load_text(text: str) -> Settings:
    found = load_tree(yaml.safe_load(text), "apps.yaml", {})
    assert found.settings is not None, found.errors
    return found.settings


def served(now: float, chance: random.Random) -> Sending:
    return _after(0.5)


def _after(seconds: float, status: int = 200) -> Sending:
    return UpstreamStep(status, after=seconds).sending(None)


def away(now: float, chance: random.Random) -> Sending:
    """An upstream that is away for eight seconds."""
    if 10 <= now < 18:
        return Sending(0.001, fault=FAULTS[FaultKind.CONNECT_FAILURE])
    return _after(0.1)


def by_chance(now: float, chance: random.Random) -> Sending:
    """An upstream of which three answers in ten fail."""
    return _after(0.1, 503 if chance.random() < 0.3 else 200)


RATE = """
buckets: {fifty: {kind: rate, rate: 50/s, burst: 1}}
upstreams: {api: {url: "https://api.example", rate: fifty}}
"""
SMALL_ROOM = "limits: {waiting: 20}\n" + RATE
PLACES = 'upstreams: {api: {url: "https://api.example", concurrency: {max: 40, queue: 2000}}}\n'
PLAIN = 'upstreams: {api: {url: "https://api.example", timeouts: {attempt: 2s}}}\n'
LOW = """
buckets: {low: {kind: quota, capacity: 100, retry_cost: 5, initial: 100}}
upstreams: {api: {url: "https://api.example", bucket: low, concurrency: off, outage: fail}}
"""


@pytest.mark.parametrize(
    ("config", "web", "upstream"),
    [(RATE, 5, served), (SMALL_ROOM, 5, served), (PLACES, 8, served), (PLAIN, 5, away), (LOW, 5, by_chance)],
    ids=["rate", "small_room", "concurrency", "outage", "bucket_low"],
)
def test_the_web_does_not_feel_a_batch(config: str, web: float, upstream: Callable[..., Sending]) -> None:
    alone = play(config, {"web": web}, upstream)["web"]
    both = play(config, {"web": web, "batch": 10 * web}, upstream)
    print("alone", alone.share, alone.p99, "beside", both["web"].share, both["web"].p99, "batch", both["batch"].share)
    assert both["web"].share >= 0.9 * alone.share
    assert both["web"].p99 <= 1.1 * alone.p99


def test_the_batch_alone_gets_everything() -> None:
    """Of a rate that is a little less than what it asks for, nothing is kept for others."""
    batch = play(RATE, {"batch": 55}, served)["batch"]
    assert batch.succeeded == batch.calls
    assert max(batch.times) < 0.5 + (55 / 50 - 1) * SECONDS + 2


def test_equal_weights_are_served_alike() -> None:
    """Four apps ask for 1, 2, 4 and 8 times what is a quarter of the places; Jain's index of what they get."""
    known = "apps: {by: [{header: X-App}], known: {a: {}, b: {}, c: {}, d: {}}}\n"
    config = 'upstreams: {api: {url: "https://api.example", concurrency: {max: 10, queue: 9000, wait: 10m}}}\n'
    fared = play(config, {"a": 5, "b": 10, "c": 20, "d": 40}, served, apps=known)
    got = [each.within(SECONDS) for each in fared.values()]
    jain = sum(got) ** 2 / (len(got) * sum(each**2 for each in got))
    print("jain", jain, got)
    assert jain >= 0.95
