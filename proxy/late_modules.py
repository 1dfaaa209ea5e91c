"""Importing a library without the parts of it, and of what it needs, that a serving process does not use.

A library imports at its top all that any of its functions may need. `late` takes the place of such modules while the
library is imported: what it binds of them are late names, which import the module when they are first used. Afterwards
`sys.modules` has no trace of that: everybody else who imports such a module gets the module itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class LatePackage(ModuleType):
    """A package whose own code has not run: its modules are imported at their first access, and the first access to any
    other name runs the code, which makes it an ordinary package. Another thread that asks meanwhile waits for that.
    """

    def __getattr__(self, name: str) -> Any:
        """Return the value of a name that the package does not have yet. If the package has a module of that name, only
        that module is imported; else the package's own code, which must define the name, is run.
        """
        path = f"{self.__name__}.{name}"
        if path in sys.modules:
            return sys.modules[path]
        if importlib.util.find_spec(path) is not None:
            return importlib.import_module(path)
        with _one_at_a_time:
            if type(self) is LatePackage:
                self._run()
        return getattr(self, name)

    def _run(self) -> None:
        """Run the package's own code. A name that the code asks for but never defines is missing, as in any package."""
        assert self.__spec__ is not None and self.__spec__.loader is not None
        self.__class__ = _Running  # type: ignore[assignment]
        try:
            self.__spec__.loader.exec_module(self)
        except BaseException:
            self.__class__ = LatePackage
            raise
        self.__class__ = ModuleType  # type: ignore[assignment]


class _Running(ModuleType):
    """A package whose own code runs now, in the one thread that holds the lock."""

    def __getattr__(self, name: str) -> Any:
        """Return the value of a name once the code has run; in the thread that runs it, the name is missing."""
        with _one_at_a_time:
            if type(self) is _Running:
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        return getattr(self, name)


#: Held by the thread that runs a late package's own code.
_one_at_a_time = threading.RLock()


def late_package(name: str, **given: Any) -> LatePackage:
    """Return the package `name` without having run its code; `given`: names of it that are set."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package = importlib.util.module_from_spec(spec)
    package.__class__ = LatePackage
    vars(package).update(given)
    sys.modules[name] = package
    return package  # type: ignore[return-value]


class LateName:
    """A function, a class or a value `name` of a module that is imported at the first use."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _value(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call what is meant; of the arguments, those that are late names are replaced by what they mean."""
        return self._value()(*map(_meant, positional), **{key: _meant(value) for key, value in named.items()})

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of what is meant."""
        return getattr(self._value(), name)


def _meant(value: Any) -> Any:
    return value._value() if isinstance(value, LateName) else value


class _Late(ModuleType):
    """A module in the place of one that is imported late; once `_is_bound`, its names are those of that one."""

    _is_bound = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return (
            getattr(importlib.import_module(self.__name__), name) if self._is_bound else LateName(self.__name__, name)
        )


@contextmanager
def late(*names: str) -> Iterator[None]:
    """Let imports of these modules bind late names while this context lasts; modules that are imported already are left
    as they are. A module that is imported meanwhile must not use the names before it is called.
    """
    put = {name: _Late(name) for name in names if name not in sys.modules}
    sys.modules.update(put)
    try:
        yield
    finally:
        for name, module in put.items():
            module._is_bound = True
            if sys.modules.get(name) is module:
                del sys.modules[name]
            parent, _, child = name.rpartition(".")
            if parent in sys.modules and vars(sys.modules[parent]).get(child) is module:
                delattr(sys.modules[parent], child)
