"""Messages and descriptors between processes; counts of several as one; lines of several, whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from proxy.config.settings import MOST_WORKERS
from proxy.observe.aggregate import Aggregate, AggregatedCalls, Report
from proxy.observe.metrics import Metrics, Series, count_outcome
from proxy.observe.recent_calls import NumberedCall
from proxy.observe.sink import LineSink
from proxy.resources import _quota, processes
from proxy.retry.facts import Outcome
from proxy.stores.shared_memory.factory import open_memory
from proxy.stores.shared_memory.records import descriptor
from proxy.supervisor.channel import Channel
from proxy.supervisor.rows import Rows
from proxy.supervisor.slots import FIRST_PAUSE, LAST_PAUSE, pause_after


class Side:
    def __init__(self, sock: socket.socket) -> None:
        self.got: asyncio.Queue[tuple[Any, list[int]]] = asyncio.Queue()
        self.over = asyncio.Event()
        self.channel = Channel(
            asyncio.get_running_loop(), sock, lambda *message: self.got.put_nowait(message), self.over.set
        )


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Side, Side]]:
    one, other = (Side(sock) for sock in socket.socketpair())
    yield one, other
    one.channel.close()
    other.channel.close()


async def test_messages_arrive_whole_and_in_order() -> None:
    """Also those that the other end's buffer has no room for, while it says something itself."""
    async with pair() as (one, other):
        sent = [os.urandom(1), os.urandom(3_000_000), {"a": [1, 2]}, os.urandom(300_000), ""]
        for message in sent:
            one.channel.send(message)
        other.channel.send("meanwhile")
        assert [(await other.got.get())[0] for _ in sent] == sent
        assert (await one.got.get())[0] == "meanwhile"


async def test_what_a_process_says_last_is_written_before_it_ends() -> None:
    """A worker's last report is more than a socket takes at once; nobody writes the rest when the worker is gone."""
    ours, theirs = socket.socketpair()
    hearing = asyncio.get_running_loop().run_in_executor(None, theirs.makefile("rb").read)
    channel = Channel(asyncio.get_running_loop(), ours, lambda *_: None, lambda: None)
    said = [os.urandom(2_000_000), "over"]
    for message in said:
        channel.send(message)
    channel.flush(10.0)  # as at a worker's end, no turn of the loop comes between
    channel.close()
    heard = await hearing
    theirs.close()
    assert pickle.dumps(said[0], pickle.HIGHEST_PROTOCOL) in heard
    assert heard.endswith(pickle.dumps(said[1], pickle.HIGHEST_PROTOCOL))


async def test_last_words_that_nobody_hears_do_not_keep_a_process() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(asyncio.get_running_loop(), ours, lambda *_: None, lambda: None)
    channel.send(os.urandom(2_000_000))
    channel.flush(0.01)  # the other side reads nothing
    theirs.close()
    channel.send("more")
    channel.flush(10.0)  # the other side is gone
    channel.close()


async def test_descriptors_come_with_their_message() -> None:
    async with pair() as (one, other):
        pipes = [os.pipe() for _ in range(60)]
        for number, (read, _) in enumerate(pipes):
            one.channel.send(number, [read] * (number % 3))
            one.channel.send(os.urandom(20_000))
        for number, (read, write) in enumerate(pipes):
            message, descriptors = await other.got.get()
            assert (message, len(descriptors)) == (number, number % 3)
            os.write(write, b"x")
            for descriptor in descriptors[:1]:
                assert not os.get_inheritable(descriptor)
                assert os.read(descriptor, 1) == b"x"
            for descriptor in (*descriptors, read, write):
                os.close(descriptor)
            await other.got.get()


async def test_the_end_is_told_after_the_last_message() -> None:
    async with pair() as (one, other):
        one.channel.send("last")
        one.channel.close()
        one.channel.send("never")
        assert (await other.got.get())[0] == "last"
        await other.over.wait()
        other.channel.send("into the void")


async def test_what_a_dead_process_said_last_is_heard() -> None:
    async with pair() as (one, other):
        one.channel.send("last")
        one.channel.close()
        other.channel.finish()
        assert other.got.get_nowait()[0] == "last"
        assert other.over.is_set()


# -- how many, and when again ----------


def test_auto_is_what_may_run_at_one_time(tmp_path: Any) -> None:
    assert processes(3) == 3
    assert 1 <= processes(None) <= (os.cpu_count() or 1)
    file = tmp_path / "cpu.max"
    for text, count in (("150000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", 1 << 20), ("", 1 << 20)):
        file.write_text(text)
        assert _quota(file) == count


def test_pauses_double() -> None:
    assert [pause_after(n) for n in (1, 2, 3, 4)] == [0.0, FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pause_after(10_000) == LAST_PAUSE


# -- adding up ----------


def counted(calls: int, *, retried: int = 0) -> Series:
    series = Series("a", "")
    series.at_once = [0, 0, calls, *[0] * 7]
    for _ in range(retried):
        count_outcome(series, Outcome.SUCCESS, 2)
    series.ge[0] = retried
    for _ in range(calls):
        series.call_seconds.add(0.5)
    return series


def call_of(number: int, at: int) -> NumberedCall:
    return NumberedCall(number, f'{{"at":{at}}}', float(at), notable=False)


def take(gathered: Aggregate, reports: dict[int, Report]) -> None:
    for worker, report in reports.items():
        gathered.keep(worker, report)
    gathered.take()


def test_counts_add_up_and_never_go_down() -> None:
    metrics, recent = Metrics(), AggregatedCalls()
    gathered = Aggregate(metrics, recent)
    take(gathered, {1: Report([counted(2)], 2, []), 2: Report([counted(3, retried=1)], 4, [])})
    assert [series.calls for series in metrics.all()] == [6]
    take(gathered, {1: Report([counted(5)], 5, [])})
    assert [series.calls for series in metrics.all()] == [9]
    gathered.ended(2)
    take(gathered, {1: Report([counted(6)], 6, []), 3: Report([counted(1)], 1, [])})
    take(gathered, {3: Report([counted(1)], 1)})  # counts alone: its calls are yet to be shown
    (series,) = metrics.all()
    assert (series.calls, series.ge[0], series.call_seconds.total) == (11, 1, 5.0)
    assert recent.seen == 11


def test_calls_stand_in_order_of_time_with_numbers_of_their_own() -> None:
    recent = AggregatedCalls()
    recent.merge([call_of(1, 11), call_of(7, 10)], 2)
    recent.merge([call_of(900, 12)], 100)  # the others of the hundred were not kept
    shown = [json.loads(call.text) for call in recent.since(0)]
    assert [(call["number"], call["at"]) for call in shown] == [(1, 10), (2, 11), (102, 12)]
    assert [call.number for call in recent.since(1)] == [2, 102]
    assert [call.number for call in recent.since(0, 1)] == [102]
    assert recent.since(102) == []


# -- lines ----------


class OneTurn:
    def __init__(self) -> None:
        self.taken = False

    def take(self) -> bool:
        if self.taken:
            return False
        self.taken = True
        return True

    def give(self) -> None:
        assert self.taken
        self.taken = False


def test_nobody_else_writes_while_a_line_is_not_whole_however_long() -> None:
    read, write = os.pipe()
    turn = OneTurn()
    later: list[Callable[[], None]] = []
    one, other = [LineSink(write, lambda _, act: later.append(act), turn) for _ in range(2)]
    one.add("a" * 100_000 + "\n")
    for _ in range(3):  # it is tried again, and there is no room
        later.pop(0)()
    other.add("b\n")
    os.set_blocking(read, False)
    out = b""
    while later:
        later.pop(0)()
        with contextlib.suppress(BlockingIOError):
            out += os.read(read, 65536)
    assert out == b"a" * 100_000 + b"\nb\n"
    os.close(read)
    os.close(write)


def test_lines_of_several_writers_stay_whole() -> None:
    """A pipe that fills up in the middle of a long line: nobody else writes before the line is whole."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    turn = OneTurn()
    later: list[Callable[[], None]] = []
    sinks = [LineSink(write, lambda _, act: later.append(act), turn) for _ in range(2)]
    lines = []
    for number in range(40):
        for sink, letter in zip(sinks, "ab", strict=True):
            lines.append(f"{letter}{number} " + letter * (number * 613) + "\n")
            sink.add(lines[-1])
    out = b""
    for _ in range(10_000):
        if not later:
            break
        later.pop(0)()
        try:
            out += os.read(read, 5000)
        except BlockingIOError:
            continue
    while True:
        try:
            out += os.read(read, 65536)
        except BlockingIOError:
            break
    assert not later
    assert not turn.taken
    assert sorted(out.decode().splitlines(keepends=True)) == sorted(lines)
    for letter in "ab":
        assert [line for line in out.decode().splitlines(keepends=True) if line[0] == letter] == [
            line for line in lines if line[0] == letter
        ]
    os.close(read)
    os.close(write)


def test_all_workers_that_there_may_be_can_be_replaced_at_one_time() -> None:
    memory = open_memory(descriptor())
    rows = Rows(memory)
    assert len({rows.take() for _ in range(2 * MOST_WORKERS)}) == 2 * MOST_WORKERS
