"""`redrive simulate` on several cores: the figures of one process, nobody left behind, and what a terminal sees."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from support.process import COMMAND, environment

from proxy.cli import main
from proxy.lab.simulate import run_scenario, side_by_side
from proxy.lab.simulate.columns import WITHOUT_HOLDING, Column, columns
from proxy.lab.simulate.scenario import read_scenario
from proxy.lab.simulate.side_by_side import play_all
from proxy.lab.simulate.weather import Scenario

TEXT = """\
duration: 20s
sidecars: 3
calls: 40/s
outages: [{at: 5s, lasts: 5s, kinds: [503, 429, reset], retry_after: 1s}]
compare:
  adaptive: {strategy: adaptive}
  hedging: {strategy: hedging}
  fleet: {bucket: {kind: quota, store: redis}}
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_CONFIG", raising=False)
    Path("s.yaml").write_text(TEXT)
    found, problems = read_scenario("s.yaml")
    assert found is not None, problems
    return found


def played_in(scenario: Scenario) -> list[Column]:
    """The columns, of which there are some."""
    played, problems = columns(None, scenario, {})
    assert len(played) == 7, problems
    return played


def unwatched(number: int, share: float) -> None:
    pass


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_the_figures_are_those_of_one_process(scenario: Scenario, cores: int) -> None:
    played = played_in(scenario)
    assert play_all(scenario, played, unwatched, cores) == run_scenario(None, scenario, {})


@pytest.mark.parametrize("cores", [1, 2])
def test_each_column_tells_how_far_it_is(scenario: Scenario, cores: int) -> None:
    played = played_in(scenario)
    shares_of: dict[int, list[float]] = {}
    play_all(scenario, played, lambda number, share: shares_of.setdefault(number, []).append(share), cores)
    assert set(shares_of) == set(range(len(played)))
    for shares in shares_of.values():
        assert len(shares) > 5 and shares == sorted(shares) and shares[-1] == 1.0


def test_whatever_ends_it_leaves_no_process(scenario: Scenario) -> None:
    played = played_in(scenario)

    def interrupted(number: int, share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play_all(scenario, played, interrupted, 2)
    assert not multiprocessing.active_children()


def test_a_process_that_dies_is_told_in_a_line(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(side_by_side, "_play", lambda *args: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setattr(side_by_side, "processes", lambda cores: 2)
    assert main(["simulate", "--scenario", "s.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""  # whichever of the two is heard of first
    assert re.fullmatch(r"redrive: the process that played .+ ended by signal 9", err.splitlines()[-1])
    assert not multiprocessing.active_children()


def seen(terminal: int, found: list[bytes]) -> None:
    """All that a terminal is sent, until nobody writes to it any more."""
    try:
        while read := os.read(terminal, 65536):
            found.append(read)
    except OSError:  # Linux says so where the other side is closed
        pass


def test_a_terminal_sees_a_bar_for_each_column_and_a_pipe_none(scenario: Scenario) -> None:
    ours, theirs = os.openpty()
    found: list[bytes] = []
    reading = threading.Thread(target=seen, args=(ours, found), daemon=True)
    reading.start()
    command = [*COMMAND, "simulate", "--scenario", "s.yaml"]
    env = environment(TERM="xterm", COLUMNS="100")
    done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, stderr=theirs, env=env, timeout=60)
    os.close(theirs)
    reading.join(30)
    os.close(ours)
    shown = b"".join(found).decode()
    for name in ("defaults: standard", "adaptive", "hedging", "fleet", WITHOUT_HOLDING, "none", "naive: 3 at once"):
        assert f"{name} " in shown
    assert "━" in shown and "0%" in shown
    piped = subprocess.run([*command, "--json"], capture_output=True, env=env, timeout=60)
    assert done.returncode == piped.returncode == 0
    assert done.stdout == piped.stdout, "the figures alone"
    assert "━" not in piped.stderr.decode() and len(piped.stderr.splitlines()) == 1
