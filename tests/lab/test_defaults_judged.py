"""Contract, section 9: the simulator is the judge of the defaults (no key set but the dialect)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proxy.config.yaml_tree import Map
from proxy.lab.simulate import Figures, Scenario
from proxy.lab.simulate.columns import columns
from proxy.lab.simulate.figures import figures
from proxy.lab.simulate.scenario import read_scenario
from proxy.lab.simulate.simulation import play

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "config/examples/scenarios").glob("*.yaml"))
#: By how much large ones are made smaller, sidecars, calls and capacities alike.
SCALE = {
    "cold_caches": 0.4,
    "fleet": 0.03,
    "hanging_endpoint": 0.5,
    "herd": 0.1,
    "long_outage": 0.5,
    "outage": 0.2,
    "overload": 0.2,
    "brownout": 0.3,
    "one_bad_endpoint": 0.3,
    "short_outage": 0.4,
    "slow_minute": 0.3,
    "slow_tail": 0.3,
    "two_keys": 0.5,
}
#: Of the strategy standard.
MOST_ATTEMPTS = 3


def scaled(scenario: Scenario, by: float) -> Scenario:
    def part(amount: float | None) -> float | None:
        return None if amount is None else amount * by

    return replace(
        scenario,
        sidecars=max(1, round(scenario.sidecars * by)),
        calls=scenario.calls * by,
        capacity=part(scenario.capacity),
        outages=tuple(replace(each, capacity=part(each.capacity)) for each in scenario.outages),
    )


Judged = tuple[Scenario, Figures, dict[str, Figures]]


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda file: file.stem)
def played(request: pytest.FixtureRequest) -> Judged:
    """The scenario, what the defaults make of it, and the other columns that they are compared with: every one where
    the upstream may name a delay, else the one without retries. All tests of one scenario come together, so that
    whichever worker has them plays it once.
    """
    file: Path = request.param
    found, problems = read_scenario(str(file))
    assert found is not None, problems
    scenario = scaled(found, SCALE.get(file.stem, 1.0))
    if scenario.policy is not None:  # all but what belongs to the app that is played, and its keys
        assert set(scenario.policy) <= {"timeouts", "credentials"}, "the defaults are judged as they are"
    scenario = replace(scenario, url="http://u.test/", policy=scenario.policy or _defaults())
    first, *others = columns(None, scenario, {})[0]
    if not names_delays(scenario):
        others = [column for column in others if column.name == "none"]
    ours, *done = (figures(scenario, play(scenario, column)) for column in (first, *others))
    assert names_delays(scenario) or not any(each.longest_pushback for each in (ours, *done))
    return scenario, ours, {each.name: each for each in done}


def names_delays(scenario: Scenario) -> bool:
    """Whether the upstream says how long to wait, in any column: as the file has it, or until its window ends."""
    return any(each.retry_after or each.limit is not None for each in (scenario, *scenario.outages))


def _defaults() -> Map:
    return Map()


def end(scenario: Scenario) -> float:
    return max((each.until + each.recovers for each in scenario.outages), default=0.0)


def test_there_are_ten_that_differ() -> None:
    assert len(EXAMPLES) >= 10


def test_the_defaults_are_never_worse_than_no_retries(played: Judged) -> None:
    _, ours, others = played
    assert ours.success_rate >= others["none"].success_rate - 0.001


def test_the_load_is_bounded(played: Judged) -> None:
    _, ours, others = played
    if ours.longest_pushback:
        assert ours.amplification <= others["adaptive"].amplification * 1.1
    else:
        assert ours.amplification <= MOST_ATTEMPTS * 1.1


def test_where_pushback_is_given_a_cooldown_costs_nothing(played: Judged) -> None:
    scenario, ours, others = played
    pushback = max(each.longest_pushback for each in (ours, *others.values()))
    if not pushback:
        return
    assert ours.success_rate >= max(each.success_rate for each in others.values()) - 0.002
    assert ours.latency["p50"] <= 1.5 * others["none"].latency["p50"]
    assert ours.latency["p99"] <= others["adaptive"].latency["p99"] + pushback
    assert ours.cooled_until - end(scenario) <= 2 * pushback + 10
