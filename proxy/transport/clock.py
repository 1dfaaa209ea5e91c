"""The drivers' clock. Law: time enters the program here and is passed down as an argument (law 2).

`time.monotonic`, not `loop.time`: uvloop's is whole milliseconds, taken once a turn, and a retry must never come a
millisecond earlier than a pushback says. Both count from the same origin, so `loop.call_at` takes either.
"""

from __future__ import annotations

import time
from types import FunctionType


def monotonic() -> float:
    """Seconds on the monotonic clock. Compiled, it is CPython's own clock without a call of Python."""
    return time.monotonic()  # noqa: TID251  the one place where drivers get their clock


if isinstance(monotonic, FunctionType):  # interpreted: the same clock by its own name, so that no call stands between
    globals()["monotonic"] = time.monotonic  # noqa: TID251  the same

#: Seconds since the epoch; read where a call is reported, never to decide.
wall = time.time  # noqa: TID251  the same
