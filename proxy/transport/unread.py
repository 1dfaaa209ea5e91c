"""Whether something waits on a socket that nobody has read: compiled code finds out (socket_calls.pyx), or Python if
that was not built.
"""

from __future__ import annotations

import select
from collections.abc import Callable

#: Whether a peer has sent something that was not read yet, or its end, by the connection's file descriptor.
has_said: Callable[[int], bool]


def polled(descriptor: int) -> bool:
    """`has_said` in Python alone."""
    asked = select.poll()
    asked.register(descriptor, select.POLLIN)
    return bool(asked.poll(0))


try:
    from proxy.transport.socket_calls import has_said
except ImportError:
    has_said = polled
