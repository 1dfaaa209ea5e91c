"""Simulations in Python alone and compiled give the same figures, letter by letter: one of the two can stand for both.

`support.two_runs` relies on it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.process import COMMAND, environment

from proxy.wire.http1.compiled import CORE

EXAMPLES = Path(__file__).parent.parent.parent / "config/examples/scenarios"
#: What examples do not have: each strategy, buckets of each kind, hedging, breakers and limits of one's own.
OF_ALL_KINDS = """\
duration: 40s
sidecars: 3
calls: 30/s
upstream: {endpoints: 2}
outages:
  - {at: 5s, lasts: 5s, kinds: [503, 429, reset], retry_after: 1s}
  - {at: 20s, lasts: 10s, kinds: [connect_failure], endpoint: 1}
compare:
  adaptive: {strategy: adaptive}
  hedging: {strategy: hedging}
  2026: {strategy: standard-2026, bucket: {kind: throttle}}
  smithy: {strategy: smithy, outage: fail, concurrency: off}
  fleet: {bucket: {kind: quota, store: redis}}
  budget: {bucket: {kind: budget, percent: 10}, rate: {kind: rate, rate: 20/s, burst: 5}}
  breaker: {circuit_breaker: {failure_ratio: 50%}, concurrency: {max: 5, queue: 20, wait: 2s}, balance: least}
"""
#: Two keys, of which one gets less for a while.
OF_TWO_KEYS = """\
duration: 40s
sidecars: 2
calls: 10/s
upstream: {latency: 60ms, keys: 2, limit: 40, window: 10s, overload: 429}
outages: [{at: 10s, lasts: 10s, share: 0%, limit: 15, key: 1}]
"""
OURS = {"of all kinds": OF_ALL_KINDS, "of two keys": OF_TWO_KEYS}
#: Examples with outages and limits of tokens; each takes a second or two.
PLAYED = ("restart_of_two", "slow_then_restarted", "tokens_a_minute")


def figures(file: Path, folder: Path, **more: str) -> bytes:
    """What the command prints."""
    command = [*COMMAND, "simulate", "--scenario", str(file), "--json"]
    return subprocess.run(command, cwd=folder, env=environment(**more), capture_output=True, check=True).stdout


@pytest.mark.skipif(CORE != "compiled", reason="nothing is compiled here (make core)")
@pytest.mark.parametrize("name", [*PLAYED, *OURS])
def test_the_figures_are_the_same(name: str, tmp_path: Path) -> None:
    file = EXAMPLES / f"{name}.yaml"
    if name in OURS:
        file = tmp_path / "scenario.yaml"
        file.write_text(OURS[name])
    compiled = figures(file, tmp_path)
    assert compiled.startswith(b"{") and len(compiled) > 1000
    assert compiled == figures(file, tmp_path, REDRIVE_PURE="1")
