"""The settings of the upgrade guide that give back the behaviour before weather was looked at, and what that was.

`behaviour_before/figures.json` has what `redrive simulate --json` printed of these scenarios at commit cde58e8, the
last one without limits and outages, with `pushback: {cooldown: off}`: cooldowns' slow start has changed for good.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from proxy.lab.simulate.columns import columns
from proxy.lab.simulate.figures import figures
from proxy.lab.simulate.possible import Possible
from proxy.lab.simulate.report import as_json
from proxy.lab.simulate.scenario import read_scenario
from proxy.lab.simulate.simulation import play

BEFORE = Path(__file__).parent / "behaviour_before"
GUIDE = Path(__file__).parent.parent.parent / "docs/guides/upgrading.md"
FIGURES = json.loads((BEFORE / "figures.json").read_text())


def keys_of_the_guide() -> list[str]:
    """The keys that the guide sets, each on a line, without `answers`: the simulator's answers are not cut off."""
    found = re.search(r"```yaml\ndefaults:\n((?:  .*\n)+?)```", GUIDE.read_text())
    assert found is not None
    lines = [line.strip() for line in found[1].splitlines()]
    assert {"outage: fail", "concurrency: off", "pushback: {cooldown: off, of: upstream}"} <= set(lines)
    return [line for line in lines if not line.startswith("answers")]


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_the_guides_settings_give_back_every_figure(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.yaml"
    policy = "\n".join(f"  {line}" for line in keys_of_the_guide())
    file.write_text(f"{(BEFORE / file.name).read_text()}\npolicy:\n{policy}\n")
    scenario, problems = read_scenario(str(file))
    assert scenario is not None, problems
    found, problems = columns(None, scenario, {})
    assert not problems
    figured = figures(scenario, play(scenario, found[0]))
    shown = json.loads(as_json(scenario, [figured], Possible(0, 0, 0.0, 0.0, ())))
    (column,) = shown["columns"]
    assert {key: column[key] for key in FIGURES[name]} == FIGURES[name]  # figures that came since are left out
