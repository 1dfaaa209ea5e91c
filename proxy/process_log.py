"""The log of a process: the sink of its lines, its notices, and lines for people on standard error."""

from __future__ import annotations

import asyncio
import os

from proxy.config.settings import Settings
from proxy.hidden_values import later
from proxy.observe.access_log import is_for_people
from proxy.observe.metrics import Metrics
from proxy.observe.notices import LogTrouble, Notices
from proxy.observe.sink import LineSink, Turn
from proxy.observe.telemetry import log_sender
from proxy.runtime import OUT
from proxy.transport.clock import wall

#: Standard error, where lines for people go.
_ERRORS = 2


class ProcessLog:
    """The log of a process. `sink` takes its lines, `notices` writes what the process reports about itself, and
    `trouble` reports that lines can't be written. `metrics` counts lines that are lost; `turn` is whose turn it is to
    write, if several processes write the log.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, settings: Settings, metrics: Metrics, turn: Turn | None
    ) -> None:
        pid, console = os.getpid(), is_for_people(settings.log.format, OUT)
        # A sink like the log's, so that a reader that does not read delays nothing.
        self._people = LineSink(_ERRORS, loop.call_later)
        self.trouble = LogTrouble(self._to_people)
        self.sink = LineSink(OUT, loop.call_later, turn, metrics.lost, lambda why: self.trouble.report(pid, why))
        self.notices = Notices(self.sink, self._to_people, wall, console=console)
        self.notices.hidden = settings.hidden
        self.notify = self.notices.notify
        self.notices.also = log_sender(os.environ, self.notify)

    def _to_people(self, line: str) -> None:
        """Write a line for people to standard error."""
        self._people.add_now(f"{line}\n")

    def use(self, settings: Settings) -> None:
        """Write as this configuration says from now on."""
        self.notices.console = is_for_people(settings.log.format, OUT)
        self.notices.hidden = later(settings.hidden, self.notices.hidden)

    def close(self) -> None:
        """Write what is left, and end."""
        if self.notices.also is not None:
            self.notices.also.close()
        self.sink.close()
        self._people.close()
