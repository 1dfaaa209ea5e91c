"""A strategy's own quota refills slowly in quiet, while it is low: an emptied bucket pays again after the incident."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.failures import Failure

from proxy.config.load import load_tree
from proxy.retry.apps import NamedApp
from proxy.retry.budgets.app_buckets import AppQuota, PartedQuota
from proxy.retry.budgets.buckets import QuotaBucket, make_bucket
from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.retry.strategies.presets import BUILT_IN, STANDARD
from proxy.retry.strategies.smithy import StandardRetryStrategy

OWN = STANDARD.default_bucket
assert isinstance(OWN, QuotaSpec)

steps = st.sampled_from([0.0, 0.001, 0.3, 0.999, 1.0, 1.001, 2.0, 7.0, 60.0])
acts = st.sampled_from(["call", "call", "call", "take", "drain", "first", "retried", "app", "look"])


def emptied(at: float = 0.0) -> QuotaBucket:
    bucket = make_bucket(OWN, now=at)
    assert isinstance(bucket, QuotaBucket)
    bucket.begin(at)
    while bucket.take(5, at):
        pass
    return bucket


@given(st.lists(st.tuples(steps, acts), max_size=80))
@example([(0.999, "drain"), (7.0, "call"), (7.0, "drain")])
def test_the_level_is_that_of_a_model_which_notes_every_call(script: list[tuple[float, str]]) -> None:
    """The bucket notes calls only while it is low, and the model all of them."""
    bucket = make_bucket(OWN, now=0.0)
    level, quiet, now = 500.0, 0.0, 0.0
    for step, act in script:
        before, now = now, now + step
        gained = max(0.0, now - max(before, quiet)) * 5
        level = max(level, min(50.0, level + gained))
        match act:
            case "call":
                bucket.begin(now)
                quiet = max(quiet, min(max(quiet, now) + 1, now + 10))
            case "take" | "drain":
                for _ in range(1 if act == "take" else 200):
                    fits = bucket.take(5, now)
                    assert fits == (level >= 5) or level == pytest.approx(5, abs=1e-6), "but for rounding"
                    level -= 5 if fits else 0
                    quiet = now + 11 if fits else quiet
            case "first":
                bucket.succeeded(None, now)
                level = min(500.0, level + 1)
            case "retried":
                bucket.succeeded(5, now)
                level = min(500.0, level + 5)
            case "app":
                charge = bucket.charge_app_retry(now)
                assert charge == pytest.approx(min(level, 5.0), abs=1e-6)
                level -= charge
                quiet = now + 11 if charge else quiet
        assert bucket.level(now) == pytest.approx(level, abs=1e-6)
        level = bucket.level(now)


def test_an_emptied_bucket_pays_again_in_quiet_and_no_more_than_a_tenth() -> None:
    bucket = emptied()
    assert bucket.level(11.0) == 0
    assert not bucket.affords(5, 11.99)
    assert bucket.affords(5, 12.0)
    assert bucket.level(16.0) == 25
    assert bucket.level(21.0) == bucket.level(1e9) == 50


def test_a_call_a_second_is_no_quiet() -> None:
    bucket = emptied()
    for second in range(1, 600):
        bucket.begin(float(second))
    assert bucket.level(605.0) == 0


def test_calls_two_seconds_apart_leave_every_other_second_quiet() -> None:
    bucket = emptied()
    for second in range(11, 21, 2):
        bucket.begin(float(second))
    assert bucket.level(21.0) == 25


def test_calls_that_come_at_once_put_quiet_off_by_a_second_each_and_ten_at_most() -> None:
    few, many = emptied(), emptied()
    for _ in range(3):
        few.begin(11.0)
    for _ in range(1000):
        many.begin(11.0)
    assert [few.level(at) for at in (14.0, 15.0)] == [0, 5]
    assert [many.level(at) for at in (21.0, 22.0)] == [0, 5]


def test_above_a_tenth_only_calls_change_the_level() -> None:
    bucket = make_bucket(OWN, now=0.0)
    for _ in range(89):
        assert bucket.take(5, 0.0)
    assert bucket.level(1e9) == 55


def test_a_call_with_many_retries_finds_them_paid_for() -> None:
    spec = QuotaSpec().refilled_in_quiet(30)
    assert spec.quiet_up_to == 145
    assert QuotaSpec().refilled_in_quiet(1000).quiet_up_to == 500
    assert QuotaSpec(retry_cost=14, timeout_cost=14).refilled_in_quiet(6).quiet_up_to == 70


def test_time_that_runs_backwards_brings_nothing() -> None:
    bucket = emptied(100.0)
    assert bucket.level(113.0) == 10
    bucket.begin(50.0)
    assert bucket.level(113.0) == 10


def test_a_bucket_whose_time_begins_with_its_first_use_gains_nothing_before() -> None:
    bucket = make_bucket(OWN)
    while bucket.take(5, 1e6):
        pass
    assert bucket.level(1e6 + 11) == 0
    assert bucket.level(1e6 + 13) == 10


def test_a_changed_definition_takes_over_what_quiet_brought() -> None:
    assert make_bucket(QuotaSpec(1000), instead_of=emptied(), now=16.0).level(16.0) == 50
    assert make_bucket(OWN, instead_of=make_bucket(QuotaSpec(initial=0)), now=6.0).level(8.0) == 10


def test_only_a_quota_that_the_file_does_not_write_refills_in_quiet() -> None:
    policies = {
        "own": {},
        "many": {"strategy": {"kind": "standard", "max_attempts": 30}},
        "merged": {"bucket": {"capacity": 100}},
        "whole": {"bucket": {"kind": "quota"}},
        "named": {"bucket": "shared"},
        "grpc": {"strategy": "grpc"},
    }
    upstreams = {name: {"hosts": [f"{name}.test"], **policy} for name, policy in policies.items()}
    result = load_tree({"buckets": {"shared": {"kind": "quota"}}, "upstreams": upstreams}, "inline", {})
    assert result.settings is not None, result.errors
    found = {each.upstream: each.bucket for up in result.settings.router.upstreams for each in up.policies}
    low = {name: getattr(ref.spec, "quiet_up_to", 0) for name, ref in found.items() if ref is not None}
    assert low == {"own": 50, "many": 145, "merged": 0, "whole": 0, "named": 0}


@pytest.mark.parametrize("kind", ["standard", "standard-2026", "legacy", "adaptive", "smithy"])
def test_every_kind_with_a_quota_of_its_own_refills_it(kind: str) -> None:
    own = BUILT_IN[kind].default_bucket
    assert isinstance(own, QuotaSpec)
    assert own.quiet_up_to >= max(50, (BUILT_IN[kind].max_attempts - 1) * own.dearest)


def test_the_python_interface_refills_too() -> None:
    now = 0.0
    strategy = StandardRetryStrategy(clock=lambda: now)

    token = strategy.acquire_initial_retry_token()
    while (strategy.tokens_left() or 0) >= 5:
        token = strategy.acquire_initial_retry_token()
        token = strategy.refresh_retry_token_for_retry(token_to_renew=token, error=Failure())
    now = 600.0
    assert strategy.tokens_left() == 50
    assert token.retry_count == 1


SHARED = QuotaSpec(apps=(("web", 1), ("batch", 1), ("others", 1))).refilled_in_quiet(3)


def test_every_app_gets_its_part_of_what_quiet_brings() -> None:
    whole = PartedQuota(SHARED, now=0.0)
    apps = [AppQuota(whole, NamedApp(name)) for name in ("web", "batch", "others")]
    for app in apps:
        app.begin(0.0)
    for app in apps:
        while app.take(5, 0.0):
            pass
    before = whole.level(0.0)
    assert before < 15
    for second in range(1, 60):  # a call a second is no quiet, whichever app makes it
        apps[second % 3].begin(float(second))
    assert whole.level(60.0) == before
    assert whole.level(80.0) == 50
    assert all(app.spendable(80.0) > 15 for app in apps)
