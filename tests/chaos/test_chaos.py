"""Everything at once, and the books balance: apps, upstream, log, metrics and buckets say the same of the same calls.

`make chaos` plays longer runs (CHAOS_SECONDS, CHAOS_SEED).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from chaos_books import Differences, Quota, Throttle
from chaos_run import COSTS, play

#: Seconds of calls in a run of the suite.
SHORT = 8.0


def test_the_books_balance(tmp_path: Path) -> None:
    figures = asyncio.run(play(tmp_path, 20, SHORT))
    assert figures["kills"] >= 1
    assert figures["calls"] > 300
    assert {"success", "client_gone", "committed", "not_retryable"} <= figures["outcomes"].keys()


def test_what_does_not_balance_is_seen() -> None:
    """A token too many, a line too few: each is a row, and the table names both sides."""
    differences = Differences()
    differences.equal("levels", "quota", 5, 6)
    differences.within("open files", "now", 0, 9, 8)
    assert [row[:2] for row in differences.rows] == [("levels", "quota"), ("open files", "now")]
    assert "5" in differences.table().splitlines()[1]
    assert "0 to 8" in differences.table().splitlines()[2]


@pytest.mark.parametrize(
    ("outcome", "records", "quota", "throttle"),
    [
        ("success", [("success", "delivered")], 1.0, 0.1),
        ("success", [("throttling", "retried"), ("success", "delivered")], 0.0, -0.9),
        ("success", [("timeout", "retried"), ("transient", "retried"), ("success", "delivered")], -10.0, -1.9),
        ("attempts_exhausted", [("transient", "retried"), ("timeout", "attempts_exhausted")], -5.0, -2.0),
        ("not_retryable", [("unnamed", "not_retryable")], 0.0, 0.0),
        ("success", [("transient", "probed"), ("success", "delivered")], 1.0, -0.9),
        ("success", [("throttling", "retried"), ("transient", "probed"), ("success", "delivered")], 0.0, -1.9),
    ],
)
def test_the_rules_of_the_buckets(outcome: str, records: list[tuple[str, str]], quota: float, throttle: float) -> None:
    """The contract's own figures, so that the model is not taken from what it judges."""
    history = [{"attempt": n, "class": cls, "decision": decision} for n, (cls, decision) in enumerate(records, 1)]
    line = {"outcome": outcome, "attempts": len(history), "history": history}
    assert Quota(0, COSTS, 1.0).change(line) == quota
    assert Throttle(0, 0.1).change(line) == pytest.approx(throttle)
