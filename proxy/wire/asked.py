"""A request as one attempt sends it: the head that came, and what is changed of it on its way to one origin."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.wire.fields import NO_NAMES
from proxy.wire.http1.request import RequestHead


@dataclass(slots=True, eq=False)
class Asked:
    """What a stream sends (`proxy.transport.streams.UpstreamStream.send`); each protocol writes it in its own form.

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

    head: RequestHead
    authority: bytes | None = None
    target: bytes | None = None
    drop: frozenset[bytes] = NO_NAMES
    add: bytes = b""
    text: bytes = b""
    block: bytes = b""
