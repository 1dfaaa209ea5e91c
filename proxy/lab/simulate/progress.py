"""How far each column is, on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from proxy.lab.simulate.columns import Column
from proxy.lab.simulate.side_by_side import Watch

#: Seconds between two pictures.
_PACE = 0.1


@contextlib.contextmanager
def shown(columns: Sequence[Column]) -> Iterator[Watch]:
    """A bar for each column on standard error while it is a terminal; it is taken away at the end."""
    if not sys.stderr.isatty():
        yield lambda number, share: None
        return
    drawn = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # drawn by whoever tells: a thread of its own would be alive while processes are forked
    with Progress(*drawn, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        tasks = [progress.add_task(column.name, total=1.0) for column in columns]
        last = progress.get_time()

        def watch(number: int, share: float) -> None:
            nonlocal last
            progress.update(tasks[number], completed=share)
            if (now := progress.get_time()) - last >= _PACE:
                last = now
                progress.refresh()

        progress.refresh()
        yield watch
