"""A worker process: carries calls with a data path of its own, and does what its parent's messages say.

A worker lives no longer than its parent: when the channel ends, the worker ends. Signals are handled by the parent (a
terminal and systemd send them to all). Standard output is shared, line by line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from proxy import __version__
from proxy.config.provenance import release_parts
from proxy.config.settings import unpack
from proxy.early_signals import leave
from proxy.freed_memory import settle_in
from proxy.observe.aggregate import Report
from proxy.observe.metrics import Metrics, Wires
from proxy.observe.recent_calls import RecentCalls
from proxy.observe.sink import LineSink
from proxy.observe.telemetry import log_sender
from proxy.process import Background
from proxy.runtime import OUT, DataPath, WorkerShare, data_path
from proxy.stores.shared_memory.factory import SharedFactory, open_memory
from proxy.stores.shared_memory.mutex import beat_while_waiting
from proxy.stores.shared_memory.records import LogTurn, Memory
from proxy.stores.shared_memory.waiting_room import SharedWaitingRoom
from proxy.supervisor.channel import (
    OTHER_RELEASE,
    Begin,
    Channel,
    Counted,
    Do,
    Ended,
    Gather,
    Leave,
    Left,
    Listen,
    Note,
    Own,
    PassedSocket,
    Shut,
    TakeIdle,
    Trouble,
    Use,
    Using,
)
from proxy.supervisor.rows import Neighbours, Rows
from proxy.supervisor.worker_usage import WorkerUsage
from proxy.transport.event_loop import new_event_loop

#: EX_SOFTWARE of sysexits.h.
_SOFTWARE = 70
#: Seconds that the parent may take to receive a worker's last messages.
_LAST_WORDS = 2.0


def main(channel: int, memory: int, release: str) -> None:
    """Serve as a worker until the parent ends it. `channel` and `memory` are the inherited descriptors of the channel
    to the parent and of the shared memory. `release` is the parent's: messages and shared memory belong to one release,
    so a worker of another release ends at once. A parent starts whatever release is installed by now: these arguments
    stay in this order in every release.
    """
    if release != __version__:
        leave(OTHER_RELEASE)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    runner = asyncio.Runner(loop_factory=new_event_loop)
    runner.run(_work(socket.socket(fileno=channel), open_memory(memory)))
    leave(0)


async def _work(sock: socket.socket, memory: Memory) -> None:
    worker = Worker(sock, memory)
    await worker.ended.wait()


class Worker:
    """A worker, which carries out its parent's messages in order."""

    def __init__(self, sock: socket.socket, memory: Memory) -> None:
        self._loop = asyncio.get_running_loop()
        self._memory = memory
        self._usage = WorkerUsage(Rows(memory))
        self._factory = SharedFactory(memory)
        self._opened: dict[int, web.SockSite] = {}
        # Sockets that no worker accepts on any more, where connections may wait.
        self._left: dict[int, socket.socket] = {}
        self._metrics, self._recent = Metrics(), RecentCalls()
        self._path: DataPath  # from Begin on
        self._has_begun = False
        self._counted: dict[tuple[str, str], int] = {}  # calls of each series, as the parent knows them
        self._work: asyncio.Queue[tuple[Any, list[int]]] = asyncio.Queue()
        self._retiring = self._ending = self._has_ended = False
        self.ended = asyncio.Event()
        self._beside = Background(_defect)
        # A worker without a parent has no process that watches over it, so it ends when the channel does.
        self._channel = Channel(self._loop, sock, self._on_message, lambda: self._beside.begin(self._end()))
        self._beside.begin(self._follow())

    def _on_message(self, message: Any, descriptors: list[int]) -> None:
        if isinstance(message, Gather):
            self._channel.send(self._count(message.number, message.since))
        else:
            self._work.put_nowait((message, descriptors))

    async def _follow(self) -> None:
        while True:
            message, descriptors = await self._work.get()
            if self._ending:
                return
            match message:
                case Begin():
                    await self._begin(message, descriptors)
                case Use():
                    await self._use(message)
                case Listen():
                    await self._listen(message.places, descriptors)
                case Leave():
                    await self._leave(message)
                case Shut(numbers):
                    for number in self._left.keys() & {*numbers}:
                        await self._path.close_listener(self._left.pop(number))
                case Own(address, gone):
                    (self._path.left if gone else self._path.is_own)(address)
                case TakeIdle():
                    self._path.take_idle(socket.socket(fileno=descriptors[0]))
                case Do("drain" | "retire" | "give way"):
                    self._usage.look_closely()
                    self._retiring = self._retiring or message.what == "retire"
                    to = socket.socket(fileno=descriptors[0]) if descriptors else None
                    self._path.drain(replaced=message.what != "drain", to=to)
                    self._look()
                case Do("refuse"):
                    self._path.refuse()
                case Do("end"):
                    await self._end()
                    return

    async def _begin(self, begin: Begin, descriptors: list[int]) -> None:
        settings = self._settings = unpack(begin.settings)
        self._usage.row = begin.row
        beat_while_waiting(self._usage.beat)
        self._factory.generation, self._factory.row = begin.generation, begin.row
        turn, lost = LogTurn(self._memory), self._metrics.lost
        self._sink = LineSink(OUT, self._loop.call_later, turn, lost, lambda why: self._channel.send(Trouble(why)))
        self._path = data_path(
            settings,
            self._sink,
            self._notify,
            self._metrics,
            WorkerShare(
                factory=self._factory,
                met=lambda *made: self._factory.made.append(made),
                via=begin.via,
                others=Neighbours(self._memory, begin.row),
                room=SharedWaitingRoom(self._memory, begin.row, settings.limits.waiting),
            ),
        )
        if self._path.log is not None:
            self._path.log.also = log_sender(os.environ, self._notify)
        self._recent, self._has_begun = self._path.recent, True
        await self._path.start()
        for address in begin.own:
            self._path.is_own(address)
        await self._listen(begin.places, descriptors)
        self._look_again()
        settle_in()
        self._channel.send(Using(begin.generation))

    def _notify(self, event: str, lines: list[str], **facts: Any) -> None:
        self._channel.send(Note(event, lines, {**facts, "pid": os.getpid()}))

    async def _listen(self, places: Sequence[PassedSocket], descriptors: list[int]) -> None:
        for (number, address), descriptor in zip(places, descriptors, strict=True):
            self._opened[number] = await self._path.listen(address, socket.socket(fileno=descriptor))

    async def _leave(self, leave: Leave) -> None:
        for number in leave.numbers:
            if number in self._opened:
                rest = await self._path.leave(self._opened.pop(number), gone=leave.gone)
                if leave.gone:
                    self._left[number] = rest
                else:
                    rest.close()
        self._channel.send(Left(leave.numbers))

    async def _use(self, use: Use) -> None:
        try:
            settings = await asyncio.to_thread(unpack, use.settings)
        except Exception as error:  # for example a user's own strategy that only the parent could make
            self._channel.send(Using(use.generation, f"{type(error).__name__}: {error}"))
            return
        parts: list[object] = [*self._settings.router.upstreams]
        self._settings = settings
        self._factory.generation = use.generation
        parts += self._path.use(settings)
        self._beside.begin(asyncio.to_thread(release_parts, parts))
        self._channel.send(Using(use.generation))

    def _count(self, number: int, since: int | None) -> Counted:
        calls = None if since is None else self._recent.since(since)
        made, self._factory.made = tuple(dict.fromkeys(self._factory.made)), []
        wires = self._path.wires if self._has_begun else Wires()
        moved, recent = self._metrics.moved(self._counted), self._recent
        report = Report(moved, recent.seen, calls, self._metrics.lines_lost, wires)
        if not self._has_begun:
            return Counted(number, self._factory.generation, report, made)
        self._path.settle_weather()
        cooldowns, weather = self._path.cooldowns.news(), self._path.weather
        news, lanes, held = weather.news(), weather.lanes(), weather.held_by_app()
        return Counted(number, self._factory.generation, report, made, cooldowns, news, lanes, held)

    def _look(self) -> None:
        """Publish what this worker uses of the limits, and lower its own limit on kept bytes by what the other workers
        keep. A retiring worker ends here once nothing is under way.
        """
        self._usage.publish(self._path.usage, self._recent.seen)
        self._path.leave_room(self._usage.of_others(), self._settings)
        if self._retiring and not self._path.usage.busy:
            self._beside.begin(self._end())

    def _look_again(self) -> None:
        self._usage.beat()
        if not self._ending:
            self._look()
        if not self._has_ended:
            self._loop.call_later(self._usage.pause, self._look_again)

    async def _end(self) -> None:
        if self._ending:
            return
        self._ending = True
        if self._has_begun:
            cut = await self._path.close()
            self._has_ended = True
            beat_while_waiting(bool)
            # What follows may block for seconds, while the log's reader or the parent does not read.
            self._usage.beats_no_more()
            self._sink.close()
            if self._path.log is not None and self._path.log.also is not None:
                self._path.log.also.close()
            self._channel.send(self._count(0, 0))
            self._channel.send(Ended(cut))
            self._channel.flush(_LAST_WORDS)  # the last calls may be larger than the socket's buffer
        self.ended.set()


def _defect(_: str, error: BaseException) -> None:
    """End the worker because of an unexpected error; the parent starts another."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    print(f"redrive: a worker can't go on: {text}", file=sys.stderr, flush=True)
    os._exit(_SOFTWARE)
