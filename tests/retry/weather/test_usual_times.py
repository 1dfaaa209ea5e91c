"""The usual times of routes: what a route is, how an estimate moves, and how many are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.facts import MappingFields, Request
from proxy.retry.weather.route_names import timed_route
from proxy.retry.weather.usual_times import UsualTimes


@pytest.mark.parametrize(
    ("path", "known_by"),
    [
        ("/a/b/c?x=/y", "/a/b"), ("/a", "/a"), ("/a?b=/c/d", "/a"), ("/a/b?c", "/a/b"), ("/", "/"), ("*", "*"),
        ("/a/b/", "/a/b"), ("/a/?x=/", "/a/"),
    ],
)  # fmt: skip
def test_a_route_is_known_by_two_segments(path: str, known_by: str) -> None:
    assert timed_route("r", Request("GET", "h", path)) == f"r GET {known_by}"


def test_a_grpc_route_is_its_method() -> None:
    fields = MappingFields([("content-type", "application/grpc")])
    assert timed_route("r", Request("POST", "h", "/acme.v1.Echo/Say", fields)) == "r POST /acme.v1.Echo/Say"


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=60))
def test_the_estimate_stays_among_the_times_that_were_measured(times: list[float]) -> None:
    usual = UsualTimes()
    for number, seconds in enumerate(times):
        usual.learn("a", seconds, float(number))
        assert min(times) <= usual.of("a") <= max(times)
    assert usual.count == len(times)


def test_most_answers_are_slower_than_the_usual_time() -> None:
    usual = UsualTimes()
    times = [0.05 + 0.001 * (number * 37 % 100) for number in range(3000)]  # evenly from 50 to 149 ms
    for number, seconds in enumerate(times):
        usual.learn("a", seconds, float(number))
    assert sum(seconds < usual.of("a") for seconds in times) / len(times) < 0.3


def test_routes_beyond_the_most_are_kept_together() -> None:
    usual = UsualTimes()
    for number in range(300):
        usual.learn(f"route {number}", 1.0 + number, 0.0)
    assert usual.of("route 0") == 1.0
    assert usual.of("route 299") == usual.of("route 290") >= 257.0
    assert usual.last("route 299") == float("-inf")


def test_a_route_that_is_new_is_expected_to_take_as_long_as_others_did_at_first() -> None:
    usual = UsualTimes()
    assert usual.of("r GET /a/1") == 0.0
    for number in range(40):
        usual.learn(f"r GET /{number}/orders", 0.05, 0.0)
        usual.learn(f"r POST /{number}/orders", 2.0, 0.0)
    assert usual.of("r GET /new/orders") == pytest.approx(0.05)
    assert usual.of("r POST /new/orders") == pytest.approx(2.0), "of the same method, if there are any"
    assert usual.of("r PUT /new/orders") == pytest.approx(0.05, rel=0.05), "of any other, if not"
    assert usual.last("r GET /new/orders") == float("-inf"), "nothing says that the route answers"


def test_when_a_route_answered_last_is_known_by_its_method_whatever_its_path() -> None:
    times = UsualTimes()
    times.learn("r GET /a", 0.1, 5.0)
    times.learn("r POST /a", 0.1, 7.0)
    assert times.last_of_any("r GET /b") == 5.0
    assert times.last_of_any("r PUT /a") == float("-inf")


@pytest.mark.parametrize("twentieth", ["r GET /19", "r POST /a"])
def test_few_routes_say_nothing_about_another(twentieth: str) -> None:
    usual = UsualTimes()
    for number in range(19):
        usual.learn(f"r GET /{number}", 0.05, 0.0)
    assert usual.of("r GET /new") == 0.0
    usual.learn(twentieth, 0.05, 0.0)
    assert usual.of("r GET /new") == pytest.approx(0.05), "twenty of any method"


def test_what_a_route_took_itself_counts_more_than_what_others_did() -> None:
    usual = UsualTimes()
    for number in range(40):
        usual.learn(f"r GET /{number}", 0.05, 0.0)
    usual.learn("r GET /report", 8.0, 0.0)
    assert usual.of("r GET /report") == 8.0


def test_an_answer_is_expected_as_late_as_the_latest_ones_but_not_as_late_as_those_of_slower_routes() -> None:
    usual = UsualTimes()
    assert usual.expect("GET /quick", 0.0) == 0.0
    assert usual.expect("GET /quick", 2.0) == 2.0
    usual.learn("GET /quick", 0.1, 1.0)
    assert usual.expect("GET /quick", 0.0) == 0.1
    assert usual.expect("GET /quick", 0.3) == 0.3
    assert abs(usual.expect("GET /quick", 2.0) - 0.6) < 1e-9
