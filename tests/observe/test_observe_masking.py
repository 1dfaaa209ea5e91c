from __future__ import annotations

import pytest

from proxy.observe import masking


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/plain", "/plain"),
        ("/x?", "/x?"),
        ("/x?key=s3cret", "/x?key=***"),
        ("/x?a=1&b=s3cret&c", "/x?a=***&b=***&***"),
        ("/x?s3cret", "/x?***"),
        ("/x?a=b=c?d", "/x?a=***"),
        ("http://user:s3cret@host/x?y=1", "http://***@host/x?y=***"),
        ("/x;jsessionid=s3cret", "/x;jsessionid=***"),
        ("/x;a=s3cret;b=s3cret/y;s3cret/;?c=s3cret", "/x;a=***;b=***/y;***/;?c=***"),
        ("/x;a=s3=cret?", "/x;a=***?"),
        ("/x%3Ba=s3cret/y%3bb%3Ds3cret%3bc", "/x%3Ba=***/y%3bb%3D***%3b***"),
        ("/x;a%20b=s3%2Fcret/%31", "/x;a%20b=***/%31"),
        ("http://u:s3cret@host/x;y=s3cret/z", "http://***@host/x;y=***/z"),
        ("/x?a=1;b=s3cret", "/x?a=***"),
    ],
)
def test_targets_show_names_and_no_values(path: str, shown: str) -> None:
    assert masking.target(path) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:s3cret@host/x;y=s3cret/z?a=s3cret", "https://***@host/x;y=***/z?a=***"),
        ("a text; with one=sign", "a text; with one=sign"),
    ],
)
def test_urls(text: str, shown: str) -> None:
    assert masking.url(text) == shown


def test_a_query_of_many_parts_is_cut() -> None:
    shown = masking.target("/?" + "&".join(f"k{n}=s3cret" for n in range(1000)))
    assert "s3cret" not in shown
    assert len(shown) < 500


def test_user_info_in_an_authority() -> None:
    assert masking.authority("u:s3cret@host:80") == "***@host:80"
    assert masking.authority("host:80") == "host:80"


@pytest.mark.parametrize(
    "name", ["token", "X-Api-Key", "Authorization", "password", "Set-Cookie", "client_secret", "openai-apikey"]
)
def test_names_of_secrets(name: str) -> None:
    assert masking.secret_name(name)


@pytest.mark.parametrize("name", ["key", "max_tokens", "token_ratio", "header", "cert"])
def test_names_of_no_secrets(name: str) -> None:
    if name in ("max_tokens", "token_ratio"):
        assert masking.config({name: 10}) == {name: 10}
    else:
        assert not masking.secret_name(name)


def test_a_configuration_keeps_its_shape() -> None:
    shown = masking.config(
        {
            "admin": {"token": "s3cret", "listen": "127.0.0.1:9901"},
            "redis": {"url": "redis://:s3cret@localhost/0"},
            "upstreams": {
                "a": {
                    "url": "https://u:s3cret@a.example/x?sig=s3cret",
                    "client_cert": {"cert": "c.pem", "key": "k.pem"},
                    "headers": {"request": {"set": {"X-Whatever": "s3cret"}, "remove": ["cookie"]}},
                }
            },
            "buckets": {"t": {"max_tokens": 10}},
        }
    )
    assert "s3cret" not in repr(shown)
    assert shown["admin"]["listen"] == "127.0.0.1:9901"
    assert shown["upstreams"]["a"]["client_cert"]["key"] == "k.pem"
    assert shown["upstreams"]["a"]["headers"]["request"] == {"set": {"X-Whatever": "***"}, "remove": ["cookie"]}
    assert shown["buckets"]["t"]["max_tokens"] == 10


def test_tokens_that_are_counted_are_no_secret() -> None:
    bucket = {"kind": "throttle", "max_tokens": "10", "token_ratio": "0.1"}
    assert masking.config({"buckets": {"grpc": bucket}, "admin": {"token": "x"}}) == {
        "buckets": {"grpc": bucket},
        "admin": {"token": masking.MASK},
    }


@pytest.mark.parametrize("value", ["250ms", "2s", "7", "-1.5", "1e3", "64KiB", "20%", "100/s", "true", "off"])
def test_an_argument_of_a_custom_strategy_that_is_plainly_harmless_is_shown(value: str) -> None:
    assert masking.config({"kind": "module:Class", "wait": value}) == {"kind": "module:Class", "wait": value}
    assert masking.place("strategy.wait", value, argument=True) == value


@pytest.mark.parametrize("value", ["s3cret", "1234567890123456", "${NAME}", "12ab", "/path"])
def test_any_other_argument_of_a_custom_strategy_is_masked(value: str) -> None:
    tree = {"strategy": {"kind": "module:Class", "vault": value, "deep": {"list": [value, "1"]}, "token": "1"}}
    assert masking.config(tree) == {
        "strategy": {"kind": "module:Class", "vault": "***", "deep": {"list": ["***", "1"]}, "token": "***"}
    }
    assert masking.place("strategy.vault", value, argument=True) == "***"
    assert masking.place("strategy.deep.list", [value, "1"], argument=True) == "[***, 1]"


def test_what_a_rule_holds_a_header_against_is_masked() -> None:
    rules = [{"status": "400", "header": {"x-why": "s3cret*", "x-any": "*"}, "as": "throttling"}]
    assert masking.place("classify.rules", rules) == "[{status: 400, header: {x-why: ***, x-any: *}, as: throttling}]"
    assert masking.place("scope.header", "X-Tenant") == "X-Tenant"


def test_the_estimate_of_tokens_is_no_secret() -> None:
    assert masking.place("tokens.output", "7") == "7"
    assert masking.place("tokens.output", "7", argument=True) == "***"
