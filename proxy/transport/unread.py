"""Whether unread bytes wait on a socket: compiled code finds out (socket_calls.pyx), or Python if that was not
built.
"""

from __future__ import annotations

import select
from collections.abc import Callable

#: Whether the peer of the connection with this file descriptor has sent bytes, or an end, that were not read yet.
has_said: Callable[[int], bool]


def polled(descriptor: int) -> bool:
    """Whether bytes or an end wait unread on the socket `descriptor`, asked of the kernel by `poll`: used as `has_said`
    if compiled code is not available.
    """
    asked = select.poll()
    asked.register(descriptor, select.POLLIN)
    return bool(asked.poll(0))


try:
    from proxy.transport.socket_calls import has_said
except ImportError:
    has_said = polled
