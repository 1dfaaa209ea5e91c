"""Bodies kept for another attempt: cursors, limits, what is freed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.transport.replay_buffer import Replay, ReplayStore


def test_what_outgrows_the_call_is_lost_and_freed() -> None:
    store = ReplayStore(10, 100)
    replay = Replay(store)
    assert replay.append(b"x" * 10)
    assert store.used == 10
    assert not replay.append(b"y")
    replay.lose()
    assert store.used == 0
    assert replay.append(b"z" * 1000)
    assert replay.read(10) == b"y" + b"z" * 1000
    replay.close()
    assert store.used == 0


def test_what_outgrows_them_all_is_lost_too() -> None:
    store = ReplayStore(10, 15)
    one, two = Replay(store), Replay(store)
    assert one.append(b"x" * 10)
    assert not two.append(b"x" * 6)
    one.close()
    assert two.has_room(10)


def test_calls_that_wait_have_half_of_them_all() -> None:
    store = ReplayStore(100, 20)
    one, two = Replay(store), Replay(store)
    one.append(b"x" * 6)
    one.wait(True)
    two.wait(True)
    two.append(b"x" * 4)
    assert (store.used, store.held) == (10, 10)
    assert not one.has_room_held(1)
    assert one.has_room(10)
    one.wait(False)
    one.wait(False)
    assert (store.used, store.held) == (10, 4)
    assert two.has_room_held(6)
    assert not two.has_room_held(7)
    two.lose()
    two.wait(False)
    assert (store.used, store.held) == (6, 0)


@given(
    st.lists(st.binary(min_size=1, max_size=6000), max_size=30),
    st.lists(st.integers(min_value=0), max_size=10),
)
def test_any_cursor_reads_the_same_body(chunks: list[bytes], cursors: list[int]) -> None:
    replay = Replay(ReplayStore(1 << 20, 1 << 20))
    for chunk in chunks:
        replay.append(chunk)
    whole = b"".join(chunks)
    assert replay.end == len(whole)
    for cursor in cursors:
        at = cursor % (len(whole) + 1)
        assert replay.read(at) == whole[at:]
    half = len(whole) // 2
    replay.lose()
    replay.forget(half)
    assert replay.read(half) == whole[half:]


def test_what_was_let_go_is_never_taken_for_something_else() -> None:
    replay = Replay(ReplayStore(10, 10))
    replay.append(b"x" * 5000)
    replay.append(b"y" * 5000)
    replay.lose()
    replay.forget(5000)
    with pytest.raises(LookupError):
        replay.read(0)
    assert replay.read(5000) == b"y" * 5000
