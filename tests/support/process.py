"""The command, as a process of its own.

    async with Redrive(tmp_path, "upstreams: {a: {url: ...}}") as redrive:
        ...  # redrive.url, redrive.admin, redrive.calls()

Every listener is on a port that the system chose; the `ready` line on standard output says which. Standard output is
read all the time, so that lines can be waited for, and no pipe fills up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

from support.forked import ForkedBeside, can_be_forked
from support.patience import in_time

from proxy.cli import main

if TYPE_CHECKING:
    import pytest

LISTEN = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"
COMMAND = (sys.executable, "-m", "proxy")
#: Nothing of the developer's own surroundings reaches the process.
DROPPED = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "redrive_config", "aws_retry_mode", "aws_max_attempts")


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.lower() not in DROPPED}
    return {**kept, **more}


class Redrive:
    """`lines` are the JSON lines of standard output, `errors` the text of standard error so far. `command`: another way
    to begin than `python -m proxy`; `arguments`: more for the verb run.
    """

    def __init__(
        self,
        folder: Path,
        config: str,
        *,
        listen: str = LISTEN,
        command: Sequence[str] = COMMAND,
        arguments: Sequence[str] = (),
        **env: str,
    ) -> None:
        self._arguments = tuple(arguments)
        self._command = tuple(command)
        self.file = folder / "redrive.yaml"
        self.file.write_text(listen + config)
        self.env = environment(**env)
        self.lines: list[dict[str, Any]] = []
        self.errors = ""
        self._came = asyncio.Condition()
        self._over = False

    async def __aenter__(self) -> Self:
        self.process = await self._begin("run", *self._arguments, "-c", str(self.file))
        self._readers = [asyncio.create_task(self._read_out()), asyncio.create_task(self._read_errors())]
        ready = await self.line(lambda line: line["event"] == "ready")
        assert ready is not None, self.errors
        self.ready = ready
        self.url = f"http://{ready['listen'][0]}"
        self.authority: str = ready["listen"][0]
        self.admin = f"http://{ready['admin'][0]}" if ready["admin"] else ""
        return self

    async def _begin(self, *arguments: str) -> asyncio.subprocess.Process | ForkedBeside:
        """Forked, which is cheaper, unless it is to begin in a way of its own; its workers as well, if it has any."""
        if self._command == COMMAND and can_be_forked(self.env):
            workers = "workers:" in self.file.read_text()
            return await ForkedBeside.begin(*arguments, environment=self.env, workers=workers)
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*self._command, *arguments, stdout=pipe, stderr=pipe, env=self.env)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()
        await asyncio.gather(*self._readers)
        if error is not None:
            sys.stderr.write(self.errors)
        else:
            assert "Traceback" not in self.errors, self.errors

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end; the exit status."""
        status = await self.process.wait()
        await asyncio.gather(*self._readers)
        return status

    async def line(self, wanted: Callable[[dict[str, Any]], bool], after: int = 0) -> dict[str, Any] | None:
        """The first line from number `after` on that is wanted; None where the process ends without one."""
        return await in_time(self._line(wanted, after), self._so_far)

    def _so_far(self) -> str:
        last = "\n".join(map(json.dumps, self.lines[-20:]))
        return f"no such line of the log. The last of {len(self.lines)}:\n{last}\nErrors:\n{self.errors[-2000:]}"

    async def _line(self, wanted: Callable[[dict[str, Any]], bool], after: int) -> dict[str, Any] | None:
        async with self._came:
            while True:
                for line in self.lines[after:]:
                    if wanted(line):
                        return line
                if self._over:
                    return None
                await self._came.wait()

    async def call(self, number: int = 1) -> dict[str, Any]:
        """The log line of the n-th call."""
        at, found = 0, None
        for _ in range(number):
            found = await self.line(lambda line: line["event"] == "call", at)
            assert found is not None
            at = next(n for n, line in enumerate(self.lines) if line is found) + 1  # others may be equal
        assert found is not None
        return found

    async def _read_out(self) -> None:
        assert self.process.stdout is not None
        async for raw in self.process.stdout:
            async with self._came:
                self.lines.append(json.loads(raw))
                self._came.notify_all()
        async with self._came:
            self._over = True
            self._came.notify_all()

    async def _read_errors(self) -> None:
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            self.errors += raw.decode()


async def run(*arguments: str, stdin: bytes | None = None, **env: str) -> tuple[int, str, str]:
    """One command line to its end: (exit status, standard output, standard error)."""
    process = await asyncio.create_subprocess_exec(
        *arguments, env=environment(**env),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def redrive(*arguments: str, **env: str) -> tuple[int, str, str]:
    """One verb to its end, forked if it can be."""
    env = environment(**env)
    if not can_be_forked(env):
        return await run(*COMMAND, *arguments, **env)
    forked = await ForkedBeside.begin(*arguments, environment=env)
    out, err = await asyncio.gather(forked.stdout.read(), forked.stderr.read())
    return await forked.wait(), out.decode(), err.decode()


def verb(capsys: pytest.CaptureFixture[str], *arguments: str, **env: str) -> tuple[int, str, str]:
    """One verb to its end in this process, which need not import the program anew."""
    with mock.patch.dict(os.environ, environment(**env), clear=True):
        status = main(arguments)
    return status, *capsys.readouterr()
