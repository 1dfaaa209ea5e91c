"""Who may wait: all of `limits.waiting`, but for one upstream's held calls at most half of it, whatever holds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.waiting_room import WaitingRoom

upstreams = st.sampled_from(["one", "two", "three"])


@given(st.integers(0, 9), st.lists(st.tuples(upstreams, st.booleans(), st.booleans()), max_size=60))
def test_limits_hold_and_places_come_back(capacity: int, script: list[tuple[str, bool, bool]]) -> None:
    room = WaitingRoom(capacity)
    inside: list[tuple[str, bool]] = []
    for upstream, held, enters in script:
        if enters:
            of_its_own = inside.count((upstream, True))
            fits = len(inside) < capacity and (not held or of_its_own < max(1, capacity // 2))
            assert room.enter(upstream, held=held) == fits
            if fits:
                inside.append((upstream, held))
        elif (upstream, held) in inside:
            inside.remove((upstream, held))
            room.leave(upstream, held=held)
        assert room.waiting == len(inside)


@pytest.mark.parametrize(("capacity", "share"), [(1, 1), (2, 1), (3, 1), (4, 2), (2000, 1000)])
def test_half_of_a_room(capacity: int, share: int) -> None:
    room = WaitingRoom(capacity)
    assert [room.enter("one", held=True) for _ in range(share + 1)] == [True] * share + [False]
    assert room.enter("two", held=True) is (share < capacity)
