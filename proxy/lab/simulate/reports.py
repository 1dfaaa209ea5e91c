"""The fields in which a simulated upstream says what is left of a limit: as it is, or as providers get it wrong.

A limit of requests is reported in the IETF's fields, one of tokens in those of OpenAI. `minus_one` and `zero` always
report that much as left; `past` reports that nothing is left and that the limit is whole again now. `other_key` reports
the limit of another key: one that is used up in the first half of each window, whatever the app's own key uses. `far`
reports what is left, and that the limit is whole again only after several windows.
"""

from __future__ import annotations

import math
from typing import Literal

Reports = Literal["off", "right", "window", "next", "minus_one", "zero", "past", "other_key", "far"]
#: The number of windows that are always left until the reset, as `far` reports it.
_FAR = 5
#: The ways in which answers report a limit, as scenarios name them.
REPORTS: tuple[Reports, ...] = ("off", "right", "window", "next", "minus_one", "zero", "past", "other_key", "far")


def reported(
    how: Reports, *, left: float, most: int, reset: float, now: float, window: float, tokens: bool
) -> list[tuple[str, str]]:
    """The fields of an answer that comes at the time `now`. `left`: the rest of the limit, of `most` in each `window`;
    `reset`: the seconds until the limit is whole, or, if `how` is "next", until more of it is left. `tokens`: the limit
    is one of tokens, not of requests.
    """
    remaining = math.floor(max(0.0, left))
    if how in ("minus_one", "zero"):
        remaining = -1 if how == "minus_one" else 0
    elif how == "other_key":
        remaining = math.floor(most * max(0.0, 1 - 2 * (now % window) / window))
        reset = window - now % window
    if how == "far":
        reset = _FAR * window
    if how == "past":
        remaining, reset = 0, 0.0
    if tokens:
        values = {"limit": str(most), "remaining": str(remaining), "reset": f"{reset:.3f}s"}
        return [(f"x-ratelimit-{part}-tokens", value) for part, value in values.items()]
    seconds = math.ceil(reset)
    if how == "window":
        policy = f'"all";q={most};w={math.ceil(window)}'
        return [("ratelimit-policy", policy), ("ratelimit", f'"all";r={remaining};t={seconds}')]
    values = {"limit": str(most), "remaining": str(remaining), "reset": str(seconds)}
    return [(f"ratelimit-{part}", value) for part, value in values.items()]
