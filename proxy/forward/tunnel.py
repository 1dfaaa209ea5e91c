"""CONNECT: a call whose attempts are dials, and whose answer is a tunnel.

A tunnel is retried until it is connected, by the same decisions as any other call (a dial that failed never left the
proxy, so every method may be repeated), and never after that. Then it consists of two streams that feed each other,
each closed when the other end has closed its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from proxy.forward.attempt import HELD, Attempt
from proxy.forward.context import Context
from proxy.forward.delivery import Delivery
from proxy.forward.exchange import Exchange
from proxy.forward.fallback import Journey
from proxy.forward.request_plan import Plan
from proxy.forward.sending import Sender
from proxy.forward.streams import Tunnelling
from proxy.retry.call.actions import Answer
from proxy.retry.call.call_state import CallState
from proxy.retry.call.machine import Call
from proxy.retry.facts import Outcome
from proxy.transport.clock import monotonic
from proxy.transport.streams import Tunnel, UpstreamStream
from proxy.wire.first_bytes import greets, speaks_http
from proxy.wire.head import ResponseHead, Trailers
from proxy.wire.http1.parser import ResponseParser

#: Seconds of silence, or of what may become a request line, in which nothing is decided (contract, section 12).
MOMENT = 0.1
_NO_NAMES: frozenset[bytes] = frozenset()


def _established() -> ResponseHead:
    head = ResponseParser().feed(b"HTTP/1.1 200 Connection established\r\n\r\n")
    assert head is not None
    return head


#: The answer to a CONNECT whose dial succeeded.
ESTABLISHED = _established()


class TunnelSender(Sender):
    """The sender of the attempts of a CONNECT. Each attempt only opens a connection to the upstream."""

    __slots__ = ()

    opens_connections = False  # a tunnel's carry bytes from the start, without TLS of ours

    def begin(self, attempt: Attempt, stream: UpstreamStream, now: float) -> None:
        """Report the connection, which is open, as the attempt's answer: a tunnel has no request to send."""
        attempt.stream, attempt.sent_at = stream, now
        early = cast(Tunnel, stream).listen(attempt)
        attempt.on_head(ESTABLISHED, b"", False, None)
        if early:
            attempt.on_data(early)

    def resting(self, attempt: Attempt, now: float) -> UpstreamStream | None:
        """Return None: a tunnel always opens a connection of its own."""
        return None

    async def open(self, attempt: Attempt, *, fresh: bool, alone: bool = False) -> UpstreamStream:
        """Open a connection without TLS of the proxy's own, since the app and the upstream decide what is spoken in the
        tunnel. A tunnel never shares its connection, so `fresh` and `alone` have no effect.
        """
        plan = self.plan
        return await self.context.pool.open_tunnel(
            attempt.origin, within=plan.policy.timeouts.connect, app=plan.request.app
        )


class AnsweredDelivery(Delivery):
    """The delivery of a tunnel whose CONNECT was answered before anything was dialled: only the tunnel's bytes are
    forwarded, and a failure can only break the tunnel off.
    """

    __slots__ = ()

    def deliver(
        self, attempt: Attempt, plan: Plan, call: CallState, journey: Journey | None, outcome: Outcome, now: float
    ) -> None:
        """Do nothing: the answer was sent already."""

    def answer(self, action: Answer, call: CallState, journey: Journey | None) -> None:
        """Break the tunnel off, since it can't be connected."""
        self.detail = action.detail
        self.status = action.status
        self.app.reset(None)


class AutoTunnel(Exchange):
    """A tunnel that turns into calls if cleartext HTTP is spoken in it (contract, sections 6 and 12, `auto`). Any other
    tunnel is *blind*: its bytes are forwarded unread.

    Node's fetch sends plain `http://` through a tunnel, and so do gRPC's insecure channels if a proxy variable is set.
    The app's very first bytes decide. While they could still become a preface or a request line they are held, for a
    moment at most; any other bytes make the tunnel blind for good. An upstream that speaks first makes it blind too,
    unless the upstream greets as HTTP/2 servers do.

    If the plan says `at_once`, the CONNECT is answered before anything is dialled: calls need no tunnel, and their own
    policies handle an unreachable upstream. The tunnel's upstream is then dialled once the tunnel is known to be blind,
    or after a moment of silence.
    """

    __slots__ = ("_ended", "_greeting", "_listens", "_report_blind", "_said", "_timer")

    plan: TunnelPlan

    def __init__(self, context: Context, app: Tunnelling, *, at_once: bool, report_blind: Callable[[], None]) -> None:
        super().__init__(context, app, TunnelSender, AnsweredDelivery if at_once else Delivery)
        self._listens = True
        self._said = b""  # the app's bytes, while nothing is decided, or dialled
        self._ended = False  # whether the app sends no more
        self._greeting = b""  # the upstream's bytes, while nothing is decided
        self._timer: asyncio.TimerHandle | None = None
        self._report_blind = report_blind

    def start(
        self, plan: Plan, now: float, body: bytes = b"", done: bool = True, trailers: Trailers | None = None
    ) -> None:
        """Begin the call of a CONNECT, whose head is whole. `body`: the bytes that came with it; `done`: no more bytes
        follow as its body; `trailers`: those after the body, None for none.
        """
        self.plan = cast(TunnelPlan, plan)
        if not self.plan.at_once:
            super().start(plan, now, body, done, trailers)
            return
        self._wait()
        app = cast(Tunnelling, self.delivery.app)
        app.respond(ESTABLISHED, _NO_NAMES, b"X-Attempt-Count: 0\r\n", b"", False, None)
        app.tunnel()

    def app_data(self, data: bytes) -> None:
        """Take the app's bytes. The first of them decide whether cleartext HTTP is spoken in the tunnel."""
        if not self._listens and self.delivery.pipe is not None and not self._said:
            super().app_data(data)
            return
        self.moved = monotonic()
        self._said += data
        if self._listens:
            speaks = speaks_http(self._said)
            if speaks is None and len(self._said) < HELD:
                self._wait()
            elif speaks:
                self._become_calls()
            else:
                self._stay_blind()
        elif len(self._said) >= HELD:
            self.delivery.app.pause()  # until it is dialled

    def app_ended(self, trailers: Trailers | None) -> None:
        """Note that the app sends no more, so that its bytes were no request. The end is forwarded to the upstream
        after those bytes.
        """
        if self._listens:
            self._ended = True
            self._stay_blind()
        elif self.delivery.pipe is None or self._said:
            self._ended = True
        else:
            super().app_ended(trailers)

    def app_gone(self) -> None:
        self._forget_timer()
        super().app_gone()

    def cut(self) -> None:
        if self.over:  # nothing was dialled
            self.delivery.app.reset(None)
        else:
            super().cut()

    def forward(self, attempt: Attempt, data: bytes) -> None:
        """Forward the upstream's bytes to the app. If the upstream sends before the app does, and not as an HTTP/2
        server begins, the tunnel becomes blind: its bytes are forwarded unread.
        """
        if not self._listens:
            super().forward(attempt, data)
            return
        self._greeting += data
        if greets(self._greeting) is False or len(self._greeting) >= HELD:
            self._stay_blind()

    def answer_ended(self, attempt: Attempt) -> None:
        """Note that the upstream sends no more."""
        if self._listens and self.delivery.pipe is not None:
            self._stay_blind()
        super().answer_ended(attempt)

    def _begin_dialling(self, now: float) -> None:
        super().start(self.plan, now)
        if not self.over:
            self.delivery.status = ESTABLISHED.status  # the status that the app has got

    def _stay_blind(self) -> None:
        self._listens = False
        self._forget_timer()
        self._report_blind()
        if self.over:
            self._begin_dialling(monotonic())
        elif self.delivery.pipe is not None:
            self._flush()

    def _flush(self) -> None:
        """Forward to each side what the other has sent so far."""
        greeting, self._greeting = self._greeting, b""
        said, self._said = self._said, b""
        ended, self._ended = self._ended, False
        for attempt in self.flights.values():
            if greeting:
                super().forward(attempt, greeting)
        if said:
            super().app_data(said)
        if ended:
            super().app_ended(None)

    def _become_calls(self) -> None:
        """Turn the tunnel into calls: release its connection to the upstream, or its dial, and read requests from the
        app's connection from now on.
        """
        self._listens = False
        said, self._said = self._said, b""
        self._forget_timer()
        app = cast(Tunnelling, self.delivery.app)
        app.leave_tunnel(self.plan.request.authority)
        if self.over:  # nothing was dialled, so there is nothing to report
            self.decided = True  # so that it is not kept for the next call
            app.done()
        else:
            self.delivery.pipe = None
            self._verdict = Outcome.SUCCESS
            now = monotonic()
            self.notify(now, Call.app_gone, (now,))
        app.data_received(said)

    def stream_on(self, attempt: Attempt, now: float) -> None:
        """Forward the app's bytes that were held until the upstream was connected."""
        super().stream_on(attempt, now)
        if not self._listens and not self.over:
            self.delivery.app.resume()
            self._flush()

    def finish(self, outcome: Outcome, now: float) -> None:
        """End the tunnel."""
        self._forget_timer()
        super().finish(outcome, now)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.context.loop.call_later(MOMENT, self._ring_for_more)

    def _ring_for_more(self) -> None:
        """End the wait for the app's first bytes, which say whether cleartext HTTP is spoken in the tunnel. If only a
        part of a line came, the tunnel's bytes are passed on unread. If no byte came, and the app has its answer to the
        CONNECT already, the upstream is connected to now, since it may be the one that speaks first.
        """
        self._timer = None
        if self._said:
            self._stay_blind()
        elif self.over:
            self._begin_dialling(monotonic())

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class TunnelPlan(Plan):
    """The plan of a CONNECT. `report_blind`: called if it is found that no HTTP is spoken in an `auto` tunnel, so that
    its bytes are forwarded unread (the tunnel is blind), None for other tunnels; `at_once`: the CONNECT is answered
    before anything is dialled; `goes_elsewhere`: the tunnel is dialled not to all of its policy's endpoints, but to the
    one that the CONNECT names, or to another port of the same host.
    """

    __slots__ = ("at_once", "goes_elsewhere", "report_blind")

    at_once: bool
    report_blind: Callable[[], None] | None

    def tunnel(self, context: Context, app: Tunnelling) -> Exchange:
        """Return the exchange that drives the CONNECT of this plan. `app`: the app's stream."""
        if self.report_blind is None:
            return Exchange(context, app, TunnelSender)
        return AutoTunnel(context, app, at_once=self.at_once, report_blind=self.report_blind)
