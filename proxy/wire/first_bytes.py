"""What is spoken on a connection, or inside a CONNECT, by the first bytes."""

from __future__ import annotations

import re
from typing import Final

from proxy.wire.http1.syntax import TCHAR
from proxy.wire.http2.frames import PREFACE

HTTP1: Final = "http/1.1"
HTTP2: Final = "http/2"
#: What goes on otherwise is a broken preface; `PRI` with another version is a method of HTTP/1 like any other.
_BEGINNING: Final = PREFACE[: len(b"PRI * HTTP/2")]
_REQUEST_LINE = re.compile(TCHAR + rb"{1,64}+ [!-~\x80-\xff]++ HTTP/1\.[01]\r\n").match
_BEGUN = re.compile(TCHAR + rb"{1,64}+(?: (?:[!-~\x80-\xff]++(?: H?T?T?P?/?1?\.?[01]?\r?)?)?)?").fullmatch
#: Of a frame's header: SETTINGS without flags, of the connection. Its length is that of some pairs of 6 octets.
_SETTINGS: Final = b"\x04\x00\x00\x00\x00\x00"


def spoken(data: bytes) -> str | None:
    """HTTP2 where `data`, the first bytes of a connection, begins as its preface does, HTTP1 where it does not; None: a
    byte more is needed.
    """
    if data.startswith(_BEGINNING):
        return HTTP2
    return None if _BEGINNING.startswith(data) else HTTP1


def speaks_http(data: bytes) -> bool | None:
    """Whether these first bytes, which may be of any protocol, are HTTP/2's preface or a request line of HTTP/1's; None
    where they may become one.
    """
    if PREFACE.startswith(data[: len(PREFACE)]):
        return True if len(data) >= len(PREFACE) else None
    if b"\n" in data:
        return _REQUEST_LINE(data) is not None
    return None if _BEGUN(data) else False


def greets(data: bytes) -> bool | None:
    """Whether these first bytes of a server are a SETTINGS frame, as HTTP/2's servers greet; None where they may become
    one.
    """
    length = int.from_bytes(data[:3], "big")
    if (len(data) >= 3 and (length % 6 or length > 600)) or not _SETTINGS.startswith(data[3:9]):
        return False
    return True if len(data) >= 9 else None
