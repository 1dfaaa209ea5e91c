"""Processes of the command that are forked from one that has imported it (`fork_server`): they begin in hundredths of
the time that an interpreter takes to import the program. What they do is the product's own; where the way into the
process is what is tested, or Python is to begin otherwise, the true command is run.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Self

from support.fork_server import ASIDE, name_of_workers

#: What an interpreter, its libraries and the modules that are imported at start read of the environment, once: a
#: process that has begun can't be given another value.
READ_AT_START = (
    "PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "HOME", "REDRIVE_PURE", "OPENSSL_",
    "AIOHTTP_", "FROZENLIST_", "MULTIDICT_", "PROPCACHE_", "YARL_", "UVLOOP_",
)  # fmt: skip
#: Linux has what a server of several children needs (pidfd_open(2)).
CAN_FORK = hasattr(os, "pidfd_open") and sys.platform == "linux"


def can_be_forked(environment: Mapping[str, str]) -> bool:
    """Whether a process that begins with this environment begins as the server has."""
    return CAN_FORK and _read_at_start(environment) == _server("commands").environment


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


class _Server:
    """Forks for this process as long as it lives: commands, or workers, as `kind` says. `environment` is what it has
    read of that at its start.
    """

    def __init__(self, kind: str) -> None:
        self.environment = _read_at_start(os.environ)
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = (sys.executable, str(Path(__file__).with_name("fork_server.py")), kind, str(theirs.fileno()))
        with theirs:
            # A pipe for its output, so that what it has made of standard output fits that of its children.
            self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdout=subprocess.PIPE)
        atexit.register(self._close)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _close(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)  # a command that was left over may have it, too
        self.connection.close()
        self._process.communicate()


_servers: dict[str, _Server] = {}


def _server(kind: str) -> _Server:
    if kind not in _servers:
        _servers[kind] = _Server(kind)
    return _servers[kind]


def forked_workers_of(command: int) -> set[int]:
    """The workers that were forked for a command's process, and have not ended."""
    found = set()
    if "workers" in _servers:
        server = _servers["workers"].pid
        for child in Path(f"/proc/{server}/task/{server}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                here = Path(f"/proc/{child}")
                is_zombie = (here / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
                if (here / "comm").read_text().strip() == name_of_workers(command) and not is_zombie:
                    found.add(int(child))
    return found


class Forked:
    """A process of the command, with what `subprocess.Popen` has of it. `environment` has to be one with which it
    `can_be_forked`. `workers`: its workers are forked as well. `stdout` and `stderr` are what it writes.
    """

    def __init__(self, *arguments: str, environment: Mapping[str, str], workers: bool = False) -> None:
        may_fork = workers and _server("workers").environment == _server("commands").environment
        more = [_server("workers").connection.fileno()] if may_fork else []
        asked = {
            "arguments": arguments,
            "environment": dict(environment),
            "folder": os.getcwd(),
            "descriptors": [ASIDE for _ in more],
        }
        (out, their_out), (errors, their_errors) = os.pipe(), os.pipe()
        self.told, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs = their_out, their_errors, told.detach()
        try:
            socket.send_fds(_server("commands").connection, [json.dumps(asked).encode()], [*theirs, *more])
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.stdout: BinaryIO = os.fdopen(out, "rb")
        self.stderr: BinaryIO = os.fdopen(errors, "rb")
        self.pid = self._next()
        self._status: int | None = None

    @property
    def returncode(self) -> int | None:
        """The exit status, a signal's number below zero; None before the end."""
        if self._status is None and select.select([self.told], [], [], 0)[0]:
            self._status = self._next()
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, so many seconds at most; the exit status. Raises subprocess.TimeoutExpired."""
        if self._status is None:
            if not select.select([self.told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("redrive", timeout or 0)
            self._status = self._next()
        return self._status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has, and that is about to be told
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as it is."""
        self.send_signal(signal.SIGKILL)

    def _next(self) -> int:
        """What the server tells next."""
        told = self.told.recv(64)
        assert told, "the fork server has ended: what it said stands above"
        return int(told)


class ForkedBeside:
    """The same for a loop, with what `asyncio.subprocess.Process` has of it. Made by `begin`."""

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    def __init__(self, forked: Forked) -> None:
        self._forked = forked
        self.pid = forked.pid
        self.send_signal = forked.send_signal
        self.kill = forked.kill
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(forked.told, self._ended)

    @classmethod
    async def begin(cls, *arguments: str, environment: Mapping[str, str], workers: bool = False) -> Self:
        """Begin a process."""
        forked = Forked(*arguments, environment=environment, workers=workers)
        made = cls(forked)
        made.stdout, made.stderr = await _read(forked.stdout), await _read(forked.stderr)
        return made

    @property
    def returncode(self) -> int | None:
        """The exit status, as of `Forked`."""
        return self._forked.returncode

    async def wait(self) -> int:
        """Wait for the end; the exit status."""
        return await asyncio.shield(self._end)

    def _ended(self) -> None:
        self._loop.remove_reader(self._forked.told)
        self._end.set_result(self._forked.wait())


async def _read(pipe: BinaryIO) -> asyncio.StreamReader:
    """A reader of the pipe, whose descriptor uvloop closes. It then closes the file object as well, and gives up the
    interpreter's lock before that: a thread that opens a socket in between would lose it. So the object closes nothing.
    """
    reader = asyncio.StreamReader()
    with pipe:
        handed_over = os.fdopen(os.dup(pipe.fileno()), "rb", closefd=False)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), handed_over)
    return reader
