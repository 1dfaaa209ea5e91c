"""CONNECT: a call whose attempts are dials, and whose answer is a tunnel.

A tunnel is retried until it is connected, by the same decisions as any other call (a dial that failed never left
the proxy, so every method may go again), and never after. Then it is two streams that feed each other, each closed
when the other end has closed its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

from proxy.forward.attempt import HELD, Attempt
from proxy.forward.context import Context
from proxy.forward.exchange import Exchange
from proxy.forward.request_plan import Plan
from proxy.forward.streams import Tunnelling
from proxy.retry.facts import Outcome
from proxy.transport.clock import monotonic
from proxy.transport.origins import Origin
from proxy.transport.streams import Tunnel, UpstreamStream
from proxy.wire.head import ResponseHead, Trailers
from proxy.wire.http1.parser import ResponseParser
from proxy.wire.http2.frames import HEADER_SIZE, PREFACE, SETTINGS

#: Seconds that the beginning of what may become a request line is held.
MOMENT = 0.1
_TCHAR = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_REQUEST_LINE = re.compile(_TCHAR + rb"{1,64}+ [!-~\x80-\xff]++ HTTP/1\.[01]\r\n").match
_BEGUN = re.compile(_TCHAR + rb"{1,64}+(?: (?:[!-~\x80-\xff]++(?: H?T?T?P?/?1?\.?[01]?\r?)?)?)?").fullmatch


def _established() -> ResponseHead:
    head = ResponseParser().feed(b"HTTP/1.1 200 Connection established\r\n\r\n")
    assert head is not None
    return head


#: What a dial that succeeded answers.
ESTABLISHED = _established()


class TunnelExchange(Exchange):
    """The exchange of a CONNECT: its attempts are dials."""

    __slots__ = ()

    def _begin(self, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
        """It is connected: that is the answer."""
        attempt.stream, attempt.sent_at = stream, now
        early = cast(Tunnel, stream).listen(attempt)
        attempt.on_head(ESTABLISHED, early, False, None)

    def _resting(self, origin: Origin, now: float) -> UpstreamStream | None:
        """A tunnel has its connection for itself."""
        return None

    async def open(self, origin: Origin, *, fresh: bool) -> UpstreamStream:
        """A connection without TLS of ours: what is spoken in it is not our affair."""
        return await self.means.pool.open_tunnel(origin, within=self.policy.timeouts.connect)


class AutoTunnel(TunnelExchange):
    """A tunnel that turns into calls where cleartext HTTP/1 is spoken in it (contract, section 6, `auto`).

    Node's fetch tunnels plain `http://` so. The very first bytes decide: while the app's could still become a request
    line and the upstream has said nothing, they are held, for a moment at most; anything else stays blind for good.
    """

    __slots__ = ("_greeting", "_held", "_patience", "_told_blind")

    def __init__(self, means: Context, app: Tunnelling, told_blind: Callable[[], None]) -> None:
        super().__init__(means, app)
        self._held: bytes | None = b""  # None: decided
        self._patience: asyncio.TimerHandle | None = None
        self._greeting = b""  # the SETTINGS that the upstream said first
        self._told_blind = told_blind

    def _begin(self, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
        """It is connected. What the upstream has said by then is looked at as what it says later."""
        attempt.stream, attempt.sent_at = stream, now
        early = cast(Tunnel, stream).listen(attempt)
        if greets(early):
            self._greeting, early = early, b""
        attempt.on_head(ESTABLISHED, early, False, None)

    def app_data(self, data: bytes) -> None:
        """The app's bytes; the first ones are looked at."""
        if self.bytes_out:  # the upstream's greeting came with the connection
            self._stay_blind()
        if self._held is None or self.pipe is None:
            super().app_data(data)
            return
        self.moved = monotonic()
        self._held += data
        speaks = speaks_http(self._held)
        if speaks is None and len(self._held) < HELD:
            if self._patience is None:
                self._patience = self.means.loop.call_later(MOMENT, self._stay_blind)
        elif speaks:
            self._become_calls()
        else:
            self._stay_blind()

    def app_ended(self, trailers: Trailers | None) -> None:
        """The app says no more: what it has said was no request."""
        self._stay_blind()
        super().app_ended(trailers)

    def hand_on(self, attempt: Attempt, data: bytes) -> None:
        """The upstream speaks: if it is the first to, this is not HTTP, but for the SETTINGS that gRPC servers greet
        with. They are not the app's to see before it is known whether it speaks HTTP/2 with the upstream or with us.
        """
        if self._held is not None and greets(self._greeting + data):
            self._greeting += data
            return
        self._stay_blind()
        super().hand_on(attempt, data)

    def upstream_ended(self) -> None:
        """The upstream says no more."""
        self._stay_blind()
        super().upstream_ended()

    def _stay_blind(self) -> None:
        held, self._held = self._held, None
        self._forget_patience()
        if held is None or self.over:
            return
        self._told_blind()
        greeting, self._greeting = self._greeting, b""
        for attempt in list(self.flights.values()) if greeting else ():
            super().hand_on(attempt, greeting)
        if held:
            super().app_data(held)

    def _become_calls(self) -> None:
        """Let go of the connection that was dialled; the app's connection carries requests from now on."""
        held, self._held = self._held, None
        self._forget_patience()
        app = cast(Tunnelling, self.app)
        app.leave_tunnel(self.request.authority)
        now = monotonic()
        self.pipe = None
        self.tell(now, self.call.ended, next(iter(self.flights)), now)
        app.data_received(held or b"")

    def _finish(self, outcome: Outcome, now: float) -> None:
        self._forget_patience()
        super()._finish(outcome, now)

    def _forget_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def greets(data: bytes) -> bool:
    """Whether an upstream's first bytes begin with an HTTP/2 SETTINGS frame, as its preface does."""
    return len(data) >= HEADER_SIZE and data[3] == SETTINGS and not any(data[4:HEADER_SIZE])


def speaks_http(data: bytes) -> bool | None:
    """Whether these first bytes are an HTTP/1 request line, or HTTP/2's preface; None where they may become one."""
    if PREFACE.startswith(data[: len(PREFACE)]):
        return True if len(data) >= len(PREFACE) else None
    if b"\n" in data:
        return _REQUEST_LINE(data) is not None
    return None if _BEGUN(data) else False


class TunnelPlan(Plan):
    """The plan of a CONNECT. `told_blind`, of one that is `auto`, is called where it stays a tunnel."""

    __slots__ = ("told_blind",)

    told_blind: Callable[[], None] | None

    def tunnel(self, means: Context, app: Tunnelling) -> TunnelExchange:
        """Make the exchange of a CONNECT by this plan."""
        return TunnelExchange(means, app) if self.told_blind is None else AutoTunnel(means, app, self.told_blind)
