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
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

#: Environment variable that makes frozenlist use Python in place of its extension, the only module that needs the C++
#: runtime, which takes 1 MiB. aiohttp's server keeps the handlers of its signals in such lists, and changes them before
#: it serves, so their speed does not matter.
_WITHOUT_EXTENSION = "FROZENLIST_NO_EXTENSIONS"


class LatePackage(ModuleType):
    """A package whose own code has not run: its modules are imported at their first access, and the first access to any
    other name runs the code, which makes it an ordinary package.
    """

    def __getattr__(self, name: str) -> Any:
        """Return the value of a name that the package does not have yet: that of a module, or of a name that the
        package's own code defines, which runs now.
        """
        path = f"{self.__name__}.{name}"
        if importlib.util.find_spec(path) is not None:
            return importlib.import_module(path)
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None and self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


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
    package = _without_client()
    if package is not None:
        sys.modules["aiohttp"] = package
        try:
            import aiohttp.web
        except (ImportError, AttributeError):  # a release whose server needs more of the package
            for name in [name for name in sys.modules if name.partition(".")[0] == "aiohttp"]:
                del sys.modules[name]
    import aiohttp.web  # noqa: F401


def _without_client() -> ModuleType | None:
    """Return the package `aiohttp` without having run its code: only `__version__`, which the server needs, is set.
    None if the package's source has no version.
    """
    spec = importlib.util.find_spec("aiohttp")
    assert spec is not None
    source = spec.loader.get_source("aiohttp") if isinstance(spec.loader, SourceFileLoader) else None
    version = re.search(r'^__version__ = "(.+)"$', source or "", re.MULTILINE)
    if version is None:
        return None
    package = importlib.util.module_from_spec(spec)
    package.__class__ = LatePackage
    package.__version__ = version[1]  # type: ignore[attr-defined]
    return package
