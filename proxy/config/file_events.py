"""The system's reports that files may have changed (inotify on Linux), so that they need not be polled often.

A report is a hint: it says that something happened in a folder, and not whether a file's content changed. Of each watch
only the first report counts; then everything is watched again on request, so that a folder that is written to all the
time costs no more than polling does. Where a place can't be watched, the files are polled as often as without such
reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

#: The most files and folders that are watched; more are polled.
_MOST = 64
#: The most symbolic links that are followed from a file.
_LINKS = 8


class FileEvents:
    """The watches on files and their folders. `stirred` is called, on the loop, when the system first reports that
    something may have changed in any of them.
    """

    def __init__(self, stirred: Callable[[], None]) -> None:
        # uvloop's; another loop has none. The call is uvloop's own and not documented, so its absence is no error.
        self._watch = getattr(asyncio.get_running_loop(), "_monitor_fs", None)
        self._stirred = stirred
        self._watches: list[Any] = []

    def watch(self, files: Iterable[str], patterns: Iterable[str]) -> bool:
        """Watch these files, and the folders of these globs. Returns whether all of it is watched now; if not, nothing
        is.
        """
        self.close()
        places = places_of(files, patterns)
        if self._watch is None or places is None or len(places) > _MOST:
            return False
        try:
            for place in sorted(places):
                self._watches.append(self._watch(place, self._report))
        except OSError:  # a folder that is not there, or a limit of the system
            self.close()
        return bool(self._watches)

    def close(self) -> None:
        """End all watches."""
        watches, self._watches = self._watches, []
        for each in watches:
            each.cancel()

    def _report(self, *_: object) -> None:
        if self._watches:
            self.close()
            self._stirred()


def places_of(files: Iterable[str], patterns: Iterable[str]) -> set[str] | None:
    """The files and folders to watch, so that no change of these files, or of what these globs find, is missed; None if
    a glob has a wildcard in its folder, since the folders to watch are then not known.
    """
    places: set[str] = set()
    for file in files:
        path = Path(file).absolute()
        for _ in range(_LINKS):
            places.add(str(path.parent))
            if not path.is_symlink():
                break
            path = path.parent / path.readlink()
        real = Path(file).resolve()
        places.add(str(real.parent))
        if real.exists():
            places.add(str(real))
    for pattern in patterns:
        folder = str(Path(pattern).parent)
        if any(mark in folder for mark in "*?["):
            return None
        places.add(folder)
    return places
