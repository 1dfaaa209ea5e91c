"""Detecting by its first bytes which protocol is spoken on a connection, or inside a CONNECT."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from proxy.wire.http1.syntax import TCHAR
from proxy.wire.http2.frames import PREFACE

HTTP1: Final = "http/1.1"
HTTP2: Final = "http/2"
TLS: Final = "tls"
#: The beginning after which any other continuation is a broken preface; `PRI` with another version is an HTTP/1 method.
_BEGINNING: Final = PREFACE[: len(b"PRI * HTTP/2")]
_REQUEST_LINE = re.compile(TCHAR + rb"{1,64}+ [!-~\x80-\xff]++ HTTP/1\.[01]\r\n").match
_BEGUN = re.compile(TCHAR + rb"{1,64}+(?: (?:[!-~\x80-\xff]++(?: H?T?T?P?/?1?\.?[01]?\r?)?)?)?").fullmatch
#: Type, flags and stream in a frame's header: SETTINGS, none, the connection. The length must be a multiple of 6.
_SETTINGS: Final = b"\x04\x00\x00\x00\x00\x00"


class FirstBytes:
    """The first bytes from an app, as long as they do not show which protocol it speaks. `came`: those that have come.
    `secure`: called with the bytes if they are neither HTTP nor may become so, to begin TLS; None where TLS is not
    possible.
    """

    __slots__ = ("came", "secure")

    def __init__(self, secure: Callable[[bytes], None] | None = None) -> None:
        self.came = b""
        self.secure = secure

    def take(self, data: bytes) -> str | None:
        """Add bytes, and return the protocol that all of them show: HTTP1, HTTP2 or TLS; None if more are needed."""
        data = self.came = self.came + data
        is_http = True if self.secure is None else speaks_http(data)
        if is_http:
            return spoken(data)
        return None if is_http is None else TLS


#: The first bytes of connections from which none has come, and where TLS is not possible.
NONE_CAME: Final = FirstBytes()


def spoken(data: bytes) -> str | None:
    """Return HTTP2 if `data`, the first bytes of a connection, begins as HTTP/2's preface does, HTTP1 if it does not,
    None if more bytes are needed to know.
    """
    if data.startswith(_BEGINNING):
        return HTTP2
    return None if _BEGINNING.startswith(data) else HTTP1


def speaks_http(data: bytes) -> bool | None:
    """Whether these first bytes, which may be of any protocol, are HTTP/2's preface or a request line of HTTP/1; None
    if they may become one.
    """
    if PREFACE.startswith(data[: len(PREFACE)]):
        return True if len(data) >= len(PREFACE) else None
    if b"\n" in data:
        return _REQUEST_LINE(data) is not None
    return None if _BEGUN(data) else False


def greets(data: bytes) -> bool | None:
    """Whether these first bytes from a server are a SETTINGS frame, with which HTTP/2 servers greet; None if they may
    become one.
    """
    length = int.from_bytes(data[:3], "big")
    if (len(data) >= 3 and (length % 6 or length > 600)) or not _SETTINGS.startswith(data[3:9]):
        return False
    return True if len(data) >= 9 else None
