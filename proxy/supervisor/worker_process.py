"""One worker process, as its parent sees it.

What is known of a worker is what it said, and that it lives. Its end, of whatever it died, is told once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from proxy.supervisor.channel import Channel
from proxy.supervisor.messages import (
    Begin,
    Counted,
    Do,
    Ended,
    Gather,
    Leave,
    Left,
    Listen,
    Note,
    PassedSocket,
    Ready,
    Using,
)

#: How a worker is begun: this interpreter, with the modules found where this process finds them.
_CODE = (
    "import sys; sys.path[:] = {path!r}; from proxy.server.late_roots import import_aiohttp; import_aiohttp(); "
    "from proxy.supervisor.worker import main; main({channel}, {memory})"
)
#: Seconds that a worker may take for an answer before it is given up.
PATIENCE = 2.0


class WorkerOwner(Protocol):
    """Who is told of workers."""

    def ready(self, worker: WorkerProcess) -> None:
        """It serves."""
        ...

    def counted(self, worker: WorkerProcess, counted: Counted) -> None:
        """It told what it has counted."""
        ...

    def noted(self, worker: WorkerProcess, note: Note) -> None:
        """It has something for the log."""
        ...

    def ended(self, worker: WorkerProcess) -> None:
        """Its process is no more."""
        ...


class WorkerProcess:
    """A process that was begun. `number` is its own for the parent's life, `row` its row in shared memory.

    `generation` is that of the configuration it uses; `retiring`: its end is wanted; `cut`: calls that it cut short.
    """

    def __init__(self, number: int, row: int, owner: WorkerOwner) -> None:
        self.number = number
        self.row = row
        self.generation = 0
        self.error = ""
        self.is_ready = False
        self.retiring = False
        self.cut = 0
        self.status: int | None = None
        self.listening: set[int] = set()
        self.over = asyncio.Event()
        self.changed = asyncio.Event()
        self._owner = owner
        self._asked = 0
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._leaving: set[int] = set()
        self._child: asyncio.subprocess.Process
        self._channel: Channel

    async def start(self, memory: int) -> None:
        """Begin the process, with the descriptor of the shared memory."""
        ours, theirs = socket.socketpair()
        code = _CODE.format(path=[entry or "." for entry in sys.path], channel=theirs.fileno(), memory=memory)
        try:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                code,
                "redrive",
                "worker",
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), memory),
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = Channel(asyncio.get_running_loop(), ours, self._told, self._closed)

    @property
    def pid(self) -> int:
        """The process."""
        return self._child.pid

    async def wait(self) -> None:
        """Until it has ended; then the owner is told."""
        self.status = await self._child.wait()
        self._channel.finish()
        self.over.set()
        self._closed()
        self._owner.ended(self)

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if self.status is not None and self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"

    # -- saying ---------------------------------------------------------------------------------------------------

    def begin(self, begin: Begin, descriptors: Sequence[int]) -> None:
        """The first message."""
        self.listening = {place.number for place in begin.places}
        self._channel.send(begin, descriptors)

    def send(self, message: Any) -> None:
        """A message that no descriptors go with."""
        self._channel.send(message)

    def do(self, what: str) -> None:
        """drain, retire, refuse, end."""
        self._channel.send(Do(what))

    def listen(self, places: Sequence[PassedSocket], descriptors: Sequence[int]) -> None:
        """Accept on these too."""
        self.listening |= {place.number for place in places}
        self._channel.send(Listen(tuple(places)), descriptors)

    async def leave(self, numbers: Sequence[int], *, gone: bool = False) -> None:
        """Accept no more on these; until it does not, or is given up."""
        mine = self.listening.intersection(numbers)
        self.listening -= mine
        self._leaving |= mine
        self._channel.send(Leave(tuple(mine), gone))
        try:
            async with asyncio.timeout(PATIENCE):
                await self.until(lambda: not self._leaving & mine)
        except TimeoutError:
            pass  # it is stopped, or has no turn: what was said is done before anything else

    async def ask(self, since: int | None) -> None:
        """Have it told what it has counted; its owner has the answer then. A dead worker has none."""
        self._asked += 1
        answer = self._answers[self._asked] = asyncio.get_running_loop().create_future()
        self._channel.send(Gather(self._asked, since))
        try:
            await asyncio.wait_for(answer, PATIENCE)
        except TimeoutError:
            self._answers.pop(self._asked, None)

    async def until(self, reached: Callable[[], bool]) -> bool:
        """Until it said so, or has ended; whether it did say so."""
        while not reached() and not self.over.is_set():
            self.changed.clear()
            await self.changed.wait()
        return reached()

    def kill(self) -> None:
        """End it at once."""
        if self.status is None:
            self._child.kill()

    # -- hearing --------------------------------------------------------------------------------------------------

    def _told(self, message: Any, descriptors: list[int]) -> None:
        match message:
            case Ready():
                self.is_ready = True
                self._owner.ready(self)
            case Using(generation, error):
                self.generation, self.error = generation, error
            case Left(numbers):
                self._leaving -= set(numbers)
            case Counted():
                self._count(message)
            case Ended(cut, counted):
                self.cut = cut
                self._count(counted)
            case Note():
                self._owner.noted(self, message)
        self.changed.set()

    def _count(self, counted: Counted) -> None:
        self._owner.counted(self, counted)
        answer = self._answers.pop(counted.number, None)
        if answer is not None and not answer.done():
            answer.set_result(None)

    def _closed(self) -> None:
        self.is_ready = False
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)
        self._answers.clear()
        self.changed.set()
