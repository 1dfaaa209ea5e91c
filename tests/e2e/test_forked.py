"""Most tests' processes are forked from one that has imported the program (`support.forked`): they must be what those
are that begin with the command itself.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import support.forked
from support.forked import CAN_FORK, Forked, ForkedBeside, can_be_forked, forked_workers_of
from support.process import COMMAND, LISTEN, Redrive, environment, run
from test_workers import workers_of

from proxy.supervisor.slots import _CODE

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="this system has no pidfd_open(2): nothing is forked here")

CONFIG = "upstreams: {a: {url: 'http://127.0.0.1:9', headers: {request: {set: {X-Told: '${TOLD}'}}}}}\n"
#: Beside these, /proc/PID/status tells of memory, turns on the processor, ids and threads.
ALIKE = ("Umask", "Groups", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "CapEff", "NoNewPrivs")


def imported(said: str) -> set[str]:
    """The modules of which the interpreter said how long their import took."""
    return set(re.findall(r"^import time: .* (\S+)$", said, re.MULTILINE))


def seen(pid: int) -> dict[str, Any]:
    """What the system says of a process."""
    here = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (here / "status").read_text().splitlines())
    stat = (here / "stat").read_text().rpartition(")")[2].split()
    return {
        **{name: status[name].strip() for name in ALIKE},
        "group, session and terminal": stat[2:5],
        "limits": (here / "limits").read_text(),
        "folder": os.readlink(here / "cwd"),
        "files": {re.sub(r"\d+", "", os.readlink(each)) for each in (here / "fd").iterdir()},
        "maps": {line.split(maxsplit=5)[5] for line in (here / "maps").read_text().splitlines() if ".so" in line},
    }


async def test_nothing_is_imported_that_the_command_does_not_import_itself(tmp_path: Path) -> None:
    """Else a test could pass where a user's process lacks a module, or holds one that it should not have."""
    code = "import fork_server, sys; print('begun', file=sys.stderr); fork_server.preload()"
    timed = {"PYTHONPROFILEIMPORTTIME": "1", "PYTHONPATH": str(Path(support.forked.__file__).parent)}
    status, _, said = await run(sys.executable, "-c", code, **timed)
    assert status == 0, said
    async with Redrive(tmp_path, CONFIG, TOLD="so", **timed) as running:
        assert not isinstance(running.process, ForkedBeside)
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
    preloaded = imported(said.partition("begun\n")[2])
    assert "proxy.server.acceptor" in preloaded
    assert preloaded - imported(running.errors) == set()


def test_its_end_is_told_as_the_command_s_is(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("nonsense: 1\n")
    for arguments in (("check", "-c", str(file)), ("run", "-c", str(file)), ("nonsense",), ("schema",)):
        begun = subprocess.run([*COMMAND, *arguments], env=environment(), capture_output=True, check=False)
        forked = Forked(*arguments, environment=environment())
        with forked.stdout, forked.stderr:
            said = forked.stdout.read(), forked.stderr.read()
        assert (forked.wait(), *said) == (begun.returncode, begun.stdout, begun.stderr)


def test_a_signal_that_ends_it_is_its_status(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(LISTEN)
    forked = Forked("run", "-c", str(file), environment=environment())
    with forked.stdout, forked.stderr:
        assert json.loads(forked.stdout.readline())["pid"] == forked.pid
        assert forked.returncode is None
        with pytest.raises(subprocess.TimeoutExpired):
            forked.wait(0)
        forked.kill()
        assert forked.wait() == forked.returncode == -signal.SIGKILL
    forked.send_signal(signal.SIGTERM)  # to nobody else


def test_a_process_that_begins_with_other_settings_of_its_interpreter_is_none_that_is_forked() -> None:
    assert can_be_forked(environment(TOLD="so"))
    for name in ("PYTHONPROFILEIMPORTTIME", "LD_PRELOAD", "REDRIVE_PURE", "TZ"):
        assert not can_be_forked(environment(**{name: "elsewhere"}))


async def test_it_is_what_the_command_is(tmp_path: Path) -> None:
    facts, kinds = [], []
    for command in (COMMAND, ("env", *COMMAND)):
        async with Redrive(tmp_path, CONFIG, command=command, TOLD="so") as running:
            kinds.append(type(running.process))
            assert running.ready["pid"] == running.pid
            facts.append(seen(running.pid))
            running.signal(signal.SIGTERM)
            assert await running.ended() == 0
    assert kinds[0] is ForkedBeside
    assert kinds[1] is not ForkedBeside
    assert facts[0] == facts[1]


async def test_nothing_is_imported_for_a_worker_that_it_does_not_import_itself() -> None:
    assert "from proxy.server.late_client import import_aiohttp; import_aiohttp(); " in _CODE
    assert "from proxy.supervisor.worker import main; main(" in _CODE
    own = _CODE.partition("main(")[0].replace("sys.path[:] = {path!r}; ", "")
    said = []
    for imports in (own, "import fork_server; fork_server.preload_worker()"):
        timed = {"PYTHONPROFILEIMPORTTIME": "1", "PYTHONPATH": str(Path(support.forked.__file__).parent)}
        status, _, errors = await run(
            sys.executable, "-c", f"import sys; print('begun', file=sys.stderr); {imports}", **timed
        )
        assert status == 0, errors
        said.append(imported(errors.partition("begun\n")[2]))
    theirs, forked = said
    assert "proxy.supervisor.worker" in forked
    assert {name for name in forked - theirs if name.startswith(("proxy", "aiohttp", "uvloop"))} == set()


async def test_a_forked_worker_is_what_the_interpreter_makes(tmp_path: Path) -> None:
    facts, kinds = [], []
    for command in (COMMAND, ("env", *COMMAND)):
        async with Redrive(tmp_path, f"workers: 2\n{CONFIG}", command=command, TOLD="so") as running:
            kinds.append(len(forked_workers_of(running.pid)))
            workers = workers_of(running.pid)
            assert len(workers) == 2
            facts.append([seen(worker) for worker in sorted(workers)])
            victim = min(workers)
            os.kill(victim, signal.SIGKILL)
            event = await running.line(lambda line: line["event"] == "worker")
            assert event is not None and event["pid"] == victim, "its end is told"
            running.signal(signal.SIGTERM)
            assert await running.ended() == 0
    assert kinds == [2, 0]
    assert facts[0] == facts[1]
