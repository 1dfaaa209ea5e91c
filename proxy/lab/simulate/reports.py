"""The fields in which a simulated upstream says what is left of a limit: as it is, or as providers get it wrong.

A limit of requests is reported in the IETF's fields, one of tokens in those of OpenAI. `minus_one` and `zero` always
report that much as left; `past` reports that nothing is left and that the limit is whole again now. `other_key` reports
the limit of another key: one that is used up in the first half of each window, whatever the app's own key uses. `far`
reports what is left, and that the limit is whole again only after several windows; `tomorrow` that it is after a day.
`used` reports what is used in the place of what is left, so that it grows. `one` always reports that one is left, and
`sizes` the limit in one second, and a tenth of it in the next, as a provider does whose models have limits of their own
that share a name. `tenth` reports a tenth of the limit, less what is used, and `half` half of it. `date` writes the
reset as a date, `doubled` has each field twice, once with what is left and once without anything left, and `garbage`
has no numbers in them.
"""

from __future__ import annotations

import math
from email.utils import formatdate
from typing import Literal, get_args

# fmt: off
Reports = Literal[
    "off", "right", "window", "next", "minus_one", "zero", "past", "other_key", "far", "tomorrow", "used", "one",
    "sizes", "tenth", "half", "date", "doubled", "garbage",
]
# fmt: on
#: The number of windows that are always left until the reset, as `far` reports it.
_FAR = 5
#: The parts of the limit of which one is reported.
_PARTS = {"tenth": 10, "half": 2, "sizes": 10}
#: Seconds of a day.
_DAY = 86400.0
#: The ways in which answers report a limit, as scenarios name them.
REPORTS: tuple[Reports, ...] = get_args(Reports)


def reported(
    how: Reports, *, left: float, most: int, reset: float, now: float, window: float, tokens: bool
) -> list[tuple[str, str]]:
    """The fields of an answer that comes at the time `now`. `left`: the rest of the limit, of `most` in each `window`;
    `reset`: the seconds until the limit is whole, or, if `how` is "next", until more of it is left. `tokens`: the limit
    is one of tokens, not of requests.
    """
    remaining = math.floor(max(0.0, left))
    if how in ("minus_one", "zero", "one"):
        remaining = {"minus_one": -1, "zero": 0, "one": 1}[how]
    elif how in ("tenth", "half") or (how == "sizes" and now % 2 >= 1):
        used, most = most - remaining, max(1, most // _PARTS[how])
        remaining = max(0, most - used)
    elif how == "other_key":
        remaining = math.floor(most * max(0.0, 1 - 2 * (now % window) / window))
        reset = window - now % window
    if how in ("far", "tomorrow"):
        reset = _DAY if how == "tomorrow" else _FAR * window
    if how == "used":
        remaining = math.ceil(most - remaining)
    if how == "past":
        remaining, reset = 0, 0.0
    seconds, whole_in = str(math.ceil(reset)), f"{reset:.3f}s"
    if how == "date":
        seconds = whole_in = formatdate(now + reset, usegmt=True)
    if tokens:
        values = {"limit": str(most), "remaining": str(remaining), "reset": whole_in}
        return _written(how, {f"x-ratelimit-{part}-tokens": value for part, value in values.items()})
    if how == "window":
        policy = f'"all";q={most};w={math.ceil(window)}'
        return [("ratelimit-policy", policy), ("ratelimit", f'"all";r={remaining};t={seconds}')]
    values = {"limit": str(most), "remaining": str(remaining), "reset": seconds}
    return _written(how, {f"ratelimit-{part}": value for part, value in values.items()})


def _written(how: Reports, fields: dict[str, str]) -> list[tuple[str, str]]:
    """The fields as answers have them, as lines of a name and a value."""
    if how == "doubled":
        return [*fields.items(), *((name, "0" if "remaining" in name else value) for name, value in fields.items())]
    return [(name, f"<{value}>" if how == "garbage" else value) for name, value in fields.items()]
