"""Large configurations made and let go of in a thread, while calls go on.

A thread leaves the interpreter to calls between two steps of Python code. What it does not come out of in between holds
calls up: a collection that looks through all that was made, the end of a tree whose parts go with it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector from what is made meanwhile, and from then on: it has no cycles, so that nothing is lost."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.freeze()
            gc.enable()


def let_go(parts: list[Any] | dict[Any, Any]) -> None:
    """Empty a container whose parts nobody else holds, one after the other."""
    drop = parts.pop if isinstance(parts, list) else parts.popitem
    while parts:
        drop()
