"""Answers to bytes, framed for the app's version: the writing half of an app's connection.

Law: what we write of our own accord says what we do: whether the connection stays, how long the body is, when it was.
How an answer that is cut ends is in `server.leaving`.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from proxy.forward.exchange import Exchange
from proxy.forward.request_plan import Plan
from proxy.retry.facts import Request
from proxy.wire.head import UNTIL_CLOSE, RequestHead, ResponseHead, Trailers
from proxy.wire.http1.body import Body, chunk, end_chunked

if TYPE_CHECKING:
    from proxy.server.acceptor import Acceptor

CLOSE = b"Connection: close\r\n"
_KEEP = b"Connection: keep-alive\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_UNFRAMED = frozenset({b"transfer-encoding", b"trailer"})
#: Methods whose answers are framed in their own ways.
_BODILESS = frozenset({"HEAD", "CONNECT"})
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


class Answering(asyncio.Protocol):
    """The writing half of `AppConnection`, and of `proxy.forward.streams.AppStream`.

    `head` is that of the request in progress, `exchange` its call. `blocked`: what is written should wait.
    """

    __slots__ = (
        "_body",
        "_chunked",
        "_close",
        "_informed",
        "_like",
        "_like_add",
        "_like_request",
        "_lingered",
        "_rendered",
        "_tunnel",
        "acceptor",
        "blocked",
        "exchange",
        "head",
        "plan",
        "transport",
    )

    acceptor: Acceptor
    head: RequestHead
    exchange: Exchange | None
    transport: asyncio.Transport | None
    _body: Body | None  # of the request, while it comes

    def __init__(self) -> None:
        self.transport = None
        self.exchange = None
        self.blocked = False
        self._body = None
        self._chunked = False  # the answer is framed in chunks by us
        self._close = False  # the connection closes behind this answer
        self._informed = False  # a 100 was passed on
        self._tunnel = False  # bytes, both ways
        self._like = self._like_add = b""  # the head of the last answer, the lines that it was handed on with,
        self._like_request: Request | None = None  # the first of the requests alike that it was given to,
        self._rendered = b""  # and what it was rendered to
        self.plan: Plan | None = None  # of the last request, by these settings
        self._lingered = -1  # bytes read and dropped since the last answer; below 0: not closing in stages

    def inform(self, head: ResponseHead, add: bytes, *, resent: bool) -> None:
        """Pass an interim answer on, with the lines `add`: never to HTTP/1.0. Where the request was sent again, a 100
        is only for an app that still waits for one: the proxy asked for it itself (RFC 9110 section 15.2).
        """
        if self.head.minor == 0 or self.transport is None:
            return
        if head.status == 100:
            if resent and (self._informed or (self._body is None and self.head.body_size)):
                return
            self._informed = True
        self.transport.write(head.render(add=add))

    def respond(
        self,
        head: ResponseHead,
        drop: frozenset[bytes],
        add: bytes,
        data: bytes,
        end: bool,
        trailers: Trailers | None,
    ) -> None:
        """Hand an upstream's answer on, framed for the app's version."""
        transport = self.transport
        if transport is None:
            return
        if end and self._body is None and not (self._close or self.acceptor.draining):  # what nearly every one is
            first = None if self.plan is None else self.plan.first
            if head.raw == self._like and add is self._like_add and first is self._like_request:
                transport.write(self._rendered + data)  # heads that have met before, on whichever connection
                return
            if (
                head.simple
                and not head.chunked
                and self.head.minor
                and b"date" in head.specials
                and self.head.method not in _BODILESS
            ):
                rendered = head.render(drop=drop, add=add)
                if not drop:
                    self._like, self._like_add, self._like_request = head.raw, add, first
                    self._rendered = rendered
                transport.write(rendered + data)
                return
        size = head.body_size(self.head.method)
        minor = self.head.minor
        if self.acceptor.draining or (self._body is not None and (end or self._is_a_last_word(head))):
            self._close = True
        if size < 0:
            if minor == 0:
                drop |= _UNFRAMED
                self._close = True
            else:
                self._chunked = True
                if size == UNTIL_CLOSE:
                    add += _CHUNKED
        if head.status != 101 and self.head.method != "CONNECT":
            if b"date" not in head.specials:
                add += self.acceptor.date_line()
            if self._close:
                add += CLOSE
            elif minor == 0:
                add += _KEEP
        whole = head.render(drop=drop, add=add)
        if self._chunked:
            if data:
                whole += chunk(data)
            if end:
                whole += end_chunked(trailers.lines if trailers is not None else b"")
        elif data:
            whole += data
        transport.write(whole)

    def _is_a_last_word(self, head: ResponseHead) -> bool:
        """Whether an answer that comes before its request is whole says that the rest of it is not wanted.

        RFC 9110 section 10.1.1 and RFC 9112 section 9.5: then the app is told that the connection closes, and may stop.
        An app that waits for a 100 in vain may send its next request in the place of the body, or the body: nobody
        could tell. Any other answer may go on beside the request, and what is left of that is read over behind it.
        """
        waits = not self._informed and b"expect" in self.head.specials
        return waits or head.status >= 400 or not head.keep_alive

    def answer(self, status: int, add: bytes, body: bytes) -> None:
        """Write an answer of our own: with these field lines, and those that frame it."""
        if self.acceptor.draining or self._body is not None or self.head.method == "CONNECT":
            self._close = True  # what follows a CONNECT was meant for a tunnel: it is never a request (RFC 9931)
        line = CLOSE if self._close else _KEEP if self.head.minor == 0 else b""
        self._write_own(status, add, body, line, headless=self.head.method == "HEAD")

    def _write_own(self, status: int, add: bytes, body: bytes, line: bytes, *, headless: bool) -> None:
        if self.transport is not None:
            own = b"%bContent-Length: %d\r\n%b" % (self.acceptor.date_line(), len(body), line)
            head = b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, _REASONS.get(status, b""), add, own)
            self.transport.write(head if headless else head + body)

    def write(self, data: bytes) -> None:
        """More of the body, or of a tunnel."""
        if self.transport is not None:
            self.transport.write(chunk(data) if self._chunked else data)

    def finish(self, trailers: Trailers | None) -> None:
        """The body is whole; in a tunnel, the other end sends no more."""
        transport = self.transport
        if transport is None:
            return
        if self._tunnel:
            if transport.can_write_eof():
                transport.write_eof()
            elif self.exchange is not None:  # TLS: one end is both
                asyncio.get_running_loop().call_soon(self.exchange.app_ended, None)
        elif self._chunked:
            transport.write(end_chunked(trailers.lines if trailers is not None else b""))
