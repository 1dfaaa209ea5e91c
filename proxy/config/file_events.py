"""The system's reports that files may have changed (inotify on Linux), so that they need not be polled often.

A report is a hint: it says that something happened to a name in a folder, and not whether a file's content changed.
Names of other files, a log's say, do not count. Of each watch only the first report counts; then everything is watched
again on request, so that files that are written to all the time cost no more than polling does. Where a place can't be
watched, the files are polled as often as without such reports.
"""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
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
        """Watch these files, and the folders of the globs `patterns`. Returns whether all of it is watched now; if not,
        nothing is.
        """
        self.close()
        places = places_of(files, patterns)
        if self._watch is None or places is None or len(places) > _MOST:
            return False
        try:
            for place, names in sorted(places.items()):
                self._watches.append(self._watch(place, partial(self._report, names)))
        except OSError:  # a folder that is not there, or a limit of the system
            self.close()
        return bool(self._watches)

    def close(self) -> None:
        """End all watches."""
        watches, self._watches = self._watches, []
        for each in watches:
            each.cancel()

    def _report(self, names: Iterable[str], name: bytes | str | None, *_: object) -> None:
        """Take a report about `name` in a place where these `names` count, globs; None: the system does not say which
        name it is about.
        """
        if not self._watches or (name and not any(fnmatchcase(os.fsdecode(name), each) for each in names)):
            return
        self.close()
        self._stirred()


def places_of(files: Iterable[str], patterns: Iterable[str]) -> Mapping[str, set[str]] | None:
    """The files and folders to watch, so that no change of `files`, or of the files that the globs `patterns` find, is
    missed. Each comes with the names in it that count, as globs: a folder's own name, and the names of files and links
    on the way to the files. None if a glob has a wildcard in its folder, since the folders to watch are then not known.
    """
    places: dict[str, set[str]] = {}
    ways = [way for file in files for way in _ways(file)]
    for way in ways:
        places.setdefault(str(way.parent), {glob.escape(way.parent.name)}).add(glob.escape(way.name))
    for way in ways:
        if way.exists():
            places.setdefault(str(way.resolve()), {"*"})
        for folder in way.parents:
            if str(folder.parent) in places:  # a link in the way to another folder, such as ..data
                places[str(folder.parent)].add(glob.escape(folder.name))
    for pattern in patterns:
        place, name = os.path.split(pattern)
        if any(mark in place for mark in "*?["):
            return None
        places.setdefault(place or ".", {glob.escape(Path(place).name)}).add(name)
    return places


def _ways(file: str) -> Iterator[Path]:
    """The absolute paths by which a file is found: its own, those to which links lead from there, and the real one."""
    path = Path(file).absolute()
    for _ in range(_LINKS):
        yield path
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    yield Path(file).resolve()
