"""The upstream's side of an attempt: who listens to a stream, and who keeps its connection.

Law: the stream is the unit, never the connection, so that a multiplexed protocol fits in behind the same methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxy.retry.facts import Fault
from proxy.wire.head import ResponseHead

if TYPE_CHECKING:
    from proxy.transport.connection import Connection


class Listener(Protocol):
    """Who a stream is for: an attempt."""

    def on_info(self, head: ResponseHead) -> None:
        """An interim answer (1xx, but 101)."""
        ...

    def on_head(self, head: ResponseHead, data: bytes, end: bool, trailers: bytes) -> None:
        """The final head, with what of the body came beside it. `trailers` are raw lines, where they came at once."""
        ...

    def on_data(self, data: bytes) -> None:
        """More of the body."""
        ...

    def on_end(self, trailers: bytes) -> None:
        """The body ended well."""
        ...

    def on_fault(self, fault: Fault) -> None:
        """The stream broke."""
        ...

    def on_writable(self) -> None:
        """What was written has gone: write on."""
        ...


class Keeper(Protocol):
    """Who connections belong to: the pool."""

    def opened(self, connection: Connection) -> None:
        """It is there."""
        ...

    def rest(self, connection: Connection) -> None:
        """It can carry another exchange."""
        ...

    def conforms(self, connection: Connection) -> bool:
        """Whether it may rest, and be used again: the configuration in force would open it so."""
        ...

    def lost(self, connection: Connection) -> None:
        """It is closed."""
        ...
