"""An app's idle connection goes on in the process that goes on, so that no call is lost to a close."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from clients import with_aiohttp
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


async def restless(
    running: Redrive, number: int, done: asyncio.Event, write: Callable[[App, bytes], Awaitable[None]]
) -> int:
    """The calls of an app that makes one after the other until `done`, each written by `write`; all are answered."""
    calls, connection = 0, await App.to(running)
    while not done.is_set() or calls == 0:
        await write(connection, f"GET /a/{number}.{calls} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await connection.answered()
        assert head.startswith(b"HTTP/1.1 200 "), head
        calls += 1
        if not is_kept(head):
            connection = await App.to(running)
    return calls


async def test_what_comes_while_a_connection_goes_over_is_answered_once(tmp_path: Path) -> None:
    """Apps that write all the time, half a head at a time, some of whose connections close with an answer."""
    listen = LISTEN.format(2) + "drain: 10m\n"
    done = asyncio.Event()

    async def write(connection: App, request: bytes) -> None:
        connection.writer.write(request[:9])
        await connection.writer.drain()
        await asyncio.sleep(0)
        connection.writer.write(request[9:])

    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):
        apps = [asyncio.create_task(restless(before, number, done, write)) for number in range(3)]
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


async def test_a_part_of_a_head_goes_over_with_its_connection(tmp_path: Path) -> None:
    """So that a client that never sends the rest does not keep the old process until `drain` has run out."""
    listen = LISTEN.format(2) + "drain: 10m\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):
        apps = [await App.to(before) for _ in range(6)]
        request = b"GET /a/x HTTP/1.1\r\nHost: localhost\r\nx: y\r\n\r\n"
        for app in apps[3:]:
            assert is_kept(await app.call())
        cuts = (1, 4, 20, 3, 30, len(request) - 1)
        for app, cut in zip(apps, cuts, strict=True):
            app.writer.write(request[:cut])
        async with (
            successor(before, tmp_path, config(upstream), listen) as two,
            successor(two, tmp_path, config(upstream), listen),
        ):
            assert (await before.ended(), await two.ended()) == (0, 0)
            for app, cut in zip(apps, cuts, strict=True):
                app.writer.write(request[cut:])
                assert is_kept(await app.answered())
                assert is_kept(await app.call())


@pytest.mark.parametrize(("first", "then"), [(1, 1), (2, 2)])
async def test_a_full_successor_sends_them_back(tmp_path: Path, first: int, then: int) -> None:
    """The old process answers the next call of those, and closes them with the answer."""
    listen, few = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndrain: 10m\nworkers: {}\n", "limits: {{connections: 4}}\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen.format(first)) as before,
    ):
        apps = [await App.to(before) for _ in range(12)]
        for app in apps:
            assert is_kept(await app.call())
        async with successor(before, tmp_path, config(upstream), (listen + few).format(then)) as after:
            await over(after, "taken", 4)
            answers = [await app.call() for app in apps]
            assert [head[:13] for head in answers] == [b"HTTP/1.1 200 "] * len(apps)
            assert sum(is_kept(head) for head in answers) == 4
            assert await before.ended() == 0
            ended = await event(before, "ended")
            assert (ended["calls_cut"], ended["connections_handed_over"]) == (0, 4)


async def over(running: Redrive, what: str, connections: int) -> None:
    """Until so many connections have been given, taken or sent back, as the metrics have it."""
    row = f'redrive_connections_handed_over_total{{what="{what}"}} {connections}.0'
    while row not in (await with_aiohttp("GET", f"{running.admin}/metrics")).body.decode():
        pass


async def test_tls_and_tunnels_stay_and_http2_is_told_to_go(tmp_path: Path) -> None:
    """A blind tunnel goes on in the old process until it ends; an HTTP/2 connection gets GOAWAY."""
    listen = LISTEN.format(1) + "drain: 10m\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):
        tunnel, http2 = await App.to(before), await App.to(before)
        target = f"127.0.0.1:{upstream.port}"
        tunnel.writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert (await tunnel.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        http2.writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        while (await frame(http2.reader))[0] != 4:
            pass
        async with successor(before, tmp_path, config(upstream), listen):
            while (await frame(http2.reader))[0] != 7:  # GOAWAY
                pass
            tunnel.writer.write(f"GET /a/x HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            assert (await tunnel.answered()).startswith(b"HTTP/1.1 200 ")
            tunnel.writer.close()
            assert await before.ended() == 0


async def frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The type and the payload of an HTTP/2 frame."""
    head = await reader.readexactly(9)
    return head[3], await reader.readexactly(int.from_bytes(head[:3]))


async def test_a_request_written_in_the_very_moment_is_answered_once(tmp_path: Path) -> None:
    """Apps that write each request a byte at a time while their connections change processes over and over."""
    listen, done = LISTEN.format(2) + "drain: 10m\n", asyncio.Event()

    async def write(connection: App, request: bytes) -> None:
        for byte in request:
            connection.writer.write(bytes((byte,)))
            await asyncio.sleep(0)

    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as running,
    ):
        apps = [asyncio.create_task(restless(running, number, done, write)) for number in range(8)]
        await upstream.until(20)
        for _ in range(3):
            before = len(running.lines)
            running.signal(signal.SIGUSR2)
            assert await running.line(lambda line: line["event"] == "rolled", before)
        done.set()
        calls = await asyncio.gather(*apps)
        assert len(upstream.requests) == sum(calls)
        assert {request.target for request in upstream.requests} == {
            f"/{number}.{call}" for number, count in enumerate(calls) for call in range(count)
        }


async def test_a_successor_that_dies_while_it_takes_loses_only_what_it_has(tmp_path: Path) -> None:
    """What it had not taken stays with the old process, which answers the next call there."""
    listen = LISTEN.format(2) + "drain: 10m\n"
    async with (
        asyncio.timeout(SECONDS),
        Upstream(answer(200, b"whole")) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):
        asked = await asyncio.to_thread(offered_by, before)
        apps = [await App.to(before) for _ in range(MANY)]
        for app in apps:
            assert is_kept(await app.call())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)  # whatever the default is, it takes a part
        with theirs:
            asked._peer.say({"serving": True}, theirs.fileno())
        await event(before, "draining")
        (_, (one,), *_) = await asyncio.to_thread(socket.recv_fds, ours, 1, 1)
        ours.close()  # what waits in the queue ends with it
        socket.close(one)
        answers = [await app.call() for app in apps]
        lost = sum(head == b"" for head in answers)
        assert lost < MANY
        assert all(b"connection: close" in head.lower() for head in answers if head)
        assert await before.ended() == 0
        for each in asked.sockets:
            each.sock.close()
