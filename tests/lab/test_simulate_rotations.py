"""`redrive simulate` with keys that are rotated in their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.lab.simulate import possible_for
from proxy.lab.simulate.columns import columns
from proxy.lab.simulate.figures import figures
from proxy.lab.simulate.scenario import read_scenario
from proxy.lab.simulate.simulation import play

ROOT = Path(__file__).parent.parent.parent


def test_a_key_that_is_rotated_in_its_file_costs_no_call_its_success() -> None:
    """One that is written in the configuration is refused from its first rotation on."""
    found, problems = read_scenario(str(ROOT / "config/examples/scenarios/keys/rotation.yaml"))
    assert found is not None, problems
    played = {column.name: column for column in columns(None, found, {})[0]}
    in_file = figures(found, play(found, played["policy: standard"]))
    assert in_file.outcomes == {"success": in_file.calls}
    assert in_file.calls < in_file.attempts < 1.01 * in_file.calls, "those with the old key made one attempt more"
    written = figures(found, play(found, played["written"]))
    assert written.succeeded + written.outcomes["not_retryable"] == written.calls
    assert 0.2 < written.success_rate < 0.3, "the first of four minutes"
    assert possible_for(found, played["policy: standard"]).success_rate == found.possible


@pytest.mark.parametrize(("overlap", "lost"), [("0s", 10.0), ("5s", 5.0), ("10s", 0.0), ("30s", 0.0)])
def test_calls_fail_while_the_upstream_does_not_take_the_key_that_the_file_has(
    overlap: str, lost: float, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("a-key")
    text = f"""
duration: 60s
calls: 10/s
arrivals: steady
sidecars: 3
rotations: [{{at: 20s, overlap: {overlap}, file_after: 10s}}]
policy: {{credentials: {{header: x-api-key, values: [{{file: key}}]}}}}
"""
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    found, problems = read_scenario(str(file))
    assert found is not None, problems
    column = columns(None, found, {})[0][0]
    failed = figures(found, play(found, column)).outcomes.get("not_retryable", 0)
    assert abs(failed - 10 * lost) <= 3 * 10, "and what was under way; each sidecar reads its file once a second"
    assert bool(failed) is bool(lost)


def test_a_file_that_is_later_than_the_next_rotations_does_not_bring_an_earlier_value_back(tmp_path: Path) -> None:
    """At 20 s the file gets the newest value, which is the third; what comes at 40 s is older."""
    (tmp_path / "key").write_text("a-key")
    file = tmp_path / "scenario.yaml"
    file.write_text(
        "name: late\nduration: 60s\ncalls: 10/s\narrivals: steady\n"
        "rotations: [{at: 10s, overlap: 35s, file_after: 30s}, {at: 20s}]\n"
        "policy: {credentials: {header: x-api-key, values: [{file: key}]}}\n"
    )
    found, problems = read_scenario(str(file))
    assert found is not None, problems
    found_figures = figures(found, play(found, columns(None, found, {})[0][0]))
    assert found_figures.outcomes == {"success": found_figures.calls}


@pytest.mark.parametrize(
    ("rotations", "said"),
    [
        ("{at: 5s, key: 3}", "2:13: rotations[0].key: key 3 of the policy is not in a file: write it as {file: PATH}"),
        ("{at: 5s}", "2:13: rotations[0].key: key 1 of the policy is not in a file"),
        ("{at: 5s, key: 2}, {at: 4s, key: 2}", "2:31: rotations[1]: rotations must be in order of time"),
        ("{key: 2}", "2:13: rotations[0].at: is missing"),
        ("{at: 5s, lasts: 1s}", "2:22: rotations[0].lasts: unknown key"),
    ],
)
def test_a_rotation_that_can_not_be_played(rotations: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a-key")
    file = tmp_path / "scenario.yaml"
    policy = "policy: {credentials: {header: x-api-key, values: [other, {file: key}]}}"
    file.write_text(f"name: wrong\nrotations: [{rotations}]\n{policy}\n")
    found, problems = read_scenario(str(file))
    more = columns(None, found, {})[1] if found is not None else []
    assert said in "\n".join(map(str, (*problems, *more)))
