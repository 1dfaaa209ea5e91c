"""`redrive simulate` with limits that answers report, whether right or wrong, with limits of tokens, and with apps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.scenarios import scenario

from proxy.lab.clock import Clock
from proxy.lab.driver import Driver
from proxy.lab.fixed_draws import FixedDraws
from proxy.lab.simulate.columns import WITHOUT_APPS, columns
from proxy.lab.simulate.figures import figures
from proxy.lab.simulate.ledger import Ledger
from proxy.lab.simulate.limits import LimitKind, limit_of
from proxy.lab.simulate.possible import Possible
from proxy.lab.simulate.report import as_json
from proxy.lab.simulate.scenario import read_scenario
from proxy.lab.simulate.simulation import play
from proxy.lab.upstream import Sending
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.facts import NoFields, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.policy import Backoff, Policy, Strategy
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry

ROOT = Path(__file__).parent.parent.parent
AHEAD = sorted((ROOT / "config/examples/scenarios/ahead").glob("*.yaml"))


@pytest.mark.parametrize("file", AHEAD, ids=lambda file: file.stem)
def test_waiting_for_what_answers_say_is_left_is_never_worse_than_not_waiting(file: Path) -> None:
    """Whether it is right, or wrong in one of the ways in which providers get it wrong."""
    found, problems = read_scenario(str(file))
    assert found is not None, problems
    played = {column.name: column for column in columns(None, found, {})[0]}
    ahead, off = (figures(found, play(found, played[name])) for name in ("policy: standard", "off"))
    assert ahead.success_rate >= off.success_rate
    assert ahead.latency["p50"] <= 2 * off.latency["p50"] + 1.5
    if file.stem in ("zero", "other_key", "far", "used", "one", "sizes", "tenth", "half"):
        # found out by one call, once several wait
        assert ahead.refused == off.refused
        assert ahead.latency["p50"] <= (1.15 if file.stem == "far" else 1.05) * off.latency["p50"]
        assert ahead.latency["p99"] <= 1.05 * off.latency["p99"]
    elif file.stem in (
        "minus_one",
        "past",
        "date",
        "doubled",
        "garbage",
        "tomorrow",
    ):  # as if the fields were not there
        assert replace(ahead, name="") == replace(off, name="")
    else:
        assert ahead.refused <= max(1, 0.05 * off.refused), "one test may be refused"


def test_a_limit_that_is_used_up_costs_few_calls_their_success_if_answers_take_a_third_of_the_window(
    tmp_path: Path,
) -> None:
    """What is left is then known so late that a few are refused, and calls in the cooldown wait beside those for it."""
    text = (ROOT / "config/examples/scenarios/ahead/used_up.yaml").read_text()
    file = tmp_path / "used_up.yaml"
    file.write_text(re.sub("latency: [0-9]+ms", "latency: 3s", text))
    found, problems = read_scenario(str(file))
    assert found is not None, problems
    played = {column.name: column for column in columns(None, found, {})[0]}
    sums = {name: [0, 0] for name in ("policy: standard", "off")}
    for seed in range(1, 5):
        for name, sum_of in sums.items():
            figure = figures(found, play(replace(found, seed=seed), played[name]))
            sum_of[0] += figure.succeeded
            sum_of[1] += figure.refused
    ahead, off = sums.values()
    assert ahead[0] >= off[0]
    assert ahead[1] <= 0.5 * off[1]


@pytest.mark.parametrize("way", ["one", "sizes", "tenth"])
def test_a_limit_of_tokens_that_is_reported_without_sense_costs_no_call_its_success(way: str, tmp_path: Path) -> None:
    text = f"""\
duration: 2m
calls: 5/s
sidecars: 1
request: {{prompt: 30%, max_tokens: 900}}
upstream: {{latency: 100ms, limit: 60000, tokens: 1000, window: 10s, overload: 429, reports: {way}}}
policy: {{dialects: [http, openai], pushback: {{ahead: on}}}}
compare:
  off: {{dialects: [http, openai]}}
"""
    found = scenario(tmp_path, text)
    played = {column.name: column for column in columns(None, found, {})[0]}
    ahead, off = (figures(found, play(found, played[name])) for name in ("policy: standard", "off"))
    assert ahead.success_rate == off.success_rate == 1.0
    assert ahead.refused <= off.refused + 2
    assert ahead.latency["p50"] <= 1.1 * off.latency["p50"]


@pytest.mark.parametrize("seed", [1, 2])
def test_calls_that_wait_for_a_limit_and_in_a_cooldown_do_not_wait_for_each_other(seed: int, tmp_path: Path) -> None:
    """Tokens are hard to foresee, so that some attempts are refused, and a cooldown holds calls, too."""
    text = """\
duration: 90s
calls: 8/s
sidecars: 1
request: {prompt: 30%, max_tokens: 400}
upstream: {latency: 100ms, limit: 9000, tokens: 1000, window: 1s, overload: 429, reports: next}
policy: {dialects: [http, openai], pushback: {ahead: on}}
compare:
  off: {dialects: [http, openai]}
"""
    found = replace(scenario(tmp_path, text), seed=seed)
    played = {column.name: column for column in columns(None, found, {})[0]}
    ahead, off = (figures(found, play(found, played[name])) for name in ("policy: standard", "off"))
    assert ahead.success_rate >= max(0.98, off.success_rate)
    assert ahead.refused < off.refused


def test_a_rate_of_tokens_pays_what_is_expected_and_settles_what_it_was(tmp_path: Path) -> None:
    """Of an estimate that is far too high the rest comes back, so that as many calls go as really fit."""
    text = """\
duration: 1m
calls: 4/s
sidecars: 1
request: {prompt: 50%, max_tokens: 4000}
upstream: {latency: 50ms, limit: 60000, tokens: 1000, window: 10s}
policy: {dialects: [http, openai], rate: {kind: rate, rate: 5000/s, burst: 9000, unit: tokens}}
"""
    found = scenario(tmp_path, text)
    settled = figures(found, play(found, columns(None, found, {})[0][0]))
    assert (settled.success_rate, settled.refused) == (1.0, 0)
    assert settled.latency["p50"] < 1


def test_requests_that_take_a_while_to_arrive_come_bunched(tmp_path: Path) -> None:
    """Calls come evenly, 20 ms apart but for the first two, which come at once, and a limit without a queue takes one
    in 18 ms: it refuses one of those two alone, but many if each takes 4 ms to arrive on average.
    """
    text = """\
duration: 20s
sidecars: 1
calls: 50/s
arrivals: steady
upstream: {latency: 5ms, capacity: 55/s, queue: 0s, overload: 503TRANSIT}
"""

    def refused(transit: str) -> int:
        found = scenario(tmp_path, text.replace("TRANSIT", transit))
        ledger = Ledger()
        none = next(each for each in columns(None, found, {})[0] if each.name == "none")
        play(found, none, ledger=ledger)
        return len(ledger.took) - sum(ledger.took)

    assert refused("") == 1
    assert refused(", transit: 4ms") > 100
    assert refused(", transit: 4ms") == refused(", transit: 4ms")


def test_requests_of_one_moment_arrive_in_any_order_if_the_scenario_says_so(tmp_path: Path) -> None:
    """Of a quota that is used up, others are served then."""
    text = """\
duration: 2m
calls: 8/s
sidecars: 1
upstream: {latency: 50ms, limit: 30, window: 10s, limit_kind: bucket, burst: 5, overload: 429, ORDER}
"""

    def ends(order: str) -> list[tuple[float, int]]:
        """When each call began, and whether it was served."""
        found = scenario(tmp_path, text.replace("ORDER", order))
        ledger = Ledger()
        play(found, columns(None, found, {})[0][0], ledger=ledger)
        return sorted(zip(ledger.began, ledger.served, strict=True))

    at_random, as_sent = ends("order: random"), ends("order: sent")
    assert ends("order: random") == at_random
    assert ends("retry_after: 0s") == as_sent
    assert at_random != as_sent


def test_a_request_that_is_overtaken_reaches_the_upstream_later() -> None:
    clock, came = Clock(), []
    policy = Policy(
        "u", "", Strategy("standard", "standard", 3, Backoff(0.1, 20.0, 2.0, "none")), BucketRef(QuotaSpec())
    )
    registry = Registry()

    class Sent(Driver):
        def __init__(self, number: int) -> None:
            super().__init__(clock, self.fate)
            self.number = number

        def launched(self, attempt: int) -> float:
            return (0.0, 0.003, 0.001)[self.number]

        def fate(self, attempt: int, now: float) -> Sending:
            came.append((self.number, now))
            return Sending(0.05, Reply(200, NoFields()))

    drivers = [Sent(number) for number in range(3)]
    for driver in drivers:
        request = Request("GET", "u.test", "/", NoFields())
        env = Env(FixedDraws(1.0), 0.0, WaitingRoom(10))
        driver.begin(Call(request, policy, registry.scope(policy, request), env, driver.set_alarm))
    clock.run()
    assert came == [(0, 0.0), (2, 0.001), (1, 0.003)]
    assert [driver.finished for driver in drivers] == pytest.approx([0.05, 0.053, 0.051])


@pytest.mark.parametrize(
    ("name", "seed"),
    [("used", 1), ("zero", 1), ("zero", 2), ("other_key", 2), ("other_key", 3), ("other_key", 4), ("tokens", 1)],
)
def test_if_answers_take_a_third_of_the_window_all_is_as_without_ahead(name: str, seed: int, tmp_path: Path) -> None:
    """What they say is left is then of a window that is nearly over, and holds no call."""
    file = tmp_path / f"{name}.yaml"
    text = (ROOT / f"config/examples/scenarios/ahead/{name}.yaml").read_text()
    file.write_text(re.sub("latency: [0-9]+ms", "latency: 3s", text))
    found, problems = read_scenario(str(file))
    assert found is not None, problems
    found = replace(found, seed=seed)
    played = {column.name: column for column in columns(None, found, {})[0]}
    ahead, off = (figures(found, play(found, played[way])) for way in ("policy: standard", "off"))
    assert replace(ahead, name="") == replace(off, name="")


def test_apps_fare_by_their_priority_and_their_weight(tmp_path: Path) -> None:
    found, problems = read_scenario(str(ROOT / "config/examples/scenarios/apps/batch_beside_web.yaml"))
    assert found is not None, problems
    played = {column.name: column for column in columns(None, found, {})[0]}
    with_apps, without = (figures(found, play(found, played[name])) for name in ("policy: standard", WITHOUT_APPS))
    web, batch = with_apps.apps
    assert (web.name, batch.name) == ("web", "batch")
    assert web.calls + batch.calls == with_apps.calls == without.calls
    assert web.calls == pytest.approx(0.09 * with_apps.calls, rel=0.2)
    assert web.succeeded + batch.succeeded == with_apps.succeeded
    assert web.latency["p99"] < 1.2 < without.apps[0].latency["p99"]
    shown = json.loads(as_json(found, [with_apps], Possible(0, 0, 0.0, 0.0, ())))["columns"][0]["apps"]
    assert shown["web"]["success_rate"] == 1.0
    assert set(shown["batch"]) == {"calls", "succeeded", "success_rate", "latency"}


def test_apps_that_the_configuration_does_not_know_are_others(tmp_path: Path) -> None:
    config = tmp_path / "redrive.yaml"
    config.write_text("apps: {known: {web: {priority: high}}}\nupstreams: {a: {url: http://a.example}}\n")
    found = scenario(tmp_path, "duration: 5s\napps: {web: {}, sk-secret: {share: 25%}}\n")
    assert [app.share for app in found.apps] == [0.75, 0.25]
    (first, *_), _ = columns(str(config), found, {})
    assert [app.name for app in first.apps] == ["web", "others"]
    config.write_text("upstreams: {a: {url: http://a.example}}\n")
    (first, *_), _ = columns(str(config), found, {})
    assert first.apps == ()


def test_no_field_names_the_window_of_a_limit_of_tokens(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("upstream: {limit: 10, tokens: 2, reports: window}\n")
    found, problems = read_scenario(str(file))
    assert found is None
    assert [problem.path for problem in problems] == ["upstream.reports"]


@pytest.mark.parametrize("kind", ["fixed", "sliding", "bucket"])
def test_what_is_left_is_what_is_taken(kind: LimitKind) -> None:
    """A request that is as large as the rest fits, and one more does not; the limit is whole when it says so."""
    limit = limit_of(kind, 10.0, 10.0)
    for at in (0.0, 1.0, 4.0):
        limit.take(at, 2, 10)
    left = int(limit.left(4.0, 10))
    assert limit.wait(4.0, left, 10) == 0 < limit.wait(4.0, left + 1, 10)
    assert 0 < limit.more_in(4.0, 10, whole=False) <= limit.more_in(4.0, 10, whole=True) <= 10
    assert limit.left(4.0 + limit.more_in(4.0, 10, whole=True), 10) == pytest.approx(10)
