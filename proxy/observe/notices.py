"""What the process reports about itself: it started, it took or refused a new configuration, it is draining.

Notices are few and never dropped. With the JSON log each notice is one line among the calls; with the console log it is
a line for people on standard error, where the banner goes too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from proxy.observe.call_json import timestamp
from proxy.observe.sink import Sink


class Notices:
    """`wall` is asked for the time of each notice; `people` takes the lines meant for a terminal."""

    def __init__(self, sink: Sink, people: Callable[[str], None], wall: Callable[[], float], *, console: bool) -> None:
        self._sink = sink
        self._people = people
        self._wall = wall
        self.console = console

    def tell(self, event: str, lines: list[str], **facts: Any) -> None:
        """One notice: `facts` for machines, `lines` for people."""
        if self.console:
            for line in lines:
                self._people(f"redrive: {line}")
            return
        entry = {"time": timestamp(self._wall()), "event": event, **facts}
        self._sink.add(json.dumps(entry, separators=(",", ":")) + "\n")

    def banner(self, lines: list[str]) -> None:
        """The first lines, for people in either form."""
        for line in lines:
            self._people(line)
