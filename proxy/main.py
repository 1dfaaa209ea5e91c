"""The composition root: settings become a running process; nothing else builds objects.

Law: everything is bound before anything is served. What lives over reloads (buckets, connections, counters) is made
once; what a configuration says is taken in one step, for calls that start after it. The first SIGTERM or SIGINT lets
calls run out, the second ends at once; both are a clean end.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Coroutine

import uvloop
from aiohttp import web

from proxy.config.load import LoadResult
from proxy.config.problem import Problem
from proxy.config.settings import Address, Settings
from proxy.config.watch import Watcher
from proxy.observe.access_log import AccessLog
from proxy.observe.exposition import Gauges, render
from proxy.observe.mask import config as masked
from proxy.observe.metrics import Metrics
from proxy.observe.notices import Notices
from proxy.observe.observers import Observers
from proxy.observe.recent import Recent
from proxy.observe.sink import LineSink
from proxy.server.admin import showing
from proxy.server.admin.guard import Access
from proxy.server.admin.pages import admin_app, probe_app
from proxy.server.admin.view import Readiness, View
from proxy.server.announcing import banner
from proxy.server.binding import CannotListenError, bind, bound
from proxy.server.listener import DataPath
from proxy.transport.clock import monotonic, wall

#: Standard output, where the log goes.
_OUT = 1
#: Seconds after which a thread that computes (a configuration, an exposition) makes room for the loop; Python's 5 ms
#: would be added to every call meanwhile.
_SWITCH = 0.0005
#: Seconds between looks at whether the last call has ended.
_LOOK = 0.02
#: Seconds that open admin connections get at the end.
_ADMIN_END = 1.0
#: Seconds between looks at the wall's clock, which may be set while the other goes on.
_CLOCK = 10.0


def serve(file: str | None, loaded: LoadResult) -> int:
    """Run a process until it is told to end; its exit status. `loaded` has settings."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(file, loaded))


async def _serve(file: str | None, loaded: LoadResult) -> int:
    house = House(file, loaded)
    try:
        await house.open()
    except CannotListenError as error:
        _say(f"redrive: {error}")
        return 2
    await house.until_ended()
    return 0


class House:
    """The process: what lives over reloads, and the settings in force."""

    def __init__(self, file: str | None, loaded: LoadResult) -> None:
        settings = loaded.settings
        assert settings is not None
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._settings = settings
        self._warnings = warnings(loaded)
        self._reload_errors: list[str] = []
        self._draining = False
        self._end, self._at_once = asyncio.Event(), asyncio.Event()
        self._watcher = Watcher(file, os.environ, loaded, self._loaded)
        self._tasks: set[asyncio.Task[object]] = set()
        self._runners: list[web.BaseRunner] = []
        self._listening: dict[str, list[Address]] = {"listen": [], "admin": [], "probe": []}

        console = settings.log.format == "console"
        self._sink = LineSink(_OUT, self._loop.call_later)
        self._notices = Notices(self._sink, _say, wall, console=console)
        self._metrics, self._recent = Metrics(), Recent()
        self._log = AccessLog(self._sink, console=console, level=settings.log.level)
        observers = Observers(self._metrics, self._recent, self._log)
        self._path = DataPath(self._loop, settings, observers, tell=self._notices.tell)

    # -- beginning ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Bind everything, then serve it and say so. Raises CannotListenError, with nothing left open."""
        settings = self._settings
        sockets: list[tuple[str, socket.socket]] = []
        try:
            for address in settings.listen:
                sockets += [("listen", sock) for sock in bind(address, "listen")]
            if settings.admin is not None:
                sockets += [("admin", sock) for sock in bind(settings.admin.listen, "admin")]
            if settings.probe is not None:
                sockets += [("probe", sock) for sock in bind(settings.probe, "probe")]
        except CannotListenError:
            for _, sock in sockets:
                sock.close()
            raise
        runners = self._make_runners()
        for what, sock in sockets:
            address = bound(sock)
            self._listening[what].append(address)
            (self._path.listens if what == "listen" else self._path.is_own)(address)
        for what, runner in runners.items():
            await runner.setup()
            self._runners.append(runner)
            for sock in (sock for of, sock in sockets if of == what):
                await web.SockSite(runner, sock).start()
        for number, act in ((signal.SIGTERM, self.end), (signal.SIGINT, self.end), (signal.SIGHUP, self._hang_up)):
            self._loop.add_signal_handler(number, act)
        self._loop.call_later(_CLOCK, self._look_at_the_clock)
        self._begin(self._watcher.run())
        sys.setswitchinterval(_SWITCH)
        gc.collect()
        gc.freeze()  # what was imported and built lives as long as the process: no need to look it through again
        self._announce()

    def _make_runners(self) -> dict[str, web.BaseRunner]:
        admin, view = self._settings.admin, self._view()
        runners: dict[str, web.BaseRunner] = {"listen": self._path.runner}
        if admin is not None:
            runners["admin"] = _app_runner(admin_app(view, self._access))
        if self._settings.probe is not None:
            runners["probe"] = _app_runner(probe_app(view))
        return runners

    def _access(self) -> Access:
        admin = self._settings.admin
        assert admin is not None  # a reload can't take it away
        return Access(admin.token, admin.hosts)

    def _announce(self) -> None:
        listening = {what: [str(address) for address in at] for what, at in self._listening.items()}
        self._notices.banner(banner(self._file, self._settings, self._listening))
        self._notices.tell("ready", [], **listening, pid=os.getpid(), file=self._file)

    # -- configurations -------------------------------------------------------------------------------------------

    async def reload(self) -> list[str]:
        """Load the file again; error lines where it is refused, and then nothing has changed."""
        await self._watcher.reload("POST /reload")
        return self._reload_errors

    def _hang_up(self) -> None:
        self._begin(self._watcher.reload("SIGHUP"))

    def _loaded(self, result: LoadResult, why: str) -> None:
        """A file was loaded: take it, or tell what is wrong with it."""
        settings = result.settings
        errors = list(result.errors) if settings is None else _moved(self._settings, settings)
        self._reload_errors = [str(problem) for problem in errors]
        if settings is None or errors:
            self._metrics.reloaded("failure")
            lines = [f"the configuration was not reloaded ({why}):", *self._reload_errors]
            self._notices.tell("reload", lines, result="failure", why=why, errors=self._reload_errors)
            return
        self._settings = settings
        self._warnings = warnings(result)
        self._metrics.reloaded("success")
        self._path.use(settings)
        console = settings.log.format == "console"
        self._log.configure(console=console, level=settings.log.level)
        self._notices.console = console
        lines = [f"the configuration was reloaded ({why})", *self._warnings]
        self._notices.tell("reload", lines, result="success", why=why, warnings=self._warnings)

    def _begin(self, work: Coroutine[object, object, object]) -> None:
        """Do something beside; what goes wrong with it is told, and ends nothing else."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._notices.tell("failed", [f"{error!r}"], what=str(task.get_coro()), error=repr(error))

    # -- ending ---------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Let calls run out, then end; told twice, end at once."""
        if self._end.is_set():
            self._at_once.set()
        self._end.set()

    def drain(self) -> None:
        """Stop being ready; when `drain` has run out, refuse calls. The process goes on until a signal ends it."""
        if self._draining:
            return
        self._draining = True
        self._path.drain()
        self._notices.tell("draining", [f"draining: calls get {self._settings.drain:g} s"], calls=self._path.in_flight)
        self._loop.call_later(self._settings.drain, self._path.refuse)

    async def until_ended(self) -> None:
        """Serve until told to end, and then until the last call has ended or `drain` has run out."""
        await self._end.wait()
        self.drain()
        until = self._loop.time() + self._settings.drain
        while self._path.in_flight and self._loop.time() < until and not self._at_once.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._at_once.wait(), _LOOK)
        for task in self._tasks:
            task.cancel()
        cut = self._path.in_flight
        self._path.refuse()
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))
        await self._path.close()
        self._notices.tell("ended", [f"ended; calls cut short: {cut}"], calls_cut=cut)
        self._sink.close()

    # -- being watched --------------------------------------------------------------------------------------------

    def _view(self) -> View:
        return View(
            readiness=self._readiness,
            metrics=self._exposition,
            config=lambda: masked(self._settings.provenance.effective()),
            upstreams=lambda: showing.upstreams(self._settings.router, self._metrics, self._path.commons, monotonic()),
            buckets=lambda: showing.buckets(self._path.commons, self._settings.buckets, monotonic()),
            recent=self._recent,
            reload=self.reload,
            drain=self.drain,
        )

    def _readiness(self) -> Readiness:
        return Readiness(
            ready=not self._draining,
            draining=self._draining,
            config_file=self._file or "",
            warnings=self._warnings,
            reload_errors=self._reload_errors,
            listen=[str(address) for address in self._listening["listen"]],
            in_flight=self._path.in_flight,
        )

    async def _exposition(self, accept: str) -> tuple[bytes, str]:
        """Metrics as they are now; the text is made in a thread."""
        commons, named, now = self._path.commons, self._settings.buckets, monotonic()
        gauges = Gauges(
            levels=showing.levels(commons, named, now),
            capacities=showing.capacities(commons, named),
            cooldowns=showing.cooldowns(self._settings.router, commons, now),
            buffered_bytes=self._path.buffered,
            waiting_calls=self._path.waiting,
        )
        return await asyncio.to_thread(render, self._metrics.copy(), gauges, accept)

    def _look_at_the_clock(self) -> None:
        self._path.env.wall_offset = wall() - monotonic()
        self._loop.call_later(_CLOCK, self._look_at_the_clock)


def warnings(loaded: LoadResult) -> list[str]:
    """Settings without effect, and the like."""
    told = [str(problem) for problem in loaded.problems if problem.severity == "warning"]
    settings = loaded.settings
    if settings is not None and settings.workers != 1:
        told.append("workers: there is one process for now")
    if settings is not None and settings.uses_redis:
        told.append("store: redis: buckets are this process's own for now")
    return told


def _moved(before: Settings, after: Settings) -> list[Problem]:
    """What listens, listens until the end, and much is decided by it (whether strangers can reach it): another address
    takes a restart.
    """
    where = {
        "listen": (before.listen, after.listen),
        "admin": (before.admin and before.admin.listen, after.admin and after.admin.listen),
        "probe": (before.probe, after.probe),
    }
    top = after.provenance.top
    marks = {name: top.values_at.get(name, top.mark) for name, (old, new) in where.items() if old != new}
    return [
        Problem(mark.file, mark.line, mark.column, name, "another address takes a restart")
        for name, mark in marks.items()
    ]


def _app_runner(app: web.Application) -> web.AppRunner:
    return web.AppRunner(app, access_log=None, shutdown_timeout=_ADMIN_END)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
