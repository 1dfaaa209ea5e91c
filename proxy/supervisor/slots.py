"""The places of workers: what each listens on, who is in it, and who stands in for whom.

The sockets of a place live as long as the parent; the processes in it come and go. While the one in it is not
ready, another accepts on them, so that no connection waits for one that may not come.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.config.settings import Address
from proxy.server.sockets import again
from proxy.supervisor.messages import PassedSocket, Shut
from proxy.supervisor.worker_process import WorkerProcess

#: A worker that ends sooner than so many seconds after its start counts as one that can't live.
TRIAL = 10.0
#: Seconds before the second restart in a row, and at most.
FIRST_PAUSE, LAST_PAUSE = 0.1, 10.0


@dataclass(eq=False, slots=True)
class Slot:
    """One worker's place. `adopter` accepts on its sockets meanwhile; `started`: when the process in it was begun."""

    sockets: dict[int, tuple[Address, socket.socket]] = field(default_factory=dict)  # by number
    worker: WorkerProcess | None = None
    adopter: WorkerProcess | None = None
    started: float = 0.0
    failures: int = 0

    @property
    def is_served(self) -> bool:
        """Whether the worker in it is ready."""
        return self.worker is not None and self.worker.is_ready

    @property
    def places(self) -> tuple[PassedSocket, ...]:
        """What is listened on here, for a message."""
        return tuple(PassedSocket(number, address) for number, (address, _) in self.sockets.items())

    @property
    def descriptors(self) -> list[int]:
        """The sockets that go with `places`."""
        return [sock.fileno() for _, sock in self.sockets.values()]

    def enter(self, worker: WorkerProcess, now: float) -> None:
        """A worker has this place from now on."""
        self.worker, self.started = worker, now

    def failed(self, now: float) -> float:
        """Its worker ended unasked; seconds until another should be begun."""
        self.failures = self.failures + 1 if now - self.started < TRIAL else 1
        return pause_after(self.failures)


class Slots:
    """All places. `every` are those that are to be filled."""

    def __init__(self, count: int) -> None:
        self.every = [Slot() for _ in range(count)]
        self._open: list[tuple[Address, socket.socket, list[int]]] = []  # a socket at each address, and its numbers
        self._number = 0

    def of(self, worker: WorkerProcess) -> Slot | None:
        """The place that a worker has."""
        return next((slot for slot in self.every if slot.worker is worker), None)

    # -- sockets --------------------------------------------------------------------------------------------------

    def open(self, address: Address, sock: socket.socket) -> list[int]:
        """Give each place a socket at an address, the first one this; their numbers."""
        numbers: list[int] = []
        self._open.append((address, sock, numbers))
        for place, slot in enumerate(self.every):
            numbers.append(self._give(slot, address, sock if place == 0 else again(sock)))
        return numbers

    def _give(self, slot: Slot, address: Address, sock: socket.socket, number: int = 0) -> int:
        if not number:
            self._number += 1
            number = self._number
        slot.sockets[number] = address, sock
        if slot.worker is not None and number not in slot.worker.listening:
            slot.worker.listen([PassedSocket(number, address)], [sock.fileno()])
        return number

    async def shut(self, opened: Sequence[int], workers: Iterable[WorkerProcess]) -> None:
        """Close the sockets of these numbers, once none of the workers accepts on them.

        A worker closes them last, and takes what had come meanwhile: the address may be served by another socket still.
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
        """More places get sockets of their own; those of fewer are the first one's from then on. (new, given up).

        Served places are kept rather than others. Raises OSError where no more sockets can be had; nothing has changed.
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
        """Close all."""
        for slot in self.every:
            for _, sock in slot.sockets.values():
                sock.close()

    # -- standing in ----------------------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Have somebody accept on the sockets of every place whose worker is not ready."""
        able = [slot.worker for slot in self.every if slot.worker is not None and slot.worker.is_ready]
        waiting = [slot for slot in self.every if not slot.is_served and slot.adopter is None]
        if able:
            for turn, slot in enumerate(waiting):
                slot.adopter = able[turn % len(able)]
                slot.adopter.listen(slot.places, slot.descriptors)

    async def take_back(self, worker: WorkerProcess) -> None:
        """A worker is ready: what was accepted for it meanwhile, it accepts itself."""
        slot = self.of(worker)
        if slot is not None and slot.adopter is not None:
            adopter, slot.adopter = slot.adopter, None
            await adopter.leave(list(slot.sockets))

    def forget(self, worker: WorkerProcess) -> None:
        """A worker is no more, and stands in for nobody."""
        for slot in self.every:
            if slot.adopter is worker:
                slot.adopter = None


def pause_after(failures: int) -> float:
    """Seconds before a worker is started again that failed so many times in a row."""
    if failures <= 1:
        return 0.0
    return min(LAST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 2, 30))
