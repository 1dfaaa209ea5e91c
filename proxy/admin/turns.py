"""Helpers that do long work on the event loop in pieces, because calls wait for the loop.

The process that answers the admin port carries calls on the same loop. A page about a thousand upstreams takes tens of
milliseconds; no call may wait that long, so the page is made in pieces, and the loop gets a turn between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

_T = TypeVar("_T")

#: Items made between two turns of the loop. The most expensive item, an upstream with ten routes on `/upstreams`, takes
#: about 0.2 ms.
AT_A_STRETCH = 8
#: The same for items that take a few microseconds: to copy a row of the board, to read a series.
CHEAP_AT_A_STRETCH = 100


async def in_turns(items: Iterable[_T]) -> list[_T]:
    """Collect items that are made while they are iterated over, with a turn of the loop after every AT_A_STRETCH. The
    data from which the items are made may change during such a turn: iterate over a copy of a table, not over the
    table.
    """
    return [item async for item in gradually(items, AT_A_STRETCH)]


async def gradually(items: Iterable[_T], at_a_stretch: int = CHEAP_AT_A_STRETCH) -> AsyncIterator[_T]:
    """Iterate over items, with a turn of the loop after every `at_a_stretch`."""
    for number, item in enumerate(items, 1):
        yield item
        if number % at_a_stretch == 0:
            await a_turn()


async def a_turn() -> None:
    """Give everything that is ready on the loop a turn before going on."""
    await asyncio.sleep(0)  # noqa: TID251  a turn of the loop, no waiting


async def rest(ended: asyncio.Event, seconds: float) -> None:
    """Wait this many seconds, or until the event `ended` is set."""
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except TimeoutError:
        return
