"""What no scheduler can spare a website that shares a limit on calls under way with a batch, if it neither interrupts a
call nor keeps a place free for one that may come: a call waits for the first place that becomes free. The web's 99th
percentile under `concurrency` is compared with this bound, for few and for many places.
"""

from __future__ import annotations

import heapq
import random

import pytest
from test_apps_played import SECONDS, play

from proxy.lab.upstream import Sending, UpstreamStep

WORK = 0.5


def served(now: float, chance: random.Random) -> Sending:
    """An answer takes half a second, or up to half as much more or less."""
    return UpstreamStep(200, after=_seconds(chance)).sending(None)


def _seconds(chance: random.Random) -> float:
    return WORK * chance.uniform(0.5, 1.5)


def best(places: int, rates: dict[str, float]) -> float:
    """The 99th percentile of the first app's calls, if they always go before those of the others. The arrivals are
    those of `play`.
    """
    first, chance = next(iter(rates)), random.Random(17)
    arrivals: list[tuple[float, bool]] = []
    for app, rate in rates.items():
        coming, now = random.Random(app), 0.0
        while (now := now + coming.expovariate(rate)) < SECONDS:
            arrivals.append((now, app != first))
    arrivals.sort(reverse=True)
    ends: list[float] = []  # of the calls under way
    waiting: list[tuple[bool, float]] = []
    took: list[float] = []
    while arrivals or waiting:
        free = len(ends) < places
        if arrivals and (free or arrivals[-1][0] <= ends[0]) and not (free and waiting):
            now, is_other = arrivals.pop()
            heapq.heappush(waiting, (is_other, now))
        elif not free:
            now = ends[0]
        while ends and ends[0] <= now:
            heapq.heappop(ends)
        if waiting and len(ends) < places:
            is_other, came = heapq.heappop(waiting)
            end = now + _seconds(chance)
            heapq.heappush(ends, end)
            if not is_other:
                took.append(end - came)
    return sorted(took)[int(0.99 * len(took))]


def by_formula(places: int) -> float:
    """The 99th percentile of an answer and the wait for the first of so many places, all of which are in use: what is
    left of an answer of 0.25 to 0.75 s, which is the residual life of renewal theory, has to end in one of them.
    """

    def late(wait: float) -> float:
        if wait <= 0.0:
            return 1.0
        left = 0.5 - wait if wait < 0.25 else max(0.0, 0.75 - wait) ** 2
        return (left / WORK) ** places

    answers = [0.25 + 0.5 * (number + 0.5) / 1000 for number in range(1000)]
    times = (WORK + number / 1000 for number in range(2000))
    return next(time for time in times if sum(late(time - answer) for answer in answers) <= 10)


@pytest.mark.parametrize("places", [8, 16])
def test_the_bound_is_the_wait_for_the_first_of_the_places_and_an_answer(places: int) -> None:
    web = places / WORK / 10
    assert by_formula(places) == pytest.approx(best(places, {"web": web, "batch": 10 * web}), rel=0.06)


#: The fewest places of this test with which that wait is less than a tenth of what the web's calls take alone.
ENOUGH = 16


@pytest.mark.parametrize("places", [4, 8, ENOUGH, 40])
def test_the_web_waits_no_longer_than_for_the_first_place_that_becomes_free(places: int) -> None:
    web = places / WORK / 10
    config = f'upstreams: {{api: {{url: "https://api.example", concurrency: {{max: {places}, queue: 5000}}}}}}\n'
    alone = play(config, {"web": web}, served)["web"]
    both = play(config, {"web": web, "batch": 10 * web}, served)
    bound = best(places, {"web": web, "batch": 10 * web})
    print(places, "alone", alone.p99, "beside", both["web"].p99, "bound", bound)
    assert both["web"].succeeded == both["web"].calls
    assert both["web"].p99 <= 1.02 * bound
    assert places < ENOUGH or both["web"].p99 <= 1.1 * alone.p99
