"""CI's two runs together have every test, and each has all tests of what is compiled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.two_runs import ONCE, RUNS, TESTS, has_seed, is_left_out, left_out, seed_of

PATHS = [(run, path) for run, reasons in ONCE.items() for paths in reasons.values() for path in paths]
FILES = sorted(TESTS.rglob("test_*.py"))
#: Tests in rooms of which modules are compiled, of modules that are not: the exporters of `proxy.observe`.
NOT_COMPILED = {"observe/test_observe_otel.py", "observe/test_observe_otlp_metrics_and_logs.py"}


def test_every_path_is_there_and_in_one_run() -> None:
    assert not [path for _, path in PATHS if not (TESTS / path).exists()]
    assert len({path for _, path in PATHS}) == len(PATHS)


def test_no_file_is_left_out_of_both_runs() -> None:
    assert len(FILES) > 300
    assert not [file for file in FILES if all(is_left_out(file, run) for run in RUNS)]


def test_each_run_says_what_it_leaves_out() -> None:
    for run in RUNS:
        said = " ".join(left_out(run))
        missing = [file for file in FILES if is_left_out(file, run)]
        assert missing
        for file in missing:
            below = file.relative_to(TESTS)
            assert any(f" {path} " in said for path in (str(below), below.parts[0])), file


def test_rooms_with_compiled_modules_are_tested_in_both_runs() -> None:
    """tests/observe and the like mirror rooms of the package; `setup.py` names the modules that are compiled."""
    modules = re.findall(r'"proxy\.(\w+)\.', (TESTS.parent / "setup.py").read_text())
    rooms = {room for room in modules if (TESTS / room).is_dir()}
    assert {"forward", "observe", "retry", "server", "transport", "wire"} <= rooms
    found = {path for _, path in PATHS if path.partition("/")[0] in rooms}
    assert found == NOT_COMPILED


@pytest.mark.parametrize("run", RUNS)
def test_ci_has_both_runs(run: str) -> None:
    assert f"--of-two-runs {run}" in (TESTS.parent / ".ci/run").read_text()


def test_what_is_not_a_test_of_ours_is_never_left_out() -> None:
    assert not is_left_out(Path("/elsewhere/docs/test_a.py"), "compiled")
    assert is_left_out(TESTS / "docs", "compiled") and not is_left_out(TESTS / "docs", "python")


def test_each_seed_of_a_test_in_both_runs_is_in_one_of_them() -> None:
    for seed in range(6):
        assert [has_seed(TESTS / "wire/test_a.py", seed, run) for run in RUNS] == [seed % 2 == 0, seed % 2 == 1]
        assert has_seed(TESTS / "docs/test_a.py", seed, "python"), "the other run does not have this test"


@pytest.mark.parametrize("seed", range(4))
def test_seeds_of_the_other_run_are_left_out(request: pytest.FixtureRequest, seed: int) -> None:
    run = request.config.getoption("of_two_runs")
    seeds = [(each.path, found) for each in request.session.items if (found := seed_of(each)) is not None]
    assert (Path(__file__), seed) in seeds
    assert run is None or all(has_seed(path, found, run) for path, found in seeds)
