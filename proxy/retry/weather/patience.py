"""The patience of apps: how long a call of a route may be held before its app leaves.

Contract, section 14: "where apps left while they were held (three in the last ten minutes, for each route), no call of
that route is held for longer than three quarters of the shortest time that one of them waited; below 250 ms none is".
So a route's calls are bounded once three of its apps have left within ten minutes; and if three quarters of the
shortest wait are less than 250 ms, no call of the route is held at all.

Two kinds of departure say nothing about patience, since the app itself has ended and has taken all its connections with
it: one within milliseconds, which no timeout of a client is as short as, and several at one moment after unlike waits,
where clients that lose patience at one moment have waited equally long. The latter count as one departure, after the
longest of these waits.
"""

from __future__ import annotations

from collections import deque

_NEVER = float("inf")
#: The number of apps that have to leave, and the seconds within which, before their patience counts.
_APPS, _WITHIN = 3, 600.0
#: The part of the shortest patience for which a call is held; and the time below which holding is of no use.
_PART, _LEAST = 0.75, 0.25
#: The shortest wait, in seconds, after which an app's leaving is taken for a lack of patience.
_SHORTEST = 0.02
#: The seconds within which departures are of one moment; two waits are unlike if one is longer than this multiple of
#: the other, and these seconds, by which a busy machine notices departures late.
_MOMENT, _UNLIKE, _JITTER = 0.1, 1.25, 0.05
#: The most departures that are kept for each route, and the most routes.
_KEPT, _MOST_ROUTES = 16, 256


class Patience:
    """The times after which apps left while their calls were held, for each route. Times are seconds on the callers'
    clock.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: dict[str, deque[tuple[float, float]]] = {}

    def left(self, route: str, waited: float, now: float) -> None:
        """Note that the app of a call of this route left after it was held for `waited` seconds."""
        if waited < _SHORTEST:
            return
        if route not in self._left and len(self._left) >= _MOST_ROUTES:
            del self._left[next(iter(self._left))]
        departures = self._left.setdefault(route, deque(maxlen=_KEPT))
        moment = [each for each in departures if each[0] > now - _MOMENT]
        waits = [waited, *(each[1] for each in moment)]
        if max(waits) > _UNLIKE * min(waits) + _JITTER:
            for _ in moment:
                departures.pop()
            waited = max(waits)
        departures.append((now, waited))

    def of(self, route: str, now: float) -> float:
        """The most seconds for which a call of this route may be held; infinity if the patience of the route's apps is
        not known.
        """
        left = self._left.get(route)
        if not left:
            return _NEVER
        while left and left[0][0] < now - _WITHIN:
            left.popleft()
        if len(left) < _APPS:
            return _NEVER
        patience = _PART * min(waited for _, waited in left)
        return patience if patience >= _LEAST else 0.0
