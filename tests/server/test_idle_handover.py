"""Idle connections between two processes: a process takes no more than it can hold, sends back what it has no room
for, and loses none, whichever side ends when.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
from support.front import Front, to
from support.scripted import Upstream, answer

from proxy.server.idle_handover import ConnectionGiver, ConnectionTaker, pair

ROOM = 2


class Echo(asyncio.Protocol):
    """Answers what it reads."""

    def __init__(self, side: Side) -> None:
        self.read = b""
        self.side = side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.side.made.append(self)

    def data_received(self, data: bytes) -> None:
        self.read += data
        self.transport.write(data)  # type: ignore[attr-defined]


class Side:
    """A process: what it has made of the connections that came, and its room for more."""

    def __init__(self, room: int = 1000, descriptors: int = 1000) -> None:
        self.made: list[Echo] = []
        self.counts = Counter[str]()
        self.room, self.descriptors, self.expected = room, descriptors, 0
        self.full = asyncio.Event()

    def make(self) -> Echo:
        return Echo(self)

    def can_hold(self) -> bool:
        can = len(self.made) + self.expected < self.descriptors
        if not can:
            self.full.set()
        return can

    def expect(self) -> bool:
        self.expected += 1
        return len(self.made) + self.expected <= min(self.room, self.descriptors)

    def arrives(self) -> None:
        self.expected -= 1

    def forget(self) -> None:
        self.expected -= 1


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  each turn of the loop may be the one
            await asyncio.sleep(0)


class Both:
    def __init__(self, room: int = 1000, descriptors: int = 1000) -> None:
        loop = asyncio.get_running_loop()
        self.old, self.new = Side(), Side(room, descriptors)
        self.takes, gives = pair()
        for each in (self.takes, gives):  # so that few fill it, whatever the system's default is
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        self.giver = ConnectionGiver(loop, gives, self.old.make, self.old.counts)
        self.taker: ConnectionTaker | None = None
        self.apps: list[socket.socket] = []

    def take(self) -> None:
        loop = asyncio.get_running_loop()
        self.taker = ConnectionTaker(loop, self.takes, self.new.make, self.new, self.new.counts)

    def give(self, early: bytes = b"") -> bool:
        app, given = socket.socketpair()
        app.setblocking(False)
        self.apps.append(app)
        with given:
            return self.giver.give(given.fileno(), early)

    async def answered(self, says: bytes = b"x") -> list[bytes]:
        """What each app is answered to these bytes."""
        loop = asyncio.get_running_loop()
        for app in self.apps:
            await loop.sock_sendall(app, says)
        async with asyncio.timeout(60):
            return [await loop.sock_recv(app, 100) for app in self.apps]

    async def until(self, made: int, side: Side) -> None:
        await until(lambda: len(side.made) >= made)


def opened() -> int:
    """The sockets that this process has."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


@pytest.fixture
async def open_files() -> AsyncIterator[None]:
    """Whether the test leaves no descriptor open."""
    before = opened()
    yield
    await until(lambda: opened() <= before)


def end(both: Both) -> None:
    both.giver.close()
    if both.taker is not None:
        both.taker.close()
    for side in (both.old, both.new):
        for each in side.made:
            each.transport.abort()  # type: ignore[attr-defined]
    for app in both.apps:
        app.close()


async def test_connections_that_are_being_taken_count(open_files: None) -> None:
    """Without a giver that reads what is sent back, they wait for a descriptor."""
    both = Both(descriptors=ROOM)
    for _ in range(5):
        assert both.give()
    both.giver.close()
    both.take()
    await both.until(ROOM + 1, both.new)  # one was taken before it was known that no giver reads any more
    async with asyncio.timeout(60):
        await both.new.full.wait()
    assert len(both.new.made) == ROOM + 1
    assert both.taker is not None
    assert not both.taker.is_busy
    both.new.descriptors = 1000
    assert await both.answered() == [b"x"] * 5
    assert both.new.counts == {"taken": 5}
    end(both)


async def test_what_the_taker_has_no_room_for_comes_back(open_files: None) -> None:
    both = Both(room=ROOM)
    both.take()
    for number in range(5):
        assert both.give(b"%d" % number)
    await both.until(ROOM, both.new)
    await both.until(3, both.old)
    assert await both.answered(b"!") == [b"0!", b"1!", b"2!", b"3!", b"4!"]
    assert [each.read for each in both.new.made] == [b"0!", b"1!"]
    assert [each.read for each in both.old.made] == [b"2!", b"3!", b"4!"]
    assert both.giver.is_full
    both.giver.try_again()
    assert both.giver.is_full  # for a while
    assert (both.old.counts, both.new.counts) == ({"given": 5, "returned": 3}, {"taken": 2})
    end(both)


async def test_a_giver_is_busy_until_what_it_gave_was_read(open_files: None) -> None:
    """A full successor that stands still for a while could send nothing back to a process that has ended."""
    both = Both(room=0)
    assert not both.giver.is_busy
    assert both.give()
    assert both.giver.is_busy
    both.take()
    await both.until(1, both.old)
    assert not both.giver.is_busy
    assert await both.answered() == [b"x"]
    end(both)


async def test_few_are_given_again_after_one_came_back(open_files: None) -> None:
    """Thousands would go there and back each second, as long as the successor is full."""
    both = Both(room=1)
    both.take()
    assert both.give()
    assert both.give()
    await both.until(1, both.old)
    both.new.room = 100
    for most in (1, 2, 4):
        both.giver._until = 0.0
        both.giver.try_again()
        given = 0
        while not both.giver.is_full and given < 100:
            given += both.give()
        assert given == most
    both.giver.give_for_good()
    assert set(await both.answered()) == {b"x"}
    end(both)


async def test_a_head_that_came_back_stays_until_it_is_answered(open_files: None) -> None:
    """A slow one would go there and back each second, and its app would never be told that it is too slow."""
    both = Both(room=0)
    both.take()
    assert both.give()
    await both.until(1, both.old)
    assert not both.giver.keeps_begun  # an idle one says nothing about heads
    assert both.give(b"GET / HT")
    await both.until(2, both.old)
    assert both.giver.keeps_begun
    both.giver._until = 0.0
    both.giver.try_again()
    assert both.giver.keeps_begun
    assert not both.giver.is_full  # idle ones may go when there is room
    both.giver.give_for_good()
    assert not both.giver.keeps_begun  # this process ends, and with it what it has
    assert await both.answered() == [b"x", b"GET / HTx"]
    end(both)


async def test_a_slow_head_is_sent_to_a_full_successor_once(open_files: None) -> None:
    """It stays in the process that drains, which tells it when it is too slow, and answers it when it is whole."""
    new = Side(room=0)
    takes, gives = pair()
    async with Upstream(answer(200)) as upstream, Front(to("api", upstream.url)) as front:
        counts = front.path.acceptor.connection_limit.handed_over
        taker = ConnectionTaker(asyncio.get_running_loop(), takes, new.make, new, new.counts)
        async with front.app() as app:
            app.send(b"GET /api/x HTTP/1.1\r\nHost: local")
            await until(lambda: any(each.dripping for each in front.path.acceptor.open))
            front.path.drain(replaced=True, to=gives)
            drain = front.path.acceptor._drain
            await until(lambda: counts["returned"] == 1 and len(front.path.acceptor.open) == 1)
            assert drain._giver is not None
            for _ in range(3):
                drain._giver._until = 0.0
                drain._timer.cancel()  # type: ignore[union-attr]
                drain._look()
            assert not drain._giver.is_full  # what is idle could go
            app.send(b"host\r\n\r\n")
            assert (await app.read()).status == 200
        assert counts == {"given": 1, "returned": 1}
        taker.close()


async def test_what_comes_back_waits_while_the_givers_are_slow(open_files: None) -> None:
    """One that gives thousands in a turn of its loop reads nothing meanwhile: the kernel then takes no more."""
    both = Both(room=0)
    both.take()
    assert both.taker is not None
    while not both.taker.is_busy:
        assert both.give()
        both.taker._take_some()
    assert both.taker.is_busy
    assert not both.new.made
    await both.until(len(both.apps), both.old)
    assert set(await both.answered()) == {b"x"}
    assert not both.new.counts
    end(both)


async def test_a_taker_that_closes_keeps_what_waits_to_go_back(open_files: None) -> None:
    both = Both(room=0)
    both.take()
    assert both.taker is not None
    while not both.taker.is_busy:
        assert both.give()
        both.taker._take_some()
    both.taker.close()
    await both.until(1, both.new)
    await both.until(len(both.apps) - 1, both.old)
    assert set(await both.answered()) == {b"x"}
    end(both)


async def test_nothing_comes_back_to_a_giver_that_has_closed(open_files: None) -> None:
    both = Both(room=0)
    for _ in range(3):
        assert both.give()
    both.giver.give_for_good()
    both.take()
    assert await both.answered() == [b"x"] * 3
    assert (len(both.old.made), both.new.counts) == (0, {"taken": 3})
    end(both)


async def test_a_giver_that_closes_loses_nothing_that_is_on_its_way_back(open_files: None) -> None:
    both = Both(room=0)
    for _ in range(3):
        assert both.give()
    both.take()
    assert both.taker is not None
    both.taker._take_some()  # sends all three back
    both.giver.give_for_good()
    both.giver.close()
    assert await both.answered() == [b"x"] * 3
    assert (len(both.old.made), both.new.counts) == (0, {"taken": 3})
    end(both)


async def test_takers_that_have_ended_get_none(open_files: None) -> None:
    both = Both()
    assert both.give()
    both.take()
    assert both.taker is not None
    both.taker.close()  # takes what waits
    assert not both.give()
    assert both.giver.is_full
    both.apps.pop().close()
    assert await both.answered() == [b"x"]
    end(both)


async def test_the_bytes_that_came_before_are_read_first(open_files: None) -> None:
    both = Both()
    app, given = socket.socketpair()
    app.setblocking(False)
    both.apps.append(app)
    app.send(b"llo")
    with given:
        assert both.giver.give(given.fileno(), b"he")
    both.take()
    await until(lambda: [each.read for each in both.new.made] == [b"hello"])
    end(both)


async def test_a_long_beginning_of_a_head_stays(open_files: None) -> None:
    both = Both()
    both.take()
    assert not both.give(b"x" * 70_000)
    assert not both.giver.is_full  # others can be given
    both.apps.pop().close()
    assert both.give(b"x" * 65_536)
    await until(lambda: [len(each.read) for each in both.new.made] == [65_536])
    end(both)


async def test_packets_of_other_kinds_are_closed(open_files: None) -> None:
    both = Both()
    both.take()
    app, given = socket.socketpair()
    with given, app:
        socket.send_fds(both.giver._end.sock, [b"2"], [given.fileno()])
        given.close()
        assert both.give()
        await both.until(1, both.new)
        assert app.recv(1) == b""
    end(both)
