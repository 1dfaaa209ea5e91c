"""Calls that may wait: all of `limits.waiting`, but of one upstream's held calls at most half, whatever holds them; and
the calls of apps that give way to those of a better priority.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.apps import RANKS, NamedApp
from proxy.retry.budgets.token_estimate import Estimate
from proxy.retry.call.payment import Payment
from proxy.retry.queues.waiting_room import WaitingRoom

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


class Wait:
    """A call's wait in the room, of an app with a priority; `probed`: it was the probe of an outage."""

    def __init__(self, app: NamedApp | None, upstream: str = "one", *, probed: bool = False) -> None:
        self.app = app
        self.upstream = upstream
        self.may_be_ousted = not probed
        self.is_ousted = False

    def ousted(self) -> None:
        self.is_ousted = True


WEB, JOBS, BATCH = NamedApp("web", 4, RANKS["high"]), NamedApp("jobs"), NamedApp("batch", 1, RANKS["low"])


def full(capacity: int, *waits: Wait) -> WaitingRoom:
    room = WaitingRoom(capacity)
    assert all(room.enter(each.upstream, True, each) for each in waits)
    return room


def test_a_full_room_gives_up_the_newest_held_call_of_the_lowest_priority() -> None:
    calls = [Wait(BATCH), Wait(BATCH), Wait(JOBS), Wait(WEB)]
    room = full(8, *calls)
    web = [Wait(WEB) for _ in range(4)]
    assert [room.enter("one", True, each) for each in web] == [True, True, True, False]
    assert [each.is_ousted for each in calls] == [True, True, True, False]
    assert room.waiting == room.held_for("one") == 4
    assert room.held_by_app() == {("one", "web"): 4}
    for each in (calls[3], *web[:3]):
        room.leave("one", True, each)
    assert (room.waiting, room.held_for("one"), room.held_by_app()) == (0, 0, {})


@pytest.mark.parametrize("newcomer", [None, JOBS, BATCH])
def test_a_call_that_is_no_better_takes_no_place(newcomer: NamedApp | None) -> None:
    calls = [Wait(JOBS), Wait(None)]
    room = full(4, *calls)
    assert not room.enter("one", True, Wait(newcomer))
    assert not any(each.is_ousted for each in calls)
    assert room.waiting == 2


def test_a_call_that_was_a_probe_keeps_its_place() -> None:
    calls = [Wait(BATCH), Wait(BATCH, probed=True)]
    room = full(4, *calls)
    assert room.enter("one", True, Wait(WEB))
    assert not room.enter("one", True, Wait(WEB))
    assert [each.is_ousted for each in calls] == [True, False]


def test_where_one_upstreams_half_is_used_up_its_own_calls_give_way() -> None:
    elsewhere, here = Wait(BATCH, "two"), [Wait(BATCH), Wait(BATCH)]
    room = full(4, *here, elsewhere)
    assert room.enter("one", True, Wait(WEB))
    assert (elsewhere.is_ousted, here[1].is_ousted) == (False, True)
    assert room.enter("three")  # the fourth of four
    assert room.enter("three", True, Wait(WEB, "three"))
    assert elsewhere.is_ousted and not here[0].is_ousted


def test_a_backoff_takes_a_held_calls_place_and_gives_up_none() -> None:
    call, backoff = Wait(BATCH), Wait(BATCH)
    room = full(2, call)
    assert room.enter("one", False, backoff)
    assert room.enter("one", False, Wait(WEB))
    assert not room.enter("one", False, Wait(WEB))
    assert (call.is_ousted, backoff.is_ousted, room.waiting) == (True, False, 2)


def test_no_call_is_answered_where_that_would_not_help() -> None:
    call = Wait(BATCH)
    room = full(8, call, Wait(JOBS))
    room.capacity = 1  # a reload has made the room smaller
    assert not room.enter("one", True, Wait(WEB))
    assert not call.is_ousted


class Asking:
    """A call at the gates. `lost`: the places that it has lost."""

    estimate: Estimate | None = None
    tokens, was_probe = 0.0, False

    def __init__(self) -> None:
        self.lost: list[str] = []

    def retime(self, at: float) -> None:
        """It is told of its place alone."""

    def oust(self, place: str) -> None:
        self.lost.append(place)


def test_a_payment_whose_place_was_taken_gives_none_back() -> None:
    room, call = WaitingRoom(1), Asking()
    lower, higher = Payment(None, room, "one", BATCH), Payment(None, room, "one", WEB)
    assert lower.wait("held", call)
    assert higher.wait("held", Asking())
    assert call.lost == ["room"]
    lower.leave_room()
    assert room.waiting == 1
    higher.leave_room()
    assert room.waiting == 0
