"""A finder of this package's modules that finds only source: with it, nothing compiled is imported."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader


def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
    """Find the module of the package with the full name `name` by its source (`importlib.abc.MetaPathFinder`, which
    explains the arguments); None for modules of other packages. `target` is not used. Raises ModuleNotFoundError if a
    module of the package has no source.
    """
    if not name.startswith("proxy."):
        return None
    for folder in path or ():
        spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
        if spec is not None:
            return spec
    raise ModuleNotFoundError(f"No module named {name!r} in source", name=name)
