"""Every test runs on the loop that serves traffic."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from support.two_runs import ONE_OF_TWO, RUNS, has_seed, is_left_out, left_out, seed_of

from proxy.transport.event_loop import new_event_loop

if TYPE_CHECKING:
    from support.certificates import Authority

# How long an example takes says more of the machine than of the code: a busy one would fail what is right.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

#: Folders whose tests begin processes, browsers and servers, and wait for them.
WAITING = frozenset({"browser", "chaos", "config", "e2e", "forward", "lab", "observe", "stores", "top"})
TESTS = Path(__file__).parent
#: Compiled modules, where the environment wants none beside their sources. Hundreds of tests start the command, and
#: each start would compile a few hundred modules anew.
BYTECODE = TESTS.parent / ".pytest_cache" / "bytecode"
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(BYTECODE)
    sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    """CI's option: each of its two runs leaves out what the other one has."""
    parser.addoption("--of-two-runs", choices=RUNS, help="leave out what the other run has (tests/support/two_runs.py)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    run = config.getoption("of_two_runs")
    return True if run and is_left_out(collection_path, run) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out."""
    if run := config.getoption("of_two_runs"):
        terminalreporter.write_line("\n".join(left_out(run)))


def pytest_configure(config: pytest.Config) -> None:
    """Let processes stand still at random moments, where the environment asks for it; and tell tests, before they are
    imported, whether they are in one of CI's runs.
    """
    if run := config.getoption("of_two_runs"):
        os.environ[ONE_OF_TWO] = run
    if seed := os.environ.get("REDRIVE_STALLS"):
        from support.stalls import StallsPlugin

        config.pluginmanager.register(StallsPlugin(seed), "stalls")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep nothing of modules that tests wrote into folders of their own."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(BYTECODE / Path(tempfile.gettempdir()).relative_to("/"), ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives to the end: it is not looked through for garbage, now or at each collection later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the seeds that the other one of CI's runs has. Where several processes share the tests: give each a
    part that begins with files whose tests wait, and ends with quick ones. xdist deals out equal parts in order, and a
    process that has done its part takes from the end of another's: so all are busy until the last moment, and none
    waits for one that came last to a long file. Files stay in one piece.
    """
    if run := config.getoption("of_two_runs"):
        others = [item for item in items if (seed := seed_of(item)) is not None and not has_seed(item.path, seed, run)]
        config.hook.pytest_deselected(items=others)
        left = {*others}
        items[:] = [item for item in items if item not in left]
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes > 1:
        items[:] = dealt(items, processes)


def dealt(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [file for file in files if file.relative_to(TESTS).parts[0] in WAITING]
    waiting.sort(key=lambda file: len(files[file]), reverse=True)
    shares = [[item for file in waiting[nth::processes] for item in files[file]] for nth in range(processes)]
    quick = iter([item for file in files if file not in waiting for item in files[file]])
    left, parts = len(items), []
    for nth, share in enumerate(shares):
        size = left // (processes - nth)  # as xdist divides them
        parts += [*share, *islice(quick, max(0, size - len(share)))]
        left -= size
    return [*parts, *quick]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": new_event_loop}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signed an upstream's certificate."""
    from support.certificates import make

    return make(tmp_path_factory.mktemp("certificates"))
