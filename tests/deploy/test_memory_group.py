"""redrive in a control group of 64 MiB, as a container has it: many uploads at a time do not get it killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from support.process import COMMAND, Redrive
from support.scripted import Turn, Upstream, answer

MIB = 1 << 20
ROOT = Path("/sys/fs/cgroup")
UPLOADS, SIZE = 60, 900_000


@pytest.fixture
def group() -> Iterator[Path]:
    """A group for a process, with a limit that the system enforces; of either version of control groups."""
    for root, limit, swap in (
        (ROOT / "memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
        (ROOT, "memory.max", "memory.swap.max"),
    ):
        made = root / f"redrive-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            made.mkdir()
            try:
                (made / limit).write_text(str(64 * MIB))
                with contextlib.suppress(OSError):
                    (made / swap).write_text(str(64 * MIB if root.name == "memory" else 0))
                yield made
                return
            finally:
                made.rmdir()
    pytest.skip("no control group can be made here")


@pytest.mark.parametrize("workers", ["1", "auto"])
async def test_sixty_uploads_at_a_time_fit_64_mib(tmp_path: Path, group: Path, workers: str) -> None:
    """None is answered before all have come; each would be kept for a retry, if there were room."""
    come, all_there = 0, asyncio.Event()

    async def last(turn: Turn) -> None:
        nonlocal come
        assert len(await turn.read_body()) == SIZE
        come += 1
        if come == UPLOADS:
            all_there.set()
        await all_there.wait()
        await turn.write(answer(200))

    command = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *COMMAND)
    async with (
        Upstream(last) as upstream,
        Redrive(
            tmp_path, f"workers: {workers}\nupstreams: {{a: {{url: '{upstream.url}'}}}}\n", command=command
        ) as running,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        asyncio.timeout(60),
    ):

        async def upload() -> int:
            async with session.post(f"{running.url}/a/x", data=b"x" * SIZE) as answered:
                return answered.status

        assert await asyncio.gather(*(upload() for _ in range(UPLOADS))) == [200] * UPLOADS
        told = await running.line(lambda line: line["event"] == "limits")
        assert told is not None and told["memory"] == 64 * MIB
        assert running.process.returncode is None
