"""The data of chunks, from between their framing: gathered by compiled code (gather.pyx), or by Python alone."""

from __future__ import annotations

from collections.abc import Callable

#: The size from which on a piece is joined with others through a view of the data, and not as a copy of its own.
LONG = 4 * 1024

#: Return the pieces of `data` as one: `spans` has the offset of each, followed by that of its end.
gathered: Callable[[bytes, list[int]], bytes]


def _gathered(data: bytes, spans: list[int]) -> bytes:
    """Gather the pieces in Python alone: what `gathered` does if compiled code is not available."""
    if len(spans) == 2:
        return data[spans[0] : spans[1]]
    view = memoryview(data)
    pairs = zip(spans[::2], spans[1::2], strict=True)
    return b"".join([data[at:end] if end - at < LONG else view[at:end] for at, end in pairs])


try:
    from proxy.wire.http1.gather import gathered
except ImportError:
    gathered = _gathered
