"""The base of a connection on which events of streams come, and whose socket compiled code may read past its transport
(`proxy.transport.direct_read`).
"""

from __future__ import annotations

#: The number of reads, each of whole events, after which a body is taken for a stream of events, and read past the
#: transport if possible.
EVENTS = 4


class EventSource:
    """A connection that may be read past its transport. It is a base class, and no protocol, because compiled code
    calls its methods without the interpreter.

    `events`: the reads of whole events of its present body, since its transport last took the reading back.
    `reads`: the object of compiled code that reads it, None while its transport does; `place`: its place there.
    """

    __slots__ = ("events", "place", "reads")

    def __init__(self) -> None:
        self.events = 0
        self.place = -1
        self.reads: object | None = None

    def another_body(self) -> None:
        """Note that a body begins, of which nothing is known."""
        self.events = 0

    def another_event(self) -> bool:
        """Note that a read was whole events; return whether that shows the body to be a stream of events."""
        self.events += 1
        return self.events == EVENTS

    def take_event(self, data: bytes) -> bool:
        """Pass `data` on and return True, if it is whole events and nothing has to be decided about them; else do
        nothing and return False.
        """
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        """Take `data`, whatever it is."""
        raise NotImplementedError

    def read_by_transport(self) -> None:
        """Let the transport read on, which finds what there is besides events."""
        raise NotImplementedError

    def read_failed(self, error: Exception) -> None:
        """Note that the connection broke by this error, which a read past the transport has met."""
        raise NotImplementedError
