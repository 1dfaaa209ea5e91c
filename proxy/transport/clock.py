"""The drivers' clock. Law: time enters the program here, and is passed down as an argument (law 2 of
docs/architecture.md).

`time.monotonic` is used, not `loop.time`: uvloop's has whole milliseconds, read once in each turn of the loop, and a
retry must never be sent a millisecond earlier than a pushback allows. Both count from the same origin, so
`loop.call_at` takes either.
"""

from __future__ import annotations

import time
from types import FunctionType


def monotonic() -> float:
    """Seconds on the monotonic clock. Compiled code reads CPython's own clock directly, without a Python call."""
    return time.monotonic()  # noqa: TID251  the one place where drivers get their clock


if isinstance(monotonic, FunctionType):  # interpreted: the clock itself under this name, which saves one Python call
    globals()["monotonic"] = time.monotonic  # noqa: TID251  the same

#: Seconds since the epoch; read when a call is reported, never to decide.
wall = time.time  # noqa: TID251  the same
