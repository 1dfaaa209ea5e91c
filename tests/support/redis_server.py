"""A real redis-server for tests: on a free port, in a directory of its own, gone with the test."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from support.ports import free_port

FOUND = shutil.which("redis-server") or shutil.which("valkey-server")

needs_redis = pytest.mark.skipif(
    FOUND is None, reason="no redis-server and no valkey-server on PATH (scripts/system-packages installs one)"
)


class RedisServer:
    """One server. `options` are redis-server's own, as on its command line."""

    def __init__(self, *options: str, port: int | None = None, sentinel: str | None = None) -> None:
        self.port = free_port() if port is None else port
        self.directory = Path(tempfile.mkdtemp(prefix="redrive-redis-"))
        self._options = options
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Returns when it accepts connections, as it says itself."""
        assert FOUND is not None
        command = [FOUND]
        if self._sentinel is not None:
            file = self.directory / "sentinel.conf"
            file.write_text(self._sentinel)
            command += [str(file), "--sentinel"]
        command += ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        if self._sentinel is not None:
            command = command[: command.index("--save")]
        command += ["--dir", str(self.directory), "--daemonize", "no", *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = b""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said += line
            if b"eady to accept connections" in line or (self._sentinel is not None and b"Sentinel ID is" in line):
                return
        raise AssertionError(f"redis-server did not start: {said.decode()}")

    def kill(self) -> None:
        """It is gone, and so is what it knew."""
        if self._process is not None:
            self.go_on()
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def restart(self) -> None:
        """Gone and there again, on the same port, knowing nothing."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """It hangs: connections stay, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._stopped = True

    def go_on(self) -> None:
        if self._stopped and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self._stopped = False

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def client_of_own() -> Iterator[Redis]:
    """A client of a server of its own, as a fixture yields it."""
    server = RedisServer()
    with Redis.from_url(server.url) as client:
        yield client
    server.close()
