"""What a peer had said before its connection broke, and nobody has read yet.

Law: a write that fails tells that the peer is gone, and says nothing about what came from it before: that is in the
kernel still, behind no event of the loop's, and is read before the connection is given up.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

#: Bytes taken at once.
PIECE = 64 * 1024


def read_last_words(descriptor: int, tell: Callable[[bytes], None], wanted: Callable[[], bool]) -> None:
    """Tell what the kernel has of a broken connection without TLS, piece by piece, while it is wanted."""
    with contextlib.suppress(OSError):
        while wanted() and (data := os.read(descriptor, PIECE)):
            tell(data)
