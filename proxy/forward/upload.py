"""The way of the app's bytes: a request's body to every attempt that wants it, a tunnel's to its other end.

Law: the app is read from while what is sent keeps up, or what waits can be kept; otherwise it is held back, and the
kernel holds it back for us. A body that outgrows its buffer in flight is lost to further attempts and streams on; one
that would outgrow it while nothing flies waits for the next attempt.
"""

from __future__ import annotations

from proxy.forward.attempt import Attempt
from proxy.forward.sending import Sending
from proxy.transport.clock import monotonic
from proxy.transport.http1 import HIGH_WATER
from proxy.transport.replay import PIECE, Replay


class Upload(Sending):
    """See the module."""

    def _receive(self, body: bytes, done: bool, trailers: bytes) -> None:
        """The request has a body; this much of it has come."""
        replay = self.replay = Replay(self.means.store)
        replay.done = done
        replay.trailers = self.head.trailers_to_send(trailers) if trailers else b""
        if body and not replay.append(body):
            self._overfull = True
        self.bytes_in = len(body)

    def app_data(self, data: bytes) -> None:
        """More of the request's body; in a tunnel, bytes."""
        self.moved = monotonic()
        self.bytes_in += len(data)
        if self.tunnelling:
            self._through(data)
            return
        replay = self.replay
        if replay is None or self.over:
            return
        if not replay.append(data):
            self._overfull = True
        self._pump()

    def app_ended(self, trailers: bytes) -> None:
        """The request's body is whole; in a tunnel, the app sends no more."""
        if self.tunnelling:
            self._half_ended(1)
            return
        replay = self.replay
        if replay is not None:
            replay.done = True
            replay.trailers = self.head.trailers_to_send(trailers) if trailers else b""
            self._pump()

    def upstream_ended(self) -> None:
        """In a tunnel, the upstream sends no more."""
        self.app.finish(b"")
        self._half_ended(2)

    def upstream_writable(self, attempt: Attempt) -> None:
        """An attempt's stream takes bytes again."""
        self.moved = monotonic()
        if self.tunnelling:
            self.app.resume()
        else:
            self._pump()

    def launched(self) -> None:
        """A request with a body was begun to be sent. Hedges that go at once with it need the body from its beginning:
        nothing of it is let go before the last of them is on its way.
        """
        if self._overfull and max(self.flights, default=0) < self.call.attempts:
            self.means.loop.call_soon(self._all_launched)
            return
        self._all_launched()

    def _all_launched(self) -> None:
        if self._overfull and not self.over:
            self._lose()
        self._settle_flow()

    # -- the request's body ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Pass on what has come of the request's body."""
        for attempt in list(self.flights.values()):
            attempt.pump()
        if self._overfull and any(attempt.stream is not None for attempt in self.flights.values()):
            self._lose()
        self._settle_flow()

    def _lose(self) -> None:
        """The body outgrew what may be kept: it streams on in what flies now."""
        self._overfull = False
        if self.replay is None or self.replay.lost:
            return
        now = monotonic()
        self.replay.lose()
        furthest = max(self.flights.values(), key=lambda each: (each.sent, -each.number), default=None)
        self.tell(now, self.call.replay_lost, now, 0 if furthest is None else furthest.number)
        if not self.over and self.policy.timeouts.idle is not None:
            self.due_by(now + self.policy.timeouts.idle)

    @property
    def _has_outgrown(self) -> bool:
        """Whether the body outgrew its buffer, so that only silence ends the wait for the head. Attempts that share the
        request's stream need no buffer: `attempt` and `total` bound them as ever.
        """
        return self.replay is not None and self.replay.lost and self.call.committed

    def _settle_flow(self) -> None:
        """Take more from the app while what is sent keeps up, or what waits can be kept."""
        replay = self.replay
        if replay is None or self.over:
            return
        flights = self.flights.values()
        cursors = [each.cursor for each in flights if each.stream is not None or each.task is not None]
        if replay.lost:
            replay.forget(min(cursors, default=replay.end))
        if replay.done:
            return
        if replay.lost or any(each.stream is not None for each in flights):
            behind = bool(cursors) and replay.end - min(cursors) > HIGH_WATER
        else:
            behind = self._overfull or not replay.has_room(PIECE)
        if behind:
            self.app.pause()
        else:
            self.app.resume()

    # -- tunnels --------------------------------------------------------------------------------------------------

    def _through(self, data: bytes) -> None:
        for attempt in self.flights.values():
            if attempt.stream is not None:
                attempt.stream.write(data)
                if attempt.stream.blocked:
                    self.app.pause()

    def _half_ended(self, half: int) -> None:
        """One direction (1: the app's, 2: the upstream's) is closed. When both are, the tunnel is over."""
        self._half |= half
        for attempt in self.flights.values():
            if half == 1 and attempt.stream is not None:
                attempt.stream.finish()
            if self._half == 3:
                now = monotonic()
                self.tell(now, self.call.ended, attempt.number, now)
                return
