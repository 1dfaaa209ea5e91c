"""Rebuilding a request's head: without some fields, for another destination, with a body of another length.

The remaining fields stay as they came, octet for octet, in the protocol that they came in. The result is read by the
same strict grammar as what apps send, so a rebuilt head is one that could have come.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from proxy.wire.errors import malformed
from proxy.wire.fields import edited
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.syntax import REQUEST
from proxy.wire.http2.fields import Malformed
from proxy.wire.http2.hpack import literal, walk
from proxy.wire.http2.request import Request2

#: The fields that frame a body; they are replaced if the body gets another length.
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


def rebuilt(
    head: RequestHead, *, target: bytes, host: bytes, cut: Callable[[str], bool], length: int | None = None
) -> RequestHead:
    """Return `head` with this target (origin form, or `*`) and this host, without the fields for whose lower-case names
    `cut` is true; pseudo-fields and Host are never cut. `length`: the body's length, if it differs from what came.
    Raises Refused if no valid head results.
    """
    if isinstance(head, Request2):
        return _rebuilt2(head, target, host, cut, length)
    names = {name.lower() for name, _ in head.pairs()} - {b"host"}
    out: Set[bytes] = {name for name in names if cut(name.decode("latin-1"))}
    put = {b"host": b"Host: %b\r\n" % host}
    if length is not None:
        out |= _FRAMING - {b"content-length"}
        put[b"content-length"] = b"Content-Length: %d\r\n" % length
    fields = edited(head, head.raw.find(b"\n") + 1, out, put)
    raw = b"%b %b HTTP/%b\r\n%b\r\n" % (head.method.encode("ascii"), target, head.version.encode("ascii"), fields)
    found = REQUEST(raw)
    assert found is not None  # `head` was valid, and no line but these is new
    return RequestHead(raw, found[1], found[2], found[3])


def _rebuilt2(
    head: Request2, target: bytes, host: bytes, cut: Callable[[str], bool], length: int | None
) -> RequestHead:
    pseudo = (
        (b":method", head.method.encode("ascii")),
        (b":scheme", b"http"),
        (b":authority", host),
        (b":path", target),
    )
    block = b"".join(
        [literal(name, value) for name, value in pseudo]
    )  # the scheme is replaced by each endpoint's own when the head is sent
    kept = (each for each in head.fields if each.name != b"host" and not cut(each.name.decode("latin-1")))
    block += b"".join([each.wire for each in kept if length is None or each.name != b"content-length"])
    if length is not None:
        block += literal(b"content-length", b"%d" % length)
    try:
        return Request2(walk(block), head.whole)
    except Malformed as bad:
        raise malformed(str(bad)) from None
