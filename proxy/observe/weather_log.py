"""The log of the last changes of weather of each upstream: limits and outages that began and are over.

/upstreams, /series and the dashboard read it. The log is bounded: it keeps the last EACH changes of an upstream, and
the MOST upstreams that changed last. No decision depends on it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from proxy.observe.held_apps import HeldByApp
from proxy.observe.weather import LaneWeather, added_up
from proxy.retry.weather.weather_changes import WeatherChanged

#: Changes of an upstream that are kept, and upstreams of which any are.
EACH, MOST = 40, 1000
#: Seconds within which workers notice the same change.
_SAME = 2.0
#: The reasons that are reported with how attempts ended.
_WITH_EVIDENCE = ("refused", "lost")
#: Changes that wait to be told to the parent, which asks every second: the last of them.
_NEWS = 200


class Noted(NamedTuple):
    """A change of weather (a limit or an outage that began or is over), and the process id of the worker that noticed
    it (0 if there are no workers).
    """

    change: WeatherChanged
    worker: int


class WeatherLog:
    """The log of the last changes of weather (limits and outages that began or are over) in one process, and the
    weather now. `look`: returns the lanes of this process's governors; `count`: returns the number of this process's
    held calls by app; both are None in the parent of workers, which uses what the workers have sent. `troubled`: the
    scopes (upstream, scope value) of this process in which there may be a limit or an outage.
    """

    def __init__(
        self,
        look: Callable[[], Iterable[LaneWeather]] | None = None,
        count: Callable[[], HeldByApp] | None = None,
    ) -> None:
        self._look = look
        self._count = count
        self._held_by_workers: dict[int, HeldByApp] = {}
        self.troubled: set[tuple[str, str]] = set()
        self._of_workers: dict[int, Sequence[LaneWeather]] = {}
        self._of: OrderedDict[str, deque[Noted]] = OrderedDict()
        self._news: deque[WeatherChanged] = deque(maxlen=_NEWS)

    def note(self, change: WeatherChanged, worker: int = 0) -> None:
        """Add a change that was noticed in this process, or by a worker with this process id."""
        if not worker:
            self._news.append(change)
            self.troubled.add((change.upstream, change.scope))
        kept = self._of.get(change.upstream)
        if kept is None:
            kept = self._of[change.upstream] = deque(maxlen=EACH)
            if len(self._of) > MOST:
                self._of.popitem(last=False)
        else:
            self._of.move_to_end(change.upstream)
        kept.append(Noted(change, worker))

    def lanes(self) -> list[LaneWeather]:
        """The lanes with a limit, an outage or held calls now."""
        return added_up(chain(*self._of_workers.values())) if self._look is None else list(self._look())

    def held_by_app(self) -> HeldByApp:
        """The calls that are held now, by upstream, app and cause, if apps have names."""
        return sum(self._held_by_workers.values(), HeldByApp()) if self._count is None else self._count()

    def heard(self, worker: int, lanes: Sequence[LaneWeather], held: HeldByApp) -> None:
        """Take what a worker has sent. `worker`: the worker's number; `lanes`: its lanes as they are now; `held`: its
        held calls by app.
        """
        self._of_workers[worker] = lanes
        self._held_by_workers[worker] = held

    def ended(self, worker: int) -> None:
        """Forget the lanes and the held calls of a worker that has ended."""
        self._of_workers.pop(worker, None)
        self._held_by_workers.pop(worker, None)

    def news(self) -> Sequence[WeatherChanged]:
        """The changes that were noticed in this process since this method was last called."""
        news = tuple(self._news)
        self._news.clear()
        return news

    def last(self, upstream: str) -> list[Noted]:
        """The changes of an upstream's weather that are kept, the oldest first."""
        return sorted(self._of.get(upstream, ()), key=lambda noted: noted.change.at)

    def began(self, lane: LaneWeather, event: str) -> WeatherChanged | None:
        """The change with which the limit (`event`: limit_began) or the outage (`event`: outage_began) of this lane
        began; None if the log does not keep it. If several workers noticed the beginning, the change with the most
        evidence is returned.
        """
        found = [noted.change for noted in self._of.get(lane.upstream, ())]
        began = [change for change in found if change.event == event and lane.is_of(change)]
        same = [change for change in reversed(began) if abs(change.at - began[-1].at) < _SAME]
        return max(same, key=lambda change: change.of, default=None)


class FirstAndLast:
    """The workers that have noticed each limit and each outage. Of the workers' reports, the log gets two: that of the
    first worker that saw the beginning by attempts of its own (its evidence), and that of the last worker that notices
    the end.
    """

    def __init__(self) -> None:
        self._noticed: dict[tuple[Any, ...], set[int]] = {}
        self._told: set[tuple[Any, ...]] = set()

    def is_news(self, pid: int, event: str, facts: Mapping[str, Any]) -> bool:
        """Note that a worker (`pid`) reports the beginning or the end of a limit or an outage. Returns whether the log
        gets the report: the first report of a beginning that has evidence, or the last report of an end. `event`: the
        name of the worker's notice; `facts`: the notice's facts.
        """
        kind, _, which = event.partition("_")
        key = kind, facts["upstream"], facts["endpoint"], facts["callers"], facts["observed"]
        pids = self._noticed.setdefault(key, set())
        if which == "began":
            pids.add(pid)
            if key in self._told or (not facts["of"] and facts["why"] in _WITH_EVIDENCE):
                return False  # a worker that only sees what another has found reports no evidence
            self._told.add(key)
            return True
        pids.discard(pid)
        if pids:
            return False
        del self._noticed[key]
        self._told.discard(key)
        return True

    def ended(self, pid: int) -> None:
        """Forget a worker that has ended."""
        for key, pids in list(self._noticed.items()):
            pids.discard(pid)
            if not pids:
                del self._noticed[key]
                self._told.discard(key)


#: The events of weather.
EVENTS = ("limit_began", "limit_over", "outage_began", "outage_over")
