"""Heads and trailers to send on HTTP/2, encoded as HPACK, on whichever protocol they came: those of HTTP/1 are
translated.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.wire.fields import NO_NAMES, Trailers
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.response import ResponseHead
from proxy.wire.http2.fields import CONNECTION_SPECIFIC, Trailers2
from proxy.wire.http2.hpack import CREDENTIALS, encoded_lines, literal
from proxy.wire.http2.request import Request2
from proxy.wire.http2.response import Response2, status_field


def request_block(
    head: RequestHead,
    scheme: bytes,
    authority: bytes | None,
    target: bytes | None,
    drop: frozenset[bytes] = NO_NAMES,
    add: bytes = b"",
) -> bytes:
    """Encode a request's head as HPACK, on whichever protocol it came. `scheme`: what the endpoint speaks; `authority`
    and `target` are sent in place of those that came (None: as they came). The fields named in `drop` (in lower case)
    are left out, and the HTTP/1 field lines `add` are encoded last.
    """
    if isinstance(head, Request2):
        return head.block(scheme, authority, target, drop, add)
    text = head.render(target=target, host=authority, drop=drop, add=add)
    line, _, fields = text.partition(b"\r\n")
    method, path, _ = line.split(b" ")
    pairs = list(_translated(fields))
    parts = [literal(b":method", method), literal(b":scheme", scheme)]
    for name, value in pairs:
        if name == b"host" and value:
            parts.append(literal(b":authority", value))
            break
    parts.append(literal(b":path", path))
    parts += [literal(name, value, never=name in CREDENTIALS) for name, value in pairs if name != b"host"]
    return b"".join(parts)


def answer_block(head: ResponseHead, drop: frozenset[bytes] = NO_NAMES, add: bytes = b"") -> bytes:
    """Encode an answer's head as HPACK, on whichever protocol it came. The fields named in `drop` are left out, and the
    lines `add` come last.
    """
    if isinstance(head, Response2):
        return head.block(drop, add)
    _, _, fields = head.render(drop=drop, add=add).partition(b"\r\n")
    return status_field(head.status) + b"".join([literal(name, value) for name, value in _translated(fields)])


def trailers_block(trailers: Trailers | None) -> bytes:
    """Encode trailers as HPACK, on whichever protocol they came; b"" for none."""
    if trailers is None:
        return b""
    if isinstance(trailers, Trailers2):
        return trailers.block
    return b"".join([literal(name, value) for name, value in _translated(trailers.lines)])


def own_block(status: int, lines: bytes) -> bytes:
    """Encode the head of an answer that redrive itself makes: a status, and field lines with their CRLF."""
    return status_field(status) + encoded_lines(lines)


def _translated(fields: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Yield the fields of HTTP/1 lines as HTTP/2 has them: names in lower case, values stripped, hop-by-hop fields left
    out.
    """
    for line in fields.split(b"\r\n"):
        if not line:
            continue
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name not in CONNECTION_SPECIFIC and (name != b"te" or value == b"trailers"):
            yield name, value
