"""Endpoints as policies reach them, and how calls take turns on them.

An origin is found by what defines it (the endpoint, and the way to it), so it lives over reloads where the
definition did; what is learnt of its health is learnt for everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from proxy.retry.routing import Endpoint
from proxy.transport.dial import Way, parent_credentials
from proxy.transport.dial_queue import DialQueue
from proxy.transport.streams import Resting, SharedConnection

#: Contract, section 6: an endpoint that refuses connections is passed over for 5 s, doubling to 60 s.
FIRST_PENALTY, LAST_PENALTY = 5.0, 60.0


class Origin:
    """An endpoint: its resting connections, oldest first, who waits to dial it, and its health. On HTTP/2 `shared` are
    its connections, and `dialled` the next one while it is opened; `selected_http1`, by the latest of the connections
    that might have been either's.
    """

    def __init__(self, endpoint: Endpoint, way: Way) -> None:
        self.endpoint = endpoint
        self.way = way
        self.label = f"unix:{endpoint.unix}" if endpoint.unix else f"{endpoint.host}:{endpoint.port}"
        self.host = endpoint.authority.encode("latin-1")
        self.path = endpoint.path.encode()
        self.idle: list[Resting] = []
        self.dials = DialQueue()
        self.shared: list[SharedConnection] = []
        self.dialled: asyncio.Task[None] | None = None
        self.selected_http1 = False
        self.open = 0
        self.penalty = self.refused_until = 0.0
        #: Whether requests go in absolute form, to a parent proxy; and field lines for it.
        self.absolute = way.parent is not None and endpoint.scheme == "http" and endpoint.unix is None
        self.credentials = parent_credentials(way.parent) if way.parent and self.absolute else b""

    def refused(self, now: float) -> None:
        """Pass the endpoint over for a while: it could not be connected to. Attempts that fail together count once."""
        if now >= self.refused_until:
            self.penalty = min(LAST_PENALTY, self.penalty * 2 or FIRST_PENALTY)
            self.refused_until = now + self.penalty

    def reached(self) -> None:
        """Take note that the endpoint could be connected to: it is passed over no more."""
        self.penalty = self.refused_until = 0.0


class Destination:
    """The origins of one upstream, or of one authority that a request named."""

    def __init__(self, origins: tuple[Origin, ...]) -> None:
        self.origins = origins
        self.only = origins[0] if len(origins) == 1 else None  # where there is nothing to choose
        self._turn = 0

    def choose(self, avoid: Collection[Origin], now: float) -> Origin:
        """The next in turn: not one that the call avoids, nor one that refuses connections, while another is left.

        A retry takes no turn: else, of two endpoints, every call would begin with the one that fails.
        """
        origin = self.next(avoid, now)
        if not avoid:
            self.took(origin)
        return origin

    def next(self, avoid: Collection[Origin], now: float) -> Origin:
        """The origin that `choose` would take, with the round-robin left as it is."""
        best, best_rank = self.origins[0], 4
        for step in range(len(self.origins)):
            origin = self.origins[(self._turn + step) % len(self.origins)]
            rank = 2 * (origin.refused_until > now) + (origin in avoid)
            if rank < best_rank:
                best, best_rank = origin, rank
                if rank == 0:
                    break
        return best

    def took(self, origin: Origin) -> None:
        """Advance the round-robin past this origin."""
        self._turn = (self.origins.index(origin) + 1) % len(self.origins)


def endpoint_of(scheme: str, authority: str) -> Endpoint:
    """The endpoint that host[:port] names, as a valid authority was read."""
    https = scheme == "https"
    host, _, port = authority[1:].partition("]") if authority.startswith("[") else authority.partition(":")
    return Endpoint("https" if https else "http", host, int(port.removeprefix(":") or (443 if https else 80)))
