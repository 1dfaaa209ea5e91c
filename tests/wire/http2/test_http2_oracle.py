"""The h2 library as peer on either side, and as the oracle of what is a whole message."""

from __future__ import annotations

import random
from typing import Any

import frame_mutants
import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from talk import GET, POST, Side, block

from proxy.wire.http2.heads import own_block
from proxy.wire.http2.hpack import literal


class Peer:
    """h2's side of a conversation with ours."""

    def __init__(self, *, client: bool) -> None:
        self.connection = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=client, header_encoding=None)
        )
        self.side = Side(client=not client)
        self.events: list[Any] = []
        self.connection.initiate_connection()
        self.turn()

    def turn(self) -> None:
        """Bytes go to and fro until nobody has any."""
        while True:
            out = self.connection.data_to_send()
            self.side.feed(out)
            back = self.side.out()
            for event in self.connection.receive_data(back):
                self.events.append(event)
                if isinstance(event, h2.events.DataReceived) and event.flow_controlled_length:
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if not out and not back:
                assert self.side.failure is None
                return

    def body(self, stream: int) -> bytes:
        return b"".join(
            event.data
            for event in self.events
            if isinstance(event, h2.events.DataReceived) and event.stream_id == stream
        )

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


LONG = [(b"x-%d" % number, b"v" * 1000) for number in range(50)]


@pytest.mark.parametrize("size", [0, 5, 16_384, 300_000])
@pytest.mark.parametrize("extra", [[], LONG], ids=["short", "long"])
def test_an_h2_client_is_served(size: int, extra: list[tuple[bytes, bytes]]) -> None:
    peer = Peer(client=True)
    for number in (1, 3, 5):  # the later ones with what the table has
        peer.connection.send_headers(number, [*POST, (b"a", b"1"), *extra])
        sent = 0
        while sent < size:
            room = min(size - sent, peer.connection.local_flow_control_window(number), 16_384)
            peer.connection.send_data(number, bytes(room))
            sent += room
            peer.turn()
        peer.connection.send_headers(number, [(b"t", b"1")], end_stream=True)
        peer.turn()
        stream = peer.side.accepted[-1]
        assert stream.whole and len(stream.body) == size and stream.trailers is not None
        assert [(field.name, field.value) for field in stream.head.fields] == [(b"a", b"1"), *extra]
        stream.send_head(own_block(200, b"A: 1\r\n") + block(*extra), False)
        stream.send_end(bytes(size), block((b"grpc-status", b"0")))
        peer.turn()
        assert peer.of(h2.events.ResponseReceived)[-1].headers == [(b":status", b"200"), (b"a", b"1"), *extra]
        assert len(peer.body(number)) == size
        assert peer.of(h2.events.TrailersReceived)[-1].headers == [(b"grpc-status", b"0")]
    assert len(peer.of(h2.events.StreamEnded)) == 3 and not peer.side.session.streams


@pytest.mark.parametrize("size", [0, 5, 16_384, 300_000])
def test_an_h2_server_is_asked(size: int) -> None:
    peer = Peer(client=False)
    peer.connection.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2})
    peer.turn()
    assert peer.side.session.places == 2
    for number in (1, 3, 5):
        stream = peer.side.request((*POST, *LONG), end=False)
        stream.send_data(bytes(size))
        stream.send_end(trailers=literal(b"t", b"1"))
        peer.turn()
        assert len(peer.body(number)) == size and peer.of(h2.events.TrailersReceived)[-1].stream_id == number
        peer.connection.send_headers(number, [(b":status", b"103"), (b"link", b"x")])
        peer.connection.send_headers(number, [(b":status", b"200"), (b"b", b"2"), *LONG])
        sent = 0
        while sent < size:
            room = min(size - sent, peer.connection.local_flow_control_window(number), 16_384)
            peer.connection.send_data(number, bytes(room))
            sent += room
            peer.turn()
        peer.connection.send_headers(number, [(b"grpc-status", b"0")], end_stream=True)
        peer.turn()
        assert stream.events[0] == ("info", 103) and stream.whole and len(stream.body) == size
        assert stream.head.get_all("x-7") == ["v" * 1000]


def test_an_h2_client_resets_and_is_reset() -> None:
    peer = Peer(client=True)
    for number in (1, 3):
        peer.connection.send_headers(number, list(GET))
    peer.turn()
    peer.connection.reset_stream(1, 8)
    peer.side.accepted[1].reset(11)
    peer.turn()
    assert peer.side.accepted[0].events == ["head", ("gone", 8, True)]
    (event,) = peer.of(h2.events.StreamReset)
    assert (event.stream_id, event.error_code) == (3, 11)


def test_an_h2_server_goes_away() -> None:
    peer = Peer(client=False)
    streams = [peer.side.request(GET) for _ in range(2)]
    peer.turn()
    peer.connection.close_connection(last_stream_id=1)
    peer.turn()
    assert streams[0].events == [] and streams[1].events == [("gone", 7, False)]


@pytest.mark.parametrize("client", [False, True], ids=["from an app", "from an upstream"])
def test_mutated_conversations(client: bool) -> None:
    """A share of what `frame_mutants.py` plays: every case is the same in every run."""
    whole = 0
    for number in range(600):
        chance = random.Random(7 << 32 | number)
        case = frame_mutants.mutated(chance, client=client)
        try:
            whole += frame_mutants.check(case, chance, client=client)
        except Exception as error:
            raise AssertionError(f"case {number}: {case.hex()}") from error
    assert whole > 100
