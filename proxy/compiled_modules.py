"""The finder of the modules that are compiled: all are in one shared object, `proxy._core`, and none has its own file.

`proxy/__init__.py` puts the finder before those of the interpreter, if that library was built. `tools/one_library.py`
builds it, and says why it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

from proxy._core import __file__ as _file
from proxy._core import create, execute, names

#: The file of the library, and the full names of the modules in it.
FILE, NAMES = str(_file), frozenset(names())


class LibraryLoader(ExtensionFileLoader):
    """The loader of one module of the library."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module, without running its code."""
        return create(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code."""
        execute(module)


def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
    """Find the compiled module with the full name `name` (`importlib.abc.MetaPathFinder`, which explains the
    arguments); None for all others. `path` and `target` are not used.
    """
    if name not in NAMES:
        return None
    spec = ModuleSpec(name, LibraryLoader(name, FILE), origin=FILE)
    spec.has_location = True
    return spec
