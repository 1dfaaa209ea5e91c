"""A configuration that changes on disk is loaded again.

Law: the directory is watched, not the file, and the content decides, not its times: an editor saves by renaming, and
Kubernetes swaps a symlink two levels up (`..data`), after which a watch on the file itself sees nothing any more. The
content's digest is taken before the file is read, and after: what changed in between is read again. A look every second
catches what a file system does not tell. A file that is suddenly empty is being written, most likely: it is looked at
once more before it counts as the defaults. Loading runs in a thread, and the loop goes on serving meanwhile; the
collector, which would hold every call up while it looks through a million new objects, waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from proxy.config.load import LoadResult, load

#: How long changes are gathered (an editor makes several of one), and how often the content is looked at in any case.
GATHER_MS = 100
LOOK_MS = 1000
#: `watchfiles.Change.modified`, which only a running proxy needs.
_MODIFIED = 2
#: How often a file that changes all the time is read before it is taken as it was.
_READS = 10

#: Takes what a load gave and why it was made: "file", "SIGHUP", "POST /reload", as the caller of `reload` says.
OnLoad = Callable[[LoadResult, str], None]


@dataclass(frozen=True, slots=True)
class _Stamp:
    """A file as it stands: one that is written again has another. One that can't be looked at is not empty."""

    size: int = -1
    changed: int = 0
    inode: int = 0


class Watcher:
    """Loads a file again when it changes, or when asked. `on_load` is called on the loop, once for each load.

    `loaded` is the result that the process runs on; it says which files and folders to watch.
    """

    def __init__(self, file: str | None, environ: Mapping[str, str], loaded: LoadResult, on_load: OnLoad) -> None:
        self._file = file
        self._environ = environ
        self._on_load = on_load
        self._one_at_a_time = asyncio.Lock()
        self._files = loaded.files
        self._patterns = loaded.patterns
        self._digest = digest(self._files, self._patterns)
        self._seen_empty: _Stamp | None = None

    async def reload(self, why: str) -> LoadResult:
        """Load now, whatever the content. A call while another load runs waits for it and then loads again."""
        async with self._one_at_a_time:
            return await self._load(why)

    async def run(self) -> None:
        """Watch until cancelled. Without a file there is nothing to watch."""
        if self._file is None:
            return
        while True:
            await self._watch(self._folders())

    async def _watch(self, folders: tuple[str, ...]) -> None:
        """Until the folders to watch are others, or can't be watched: then until the next look."""
        from watchfiles import awatch  # only a running proxy needs it

        changes = awatch(
            *folders,
            watch_filter=self.matters,
            debounce=GATHER_MS,
            step=GATHER_MS // 2,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=True,
        )
        while True:
            try:
                await anext(changes)
            except Exception:  # of a name that is no UTF-8 in the folder, of a system that has no watch left
                await asyncio.sleep(LOOK_MS / 1000)  # noqa: TID251  the driver of its own looks, then
                await self.look()
                return
            await self.look()
            if self._folders() != folders:
                return

    def matters(self, change: int, path: str) -> bool:
        """Whether a change in a folder may be one of the files': what is merely written to must be one of them (a log
        may lie beside the file, and grow all the time); what comes or goes may be a link on the way to one.
        """
        return change != _MODIFIED or path in self._files or Path(path) in _places(self._files)

    async def look(self) -> None:
        """Load if the content is another. Empty counts from the second look that finds it so."""
        async with self._one_at_a_time:
            if await asyncio.to_thread(digest, self._files, self._patterns) == self._digest:
                return
            result, known, stamp = await self._read()
            if stamp.size or stamp == self._seen_empty:
                await self._take(result, known, "file")
            self._seen_empty = stamp

    def _stamp(self) -> _Stamp:
        try:
            found = Path(self._file or "").stat()
        except OSError:
            return _Stamp()
        return _Stamp(found.st_size, found.st_mtime_ns, found.st_ino)

    async def _load(self, why: str) -> LoadResult:
        result, known, _ = await self._read()
        await self._take(result, known, why)
        return result

    async def _read(self) -> tuple[LoadResult, bytes, _Stamp]:
        """What the files say when they stand still, their digest, and the first one's stamp."""
        for _ in range(_READS):
            stamp = self._stamp()
            known = await asyncio.to_thread(digest, self._files, self._patterns)
            with _uncollected():
                result = await asyncio.to_thread(load, self._file, self._environ)
            if stamp == self._stamp() and known == await asyncio.to_thread(digest, self._files, self._patterns):
                break
        return result, known, stamp

    async def _take(self, result: LoadResult, known: bytes, why: str) -> None:
        self._digest = known
        if result.files != self._files or result.patterns != self._patterns:
            self._files, self._patterns = result.files, result.patterns
            self._digest = await asyncio.to_thread(digest, self._files, self._patterns)
        self._on_load(result, why)

    def _folders(self) -> tuple[str, ...]:
        """The folders of all files, by name and by what their links lead to, and those that patterns look into."""
        folders = {path.parent for path in _places(self._files)}
        folders |= {_fixed_part(pattern) for pattern in self._patterns}
        there = sorted(str(folder) for folder in folders if folder.is_dir())
        return tuple(there) or (os.curdir,)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from what is made meanwhile, and from then on: it lives as long as its configuration."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.freeze()
            gc.enable()


def _places(files: Iterable[str]) -> set[Path]:
    """Where files lie, by name and by what their links lead to."""
    named = [Path(file) for file in files]
    return {path.absolute() for path in named} | {path.resolve() for path in named}


def _fixed_part(pattern: str) -> Path:
    """The folder that a pattern's first wildcard stands in."""
    path = Path(pattern).absolute()
    while glob.has_magic(str(path)):
        path = path.parent
    return path


def digest(files: Iterable[str], patterns: Iterable[str]) -> bytes:
    """What the files hold and which files the patterns find; a file that cannot be read counts as such."""
    found = hashlib.blake2b(digest_size=16)
    matched = (each for pattern in patterns for each in glob.glob(pattern, recursive=True))  # noqa: PTH207
    for file in sorted({*files, *matched}):
        found.update(file.encode("utf-8", "surrogateescape") + b"\0")
        try:
            content = Path(file).read_bytes()
        except OSError as error:
            content = f"! {error.errno}".encode()
        found.update(len(content).to_bytes(8, "big") + content)
    return found.digest()
