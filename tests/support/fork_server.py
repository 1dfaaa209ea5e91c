"""Begins the command without importing it anew: a process that has imported what `redrive run` imports anyway, and
forks a child for each command line that it is sent.

    python fork_server.py DESCRIPTOR

DESCRIPTOR is a Unix socket of packets. A packet is the command line, its environment and its folder, as JSON, with the
descriptors of standard output, standard error, and of a socket on which the child's id is told, and at its end its
exit status. The server ends with its socket (`support.forked` has the other end).

The child runs `proxy` as `python -m proxy` does, with its own arguments, environment and folder, no descriptor but its
own three, and signals as Python sets them: what it does from its first line on is the product's own. The server itself
has no thread, no event loop and no handler that a child could inherit.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys

#: Bytes of a packet at most: a command line with its environment.
PACKET = 1 << 17


def preload() -> None:
    """Import what `redrive run` imports, in its order, and read a configuration: what is read from disk then is
    imported later than the rest. tests/e2e/test_forked.py holds it to that.
    """
    from proxy import cli  # noqa: F401
    from proxy.config.load import load
    from proxy.process import end_early  # noqa: F401
    from proxy.server.late_client import import_aiohttp

    load(None, {})
    import yaml  # noqa: F401  for a configuration that stands in a file

    import_aiohttp()
    import proxy.main  # noqa: F401


def serve(connection: socket.socket) -> list[str] | None:
    """Fork until the socket ends, and give None; in a child, the arguments that it runs with."""
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
            packet, descriptors, _, _ = socket.recv_fds(connection, PACKET, 3)
            if not packet:
                return None
            asked = json.loads(packet)
            pid = os.fork()
            if pid == 0:
                connection.detach()  # closed below, and not once more when the object goes
                become(asked["environment"], asked["folder"], *descriptors[:2])
                return [str(argument) for argument in asked["arguments"]]
            out, errors, told = descriptors
            os.close(out)
            os.close(errors)
            tell(told, pid)
            process = os.pidfd_open(pid)
            children[process] = pid, told
            poll.register(process, select.POLLIN)


def tell(told: int, number: int) -> None:
    """A line; nobody may be there any more to read it."""
    with contextlib.suppress(OSError):
        os.write(told, b"%d\n" % number)


def become(environment: dict[str, str], folder: str, out: int, errors: int) -> None:
    """Make a forked child what a process is that was begun with these."""
    os.dup2(out, 1)
    os.dup2(errors, 2)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.chdir(folder)
    sys.path[0] = folder  # as `-m` has it
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # ignored where a shell has begun the tests in the background


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends whoever runs tests, and so the socket
    preload()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in each child"
    gc.collect()
    gc.freeze()  # children look through their own for garbage, and the pages stay shared
    begun = serve(socket.socket(fileno=int(sys.argv[1])))
    if begun is not None:
        sys.argv[1:] = begun
        runpy.run_module("proxy", run_name="__main__", alter_sys=True)
