"""The judge's drawn weather: each kind makes scenarios that can be read, the same ones from the same seed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.scenarios import scenario

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tools"))

from drawn_weather import KINDS, drawn


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_makes_scenarios_that_can_be_read(kind: str, tmp_path: Path) -> None:
    for name, text in drawn([kind], 20, 5):
        assert scenario(tmp_path, text).name == name


def test_a_larger_count_adds_scenarios_and_changes_none() -> None:
    few, many = list(drawn(list(KINDS), 2, 7)), dict(drawn(list(KINDS), 3, 7))
    assert len(many) == 3 * len(KINDS)
    assert all(many[name] == text for name, text in few)


def test_another_seed_draws_other_weather() -> None:
    assert dict(drawn(list(KINDS), 2, 7)) != dict(drawn(list(KINDS), 2, 8))
