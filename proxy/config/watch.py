"""The watcher of a configuration: it loads the files again when they change on disk.

The watcher polls a file's size, times and inode a few times a second, but only a change of its content counts: an
editor saves by renaming, Kubernetes swaps a symlink two levels up (`..data`), and no system reports all of that, for
every file system and for any number of files. While the system reports changes (`proxy.config.file_events`), it is
polled seldom. A change is read once the file has stayed the same from one poll to the next. The content is also read
every second, in case a change left size, times and inode as they were; while the system reports changes, it is read
after each report, and otherwise every minute. Its digest is taken before and after the file is read: a file that
changed in between is read again. A file that is suddenly empty is probably being written: it is polled once more before
it is read. One that stays empty is refused, like a file with errors. Loading runs in a thread, and the loop continues
to serve.
"""

from __future__ import annotations

import asyncio
import glob
import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

from proxy.config.file_events import FileEvents
from proxy.config.load import Edit, LoadResult, load
from proxy.config.problems import Problem, Stamp, stamp_of
from proxy.config.provenance import uncollected
from proxy.config.yaml_tree import pieces

#: Seconds between looks at the files' stamps, and the most seconds between looks at their contents.
GLANCE, LOOK = 0.25, 1.0
#: The same while the system reports changes, in case it does not report one: those of a network's file system, for
#: example. Some such systems keep a file's times too.
REST, SELDOM = 5.0, 60.0
#: How many times a file that changes all the time is read before the last result is used.
_READS = 10

#: A function that takes the result of a load and its reason: "file", or what the caller of `reload` gave: "SIGHUP",
#: "POST /reload".
OnLoad = Callable[[LoadResult, str], None]


class Watcher:
    """A watcher that loads a file again when it changes, or on request. `on_load` is called on the loop, once for each
    load. `loaded` is the result that the process runs on; it says which files to watch. `edit` changes the tree of each
    file that is read, before its ${NAME} are replaced.
    """

    def __init__(
        self,
        file: str | None,
        environ: Mapping[str, str],
        loaded: LoadResult,
        on_load: OnLoad,
        edit: Edit | None = None,
    ) -> None:
        self._edit = edit
        self._file = file
        self._environ = environ
        self._on_load = on_load
        self._one_at_a_time = asyncio.Lock()
        self._files = loaded.files
        self._patterns = loaded.patterns
        self._digest = digest(self._files, self._patterns)
        if any(stamp_of(file) != before for file, before in loaded.stamps.items()):
            self._digest = b""  # written after it was loaded, perhaps: the first look loads it again
        self._seen_empty: Stamp | None = None
        self._filled = _with_text(loaded)

    async def reload(self, why: str) -> LoadResult:
        """Load the configuration now, whether or not its content has changed, for the reason `why`. A call while
        another load runs waits for that, and then loads again.
        """
        async with self._one_at_a_time:
            result, known, _ = await self._read()
            await self._take(result, known, why)
            return result

    async def run(self) -> None:
        """Watch until cancelled; without a file, return at once."""
        if self._file is None:
            return
        loop, changed, poll = asyncio.get_running_loop(), asyncio.Event(), _Poll()
        events = FileEvents(poll.stirred.set)

        def report() -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(changed.set)

        def watch() -> bool:
            """Have the system report changes. Called in another thread than the loop's. Returns whether the system
            does.
            """
            done: Future[bool] = Future()
            with suppress(RuntimeError, TimeoutError):
                loop.call_soon_threadsafe(lambda: done.set_result(events.watch(self._files, self._patterns)))
                return done.result(LOOK)
            return False

        threading.Thread(target=self._poll, args=(poll, report, watch), name="configuration", daemon=True).start()
        try:
            while True:
                await changed.wait()
                changed.clear()
                await self.look()
        finally:
            poll.end()
            events.close()

    def _poll(self, poll: _Poll, report: Callable[[], None], watch: Callable[[], bool]) -> None:
        """Look at the files until `poll` ends, and call `report` whenever their content is another than what was
        loaded. One thread does this from beginning to end, so that the loop sleeps while nothing changes. `watch` has
        the system report changes, if it can: then the thread sleeps too.
        """
        stood: list[tuple[str, Stamp]] = []
        read, unread, pause = stood, 0.0, GLANCE
        is_same = True
        watched: tuple[object, object] = (None, None)  # of these files and globs the system reports changes
        refused: tuple[object, object] = (None, None)  # of these files and globs the system can't report changes
        while poll.rest(pause):
            stands, names = _stamps(self._files, self._patterns), (self._files, self._patterns)
            unread += pause
            if stood == stands != read or poll.woken or unread >= (SELDOM if pause == REST else LOOK):
                read, unread = stands, 0.0
                is_same = digest(*names) == self._digest
                if not is_same:
                    report()
            is_still = is_same and stood == stands == read
            if watched != names or poll.woken or not is_still:  # the watches have ended, or are of other files
                watched = (None, None)
                if is_still and refused != names:
                    watched, refused = (names, refused) if watch() else (watched, names)
                # What changed before the system watched is seen by another look.
                is_still = is_still and _stamps(*names) == stands
            pause = REST if watched == names and is_still else GLANCE
            stood = stands

    async def look(self) -> None:
        """Load the configuration again if its content has changed. An empty file counts as changed only if the next
        poll finds it still empty.
        """
        async with self._one_at_a_time:
            if await asyncio.to_thread(digest, self._files, self._patterns) == self._digest:
                return
            result, known, stamp = await self._read()
            if stamp[0] or stamp == self._seen_empty:
                await self._take(result, known, "file")
            self._seen_empty = stamp

    async def _read(self) -> tuple[LoadResult, bytes, Stamp]:
        """Load the files, again if they changed meanwhile. Return the result, the files' digest, and the first file's
        stamp.
        """
        for _ in range(_READS):
            stamp = stamp_of(self._file or "")
            known = await asyncio.to_thread(digest, self._files, self._patterns)
            result = await asyncio.to_thread(load_beside_calls, self._file, self._environ, self._edit)
            if stamp == stamp_of(self._file or "") and known == await asyncio.to_thread(
                digest, self._files, self._patterns
            ):
                break
        return self._unless_emptied(result), known, stamp

    def _unless_emptied(self, result: LoadResult) -> LoadResult:
        """Refuse a result if a file that had text has none any more: whoever wrote it found the disk full, or it is a
        pipe (`-c <(…)`), which can be read only once. The defaults in its place would take all upstreams away.
        """
        emptied = [file for file in result.blank if file in self._filled]
        if not emptied:
            return result
        said = (
            "is empty now: what it said before stays in force; to take that back, write `upstreams: {}`, or a comment"
        )
        others = (problem for problem in result.problems if problem.file not in emptied)
        return replace(result, settings=None, problems=(*(Problem(file, 1, 1, "", said) for file in emptied), *others))

    async def _take(self, result: LoadResult, known: bytes, why: str) -> None:
        self._digest = known
        if result.files != self._files or result.patterns != self._patterns:
            self._files, self._patterns = result.files, result.patterns
            self._digest = await asyncio.to_thread(digest, self._files, self._patterns)
        if result.settings is not None:
            self._filled = _with_text(result)
        self._on_load(result, why)


class _Poll:
    """The signals between the thread that polls and the loop. `stirred` is set when something may have changed;
    `woken`: the last rest ended because of that.
    """

    def __init__(self) -> None:
        self.stirred = threading.Event()
        self.woken = False
        self._over = threading.Event()

    def rest(self, pause: float) -> bool:
        """Wait for `pause` seconds, or until a quarter of a second after something stirred. Returns False once `end`
        was called.
        """
        self.woken = self.stirred.wait(pause)
        if self.woken and not self._over.is_set():
            self._over.wait(GLANCE)
            self.stirred.clear()
        return not self._over.is_set()

    def end(self) -> None:
        """Have the thread that polls end."""
        self._over.set()
        self.stirred.set()


def load_beside_calls(file: str | None, environ: Mapping[str, str], edit: Edit | None = None) -> LoadResult:
    """Load a configuration in a thread without holding up calls: return the result of `load` (which explains the
    arguments), laid out for calls, with folded provenance. `edit` changes the tree of each file that is read, before
    its ${NAME} are replaced.
    """
    with uncollected():
        result = load(file, environ, edit)
        settings = result.settings
        if settings is None:
            return result
        settings.router.lay_out()
        return replace(result, settings=replace(settings, provenance=settings.provenance.folded()))


def _with_text(loaded: LoadResult) -> frozenset[str]:
    """The files of a configuration, without those that have no text."""
    return frozenset(loaded.files).difference(loaded.blank)


def _watched(files: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The files to watch: the given ones, and those that the include globs `patterns` find."""
    matched = (each for pattern in patterns for each in glob.glob(pattern, recursive=True))  # noqa: PTH207
    return sorted({*files, *matched})


def _stamps(files: Iterable[str], patterns: Iterable[str]) -> list[tuple[str, Stamp]]:
    return [(file, stamp_of(file)) for file in _watched(files, patterns)]


def digest(files: Iterable[str], patterns: Iterable[str]) -> bytes:
    """The digest of the content of all these files and of those that the patterns find, with their names. If a file
    cannot be read, the error's number stands for its content.
    """
    found = hashlib.blake2b(digest_size=16)
    for file in _watched(files, patterns):
        found.update(file.encode("utf-8", "surrogateescape") + b"\0")
        size = 0
        try:
            for piece in pieces(file):
                found.update(piece)
                size += len(piece)
        except OSError as error:
            found.update(f"! {error.errno}".encode())
            size = -1
        found.update(size.to_bytes(8, "big", signed=True))
    return found.digest()
