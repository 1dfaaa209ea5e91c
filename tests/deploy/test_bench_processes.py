"""The processes that the benchmark starts: what answers in a server's place is not taken for the server."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from measure import Running, free_port, listens  # noqa: E402

CORES = ",".join(map(str, sorted(os.sched_getaffinity(0)))) if hasattr(os, "sched_getaffinity") else ""
#: A server, which ends at once if its port is taken.
SERVER = """import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listening:
    while True:
        listening.accept()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark runs on Linux")


def test_a_server_is_running_once_it_listens_itself(tmp_path: Path) -> None:
    port = free_port()
    running = Running([sys.executable, "-c", SERVER, str(port)], port, b"", CORES, tmp_path / "log")
    try:
        assert listens(running.pid, port)
        assert not listens(running.pid, free_port())
        assert running.started > 0
    finally:
        running.stop()


def test_a_stranger_on_the_port_is_not_the_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        assert listens(os.getpid(), port)
        with pytest.raises(RuntimeError, match=r"ended with 1: .*Address already in use"):
            Running([sys.executable, "-c", SERVER, str(port)], port, b"", CORES, tmp_path / "log")
