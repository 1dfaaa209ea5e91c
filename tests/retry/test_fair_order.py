"""Queues of calls of several apps: by priority, by weight, and within an app by arrival."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.apps import RANKS, NamedApp
from proxy.retry.bucket_specs import RateSpec
from proxy.retry.buckets import RateBucket
from proxy.retry.concurrency import Places
from proxy.retry.fair_order import FairOrder
from proxy.retry.policy import Concurrency
from proxy.retry.token_bucket import REJECTED

WEB = NamedApp("web", 4, RANKS["high"])
JOBS = NamedApp("jobs", 1, RANKS["normal"])
MORE = NamedApp("more", 3, RANKS["normal"])
BATCH = NamedApp("batch", 1, RANKS["low"])


class Call:
    """A waiter of an app."""

    def __init__(self, app: NamedApp | None) -> None:
        self.app = app
        self.at: float | None = None

    def retime(self, at: float) -> None:
        self.at = at


def order_of(*apps: NamedApp, order: FairOrder | None = None) -> list[str]:
    calls = [Call(app) for app in apps]
    arranged = (order or FairOrder()).arranged([(call, app, 1.0) for call, app in zip(calls, apps, strict=True)])
    names = {call: app.name for call, app in zip(calls, apps, strict=True)}
    return [names[call] for call in arranged]  # type: ignore[index]


def test_one_place_in_eight_goes_to_the_lower_ones_by_turns() -> None:
    order = order_of(*[BATCH] * 20, *[JOBS] * 20, *[WEB] * 20)
    assert order[:16] == [*["web"] * 7, "jobs", *["web"] * 7, "batch"]
    assert order.index("batch") < 20 and order[-1] == "batch"


def test_apps_of_one_priority_share_by_weight() -> None:
    order = order_of(*[JOBS] * 40, *[MORE] * 40)
    assert Counter(order[:40]) == {"more": 30, "jobs": 10}


def test_shares_hold_over_time() -> None:
    order, served = FairOrder(), Counter[str]()
    for _ in range(400):  # a call of each waits at any time
        name = order_of(JOBS, MORE, order=order)[0]
        served[name] += 1
        order.went({"jobs": JOBS, "more": MORE}[name], 1.0, others=False)
    assert abs(served["more"] - 300) <= 2


def test_a_call_of_a_better_priority_goes_before_those_that_wait_for_tokens() -> None:
    gate = RateBucket(RateSpec(1.0, 1.0)).gate
    assert gate.ask(Call(BATCH), 0.0) == 0.0
    batch = [Call(BATCH) for _ in range(3)]
    assert [gate.ask(call, 0.0) for call in batch] == [1.0, 2.0, 3.0]
    web = Call(WEB)
    assert gate.ask(web, 0.0) == 1.0
    assert [call.at for call in batch] == [2.0, 3.0, 4.0]
    assert gate.ask(batch[0], 1.0) > 1.0
    assert gate.ask(web, 1.0) == 1.0


def test_a_full_queue_gives_up_the_newest_of_the_lowest_priority() -> None:
    places, rules = Places(1), Concurrency(1, queue=2, wait=30.0)
    assert places.ask(Call(WEB), rules, 0.0) == 0.0
    older, newer, web = Call(BATCH), Call(BATCH), Call(WEB)
    assert places.ask(older, rules, 0.0) > 0
    assert places.ask(newer, rules, 1.0) > 1
    assert places.ask(Call(BATCH), rules, 2.0) == REJECTED
    assert places.ask(web, rules, 2.0) > 2
    assert newer.at == 2.0 and places.ask(newer, rules, 2.0) == REJECTED
    places.give_back(3.0)
    assert web.at == 3.0 and places.ask(web, rules, 3.0) == 3.0
    assert places.ask(Call(WEB), Concurrency(1, queue=0, wait=30.0), 3.0) > 3  # the older one gives its place


def test_without_names_calls_go_as_they_came() -> None:
    gate = RateBucket(RateSpec(1.0, 1.0)).gate
    calls = [Call(None) for _ in range(4)]
    assert [gate.ask(call, 0.0) for call in calls] == [0.0, 1.0, 2.0, 3.0]
    assert gate.order is None


@given(st.lists(st.sampled_from([WEB, JOBS, MORE, BATCH]), max_size=60))
def test_no_call_is_lost_and_none_overtakes_its_own_app(apps: list[NamedApp]) -> None:
    calls = [Call(app) for app in apps]
    arranged = FairOrder().arranged([(call, app, 1.0) for call, app in zip(calls, apps, strict=True)])
    assert sorted(map(id, arranged)) == sorted(map(id, calls))
    for app in (WEB, JOBS, MORE, BATCH):
        assert [call for call in arranged if call.app is app] == [call for call in calls if call.app is app]  # type: ignore[attr-defined]


@given(st.lists(st.sampled_from([JOBS, MORE, BATCH]), min_size=1, max_size=100))
def test_no_app_waits_for_ever(apps: list[NamedApp]) -> None:
    """A call of the lowest priority goes after at most sixteen of others for each call of its own before it."""
    order = order_of(*[WEB] * 400, *apps)
    assert min(order.index(app.name) for app in set(apps)) <= 16
