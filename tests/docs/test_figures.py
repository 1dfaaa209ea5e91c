"""Figures on pages are those of a bench, or of the code. Those of the simulator are held by tests/lab/test_simulate.py,
the share of failures at which a bucket drains by tests/config, and the image's size (to 15 %) by `make image-test`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_the_summary_of_the_bench_is_that_of_its_last_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    import report

    kept = json.loads((ROOT / "bench/results/latest.json").read_text())
    assert report.README.read_text() == report.with_summary(kept), "python bench/report.py"


def test_the_claim_of_the_readme_is_what_simulate_prints() -> None:
    """tests/docs/test_command_pages.py plays the page's example."""
    page = (ROOT / "docs/reference/commands/simulate.md").read_text()
    shown = page.partition("$ redrive simulate\n")[2].partition("possible:")[0]
    (succeeded,) = re.findall(r"succeeded +(.*)", shown)
    (slowest,) = re.findall(r"99 % within +(\S+) s ", shown)
    ours, _, none, naive = succeeded.split()
    claim = " ".join((ROOT / "README.md").read_text().partition("**Measured:**")[2].partition("\n\n")[0].split())
    assert none == naive and f"Without a proxy {none.replace('%', ' %')} of the calls" in claim
    assert f"redrive's defaults {ours.replace('%', ' %')} do" in claim
    assert f"{float(slowest):.1f} s at most" in claim


def test_every_row_has_a_target_and_every_target_is_that_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    import load
    import targets

    judged = {target.row for target in targets.TARGETS} | set(targets.FORWARD)
    assert judged == {work.name for work in load.WORKLOADS}
    assert {beside for beside, _ in targets.FORWARD.values()} <= judged


def test_a_target_is_judged_by_the_rounds_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    import targets

    raw = {
        "redrive": {targets.AT_32: {targets.CPU: [10.0, 40.0, 20.0]}},
        "envoy": {targets.AT_32: {targets.CPU: [32.0, 80.0, 66.0]}},
        "haproxy": {targets.AT_32: {targets.CPU: [8.0, 8.0, 17.0]}},
    }
    row = next(line for line in targets.verdicts(raw) if line.startswith(f"| {targets.AT_32} "))
    assert row == f"| {targets.AT_32} | 3.20 (3.2) | 0.80 (1) **missed** | 4.00 |  |"


def test_a_forward_row_is_judged_beside_the_row_without_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    import targets

    forward = {"small GET, forward": [11.0, 22.5, 30.0], "64 KiB GET, forward": [33.0, 30.0, 33.6]}
    plain = {targets.AT_32: [10.0, 25.0, 30.0], "64 KiB GET": [30.0, None, 28.0]}
    raw = {"redrive": {row: {targets.CPU: figures} for row, figures in (forward | plain).items()}}
    rows = [line for line in targets.verdicts(raw) if "without forward" in line]
    assert rows == [
        "| small GET, forward: CPU, to that without forward | 1.00 | 1.1 |",
        "| 64 KiB GET, forward: CPU, to that without forward | 1.15 **missed** | 1.1 |",
    ]


def test_a_round_that_failed_does_not_shift_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure is compared with that of the same round, which may lack a peer's."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    import targets

    raw = {
        "redrive": {targets.AT_32: {targets.CPU: [10.0, None, 20.0]}},
        "envoy": {targets.AT_32: {targets.CPU: [32.0, 80.0, 66.0]}},
        "haproxy": {targets.AT_32: {targets.CPU: [None, 8.0]}},
    }
    row = next(line for line in targets.verdicts(raw) if line.startswith(f"| {targets.AT_32} "))
    assert row == f"| {targets.AT_32} | 3.25 (3.2) |  | 10.00 |  |"
    assert targets.without_gaps(raw)["redrive"][targets.AT_32][targets.CPU] == [10.0, 20.0]


def test_the_memory_that_workers_share() -> None:
    from proxy.stores.shared_memory.factory import _LARGE_WORDS, open_memory
    from proxy.stores.shared_memory.records import RECORD, descriptor

    guide = " ".join((ROOT / "docs/reference/workers.md").read_text().split())
    found = re.search(r"file of (\d+) MiB[^.]*?about (\d+) KiB for a dozen buckets, up to (\d+) KiB", guide)
    assert found is not None
    made = descriptor()
    size = len(open_memory(made).map) / 2**20
    os.close(made)
    assert [int(each) for each in found.groups()] == [
        int(size), round(12 * RECORD * 8 / 1024), round(_LARGE_WORDS * 8 / 1024)
    ]  # fmt: skip


def test_what_looking_costs_at_most() -> None:
    from proxy.admin import live_board

    assert live_board._SHARE == 1 / 50
    assert "at most a fiftieth of a core" in " ".join((ROOT / "docs/guides/dashboard.md").read_text().split())


def test_no_other_page_claims_what_a_bench_would_have_to_say() -> None:
    """README, tutorial and guides name no time below a millisecond and no rate of calls: those are in bench/."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/tutorial/*.md"), *ROOT.glob("docs/guides/*.md")]
    for page in pages:
        assert not re.findall(r"[\d.,]+ ?(?:us\b|µs|calls a second on)", page.read_text()), page.name
