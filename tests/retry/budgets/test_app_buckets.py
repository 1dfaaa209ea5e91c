"""The parts of retry buckets that are reserved for apps (contract, section 17, "Retry tokens")."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.two_runs import examples

from proxy.retry.apps import RANKS, Apps, NamedApp
from proxy.retry.budgets.app_buckets import AppBudget, PartedQuota, make_app_bucket
from proxy.retry.budgets.app_parts import AppParts
from proxy.retry.budgets.buckets import BudgetBucket
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec, ThrottleSpec

WEB, BATCH = NamedApp("web", 4, RANKS["high"]), NamedApp("batch", 1, RANKS["normal"])
APPS = Apps(known={"web": WEB, "batch": BATCH})
OTHERS = APPS.others
#: 600 tokens: 400 are web's, 100 batch's, 100 all others'.
SPEC = QuotaSpec(600, 5, 5, 5, 1, apps=APPS.shares)


def spend_all(bucket: PartedQuota, app: NamedApp, now: float = 0.0) -> float:
    """Let the app take one price after another, as long as it can; what it took."""
    view, before = bucket.of_app(app), bucket.level(now)
    while view.take(5, now):
        pass
    return before - bucket.level(now)


def test_an_app_alone_leaves_half_of_what_the_others_have() -> None:
    bucket = PartedQuota(SPEC)
    assert spend_all(bucket, BATCH) == 100 + (400 + 100) / 2


def test_an_app_leaves_the_whole_part_of_one_that_was_seen_in_the_last_minute() -> None:
    bucket = PartedQuota(SPEC)
    bucket.of_app(WEB).begin(0.0)
    assert spend_all(bucket, BATCH, 60.0) == 100 + 100 / 2
    bucket = PartedQuota(SPEC)
    bucket.of_app(WEB).begin(0.0)
    assert spend_all(bucket, BATCH, 60.1) == 100 + (400 + 100) / 2


def test_an_app_spends_its_own_part_whatever_others_spent() -> None:
    bucket = PartedQuota(SPEC)
    bucket.of_app(WEB).begin(0.0)
    spend_all(bucket, BATCH)
    spend_all(bucket, OTHERS)
    assert spend_all(bucket, WEB) == 400


steps = st.lists(
    st.tuples(
        st.sampled_from(["begin", "succeeded", "take", "take", "whole"]),
        st.sampled_from([WEB, BATCH, OTHERS, BATCH.lowered()]),
        st.floats(0, 70),
    ),
    max_size=40,
)


@settings(max_examples=examples(200))
@given(steps)
def test_a_quota_that_rests_grants_as_if_each_call_were_reported(script: list[tuple[str, NamedApp, float]]) -> None:
    every, spared, now = PartedQuota(SPEC), PartedQuota(SPEC), 0.0
    for move, app, pause in script:
        now += pause
        told, view = every.of_app(app), spared.of_app(app)
        match move:
            case "begin":
                told.begin(now)
                if view.rests:
                    view.called_at = now
                else:
                    view.begin(now)
            case "succeeded":
                told.succeeded(None, now)
                if not view.rests:
                    view.succeeded(None, now)
            case "take":
                assert told.affords(300, now) == view.affords(300, now)
                assert told.take(300, now) == view.take(300, now)
            case "whole":
                assert every.take(5, now) == spared.take(5, now)
        assert every.level(now) == spared.level(now)
        assert [every.of_app(each).spendable(now) for each in (WEB, BATCH, OTHERS)] == [
            spared.of_app(each).spendable(now) for each in (WEB, BATCH, OTHERS)
        ]


def test_low_priority_spends_only_above_half_the_capacity() -> None:
    bucket = PartedQuota(SPEC)
    assert spend_all(bucket, BATCH.lowered()) == 300
    assert spend_all(bucket, WEB.lowered()) == 0
    assert not bucket.of_app(WEB.lowered()).affords(5, 0.0)
    assert bucket.of_app(WEB).affords(5, 0.0)


def test_what_an_app_earns_fills_its_own_part_first() -> None:
    bucket = PartedQuota(SPEC)
    bucket.of_app(WEB).begin(0.0)
    spend_all(bucket, BATCH)
    assert [bucket.parts.own(place) for place in range(3)] == [400, 0, 50]
    bucket.of_app(WEB).succeeded(5.0, 0.0)  # web's part is full: what it earns pays the others' part back
    assert [bucket.parts.own(place) for place in range(3)] == [400, 0, 55]
    bucket.of_app(BATCH).succeeded(5.0, 0.0)
    assert [bucket.parts.own(place) for place in range(3)] == [400, 5, 55]


def test_what_an_app_earns_fills_what_others_borrowed_of_its_part_before_the_parts_of_others() -> None:
    bucket = PartedQuota(SPEC)
    spend_all(bucket, BATCH)
    assert [bucket.parts.own(place) for place in range(3)] == [200, 0, 50]
    bucket.of_app(WEB).succeeded(5.0, 0.0)  # web is back, and calls without retries or with them succeed
    assert [bucket.parts.own(place) for place in range(3)] == [205, 0, 50]
    for _ in range(40):
        bucket.of_app(WEB).succeeded(5.0, 0.0)
    assert [bucket.parts.own(place) for place in range(3)] == pytest.approx([400, 0, 55])  # type: ignore[attr-defined]


def test_a_part_is_never_below_one_price() -> None:
    apps = Apps(known={"web": NamedApp("web", 1000), "batch": NamedApp("batch", 1)})
    bucket = PartedQuota(QuotaSpec(100, 5, 5, 5, apps=apps.shares))
    bucket.of_app(apps.known["batch"]).begin(0.0)
    spend_all(bucket, apps.known["web"])
    assert bucket.of_app(apps.known["batch"]).take(5, 0.0)


def test_time_refills_every_part() -> None:
    bucket = PartedQuota(QuotaSpec(600, 5, 5, 5, refill=10.0, apps=APPS.shares))
    bucket.level(0.0)
    for app in (WEB, BATCH, OTHERS):
        bucket.of_app(app).begin(0.0)
        spend_all(bucket, app)
    assert bucket.level(0.0) == 0
    assert [bucket.of_app(app).spendable(30.0) for app in (WEB, BATCH, OTHERS)] == pytest.approx([200, 50, 50])  # type: ignore[attr-defined]


def test_a_bucket_that_replaces_another_has_parts_of_its_level() -> None:
    before = PartedQuota(SPEC)
    before.of_app(WEB).begin(0.0)
    spend_all(before, WEB)
    after = make_app_bucket(QuotaSpec(300, 5, 5, 5, apps=APPS.shares), instead_of=before, now=0.0)
    assert isinstance(after, PartedQuota)
    assert after.level(0.0) < 300
    assert sum(after.parts.own(place) for place in range(3)) == pytest.approx(after.level(0.0))


def test_an_apps_own_retry_is_charged_what_the_app_may_spend() -> None:
    bucket = PartedQuota(SPEC)
    bucket.of_app(WEB).begin(0.0)
    spend_all(bucket, BATCH)
    view = bucket.of_app(BATCH)
    assert view.charge_app_retry(0.0) == 0
    bucket.of_app(BATCH).give_back(3.0, 0.0)
    assert view.charge_app_retry(0.0) == 3
    view.app_succeeded(3.0, 0.0)
    assert view.affords(3, 0.0)


def test_a_throttle_is_one_for_all_apps() -> None:
    bucket = make_app_bucket(ThrottleSpec())
    assert bucket.of_app(WEB) is bucket


def test_a_quota_without_bounds_has_no_parts() -> None:
    bucket = make_app_bucket(QuotaSpec(float("inf"), apps=APPS.shares))
    assert bucket.of_app(WEB) is bucket


# -- budget ----------


def test_a_budget_is_granted_by_app_and_in_all() -> None:
    bucket = make_app_bucket(BudgetSpec(percent=20, min_per_second=0, window=10, apps=APPS.shares))
    web, batch = bucket.of_app(WEB), bucket.of_app(BATCH)
    for _ in range(90):
        batch.begin(0.0)
    for _ in range(10):
        web.begin(0.0)
    assert sum(web.take(1.0, 0.0) for _ in range(50)) == 2  # 20 % of its own calls
    assert sum(batch.take(1.0, 0.0) for _ in range(50)) == 18
    assert bucket.level(0.0) == 0


def test_a_budget_in_all_refuses_what_an_apps_own_would_grant() -> None:
    bucket = make_app_bucket(BudgetSpec(percent=0, min_per_second=3, window=10, apps=APPS.shares))
    web, batch = bucket.of_app(WEB), bucket.of_app(BATCH)
    assert [web.take(1.0, 0.0) for _ in range(2)] == [True, True]
    assert [batch.take(1.0, 0.0) for _ in range(2)] == [True, False]
    batch.give_back(1.0, 0.0, taken_at=0.0)
    assert web.take(1.0, 0.0)
    assert not web.affords(1.0, 0.0)
    assert not batch.affords(1.0, 0.0)


def test_an_apps_view_of_a_budget_shows_all_calls_and_spends_of_both() -> None:
    bucket = make_app_bucket(BudgetSpec(percent=0, min_per_second=3, window=10, apps=APPS.shares))
    web, batch = bucket.of_app(WEB), bucket.of_app(BATCH)
    assert web.level(0.0) == bucket.level(0.0) == 3
    assert web.charge_app_retry(0.0) == 1.0
    assert web.level(0.0) == batch.level(0.0) == 2
    assert batch.take(1.0, 0.0)
    assert web.spendable(0.0) == 1
    assert web.share(0.0) == bucket.share(0.0)
    assert web.withheld() == bucket.withheld() == ""


def test_a_budget_outside_this_process_answers_the_app_that_asked() -> None:
    whole, own = Asked(), BudgetBucket(BudgetSpec(percent=0, min_per_second=3, window=10))
    view = AppBudget(whole, own)
    answers: list[tuple[float, bool]] = []
    for granted in (True, False):
        view.ask(1.0, 0.0, 0.0, lambda price, granted: answers.append((price, granted)))
        whole.answer(1.0, granted)
    assert answers == [(1.0, True), (1.0, False)]
    assert own.level(0.0) == 2  # what was granted, the app has spent of its own


class Asked(BudgetBucket):
    """A budget that is kept outside this process, as the views of apps see it."""

    def __init__(self) -> None:
        super().__init__(BudgetSpec(percent=0, min_per_second=3, window=10))

    def ask(self, price: float, due: float, now: float, answer: Callable[[float, bool], None]) -> None:
        self.answer = answer


# -- laws ----------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "earn", "come", "wait"]),
        st.integers(0, 2),
        st.floats(0, 60, allow_nan=False),
        st.booleans(),
    ),
    max_size=80,
)


@settings(max_examples=examples(300), deadline=None)
@given(steps=STEPS, weights=st.tuples(*[st.integers(1, 9)] * 3), refill=st.sampled_from([0.0, 0.7]))
def test_tokens_are_conserved_and_no_part_is_spent_by_others(
    steps: list[tuple[str, int, float, bool]], weights: tuple[int, int, int], refill: float
) -> None:
    names = [NamedApp(name, weight) for name, weight in zip("abc", weights, strict=True)]
    shares = tuple((app.name, app.weight) for app in names)
    bucket = PartedQuota(QuotaSpec(200, 10, 10, 10, refill=refill, apps=shares), now=0.0)
    level, now = 200.0, 0.0
    for what, which, number, low in steps:
        app = names[which].lowered() if low else names[which]
        view, parts = bucket.of_app(app), bucket.parts
        own = [parts.own(place) for place in range(3)]
        seen = [now - parts.seen(place) <= 60 for place in range(3)]
        match what:
            case "take":
                may, taken = bucket.available(which, low, now), view.take(number, now)
                assert taken == (number == 0 or (may > 0 and number <= may + 1e-9))
                level -= number if taken else 0
                for other in {0, 1, 2} - {which}:
                    if seen[other]:
                        assert parts.own(other) == own[other]
                    assert parts.own(other) >= min(own[other], (parts.sizes[other] - parts._spent[other]) / 2) - 1e-6
                if not low and not taken:
                    assert number > min(own[which], level)  # its own part is the app's, whatever others do
                if low and taken and number:
                    assert level + number > 100
            case "earn":
                view.give_back(number, now)
                level = min(200.0, level + number)
                if level < 200:
                    assert parts.own(which) >= own[which]
            case "come":
                view.begin(now)
            case _:
                level = min(200.0, level + number * refill)
                now += number
        assert bucket.level(now) == pytest.approx(level, abs=1e-6)
        assert 0 <= bucket.level(now) <= 200
        assert sum(parts.own(place) for place in range(3)) <= level + 1e-6  # every part's tokens are there
        if bucket.level(now) == 200:
            assert [parts.own(place) for place in range(3)] == pytest.approx(parts.sizes)


def test_the_state_goes_to_another_process_and_back() -> None:
    bucket = PartedQuota(SPEC)
    bucket.of_app(WEB).begin(3.0)
    spend_all(bucket, BATCH, 3.0)
    other = PartedQuota(SPEC)
    other.restore(bucket.state())
    assert other.state() == bucket.state()


def test_an_unknown_name_has_the_part_of_all_others() -> None:
    parts = AppParts(APPS.shares, 600, 5, 600)
    assert [parts.index(name) for name in ("web", "batch", "others", "nobody")] == [0, 1, 2, 2]
