"""A large configuration comes and goes a little at a time, in a process whose calls go on meanwhile.

Law: nothing here holds the loop for longer than a step, and what a user's own code makes is made in a thread. The
collector stays away from what is made, and from then on: it lives as long as its configuration, has no cycles, and
looking it through would hold every call up.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from proxy.config.packed import Unpacking, records_of
from proxy.config.uncollected import uncollected

#: Seconds of a step, and of the rest after it, in which calls have the loop.
_STEP, _REST = 0.001, 0.002
#: Parts that are let go before the clock is looked at.
_PARTS = 8


class Taking:
    """Makes settings of the chunks of `proxy.config.packed`. `paced`: calls go on meanwhile."""

    def __init__(self, *, paced: bool = True) -> None:
        self._unpacking = Unpacking()
        self._paced = paced

    async def take(self, chunk: bytes) -> None:
        """Take the next chunk. Raises whatever a user's code does."""
        with uncollected():
            begun = perf_counter()
            for users, record in records_of(chunk):
                if users:
                    await asyncio.to_thread(self._unpacking.take, record)
                else:
                    self._unpacking.take(record)
                if perf_counter() - begun > _STEP and self._paced:
                    await _rest()
                    begun = perf_counter()

    @property
    def taken(self) -> Any:
        """The settings, after the last chunk."""
        return self._unpacking.taken


async def let_go(parts: list[object]) -> None:
    """Empty a list of things that nobody else holds."""
    while parts:
        begun = perf_counter()
        while parts and perf_counter() - begun < _STEP:
            del parts[-_PARTS:]
        await _rest()


async def _rest() -> None:
    await asyncio.sleep(_REST)  # noqa: TID251  calls have the loop meanwhile
