"""The index of routes finds what trying every route in order finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.facts import NoFields
from proxy.retry.policies.route_index import RouteIndex
from proxy.retry.policies.routing import Match

GLOBS = ["/", "/a", "/a/", "/a/b", "/a/*", "/a/**", "/a*", "/*/b", "**", "/**", "**/b", "/a/b/**", "*", "/a/b*/c"]
PATHS = ["/", "/a", "/a/", "/a/b", "/a/bc", "/a/b/", "/a/b/c", "/ab", "/b", "/b/b", "*", "//", "/a//b", "/a/bb/c"]

matches = st.builds(
    Match,
    st.none() | st.frozensets(st.sampled_from(["GET", "POST", "PUT"]), min_size=1),
    st.lists(st.sampled_from(GLOBS), max_size=2).map(tuple),
)


@given(st.lists(matches, max_size=12), st.sampled_from(["GET", "POST", "DELETE"]), st.sampled_from(PATHS))
def test_the_candidates_are_all_that_match_in_their_order(routes: list[Match], method: str, path: str) -> None:
    numbers = list(RouteIndex((each.methods, each.paths) for each in routes).candidates(method, path))
    assert numbers == sorted(set(numbers))
    assert {number for number, each in enumerate(routes) if each.holds(method, path, NoFields())} <= set(numbers)


def test_few_of_a_thousand_routes_are_tried() -> None:
    index = RouteIndex([(frozenset({"GET"}), (f"/v1/a{number}/**",)) for number in range(1000)] + [(None, ())])
    assert index.candidates("GET", "/v1/a77/x") == (77, 1000)
    assert index.candidates("POST", "/v1/a77/x") == (1000,)
    exact = RouteIndex([(None, ("/v1/x",)), (frozenset({"GET"}), ("/v1/*",)), (None, ("/v1/x", "**/y"))])
    assert exact.candidates("GET", "/v1/x") == (0, 1, 2)
    assert exact.candidates("GET", "/v1/y") == (1,)
    assert exact.candidates("POST", "/w") == ()
