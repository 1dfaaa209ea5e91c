"""What is spoken on a connection, by its first bytes."""

from __future__ import annotations

from typing import Final

from proxy.wire.http2.frames import PREFACE

HTTP1: Final = "http/1.1"
HTTP2: Final = "http/2"
#: No method of HTTP/1 is called so (RFC 9113 section 3.4), so that a preface which goes on otherwise is a broken one.
_BEGINNING: Final = PREFACE[:4]


def spoken(data: bytes) -> str | None:
    """HTTP2 where `data` begins as its preface does, HTTP1 where it does not; None: a byte more is needed."""
    if data.startswith(_BEGINNING):
        return HTTP2
    return None if _BEGINNING.startswith(data) else HTTP1
