"""The command `run`: a process from its start, through reloads, to its end.

Everything is bound before anything is served. What outlives reloads (buckets, connections, counters) is made once; a
configuration is taken in one step, for calls that start after it. The first SIGTERM or SIGINT lets calls finish, the
second ends the process at once; both are a clean end, and nothing that hangs can prevent it (`proxy.process`). With
workers this process is their parent, and carries no calls itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from proxy.admin import bucket_view, gauge_view, holders, upstream_view, views, weather_view
from proxy.admin.app import Access, admin_app, probe_app
from proxy.admin.connections import Pages
from proxy.admin.upstream_view import Logs
from proxy.admin.views import Readiness, View
from proxy.config.load import Edit, LoadResult
from proxy.config.provenance import release_parts
from proxy.config.settings import Settings
from proxy.config.watch import Watcher
from proxy.early_signals import SIGNALS, came_early, leave
from proxy.first_lines import first_lines
from proxy.freed_memory import settle_in
from proxy.hidden_values import shown
from proxy.machine_limits import MachineLimits
from proxy.observe.exposition import Gauges, render
from proxy.observe.masking import config as masked
from proxy.observe.metrics import Metrics
from proxy.observe.sink import Turn
from proxy.observe.telemetry import interval, metric_sender
from proxy.process import Background, EndOfProcess, Given, WorkerFailedError, failure_notifier, within
from proxy.process_log import ProcessLog
from proxy.resources import processes
from proxy.runtime import DataPath, data_path, draw_via
from proxy.server.inherited import Inherited
from proxy.server.listeners import CannotListenError, Listeners, ListenPlan, where
from proxy.service_manager import ServiceManager
from proxy.succession import Succession
from proxy.take_over import Handover
from proxy.transport.clock import monotonic, wall
from proxy.transport.event_loop import new_event_loop

if TYPE_CHECKING:  # a single process does not load what only workers need, nor what only telemetry needs
    from proxy.observe.otel_metrics import MetricSender
    from proxy.supervisor.workers import Workers

#: Standard error, where lines for people go.
_ERRORS = 2
#: Seconds between checks whether the last call has ended; and seconds without a call after which a process that drains
#: may end: an app that gets its signal at the same time makes its last calls meanwhile.
_LOOK, _QUIET = 0.02, 0.5
#: Seconds that a step of the end may take: more than the limit that each step sets itself.
_STEP = 15.0
#: Seconds beyond `drain` that a service manager is asked to wait for the end.
_AFTER_DRAIN = 30.0


def serve(
    file: str | None, loaded: Callable[[], LoadResult], edit: Edit | None = None, listeners: Handover | None = None
) -> NoReturn:
    """Run a process until a signal ends it, and end it with its exit status. `loaded` is called once, and returns a
    result that has settings; `edit` changes the file again whenever it is loaded again (None: leave it as it is).
    `listeners`: the sockets that the process inherits, and the names on which it offers its own to a successor; None:
    it neither inherits nor offers any.
    """
    runner = asyncio.Runner(loop_factory=new_event_loop)
    leave(runner.run(_serve(file, loaded, edit, Handover() if listeners is None else listeners)))


async def _serve(file: str | None, loaded: Callable[[], LoadResult], edit: Edit | None, listeners: Handover) -> int:
    process = ServerProcess(file, loaded(), edit, listeners)
    try:
        if not await process.open_unless_ended():
            return 0
    except CannotListenError as error:
        _say(shown(str(where(process.settings, error)), process.settings.hidden))
        return 2
    except WorkerFailedError as error:
        _say(f"redrive: {error}")
        return 1
    await process.until_ended()
    return 0


class ServerProcess:
    """The process that the command run makes: everything that outlives reloads, and the settings in force."""

    def __init__(
        self, file: str | None, loaded: LoadResult, edit: Edit | None = None, handover: Handover | None = None
    ) -> None:
        settings = loaded.settings
        assert settings is not None
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._machine = MachineLimits(settings)
        self.settings = self._machine.fit(settings)
        self._warnings = warnings(loaded)
        self._reload_errors: list[str] = []
        self._draining = False
        self._taken, self._taking = asyncio.Event(), asyncio.Lock()  # the event of the last reload
        self._taken.set()
        self._end = EndOfProcess()
        self._watcher = Watcher(file, os.environ, loaded, self._loaded, edit)
        self._admin = settings.admin
        self._manager = ServiceManager(os.environ)
        self._metrics = Metrics()
        self._log, self._serving = self._alone() if processes(settings.workers) == 1 else self._workers()
        self._beside = Background(failure_notifier(self._log.notify))
        serving = self._serving
        admin = Pages(lambda: admin_app(self._view(), self._access), serving.is_own, serving.left)
        probe = Pages(lambda: probe_app(self._view()), serving.is_own, serving.left)
        handover = Handover() if handover is None else handover
        inherited = Inherited(handover.sockets)
        self._listeners = Listeners({"listen": serving, "admin": admin, "probe": probe}, inherited)
        self._succession = Succession(
            handover,
            self._listeners,
            self._log.notify,
            may_leave=self._may_leave,
            replaced=self._end.wanted.set,
            take_idle=serving.take_idle,
            load=self._loaded,
        )

    def _alone(self) -> tuple[ProcessLog, DataPath | Workers]:
        """Make the log of a single process (without workers), and the part of it that carries the calls."""
        log = self._begin_log()
        path = data_path(self.settings, log.sink, log.notify, self._metrics)
        if path.log is not None:
            path.log.also = log.notices.also
        return log, path

    def _workers(self) -> tuple[ProcessLog, DataPath | Workers]:
        """Make the log of several processes, and the object that manages the worker processes, which carry the calls
        and share memory.
        """
        from proxy.observe.aggregate import Aggregate, AggregatedCalls
        from proxy.stores.shared_memory.factory import open_memory
        from proxy.stores.shared_memory.records import LogTurn, descriptor
        from proxy.supervisor.workers import Workers

        memory = open_memory(descriptor())
        log = self._begin_log(LogTurn(memory))
        gathered = Aggregate(self._metrics, AggregatedCalls())
        workers = Workers(self.settings, memory, gathered, via=draw_via(), notify=log.notify, trouble=log.trouble)
        return log, workers

    def _begin_log(self, turn: Turn | None = None) -> ProcessLog:
        """Make the log of this process, and what sends its metrics. `turn`: whose turn it is to write, if several
        processes write the log. Spans are set up later: what was set up last reports an exporter's failures.
        """
        log = ProcessLog(self._loop, self.settings, self._metrics, turn)
        self._figures = metric_sender(os.environ, wall(), log.notify)
        return log

    # -- beginning ------------------------------------------------------------------------------------------------

    async def open_unless_ended(self) -> bool:
        """Bind all addresses and serve (`open`); return False if a signal to end arrived before the process served.
        Raises CannotListenError.
        """
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._end.signal)
        opening = self._loop.create_task(self.open())
        ended = self._loop.create_task(self._end.wanted.wait())
        await asyncio.wait({opening, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if opening.done():
            opening.result()
            return True
        opening.cancel()
        await self._step(self._serving.close(at_once=True), 0)
        return False

    async def open(self) -> None:
        """Bind all addresses, then serve and report that this process serves. Raises CannotListenError, with nothing
        left open.
        """
        plan, notify = self._listeners.plan(self.settings), self._log.notify
        await self._listeners.take(plan)
        self._machine.notify_few_workers_fit(self.settings, notify)
        await self._serving.start()
        await self._succession.begin()
        begin = self._beside.begin
        self._loop.add_signal_handler(signal.SIGHUP, lambda: begin(self._reload("SIGHUP")))
        self._loop.add_signal_handler(signal.SIGUSR2, lambda: begin(self._serving.roll()))
        if came_early(signal.SIGHUP):  # after the file was read, perhaps: another SIGUSR2 would renew what is new
            begin(self._reload("SIGHUP"))
        begin(self._watcher.run())
        begin(self._send_figures())
        settle_in()
        listening = {what: self._listeners.addresses(what) for what in ("listen", "admin", "probe")}
        self._log.notices.banner(first_lines(self._file, self.settings, listening))
        addresses = {what: [str(address) for address in at] for what, at in listening.items()}
        self._log.notify("ready", [], **addresses, pid=os.getpid(), file=self._file)
        self._machine.notify_few_files(self.settings, notify)
        self._machine.notify_little_memory(self.settings, notify)
        self._manager.ready(self._status())

    def _access(self) -> Access:
        admin = self.settings.admin or self._admin
        assert admin is not None
        return Access(admin.token, admin.hosts)

    # -- configurations -------------------------------------------------------------------------------------------

    async def reload(self) -> list[str]:
        """Load the file again, and return the error lines; if there are any, the file was refused, and nothing has
        changed.
        """
        await self._reload("POST /reload")
        return self._reload_errors

    async def _reload(self, why: str) -> None:
        """Load the file again, and wait until it is in force or was refused; the service manager is notified when the
        reload begins and when it ends. `why` names the cause in logs.
        """
        self._manager.reloading(monotonic())
        try:
            await self._watcher.reload(why)
            await self._taken.wait()
        finally:
            if not self._end.wanted.is_set():
                self._manager.ready(self._status())

    def _status(self) -> str:
        """The line that `systemctl status` shows."""
        if self._reload_errors:
            return f"the last configuration was refused, the one before serves: {self._reload_errors[0]}"
        count = len(self.settings.router.upstreams)
        return f"serving {count} upstream{'' if count == 1 else 's'}"

    def _loaded(self, result: LoadResult, why: str) -> None:
        """Put the configuration in `result`, which was loaded again, in force; or report its errors and keep the old
        one. `why` names the cause of the reload in logs.
        """
        if self._succession.defers(result, why):
            return
        asked_for, plan = result.settings, None
        settings = None if asked_for is None else self._machine.fit(asked_for)
        errors = [str(problem) for problem in result.errors]
        if settings is not None:
            try:
                plan = self._listeners.plan(settings)
            except CannotListenError as error:
                errors = [shown(str(where(settings, error)), settings.hidden)]
        self._reload_errors = errors
        if asked_for is None or settings is None or plan is None:
            self._metrics.reloaded("failure")
            lines = [f"the configuration was not reloaded ({why}):", *errors]
            self._log.notify("reload", lines, result="failure", why=why, errors=errors)
            self._manager.status(self._status())
            return
        self._warnings = warnings(result)
        was_alone, is_alone = processes(self.settings.workers) == 1, processes(settings.workers) == 1
        if was_alone != is_alone and isinstance(self._serving, DataPath):
            self._warnings.append("workers has changed: going from one process to several needs a restart")
        parts = [*self.settings.router.upstreams, *self.settings.provenance.parts()]
        self.settings, self._machine.asked_for = settings, asked_for
        self._machine.notify_little_memory(settings, self._log.notify)
        self._admin = settings.admin or self._admin
        self._log.use(settings)
        parts += self._serving.use(settings)
        self._beside.begin(asyncio.to_thread(release_parts, parts))
        self._taken = asyncio.Event()
        self._beside.begin(self._take(plan, why, self._taken))

    async def _take(self, plan: ListenPlan, why: str, taken: asyncio.Event) -> None:
        """Finish a reload: open and close the listeners that `plan` names, wait until every worker uses the
        configuration, and report that. The event `taken` is set at the end, also after an error. `why` names the cause
        of the reload in logs.
        """
        async with self._taking:
            warnings = self._warnings
            try:
                await self._listeners.take(plan)
                await self._serving.settled()
                self._metrics.reloaded("success")
                lines = [f"the configuration was reloaded ({why})", *warnings]
                self._log.notify("reload", lines, result="success", why=why, warnings=warnings)
                self._manager.status(self._status())
            finally:
                taken.set()

    # -- ending ---------------------------------------------------------------------------------------------------

    async def _may_leave(self) -> bool:
        """Wait until no reload is under way; return whether a successor may have the listeners then, which it may not
        while this process drains.
        """
        await self._taken.wait()
        return not self._draining

    def drain(self) -> None:
        """Report the process as not ready from now on, and after `drain` seconds refuse calls. The process goes on
        until a signal ends it.
        """
        if self._draining:
            return
        self._draining = True
        self._serving.drain(replaced=self._succession.is_replaced, to=self._succession.takes_idle)
        calls = self._serving.usage.in_flight
        self._log.notify("draining", [f"draining: calls have {self.settings.drain:g} s"], calls=calls)
        self._loop.call_later(self.settings.drain, self._serving.refuse)

    async def until_ended(self) -> None:
        """Serve until a signal to end arrives, then until no call is under way or the configured `drain` time has run
        out; then close everything.
        """
        await self._end.wanted.wait()
        self._manager.stopping(self.settings.drain + _AFTER_DRAIN)
        self.drain()
        until = self._loop.time() + self.settings.drain
        await self._step(self._succession.leave(self._serving.is_own))
        await self._until_quiet(until)
        self._beside.cancel()
        self._serving.refuse()
        if not self._end.at_once.is_set():
            await self._step(self._listeners.close("listen"))
        cut = await self._step(self._serving.close(at_once=self._end.at_once.is_set()), 0)
        await self._step(self._listeners.close("admin", "probe"))
        if self._figures is not None:
            await self._step(self._send_once(self._figures))
            await asyncio.to_thread(self._figures.close)
        over = self._serving.wires.handed_over
        given = over["given"] - over["returned"]
        lines = [f"ended; calls cut short: {cut}" + (f"; idle connections handed over: {given}" if given else "")]
        also = {"connections_handed_over": given} if given else {}
        self._log.notify("ended", lines, calls_cut=cut, **also)
        self._log.close()

    async def _step(self, work: Coroutine[Any, Any, Given], otherwise: Given | None = None) -> Any:
        """Run `work`, a step by which the process ends, for at most `_STEP` seconds, so that nothing that hangs can
        prevent the end; return its result, or `otherwise` if it takes longer.
        """
        return await within(_STEP, work, otherwise, self._log.notify)

    async def _until_quiet(self, until: float) -> None:
        """Wait until nothing has been under way, and no call has come and gone, for `_QUIET` seconds. The wait ends
        early at `until` (in seconds of the loop's clock) or at a second signal. A process that a new one has replaced
        keeps idle connections until the first signal: whoever sent it may be ending the new process too.
        """
        keeps_idle = self._succession.is_replaced
        seen, quiet_since = self._serving.seen, self._loop.time()
        while (now := self._loop.time()) < until and not self._end.at_once.is_set():
            if keeps_idle and self._end.is_signalled:
                keeps_idle = False
                self._serving.drain()
            if self._serving.usage.busy or self._serving.seen != seen:
                seen, quiet_since = self._serving.seen, now
            elif now - quiet_since >= _QUIET:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._end.at_once.wait(), _LOOK)

    # -- being watched --------------------------------------------------------------------------------------------

    def _view(self) -> View:
        registry, room, log = self._serving.registry, self._serving.room, self._serving.cooldowns
        weather = self._serving.weather
        return View(
            readiness=self._readiness,
            metrics=self._exposition,
            config=lambda: masked(self.settings.provenance.effective()),
            upstreams=lambda only: upstream_view.upstreams(
                self.settings.router, self._metrics, registry, monotonic(), only, room, Logs(log, weather)
            ),
            buckets=lambda: bucket_view.buckets(registry, self.settings.buckets, monotonic()),
            recent=self._serving.recent,
            reload=self.reload,
            drain=self.drain,
            refresh=self._serving.refresh,
            live=lambda: upstream_view.live(
                self.settings.router, self._metrics, registry, monotonic(), room, Logs(log, weather)
            ),
            provisions=lambda: upstream_view.provisions(self.settings.router, registry),
            places=lambda upstream, route: views.places(self.settings.provenance, upstream, route),
            loads=lambda: self._metrics.reloads["success"],
            at_rest=self._at_rest,
            cooldowns=lambda upstream: upstream_view.begun(log, upstream),
            weather=lambda upstream: weather_view.changes(weather, upstream),
            explain=lambda call: _explained(self.settings, call),
            policy=lambda upstream: _policy_of(self._file, upstream),
            what_if=lambda *draft: _tried(self._file, self.settings, *draft),
            hidden=lambda: self._log.notices.hidden,
        )

    def _at_rest(self) -> tuple[int, int] | None:
        """How many calls have ended, and how many configurations were loaded; None while calls are under way, or if
        levels are kept in Redis, where other machines change them.
        """
        serving = self._serving
        if serving.usage.in_flight or serving.redis()[0] is not None:
            return None
        return serving.seen, self._metrics.reloads["success"]

    def _readiness(self) -> Readiness:
        return Readiness(
            ready=not self._draining and self._serving.is_ready,
            draining=self._draining,
            config_file=self._file or "",
            warnings=self._warnings,
            reload_errors=self._reload_errors,
            listen=[str(address) for address in self._listeners.addresses("listen")],
            in_flight=self._serving.usage.in_flight,
            credentials_aside=holders.credentials_aside(self.settings.router, self._serving.registry, monotonic()),
            redis={None: None, True: "up", False: "out"}[self._serving.redis()[0]],
        )

    async def _send_figures(self) -> None:
        """Send the metrics over OTLP again and again, if the environment asks for that."""
        while self._figures is not None:
            await asyncio.sleep(interval(os.environ))  # noqa: TID251  no call waits for it
            await self._send_once(self._figures)

    async def _send_once(self, sender: MetricSender) -> None:
        gauges = await self._gauges()
        sender.send(await gauge_view.copied(self._metrics), gauges, wall())

    async def _exposition(self, accept: str) -> tuple[bytes, str]:
        """The metrics as they are now, in the format that `accept` (a request's Accept field) asks for, and their
        content type; the text is made in a thread, from a copy.
        """
        gauges = await self._gauges()
        return await asyncio.to_thread(render, await gauge_view.copied(self._metrics), gauges, accept)

    async def _gauges(self) -> Gauges:
        """The values of the metrics that are read instead of counted."""
        serving = self._serving
        redis_up, redis_outages = serving.redis()
        return await gauge_view.gauges(
            self.settings,
            serving.registry,
            serving.usage,
            monotonic(),
            room=serving.room,
            weather=serving.weather,
            by_app=None if self.settings.apps is None else serving.weather.held_by_app(),
            begun=serving.cooldowns.counts,
            descriptors=self._machine.descriptors,
            wires=serving.wires,
            open_files=serving.open_files,
            workers=serving.workers(),
            worker_restarts=serving.restarts,
            worker_hangs=serving.hangs,
            redis_up=redis_up,
            redis_outages=redis_outages,
        )


def warnings(loaded: LoadResult) -> list[str]:
    """The warnings of a loaded configuration as lines, without its errors and notes."""
    return [str(problem) for problem in loaded.problems if problem.severity == "warning"]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _explained(settings: Settings, call: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `redrive explain` for a kept call. The lab is imported when this is first called."""
    from proxy.lab.explain.kept import explain_kept

    return explain_kept(settings, call)


def _policy_of(file: str | None, upstream: str) -> dict[str, Any] | None:
    """The parts of an upstream's policy that may be changed in a draft (the trial of another policy), as the file has
    them; None if the file has no such upstream.
    """
    from proxy.lab.what_if import shown

    return shown(file, upstream)


def _tried(
    file: str | None, settings: Settings, upstream: str, text: str, calls: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The errors of `text`, a draft of an upstream's policy (YAML), and what would have happened to the recorded
    `calls` under it; None if there is no such upstream in `file`.
    """
    from proxy.lab.what_if import tried

    return tried(file, os.environ, settings, upstream, text, calls)
