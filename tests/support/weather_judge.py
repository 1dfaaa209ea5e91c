"""The judge of redrive's own defaults: six rules for how well a scenario's calls have to fare (contract, section 9).

Four results of one scenario are compared: the defaults, no retries (`none`), the defaults with `concurrency: off` and
`outage: fail` (`bare`), and what the best scheduler would serve, which knows what the upstream takes (`possible`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

from support.scenario_supply import Stretch, Supply

from proxy.config.yaml_tree import Map
from proxy.lab.simulate.arrivals import arrivals
from proxy.lab.simulate.columns import Column, columns, terms, without_holding
from proxy.lab.simulate.figures import Figures, figures
from proxy.lab.simulate.ledger import Ledger
from proxy.lab.simulate.possible import Possible, possible
from proxy.lab.simulate.simulation import play
from proxy.lab.simulate.weather import Scenario, ScenarioOutage

#: Seconds over which the load is looked at.
_SPAN = 5
#: The seconds that a wait before the first attempt has to last to count as a hold.
_NO_HOLD = 0.001


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one column: its figures, and every call of it. `median` and `p99` are of the seconds of the calls
    that succeeded.
    """

    figures: Figures
    ledger: Ledger
    median: float
    p99: float


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """The verdict of one rule, by its number in the contract: whether it holds, and the figures in a few words."""

    rule: int
    holds: bool
    says: str


def result(scenario: Scenario, column: Column) -> Result:
    """The result of a column, which is played here."""
    ledger = Ledger()
    made = figures(scenario, play(scenario, column, ledger=ledger))
    took = sorted(
        ended - began for began, ended, served in zip(ledger.began, ledger.ended, ledger.served, strict=True) if served
    )
    middle, last = (took[min(len(took) - 1, int(part * len(took)))] if took else 0.0 for part in (0.5, 0.99))
    return Result(made, ledger, middle, last)


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """The results that stay the same however the defaults hold calls: the result without retries (`none`), and what the
    best scheduler would serve (`best`).
    """

    none: Result
    best: Possible


def yardsticks(scenario: Scenario) -> Yardsticks:
    """Play this scenario without retries and with the best scheduler."""
    scenario, found = judged(scenario)
    none = next(each for each in found if each.name == "none")
    return Yardsticks(result(scenario, none), possible(scenario, terms(found[0]), arrivals(scenario)))


def trial(scenario: Scenario, measured: Yardsticks | None = None) -> Judge:
    """Play this scenario with the defaults, without retries (`none`) and with the best scheduler, and return the judge,
    which has their figures and gives the verdicts. The defaults are those without a configuration file; the scenario's
    `policy` sets only what belongs to its app, such as its credentials. `measured`: the yardsticks of this scenario, if
    they are known.
    """
    known = yardsticks(scenario) if measured is None else measured
    scenario, found = judged(scenario)
    ours = found[0]
    bare = without_holding(ours)
    played = result(scenario, ours)
    timeouts = ours.policy.timeouts
    is_bounded = (timeouts.attempt, timeouts.first_byte) != (None, None)
    unheld = None
    if _holding_should_cost_nothing(scenario, is_bounded):
        unheld = played if bare is ours else result(scenario, bare)
    return Judge(scenario, played, known.none, unheld, known.best, ours.policy.pushback.hold, is_bounded)


def judged(scenario: Scenario) -> tuple[Scenario, list[Column]]:
    """The scenario as it is judged, and its columns, of which the first is that of the defaults."""
    scenario = replace(scenario, url="http://upstream.example/", policy=scenario.policy or Map())
    found, problems = columns(None, scenario, {})
    if problems:
        raise ValueError("\n".join(map(str, problems)))
    return scenario, found


@dataclass(frozen=True, slots=True)
class Judge:
    """The judge of one scenario, by the results of its columns: redrive's defaults (`ours`), no retries (`none`), the
    defaults without holding calls (`bare`; None where rule 5 does not apply, which alone asks for it), and what was
    possible (`best`). `hold` is the policy's `pushback.hold`; `is_bounded`: an attempt without an answer is given up
    after a while, so that silence is a sign of an outage.
    """

    scenario: Scenario
    ours: Result
    none: Result
    bare: Result | None
    best: Possible
    hold: float = 20.0
    is_bounded: bool = True

    def verdicts(self) -> list[RuleVerdict]:
        """The verdicts of all rules that apply to this scenario."""
        return [
            *self._served(),
            *self._times(),
            *self._load(),
            *self._fails_fast(),
            *self._costs_nothing(),
            *self._is_over(),
        ]

    @property
    def worst_load(self) -> float:
        """The highest load of the upstream while it is overloaded, as a multiple of the load that the contract allows
        at that time (section 9, rule 3); 0 if the upstream is never overloaded.
        """
        return max((load / allowed for _, load, allowed in self._loads()), default=0.0)

    # rule 1

    def _served(self) -> Iterator[RuleVerdict]:
        ours, none, best = self.ours.figures.success_rate, self.none.figures.success_rate, self.best.success_rate
        least = none - 0.001
        if best > none + 0.001:  # else the difference is chance, as the first part of the rule allows for
            least = none + 0.85 * (best - none)
        yield RuleVerdict(
            1, ours >= least - 1e-9, f"{ours:.2%} served, at least {least:.2%} ({none:.2%} to {best:.2%})"
        )

    # rule 2

    def _times(self) -> Iterator[RuleVerdict]:
        ours, none, best = self.ours, self.none, self.best
        most = 1.5 * max(none.median, best.median) + 0.02
        yield RuleVerdict(2, ours.median <= most, f"median {ours.median:.3f} s, at most {most:.3f}")
        pushback = max(ours.figures.longest_pushback, none.figures.longest_pushback)
        most = 1.25 * max(none.p99, best.p99, 0.6) + pushback + 2.0
        yield RuleVerdict(2, ours.p99 <= most, f"p99 {ours.p99:.2f} s, at most {most:.2f}")
        held = max(ours.ledger.held, default=0.0)
        yield RuleVerdict(2, held <= self.hold + _NO_HOLD, f"held for {held:.2f} s, at most {self.hold:g}")

    # rule 3

    def _load(self) -> Iterator[RuleVerdict]:
        each = self.ours.figures.attempts_per_call
        yield RuleVerdict(3, each <= 3.3, f"{each:.2f} attempts a call, at most 3.3")
        worst = max(self._loads(), key=lambda found: found[1] / found[2], default=None)
        if worst is not None:
            at, load, allowed = worst
            says = f"{load / _SPAN:.1f}/s from {at} s on, at most {allowed / _SPAN:.1f}/s"
            yield RuleVerdict(3, load <= allowed, says)

    def _loads(self) -> Iterator[tuple[int, float, float]]:
        """Yield, for every span of five seconds in which the upstream is overloaded, or calls that waited because of
        that are not served yet: the second at which the span begins, the number of requests in it, and the number that
        the contract allows (section 9, rule 3).
        """
        scenario, ledger = self.scenario, self.ours.ledger
        supply, order = Supply(scenario), sorted(range(len(ledger.sendings)), key=ledger.sendings.__getitem__)
        times = [ledger.sendings[number] for number in order]
        busy = _busy(ledger)
        sparse = scenario.calls / scenario.sidecars < 1.0
        for stretch in supply.stretches():
            until = math.floor(self._well_again(stretch))
            for at in range(math.ceil(stretch.at) + _SPAN, until - _SPAN + 1):
                sent = order[bisect_left(times, at) : bisect_left(times, at + _SPAN)]
                takes = sum(supply.takes(at + second + 0.5) for second in range(_SPAN))
                if scenario.limit is not None:  # what has a limit may take much at once
                    takes = max(takes, sum(ledger.took[number] for number in sent))
                sidecars = len(set().union(*(busy.get(at + second, ()) for second in range(_SPAN))))
                firsts = sum(ledger.firsts[number] for number in sent) if sparse else 0
                if takes < math.inf:
                    yield at, len(sent), max(1.0, 1.3 * takes + 2.0 * _SPAN * sidecars + firsts)

    # rule 4

    def _fails_fast(self) -> Iterator[RuleVerdict]:
        ledger = self.ours.ledger
        for outage in self.scenario.outages:
            if not _is_full(self.scenario, outage, self.is_bounded):
                continue
            first = min((began for began in ledger.began if began >= outage.at), default=outage.at)
            took = [
                ended - began
                for began, ended, served, route in zip(
                    ledger.began, ledger.ended, ledger.served, ledger.route, strict=True
                )
                if first + 40 <= began < outage.until and not served and outage.route in (None, route)
            ]
            if took:
                half = median(took)
                yield RuleVerdict(
                    4, half <= 1.0, f"half of {len(took)} calls in a long outage fail within {half:.2f} s"
                )

    # rule 5

    def _costs_nothing(self) -> Iterator[RuleVerdict]:
        ours, bare = self.ours, self.bare
        if bare is None:
            return
        yield RuleVerdict(
            5, ours.median <= 1.05 * bare.median, f"median {ours.median:.3f} s, without holding {bare.median:.3f}"
        )
        served, usual = ours.figures.succeeded, bare.figures.succeeded
        yield RuleVerdict(5, served >= 0.95 * usual, f"{served} calls served, without holding {usual}")

    # rule 6

    def _is_over(self) -> Iterator[RuleVerdict]:
        ledger = self.ours.ledger
        holds = sorted(
            (min(sent, ended), began)
            for began, sent, ended in zip(ledger.began, ledger.sent, ledger.ended, strict=True)
            if min(sent, ended) - began > _NO_HOLD
        )
        stretches = list(Supply(self.scenario).stretches())
        begun = sorted(ledger.began)
        for number, stretch in enumerate(stretches):
            following = stretches[number + 1].at if number + 1 < len(stretches) else self.scenario.duration
            well = self._well_again(stretch)
            if well >= following:
                continue
            comes = bisect_left(begun, well)
            since = begun[comes] if comes < len(begun) else well
            most = 2.0 * max(1.0, self.ours.figures.longest_pushback) + 10.0
            after = [end - since for end, began in holds if stretch.at <= end and began < following]
            says = f"calls were held until {max(0.0, *after, 0.0):.1f} s after it was well again, at most {most:g}"
            late = sum(each > most for each in after)
            yield RuleVerdict(6, not late, f"{says}; {late} calls for longer" if late else says)

    def _well_again(self, stretch: Stretch) -> float:
        """The time from which the best scheduler has no backlog of calls any more after the overload `stretch`."""
        return max((end for began, end in self.best.backlogs if began <= stretch.until < end), default=stretch.until)


def _holding_should_cost_nothing(scenario: Scenario, is_bounded: bool) -> bool:
    """Whether the contract's rule 5 applies to a scenario, that holding calls must cost nothing there: the upstream
    takes all calls, and is never down as a whole.
    """
    return Supply(scenario).is_ample and not any(_is_full(scenario, each, is_bounded) for each in scenario.outages)


def _is_full(scenario: Scenario, outage: ScenarioOutage, is_bounded: bool) -> bool:
    """Whether an outage takes down the whole upstream, for all keys, in a way that calls can notice."""
    is_silent = not is_bounded and set(outage.kinds) <= {"attempt_timeout", "stall"}
    everywhere = outage.endpoint is None or scenario.endpoints == 1
    return outage.share >= 1.0 and everywhere and outage.key is None and not is_silent


def _busy(ledger: Ledger) -> dict[int, set[int]]:
    """The numbers of the sidecars that have calls under way in each second of a play, by the second."""
    found: dict[int, set[int]] = {}
    for began, ended, sidecar in zip(ledger.began, ledger.ended, ledger.sidecar, strict=True):
        for second in range(int(began), int(ended) + 1):
            found.setdefault(second, set()).add(sidecar)
    return found
