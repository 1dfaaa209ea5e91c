"""The supply of a scenario's upstream: the load that it can take at each time, and the times in which it is asked for
more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from proxy.lab.simulate.weather import Scenario, ScenarioOutage

#: The share of what an upstream takes below which demand leaves it ample room.
_AMPLE = 0.85
#: The rounding error of sums of shares.
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time, in seconds from the beginning, in which more is asked of the upstream than it takes."""

    at: float
    until: float


class Supply:
    """The requests a second that a scenario's upstream takes, second by second.

    The calls are divided into parts, one for each route with each of the apps' keys. A part asks for its share of the
    calls, and takes at most what its key's limit allows, or nothing while an outage refuses all of its requests. If any
    part is asked for more than it takes, the upstream takes the sum of what each part asks for and can take; if no part
    is, the upstream takes the sum of what all parts could take. The capacity bounds all parts together.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        routes = [route.share for route in scenario.routes] or [1.0]
        credentials = scenario.policy.sub("credentials") if scenario.policy is not None else {}
        self._values = len(credentials.get("values", ()))  # keys that any call may use
        keys = 1 if self._values else scenario.keys
        self._parts = [(route, key, share / keys) for route, share in enumerate(routes) for key in range(keys)]

    def asks(self, now: float) -> float:
        """The calls a second that apps begin; none in a pause."""
        if any(pause.at <= now < pause.until for pause in self._scenario.pauses):
            return 0.0
        return self._scenario.calls

    def takes(self, now: float) -> float:
        """The requests a second that the upstream takes, of all parts together; infinite where nothing bounds it."""
        return self._taken(now)[0]

    def stretches(self) -> Iterator[Stretch]:
        """The periods in which calls ask for more than the upstream takes, in order of time."""
        began: float | None = None
        for second in range(int(self._scenario.duration) + 1):
            is_over = second < int(self._scenario.duration) and self._taken(second + 0.5)[1] > 1.0
            if is_over and began is None:
                began = float(second)
            elif not is_over and began is not None:
                yield Stretch(began, float(second))
                began = None

    @property
    def is_ample(self) -> bool:
        """Whether the upstream can take clearly more than it is asked for, all the time, and has a queue for requests
        that come at once.
        """
        scenario = self._scenario
        if scenario.capacity is not None and scenario.queue < 0.5:
            return False
        return all(self._taken(second + 0.5)[1] <= _AMPLE for second in range(int(scenario.duration)))

    def _taken(self, now: float) -> tuple[float, float]:
        """Return two figures for the time `now`: the requests a second that the upstream takes, and the use of the most
        used limit (a part's limit or the capacity), as the requests a second that are made divided by those that it
        allows.
        """
        scenario, asked = self._scenario, self.asks(now)
        outages, taken, most, use = scenario.outages_at(now), 0.0, 0.0, 0.0
        for route, key, share in self._parts:
            part = asked * share
            takes = self._limited(outages, key, route)
            if self._is_closed(outages, key, route):
                takes = 0.0
            if part > 0:
                use = max(use, part / takes if takes else math.inf)
            taken += min(part, takes)
            most += takes
        capacity = self._capacity(outages, now)
        if capacity is not None:
            use = max(use, (asked + (scenario.neighbours or 0.0)) / capacity) if asked else use
        taken = taken if taken < asked * (1 - _EPSILON) else most
        return taken if capacity is None else min(taken, capacity), use

    def _limited(self, outages: tuple[ScenarioOutage, ...], key: int, route: int) -> float:
        """The requests a second that the limits of the keys of one part of the traffic allow while these outages are in
        force; infinite if there is no limit. `key` and `route`: the numbers of the part's key and route.
        """
        scenario = self._scenario
        total = 0.0
        for each in range(self._values) if self._values else (key,):
            outage = next((found for found in outages if found.is_about(each, 0, route)), None)
            limit = scenario.limit if outage is None else outage.limit
            if limit is None:
                return math.inf
            if outage is None or outage.share < 1.0:
                total += limit / (scenario.tokens or 1) / scenario.window
        return total

    def _is_closed(self, outages: tuple[ScenarioOutage, ...], key: int, route: int) -> bool:
        """Whether one of these outages refuses all requests of a part of the traffic, at every endpoint and with every
        key that the part may use. `key` and `route`: the numbers of the part's key and route.
        """
        if not outages:
            return False
        keys = range(self._values) if self._values else (key,)
        found = (
            next((outage for outage in outages if outage.is_about(each, endpoint, route)), None)
            for each in keys
            for endpoint in range(self._scenario.endpoints)
        )
        return all(outage is not None and outage.share >= 1.0 for outage in found)

    def _capacity(self, outages: tuple[ScenarioOutage, ...], now: float) -> float | None:
        """The capacity, in requests a second, of the endpoints that are not in a full outage, together; None if it has
        no bound, or if no endpoint is left.
        """
        scenario = self._scenario
        recovering = scenario.recovering_at(now)
        total = 0.0
        for endpoint in range(scenario.endpoints):
            outage = next(
                (each for each in outages if each.key is None and each.route is None and each.is_about(0, endpoint, 0)),
                None,
            )
            if outage is None:
                usual = scenario.capacity if recovering is None else scenario.capacity_after(recovering, now)
            else:
                usual = outage.capacity
            if usual is None:
                return None
            if outage is None or outage.share < 1.0:
                total += usual / scenario.endpoints
        return total if total > 0 else None
