"""The use that one worker makes of everything that has a limit, as it publishes it, and its heartbeat."""

from __future__ import annotations

from proxy.resources import Usage, open_files
from proxy.supervisor.rows import Rows

#: Seconds between looks at what the other workers use of the limits; and the same while this worker drains.
_LOOK, _LOOK_CLOSELY = 0.1, 0.02
#: Looks between counts of open files, which cost more.
_SELDOM = 10


class WorkerUsage:
    """The use of one worker. `row`: its row in shared memory, 0 until it has begun; `pause`: the seconds between two
    looks at what the other workers use.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._looks = 0
        self.row = 0
        self.pause = _LOOK

    def look_closely(self) -> None:
        """Look more often from now on, since the worker drains."""
        self.pause = _LOOK_CLOSELY

    def publish(self, usage: Usage, seen: int) -> None:
        """Publish the worker's usage, and the number of calls that it has seen."""
        self._looks += 1
        files = open_files() if self._looks % _SELDOM == 1 else None
        self._rows.write(self.row, usage, seen, files)

    def of_others(self) -> Usage:
        """The usage of all other workers together."""
        return self._rows.total(but=self.row)

    def beat(self) -> None:
        """Show that the worker is not stuck."""
        self._rows.beat(self.row)

    def beats_no_more(self) -> None:
        """Show that the worker ends, so that its heartbeat is not missed."""
        self._rows.beats_no_more(self.row)
