"""An app's idle connection goes on in the process that goes on, so that no call is lost to a close."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.process import Redrive
from support.scripted import Upstream, answer
from test_take_over import event, offered_by, successor
from test_workers import LISTEN, config

from proxy.take_over import Predecessor

#: More than the queue of a socket holds at once.
MANY = 400
#: The most that a test waits for anything.
SECONDS = 180.0

Call = Callable[[str], Awaitable[bytes]]


class App:
    """An app's connection, on which calls are made one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, running: Redrive) -> App:
        host, port = running.authority.split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def call(self, path: str = "/a/x") -> bytes:
        """The head of the answer to a call, b"" if the connection has ended."""
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await self.answered()

    async def answered(self) -> bytes:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        await self.reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
        return head


def is_kept(head: bytes) -> bool:
    return head.startswith(b"HTTP/1.1 200 ") and b"connection: close" not in head.lower()


@pytest.mark.parametrize(("first", "then"), [(1, 1), (2, 2), (1, 2), (2, 1)])
async def test_idle_connections_go_over(tmp_path: Path, first: int, then: int) -> None:
    """Used ones, one that has said nothing yet, one of a unix socket; twice in a row. The old process ends at once."""
    path = tmp_path / "app.sock"
    more = f"listen: [127.0.0.1:0, 'unix:{path}']\nadmin: 127.0.0.1:0\ndrain: 10m\nworkers: {{}}\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=more.format(first)) as one,
    ):
        apps = [await App.to(one) for _ in range(8)]
        local = App(*await asyncio.open_unix_connection(str(path)))
        for app in (*apps[1:], local):
            assert is_kept(await app.call())
        async with (
            successor(one, tmp_path, config(upstream), more.format(then)) as two,
            successor(two, tmp_path, config(upstream), more.format(first)) as three,
        ):
            assert (await one.ended(), await two.ended()) == (0, 0)
            for app in (*apps, local):
                assert is_kept(await app.call())
                assert is_kept(await app.call())
            assert (await event(one, "ended"))["calls_cut"] == 0
            assert (await three.call())["status"] == 200


async def test_more_than_the_queue_holds(tmp_path: Path) -> None:
    listen = LISTEN.format(2) + "drain: 10m\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):
        apps = [await App.to(before) for _ in range(MANY)]
        for app in apps[:20]:
            assert is_kept(await app.call())
        async with successor(before, tmp_path, config(upstream), listen):
            assert await before.ended() == 0
            for app in apps:
                assert is_kept(await app.call())


async def test_what_comes_while_a_connection_goes_over_is_answered_once(tmp_path: Path) -> None:
    """Apps that write all the time, half a head at a time, some of whose connections close with an answer."""
    listen = LISTEN.format(2) + "drain: 10m\n"
    done = asyncio.Event()

    async def app(running: Redrive, number: int) -> int:
        calls, connection = 0, await App.to(running)
        while not done.is_set() or calls == 0:
            request = f"GET /a/{number}.{calls} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            connection.writer.write(request[:9])
            await connection.writer.drain()
            await asyncio.sleep(0)
            connection.writer.write(request[9:])
            head = await connection.answered()
            assert head.startswith(b"HTTP/1.1 200 "), head
            calls += 1
            if not is_kept(head):
                connection = await App.to(running)
        return calls

    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):
        apps = [asyncio.create_task(app(before, number)) for number in range(3)]
        await upstream.until(20)
        async with (
            successor(before, tmp_path, config(upstream), listen) as two,
            successor(two, tmp_path, config(upstream), listen),
        ):
            assert (await before.ended(), await two.ended()) == (0, 0)
            done.set()
            calls = await asyncio.gather(*apps)
            assert len(upstream.requests) == sum(calls)


async def test_a_successor_of_an_older_release_gets_none(tmp_path: Path) -> None:
    """Then they stay open in the process that drains, whose next answer closes them."""
    listen = LISTEN.format(1) + "drain: 10m\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):
        app = await App.to(before)
        assert is_kept(await app.call())
        asked = await asyncio.to_thread(offered_by, before)
        asked._peer.say({"serving": True})
        assert (await asyncio.to_thread(asked._peer.hear)) == {"drains": True, "connections": False}
        await event(before, "draining")
        head = await app.call()
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in head.lower()
        assert await before.ended() == 0
        for each in asked.sockets:
            each.sock.close()


async def asked_by_takers_that_end(before: Redrive) -> Predecessor:
    """Ask `before` to drain, as a successor whose takers of idle connections have ended; return what it offered."""
    asked = await asyncio.to_thread(offered_by, before)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with theirs:
        asked._peer.say({"serving": True}, theirs.fileno())
    await event(before, "draining")
    return asked


async def test_takers_that_end_leave_them_where_they_are(tmp_path: Path) -> None:
    listen = LISTEN.format(2) + "drain: 10m\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):
        apps = [await App.to(before) for _ in range(4)]
        for app in apps:
            assert is_kept(await app.call())
        asked = await asked_by_takers_that_end(before)
        for app in apps:
            assert b"connection: close" in (await app.call()).lower()
        assert await before.ended() == 0
        for each in asked.sockets:
            each.sock.close()


async def test_a_signal_to_both_ends_both(tmp_path: Path) -> None:
    """Then no process goes on, and an idle connection that nobody took does not hold the end up."""
    listen = LISTEN.format(2) + "drain: 10m\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):
        apps = [await App.to(before) for _ in range(4)]
        for app in apps:
            assert is_kept(await app.call())
        asked = await asked_by_takers_that_end(before)
        before.signal(signal.SIGTERM)
        assert await before.ended() == 0
        for each in asked.sockets:
            each.sock.close()


async def test_workers_at_the_limit_count_no_connection_twice(tmp_path: Path) -> None:
    listen = LISTEN.format(2) + f"drain: 10m\nlimits: {{connections: {MANY}}}\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as running,
    ):
        apps = [await App.to(running) for _ in range(MANY)]
        for app in apps:
            assert is_kept(await app.call())
        for _ in range(2):
            before = len(running.lines)
            running.signal(signal.SIGUSR2)
            assert await running.line(lambda line: line["event"] == "rolled", before)
            for app in apps:
                assert is_kept(await app.call())


async def test_idle_connections_go_to_the_next_worker(tmp_path: Path) -> None:
    """All workers are replaced, one after the other."""
    listen = LISTEN.format(2) + "drain: 10m\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as running,
    ):
        apps = [await App.to(running) for _ in range(20)]
        for app in apps[5:]:
            assert is_kept(await app.call())
        for _ in range(2):
            before = len(running.lines)
            running.signal(signal.SIGUSR2)
            assert await running.line(lambda line: line["event"] == "rolled", before)
            for app in apps:
                assert is_kept(await app.call())
        assert not any(line["event"] == "worker" for line in running.lines)
