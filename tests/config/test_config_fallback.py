"""`fallback`: what its entries become, and what is refused with its line and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import lines, loaded, settings

from proxy.retry.policies.policy import Fallback

OTHERS = "  b: {url: http://b.test}\n  c: {url: http://c.test}\n  somewhere: {hosts: [d.test]}\n"


def refused(folder: Path, entries: str, others: str = OTHERS) -> list[str]:
    text = f"upstreams:\n  a: {{url: http://a.test, fallback: {entries}}}\n{others}"
    return lines(folder, loaded(folder, text))


def test_names_and_mappings(tmp_path: Path) -> None:
    json = '{model: big-2, "n": 5, t: 0.50, s: true, z: null, q: "5", o: {deep: [1, x]}}'
    found = settings(
        tmp_path,
        "upstreams:\n  a:\n    url: http://a.test\n"
        f"    fallback: [b, {{to: c, json: {json}, keep: [X-Team-Key, code]}}]\n"
        f"    routes: [{{match: {{path: /x}}, fallback: []}}, {{match: {{path: /y}}, fallback: [c]}}]\n{OTHERS}",
    )
    upstream = found.router.by_name["a"]
    b, c = upstream.policy.fallback
    assert b == Fallback("b")
    assert (c.to, c.keep) == ("c", {"x-team-key", "code"})
    assert dict(c.json) == {
        "model": b'"big-2"',
        "n": b"5",
        "t": b"0.5",
        "s": b"true",
        "z": b"null",
        "q": b'"5"',
        "o": b'{"deep": [1, "x"]}',
    }
    assert [route.policy.fallback for route in upstream.routes] == [(), (Fallback("c"),)]
    assert found.router.by_name["b"].policy.fallback == ()


def test_a_long_integer_goes_out_digit_by_digit(tmp_path: Path) -> None:
    entries = "[{to: b, json: {seed: 1234567890123456789, deep: [-9223372036854775808]}}]"
    found = settings(tmp_path, f"upstreams:\n  a: {{url: http://a.test, fallback: {entries}}}\n{OTHERS}")
    (b,) = found.router.by_name["a"].policy.fallback
    assert dict(b.json) == {"seed": b"1234567890123456789", "deep": b"[-9223372036854775808]"}


def test_defaults_are_for_upstreams_and_not_for_hosts_that_none_names(tmp_path: Path) -> None:
    others = OTHERS.replace("c.test", "c.test, fallback: []")
    found = settings(tmp_path, f"defaults: {{fallback: [c]}}\nupstreams:\n  a: {{url: http://a.test}}\n{others}")
    assert found.router.by_name["a"].policy.fallback == (Fallback("c"),)
    assert found.router.unmatched("x.test").policy.fallback == ()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("[bb]", "2:38: upstreams.a.fallback[0]: there is no upstream called 'bb' (did you mean b?)"),
        ("[b, {to: cc}]", "2:46: upstreams.a.fallback[1].to: there is no upstream called 'cc' (did you mean c?)"),
        ("[somewhere]", "2:38: upstreams.a.fallback[0]: somewhere has no url: a call that falls back to it would"),
        ("[a]", "2:38: upstreams.a.fallback[0]: a circle, a -> a: remove one of the entries"),
        ("b", "2:37: upstreams.a.fallback: must be a list, not 'b' (did you mean [b]?)"),
        ("off", "2:37: upstreams.a.fallback: must be a list, not 'off' (did you mean []?)"),
        ("[{json: {a: 1}}]", "2:38: upstreams.a.fallback[0].to: is missing: the name of an upstream with a url"),
        ("[{to: b, jsn: {a: 1}}]", "2:46: upstreams.a.fallback[0].jsn: unknown key (did you mean json?)"),
        ("[{to: b, json: [1]}]", "2:52: upstreams.a.fallback[0].json: must be a mapping, not a list"),
        ("[{to: b, json: {a: 1e999}}]", "2:56: upstreams.a.fallback[0].json.a: is a number that JSON can't write"),
        ("[{to: b, keep: x-key}]", "2:52: upstreams.a.fallback[0].keep: must be a list, not 'x-key'"),
    ],
)
def test_what_is_refused(tmp_path: Path, entries: str, message: str) -> None:
    (line,) = refused(tmp_path, entries)
    assert line.startswith(f"redrive.yaml:{message}")


def test_a_circle_is_told_once_where_it_closes(tmp_path: Path) -> None:
    others = "  b: {url: http://b.test, fallback: [c]}\n  c: {url: http://c.test, fallback: [a]}\n"
    (line,) = refused(tmp_path, "[b, c]", others)
    assert line.startswith("redrive.yaml:4:38: upstreams.c.fallback[0]: a circle, a -> b -> c -> a: remove one")


def test_a_long_way_is_none(tmp_path: Path) -> None:
    others = "".join(f"  u{n}: {{url: http://u{n}.test, fallback: [u{n + 1}]}}\n" for n in range(3000))
    assert refused(tmp_path, "[u0]", f"{others}  u3000: {{url: http://u.test}}\n") == []
