"""What calls of a lower priority leave free for calls of a better one (contract, section 17, "Queues")."""

from __future__ import annotations

import pytest

from proxy.retry.apps import RANKS, NamedApp
from proxy.retry.concurrency import UNLIMITED, Places
from proxy.retry.kept_free import KEPT_FOR, KeptFreeHere
from proxy.retry.policy import Concurrency
from proxy.retry.token_bucket import TokenBucket, TokenGate

HIGH, NORMAL, LOW = (RANKS[name] for name in ("high", "normal", "low"))
WEB, OTHER, BATCH = NamedApp("web", 4, HIGH), NamedApp("other", 1, NORMAL), NamedApp("batch", 1, LOW)
RULES = Concurrency(max=8, queue=100, wait=1000.0)


class Call:
    """A waiting call of an app, which notes when it is to ask again."""

    def __init__(self, app: NamedApp) -> None:
        self.app, self.at = app, -1.0

    def retime(self, at: float) -> None:
        self.at = at


class Rate(TokenBucket):
    keeps_burst = True


def fill(places: Places, app: NamedApp, now: float) -> int:
    """Let calls of an app come until one has to wait; how many got a place."""
    count = 0
    while places.ask(Call(app), RULES, now) <= now:
        count += 1
    return count


@pytest.mark.parametrize("app", [BATCH, OTHER, WEB])
def test_an_app_alone_has_all_places(app: NamedApp) -> None:
    assert fill(Places(8), app, 0.0) == 8


@pytest.mark.parametrize("app", [BATCH, OTHER])
def test_an_app_leaves_places_to_a_better_one_for_a_minute(app: NamedApp) -> None:
    places = Places(8)
    assert places.enter_at_once(WEB, 0.0)
    places.give_back(0.0)
    kept = 8 - fill(places, app, KEPT_FOR)
    assert 2 <= kept <= 4
    assert fill(places, WEB, KEPT_FOR) == kept

    places = Places(8)
    assert places.enter_at_once(WEB, 0.0)
    places.give_back(0.0)
    assert fill(places, app, KEPT_FOR + 0.1) == 8


def test_places_are_kept_for_no_app_of_the_same_or_a_lower_priority() -> None:
    places = Places(8)
    for app in (OTHER, BATCH):
        assert places.enter_at_once(app, 0.0)
        places.give_back(0.0)
    assert fill(places, OTHER, 0.0) == 8


@pytest.mark.parametrize(
    ("most", "left"), [(1, 1), (2, 1), (3, 1), (4, 1), (16, 2), (10**6, 10**5), (UNLIMITED, 10**6)]
)
def test_one_place_in_eight_is_never_kept(most: int, left: int) -> None:
    kept = KeptFreeHere()
    for _ in range(1000):
        kept.came(HIGH, 0.0)
        kept.went(HIGH, 1.0, waited=True)
    assert most - kept.places(LOW, most, 0.0) >= left


def test_fewer_places_are_kept_as_long_as_no_better_call_waits() -> None:
    kept = KeptFreeHere()
    kept.came(HIGH, 0.0)
    before = kept.places(LOW, 40, 0.0)
    for number in range(8000):
        kept.went(HIGH if number % 10 == 0 else LOW, 1.0, waited=False)
    least = kept.places(LOW, 40, 0.0)
    assert 1 <= least < before
    kept.went(HIGH, 1.0, waited=True)
    assert kept.places(LOW, 40, 0.0) > least


def test_one_place_of_eight_goes_to_the_lower_one_that_waits_whatever_is_kept() -> None:
    places = Places(2)
    assert places.enter_at_once(WEB, 0.0)
    waits = Call(BATCH)
    assert places.ask(Call(BATCH), RULES, 0.0) > 0
    for number in range(7):
        assert places.ask(waits, RULES, 0.0) > 0
        assert places.ask(Call(WEB), RULES, 0.0) == 0, number
        places.give_back(0.0)
    assert fill(places, BATCH, 0.0) == 0
    first = next(iter(places.queue))
    assert places.ask(first, RULES, 0.0) == 0


def test_half_of_the_burst_is_kept_and_none_of_the_rate() -> None:
    gate = TokenGate(Rate(10.0, 10.0, 10.0, 0.0))
    assert gate.pass_at_once(WEB, 0.0)
    taken = 0
    while gate.pass_at_once(BATCH, 0.0):
        taken += 1
    assert taken == 4
    waits = Call(BATCH)
    assert gate.ask(waits, 0.0) == pytest.approx(0.1)
    assert all(gate.ask(Call(WEB), 0.0) == 0 for _ in range(5))
    assert gate.ask(Call(WEB), 0.0) > 0


def test_the_turn_of_the_lower_one_at_a_rate_waits_for_one_token_only() -> None:
    gate = TokenGate(Rate(1.0, 10.0, 0.0, 0.0))
    went, now = "", 0.0
    while len(went) < 16:
        for app in (BATCH, WEB):
            gate.ask(Call(app), now)
        now += 1.001
        first = gate.turns()[0]
        assert gate.ask(first, now) <= now
        went += first.app.name[0]
    assert went.count("b") == 2
