"""A request's head as another one: without some fields, for another destination, with a body of another length.

What is left stays as it came, octet for octet, in the form that it came in; the result is read by the same strict
grammar as what apps send, so that a head made here is one that could have come.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from proxy.wire.errors import malformed
from proxy.wire.fields import edited
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.syntax import REQUEST
from proxy.wire.http2.heads import Malformed, Request2
from proxy.wire.http2.hpack import literal, walk

#: What frames a body, and goes where its length is made again.
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


def rebuilt(
    head: RequestHead, *, target: bytes, host: bytes, cut: Callable[[str], bool], length: int | None = None
) -> RequestHead:
    """The head `head` with this target in origin form (or `*`) and this host, without the fields whose lower-case names
    `cut` says, pseudo-fields and Host apart. `length`: of its body, where that is another than came. Raises Refused
    where nothing can be made of it.
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
    raw = b"%b %b HTTP/1.%d\r\n%b\r\n" % (head.method.encode("ascii"), target, head.minor, fields)
    found = REQUEST(raw)
    assert found is not None  # it was a head, and no line of it is new but these
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
    block = b"".join([literal(name, value) for name, value in pseudo])  # each endpoint has its own scheme put in
    kept = (each for each in head.fields if each.name != b"host" and not cut(each.name.decode("latin-1")))
    block += b"".join([each.wire for each in kept if length is None or each.name != b"content-length"])
    if length is not None:
        block += literal(b"content-length", b"%d" % length)
    try:
        return Request2(walk(block), head.whole)
    except Malformed as bad:
        raise malformed(str(bad)) from None
