"""A request's body on its way from the app to every attempt that needs it.

The proxy reads from the app as long as attempts keep up with sending, or unsent bytes can be kept. Otherwise reading
pauses, and the kernel holds the app back. A body that outgrows its buffer while an attempt is in flight is no longer
kept for further attempts, and streams on; a body that would outgrow its buffer while no attempt is in flight waits for
the next attempt. Calls that wait may use half of all buffers; once they have used it, the rest of a body waits for the
next attempt, too.
"""

from __future__ import annotations

from proxy.forward.attempt import HOLDING, Attempt
from proxy.forward.streams import AppStream
from proxy.transport.connection import HIGH_WATER
from proxy.transport.replay_buffer import Replay, ReplayStore
from proxy.wire.head import Trailers


class Upload:
    """The body of one call's request. `body`: the part of it that came with the head; `done`: that part is the whole
    body, with its `trailers` (None for none). `size`: the bytes of the body that have come. `overfull`: the body has
    outgrown its buffer, and is given up for further attempts (`lose`) as soon as an attempt sends it. `paused`: no more
    of it is read from the app for now.
    """

    __slots__ = ("_app", "overfull", "paused", "replay", "size")

    def __init__(
        self, app: AppStream, store: ReplayStore, body: bytes, *, done: bool, trailers: Trailers | None = None
    ) -> None:
        self._app = app
        self.replay = Replay(store)
        self.replay.done = done
        self.replay.trailers = trailers
        self.overfull = self.paused = False
        self.size = 0
        if body:
            self.append(body)

    def append(self, data: bytes) -> None:
        """Add more of the body."""
        self.size += len(data)
        if not self.replay.append(data):
            self.overfull = True

    def end(self, trailers: Trailers | None) -> None:
        """Note that the body is whole; `trailers` are the fields after it."""
        self.replay.done = True
        self.replay.trailers = trailers

    def lose(self) -> bool:
        """Stop keeping the body for further attempts; return whether it was kept until now."""
        self.overfull = False
        if self.replay.lost:
            return False
        self.replay.lose()
        return True

    def go_on(self, attempt: Attempt) -> None:
        """Send more of the body to an attempt that got none while its answer was held. If bytes that it needs were
        freed meanwhile, because another attempt has sent a body that is lost, it gets none any more.
        """
        if not self.replay.has(attempt.cursor):
            attempt.replay = None
        attempt.pump()

    def settle(self, flights: dict[int, Attempt]) -> None:
        """Read more of the body from the app as long as the attempts `flights` keep up with sending it, or unsent bytes
        can be kept; else pause the app. Free the bytes that no attempt has to send any more. An attempt whose answer is
        held until another one is sent needs no more of the body, nor does one that can't get more (`go_on`).
        """
        replay = self.replay
        furthest_behind = replay.end
        waits, streams = True, False
        for each in flights.values():
            if each.state is HOLDING:
                continue
            waits = False
            if each.stream is not None and each.replay is None:
                continue
            if each.stream is not None or each.task is not None:
                furthest_behind = min(furthest_behind, each.cursor)
            streams = streams or each.stream is not None
        if replay.lost:
            replay.forget(furthest_behind)
        replay.wait(waits)
        if replay.done:
            return
        if replay.lost or streams:
            is_behind = replay.end - furthest_behind > HIGH_WATER
        else:
            piece = replay.piece
            is_behind = self.overfull or not (replay.has_room_held(piece) if waits else replay.has_room(piece))
        self.paused = is_behind
        if is_behind:
            self._app.pause()
        else:
            self._app.resume()
