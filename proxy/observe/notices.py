"""Notices: what the process reports about itself, for example that it started, that it took or refused a new
configuration, or that it is draining.

Notices are few and never dropped. With the JSON log each notice is one line among the calls; with the console log it is
a line for people on standard error, which also gets the banner.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from proxy.hidden_values import HiddenValues, shown, shown_data
from proxy.observe.call_json import timestamp
from proxy.observe.sink import ClosingSink, Sink


class Notices:
    """The writer of notices. `wall`: gives the time of each notice; `people`: takes the lines that are meant for a
    terminal.
    """

    def __init__(self, sink: Sink, people: Callable[[str], None], wall: Callable[[], float], *, console: bool) -> None:
        self._sink = sink
        self._people = people
        self._wall = wall
        self.console = console
        self.also: ClosingSink | None = None  # takes each notice too, as JSON whatever the form
        self.hidden: HiddenValues | None = None  # what no notice shows

    def notify(self, event: str, lines: list[str], **facts: Any) -> None:
        """Write one notice: `event` names what happened, `facts` describe it for machines, `lines` for people."""
        if self.console:
            for line in lines:
                self._people(f"redrive: {shown(line, self.hidden)}")
        for sink in (None if self.console else self._sink, self.also):
            if sink is not None:
                entry = {"time": timestamp(self._wall()), "event": event, **facts}
                sink.add(json.dumps(shown_data(entry, self.hidden), separators=(",", ":")) + "\n")

    def banner(self, lines: list[str]) -> None:
        """Write the first lines of a process, for people, whichever format the log has."""
        for line in lines:
            self._people(shown(line, self.hidden))


class LogTrouble:
    """The reporter of failures to write the access log, for all processes that write it. Reports are lines on standard
    error, since the log itself can't take them. There is one report when a process can't write while all others can,
    and one when all processes can write again.
    """

    def __init__(self, people: Callable[[str], None]) -> None:
        self._people = people
        self._within: set[int] = set()

    def report(self, pid: int, why: str) -> None:
        """Note the reason `why` the process `pid` can't write lines; "" means that the process can write again."""
        before = bool(self._within)
        (self._within.add if why else self._within.discard)(pid)
        if why and not before:
            self._people(f"redrive: the log can't be written: {why}; calls go on (redrive_log_lines_lost_total counts)")
        elif before and not self._within:
            self._people("redrive: the log is written again")

    def ended(self, pid: int) -> None:
        """Forget a process that has ended."""
        self._within.discard(pid)
