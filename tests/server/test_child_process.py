"""Processes that redrive starts."""

from __future__ import annotations

from proxy.supervisor.child_process import ChildProcess


async def test_a_process_whose_end_was_not_waited_for_yet_may_be_killed() -> None:
    """Else a start that fails since one worker ended could end with another's `no such process`."""
    child = ChildProcess()
    await child.start("pass", (), ())
    await child._child.wait()
    child.kill()
    assert child.status is None
    await child.wait()
    assert child.status == 0
    child.kill()
    child.release()
