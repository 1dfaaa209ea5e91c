"""What a reload and an end do to workers and to connections: an answered reload is in force, and nothing is reset."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import aiohttp
import pytest
from clients import with_aiohttp
from support.ports import free_port
from support.process import Redrive
from support.scripted import Turn, Upstream, answer
from test_workers import (
    LISTEN,
    PATIENT,
    ROOM,
    SLOW_RATE,
    ask_once,
    config,
    ended,
    held_and_told,
    metrics,
    patient,
    show,
    until,
    whole,
    workers_of,
)

#: A user's strategy that takes its time where the test says so: in one process, or in workers that begin.
SLOW = """
import os, sys, time
from pathlib import Path
from proxy.retry import StandardRetryStrategy
here = Path(__file__).parent
def wait_for(name, said):
    if (here / name).exists() and (here / name).read_text() in (said, str(os.getpid())):
        (here / "waits").touch()
        while not (here / "go").exists():
            time.sleep(0.002)
if "worker" in sys.argv:
    wait_for("slow-import", "all")
class Slow(StandardRetryStrategy):
    def __init__(self, attempts):
        super().__init__(max_attempts=attempts)
        wait_for("slow", "none")
"""


def slow(upstream: Upstream, attempts: int) -> str:
    return config(upstream, f'    strategy: {{kind: "slow:Slow", attempts: {attempts}}}\n')


async def counts(running: Redrive, calls: int = 12) -> set[str]:
    """The attempts of so many calls, each on a connection of its own."""
    got = await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/x") for _ in range(calls)))
    return {each.headers["x-attempt-count"] for each in got}


async def reload(running: Redrive) -> None:
    assert (await with_aiohttp("POST", f"{running.admin}/reload")).status == 200


async def there_are(running: Redrive, count: int) -> None:
    async def so_many() -> bool:
        return len(workers_of(running.pid)) == count

    await until(so_many)


async def test_a_reload_is_taken_by_all_and_their_number_may_change(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running,
    ):
        for count in (3, 1, 2):
            running.file.write_text(LISTEN.format(count) + config(upstream, PATIENT, patient(count + 1)))
            await reload(running)
            assert await counts(running) == {str(count + 1)}
            await there_are(running, count)
        (bucket,) = (await show(running, "buckets"))["buckets"]
        assert bucket["level"] == 500 - 5 * 12 * (3 + 1 + 2)


@pytest.mark.parametrize("which", [min, max])
async def test_a_reload_waits_for_a_slow_worker_also_one_too_many(which: type, tmp_path: Path) -> None:
    """One of the two is retired by this reload, and decides no call by the old policy after the answer."""
    (tmp_path / "slow.py").write_text(SLOW)
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, slow(upstream, 4), listen=LISTEN.format(2)) as running,
    ):
        (tmp_path / "slow").write_text(str(which(workers_of(running.pid))))
        running.file.write_text(LISTEN.format(1) + slow(upstream, 2))
        reloaded = asyncio.create_task(reload(running))

        async def one_waits() -> bool:
            return (tmp_path / "waits").exists()

        await until(one_waits)
        for _ in range(5):
            await metrics(running)
        assert not reloaded.done()
        (tmp_path / "go").touch()
        await reloaded
        assert await counts(running) == {"2"}
        await there_are(running, 1)


async def test_calls_do_not_wait_for_workers_that_begin(tmp_path: Path) -> None:
    """More workers have sockets of their own at once; others accept on them until they are ready."""
    (tmp_path / "slow.py").write_text(SLOW)
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, slow(upstream, 2), listen=LISTEN.format(2)) as running,
    ):
        (tmp_path / "slow-import").write_text("all")
        running.file.write_text(LISTEN.format(5) + slow(upstream, 3))
        await reload(running)
        assert await counts(running, 30) == {"3"}
        assert (await metrics(running))("redrive_workers", state="ready") == 2
        (tmp_path / "go").touch()

        async def all_are_ready() -> bool:
            return (await metrics(running))("redrive_workers", state="ready") == 5

        await until(all_are_ready)
        assert await counts(running, 30) == {"3"}


async def test_workers_that_begin_at_once_share_the_room(tmp_path: Path) -> None:
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream, SLOW_RATE, ROOM), listen=LISTEN.format(2)) as running,
    ):
        assert await ask_once(running) == 200
        running.file.write_text(LISTEN.format(5) + config(upstream, SLOW_RATE, ROOM))
        await reload(running)
        await whole(running, 5)
        told, waiting = await held_and_told(running, 16, 2)
        assert told == [503] * 14
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_place_is_given_up_while_its_worker_begins(tmp_path: Path) -> None:
    """Up and down again in quick succession leaves no process too many, and no address unserved."""
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running,
    ):
        for count, attempts in ((6, 2), (2, 3), (5, 2), (3, 3)):
            running.file.write_text(LISTEN.format(count) + config(upstream, PATIENT, patient(attempts)))
            await reload(running)
            assert await counts(running) == {str(attempts)}
        await there_are(running, 3)
        assert await counts(running) == {"3"}


# -- connections ----------


class App:
    """An app's connection, byte by byte."""

    def __init__(self, running: Redrive, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.host, self.reader, self.writer = running.authority, reader, writer

    @classmethod
    async def opened(cls, running: Redrive) -> App:
        host, port = running.authority.split(":")
        return cls(running, *await asyncio.open_connection(host, int(port)))

    def ask(self) -> None:
        self.writer.write(f"GET /a/x HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())

    async def answer(self) -> tuple[int, str]:
        """Status and body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split(" ")[1]), (await self.reader.readexactly(length)).decode()


async def slow_or_not(turn: Turn, go: asyncio.Event) -> None:
    if turn.request.target.endswith("hold"):
        await go.wait()
    turn.writer.write(answer(200, b"whole"))


async def half_and_half(turn: Turn, first: asyncio.Event, go: asyncio.Event) -> None:
    """A call that is held, one whose answer has begun, and those behind it."""
    if turn.request.target.endswith("hold"):
        await go.wait()
    elif len(turn.upstream.requests) == 2:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwh")
        await first.wait()
        await turn.write(b"ole")
        return
    turn.writer.write(answer(200, b"whole"))


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_app_that_has_just_connected_is_served_while_draining(workers: int, tmp_path: Path) -> None:
    """Its request is on its way when SIGTERM comes: the connection is not closed under it."""
    go = asyncio.Event()
    async with (
        Upstream(lambda turn: slow_or_not(turn, go)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(workers)) as running,
    ):
        held = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/hold"))
        await upstream.until(1)
        apps = [await App.opened(running) for _ in range(8)]
        # Accepted by now: the listener takes them in order, and this call came behind them.
        assert await counts(running) == {"1"}
        running.signal(signal.SIGTERM)
        assert await running.line(lambda line: line["event"] == "draining")
        assert await counts(running) == {"1"}
        for app in apps:
            app.ask()
        assert [await app.answer() for app in apps] == [(200, "whole")] * 8
        go.set()
        assert (await held).body == b"whole"
        assert await running.ended() == 0
        assert running.lines[-1]["calls_cut"] == 0


async def test_a_request_that_came_with_the_signal_is_answered(tmp_path: Path) -> None:
    """On a connection that rested: both wait for the process when it goes on."""
    async with Upstream(answer(200, b"whole")) as upstream, Redrive(tmp_path, config(upstream)) as running:
        apps = [await App.opened(running) for _ in range(8)]
        for app in apps:
            app.ask()
            assert await app.answer() == (200, "whole")
        running.signal(signal.SIGSTOP)
        for app in apps:
            app.ask()
        running.signal(signal.SIGTERM)
        running.signal(signal.SIGCONT)
        assert [await app.answer() for app in apps] == [(200, "whole")] * 8
        assert await running.ended() == 0


async def test_an_answer_that_began_before_the_signal_does_not_close(tmp_path: Path) -> None:
    """It did not say so, and the app's next request may be on its way: that one's answer says it."""
    first, go = asyncio.Event(), asyncio.Event()
    async with (
        Upstream(lambda turn: half_and_half(turn, first, go)) as upstream,
        Redrive(tmp_path, config(upstream)) as running,
    ):
        held = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/hold"))
        await upstream.until(1)
        app = await App.opened(running)
        app.ask()
        head = await app.reader.readuntil(b"\r\n\r\n")
        assert b"close" not in head
        running.signal(signal.SIGTERM)
        assert await running.line(lambda line: line["event"] == "draining")
        first.set()
        assert await app.reader.readexactly(5) == b"whole"
        app.ask()
        head = await app.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"Connection: close\r\n" in head
        assert await app.reader.read() == b"whole"
        go.set()
        assert (await held).body == b"whole"
        assert await running.ended() == 0


async def test_a_rolling_restart_fails_no_call_of_apps_that_keep_their_connections(tmp_path: Path) -> None:
    """Not even calls that nobody repeats: answers say that the connection closes before it does."""
    over = False
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running,
    ):

        async def load() -> int:
            count = 0
            async with aiohttp.ClientSession() as session:
                while not over:
                    async with session.post(f"{running.url}/a/x", data=b"once") as got:
                        assert got.status == 200
                    count += 1
            return count

        loads = [asyncio.create_task(load()) for _ in range(8)]
        running.signal(signal.SIGUSR2)
        assert await running.line(lambda line: line["event"] == "rolled")
        over = True
        assert sum(await asyncio.gather(*loads)) == len(upstream.requests)


async def test_apps_that_have_just_connected_are_served_by_a_worker_that_retires(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with (
        Upstream(lambda turn: slow_or_not(turn, go)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(3)) as running,
    ):
        held = [asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/hold")) for _ in range(24)]
        await upstream.until(24)
        apps = [await App.opened(running) for _ in range(24)]
        assert await counts(running, 24) == {"1"}
        running.file.write_text(LISTEN.format(1) + config(upstream))
        await reload(running)
        for app in apps:
            app.ask()
        assert [await app.answer() for app in apps] == [(200, "whole")] * 24
        go.set()
        assert [each.body for each in await asyncio.gather(*held)] == [b"whole"] * 24
        await there_are(running, 1)
        assert all(line.get("calls_cut", 0) == 0 for line in running.lines)


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_address_that_is_spelt_anew_is_served_all_the_while(workers: int, tmp_path: Path) -> None:
    """127.0.0.1 and, on the same port, any address: connections that waited where the one listened are served too.

    A handshake under way when a listening socket closes is the kernel's to drop (unless tcp_migrate_req is set):
    with a new connection for every request, one in thousands may meet that.
    """
    port = free_port()
    top = f"workers: {workers}\nadmin: 127.0.0.1:0\nlisten: {{}}:{port}\n"
    over, dropped = False, 0
    async with Upstream(answer(200)) as upstream:
        rest = config(upstream, "    hosts: [localhost]\n")
        async with Redrive(tmp_path, rest, listen=top.format("127.0.0.1")) as running:

            async def ask() -> None:
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"http://127.0.0.1:{port}/a/x", headers={"Host": "localhost"}) as got,
                ):
                    assert got.status == 200

            async def load() -> int:
                nonlocal dropped
                count = 0
                while not over:
                    try:
                        await ask()
                    except (aiohttp.ClientOSError, ConnectionResetError):  # before the request was written, or after
                        dropped += 1
                    count += 1
                return count

            loads = [asyncio.create_task(load()) for _ in range(8)]
            for turn in range(10):
                running.file.write_text(top.format(("0.0.0.0", "127.0.0.1")[turn % 2]) + rest)
                await reload(running)
                await upstream.until(len(upstream.requests) + 10)
            over = True
            assert sum(await asyncio.gather(*loads)) >= 100
            assert dropped <= 2


async def test_a_stopped_worker_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """It does not say that it has ended: it is ended by force."""
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running,
    ):
        workers = workers_of(running.pid)
        os.kill(min(workers), signal.SIGSTOP)
        try:
            running.signal(signal.SIGTERM)
            assert await running.line(lambda line: line["event"] == "draining")
            running.signal(signal.SIGTERM)
            assert await running.ended() == 0
            await ended(workers)
        finally:
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
