"""The reports of workers to their parent: counts, shared state, and notices, of which the log gets the first."""

from __future__ import annotations

from typing import Any

from proxy.config.settings import Settings
from proxy.observe.aggregate import Aggregate
from proxy.observe.cooldown_log import CooldownLog
from proxy.observe.held_apps import HeldByApp
from proxy.observe.notices import LogTrouble
from proxy.observe.weather_log import EVENTS, FirstAndLast, WeatherLog
from proxy.retry.scopes.idle_scopes import IdleScopes
from proxy.retry.scopes.registry import Registry
from proxy.runtime import policies_of
from proxy.server.fleet import Fleet, Outages
from proxy.server.intercept.interception import Notify
from proxy.stores.shared_memory.factory import SharedFactory
from proxy.stores.shared_memory.records import Memory
from proxy.supervisor.channel import Counted
from proxy.supervisor.slots import WorkerProcess
from proxy.transport.clock import monotonic


class WorkerReports:
    """The reports of all workers, added up. `registry` has the state that their calls share, as the parent sees it;
    `gathered` adds up what they count, `weather` and `cooldowns` keep what they noticed.
    """

    def __init__(
        self, settings: Settings, memory: Memory, gathered: Aggregate, notify: Notify, trouble: LogTrouble
    ) -> None:
        self.gathered = gathered
        self.trouble = trouble
        self.cooldowns, self.weather = CooldownLog(), WeatherLog()
        self._notify = notify
        self._factory = SharedFactory(memory)
        self._fleet = Fleet(self._factory, settings, notify, observes=True)
        self._outages = Outages()
        self._noticed = FirstAndLast()
        self.registry = Registry(self._fleet)
        self.registry.forget_policies(policies_of(settings), settings.buckets)
        self._idle_scopes = IdleScopes(self.registry, only_looks=True)

    def use(self, settings: Settings, generation: int) -> list[object]:
        """Use this configuration, of the given generation, from now on; return what is to be released of the old."""
        self._factory.generation = generation
        self._fleet.use(settings)
        return self.registry.forget_policies(policies_of(settings), settings.buckets, monotonic())

    def note(self, event: str, lines: list[str], facts: dict[str, Any]) -> None:
        """Write a worker's notice to the log: of what all workers notice, only the first notice is written."""
        if event == "redis":
            is_news = self._outages.is_news(facts["pid"], facts["state"])
        else:
            is_news = event not in EVENTS or self._noticed.is_news(facts["pid"], event, facts)
        if is_news:
            self._notify(event, lines, **facts)

    def add_up(self, worker: WorkerProcess, counted: Counted, *, is_over: bool) -> None:
        """Add up what a worker has counted (not what a worker counts that `is_over`, which is known already), and enter
        the shared state (such as buckets) that it has begun to use in the registry.
        """
        if not is_over:
            self.gathered.keep(worker.number, counted.report)
            self.weather.heard(worker.number, counted.weather, counted.held or HeldByApp())
        for began in counted.cooldowns:
            self.cooldowns.note(began, worker.pid)
        for change in counted.changes:
            self.weather.note(change, worker.pid)
        generation, self._factory.generation = self._factory.generation, counted.generation
        for sort, key, spec in counted.made:
            self.registry.mirror(sort, key, spec, monotonic())
        self._factory.generation = generation
        self._factory.made.clear()

    def ended(self, worker: WorkerProcess) -> None:
        """Take note that a worker's process has ended: what it counted stays counted, its notices are over."""
        self._outages.ended(worker.pid)
        self.trouble.ended(worker.pid)
        self.gathered.ended(worker.number)
        self.weather.ended(worker.number)
        self._noticed.ended(worker.pid)

    def sweep(self) -> None:
        """Look for scopes that have been idle, and whose state may be forgotten."""
        self._idle_scopes.sweep(monotonic())

    def redis(self) -> tuple[bool | None, int]:
        """Whether all workers reach Redis (None if the configuration does not use it), and how many times it became
        unavailable.
        """
        return (None if self._fleet.is_up is None else not self._outages.is_out), self._outages.count

    async def refresh(self) -> None:
        """Read the levels of the buckets that are kept in Redis, for display."""
        await self._fleet.refresh()

    async def close(self) -> None:
        """Take what has been counted last, and end the connection to Redis."""
        self.gathered.take()
        await self._fleet.close()
