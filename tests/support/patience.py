"""A bound to waiting for an event that a test expects.

    await in_time(queue.get(), lambda: f"what came: {lines}")

The test fails with that text when the event does not come, instead of standing still until the limit of the whole test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

#: The seconds that a busy machine is given for any event.
PATIENCE = 60.0


async def in_time(event: Awaitable[T], told: Callable[[], str], seconds: float = PATIENCE) -> T:
    """Wait for `event`; an AssertionError with the text of `told` if it takes longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await event
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {told()}") from None
