"""The log of a process whose standard output is a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from support.process import COMMAND, LISTEN, environment, run
from support.scripted import Upstream, answer


@pytest.mark.parametrize("workers", [1, 2])
async def test_on_a_terminal_the_log_is_for_people_and_follows_a_reload(tmp_path: Path, workers: int) -> None:
    file = tmp_path / "redrive.yaml"
    ours, theirs = os.openpty()
    terminal = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(terminal), os.fdopen(ours, "rb", 0, closefd=False)
    )

    async def line(mark: str) -> str:
        while mark not in (read := (await terminal.readline()).decode().strip()):
            assert read or not terminal.at_eof()
        return read

    async with Upstream(answer(200), answer(200)) as upstream:
        config = f"{LISTEN}workers: {workers}\nupstreams: {{a: {{url: '{upstream.url}'}}}}\n"
        file.write_text(config)
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "run", "-c", str(file), stdout=theirs, stderr=asyncio.subprocess.PIPE, env=environment()
        )
        os.close(theirs)
        assert process.stderr is not None
        try:
            said = ""
            while "\ntry: " not in said:
                read = await process.stderr.readline()
                assert read, said
                said += read.decode()
            listening = re.search(r"listening on (\S+?),", said)
            assert listening is not None, said
            ask = (
                sys.executable,
                "-c",
                "import sys, urllib.request as r; r.urlopen(sys.argv[1])",
                f"{listening[1]}/a/x",
            )
            assert (await run(*ask))[0] == 0
            assert re.match(r"\S+ GET .* 200 ", await line("/a/x"))
            file.write_text(config + "log: {format: json}\n")
            process.send_signal(signal.SIGHUP)
            assert json.loads(await line('"event":"reload"'))["result"] == "success"
            assert (await run(*ask))[0] == 0
            assert json.loads(await line("/a/x"))["event"] == "call"
        finally:
            process.terminate()
            await process.communicate()
