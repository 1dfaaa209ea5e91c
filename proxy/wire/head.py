"""The names that other rooms import: heads of requests and answers, trailers as fields, and how a body is framed."""

from __future__ import annotations

from proxy.wire.field_names import ANSWER_CUT, REQUEST_CUT
from proxy.wire.fields import CHUNKED, NO_NAMES, UNTIL_CLOSE, FieldBlock, Trailers, trailer_fields
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.response import ResponseHead

__all__ = [
    "ANSWER_CUT",
    "CHUNKED",
    "REQUEST_CUT",
    "UNTIL_CLOSE",
    "FieldBlock",
    "PreparedRequest",
    "RequestHead",
    "ResponseHead",
    "Trailers",
    "trailer_fields",
]


class PreparedRequest:
    """A request as one attempt sends it (`proxy.transport.streams.UpstreamStream.send`): the head that came, and the
    changes made to it for one origin. Each protocol writes it in its own form.

    head: RequestHead          the head as it came, on whichever protocol
    authority: bytes | None    sent in place of Host (`:authority`); None: Host as it came
    target: bytes | None       path and query in origin form, sent in place of those that came; None: as they came
    drop: frozenset[bytes]     lower-case names of fields to leave out, beside those that are never forwarded
    add: bytes                 field lines to add at the end, each with its CRLF. Only few different values occur, so
                               HTTP/2 may cache how it encodes them
    text, block: bytes         the request as HTTP/1 and HTTP/2 have encoded it, kept in case it is sent again. A
                               `PreparedRequest` is for one origin, and so is what is kept here

    A stream keeps no reference to it once `send` has returned, so the same object may be used for the next request.
    """

    __slots__ = ("add", "authority", "block", "drop", "head", "target", "text")

    def __init__(
        self,
        head: RequestHead,
        authority: bytes | None = None,
        target: bytes | None = None,
        drop: frozenset[bytes] = NO_NAMES,
        add: bytes = b"",
    ) -> None:
        self.head = head
        self.authority = authority
        self.target = target
        self.drop = drop
        self.add = add
        self.text = self.block = b""
