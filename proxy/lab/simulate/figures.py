"""The figures of one column of the simulation's table, as docs/reference/commands/simulate.md defines them."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.lab.simulate.simulation import Played
from proxy.lab.simulate.weather import Scenario, ScenarioOutage

#: Seconds over which the load is looked at.
WINDOW = 5
#: The share of the usual success, before the first outage, below which a second counts as bad.
USUAL = 0.95


@dataclass(frozen=True, slots=True)
class AppFigures:
    """The figures of one app's calls. `latency`: of those that succeeded."""

    name: str
    calls: int
    succeeded: int
    latency: dict[str, float]

    @property
    def success_rate(self) -> float:
        """The share of the app's calls that succeeded, 0 to 1."""
        return self.succeeded / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one column of the simulation's table (one way to retry). `recoveries`: for each outage the seconds
    from its end to the end of the last bad second, one in which fewer than 95 % of the usual share of calls succeed;
    None if the recovery did not end before the next outage, or the end. `series`: for each second the calls begun, the
    calls that succeeded, and the requests at the upstream. `scripts`: the number of scripts that Redis ran; `refused`:
    the number of requests that a limit refused.
    """

    name: str
    calls: int
    succeeded: int
    attempts: int
    requests: int
    peak: float
    amplification: float
    recoveries: tuple[float | None, ...]
    latency: dict[str, float]
    outcomes: dict[str, int]
    series: tuple[tuple[int, int, int], ...]
    hedges: int = 0
    longest_pushback: int = 0
    scripts: int = 0
    refused: int = 0
    apps: tuple[AppFigures, ...] = ()

    @property
    def success_rate(self) -> float:
        """The share of all calls that succeeded, 0 to 1."""
        return self.succeeded / self.calls if self.calls else 0.0

    @property
    def attempts_per_call(self) -> float:
        """The average number of attempts of a call."""
        return self.attempts / self.calls if self.calls else 0.0

    @property
    def hedge_share(self) -> float:
        """The average number of hedges of a call."""
        return self.hedges / self.calls if self.calls else 0.0

    @property
    def recovery(self) -> float | None:
        """The seconds of the longest recovery from an outage; 0 without an outage."""
        if any(each is None for each in self.recoveries):
            return None
        return max((each for each in self.recoveries if each is not None), default=0.0)


def figures(scenario: Scenario, played: Played) -> Figures:
    """The figures of a column, from the results of its play."""
    last = max([int(scenario.duration), *played.requests], default=0)
    series = tuple(
        (played.begun.get(second, 0), played.succeeded.get(second, 0), played.requests.get(second, 0))
        for second in range(last + 1)
    )
    ordered = sorted(played.seconds)
    peak, amplification = _load(scenario, series)
    return Figures(
        name=played.name,
        calls=sum(played.begun.values()),
        succeeded=sum(played.succeeded.values()),
        attempts=played.attempts,
        requests=sum(played.requests.values()),
        peak=peak,
        amplification=amplification,
        recoveries=tuple(_recovery(scenario, outage, series) for outage in scenario.outages),
        latency=_latency(ordered),
        outcomes={outcome.value: count for outcome, count in sorted(played.outcomes.items())},
        series=series,
        hedges=played.hedges,
        longest_pushback=played.longest_pushback,
        scripts=played.scripts,
        refused=played.refused,
        apps=tuple(
            AppFigures(app.name, each.begun, len(each.seconds), _latency(sorted(each.seconds)))
            for app, each in zip(scenario.apps, played.by_app, strict=True)
        ),
    )


def _latency(ordered: list[float]) -> dict[str, float]:
    return {name: _quantile(ordered, share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}


def _load(scenario: Scenario, series: tuple[tuple[int, int, int], ...]) -> tuple[float, float]:
    """The highest load in any stretch of WINDOW seconds: in requests a second, and as a multiple of the calls. `series`
    has for each second the calls begun, the calls that succeeded, and the requests.
    """
    usual = scenario.calls * WINDOW
    peak = amplification = 0.0
    for start in range(len(series)):
        part = series[start : start + WINDOW]
        requests = sum(each[2] for each in part)
        peak = max(peak, requests / WINDOW)
        amplification = max(amplification, requests / max(usual, sum(each[0] for each in part)))
    return peak, amplification


def _recovery(scenario: Scenario, outage: ScenarioOutage, series: tuple[tuple[int, int, int], ...]) -> float | None:
    first = min(other.at for other in scenario.outages)
    before = [each for each in series[: int(first)] if each[0]]
    begun = sum(each[0] for each in before)
    usual = sum(each[1] for each in before) / begun if begun else 1.0
    following = [other.at for other in scenario.outages if other.at >= outage.until]
    end = min([scenario.duration, *following])
    bad = [
        second
        for second in range(int(outage.until), int(end))
        if second < len(series) and series[second][0] and series[second][1] < USUAL * usual * series[second][0]
    ]
    if not bad:
        return 0.0
    if bad[-1] + 1 >= int(end):
        return None
    return bad[-1] + 1 - outage.until


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
