"""The event loop of a process: uvloop's, with a cheaper table of its transports.

uvloop keeps which transport has which descriptor, so that it refuses to watch a descriptor that a transport has. Its
table is a `WeakValueDictionary`, which makes a reference with a callback in Python for each connection, and runs that
callback once the transport is gone: more instructions than the kernel's call to accept or to connect takes outside of
the kernel. A reference without a callback serves as well: one that is dead counts as no entry when it is looked up, and
goes when its descriptor is used again, so there are at most as many as descriptors were open at once.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from weakref import WeakValueDictionary, ref

import uvloop

#: Versions of uvloop whose source was read for this: it sets entries of the table and looks them up, no more.
READ = ("0.23.",)


class TransportTable(WeakValueDictionary[int, Any]):
    """A table of transports by descriptor, whose references have no callback."""

    def __setitem__(self, descriptor: int, transport: Any) -> None:
        self.data[descriptor] = ref(transport)  # type: ignore[attr-defined]  # `weakref`'s own, in every version


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop of uvloop's."""
    loop = uvloop.new_event_loop()
    if uvloop.__version__.startswith(READ):  # type: ignore[attr-defined]
        tables = [each for each in gc.get_referents(loop) if type(each) is WeakValueDictionary]
        if len(tables) == 1:
            tables[0].__class__ = TransportTable
    return loop
