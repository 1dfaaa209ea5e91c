"""Blanks that do not belong where they stand, and are hard to see."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_BLANKS = re.compile(r"\s+")
_JOINTS = frozenset(":/.@,-")
_CALLED = {"\t": "a tab", "\n": "a line break", "\r": "a carriage return", "\u00a0": "a no-break space"}


def stray_blank(value: Any, reader: Callable[[Any], Any]) -> str:
    """What is wrong with a text that `reader` refuses and would take without its blanks; "" where that is not it.

    The text is not repeated: it may be a secret.
    """
    blank = _BLANKS.search(value) if isinstance(value, str) else None
    if blank is None:
        return ""
    if _takes(reader, value.strip()):
        where = "at its end" if blank.start() else "at its beginning"
    elif _takes(reader, _BLANKS.sub("", value)):
        before, after = value[: blank.start()][-1:], value[blank.end() :][:1]
        if after in _JOINTS:
            where = f"before {after!r}"
        elif before in _JOINTS:
            where = f"behind {before!r}"
        else:
            return ""  # of words beside each other it can't be told what they were to be
    else:
        return ""
    called = _CALLED.get(blank[0][0], "a space")
    return f"{called} {where} does not belong there; take it away"


def _takes(reader: Callable[[Any], Any], text: str) -> bool:
    try:
        reader(text)
    except ValueError:
        return False
    return True
