"""The search for short texts in the bytes of a stream: compiled code searches (octet_search.pyx), or Python if that was
not built.
"""

from __future__ import annotations

from collections.abc import Callable

#: Whether any of the texts occurs in the bytes.
holds_any: Callable[[bytes, tuple[bytes, ...]], bool]


def _found(data: bytes, texts: tuple[bytes, ...]) -> bool:
    """Return whether any of the texts occurs in `data`: used as `holds_any` if compiled code is not available."""
    return any(text in data for text in texts)


try:
    from proxy.retry.octet_search import holds_any
except ImportError:
    holds_any = _found
