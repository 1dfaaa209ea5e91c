"""Places for attempts under way: never more than there are, in order of arrival, and none is lost."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.budgets.concurrency import UNLIMITED, Places
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.call.actions import Launch
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.call.payment import Payment
from proxy.retry.facts import MappingFields, Request
from proxy.retry.policies.policy import Backoff, Concurrency, Policy, Strategy, Timeouts
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry

NONE = Strategy("none", "none", 1, Backoff(0.0, 0.0))
RULES = Concurrency(1, queue=2, wait=10.0)


class Caller:
    """Who waits: its alarm rings where it is set to the time that it is."""

    def __init__(self) -> None:
        self.served_at: list[float] = []

    def retime(self, at: float) -> None:
        self.served_at.append(at)


def policy(most: int | None, **changes: Any) -> Policy:
    limit = None if most is None else Concurrency(most)
    return Policy("u", "", NONE, None, concurrency=limit, **changes)


def test_a_place_that_comes_free_is_offered_to_the_first_in_line() -> None:
    places, (one, two, three) = Places(1), [Caller() for _ in range(3)]
    assert places.ask(one, RULES, 0.0) == 0.0
    assert places.ask(two, RULES, 1.0) == 11.0
    assert places.ask(three, RULES, 2.0) == 12.0
    places.give_back(3.0)
    assert (two.served_at, three.served_at) == ([3.0], [])
    assert places.ask(three, RULES, 3.0) == 12.0, "it is not its turn"
    assert places.ask(two, RULES, 3.0) == 3.0
    places.give_back(4.0)
    assert three.served_at == [4.0]


def test_who_gives_up_its_turn_offers_it_to_the_next() -> None:
    places, (one, two, three) = Places(1), [Caller() for _ in range(3)]
    places.ask(one, RULES, 0.0)
    places.ask(two, RULES, 1.0)
    places.ask(three, RULES, 2.0)
    places.give_back(3.0)
    places.leave(two, 3.0)
    assert three.served_at == [3.0]
    assert places.ask(three, RULES, 3.0) == 3.0


def test_several_places_go_to_several_one_behind_the_other() -> None:
    places, callers = Places(2), [Caller() for _ in range(4)]
    for each in callers:
        places.ask(each, Concurrency(2), 0.0)
    places.give_back(1.0)
    places.give_back(1.0)
    assert (callers[2].served_at, callers[3].served_at) == ([1.0, 1.0], [])
    assert places.ask(callers[2], Concurrency(2), 1.0) == 1.0
    assert callers[3].served_at == [1.0]


def test_the_queue_is_full_and_the_wait_is_over() -> None:
    places, callers = Places(1), [Caller() for _ in range(4)]
    assert [places.ask(each, RULES, 0.0) for each in callers] == [0.0, 10.0, 10.0, REJECTED]
    assert places.ask(callers[1], RULES, 10.0) == REJECTED
    assert list(places.queue) == [callers[2]]


def test_more_places_let_waiters_go_at_once_and_fewer_cut_nobody() -> None:
    places, callers = Places(1), [Caller() for _ in range(3)]
    for each in callers:
        places.ask(each, RULES, 0.0)
    places.resize(3, 1.0)
    assert callers[1].served_at == [1.0]
    assert [places.ask(each, RULES, 1.0) for each in callers[1:]] == [1.0, 1.0]
    places.resize(1, 2.0)
    assert places.in_use == 3
    late = Caller()
    places.ask(late, RULES, 2.0)
    places.give_back(3.0)
    places.give_back(3.0)
    assert late.served_at == [], "one is under way still"
    places.give_back(4.0)
    assert late.served_at == [4.0]


def test_an_attempt_that_is_not_sent_gives_its_place_back_once() -> None:
    places, payment = Places(1), Payment(None, WaitingRoom(), "u")
    assert payment.take_place(places, Caller(), RULES, 0.0) == 0.0
    assert payment.take_place(places, Caller(), RULES, 1.0) == 1.0, "it has one"
    payment.give_back(2.0)
    payment.land(3.0)
    payment.give_back(4.0)
    assert places.in_use == 0


def test_a_reload_changes_what_there_is_for_who_waits_already() -> None:
    registry, request = Registry(), Request("GET", "u.test", "/")
    before, caller = registry.scope(policy(1), request).places, Caller()
    assert before is not None
    assert before.ask(Caller(), RULES, 0.0) == 0.0
    before.ask(caller, RULES, 0.0)
    registry.forget_policies(lambda upstream: (policy(2),), now=5.0)
    assert caller.served_at == [5.0]
    assert registry.scope(policy(2), request).places is before
    assert (before.most, before.in_use) == (2, 1)
    registry.forget_policies(lambda upstream: (policy(None),), now=6.0)
    assert before.most == UNLIMITED
    assert registry.scope(policy(None), request).places is None
    registry.forget_policies(lambda upstream: (policy(1),), now=7.0)
    after = registry.scope(policy(1), request).places
    assert after is before, "what was under way through all of it counts still"
    assert (after.most, after.in_use) == (1, 1)


def test_a_call_of_an_older_configuration_does_not_bring_its_limit_back() -> None:
    registry, request = Registry(), Request("GET", "u.test", "/")
    registry.forget_policies(lambda upstream: (policy(4),))
    places = registry.scope(policy(1), request).places
    assert places is not None
    assert places.most == 4


def test_modes_that_hold_nobody_have_no_places() -> None:
    registry, request = Registry(), Request("GET", "u.test", "/")
    scopes = [registry.scope(policy(1, mode=mode), request) for mode in ("observe", "off")]
    assert [(scope.places, scope.admits(0.0)) for scope in scopes] == [(None, True)] * 2


def test_places_that_are_in_use_are_not_forgotten_for_new_ones() -> None:
    registry = Registry()
    kept = registry.scope(policy(1), Request("GET", "first.test", "/")).places
    assert kept is not None
    kept.ask(Caller(), RULES, 0.0)
    for number in range(10_001):
        registry.scope(policy(1), Request("GET", f"{number}.test", "/"))
    assert registry.scope(policy(1), Request("GET", "first.test", "/")).places is kept
    assert sum(1 for _ in registry.under_way()) <= 10_001


@given(
    st.integers(1, 3),
    st.integers(0, 3),
    st.lists(
        st.tuples(st.sampled_from(["come", "come", "ask", "leave", "back", "resize"]), st.integers(0, 9)), max_size=80
    ),
)
def test_no_place_is_lost_or_given_twice_and_nobody_overtakes(
    most: int, queue: int, script: list[tuple[str, int]]
) -> None:
    rules, places = Concurrency(most, queue, 1e9), Places(most)
    line: list[Caller] = []
    inside: list[Caller] = []
    for now, (what, which) in enumerate(script):
        at = float(now)
        if what == "come":
            caller = Caller()
            free = max(0, places.most - len(inside))
            answer = places.ask(caller, rules, at)
            if free and not line:
                assert answer == at
                inside.append(caller)
            elif len(line) - free < queue:
                assert answer > at
                line.append(caller)
            else:
                assert answer == REJECTED
        elif what == "ask" and line:
            caller = line[which % len(line)]
            caller.served_at.clear()
            answer = places.ask(caller, rules, at)
            if caller is line[0] and len(inside) < places.most:
                assert answer == at
                inside.append(line.pop(0))
            else:
                assert answer > at
        elif what == "leave" and line:
            places.leave(line.pop(which % len(line)), at)
        elif what == "back" and inside:
            inside.pop(which % len(inside))
            places.give_back(at)
        elif what == "resize":
            places.resize(1 + which % 4, at)
        assert (places.in_use, list(places.queue)) == (len(inside), line)
        if line and len(inside) < places.most:
            assert line[0].served_at, "who is first is told of a place that is free"


@pytest.mark.parametrize(("total", "rings"), [(None, 10.0), (20.0, 10.0), (2.0, 2.0)])
def test_an_alarm_that_a_gate_moves_rings_at_the_deadline_at_the_latest(total: float | None, rings: float) -> None:
    moved: list[float] = []
    rules = policy(1, timeouts=Timeouts(total=total))
    request, registry = Request("GET", "u.test", "/", MappingFields([])), Registry()
    scope, env = registry.scope(rules, request), Env(Random(1), 0.0, WaitingRoom())
    first, held = Call(request, rules, scope, env), Call(request, rules, scope, env, moved.append)
    assert first.start(0.0) == (Launch(1),)
    held.start(0.0)
    admission = held.so_far.next_attempt.admission
    assert admission is not None
    admission.retime(10.0)
    assert moved == [rings]
