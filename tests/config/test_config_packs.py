"""The dialect packs: what the contract names is in them, and a pack is a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from configs import lines, loaded, policy, settings

from proxy.config.classification import built_in_names
from proxy.retry.answers.classification import classify, read_by
from proxy.retry.facts import Class, MappingFields, Reply, Request, Verdict
from proxy.retry.policies.dialect import Classify, Dialect, ResetField

GET = Request("GET", "x.test", "/")
AWS_THROTTLING = [
    *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException"),
    *("TooManyRequestsException", "ProvisionedThroughputExceededException", "TransactionInProgressException"),
    *("RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "RequestThrottled", "SlowDown"),
    *("PriorRequestNotComplete", "EC2ThrottledException"),
]


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Classify]:
    text = "upstreams:\n" + "".join(
        f"  {name}: {{url: http://{name}, dialects: [http, {name}]}}\n" for name in built_in_names()
    )
    found = settings(tmp_path_factory.mktemp("packs"), text)
    return {name: policy(found, name).classify for name in built_in_names()}


def judged(rules: Classify, status: int, headers: dict[str, str] | None = None, body: object = None) -> str:
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
    reply = Reply(status, MappingFields(list((headers or {}).items())))
    found = classify(rules, GET, reply, text.encode())
    assert isinstance(found, Verdict)
    return str(found.cls)


def test_the_packs_that_the_contract_names() -> None:
    names = "anthropic aws azure github google grpc http mcp openai stripe"
    assert built_in_names() == names.split()


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        *((code, "throttling") for code in AWS_THROTTLING),
        ("RequestTimeout", "transient"),
        ("RequestTimeoutException", "transient"),
        ("ValidationException", "unnamed"),
    ],
)
def test_aws(packs: dict[str, Classify], code: str, cls: str) -> None:
    aws = packs["aws"]
    assert judged(aws, 400, {"x-amzn-errortype": code}) == cls
    assert judged(aws, 400, {"X-Amzn-ErrorType": f"{code}:http://internal.amazon.com/coral/"}) == cls
    assert judged(aws, 400, body={"__type": code}) == cls
    assert judged(aws, 400, body={"__type": f"com.amazonaws.dynamodb.v20120810#{code}"}) == cls
    assert judged(aws, 400, body=f"<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>") == cls
    assert judged(aws, 200, {"x-amzn-errortype": code}) == "success"
    assert aws.plain_below_400


@pytest.mark.parametrize(
    ("name", "status", "headers", "body", "cls"),
    [
        ("github", 403, {"x-ratelimit-remaining": "0"}, None, "throttling"),
        ("github", 429, {"x-ratelimit-remaining": "0"}, None, "throttling"),
        ("github", 403, {"x-ratelimit-remaining": "12"}, None, "unnamed"),
        ("github", 403, {"retry-after": "60"}, None, "throttling"),
        # without a delay GitHub means a minute at least: a short backoff would be against its word
        ("github", 403, {}, {"message": "You have exceeded a secondary rate limit."}, "unnamed"),
        ("github", 404, {"x-ratelimit-remaining": "0"}, None, "unnamed"),
        ("openai", 429, {}, {"error": {"code": "rate_limit_exceeded"}}, "throttling"),
        ("openai", 429, {}, {"error": {"code": "insufficient_quota"}}, "fatal"),
        ("openai", 429, {}, {"error": {"type": "insufficient_quota", "code": "credit_balance_exhausted"}}, "fatal"),
        ("openai", 429, {}, {"error": {"code": "slow_down"}}, "throttling"),
        ("openai", 503, {}, {"error": {"code": "slow_down"}}, "throttling"),
        ("openai", 503, {}, {"error": {"code": "server_is_overloaded"}}, "transient"),
        ("openai", 409, {}, None, "transient"),
        ("openai", 529, {}, None, "transient"),
        ("openai", 504, {}, None, "timeout"),
        ("openai", 401, {}, None, "unnamed"),
        ("azure", 503, {"x-ms-error-code": "ServerBusy"}, None, "throttling"),
        ("azure", 500, {"x-ms-error-code": "OperationTimedOut"}, None, "timeout"),
        ("azure", 449, {}, None, "transient"),
        ("azure", 503, {}, None, "transient"),
        ("stripe", 409, {}, {"error": {"code": "lock_timeout"}}, "transient"),
        ("stripe", 409, {}, {"error": {"code": "idempotency_key_in_use"}}, "transient"),
        ("stripe", 429, {}, {"error": {"code": "lock_timeout"}}, "throttling"),
        ("stripe", 409, {}, {"error": {"code": "resource_already_exists"}}, "transient"),  # as its client has it
        ("anthropic", 529, {}, None, "transient"),
        ("anthropic", 400, {}, {"type": "error", "error": {"type": "overloaded_error"}}, "transient"),
        ("anthropic", 400, {}, {"type": "error", "error": {"type": "rate_limit_error"}}, "throttling"),
        ("anthropic", 400, {}, {"type": "error", "error": {"type": "invalid_request_error"}}, "unnamed"),
        ("google", 429, {}, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}, "throttling"),
        ("google", 409, {}, {"error": {"code": 409, "status": "ABORTED"}}, "unnamed"),
        ("stripe", 429, {}, {"error": {"code": "rate_limit"}}, "throttling"),
        ("http", 403, {"x-ratelimit-remaining": "0"}, None, "unnamed"),
    ],
)
def test_providers(
    packs: dict[str, Classify], name: str, status: int, headers: dict[str, str], body: object, cls: str
) -> None:
    assert judged(packs[name], status, headers, body) == cls


def test_reset_fields(packs: dict[str, Classify]) -> None:
    def of(name: str) -> tuple[ResetField, ...]:
        found: Dialect = packs[name].dialects[1]
        return found.resets

    assert of("github") == (ResetField("x-ratelimit-reset", "epoch", "x-ratelimit-remaining"),)
    assert {field.format for field in of("openai")} == {"duration"}
    assert packs["grpc"].grpc_dialect
    assert all(pack.dialects[-1].source for pack in packs.values())


OWN = "upstreams: {a: {url: http://x, dialects: [own.yaml]}}\n"


def test_a_pack_of_ones_own_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text(
        "name: acme\nsource: [https://docs.acme.example/errors]\n"
        "rules:\n  - {status: 418, header: {x-acme: busy}, as: throttling}\n"
        "resets:\n  - {field: x-acme-reset, format: epoch_ms}\n"
    )
    text = "upstreams:\n  a: {url: http://x, dialects: [http, acme.yaml]}\n"
    rules = policy(settings(tmp_path, text)).classify
    assert judged(rules, 418, {"x-acme": "busy"}) == Class.THROTTLING
    assert rules.dialects[1].resets == (ResetField("x-acme-reset", "epoch_ms"),)
    (tmp_path / "acme.yaml").write_text("name: acme\nrule: []\nrules:\n  - {status: 4xxx, as: throttling}\n")
    assert lines(tmp_path, loaded(tmp_path, text)) == [
        "acme.yaml:1:1: source: is missing: the provider's documentation",
        "acme.yaml:2:1: rule: unknown key (did you mean rules?)",
        "acme.yaml:4:14: rules[0].status: '4xxx' is not an HTTP status; write it as 503, 5xx or 520-527",
    ]
    (tmp_path / "acme.yaml").unlink()
    assert lines(tmp_path, loaded(tmp_path, text))[0].startswith(
        "redrive.yaml:2:39: upstreams.a.dialects[1]: acme.yaml: cannot be read"
    )


def test_words_for_errors_have_only_names_that_are_replaced(tmp_path: Path) -> None:
    words = '{message: "{mesage}", note: "{} {a b}"}'
    (tmp_path / "own.yaml").write_text(f"name: own\nsource: [x]\nerrors: {{json: {words}}}\n")
    assert lines(tmp_path, loaded(tmp_path, "defaults: {dialects: [http, own.yaml]}\n")) == [
        "own.yaml:3:26: errors.json.message: '{mesage}' has {mesage}, which is none of {message}, {word}, {outcome}, "
        "{status}, {type} (did you mean message?)"
    ]


def test_a_name_of_a_file_beside_the_configuration_is_told_of_its_ending(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("name: own\nsource: [x]\n")
    assert lines(tmp_path, loaded(tmp_path, "defaults: {dialects: [http, own]}\n")) == [
        "redrive.yaml:1:29: defaults.dialects[1]: there is no dialect called 'own' (did you mean the file own.yaml?)"
    ]


def test_paths_of_usage_name_items_of_a_list(tmp_path: Path) -> None:
    usage = "name: own\nsource: [none]\nusage:\n  prompt: ['usage.parts.*[type=text].tokens', '{}']\n"
    (tmp_path / "own.yaml").write_text(usage.format("all.*.tokens"))
    assert lines(tmp_path, loaded(tmp_path, OWN)) == []
    for wrong in ("*[type]", "*[type=text", "**", "*[]"):
        (tmp_path / "own.yaml").write_text(usage.format(f"all.{wrong}.tokens"))
        assert lines(tmp_path, loaded(tmp_path, OWN)) == [
            f"own.yaml:4:47: usage.prompt[1]: 'all.{wrong}.tokens': {wrong} must be * or *[name=value]"
        ]


def test_keys_of_a_pack_with_nothing_after_them(tmp_path: Path) -> None:
    """Lists and mappings may be left empty, as in the file itself; a word may not."""
    keys = ("rules", "empty_events", "codes", "delays", "repeats", "reads", "out_of_quota", "resets")
    (tmp_path / "own.yaml").write_text("name: own\nsource: [none]\n" + "".join(f"{key}:\n" for key in keys))
    assert policy(settings(tmp_path, OWN)).classify.dialects[0].rules == ()
    (tmp_path / "own.yaml").write_text("name: own\nsource: [none]\ngrpc:\n")
    assert lines(tmp_path, loaded(tmp_path, OWN)) == [
        "own.yaml:3:1: grpc: has nothing after it: write a value, or leave the key out"
    ]


def test_codes_of_a_pack_that_nothing_can_match(tmp_path: Path) -> None:
    own = "name: own\nsource: [none]\ncodes: {}\n"
    (tmp_path / "own.yaml").write_text(own.format("{json: [error.code]}"))
    assert lines(tmp_path, loaded(tmp_path, OWN)) == [
        "own.yaml:3:8: codes: there is no code: add throttling, timeout, transient, fatal"
    ]
    (tmp_path / "own.yaml").write_text(own.format("{fatal: [x], status: [], spelled: [y]}"))
    assert lines(tmp_path, loaded(tmp_path, OWN)) == [
        "own.yaml:3:8: codes: there is no place that holds them: add header, json, xml",
        "own.yaml:3:29: codes.status: must not be empty: nothing would match; leave the key out to match anything",
        "own.yaml:3:43: codes.spelled[0]: 'y' must contain {}, which stands for the code",
    ]


def test_rules_of_a_users_own_pack_are_named_by_their_number(tmp_path: Path) -> None:
    """What a rule holds a field against may be a secret, and the name of a rule is logged."""
    (tmp_path / "own.yaml").write_text(
        "name: own\nsource: [none]\nrules:\n  - {header: {x-why: s3cret}, as: transient}\n"
    )
    found = settings(tmp_path, "upstreams: {a: {url: http://x, dialects: [http, own.yaml]}}\n")
    own = policy(found).classify.dialects[1]
    assert [rule.because for rule in own.rules] == ["rule 1"]


MCP = {"mcp-protocol-version": "2026-07-28"}


@pytest.mark.parametrize(
    ("method", "fields", "read"),
    [
        ("POST", [("Mcp-Method", "tools/list"), *MCP.items()], "tools/list"),
        ("POST", [("mcp-method", "ping"), *MCP.items()], "ping"),
        ("POST", [("mcp-method", "tasks/get"), *MCP.items()], "tasks/get"),
        ("GET", [("mcp-method", "tools/list"), *MCP.items()], None),
        # A field that is there twice says two things, whichever comes first.
        ("POST", [("mcp-method", "tools/list"), ("mcp-method", "tools/call"), *MCP.items()], None),
        ("POST", [("mcp-method", "tools/list"), ("mcp-method", "tools/list"), *MCP.items()], None),
        ("POST", [("mcp-method", "tools/list"), *MCP.items(), *MCP.items()], None),
        ("POST", [("mcp-method", "tools/call tools/list"), *MCP.items()], None),
        ("POST", [("mcp-method", "pings"), *MCP.items()], None),
        ("POST", [("mcp-method", "list"), *MCP.items()], None),
        ("POST", [("mcp-method", "tools/list")], None),
    ],
)
def test_mcp(packs: dict[str, Classify], method: str, fields: list[tuple[str, str]], read: str | None) -> None:
    request = Request(method, "x.test", "/mcp", MappingFields(fields))
    found = read_by(packs["mcp"], request)
    assert found == (None if read is None else ("mcp", read))
    assert read_by(packs["http"], request) is None


def test_reads_of_a_pack_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "name: own\nsource: [https://own.test]\n"
        "reads: {field: X-Operation, values: [query], header: {x-checked: '*'}}\n"
    )
    found = policy(settings(tmp_path, "upstreams: {a: {url: http://a, dialects: [own.yaml]}}\n"), "a").classify
    fields = [("x-operation", "query"), ("x-checked", "1")]
    assert read_by(found, Request("POST", "a", "/", MappingFields(fields))) == ("own", "query")
    assert read_by(found, Request("POST", "a", "/", MappingFields(fields[:1]))) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "headers: {request: {set: {MCP-Protocol-Version: '2025-11-25'}}}",
            "1:75: upstreams.a.headers.request.MCP-Protocol-Version: "
            "the dialect mcp knows reads by MCP-Protocol-Version, and calls are repeated for it: leave it to apps",
        ),
        (
            "headers: {request: {remove: [mcp-method]}}",
            "1:78: upstreams.a.headers.request.mcp-method: "
            "the dialect mcp knows reads by mcp-method, and calls are repeated for it: leave it to apps",
        ),
        (
            "credentials: {header: Mcp-Method, values: [a]}",
            "1:13: upstreams.a.credentials.header: the dialect mcp knows reads by Mcp-Method: leave it to apps",
        ),
    ],
)
def test_a_field_that_tells_reads_is_the_apps(tmp_path: Path, text: str, line: str) -> None:
    """The upstream would compare another value with the body than the one that the call is repeated for, or none."""
    result = loaded(tmp_path, f"upstreams: {{a: {{url: http://a, dialects: [mcp], {text}}}}}\n")
    assert lines(tmp_path, result) == [f"redrive.yaml:{line}"]
