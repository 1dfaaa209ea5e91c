"""Importing aiohttp's server without its client, which a serving process does not use.

`import aiohttp` imports the client and its dependencies, and the client makes two TLS contexts, each with all roots of
the system: 2 MiB in every process, and more than a tenth of the time to the first answer. No call goes through it
(docs/decisions/0007-aiohttp-serves.md). A user's own strategy may use it: the package is completed at the first access
to a name that it does not have yet.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import TypeVarTuple

from proxy.late_modules import late, late_package

#: Environment variable that makes frozenlist use Python in place of its extension, the only module that needs the C++
#: runtime, which takes 1 MiB. aiohttp's server keeps the handlers of its signals in such lists, and changes them before
#: it serves, so their speed does not matter.
_WITHOUT_EXTENSION = "FROZENLIST_NO_EXTENSIONS"


#: Modules that aiohttp's server imports for what redrive's admin port never does or seldom: a command line, files,
#: forms, proxies of the environment, names that are not ASCII, dates in requests.
_SELDOM = (
    "aiohttp.web_fileresponse", "aiohttp.web_ws", "argparse", "email.parser", "email.policy", "html", "idna",
    "mimetypes", "tempfile", "unicodedata", "urllib.request", "uuid",
)  # fmt: skip


def import_aiohttp() -> None:
    """Import aiohttp's server, without its client unless that is imported already."""
    if "aiohttp" in sys.modules:
        import aiohttp.web

        return
    before = os.environ.get(_WITHOUT_EXTENSION)
    os.environ[_WITHOUT_EXTENSION] = "1"
    try:
        import frozenlist  # noqa: F401
    finally:
        del os.environ[_WITHOUT_EXTENSION]
        if before is not None:
            os.environ[_WITHOUT_EXTENSION] = before
    version = _version()
    if version is not None:
        try:
            _import_server(version)
        except Exception:  # this release of aiohttp needs more modules for its server, and may fail in any way
            for name in [name for name in sys.modules if name.partition(".")[0] in ("aiohttp", "attr")]:
                del sys.modules[name]
    import aiohttp.web  # noqa: F401


def _import_server(version: str) -> None:
    """Import the server of aiohttp, which has this version, but not its client."""
    with late(*_SELDOM), _short_typing_extensions():
        if "attr" not in sys.modules:  # aiohttp uses nothing of it but its oldest decorator
            package = late_package("attr")
            from attr import _make

            package.s = _make.attrs  # type: ignore[attr-defined]
        late_package("aiohttp", __version__=version)
        import aiohttp.web  # noqa: F401


@contextmanager
def _short_typing_extensions() -> Iterator[None]:
    """Replace `typing_extensions`, while this context lasts, by the one name that aiosignal imports of it before Python
    3.13: a variable of types, whose default no running code asks for.
    """
    name = "typing_extensions"
    if name in sys.modules or sys.version_info >= (3, 13):
        yield
        return
    module = ModuleType(name)
    module.TypeVarTuple = lambda name, default=None: TypeVarTuple(name)  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        import aiosignal  # noqa: F401
    finally:
        del sys.modules[name]
    yield


def _version() -> str | None:
    """Read aiohttp's version, which its server names, from its source without running it; None if there is none."""
    spec = importlib.util.find_spec("aiohttp")
    assert spec is not None
    source = spec.loader.get_source("aiohttp") if isinstance(spec.loader, SourceFileLoader) else None
    version = re.search(r'^__version__ = "(.+)"$', source or "", re.MULTILINE)
    return None if version is None else version[1]
