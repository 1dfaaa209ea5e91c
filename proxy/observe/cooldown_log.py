"""The log of the last cooldowns of each upstream and of the calls that began them. /upstreams, /series and the
dashboard read it. Each cooldown that begins in this process is also an event of the process.

The log is bounded: it keeps the last EACH cooldowns of an upstream, and the MOST upstreams whose cooldowns are the
latest. Query values in a path are masked, and a path is cut after PATH characters. No decision depends on this log.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from proxy.observe import masking
from proxy.observe.weather import callers
from proxy.retry.weather.cooldown import ALL_CALLERS, CooldownBegan

#: Cooldowns of an upstream that are kept, and upstreams of which any are.
EACH, MOST = 20, 1000
#: Characters of a path that are kept.
PATH = 200
#: Seconds between the ends of two cooldowns from which on they are two, where one was heard of through Redis.
_APART = 1.0
#: Seconds between two cooldowns of an upstream that the process reports in its log.
_REPORTED_EVERY = 1.0
#: Cooldowns that wait to be told to the parent, which asks every second: the last of them.
_NEWS = 200


class Begun(NamedTuple):
    """A cooldown that began, and the process id of the worker whose call began it (0 if there are no workers)."""

    began: CooldownBegan
    worker: int


class CooldownLog:
    """The log of the last cooldowns, in one process. `counts`: for each upstream, the number of cooldowns that have
    begun here, including those that the log no longer keeps.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._begun: OrderedDict[str, deque[Begun]] = OrderedDict()
        self._news: deque[CooldownBegan] = deque(maxlen=_NEWS)
        self._reported: dict[str, float] = {}  # by upstream, when the last cooldown that is an event began

    def note(self, began: CooldownBegan, worker: int = 0) -> None:
        """Add a cooldown that began: by a call of this process, by a call of a worker (`worker` is its process id), or
        elsewhere, as Redis reported.
        """
        self.counts[began.upstream] += not began.is_elsewhere
        path = masking.target(began.path)
        if len(path) > PATH:
            path = f"{path[:PATH]}…"
        if path != began.path:
            began = replace(began, path=path)
        if not worker:
            self._news.append(began)
        kept = self._begun.get(began.upstream)
        if kept is None:
            kept = self._begun[began.upstream] = deque(maxlen=EACH)
            if len(self._begun) > MOST:
                self._reported.pop(self._begun.popitem(last=False)[0], None)
        else:
            self._begun.move_to_end(began.upstream)
        same = next((each for each in kept if _is_same(each.began, began)), None)
        if same is not None and began.is_elsewhere:
            return  # another worker got it too, or it began here
        if same is not None and same.began.is_elsewhere:
            kept.remove(same)
        kept.append(Begun(began, worker))

    def is_event(self, began: CooldownBegan) -> bool:
        """Whether a cooldown that `note` added is to be reported as an event of the process. At most one in a second is
        reported for each upstream, so that thousands of credentials that are throttled together do not fill the log.
        """
        if began.at - self._reported.get(began.upstream, -math.inf) < _REPORTED_EVERY:
            return False
        self._reported[began.upstream] = began.at
        return True

    def news(self) -> Sequence[CooldownBegan]:
        """The cooldowns that began in this process since this method was last called."""
        news = tuple(self._news)
        self._news.clear()
        return news

    def last(self, upstream: str) -> list[Begun]:
        """The cooldowns of an upstream that are kept, the oldest first."""
        return sorted(self._begun.get(upstream, ()), key=lambda begun: begun.began.at)

    def in_force(self, upstream: str, now: float) -> Begun | None:
        """The cooldown that ends last among those of an upstream; None if all have ended by `now`."""
        last = max(self._begun.get(upstream, ()), key=lambda begun: begun.began.until, default=None)
        return last if last is not None and last.began.until > now else None


def _is_same(one: CooldownBegan, other: CooldownBegan) -> bool:
    """Whether two entries stand for the same cooldown: at least one of them was reported through Redis, they hold the
    same group of calls, and they end at nearly the same time.
    """
    heard = one.is_elsewhere or other.is_elsewhere
    return heard and one.group == other.group and abs(one.until - other.until) < _APART


def line(began: CooldownBegan) -> str:
    """A cooldown that began, in words for people: where it began, how long it lasts, which answer began it, and which
    calls wait.
    """
    where = began.upstream + (f": {began.endpoint}" if began.endpoint else "")
    who = "all calls" if began.group == ALL_CALLERS else callers(began.group)
    return f"{where}: a {began.status} to {began.method} asked for {began.delay:.3g} s ({began.field}): {who} wait"


def facts(began: CooldownBegan) -> dict[str, Any]:
    """A cooldown that began, as data for machines."""
    return {
        "upstream": began.upstream,
        "endpoint": began.endpoint or None,
        "route": began.route,
        "callers": callers(began.group),
        "status": began.status,
        "field": began.field,
        "seconds": round(began.delay, 3),
        "method": began.method,
        "attempt": began.attempt,
    }
