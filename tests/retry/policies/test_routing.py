"""Which upstream and which policy: hosts, prefixes, routes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.facts import MappingFields, NoFields
from proxy.retry.policies.policy import Policy
from proxy.retry.policies.routing import (
    MOST_UNMATCHED,
    ClimbsOut,
    Endpoint,
    HostPattern,
    Match,
    Route,
    Router,
    Target,
    Upstream,
    climbs,
    path_glob,
    plain_path,
    shadows,
    split_authority,
)
from proxy.retry.strategies.presets import NONE, STANDARD


def upstream(name: str, *hosts: str, prefix: str | None = None, routes: tuple[Route, ...] = ()) -> Upstream:
    patterns = []
    for host in hosts:
        text, _, port = host.partition(":")
        patterns.append(HostPattern(text, int(port) if port else None))
    return Upstream(name, name, Target(), Policy(name, "", STANDARD, None), "auto", prefix, tuple(patterns), routes)


def router(*upstreams: Upstream) -> Router:
    return Router(upstreams, upstream("unmatched"))


@pytest.mark.parametrize(
    ("services", "path", "found"),
    [
        ({"a": ["x.Greeter"]}, b"/x.Greeter/SayHello", "a"),
        ({"a": ["x.Greeter"]}, b"/x.Greeter/SayHello?q", "a"),
        ({"a": ["x.Greeter"]}, b"/x.greeter/SayHello", None),  # names of services are told apart by case
        ({"a": ["x.Greeter"]}, b"/xyGreeter/SayHello", None),
        ({"a": ["x.Greeter"]}, b"/x.Greeter", None),
        ({"a": ["x.Greeter"]}, b"/x.Greeter/", None),
        ({"a": ["x.Greeter"]}, b"/x.Greeter/a/b", None),
        ({"a": ["x.*"]}, b"/x.a/../y.B/M", None),  # no glob takes more than the service
        ({"a": ["x.*"], "b": ["x.Greeter"]}, b"/x.Greeter/M", "b"),  # exact beats glob
        ({"a": ["*x.Gree.ter*"], "b": ["x.Greeter"]}, b"/x.Greeter/M", "b"),
        ({"a": ["x.*"], "b": ["x.v1.*"]}, b"/x.v1.Greeter/M", "b"),  # longer beats shorter
        ({"a": ["x.*"], "b": ["*.Gr"]}, b"/x.Gr/M", "b"),
        ({"a": ["x.*"], "b": ["*.y"]}, b"/x.y/M", "a"),  # then file order
        ({"a": ["x.Y"], "b": ["x.Y"]}, b"/x.Y/M", "a"),
        ({"a": ["*"]}, b"/anything/M", "a"),
        ({"a": []}, b"/x.Y/M", None),
        ({"a": ["x.Y"]}, b"*", None),
    ],
)
def test_services(services: dict[str, list[str]], path: bytes, found: str | None) -> None:
    made = router(*(replace(upstream(name), services=tuple(each)) for name, each in services.items()))
    answer = made.by_service(path)
    assert (answer.name if answer else None) == found


@pytest.mark.parametrize(
    ("hosts", "authority", "found"),
    [
        ({"a": ["x.test"]}, "x.test", "a"),
        ({"a": ["x.test"]}, "X.Test.:8443", "a"),
        ({"a": ["x.test:443"]}, "x.test", None),
        ({"a": ["x.test:80"]}, "x.test", "a"),
        ({"a": ["x.test:443"]}, "x.test:443", "a"),
        ({"a": ["*.test"], "b": ["x.test"]}, "x.test", "b"),  # exact beats glob
        ({"a": ["*.test:80"], "b": ["x.test"]}, "x.test", "b"),
        ({"a": ["*.test"], "b": ["*.x.test"]}, "y.x.test", "b"),  # longer beats shorter
        ({"a": ["x.test"], "b": ["x.test:80"]}, "x.test", "b"),
        ({"a": ["x.test"], "b": ["x.test:81"]}, "x.test", "a"),
        ({"a": ["*.test"], "b": ["*.test"]}, "x.test", "a"),  # then file order
        ({"a": ["x.test"], "b": ["x.test"]}, "x.test", "a"),
        ({"a": ["*"]}, "anything.at.all:9", "a"),
        ({"a": ["*.test"]}, "test", None),
        ({"a": ["a*b"]}, "axxb", "a"),
        ({"a": ["a.b"]}, "axb", None),
        ({"a": ["x.test"]}, "x.test:port", None),
        ({"a": ["x.test"]}, "x.test:70000", None),
        ({"a": ["*"]}, "", None),
    ],
)
def test_hosts(hosts: dict[str, list[str]], authority: str, found: str | None) -> None:
    made = router(*(upstream(name, *each) for name, each in hosts.items()))
    for _ in range(2):  # worked out, and remembered
        answer = made.by_authority(authority, 80)
        assert (answer.name if answer else None) == found


def test_ipv6() -> None:
    made = router(Upstream("a", "a", Target(), Policy("a", "", STANDARD, None), hosts=(HostPattern("[::1]", 81),)))
    assert made.by_authority("[::1]:81", 80) is not None
    assert made.by_authority("[::1]", 81) is not None
    assert made.by_authority("[::1]", 80) is None
    assert split_authority("[::1]:81", 80) == ("[::1]", 81)


def test_the_memory_of_authorities_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.retry.policies.routing.MOST_REMEMBERED", 10)
    made = router(upstream("a", "*.test"))
    for number in range(100):
        assert made.by_authority(f"{number}.test", 80) is not None
        assert len(made._known) <= 10


def test_unmatched_places_are_their_own_and_bounded() -> None:
    made = router(upstream("a", "x.test"))
    first = made.unmatched("Y.test:81")
    assert (first.name, first.label, first.policy) == ("y.test:81", "unmatched", made.fallback.policy)
    for number in range(MOST_UNMATCHED - 1):
        made.unmatched(f"{number}.test")
    assert made.unmatched("y.test:81") is first
    for number in range(MOST_UNMATCHED):
        made.unmatched(f"other-{number}.test")
    assert len(made._unmatched) == MOST_UNMATCHED
    assert made.unmatched("y.test:81") is not first


@pytest.mark.parametrize(
    ("path", "found", "rest"),
    [
        (b"/pay/v1/x", "pay", b"/v1/x"),
        (b"/pay", "pay", b"/"),
        (b"/pay/", "pay", b"/"),
        (b"/pay?a=b", "pay", b"/?a=b"),
        (b"/payments/v1", None, b""),
        (b"/pay/deep/x", "deep", b"/x"),
        (b"/pay/deeper/x", "pay", b"/deeper/x"),
        (b"/pay//x", "pay", b"//x"),
        (b"/pay/a%2Fb/%C3%BC", "pay", b"/a%2Fb/%C3%BC"),
        (b"/pay/a/../b", "pay", b"/a/../b"),
        (b"/pay/./b", "pay", b"/./b"),
        (b"/pay/x?to=/../..", "pay", b"/x?to=/../.."),
        (b"/pay/..x/...", "pay", b"/..x/..."),
        (b"/PAY/x", None, b""),
        (b"/", None, b""),
        (b"*", None, b""),
        (b"", None, b""),
    ],
)
def test_prefixes(path: bytes, found: str | None, rest: bytes) -> None:
    made = router(upstream("pay", prefix="/pay"), upstream("deep", prefix="/pay/deep"), upstream("none"))
    answer = made.by_prefix(path)
    assert (answer[0].name if answer else None) == found
    if answer is not None:
        assert answer[1] == rest


def test_the_root_prefix_takes_the_rest() -> None:
    made = router(upstream("root", prefix="/"), upstream("pay", prefix="/pay"))
    found = {path: made.by_prefix(path) for path in (b"/pay/x", b"/x?y", b"/")}
    assert {path: (each[0].name, each[1]) for path, each in found.items() if each} == {
        b"/pay/x": ("pay", b"/x"),
        b"/x?y": ("root", b"/x?y"),
        b"/": ("root", b"/"),
    }


@pytest.mark.parametrize(
    "path",
    [
        b"/pay/..",
        b"/pay/../admin",
        b"/pay/a/../../admin",
        b"/pay/%2e%2e/admin",
        b"/pay/%2E./admin",
        b"/pay/.%2e",
        b"/pay/a/%2e%2e/..",
        b"/pay/..%2fadmin",
        b"/pay/..%5cadmin",
        b"/pay/..\\admin",
        b"/pay//../..",
        b"/pay/./..",
        b"/pay/a%2fb/../../x",
        b"/pay/..?x",
    ],
)
def test_climbing_out_is_refused(path: bytes) -> None:
    with pytest.raises(ClimbsOut):
        router(upstream("pay", prefix="/pay")).by_prefix(path)


@given(st.lists(st.sampled_from([b"a", b"..", b".", b"", b"%2e%2e", b"%2E"]), max_size=8))
def test_what_does_not_climb_stays_below(parts: list[bytes]) -> None:
    """Against a plain walk: no prefix of the path may have more `..` than names."""
    depth, out = 0, False
    for part in parts:
        plain = part.replace(b"%2e", b".").replace(b"%2E", b".")
        depth += -1 if plain == b".." else 0 if plain in (b"", b".") else 1
        out = out or depth < 0
    assert climbs(b"/" + b"/".join(parts)) == out


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        (b"/v1/charges/7?x=/..", "/v1/charges/7"),
        (b"/v1/%63harges", "/v1/charges"),
        (b"/v1/a%2Fb", "/v1/a/b"),
        (b"/v1/./a/../b", "/v1/b"),
        (b"/v1/%2e%2e/b", "/b"),
        (b"/../b", "/b"),
        (b"/a/..", "/"),
        (b"/a/.", "/a/"),
        (b"/%C3%BC", "/ü"),
        (b"/%FF", "/\udcff"),
        (b"/%zz", "/%zz"),
        (b"*", "*"),
    ],
)
def test_the_path_that_routes_see(raw: bytes, plain: str) -> None:
    assert plain_path(raw) == plain


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("/v1/charges/*", "/v1/charges/7", True),
        ("/v1/charges/*", "/v1/charges/", True),
        ("/v1/charges/*", "/v1/charges/7/x", False),
        ("/v1/**", "/v1/a/b", True),
        ("/v1/**", "/v1", False),
        ("/v1/**/x", "/v1/a/b/x", True),
        ("/a.b", "/axb", False),
        ("/a?b", "/a?b", True),
        ("/a[bc]", "/a[bc]", True),
        ("**", "/anything", True),
        ("/*/x*", "/a/xyz", True),
    ],
)
def test_path_globs(glob: str, path: str, matches: bool) -> None:
    assert (path_glob(glob).fullmatch(path) is not None) is matches


def test_the_first_route_that_matches_wins() -> None:
    def route(label: str, match: Match) -> Route:
        return Route(match, Policy("a", label, NONE, None))

    made = upstream(
        "a",
        routes=(
            route("gold", Match(frozenset({"POST"}), ("/v1/charges/*",), (("x-tier", "g*"),))),
            route("post", Match(frozenset({"POST"}))),
            route("both", Match(paths=("/v1/**", "**/x"))),
            route("any", Match(headers=(("x-any", "*"),))),
        ),
    )

    def found(method: str, path: bytes, *fields: tuple[str, str]) -> str:
        return made.policy_for(method, path, MappingFields(list(fields))).route

    assert found("POST", b"/v1/charges/7", ("X-Tier", "silver"), ("X-Tier", "gold")) == "gold"
    assert found("POST", b"/v1/%63harges/7?a", ("X-Tier", "gold")) == "gold"
    assert found("POST", b"/v1/charges/7", ("X-Tier", "silver")) == "post"
    assert found("post", b"/v1/charges/7") == ""
    assert found("GET", b"/v1/a/x") == "both"
    assert found("GET", b"/v1/a/y", ("X-Any", "")) == "any"
    assert found("GET", b"/v1/a/y") == ""
    assert upstream("b").policy_for("GET", b"/", NoFields()).route == ""
    assert made.policies[-1] is made.policy


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        (Match(), Match(paths=("/a",)), True),
        (Match(paths=("/a/**",)), Match(paths=("/a/*/b",)), True),
        (Match(paths=("/a/*",)), Match(paths=("/a/b",)), True),
        (Match(paths=("/a/*",)), Match(paths=("/a/**",)), False),
        (Match(paths=("/a/*/*",)), Match(paths=("/a/**",)), False),
        (Match(paths=("/a/b",)), Match(paths=("/a/*",)), False),
        (Match(paths=("/a",)), Match(), False),
        (Match(paths=("**",)), Match(), True),
        (Match(frozenset({"GET"})), Match(frozenset({"GET", "POST"})), False),
        (Match(frozenset({"GET", "POST"})), Match(frozenset({"GET"}), ("/x",)), True),
        (Match(headers=(("a", "*"),)), Match(headers=(("a", "b"),)), True),
        (Match(headers=(("a", "b"),)), Match(headers=(("a", "*"),)), False),
        (Match(headers=(("a", "b"),)), Match(), False),
    ],
)
def test_shadows(earlier: Match, later: Match, expected: bool) -> None:
    assert shadows(earlier, later) is expected


def test_named_ports() -> None:
    made = Upstream(
        "a",
        "a",
        Target((Endpoint("https", "x.test", 8443),)),
        Policy("a", "", STANDARD, None),
        hosts=(HostPattern("y.test", 81), HostPattern("z.test")),
    )
    assert router(made).named_ports == {8443, 81}
    assert router(made).by_name == {"a": made}


def test_an_authority_longer_than_any_name_is_named_by_no_upstream_and_not_remembered() -> None:
    made = router(upstream("a", "*-*-*.prod.test"))
    assert made.by_authority("x-y-z.prod.test", 443) is not None
    assert made.by_authority("-" * 30_000 + ".prod.test", 443) is None
    assert [authority for authority, _ in made._known] == ["x-y-z.prod.test"]
