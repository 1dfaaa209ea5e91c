"""Work on the loop, done a little at a time because calls wait for the loop.

The process that answers the admin port carries calls on the same loop. A page about a thousand upstreams takes tens of
milliseconds; no call may wait that long, so the page is made in pieces, and the loop gets a turn between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

_T = TypeVar("_T")

#: Items made at a stretch. The dearest, an upstream of ten routes on `/upstreams`, takes about 0.2 ms.
AT_A_STRETCH = 8
#: The same of what takes a microsecond or a few: a row of the board that is copied, a series that is looked at.
CHEAP_AT_A_STRETCH = 100


async def in_turns(items: Iterable[_T]) -> list[_T]:
    """Make a list of items that are made as they are iterated over, AT_A_STRETCH between two turns of the loop. What
    the items are made from may change in between: iterate over a copy of a table, not over the table.
    """
    return [item async for item in gradually(items, AT_A_STRETCH)]


async def gradually(items: Iterable[_T], at_a_stretch: int = CHEAP_AT_A_STRETCH) -> AsyncIterator[_T]:
    """Iterate over items, so many between two turns of the loop."""
    for number, item in enumerate(items, 1):
        yield item
        if number % at_a_stretch == 0:
            await a_turn()


async def a_turn() -> None:
    """Let everything that is ready on the loop be done before going on."""
    await asyncio.sleep(0)  # noqa: TID251  it waits for nothing


async def rest(ended: asyncio.Event, seconds: float) -> None:
    """Wait so many seconds, or until the event is set."""
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except TimeoutError:
        return
