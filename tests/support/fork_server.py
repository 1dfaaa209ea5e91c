"""Begins the command, or a worker, without importing it anew: a process that has imported what `redrive run`, or a
worker, imports anyway, and forks a child for each that it is asked for.

    python fork_server.py commands|workers DESCRIPTOR

DESCRIPTOR is a Unix socket of packets. A packet is the command line, its environment and its folder, as JSON, with the
descriptors of standard output, standard error, and of a socket on which the child's id is told, and at its end its
exit status. The server ends with its socket (`support.forked` has the other end).

The child of a command runs `proxy` as `python -m proxy` does, with its own arguments, environment and folder, no
descriptor but its own three, and signals as Python sets them: what it does from its first line on is the product's own.
The server itself has no thread, no event loop and no handler that a child could inherit.

A command that begins workers gets a fourth descriptor: the socket of the server of workers. There its workers are
forked, in place of an interpreter for each (`begin_forked`). A worker runs the code, and has the descriptors and the
limit of files, that the interpreter would have. Its parent is the server, so its name is that of the command's process
(`name_of_workers`), by which tests find it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

#: Bytes of a packet at most: a command line with its environment.
PACKET = 1 << 17
#: Descriptors of a packet at most.
MOST = 16
#: The least number of a descriptor that is not the command's own.
ASIDE = 100


def preload() -> None:
    """Import what `redrive run` imports, in its order, and read a configuration: what is read from disk then is
    imported later than the rest. tests/e2e/test_forked.py holds it to that.
    """
    from proxy import cli  # noqa: F401
    from proxy.config.load import load
    from proxy.early_signals import end_early  # noqa: F401
    from proxy.server.late_client import import_aiohttp

    load(None, {})
    import yaml  # noqa: F401  for a configuration that stands in a file

    import_aiohttp()
    import proxy.main  # noqa: F401


def preload_worker() -> None:
    """Import what a worker imports, as `proxy.supervisor.slots` has it."""
    from proxy.server.late_client import import_aiohttp

    import_aiohttp()
    import proxy.supervisor.worker  # noqa: F401


def name_of_workers(command: int) -> str:
    """The name that workers of a command's process have, as /proc/PID/comm tells it."""
    return f"of {command}"


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork until the socket ends, and give None; in a child, what was asked for."""
    children: dict[int, tuple[int, int]] = {}  # the descriptor of each process: its id, and where its end is told
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != connection.fileno():
                pid, told = children.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                tell(told, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(told)
                continue
            packet, descriptors, _, _ = socket.recv_fds(connection, PACKET, MOST)
            if not packet:
                return None
            asked = json.loads(packet)
            pid = os.fork()
            if pid == 0:
                connection.detach()  # closed below, and not once more when the object goes
                become(asked, descriptors)
                return dict(asked)
            out, errors, told, *more = descriptors
            for descriptor in (out, errors, *more):
                os.close(descriptor)
            tell(told, pid)
            process = os.pidfd_open(pid)
            children[process] = pid, told
            poll.register(process, select.POLLIN)


def tell(told: int, number: int) -> None:
    """A line; nobody may be there any more to read it."""
    with contextlib.suppress(OSError):
        os.write(told, b"%d\n" % number)


def become(asked: dict[str, Any], descriptors: list[int]) -> None:
    """Make a forked child what a process is that was begun with these."""
    numbers = asked["descriptors"]
    least = max(ASIDE, *numbers, *map(int, os.listdir("/proc/self/fd"))) + 1
    own = [fcntl.fcntl(each, fcntl.F_DUPFD, least) for each in descriptors[3:]]
    os.dup2(descriptors[0], 1)
    os.dup2(descriptors[1], 2)
    os.closerange(3, least)
    for descriptor, number in zip(own, numbers, strict=True):
        os.dup2(descriptor, number, inheritable=number < ASIDE)
        os.close(descriptor)
    os.chdir(asked["folder"])
    sys.path[0] = asked["folder"]  # as `-m` has it
    os.environ.clear()
    os.environ.update(asked["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # ignored where a shell has begun the tests in the background


def run_command(asked: dict[str, Any]) -> None:
    """Run the command line, whose workers are forked as well if it was given the socket of their server."""
    sys.argv[1:] = asked["arguments"]
    if asked["descriptors"]:
        from proxy.supervisor.child_process import ChildProcess

        connection = socket.socket(fileno=asked["descriptors"][0])

        async def begin_forked(child: Any, code: str, arguments: Sequence[str], descriptors: Sequence[int]) -> None:
            import asyncio

            child._loop = asyncio.get_running_loop()
            child._child = ForkedWorker(child._loop, connection, code, arguments, descriptors)
            child._handle = os.pidfd_open(child._child.pid)

        ChildProcess.start = begin_forked  # type: ignore[method-assign]
    runpy.run_module("proxy", run_name="__main__", alter_sys=True)


def run_worker(asked: dict[str, Any]) -> None:
    """Run a worker's code, as `python -c` does."""
    import resource

    with open("/proc/self/comm", "w") as name:
        name.write(name_of_workers(asked["command"]))
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(asked["files"]))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.argv[:] = ["-c", *asked["arguments"]]
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(asked["code"], vars(module))


class ForkedWorker:
    """A forked worker, with what `ChildProcess` has of `asyncio.subprocess.Process`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        code: str,
        arguments: Sequence[str],
        descriptors: Sequence[int],
    ) -> None:
        import resource

        asked = {
            "code": code,
            "arguments": arguments,
            "descriptors": descriptors,
            "command": os.getpid(),
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
        self._loop = loop
        self._told, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with told:
            socket.send_fds(connection, [json.dumps(asked).encode()], [1, 2, told.fileno(), *descriptors])
        self.pid = int(self._told.recv(64))
        self._end: asyncio.Future[int] = loop.create_future()
        loop.add_reader(self._told, self._ended)

    async def wait(self) -> int:
        """Wait for the end; the exit status."""
        return await self._end

    def kill(self) -> None:
        """End it as it is."""
        if not self._end.done():
            with contextlib.suppress(ProcessLookupError):  # it has ended, and that is about to be told
                os.kill(self.pid, signal.SIGKILL)

    def _ended(self) -> None:
        self._loop.remove_reader(self._told)
        told = self._told.recv(64)
        self._told.close()
        if not self._end.done():
            self._end.set_result(int(told) if told else -signal.SIGKILL)


if __name__ == "__main__":
    kind, descriptor = sys.argv[1:]
    sys.path[0] = os.getcwd()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends whoever runs tests, and so the socket
    (preload if kind == "commands" else preload_worker)()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in each child"
    gc.collect()
    gc.freeze()  # children look through their own for garbage, and the pages stay shared
    begun = serve(socket.socket(fileno=int(descriptor)))
    if begun is not None:
        (run_command if kind == "commands" else run_worker)(begun)
