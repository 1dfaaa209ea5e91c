"""The search for short texts in the bytes of a stream, by compiled code (octet_search.pyx) or, if that was not built,
by Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: Whether any of the texts occurs in the bytes.
holds_any: Callable[[bytes, tuple[bytes, ...]], bool]
#: Whether any of the names, with their quotes, occurs in the bytes in a place where a JSON member of the value null
#: does not begin.
holds_member: Callable[[bytes, tuple[bytes, ...]], bool]

_NULL = re.compile(rb"[ \t\r\n]*+:[ \t\r\n]*+null(?=[,}\] \t\r\n])")


def _found(data: bytes, texts: tuple[bytes, ...]) -> bool:
    """Return whether any of the texts occurs in `data`. Used as `holds_any` if compiled code is not available."""
    return any(text in data for text in texts)


def _found_member(data: bytes, names: tuple[bytes, ...]) -> bool:
    """Return whether any of the names occurs in `data` where no null follows as its value. Used as `holds_member` if
    compiled code is not available.
    """
    for name in names:
        at = data.find(name)
        while at >= 0:
            null = _NULL.match(data, at + len(name))
            if null is None:
                return True
            at = data.find(name, null.end())
    return False


try:
    from proxy.retry.answers.octet_search import holds_any, holds_member
except ImportError:
    holds_any, holds_member = _found, _found_member
