"""aiohttp imported without reading the system's root certificates, which a serving process does not use.

aiohttp makes two TLS contexts for its client when it is imported, each with all roots of the system: a tenth of the
time to the first answer, and no call goes through aiohttp's client (docs/decisions/0007-aiohttp-serves.md). A user's
own strategy may use it: the contexts read the roots when they are first used.
"""

from __future__ import annotations

import ssl
from typing import Any


class LateRoots(ssl.SSLContext):
    """A context that reads the system's roots before its first handshake, and is an ordinary one from then on."""

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        """Begin a handshake over buffers, as asyncio and uvloop do."""
        return self._read().wrap_bio(*args, **named)

    def wrap_socket(self, *args: Any, **named: Any) -> ssl.SSLSocket:
        """Begin a handshake on a socket."""
        return self._read().wrap_socket(*args, **named)

    def _read(self) -> ssl.SSLContext:
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]
        self.set_default_verify_paths()
        return self


def import_aiohttp() -> None:
    """Import aiohttp, to be called before anything else does; contexts that it makes meanwhile are LateRoots."""
    made: list[ssl.SSLContext] = []
    ssl.SSLContext.set_default_verify_paths = lambda context: made.append(context)  # type: ignore[method-assign, assignment]
    try:
        import aiohttp.web  # noqa: F401
    finally:
        del ssl.SSLContext.set_default_verify_paths
    for context in made:
        context.__class__ = LateRoots
