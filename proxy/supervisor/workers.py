"""Several processes on one port, under one parent.

Law: a worker that dies takes its own connections with it, and nothing else: its listening sockets belong to the parent
too, another worker accepts on them until a new one is ready, what it counted stays counted, and what calls share is
whole (`proxy.stores`). A worker is not ended before another has taken its place.

Theory. Each worker has a socket of its own for each address (SO_REUSEPORT: the kernel spreads connections over them by
their hash, and wakes one process for one connection). The parent carries no calls: it hosts admin and probe, loads
configurations and sends them to the workers, and restarts workers that died, at once the first time, then after pauses
that double while workers end soon after their start (`proxy.supervisor.slots`). Workers that hang are killed, and so
replaced (`proxy.supervisor.heartbeat`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from proxy.config.settings import Address, Settings, pack
from proxy.observe.aggregate import Aggregate
from proxy.observe.cooldown_log import CooldownLog
from proxy.observe.metrics import Wires
from proxy.observe.notices import LogTrouble
from proxy.observe.recent_calls import RecentCalls
from proxy.observe.weather_log import WeatherLog
from proxy.process import Background, WorkerFailedError, failure_notifier
from proxy.resources import Usage, open_files, processes
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry
from proxy.server.idle_handover import pair
from proxy.server.intercept.interception import Notify
from proxy.stores.shared_memory.records import Memory
from proxy.stores.shared_memory.waiting_room import SharedWaitingRoom
from proxy.supervisor.channel import Begin, Counted, Do, Note, Own, TakeIdle, Trouble, Use, Using
from proxy.supervisor.heartbeat import HeartbeatWatch
from proxy.supervisor.reports import WorkerReports
from proxy.supervisor.rows import Rows
from proxy.supervisor.slots import LAST_PAUSE, PATIENCE, Slot, Slots, WorkerProcess
from proxy.transport.clock import monotonic

#: Seconds between requests for what workers have counted: what a killed worker had counted since the last is lost.
_GATHER = 1.0
#: Seconds that workers have for their end before they are killed.
_END = 5.0
#: Seconds that workers have to take a new configuration.
_SETTLE = 30.0


class Workers:
    """All workers, as their parent uses them: with the interface that `proxy.runtime.DataPath` has for a single
    process.
    """

    def __init__(
        self, settings: Settings, memory: Memory, gathered: Aggregate, *, via: str, notify: Notify, trouble: LogTrouble
    ) -> None:
        self._drain_time = settings.drain
        self._memory = memory
        self._via = via
        self._notify = notify
        self._rows = Rows(memory)
        self._reports = WorkerReports(settings, memory, gathered, notify, trouble)
        self.room: WaitingRoom = SharedWaitingRoom(memory, 0)  # only read: no call waits in the parent
        self._in_force = Use(1, pack(settings))
        self._numbers = 0
        self._slots = Slots(processes(settings.workers))
        self._all: dict[int, WorkerProcess] = {}
        self._own: list[Address] = []
        self._said: list[Do] = []  # what workers that start from now on have to do as well
        self._began = self._ending = False
        self._rolling = asyncio.Lock()
        self._beside = Background(failure_notifier(notify))
        self.restarts = self.hangs = 0
        loop = asyncio.get_running_loop()
        self._watch_over = HeartbeatWatch(
            self._all.values,
            self._rows.heartbeat,
            lambda worker, silent: loop.call_soon_threadsafe(self._silence, worker.number, silent),
        )

    # -- beginning ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all workers, and wait until they are ready. Raises WorkerFailedError."""
        self._watch_over.start()
        workers = [await self._spawn(slot) for slot in self._slots.every]
        for worker in workers:
            if not await self._until_ready(worker):
                self._ending = True
                for other in workers:
                    other.kill()
                raise WorkerFailedError(f"a worker ended before it was ready: {worker.how}")
        self._began = True
        self._beside.begin(self._gather())

    @staticmethod
    async def _until_ready(worker: WorkerProcess) -> bool:
        return await worker.until(lambda: worker.is_ready)

    async def _spawn(self, slot: Slot, *, takes_over: bool = False) -> WorkerProcess:
        """Start a worker for `slot`. With `takes_over`, the slot's present worker stays in it until the new one is
        ready, as when all workers are replaced.
        """
        self._numbers += 1
        row = self._rows.take()  # before the first await, during which other workers may be started
        worker = WorkerProcess(self._numbers, row, self._heard)
        try:
            await worker.start(self._memory.descriptor)
        except BaseException:
            self._rows.free(row)
            raise
        self._all[worker.number] = worker
        self._beside.begin(self._watch(worker))
        if not takes_over and slot not in self._slots.every:  # the place was removed meanwhile
            worker.retiring = True
            worker.kill()
            return worker
        if not takes_over:
            slot.worker, slot.started = worker, monotonic()
        worker.generation = self._in_force.generation
        begin = Begin(row, *self._in_force, self._via, slot.places, tuple(self._own))
        worker.send(begin, slot.descriptors)
        for message in self._said:
            worker.send(message)
        return worker

    def _say(self, message: Any) -> None:
        """Send a message to all workers."""
        for worker in self._all.values():
            worker.send(message)

    # -- listeners ------------------------------------------------------------------------------------------------

    async def open(self, address: Address, sockets: Sequence[socket.socket]) -> list[int]:
        return self._slots.open(address, sockets)

    def sockets(self, opened: list[int]) -> list[socket.socket]:
        return self._slots.sockets(opened)

    async def shut(self, opened: list[int]) -> None:
        await self._slots.shut(opened, list(self._all.values()))

    def is_own(self, address: Address) -> None:
        self._own.append(address)
        self._say(Own(address))

    def left(self, address: Address) -> None:
        self._own.remove(address)
        self._say(Own(address, gone=True))

    # -- workers --------------------------------------------------------------------------------------------------

    def _heard(self, worker: WorkerProcess, message: Any) -> None:
        match message:
            case Using(_, ""):  # the worker serves, and accepts on its own sockets again
                self._beside.begin(self._slots.take_back(worker))
                if self._began:
                    self._slots.adopt()
            case Counted():
                self._reports.add_up(worker, message, is_over=worker.number not in self._all)
            case Trouble(why):
                self._reports.trouble.report(worker.pid, why)
            case Note(event, lines, facts):
                self._reports.note(event, lines, facts)

    async def _watch(self, worker: WorkerProcess) -> None:
        """Wait until a worker's process has ended; then start another, if the end was not wanted."""
        await worker.ended()
        self._all.pop(worker.number, None)
        self._reports.ended(worker)
        self._rows.free(worker.row)
        self._slots.forget(worker)
        slot = self._slots.of(worker)
        self.hangs += worker.hung > 0
        if worker.retiring or self._ending or not self._began or slot is None:
            return
        self.restarts += 1
        pause = slot.failed(monotonic())
        line = f"worker {worker.pid} ended: {worker.how}; another starts" + (f" in {pause:g} s" if pause else "")
        self._notify("worker", [line], pid=worker.pid, ended=worker.how, restart_in=pause)
        self._slots.adopt()
        await self._restart(slot, pause)

    def _silence(self, number: int, silent: bool) -> None:
        """Note that the heartbeat of the worker with this number has stopped (`silent`), so that another worker accepts
        on its sockets, or that it goes on again.
        """
        worker = self._all.get(number)
        if worker is None:
            return
        worker.is_silent = silent
        if silent:
            self._slots.forget(worker)
            self._slots.adopt()
        else:
            self._beside.begin(self._slots.take_back(worker))

    async def _restart(self, slot: Slot, pause: float) -> None:
        """Start a worker in this slot after `pause` seconds, and try again until that succeeds."""
        while True:
            await asyncio.sleep(pause)  # noqa: TID251  no call waits for it
            if self._ending or slot not in self._slots.every:
                return
            try:
                await self._spawn(slot)
            except OSError as error:  # no process or no descriptor is available now
                self._notify("worker", [f"a worker can't be started: {error}"], error=str(error))
                pause = LAST_PAUSE
            else:
                return

    # -- configurations -------------------------------------------------------------------------------------------

    def use(self, settings: Settings) -> list[object]:
        self._drain_time = settings.drain
        self._in_force = Use(self._in_force.generation + 1, pack(settings))
        self._say(self._in_force)
        self._resize(processes(settings.workers))
        return self._reports.use(settings, self._in_force.generation)

    async def settled(self) -> None:
        """Wait until all workers, also those that retire, use the new configuration. A worker that can't use it is
        ended.
        """
        generation = self._in_force.generation
        await asyncio.gather(*(self._settle(worker, generation) for worker in list(self._all.values())))

    async def _settle(self, worker: WorkerProcess, generation: int) -> None:
        if not await worker.until(lambda: worker.generation >= generation, _SETTLE) and not worker.over:
            worker.error = f"it does not take the new configuration ({_SETTLE:g} s)"
        if worker.error and not worker.over:
            self._notify("worker", [f"worker {worker.pid}: {worker.error}"], pid=worker.pid, error=worker.error)
            await self._until_over(worker, 0.0)

    def _resize(self, count: int) -> None:
        """Change the number of workers to `count`: start workers in the new slots, and retire those of the removed
        slots. New slots get sockets of their own; the first slot that stays gets the sockets of the removed slots.
        """
        try:
            new, surplus = self._slots.resize(count)
        except OSError as error:
            self._notify("worker", [f"no further workers: they can't listen: {error}"], error=str(error))
            return
        for slot in new:
            self._beside.begin(self._restart(slot, 0.0))
        if new:
            self._slots.adopt()
        for slot in surplus:
            if slot.worker is not None:
                self._beside.begin(self._retire(slot.worker))

    # -- ending ---------------------------------------------------------------------------------------------------

    async def roll(self) -> None:
        """Replace all workers, one after the other: each drains once its successor is ready."""
        async with self._rolling:
            for slot in list(self._slots.every):
                old = slot.worker
                if old is None or not old.is_ready or self._ending:
                    continue
                new = await self._spawn(slot, takes_over=True)
                if not await self._until_ready(new):
                    self._notify(
                        "worker", [f"worker {new.pid} ended before it was ready: {new.how}"], pid=new.pid, ended=new.how
                    )
                    return
                if slot.worker is old and slot in self._slots.every:
                    slot.worker, slot.started = new, monotonic()
                    await self._retire(old)
                else:  # the old worker died meanwhile, and was replaced
                    await self._retire(new)
            self._notify("rolled", ["all workers were replaced"], workers=len(self._slots.every))

    async def _retire(self, worker: WorkerProcess) -> None:
        worker.retiring = True
        self._slots.forget(worker)
        self._slots.adopt()
        await worker.leave(worker.listening)
        takes, gives = pair()
        self.take_idle(takes)
        with gives:
            worker.send(Do("retire"), [gives.fileno()])
        if not await worker.until(lambda: worker.over, self._drain_time):
            worker.send(Do("end"))
            await self._until_over(worker)
        if worker.cut:
            line = f"worker {worker.pid} was replaced; calls cut short: {worker.cut}"
            self._notify("worker", [line], pid=worker.pid, calls_cut=worker.cut)

    @staticmethod
    async def _until_over(worker: WorkerProcess, seconds: float = _END) -> None:
        """Wait until a worker has ended; after `seconds` it is killed."""
        if not await worker.until(lambda: worker.over, seconds):
            worker.kill()
            await worker.until(lambda: worker.over)

    def take_idle(self, sock: socket.socket) -> None:
        with sock:
            for worker in self._all.values():
                if worker.is_ready and not worker.retiring:
                    worker.send(TakeIdle(), [sock.fileno()])

    def drain(self, *, replaced: bool = False, to: socket.socket | None = None) -> None:
        if Do("drain") not in self._said:
            self._said.append(Do("drain"))
        for worker in self._all.values():
            worker.send(Do("give way" if replaced else "drain"), [] if to is None else [to.fileno()])
        if to is not None:
            to.close()

    def refuse(self) -> None:
        self._said.append(Do("refuse"))
        self._say(self._said[-1])

    async def close(self, *, at_once: bool) -> int:
        """End all workers, and kill those that take too long, which is sooner if `at_once`; return the number of calls
        that were cut.
        """
        seconds = PATIENCE if at_once else _END
        self._ending = True
        self._watch_over.stop()
        workers = list(self._all.values())
        self._say(Do("end"))
        await asyncio.gather(*(self._until_over(worker, seconds) for worker in workers))
        await self._reports.close()
        self._beside.cancel()
        self._slots.close()
        return sum(worker.cut for worker in workers)

    # -- being watched --------------------------------------------------------------------------------------------

    async def refresh(self, *, calls: bool = True) -> None:
        """Ask all workers for what they have counted; with `calls`, also for their last calls and the levels of buckets
        in Redis.
        """
        workers = [worker for worker in self._all.values() if worker.is_ready]
        gathered = self._reports.gathered
        await asyncio.gather(*(worker.ask(gathered.seen(worker.number) if calls else None) for worker in workers))
        gathered.take()
        if calls:
            await self._reports.refresh()

    def redis(self) -> tuple[bool | None, int]:
        return self._reports.redis()

    @property
    def registry(self) -> Registry:
        return self._reports.registry

    @property
    def recent(self) -> RecentCalls:
        return self._reports.gathered.recent

    @property
    def cooldowns(self) -> CooldownLog:
        return self._reports.cooldowns

    @property
    def weather(self) -> WeatherLog:
        return self._reports.weather

    async def _gather(self) -> None:
        while True:
            await asyncio.sleep(_GATHER)  # noqa: TID251  no call waits for it
            await self.refresh(calls=False)
            self._reports.sweep()

    @property
    def usage(self) -> Usage:
        return self._rows.total()

    @property
    def wires(self) -> Wires:
        return self._reports.gathered.wires

    @property
    def seen(self) -> int:
        return self._rows.seen

    @property
    def open_files(self) -> int:
        return self._rows.files + open_files()

    def workers(self) -> list[tuple[str, float]]:
        every = list(self._all.values())
        retiring = sum(worker.retiring for worker in every)
        ready = sum(worker.is_ready and not worker.retiring for worker in every)
        return [("ready", ready), ("starting", len(every) - ready - retiring), ("retiring", retiring)]

    @property
    def is_ready(self) -> bool:
        """Whether any worker is ready."""
        return any(worker.is_ready for worker in self._all.values())
