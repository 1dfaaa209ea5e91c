"""A log on a disk that is full: calls go on, and standard error says why the log has gaps."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from clients import with_aiohttp
from support.process import COMMAND, LISTEN, environment
from support.scripted import Upstream, answer

SECONDS = 25.0
SAID = "redrive: the log can't be written: No space left on device"


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_full_disk_is_reported_once_and_calls_go_on(tmp_path: Path, workers: int) -> None:
    file = tmp_path / "redrive.yaml"
    async with Upstream(answer(200)) as upstream:
        file.write_text(f"{LISTEN}workers: {workers}\nupstreams: {{a: {{url: '{upstream.url}'}}}}\n")
        full = os.open("/dev/full", os.O_WRONLY)
        try:
            process = await asyncio.create_subprocess_exec(
                *COMMAND, "run", "-c", str(file), stdout=full, stderr=asyncio.subprocess.PIPE, env=environment()
            )
        finally:
            os.close(full)
        assert process.stderr is not None
        said = ""
        try:
            async with asyncio.timeout(SECONDS):
                while SAID not in said or "listening on" not in said:
                    read = await process.stderr.readline()
                    assert read, said
                    said += read.decode()
                listening = re.search(r"listening on (\S+?),", said)
                assert listening is not None, said
                for _ in range(20):  # on each worker, with its own lines that can't be written
                    assert (await with_aiohttp("GET", f"{listening[1]}/a/x")).status == 200
                process.terminate()
                said += (await process.stderr.read()).decode()
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert said.count(SAID) == 1
        assert "Traceback" not in said
