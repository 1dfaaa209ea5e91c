"""The attempts of one scope that ended in a row without an answer of their upstream's own: the latest of each endpoint,
of each route and method, and of each path.

Contract, section 14: a connection that is not made counts for its endpoint. Any other attempt without an answer counts
only for its route and method, so that one path that always answers 503 (because it is polled, say) does not cause calls
to other paths to be held. (choice) What is polled has a path of its own, but seldom a route of its own. So if the
attempts that fail in a row are all of one path, only that path has an outage, as far as
`proxy.retry.weather.route_names.timed_route` tells paths apart. If they are of several paths, their route and method
have one.

Where processes share an upstream's lanes, an override counts the attempts of all of them (`is_shared`).
"""

from __future__ import annotations

from typing import TypeAlias

from proxy.retry.weather.route_names import RouteNames

_NEVER = float("inf")
#: The most routes and paths that are remembered, and the most endings of each.
_MOST, _KEPT = 256, 16
#: Seconds without a failure after which all paths are forgotten.
FORGOTTEN_AFTER = 60.0

#: The only attempt that has ended without an answer since all lanes of its scope answered: the names of its route, how
#: it ended (a status), its number among the endpoint's attempts, and when it ended (seconds).
LoneLoss: TypeAlias = tuple[RouteNames, str, int, float]


class LostRow:
    """Attempts in a row that ended without an answer, of one endpoint, route or path. `count`: how many there are.
    `since`: the time at which the first of them ended (seconds). `endings`: how the latest of them ended.
    `answered_at`: when the path was answered last, as far as is known.
    """

    __slots__ = ("answered_at", "count", "endings", "since")

    def __init__(self, since: float, count: int = 0) -> None:
        self.count = count
        self.since = since
        self.endings: list[str] = []
        self.answered_at = -_NEVER

    def add(self, how: str) -> None:
        """Add an attempt to the row. `how`: how it ended (a status, or a kind of fault)."""
        self.count += 1
        endings = self.endings
        if len(endings) >= _KEPT:
            del endings[0]
        endings.append(how)


class LostRows:
    """The rows of one scope. `endpoints`: those of endpoints, by the endpoint's label. `rows`: those of routes and
    methods, and of paths. `answered_at`: the time at which an attempt of any path was last answered while there was
    such a row. `lone`: an attempt that is noted, but counts only once another one fails; None for none. Times are
    seconds on the callers' clock.
    """

    #: Whether the attempts of other processes are counted too.
    is_shared = False
    __slots__ = ("_latest", "answered_at", "endpoints", "lone", "rows")

    def __init__(self) -> None:
        self.endpoints: dict[object, LostRow] = {}
        self.rows: dict[object, LostRow] = {}
        self.lone: LoneLoss | None = None
        self.answered_at = -_NEVER
        self._latest = 0.0  # when an attempt of a route ended without an answer last

    def is_suspected(self, endpoint: str) -> bool:
        """Whether the latest attempt to this endpoint could not connect."""
        return endpoint in self.endpoints

    def lost_endpoint(self, endpoint: str, how: str, answered_at: float, now: float) -> LostRow:
        """Count an attempt that could not connect to this endpoint, and return the endpoint's row. `how`: how it ended.
        `answered_at`: the time of the endpoint's last answer; a row that is older begins again.
        """
        return _add(self.endpoints, endpoint, how, answered_at, now)

    def endpoint_answered(self, endpoint: str) -> bool:
        """End the row of this endpoint, since an attempt was answered. Returns whether there was one."""
        return self.endpoints.pop(endpoint, None) is not None

    def lost_route(self, endpoint: str, names: RouteNames, how: str, again: bool, now: float) -> LostRow:
        """Count an attempt of a route at this endpoint that ended without an answer, and return the row of the route
        and method. `names`: the route's names. `how`: how the attempt ended. `again`: the row begins with this attempt.
        """
        return _add(self.rows, (endpoint, names.lost), how, _NEVER if again else -_NEVER, now)

    def lost_path(self, endpoint: str, names: RouteNames, how: str, answered_at: float, now: float) -> LostRow:
        """Count an attempt of a path at this endpoint that ended without an answer, and return the path's row. `names`:
        the names of its route. `how`: how the attempt ended. `answered_at`: when the path was answered last, as this
        process knows it.
        """
        self._latest = now
        row = _add(self.rows, (endpoint, names.timed), how, -_NEVER, now)
        row.answered_at = max(row.answered_at, answered_at)
        return row

    def answered(self, endpoint: str, names: RouteNames, now: float) -> bool:
        """End the rows of a route and of its path, since an attempt was answered. `names`: the route's names. Returns
        whether the route had one.
        """
        rows = self.rows
        had = rows.pop((endpoint, names.lost), None) is not None
        self.answered_at = now
        if now - self._latest > FORGOTTEN_AFTER:
            for key in [key for key in rows if _is_path(key)]:
                del rows[key]
        else:
            rows.pop((endpoint, names.timed), None)
        return had

    def route_answered_at(self, names: RouteNames) -> float:
        """The time at which an attempt of this route and method was last answered in another process, as far as is
        known; minus infinity if none was. `names`: the route's names.
        """
        return -_NEVER

    def path_answered_at(self, names: RouteNames) -> float:
        """The time at which an attempt of this path was last answered in another process, as far as is known; minus
        infinity if none was. `names`: the names of its route.
        """
        return -_NEVER


def _is_path(key: object) -> bool:
    """Whether this key of `LostRows.rows` is that of a path."""
    return isinstance(key, tuple) and isinstance(key[1], str)


def _add(rows: dict[object, LostRow], key: object, how: str, answered_at: float, now: float) -> LostRow:
    """Add an attempt to the row with this key, which is made if there is none, and return the row. `how`: how the
    attempt ended. `answered_at`: the time of the last answer; a row that began before begins again.
    """
    row = rows.get(key)
    if row is None or answered_at > row.since:
        if row is None and len(rows) >= _MOST:
            del rows[next(iter(rows))]
        row = rows[key] = LostRow(now)
    row.add(how)
    return row
