"""Who began the last cooldowns of each upstream: read by /upstreams, /series and the dashboard.

It is bounded: the last EACH of an upstream, and of MOST upstreams those that began one last. The values of
a path's query are masked, and it is cut after PATH characters. Nothing is decided by what stands here.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from proxy.observe import masking
from proxy.retry.cooldown import CooldownBegan

#: Cooldowns of an upstream that are kept, and upstreams of which any are.
EACH, MOST = 20, 1000
#: Characters of a path that are kept.
PATH = 200
#: Seconds between the ends of two cooldowns from which on they are two, where one was heard of through Redis.
_APART = 1.0
#: Cooldowns that wait to be told to the parent, which asks every second: the last of them.
_NEWS = 200


class Begun(NamedTuple):
    """A cooldown that began, and the worker whose call it was (0: there are none)."""

    began: CooldownBegan
    worker: int


class CooldownLog:
    """See the module. One for each process. `counts`: how many each upstream has begun here, forgotten ones too."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._begun: OrderedDict[str, deque[Begun]] = OrderedDict()
        self._news: deque[CooldownBegan] = deque(maxlen=_NEWS)

    def note(self, began: CooldownBegan, worker: int = 0) -> None:
        """A cooldown began: by a call of this process, of a worker (by its process id), or elsewhere, as Redis told."""
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
                self._begun.popitem(last=False)
        else:
            self._begun.move_to_end(began.upstream)
        same = next((each for each in kept if _is_same(each.began, began)), None)
        if same is not None and began.is_elsewhere:
            return  # another worker got it too, or it began here
        if same is not None and same.began.is_elsewhere:
            kept.remove(same)
        kept.append(Begun(began, worker))

    def news(self) -> Sequence[CooldownBegan]:
        """Those that began here since this was asked last."""
        news = tuple(self._news)
        self._news.clear()
        return news

    def last(self, upstream: str) -> list[Begun]:
        """Those of an upstream that are kept, the oldest first."""
        return sorted(self._begun.get(upstream, ()), key=lambda begun: begun.began.at)

    def in_force(self, upstream: str, now: float) -> Begun | None:
        """That of an upstream whose delay ends last, if it is not over."""
        last = max(self._begun.get(upstream, ()), key=lambda begun: begun.began.until, default=None)
        return last if last is not None and last.began.until > now else None


def _is_same(one: CooldownBegan, other: CooldownBegan) -> bool:
    """Whether two are one, of which at least one heard through Redis."""
    heard = one.is_elsewhere or other.is_elsewhere
    return heard and one.group == other.group and abs(one.until - other.until) < _APART
