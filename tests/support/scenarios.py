"""Scenarios of the simulator that a test writes itself."""

from __future__ import annotations

from pathlib import Path

from proxy.lab.simulate.scenario import read_scenario
from proxy.lab.simulate.weather import Scenario


def scenario(folder: Path, text: str) -> Scenario:
    """The scenario that this text describes; it has to be free of errors."""
    file = folder / "scenario.yaml"
    file.write_text(text)
    found, problems = read_scenario(str(file))
    assert found is not None, problems
    return found
