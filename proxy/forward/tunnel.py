"""CONNECT: a call whose attempts are dials, and whose answer is a tunnel.

Law: a tunnel is retried until it is connected, by the same decisions as any other call (a dial that failed never left
the proxy, so every method may go again), and never after. Then it is two streams that feed each other, each closed
when the other end has closed its own.
"""

from __future__ import annotations

from typing import ClassVar

from proxy.forward.attempt import Attempt
from proxy.forward.exchange import Exchange
from proxy.forward.means import Means
from proxy.forward.streams import AppStream
from proxy.forward.swift import Plan
from proxy.transport import faults
from proxy.transport.http1 import Connection
from proxy.transport.pool import Origin
from proxy.wire.grammar import ResponseParser
from proxy.wire.head import ResponseHead


def _established() -> ResponseHead:
    head = ResponseParser().feed(b"HTTP/1.1 200 Connection established\r\n\r\n")
    assert head is not None
    return head


#: What a dial that succeeded answers.
ESTABLISHED = _established()


class Dial(Attempt):
    """One attempt to connect."""

    def begin(self, connection: Connection, now: float) -> None:
        """It is connected: that is the answer."""
        if not connection.is_open:
            self.exchange.failed(self, faults.closed(sent=False, answered=False, reused=False))
            return
        self.stream = connection
        self.sent_at = now
        early = connection.listen(self)
        self.on_head(ESTABLISHED, early, False, b"")


class Tunnel(Exchange):
    """A CONNECT call."""

    _attempt: ClassVar[type[Attempt]] = Dial

    def _resting(self, origin: Origin, now: float) -> Connection | None:
        """A tunnel has its connection for itself."""
        return None

    async def connect(self, origin: Origin) -> Connection:
        """A connection without TLS of ours: what is spoken in it is not our affair."""
        return await self.means.pool.connect(origin, within=self.policy.timeouts.connect, tunnel=True)


class TunnelPlan(Plan):
    """The plan of a CONNECT."""

    __slots__ = ()

    def exchange(self, means: Means, app: AppStream) -> Exchange:
        """Its exchange."""
        return Tunnel(means, app, self.head, self.request, self.policy, self.destination)
