"""A worker of another release than its parent, as after an upgrade in place: it touches nothing, and that is said."""

from __future__ import annotations

import os
from typing import Any

import pytest

from proxy.stores.shared_memory.factory import open_memory
from proxy.stores.shared_memory.records import descriptor
from proxy.supervisor import slots
from proxy.supervisor.slots import WorkerProcess


async def ended(memory: int) -> WorkerProcess:
    """A worker that was told to begin, and is no more."""
    heard: list[Any] = []
    worker = WorkerProcess(1, 1, lambda _, message: heard.append(message))
    await worker.start(memory)
    worker._channel.close()  # a worker without a parent ends
    await worker.ended()
    assert heard == []
    return worker


async def test_a_worker_of_another_release_ends_before_it_touches_the_shared_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = descriptor()
    try:
        open_memory(memory)
        before = os.pread(memory, os.fstat(memory).st_size, 0)
        monkeypatch.setattr(slots, "__version__", "0.0.9")
        worker = await ended(memory)
        assert worker.how == "another release is installed by now, and this process is redrive 0.0.9: restart redrive"
        assert os.pread(memory, os.fstat(memory).st_size, 0) == before
    finally:
        os.close(memory)
