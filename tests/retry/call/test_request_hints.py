"""What an app's request says of retrying: keys that come again, and calls that may be sent before they are made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.retry.call.request_hints import may_start_undecided, read_duration
from proxy.retry.facts import Class, Request
from proxy.retry.policies.bucket_specs import TokenRules
from proxy.retry.policies.dialect import Classify, Dialect, Rule
from proxy.retry.policies.policy import BreakerSpec, EndpointShare, IdempotencyKey, Policy, PushbackPolicy, Timeouts
from proxy.retry.scopes.seen_keys import KEY_SECONDS, MOST_KEYS, SeenKeys
from proxy.retry.strategies.presets import HEDGING, STANDARD

POLICY = Policy("a", "", STANDARD, None)
PLAIN = Request("GET", "a.test", "/", plain=True)
WITH_EMPTY_EVENTS = Dialect("a", empty_events=frozenset({"ping"}))
TIMED = Request("GET", "a.test", "/", timed=True)


@pytest.mark.parametrize("request_", [PLAIN, TIMED, Request("GET", "a.test", "/", plain=True, timed=True)])
def test_a_request_without_hints_may_start_undecided(request_: Request) -> None:
    assert may_start_undecided(POLICY, request_)


def test_a_request_whose_fields_steer_deciding_may_not() -> None:
    assert not may_start_undecided(POLICY, Request("GET", "a.test", "/"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("29.999999999999996", 30.0),  # what Python writes of 30 - 4e-15, the rest of a budget, say
        ("0.30000000000000004s", 0.3),
        ("86400000000ms", 86_400_000.0),
        ("999999999999999999h", 1e9),
        ("1e3", None),
        ("+1", None),
        ("5.", None),
        ("", None),
    ],
)
def test_a_duration_may_have_as_many_digits_as_a_float(text: str, seconds: float | None) -> None:
    assert read_duration(text) == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("endpoints", [(), (EndpointShare("a.test"),)])
def test_one_under_a_circuit_breaker_may_where_there_is_one_endpoint(endpoints: tuple[EndpointShare, ...]) -> None:
    assert may_start_undecided(replace(POLICY, circuit_breaker=BreakerSpec(), endpoints=endpoints), PLAIN)


@pytest.mark.parametrize(
    "difference",
    [
        {"strategy": replace(STANDARD, paced=True, delay_first=False)},
        {"tokens": TokenRules()},
        {"pushback": PushbackPolicy(ahead=True)},
        {"strategy": replace(STANDARD, custom=object())},
        {"strategy": replace(HEDGING, extra=0.1)},
        {"strategy": replace(HEDGING, hedging_percentile=99.0)},
        {"strategy": replace(STANDARD, hedging_delay=0.0)},
        {"idempotency_key": IdempotencyKey("X-Key")},
        {"idempotency_key": IdempotencyKey(inject=True)},
        {"classify": Classify(statuses={399: Class.TRANSIENT})},
        {"classify": Classify(rules=(Rule(Class.TRANSIENT, "1", grpc=frozenset({0})),))},
        {"endpoints": (EndpointShare("a.test"), EndpointShare("b.test"))},
        {"timeouts": Timeouts(first_byte=1.0), "classify": Classify(dialects=(WITH_EMPTY_EVENTS,))},
    ],
    ids="".join,  # the names
)
@pytest.mark.parametrize("request_", [PLAIN, TIMED], ids=["plain", "timed"])
def test_nor_may_any_under_a_policy_that_has_something_to_decide_first(
    request_: Request, difference: dict[str, Any]
) -> None:
    assert not may_start_undecided(replace(POLICY, **difference), request_)


def test_a_key_is_known_for_ten_minutes_after_it_was_last_seen() -> None:
    assert KEY_SECONDS == 600  # contract, section 5
    seen = SeenKeys()
    assert [seen.again("a", now) for now in (0.0, 600.0, 1200.0, 1800.5)] == [False, True, True, False]
    assert (seen.is_over(2400.5), seen.is_over(2401.0)) == (False, True)


def test_a_key_that_expires_leaves_those_seen_later() -> None:
    seen = SeenKeys()
    assert [seen.again(key, now) for key, now in (("a", 0.0), ("b", 500.0), ("c", 500.0))] == [False] * 3
    assert [seen.again(key, 700.0) for key in "bca"] == [True, True, False]


def test_of_too_many_keys_the_one_seen_longest_ago_is_forgotten() -> None:
    assert MOST_KEYS == 10_000  # contract, section 5
    seen = SeenKeys()
    for key in range(MOST_KEYS):
        assert not seen.again(str(key), 0.0)
    assert seen.again("0", 1.0)
    assert not seen.again("another", 2.0)
    assert seen.again("0", 3.0)
    assert seen.again("2", 3.0)
    assert not seen.again("1", 3.0)
