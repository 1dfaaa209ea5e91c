"""Two sessions back to back, with random windows, pauses and cuts: nothing is lost, nothing stands still, all is in
order, and what is held is bounded.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from talk import POST, Recorder, Side, block

from proxy.wire.http2 import frames
from proxy.wire.http2.flow import HIGH_WATER
from proxy.wire.http2.heads import own_block, trailers_block
from proxy.wire.http2.peer_limits import PeerLimits

SIZES = st.lists(st.integers(0, 30_000), max_size=5)
WINDOWS = st.sampled_from([1_000, 16_384, 65_535, 200_000])


class Talk:
    """An app-facing and an upstream-facing session with a wire in between; a writer keeps to `blocked`."""

    def __init__(self, windows: tuple[int, int], streams: int) -> None:
        self.sides = (
            Side(client=True, limits=PeerLimits(window=windows[0], streams=streams, resets=1e9, held=200_000)),
            Side(client=False, limits=PeerLimits(window=windows[1], streams=streams, resets=1e9, held=200_000)),
        )
        self.wires: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self.moved = True

    def write_out(self, side: int, cut: int) -> None:
        """What a side has to say goes on the wire, in pieces of `cut` bytes; what was there goes first."""
        out = self.sides[side].out()
        self.wires[side].extend(out[at : at + cut] for at in range(0, len(out), cut))
        self.moved = self.moved or bool(out)

    def deliver(self, side: int, pieces: int) -> None:
        """The other side reads what `side` said."""
        wire = self.wires[side]
        for _ in range(min(pieces, len(wire))):
            self.sides[1 - side].feed(wire.popleft())
            self.moved = True


class Writer:
    """Writes pieces to a stream while it is not blocked, and then its end."""

    def __init__(self, stream: Recorder, sizes: list[int], trailers: bytes) -> None:
        self.stream, self.trailers = stream, trailers
        self.pieces = deque(bytes((number % 251,)) * size for number, size in enumerate(sizes))
        self.body = b"".join(self.pieces)
        self.done = False

    def write(self) -> bool:
        """Write what may be written; whether anything was."""
        if self.done:
            return False
        wrote = False
        while self.pieces and not self.stream.blocked:
            self.stream.send_data(self.pieces.popleft())
            wrote = True
        if not self.pieces:
            self.stream.send_end(trailers=self.trailers)
            self.done = wrote = True
        return wrote


@settings(max_examples=60)
@given(
    bodies=st.lists(st.tuples(SIZES, SIZES, st.booleans()), min_size=1, max_size=4),
    windows=st.tuples(WINDOWS, WINDOWS),
    steps=st.lists(
        st.tuples(st.sampled_from(["write", "out", "deliver", "pause", "resume", "block", "unblock", "window"]),
                  st.integers(0, 7), st.integers(500, 70_000)),
        max_size=60,
    ),
)  # fmt: skip
def test_what_one_side_writes_the_other_reads(
    bodies: list[tuple[list[int], list[int], bool]], windows: tuple[int, int], steps: list[tuple[str, int, int]]
) -> None:
    talk = Talk(windows, 10)
    client, server = talk.sides
    for _ in range(3):
        talk.write_out(0, 10_000)
        talk.deliver(0, 100)
        talk.write_out(1, 10_000)
        talk.deliver(1, 100)
    trailers = [block((b"t", b"%d" % number)) if with_them else b"" for number, (*_, with_them) in enumerate(bodies)]
    asking = [Writer(client.request(POST, end=False), ask, trailers[at]) for at, (ask, _, _) in enumerate(bodies)]
    answering: list[Writer] = []

    def act(what: str, which: int, size: int) -> bool:
        writers: list[Any] = [*asking, *answering]
        writer = writers[which % len(writers)]
        side = which & 1
        if what == "write":
            return writer.write()  # type: ignore[no-any-return]
        if what == "out":
            talk.write_out(side, size)
        elif what == "deliver":
            talk.deliver(side, which + 1)
        elif what == "pause":
            writer.stream.pause()
        elif what == "resume":
            writer.stream.resume()
        elif what == "block":
            talk.sides[side].session.outbox.blocked = True
        elif what == "unblock":
            talk.sides[side].session.outbox.drained()
        elif what == "window":  # a side says that its windows are smaller than they are
            talk.wires[side].append(frames.settings({frames.INITIAL_WINDOW_SIZE: min(size, windows[side])}))
        for stream in server.accepted[len(answering) :]:
            if stream.head is not None:
                stream.send_head(own_block(200, b""), False)
                answering.append(Writer(stream, bodies[stream.id // 2][1], trailers[stream.id // 2]))
        held = sum(side.session.credit.held for side in talk.sides)
        assert held <= sum(windows) * len(bodies)
        for each in (*asking, *answering):
            assert each.stream.queued <= HIGH_WATER + 30_000 or each.done
        return False

    for what, which, size in steps:
        if what == "window" and talk.wires[which & 1]:
            continue  # only between frames
        act(what, which, size)
    for side in (0, 1):  # and in the end what they are
        while talk.wires[side]:
            talk.deliver(side, 1)
        act("window", side, windows[side])
    # From now on everybody reads and writes: then all must come through.
    for _ in range(5_000):
        talk.moved = False
        for side in talk.sides:
            side.session.outbox.drained()
        wrote = False
        for which in range(len(asking) + len(answering)):
            act("resume", which, 1)
            wrote = act("write", which, 1) or wrote
        for side in (0, 1):
            talk.write_out(side, 65_000)
            talk.deliver(side, 1_000)
        act("", 0, 1)
        if not (talk.moved or wrote) and len(answering) == len(bodies) and all(each.done for each in answering):
            break
    assert client.failure is None and server.failure is None
    for ask, answer, trailer in zip(asking, answering, trailers, strict=True):
        assert answer.stream.whole and answer.stream.body == ask.body
        assert ask.stream.whole and ask.stream.body == answer.body
        for stream in (ask.stream, answer.stream):
            assert stream.over
            assert (trailers_block(stream.trailers)) == trailer
    assert not client.session.streams and not server.session.streams
    assert client.session.credit.held == server.session.credit.held == 0
