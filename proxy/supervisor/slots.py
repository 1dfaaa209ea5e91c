"""Worker processes as their parent sees them, and their slots: the sockets of each, and which worker accepts for which.

The parent knows of a worker what it reported, and that it lives. The sockets of a slot live as long as the parent; the
processes in it change. While the process in a slot is not ready, another worker accepts on its sockets, so that no
connection waits for a process that may never be ready.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy import __version__
from proxy.config.settings import Address
from proxy.server.listeners import again
from proxy.supervisor.channel import (
    OTHER_RELEASE,
    Begin,
    Channel,
    Counted,
    Ended,
    Gather,
    Leave,
    Left,
    Listen,
    PassedSocket,
    Shut,
    Using,
)
from proxy.supervisor.child_process import ChildProcess

#: The program of a worker, for this interpreter; modules are searched in the same places as in this process.
_CODE = (
    "import sys; sys.path[:] = {path!r}; from proxy.server.late_client import import_aiohttp; import_aiohttp(); "
    "from proxy.supervisor.worker import main; main({channel}, {memory}, {release!r})"
)
#: Seconds for which an answer of a worker is waited for.
PATIENCE = 2.0
#: A worker that ends sooner than so many seconds after its start counts as failed at its start.
TRIAL = 10.0
#: Seconds before the second restart in a row, and at most.
FIRST_PAUSE, LAST_PAUSE = 0.1, 10.0


class WorkerProcess:
    """A process that was started. `number` is unique for the parent's life, `row` is its row in shared memory; `heard`
    is called with its messages. `generation` is that of the configuration it uses; `retiring`: its end is wanted;
    `cut`: calls that it cut short; `over`: it has ended; `is_silent`: its heartbeat does not change; `hung`: the
    seconds for which it had hung when it was killed for that, else 0.
    """

    def __init__(self, number: int, row: int, heard: Callable[[WorkerProcess, Any], None]) -> None:
        self.number = number
        self.row = row
        self.generation = 0
        self.error = ""
        self.is_ready = self.retiring = self.over = self.is_silent = False
        self.hung = 0.0
        self.cut = 0
        self.listening: set[int] = set()
        self._leaving: set[int] = set()
        self._changed = asyncio.Event()
        self._heard = heard
        self._asked = self._answered = 0
        self._process = ChildProcess()
        self._channel: Channel

    async def start(self, memory: int) -> None:
        """Start the process; `memory` is the descriptor of the shared memory."""
        ours, theirs = socket.socketpair()
        path = [entry or "." for entry in sys.path]
        code = _CODE.format(path=path, channel=theirs.fileno(), memory=memory, release=__version__)
        try:
            await self._process.start(code, ("redrive", "worker"), (theirs.fileno(), memory))
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = Channel(asyncio.get_running_loop(), ours, self._on_message, self._closed)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The process's exit status, below 0 the signal that killed it; None until it has ended."""
        return self._process.status

    @property
    def how(self) -> str:
        """The way in which the process ended, in words."""
        if self.status == OTHER_RELEASE:
            return f"another release is installed by now, and this process is redrive {__version__}: restart redrive"
        if self.hung:
            return f"hung for {self.hung:.1f} s, and was killed"
        if self.status is not None and self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a message to the worker, with the descriptors of the sockets that the message names."""
        if isinstance(message, Begin | Listen):
            self.listening |= {number for number, _ in message.places}
        self._channel.send(message, descriptors)

    async def leave(self, numbers: Iterable[int], *, gone: bool = False) -> None:
        """Have the worker stop accepting on the sockets of these numbers, and wait until it has, for at most PATIENCE
        seconds, because it may be stopped or get no processor. `gone`: no worker will accept there any more. The worker
        handles messages in order, so this message is handled before any later one.
        """
        mine = self.listening.intersection(numbers)
        self.listening -= mine
        self._leaving |= mine
        self.send(Leave(tuple(mine), gone))
        await self.until(lambda: not self._leaving & mine, PATIENCE)

    async def ask(self, since: int | None) -> None:
        """Ask the worker for what it has counted, and wait for its answer until it has ended or PATIENCE seconds have
        passed. `since`: the answer also has the worker's calls whose numbers are larger than this; None: it has no
        calls.
        """
        self._asked += 1
        number = self._asked
        self.send(Gather(number, since))
        await self.until(lambda: self._answered >= number or not self.is_ready, PATIENCE)

    async def until(self, reached: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `reached()` is true or the process has ended, at most so many seconds (None: without a bound);
        return the value of `reached()` then.
        """
        try:
            async with asyncio.timeout(seconds):
                while not reached() and not self.over:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return reached()

    async def ended(self) -> None:
        """Wait until the process has ended and all its messages were received."""
        await self._process.wait()
        self._channel.finish()
        self.over = True
        self._process.release()
        self._closed()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def kill_hung(self, seconds: float) -> None:
        """Kill the process, which has hung for so many seconds. Any thread may call this."""
        self.hung = seconds
        self._process.kill_now()

    @property
    def is_able(self) -> bool:
        """Whether the worker can accept connections: it is ready, and its heartbeat goes on."""
        return self.is_ready and not self.is_silent

    def _on_message(self, message: Any, _: list[int]) -> None:
        match message:
            case Using(generation, error):
                self.generation, self.error = generation, error
                self.is_ready = self.is_ready or not error
            case Left(numbers):
                self._leaving -= set(numbers)
            case Counted():
                self._answered = message.number or self._answered
            case Ended(cut):
                self.cut = cut
        self._heard(self, message)
        self._changed.set()

    def _closed(self) -> None:
        self.is_ready = False
        self._changed.set()


@dataclass(eq=False, slots=True)
class Slot:
    """The slot of one worker: the listening sockets, which outlive the worker, and the process that serves them now.
    `adopter` is another worker that accepts on its sockets while that process is not ready; `started` is when the
    process was started, `failures` how many processes in a row ended soon after their start.
    """

    sockets: dict[int, tuple[Address, socket.socket]] = field(default_factory=dict)  # by number
    worker: WorkerProcess | None = None
    adopter: WorkerProcess | None = None
    started: float = 0.0
    failures: int = 0

    @property
    def is_served(self) -> bool:
        """Whether the worker in the slot is ready and its heartbeat goes on."""
        return self.worker is not None and self.worker.is_able

    @property
    def places(self) -> tuple[PassedSocket, ...]:
        """The sockets of this slot as a message to a worker names them: each by its number and its address."""
        return tuple((number, address) for number, (address, _) in self.sockets.items())

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of the slot's sockets, in the order of `places`."""
        return [sock.fileno() for _, sock in self.sockets.values()]

    def failed(self, now: float) -> float:
        """Note that the slot's worker ended without being asked to; return the seconds to wait before another is
        started.
        """
        self.failures = self.failures + 1 if now - self.started < TRIAL else 1
        return pause_after(self.failures)


class Slots:
    """The slots of all workers. `every` lists the slots that should have a worker."""

    def __init__(self, count: int) -> None:
        self.every = [Slot() for _ in range(count)]
        self._open: list[tuple[Address, socket.socket, list[int]]] = []  # a socket at each address, and its numbers
        self._number = 0

    def of(self, worker: WorkerProcess) -> Slot | None:
        """The slot of a worker; None if the worker has none."""
        return next((slot for slot in self.every if slot.worker is worker), None)

    def open(self, address: Address, sockets: Sequence[socket.socket]) -> list[int]:
        """Give each slot a socket that listens at an address, and return the sockets' numbers. The slots get `sockets`
        in turn; if there are fewer sockets than slots, new sockets are opened for the rest.
        """
        numbers: list[int] = []
        first, places = sockets[0], len(self.every)
        self._open.append((address, first, numbers))
        for place, sock in enumerate([*sockets, *(again(first) for _ in range(places - len(sockets)))]):
            numbers.append(self._give(self.every[place % places], address, sock))
        return numbers

    def sockets(self, opened: Collection[int]) -> list[socket.socket]:
        """Return the sockets whose numbers are in `opened`, as `open` returned them."""
        return [sock for slot in self.every for number, (_, sock) in slot.sockets.items() if number in opened]

    def _give(self, slot: Slot, address: Address, sock: socket.socket, number: int = 0) -> int:
        if not number:
            self._number += 1
            number = self._number
        slot.sockets[number] = address, sock
        if slot.worker is not None and number not in slot.worker.listening:
            slot.worker.send(Listen(((number, address),)), [sock.fileno()])
        return number

    async def shut(self, opened: Sequence[int], workers: Iterable[WorkerProcess]) -> None:
        """Close the sockets of the numbers in `opened`, once none of the workers accepts on them. Each worker closes
        its own copies of them last, after it has accepted the connections that arrived meanwhile; another socket may
        still listen at the address.
        """
        self._open = [entry for entry in self._open if entry[2] is not opened]
        workers = list(workers)
        await asyncio.gather(*(worker.leave(opened, gone=True) for worker in workers))
        for slot in self.every:
            for number in set(slot.sockets).intersection(opened):
                slot.sockets.pop(number)[1].close()
        for worker in workers:
            worker.send(Shut(tuple(opened)))

    def resize(self, count: int) -> tuple[list[Slot], list[Slot]]:
        """Change the number of slots to `count`; return the new slots and the removed slots. New slots get sockets of
        their own; the sockets of removed slots go to the first slot that stays. Slots whose worker is ready are kept
        before others. Raises OSError if no more sockets are available; nothing has changed then.
        """
        new = [Slot() for _ in range(count - len(self.every))]
        sockets: list[socket.socket] = []
        try:
            for _ in new:
                sockets += [again(sock) for _, sock, _ in self._open]
        except OSError:
            for sock in sockets:
                sock.close()
            raise
        spare = iter(sockets)
        for slot in new:
            for address, _, numbers in self._open:
                numbers.append(self._give(slot, address, next(spare)))
        every = sorted(self.every + new, key=lambda slot: not slot.is_served)
        self.every, surplus = every[:count], every[count:]
        for slot in surplus:
            while slot.sockets:
                number, (address, sock) = slot.sockets.popitem()
                self._give(self.every[0], address, sock, number)
        return new, surplus

    def close(self) -> None:
        """Close the listening sockets of all workers' slots."""
        for slot in self.every:
            for _, sock in slot.sockets.values():
                sock.close()

    def adopt(self) -> None:
        """Have another worker accept on the sockets of every slot whose worker is not ready."""
        able = [slot.worker for slot in self.every if slot.worker is not None and slot.worker.is_able]
        waiting = [slot for slot in self.every if not slot.is_served and slot.adopter is None]
        if able:
            for turn, slot in enumerate(waiting):
                slot.adopter = able[turn % len(able)]
                slot.adopter.send(Listen(slot.places), slot.descriptors)

    async def take_back(self, worker: WorkerProcess) -> None:
        """Note that a worker is ready and accepts on its own sockets. The worker that accepted on them until now
        does so no more.
        """
        slot = self.of(worker)
        if slot is not None and slot.adopter is not None:
            adopter, slot.adopter = slot.adopter, None
            await adopter.leave(slot.sockets)

    def forget(self, worker: WorkerProcess) -> None:
        """Note that a worker, which accepted for slots without a worker of their own as well, has ended or hangs: those
        slots have no process that accepts on their sockets.
        """
        for slot in self.every:
            if slot.adopter is worker:
                slot.adopter = None


def pause_after(failures: int) -> float:
    """Seconds to wait before a worker is started again in a slot in which `failures` workers in a row have failed."""
    if failures <= 1:
        return 0.0
    return min(LAST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 2, 30))
