"""A process that is told to end does end, whatever hangs: a look-up, a disk, a reader, a worker, Redis, a reload."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from clients import with_aiohttp
from support.process import COMMAND, Redrive, environment
from support.redis_server import RedisServer, needs_redis
from support.scripted import Upstream, answer, hang
from test_workers import ended, workers_of

#: Far above what any end may take (drain is 1 s here), far below what hangs.
SECONDS = 25.0
WORKERS = pytest.mark.parametrize("workers", [1, 2])
LISTEN = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndrain: 1s\nworkers: {}\n"


def config(upstream: Upstream, more: str = "") -> str:
    return f"upstreams:\n  a:\n    url: {upstream.url}\n{more}"


async def there(file: Path) -> None:
    """Until another process has made this file."""
    async with asyncio.timeout(SECONDS):
        while not file.exists():  # noqa: ASYNC110, ASYNC240 - what other processes do sets no event here
            await asyncio.sleep(0.01)


async def ends(running: Redrive) -> None:
    """Told to end, it ends within its time, with its workers, and says so."""
    workers = workers_of(running.pid)
    running.signal(signal.SIGTERM)
    async with asyncio.timeout(SECONDS):
        assert await running.ended() == 0
    await ended(workers)
    assert running.lines[-1]["event"] == "ended"


@WORKERS
async def test_a_reload_that_is_asked_for_while_it_starts_comes_when_it_serves(workers: int, tmp_path: Path) -> None:
    """SIGHUP and SIGUSR2 would end a process without a handler. An included file that is a pipe shows when it is read,
    and so that nothing is served yet.
    """
    file, pipe = tmp_path / "redrive.yaml", tmp_path / "more.yaml"
    os.mkfifo(pipe)
    file.write_text(f"{LISTEN.format(workers)}include: [more.yaml]\n")
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "run", "-c", str(file), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    )
    over = threading.Event()

    def write() -> None:
        signals = [signal.SIGHUP, signal.SIGUSR2]
        while not over.is_set():
            with contextlib.suppress(BrokenPipeError), pipe.open("w") as written:  # waits for a reader
                while signals:
                    process.send_signal(signals.pop())
                written.write("# nothing more\n")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        async with asyncio.timeout(SECONDS):
            assert process.stdout is not None
            events = []
            while not events or events[-1].get("why") != "SIGHUP":
                line = await process.stdout.readline()
                assert line, events
                events.append(json.loads(line))
            process.terminate()
            assert await process.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        over.set()
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    assert events[0]["event"] == "ready"
    assert events[-1]["result"] == "success"


@WORKERS
async def test_a_thread_that_reads_what_never_comes(workers: int, tmp_path: Path) -> None:
    """As a file on a disk that is gone: nothing ends a thread in a system call."""
    folder = tmp_path / "more"
    folder.mkdir()
    more = "include: [more/*.yaml]\n"
    async with (
        Upstream() as upstream,
        Redrive(tmp_path, more + config(upstream), listen=LISTEN.format(workers)) as running,
    ):
        os.mkfifo(folder / "x.yaml")
        writer = await read_by_somebody(folder / "x.yaml")
        await ends(running)
        os.close(writer)


async def read_by_somebody(fifo: Path) -> int:
    """A descriptor that nothing will be written to, once somebody waits for what comes."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody has it open for reading
                await asyncio.sleep(0.01)


STUCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <stdlib.h>
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res) {
    if (node && strstr(node, "stuck.test")) {
        close(open(getenv("STUCK_TOLD"), O_CREAT | O_WRONLY, 0600));
        for (;;) pause();
    }
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(node, service, hints, res);
}
"""


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """A library in whose look-ups one name is never answered."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, made = tmp_path / "stuck.c", tmp_path / "stuck.so"
    source.write_text(STUCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


@WORKERS
async def test_a_look_up_that_is_never_answered(workers: int, stuck: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    text = "upstreams: {a: {url: 'http://stuck.test:9', timeouts: {connect: 1m}}}\n"
    env = {"LD_PRELOAD": str(stuck), "STUCK_TOLD": str(told)}
    async with Redrive(tmp_path, text, listen=LISTEN.format(workers), **env) as running:
        call = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await there(told)
        await ends(running)
        await asyncio.wait({call})


class Quiet(Redrive):
    """One whose standard output, or standard error, nobody reads from a certain moment on."""

    async def stop_reading(self) -> None:
        for task in self._readers:
            task.cancel()
        await asyncio.wait(self._readers)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream._transport.pause_reading()  # type: ignore[attr-defined]

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            for stream in (self.process.stdout, self.process.stderr):
                stream._transport.close()  # type: ignore[union-attr]


@WORKERS
@pytest.mark.parametrize("form", ["json", "console"])
async def test_a_log_that_nobody_reads(workers: int, form: str, tmp_path: Path) -> None:
    """Both pipes are full, and their reader neither reads nor goes."""
    async with Upstream() as upstream, Quiet(tmp_path, config(upstream), listen=LISTEN.format(workers)) as running:
        await running.stop_reading()
        running.file.write_text(LISTEN.format(workers) + f"log: {{format: {form}}}\n" + config(upstream))
        await with_aiohttp("POST", f"{running.admin}/reload")
        running.file.write_text("".join(f"nonsense_{number}: 1\n" for number in range(500)))
        for _ in range(3):  # its errors go to standard error, where the log is the console's
            await with_aiohttp("POST", f"{running.admin}/reload")
        for number in range(60):
            await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/{number}/{n}/{'x' * 3000}") for n in range(4)))
        workers_there = workers_of(running.pid)
        running.signal(signal.SIGTERM)
        await ended({running.pid, *workers_there})


@contextlib.asynccontextmanager
async def at_a_terminal(folder: Path, text: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """The process with a terminal as its output, and the terminal's other end."""
    ours, theirs = pty.openpty()
    file = folder / "redrive.yaml"
    file.write_text(text)
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "run", "-c", str(file), stdin=asyncio.subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env=environment(),
    )  # fmt: skip
    os.close(theirs)
    try:
        yield process, ours
    finally:
        os.close(ours)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_terminal_that_nobody_reads(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = f"listen: 127.0.0.1:{port}\nadmin: off\ndrain: 1s\nlog: {{format: console}}\n"
    async with Upstream() as upstream, at_a_terminal(tmp_path, text + config(upstream)) as (process, terminal):
        said = b""
        while b"try: curl" not in said:
            said += await loop.run_in_executor(None, os.read, terminal, 4096)
        for number in range(40):
            await asyncio.gather(
                *(with_aiohttp("GET", f"http://127.0.0.1:{port}/a/{number}/{n}/{'x' * 3000}") for n in range(4))
            )
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0


@WORKERS
async def test_a_reader_of_events_that_does_not_read(workers: int, tmp_path: Path) -> None:
    async with (
        Upstream() as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(workers)) as running,
        asyncio.timeout(SECONDS * 2),
    ):
        host, port = running.ready["admin"][0].split(":")
        sock = socket.create_connection((host, int(port)))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        for _ in range(20):
            await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/{'x' * 3000}") for _ in range(10)))
        await ends(running)
        sock.close()


SLOW = """
import os, time
from proxy.retry import StandardRetryStrategy
if os.path.exists({flag!r}):
    open({told!r}, "w").close()
    while True:
        time.sleep(60)
class Slow(StandardRetryStrategy): pass
"""


@WORKERS
@pytest.mark.parametrize("size", ["small", "large"])
async def test_a_reload_that_is_never_done(workers: int, size: str, tmp_path: Path) -> None:
    """A strategy of one's own whose module never comes to an end: loaded in a thread, or by a process of its own."""
    flag, told = tmp_path / "flag", tmp_path / "told"
    (tmp_path / "slow_module.py").write_text(SLOW.format(flag=str(flag), told=str(told)))
    async with Upstream(hang) as upstream:
        rest = "#" * 20_000 + "\n" if size == "large" else ""
        async with Redrive(tmp_path, config(upstream) + rest, listen=LISTEN.format(workers)) as running:
            flag.touch()
            more = '    strategy: {kind: "slow_module:Slow"}\n'
            running.file.write_text(LISTEN.format(workers) + config(upstream, more) + rest)
            running.signal(signal.SIGHUP)
            await there(told)
            await ends(running)


@pytest.mark.parametrize("when", ["loading", "beginning workers"])
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
async def test_a_start_that_is_not_done(when: str, first: signal.Signals, tmp_path: Path) -> None:
    """Told so before anything is served: as process 1 of a container it would not hear of it without a handler."""
    flag, told = tmp_path / "flag", tmp_path / "told"
    module = SLOW.format(flag=str(flag), told=str(told))
    if when == "beginning workers":
        module = module.replace("import os, time", "import os, sys, time").replace(
            "if os", 'if "worker" in sys.argv and os'
        )
    (tmp_path / "slow_module.py").write_text(module)
    flag.touch()
    file = tmp_path / "redrive.yaml"
    file.write_text(
        LISTEN.format(2) + 'upstreams: {a: {url: "http://127.0.0.1:9", strategy: {kind: "slow_module:Slow"}}}\n'
    )
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "run", "-c", str(file), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    async with asyncio.timeout(SECONDS):
        await there(told)
        workers = workers_of(process.pid)
        assert bool(workers) == (when == "beginning workers")
        process.send_signal(first)
        _, errors = await process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in errors
    await ended(workers)


async def test_a_worker_that_stands_still(tmp_path: Path) -> None:
    async with Upstream() as upstream, Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running:
        os.kill(min(workers_of(running.pid)), signal.SIGSTOP)
        await ends(running)


@needs_redis
@WORKERS
async def test_a_redis_that_hangs(workers: int, tmp_path: Path) -> None:
    redis = RedisServer()
    text = f'redis: {{url: "{redis.url}"}}\nbuckets: {{fleet: {{kind: quota, store: redis}}}}\n'
    try:
        async with Upstream(answer(503)) as upstream:
            more = "    bucket: fleet\n"
            async with Redrive(tmp_path, text + config(upstream, more), listen=LISTEN.format(workers)) as running:
                await with_aiohttp("GET", f"{running.url}/a/x")
                redis.stop()
                await with_aiohttp("GET", f"{running.url}/a/x")
                await ends(running)
    finally:
        redis.close()


@WORKERS
async def test_spans_that_nobody_takes(workers: int, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        async with (
            Upstream() as upstream,
            Redrive(tmp_path, config(upstream), listen=LISTEN.format(workers), **env) as running,
        ):
            await with_aiohttp("GET", f"{running.url}/a/x")
            await ends(running)


async def test_an_orphan_ends_too(tmp_path: Path) -> None:
    """The parent is killed: nobody is left to end a worker in which something hangs."""
    async with Upstream(hang) as upstream, Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running:
        call = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await upstream.until(1)
        workers = workers_of(running.pid)
        running.signal(signal.SIGKILL)
        await ended(workers)
        await asyncio.wait({call})


@WORKERS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_one_that_was_begun_in_the_background_hears_its_signals(
    number: signal.Signals, workers: int, tmp_path: Path
) -> None:
    """As by `nohup redrive run &` in a script: the shell has SIGINT, SIGQUIT and SIGHUP ignored."""
    command = ("sh", "-c", 'trap "" INT QUIT HUP TERM; exec "$@"', "sh", *COMMAND)
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(workers), command=command) as running,
    ):
        assert (await with_aiohttp("GET", f"{running.url}/a/x")).status == 200
        running.signal(signal.SIGHUP)
        line = await running.line(lambda line: line["event"] == "reload")
        assert line is not None
        workers_left = workers_of(running.pid)
        running.signal(number)
        async with asyncio.timeout(SECONDS):
            assert await running.ended() == 0
        await ended(workers_left)
