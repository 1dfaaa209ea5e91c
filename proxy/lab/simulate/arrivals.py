"""The apps' calls of a scenario: when each begins, at which sidecar, with which key, for which route, of what size.

They are the same for every column, since they come from random sources of their own.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from proxy.lab.simulate.weather import Scenario

#: Log-normal: 99 of 100 draws are within twice the median (ln 2 over the normal's 99 % point).
SIGMA = math.log(2) / 2.3263


#: Makes a named tuple faster than calling its class does.
_new = tuple.__new__


class Arrival(NamedTuple):
    """The beginning of a call at the time `at`, in seconds. Sidecar, key and route are numbers from 0; `size` is how
    much the call counts against the limit of its key; `app` is the number of its app.
    """

    at: float
    sidecar: int
    key: int
    route: int
    size: int
    app: int = 0


def arrivals(scenario: Scenario) -> Iterator[Arrival]:
    """The scenario's calls, in the order in which they begin."""
    chance = random.Random(f"{scenario.seed}/arrivals")  # noqa: S311, TID251 - a driver: it plays the apps' part
    sizes = random.Random(f"{scenario.seed}/sizes")  # noqa: S311, TID251 - the same
    routes = random.Random(f"{scenario.seed}/routes")  # noqa: S311, TID251 - the same
    steps = list(accumulate(route.share for route in scenario.routes))
    sidecars, keys, middle, rate = scenario.sidecars, scenario.keys, scenario.tokens, scenario.calls
    is_steady, pauses, until = scenario.arrivals == "steady", scenario.pauses, scenario.duration
    apps = random.Random(f"{scenario.seed}/apps")  # noqa: S311, TID251 - the same
    parts = list(accumulate(app.share for app in scenario.apps))
    are_alike = not pauses and keys == 1 and len(steps) < 2 and middle is None and not parts
    number, now = 0, 1.0 / rate if is_steady else chance.expovariate(rate)
    while now < until:
        # the next call's time is drawn first, and so are all others after it: the order decides the figures
        later = (number + 1) / rate if is_steady else now + chance.expovariate(rate)
        sidecar = int(chance.random() * sidecars)
        number += 1
        if are_alike:  # most scenarios, a hundred thousand times
            yield _new(Arrival, (now, sidecar, 0, 0, 1, 0))
        elif not any(pause.at <= now < pause.until for pause in pauses):
            key = int(chance.random() * keys) if keys > 1 else 0
            route = _drawn(steps, routes.random())
            size = 1 if middle is None else max(1, round(middle * math.exp(SIGMA * sizes.gauss(0.0, 1.0))))
            yield Arrival(now, sidecar, key, route, size, _drawn(parts, apps.random()))
        now = later


def _drawn(steps: Sequence[float], draw: float) -> int:
    """Draw the index of a part at random, with each part's share as its probability. `steps`: the sums of the shares up
    to and including each part; `draw`: a random number from [0, 1).
    """
    return min(bisect_right(steps, draw * steps[-1]), len(steps) - 1) if len(steps) > 1 else 0


def visits(scenario: Scenario) -> Iterator[float]:
    """The times at which the requests of other clients of the upstream come."""
    rate = scenario.neighbours
    if rate is None:
        return
    chance = random.Random(f"{scenario.seed}/neighbours")  # noqa: S311, TID251 - a driver: it plays their part
    now = chance.expovariate(rate)
    while now < scenario.duration:
        yield now
        now += chance.expovariate(rate)
