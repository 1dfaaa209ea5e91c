"""Heads, as other rooms take them from here: a request's, an answer's, trailers as fields, and how a body is framed."""

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
    "Asked",
    "FieldBlock",
    "RequestHead",
    "ResponseHead",
    "Trailers",
    "trailer_fields",
]


class Asked:
    """A request as one attempt sends it (`proxy.transport.streams.UpstreamStream.send`): the head that came, and what
    is changed of it on its way to one origin. Each protocol writes it in its own form.

    head: RequestHead          the head as it came, on whichever protocol
    authority: bytes | None    sent in the place of Host (`:authority`); None: as it came
    target: bytes | None       path and query sent in the place of those that came, in origin form; None: as they came
    drop: frozenset[bytes]     lower-case names of fields to leave out, beside those that are never sent on
    add: bytes                 field lines to put behind, each with its CRLF. They come from few, so that HTTP/2 may
                               remember what it encodes them to
    text, block: bytes         what HTTP/1 and HTTP/2 made of all this, for the case that the same is sent again. An
                               `Asked` is for one origin, and so is what is kept here

    A stream keeps none of it once `send` has returned: the next request may be sent by the same object.
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
