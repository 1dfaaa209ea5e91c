"""A large configuration is loaded by a process of its own, which sends what it has made and ends.

Law: a process that serves does of a load only what nobody can do for it: take the policies in, a few at a time
(`gradual.py`). In a thread the work would take the interpreter away from calls, by halves of milliseconds a hundred
times a second and by tens of them where a library keeps it. What goes wrong with the process is an error like those of
the file, and changes nothing.

The process writes to its standard output: a head with the problems, then the chunks of the settings (`packed.py`) and
the pages of the provenance, then an end. Each comes with its kind and length.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from signal import Signals
from struct import Struct
from typing import IO

from proxy.config.gradual import Taking
from proxy.config.load import LoadResult, load
from proxy.config.packed import pack
from proxy.config.problems import Problem
from proxy.config.provenance import Folded, Page, Provenance, fold
from proxy.config.settings import Settings

#: How the process is begun: this interpreter, with the modules found where this process finds them.
_CODE = "import sys; sys.path[:] = {path!r}; from proxy.config.aside import main; main({file!r})"
_FRAME = Struct("=cQ")
_HEAD, _CHUNK, _PAGE, _END = b"H", b"C", b"P", b"E"
#: What the process is nicer than its parent, whose calls come first.
_NICE = 10


class AsideError(Exception):
    """The process could not do it; why, in one line."""


async def load_aside(file: str, environ: Mapping[str, str]) -> LoadResult:
    """What `load` gives, with `packed` besides. Raises AsideError, and OSError where no process can be had."""
    loader = _Loader(file, environ)
    try:
        head, chunks, pages = await asyncio.to_thread(loader.run)
    finally:
        loader.stop()
    return await _taken(head, chunks, pages) if chunks else head


class _Loader:
    """The process, as a thread deals with it: uvloop would copy all our page tables to begin one, on the loop."""

    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self._code = _CODE.format(path=[entry or "." for entry in sys.path], file=file)
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self) -> tuple[LoadResult, list[bytes], list[Page]]:
        """What it sends, in a thread."""
        with subprocess.Popen(  # noqa: S603  this program
            [sys.executable, "-c", self._code, "redrive", "load"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=self._environ,
            process_group=0,  # a Ctrl-C is not for it; in a session of its own it would not be nice to us
        ) as self._process:
            if self._stopped:
                self._process.kill()
            assert self._process.stdout is not None
            try:
                return _received(self._process.stdout)
            except EOFError:
                status = self._process.wait()
        how = f"killed by {Signals(-status).name}" if status < 0 else f"exit status {status}"
        raise AsideError(f"cannot be loaded: the process that does so ended ({how})")

    def stop(self) -> None:
        """Nobody waits for it any more, or it is done."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()


def _received(stream: IO[bytes]) -> tuple[LoadResult, list[bytes], list[Page]]:
    head, chunks, pages = LoadResult(None, ()), list[bytes](), list[Page]()
    while True:
        kind, size = _FRAME.unpack(_exactly(stream, _FRAME.size))
        body = _exactly(stream, size)
        if kind == _HEAD:
            head = pickle.loads(body)  # noqa: S301  our own child's
        elif kind == _CHUNK:
            chunks.append(body)
        elif kind == _PAGE:
            pages.append(pickle.loads(body))  # noqa: S301  the same
        else:
            return head, chunks, pages


def _exactly(stream: IO[bytes], size: int) -> bytes:
    body = stream.read(size)
    if len(body) < size:
        raise EOFError
    return body


async def _taken(head: LoadResult, chunks: list[bytes], pages: list[Page]) -> LoadResult:
    taking = Taking()
    try:
        for chunk in chunks:
            await taking.take(chunk)
    except Exception as error:  # a user's own strategy, which could be made over there
        raise AsideError(f"cannot be taken: {type(error).__name__}: {' '.join(str(error).split())}") from None
    settings: Settings = taking.taken
    provenance = Provenance(settings.provenance.top, Folded(pages))
    return replace(head, settings=replace(settings, provenance=provenance), packed=tuple(chunks))


def main(file: str) -> None:
    """Load a file and write what came of it to standard output."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a user's modules print goes where errors go
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    gc.disable()  # there is nothing to collect in so short a life
    result = load(file, os.environ)
    _write(out, _HEAD, pickle.dumps(replace(result, settings=None)))
    if result.settings is not None:
        for chunk in pack(result.settings):
            _write(out, _CHUNK, chunk)
        for page in fold(result.settings.provenance.policies):
            _write(out, _PAGE, pickle.dumps(page))
    _write(out, _END, b"")
    out.flush()
    os._exit(0)  # a million objects need not be let go, nor a user's threads be waited for


def _write(out: IO[bytes], kind: bytes, body: bytes) -> None:
    out.write(_FRAME.pack(kind, len(body)) + body)


def failed(file: str, error: AsideError) -> tuple[Problem, ...]:
    """The error as the problem that refuses the configuration."""
    return (Problem(file, 0, 0, "", str(error)),)
