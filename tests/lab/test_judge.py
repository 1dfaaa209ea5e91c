"""The judge of the defaults: policies that break a rule are found out, and by that rule."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.scenario_supply import Stretch, Supply
from support.scenarios import scenario
from support.weather_judge import RuleVerdict, trial

ROOT = Path(__file__).parent.parent.parent


def verdicts(folder: Path, text: str) -> list[RuleVerdict]:
    return trial(scenario(folder, text)).verdicts()


def broken(folder: Path, text: str) -> set[int]:
    return {verdict.rule for verdict in verdicts(folder, text) if not verdict.holds}


SHORT = "duration: 1m\nsidecars: 2\ncalls: 40/s\n"
RESTART = f"{SHORT}outages: [{{at: 20s, lasts: 5s, kinds: connect_failure}}]\n"


def test_calls_that_could_be_served_and_are_not_break_rule_1(tmp_path: Path) -> None:
    assert broken(tmp_path, RESTART + "policy: {strategy: none}\n") == {1}
    patient = "policy: {strategy: {kind: standard, max_attempts: 12, backoff: {base: 1s, max: 1s}}, bucket: off}\n"
    assert 1 not in broken(tmp_path, RESTART + patient)


def test_waits_for_nothing_break_rule_2_and_rule_5(tmp_path: Path) -> None:
    text = f"{SHORT}upstream: {{latency: 50ms}}\npolicy: {{concurrency: {{max: 1, wait: 1s}}}}\n"
    assert {2, 5} <= broken(tmp_path, text.replace("40/s", "36/s"))
    assert not broken(tmp_path, text.replace("max: 1", "max: 20"))


def test_holding_for_longer_than_hold_breaks_rule_2(tmp_path: Path) -> None:
    text = f"{RESTART}policy: {{pushback: {{hold: 500ms}}, concurrency: {{max: 1}}}}\n"
    said = [each.says for each in verdicts(tmp_path, text) if each.rule == 2 and not each.holds]
    assert any(each.startswith("held for ") and each.endswith("at most 0.5") for each in said)


def test_asking_for_more_than_the_upstream_takes_breaks_rule_3(tmp_path: Path) -> None:
    text = f"{SHORT}outages: [{{at: 20s, lasts: 20s, kinds: 503}}]\n"
    text += "policy: {outage: fail, concurrency: off, bucket: off, strategy: {kind: standard"
    assert 3 in broken(tmp_path, text + "}}\n")
    assert 3 in broken(tmp_path, text + ", max_attempts: 30, backoff: {base: 10ms, max: 10ms}}}\n")
    held = f"{SHORT}outages: [{{at: 20s, lasts: 20s, kinds: 503, retry_after: 2s}}]\n"
    assert 3 not in broken(tmp_path, held)


def test_slow_failures_in_a_long_outage_break_rule_4(tmp_path: Path) -> None:
    text = "duration: 2m\nsidecars: 2\ncalls: 10/s\noutages: [{at: 20s, lasts: 80s, kinds: attempt_timeout}]\n"
    assert 4 in broken(tmp_path, text + "policy: {outage: fail, concurrency: off, timeouts: {attempt: 2s}}\n")
    assert 4 not in broken(tmp_path, text + "policy: {timeouts: {attempt: 200ms}, strategy: none}\n")
    silent = verdicts(tmp_path, text + "policy: {timeouts: {total: 5s}}\n")
    assert all(each.rule != 4 for each in silent), "without attempt or first_byte silence is no sign of anything"


def test_holding_on_when_all_is_well_breaks_rule_6(tmp_path: Path) -> None:
    text = f"{SHORT.replace('1m', '2m')}upstream: {{latency: 50ms, capacity: 80/s}}\n"
    text += "outages: [{at: 20s, lasts: 10s, share: 0%, capacity: 20/s}]\n"
    assert 6 not in broken(tmp_path, text)
    assert 6 in broken(tmp_path, text + "policy: {concurrency: {max: 1, wait: 4s}}\n")


@pytest.mark.parametrize(
    ("text", "stretches", "takes"),
    [
        ("outages: [{at: 20s, lasts: 10s}]", [(20, 30)], 0.0),
        ("outages: [{at: 20s, lasts: 10s, share: 99%}]", [], float("inf")),
        ("upstream: {endpoints: 2}\noutages: [{at: 20s, lasts: 10s, endpoint: 1}]", [], float("inf")),
        ("upstream: {endpoints: 2, capacity: 60/s}\noutages: [{at: 20s, lasts: 10s, endpoint: 1}]", [(20, 30)], 30.0),
        ("upstream: {capacity: 50/s}\noutages: [{at: 20s, lasts: 10s, share: 0%, capacity: 30/s}]", [(20, 30)], 30.0),
        ("upstream: {capacity: 50/s}\nneighbours: 20/s", [(0, 60)], 50.0),
        (
            "upstream: {capacity: 50/s}\n"
            "outages: [{at: 20s, lasts: 10s, share: 0%, capacity: 30/s, recovers: 10s}]", [(20, 35)], 30.0,
        ),
        (
            "upstream: {keys: 2, limit: 250, window: 10s}\n"
            "outages: [{at: 20s, lasts: 10s, share: 0%, limit: 100, key: 1}]", [(20, 30)], 30.0,
        ),
        ("routes: [{path: /a}, {path: /b, share: 25%}]\noutages: [{at: 20s, lasts: 10s, route: 2}]", [(20, 30)], 30.0),
        ("pauses: [{at: 0s, lasts: 26s}]\noutages: [{at: 20s, lasts: 10s}]", [(26, 30)], 0.0),
    ],
)  # fmt: skip
def test_what_an_upstream_takes(tmp_path: Path, text: str, stretches: list[tuple[float, float]], takes: float) -> None:
    supply = Supply(scenario(tmp_path, f"{SHORT}{text}\n"))
    assert list(supply.stretches()) == [Stretch(*each) for each in stretches]
    assert supply.takes(28.5) == pytest.approx(takes)


def test_the_command_prints_a_line_for_each_scenario(tmp_path: Path) -> None:
    (tmp_path / "restart.yaml").write_text(RESTART)
    (tmp_path / "wrong.yaml").write_text("durations: 1s\n")
    command = [sys.executable, str(ROOT / "tools/judge.py")]
    done = subprocess.run([*command, str(tmp_path / "restart.yaml")], capture_output=True, text=True)
    head, line, *verdicts = done.stdout.splitlines()
    assert head.split()[:3] == ["scenario", "none", "ours"] and line.split()[0] == "restart"
    assert done.returncode == (1 if any("FAILS" in each for each in verdicts) else 0)
    bad = subprocess.run([*command, str(tmp_path / "wrong.yaml")], capture_output=True, text=True)
    assert "durations: unknown key" in bad.stderr and bad.returncode == 2 and "Traceback" not in bad.stderr


def test_the_command_prints_means_over_seeds_and_how_often_a_rule_does_not_hold(tmp_path: Path) -> None:
    file = tmp_path / "restart.yaml"
    file.write_text(RESTART + "policy: {strategy: none}\n")
    command = [sys.executable, str(ROOT / "tools/judge.py"), str(file)]
    done = subprocess.run([*command, "--seeds", "own,11"], capture_output=True, text=True)
    _, line, *verdicts = done.stdout.splitlines()
    shares = []
    for seed in ("own", "11"):
        alone = subprocess.run([*command, "--seeds", seed], capture_output=True, text=True).stdout.splitlines()[1]
        shares.append(float(alone.split()[2].rstrip("%")))
    assert float(line.split()[2].rstrip("%")) == pytest.approx(sum(shares) / 2, abs=0.011)
    assert line.endswith("1 (2/2)") and done.returncode == 1
    assert [each.split(":")[0].strip() for each in verdicts] == ["seed own", "seed 11"]


def test_what_is_kept_is_that_of_the_file_as_it_is_and_each_seed_has_figures_of_its_own(tmp_path: Path) -> None:
    file, figures, folder = tmp_path / "restart.yaml", tmp_path / "figures.json", tmp_path / "kept"
    command = [sys.executable, str(ROOT / "tools/judge.py"), str(file), "--keep", str(folder), "--json", str(figures)]

    def share_of_none(text: str) -> str:
        file.write_text(text)
        done = subprocess.run([*command, "--seeds", "own,11"], capture_output=True, text=True)
        return done.stdout.splitlines()[1].split()[1]

    before = share_of_none(RESTART)
    assert share_of_none(RESTART) == before
    assert share_of_none(RESTART.replace("5s", "25s")) != before
    assert set(json.loads(figures.read_text())) == {"restart", "restart seed 11"}
    assert len(list(folder.iterdir())) == 4


def test_a_kind_of_weather_that_does_not_exist_is_told_in_a_line() -> None:
    command = [sys.executable, str(ROOT / "tools/judge.py"), "--draw", "1", "--kinds", "restart,sunny"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "no such kind: sunny; choose from" in done.stderr
    assert done.returncode == 2 and "Traceback" not in done.stderr
