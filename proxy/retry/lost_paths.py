"""The paths of one scope whose latest attempts, several in a row, ended without an answer of their upstream's own.

Contract, section 14: such attempts count only for their route and method, so that one path that always answers 503
(because it is polled, say) does not cause calls to other paths to be held. (choice) What is polled has a path of its
own, but seldom a route of its own. So if the attempts that fail in a row are all of one path, only that path has an
outage, as far as `proxy.retry.route_names.timed_route` tells paths apart. If they are of several paths, their route and
method have one.
"""

from __future__ import annotations

_NEVER = float("inf")
#: The most paths that are remembered, and the most failures of each.
_MOST, _KEPT = 256, 16
#: Seconds without a failure after which all are forgotten.
_FORGOTTEN_AFTER = 60.0


class LostPath:
    """The latest attempts of one path, which all ended without an answer. `count`: how many there are. `since`: the
    time at which the first of them ended (seconds). `endings`: how the latest of them ended.
    """

    __slots__ = ("count", "endings", "since")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.since = now
        self.endings: list[str] = []


class LostPaths:
    """The paths of one scope whose latest attempts ended without an answer. `rows`: those paths, each with its latest
    attempts. `answered_at`: the time at which an attempt of any path was last answered while there was such a path.
    Times are seconds on the callers' clock.
    """

    __slots__ = ("_latest", "answered_at", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, LostPath] = {}
        self.answered_at = -_NEVER
        self._latest = 0.0  # when an attempt ended without an answer last

    def lost(self, path: str, how: str, now: float) -> LostPath:
        """Note that an attempt of this path ended without an answer. `how`: how it ended (a status, or a kind of
        fault). Returns the path's latest such attempts.
        """
        self._latest = now
        row = self.rows.get(path)
        if row is None:
            if len(self.rows) >= _MOST:
                del self.rows[next(iter(self.rows))]
            row = self.rows[path] = LostPath(now)
        row.count += 1
        endings = row.endings
        if len(endings) >= _KEPT:
            del endings[0]
        endings.append(how)
        return row

    def answered(self, path: str, now: float) -> None:
        """Note that an attempt of this path was answered."""
        self.answered_at = now
        if now - self._latest > _FORGOTTEN_AFTER:
            self.rows.clear()
        else:
            self.rows.pop(path, None)
