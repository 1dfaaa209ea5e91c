"""`redrive explain`: what it says is what the same objects do that serve traffic."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.lab.explain import layout
from proxy.lab.explain.wording import between
from proxy.retry.budgets.token_bucket import STEP

CONFIG = """\
buckets:
  shared: {kind: quota, capacity: 12, retry_cost: 5}
strategies:
  patient: {kind: standard, max_attempts: 5, backoff: {base: 200ms}}
upstreams:
  payments:
    url: https://api.payments.example
    strategy: patient
    dialects: [http, aws]
    headers: {request: {set: {X-Api-Key: hunter2}}}
    classify:
      rules:
        - {status: 418, as: fatal}
        - {status: 400, json: {error.code: rate_limited}, as: throttling}
    routes:
      - match: {methods: [DELETE]}
        strategy: none
      - match: {path: /v1/search}
        strategy: {kind: hedging, hedging_delay: 50ms}
      - match: {path: /v1/tight}
        bucket: shared
  slow:
    hosts: ["*.slow.example"]
    timeouts: {attempt: 40s, total: 1m}
    concurrency: {max: 8}
    mode: observe
  inside: {url: "https://inside.example", connect: intercept}
  tools: {url: "https://tools.example", dialects: [http, mcp]}
"""


@pytest.fixture
def explain(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(CONFIG)

    def ask(*arguments: str, status: int = 0) -> str:
        assert main(["explain", "-c", "r.yaml", "--all", *arguments]) == status
        out, err = capsys.readouterr()
        return out if status == 0 else err

    return ask


def says(text: str, *lines: str) -> None:
    """Each of these lines is there, in this order, white space aside."""
    found = [" ".join(line.split()) for line in text.splitlines()]
    for line in lines:
        assert line in found, f"{line!r} is not in (what is left of)\n" + "\n".join(found)
        found = found[found.index(line) + 1 :]


def test_upstream_route_strategy_bucket_and_scope(explain) -> None:  # type: ignore[no-untyped-def]
    says(
        explain("GET", "http://api.payments.example/v1/x"),
        "GET http://api.payments.example/v1/x",
        "upstream payments, by host api.payments.example:80 (r.yaml:6)",
        "route none of its routes match",
        "sent to https://api.payments.example/v1/x",
        "strategy patient (standard): 5 attempts; retry n waits r · min(20s, 200ms · 2^(n-1))",
        "bucket its own: quota of 500; a retry costs 5, after a timeout 5, after throttling 5; "
        "a first attempt's success returns 1, a second of quiet 5 up to 50",
        "drains where more than 31.0 % of attempts fail",
        "scope host api.payments.example",
        "deadline 15m for all attempts and waits; each attempt: off",
        "repeating GET is idempotent",
    )


def test_a_limit_of_attempts_under_way(explain) -> None:  # type: ignore[no-untyped-def]
    text = explain("GET", "http://x.slow.example/", "--json")
    others = "100 others wait for a place, for 30s at most"
    limit = f"at most 8 attempts at a time; {others}, beyond that the outcome is overloaded"
    assert json.loads(text)["applies"]["under way"] == limit


def test_what_a_policy_does_in_trouble(explain) -> None:  # type: ignore[no-untyped-def]
    applied = json.loads(explain("GET", "http://api.payments.example/v1/x", "--json"))["applies"]
    assert applied["in trouble"] == (
        "attempts under way are limited while they end for want of capacity; at most 1000 calls wait for it, "
        "for at most 20s; in an outage one probe at a time is sent, and other calls are held for at most 20s"
    )
    assert "in trouble" not in json.loads(explain("GET", "http://x.slow.example/", "--json"))["applies"]  # it observes


def test_the_schedule_of_possible_attempts(explain) -> None:  # type: ignore[no-untyped-def]
    says(
        explain("GET", "http://api.payments.example/v1/x", "--status", "503"),
        "class transient (transient: 503)",
        "safety safe to repeat: GET is idempotent",
        "attempt 1 retried after 0s to 200ms",
        "attempt 4 retried after 0s to 1.6s",
        "attempt 5 not retried: attempts_exhausted, that was the last of 5 attempts",
        "attempt earliest latest pays bucket after",
        "1 0s 0s 0 500",
        "3 0s 600ms 5 490",
        "5 0s 3s 5 480",
        "the app gets 503 after 0s to 3s: that answer, outcome attempts_exhausted",
        "X-Attempt-Count: 5",
        "x-should-retry: false",
        "Proxy-Status: redrive; received-status=503; attempts=5; outcome=attempts_exhausted; "
        'details="attempt 1: 503, attempt 2: 503, attempt 3: 503, attempt 4: 503, attempt 5: 503; '
        'that was the last of 5 attempts"',
    )


def test_without_an_end_every_end_is_tried(explain) -> None:  # type: ignore[no-untyped-def]
    says(
        explain("POST", "http://api.payments.example/v1/x"),
        "class attempts outcome waits, or why not",
        "connect_failure transient 5 attempts_exhausted 0s–200ms, 0s–400ms, 0s–800ms, 0s–1.6s",
        "reset transient 1 not_retryable POST may have been carried out, and is not idempotent",
        "404 unnamed 1 not_retryable nothing names it as retryable",
        "429 throttling 5 attempts_exhausted 0s–200ms, 0s–400ms, 0s–800ms, 0s–1.6s",
    )


REASONS = [
    ("GET --status 418", "class fatal (rule 1, r.yaml:13)"),
    ("GET --status 400 -H 'x-amzn-errortype: SlowDown'", "class throttling (dialect aws: SlowDown)"),
    (
        "POST --status 503",
        "attempt 1 not retried: not_retryable, POST may have been carried out, and is not idempotent",
    ),
    (
        "POST --status 503",
        "safety not safe to repeat: POST is not idempotent, and the upstream may have carried it out",
    ),
    ("POST --status 429", "safety safe to repeat: the upstream did not carry the request out"),
    ("POST --status 503 -H 'Idempotency-Key: 7'", "safety safe to repeat: the request carries Idempotency-Key"),
    (
        "GET --fail connect_failure",
        "attempt 1 sent again at once, on a new connection: it counts neither as an attempt nor against a bucket",
    ),
    ("GET --status 429 -H 'Retry-After: 7'", "attempt 1 retried after 7s (retry-after)"),
    (
        "GET --status 429 -H 'Retry-After: 70'",
        "attempt 1 not retried: pushback_too_long, retry-after names 70 s, more than pushback.max_delay, 60 s",
    ),
    (
        "GET --status 503 -H 'X-Should-Retry: false'",
        "attempt 1 not retried: pushback_stop, the upstream said not to retry (x-should-retry)",
    ),
    ("GET --status 503 -H 'X-Retry-Disable: true'", "attempt 1 not retried: disabled, X-Retry-Disable"),
    (
        "GET --status 503 -H 'X-Retry-Timeout: 50ms'",
        "deadline 50ms for all attempts and waits; each attempt: off",
    ),
    (
        "GET --status 503 -H 'X-Retry-Timeout: soon'",
        "the app gets 400 after 0s: the proxy's own answer, 'Bad request', outcome bad_request",
    ),
    ("GET --status 200", "attempt 1 goes to the app as it comes"),
    ("DELETE --status 503", "attempt 1 not retried: attempts_exhausted, the strategy makes one attempt"),
    ("DELETE --status 503", "route DELETE (r.yaml:16)"),
]


@pytest.mark.parametrize(("arguments", "line"), REASONS)
def test_the_reason(explain, arguments: str, line: str) -> None:  # type: ignore[no-untyped-def]
    method, *rest = shlex.split(arguments)
    says(explain(method, "http://api.payments.example/v1/x", *rest), line)


@pytest.mark.parametrize(
    ("fields", "repeating", "safety"),
    [
        (
            ("mcp-method: tools/list", "mcp-protocol-version: 2026-07-28"),
            "mcp: tools/list is a read",
            "safe to repeat: mcp: tools/list is a read",
        ),
        (
            ("mcp-method: tools/list",),
            "POST is not idempotent (mcp: tools/list is a read only with mcp-protocol-version: 2026-07-28); "
            "unsafe_methods is provider",
            "not safe to repeat: POST is not idempotent, and the upstream may have carried it out "
            "(mcp: tools/list is a read only with mcp-protocol-version: 2026-07-28)",
        ),
        (
            ("mcp-method: tools/call", "mcp-protocol-version: 2026-07-28"),
            "POST is not idempotent (mcp: tools/call is not a read); unsafe_methods is provider",
            "not safe to repeat: POST is not idempotent, and the upstream may have carried it out "
            "(mcp: tools/call is not a read)",
        ),
        (
            (),
            "POST is not idempotent (mcp: no single mcp-method says what it asks for); unsafe_methods is provider",
            "not safe to repeat: POST is not idempotent, and the upstream may have carried it out "
            "(mcp: no single mcp-method says what it asks for)",
        ),
    ],
)
def test_a_read_among_posts(explain, fields: tuple[str, ...], repeating: str, safety: str) -> None:  # type: ignore[no-untyped-def]
    headers = [each for field in fields for each in ("-H", field)]
    found = explain("POST", "http://tools.example/mcp", "--status", "503", *headers)
    says(found, f"repeating {repeating}", f"safety {safety}")


def test_a_rule_that_looks_into_the_body(explain) -> None:  # type: ignore[no-untyped-def]
    body = '{"error": {"code": "rate_limited"}}'
    text = explain("GET", "http://api.payments.example/", "--status", "400", "--body", body)
    says(text, "class throttling (rule 2, r.yaml:14)")
    text = explain("GET", "http://api.payments.example/", "--status", "400")
    says(text, "class unnamed (not named: 400)")


LLM = """
buckets: {tpm: {kind: rate, rate: 1000/m, burst: 1000, unit: tokens}}
upstreams:
  llm: {url: "https://llm.example", dialects: [http, openai], rate: tpm, pushback: {ahead: on}}
"""


def test_what_a_requests_body_is_expected_to_cost(explain, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "r.yaml").write_text(LLM)
    (tmp_path / "body.json").write_text('{"model": "m", "max_tokens": 80}')  # 32 bytes
    text = explain("POST", "http://llm.example/v1", "--body", "body.json")
    says(text, "estimate 8 of the prompt + 80 of the output of m = 88 tokens")
    assert "ahead" in text
    (tmp_path / "body.json").write_text('{"max_tokens": 1000}')
    text = explain("POST", "http://llm.example/v1", "--body", "body.json")
    assert "it begins when the bucket is full (1000)" in " ".join(text.split())
    (tmp_path / "body.json").write_text('{"max_tokens": 80')
    text = explain("POST", "http://llm.example/v1", "--body", "body.json")
    assert "the body is not JSON, so its maximum is not known" in " ".join(text.split())
    refused = explain("POST", "http://llm.example/v1", "--body", "none.json", status=2)
    assert "'none.json' is no file" in refused


def test_the_app_that_a_request_belongs_to(explain, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    known = "{web: {weight: 4, priority: high}, batch: {priority: low}}"
    apps = f"apps: {{by: [proxy_user, {{header: X-App}}], known: {known}}}\n"
    (tmp_path / "r.yaml").write_text(apps + LLM)

    def app(*fields: str) -> str:
        said = [part for field in fields for part in ("-H", field)]
        return str(json.loads(explain("POST", "http://llm.example/v1", "--json", *said))["applies"]["app"])

    assert app("X-App: web") == "web; priority high, weight 4"
    assert app("X-App: web", "X-Retry-Priority: low") == "web; priority low, weight 4"
    assert app("X-App: web", "Proxy-Authorization: Basic YmF0Y2g6eA==") == "batch; priority low, weight 1"
    assert app("X-App: sk-1") == "others: apps.known does not list its name; priority normal, weight 1"
    assert app() == "others: nothing names it; priority normal, weight 1"
    (tmp_path / "r.yaml").write_text(LLM)
    assert "app" not in json.loads(explain("POST", "http://llm.example/v1", "--json"))["applies"]


def test_a_hedge(explain) -> None:  # type: ignore[no-untyped-def]
    says(
        explain("GET", "http://api.payments.example/v1/search", "--status", "503"),
        "route /v1/search (r.yaml:18)",
        "repeating GET is idempotent: hedged",
        "attempt 1 the next goes at once",
        "attempt 3 not retried: attempts_exhausted, that was the last of 3 attempts",
    )
    says(
        explain("POST", "http://api.payments.example/v1/search", "--status", "404"),
        "repeating POST is not idempotent; unsafe_methods is provider: not hedged, one attempt after another",
        "attempt 1 not retried: not_retryable, non_fatal does not name it",
    )


def test_a_percentile_is_unknown_offline(explain) -> None:  # type: ignore[no-untyped-def]
    Path("r.yaml").write_text(
        "upstreams: {a: {url: http://a.example, strategy: {kind: hedging, hedging_delay: p95}}}\n"
    )
    says(
        explain("GET", "http://a.example/", "--status", "200"),
        "strategy hedging: 3 attempts, the next one after p95 of the times that the scope's successes took in the last "
        "minute (not known offline; with fewer than 20 of them there is no hedge); hedges are at most 10 % of "
        "the calls of the "
        "last minute",
        "attempt 1 goes to the app as it comes",
    )


def test_endpoints_and_their_breakers(explain) -> None:  # type: ignore[no-untyped-def]
    Path("r.yaml").write_text(
        "upstreams:\n  a:\n    url: [{url: http://a.example, weight: 3}, http://b.example, {url: http://c.example, "
        "priority: 1}]\n    circuit_breaker: {minimum_attempts: 1, open: 5s}\n"
    )
    says(
        explain("GET", "http://a.example/", "--status", "503"),
        "turns a.example:80 (3) and b.example:80 (1), by weight; while all of these are passed over: c.example:80 (1)",
        "breaker an endpoint is passed over once one attempt has ended within 30s and 50 % of them were transient or "
        "timeout; after 5s a probe goes there",
    )
    Path("r.yaml").write_text("upstreams: {a: {url: http://a.example, circuit_breaker: {minimum_attempts: 1}}}\n")
    assert "circuit_open" in explain("GET", "http://a.example/", "--status", "503")


def test_a_bucket_that_cannot_pay(explain) -> None:  # type: ignore[no-untyped-def]
    says(
        explain("GET", "http://api.payments.example/v1/tight", "--status", "503"),
        "bucket shared: quota of 12; a retry costs 5, after a timeout 5, after throttling 5; "
        "a first attempt's success returns 1",
        "attempt 3 not retried: bucket_empty, the bucket has 2, and a retry costs 5",
        "3 0s 600ms 5 2",
    )


def test_observe_says_what_would_be_done(explain) -> None:  # type: ignore[no-untyped-def]
    says(
        explain("GET", "http://a.slow.example/", "--fail", "attempt_timeout"),
        "upstream slow, by host *.slow.example (r.yaml:22)",
        "mode observe: nothing is retried or held",
        "attempt 1 not retried: disabled, the mode is observe; observed: would retry after 0.1 s",
        "the app gets 504 after 40s: the proxy's own answer, 'Gateway timeout', outcome disabled",
    )


def test_a_reset_with_a_code(explain) -> None:  # type: ignore[no-untyped-def]
    grpc = ("-H", "content-type: application/grpc")
    says(
        explain("POST", "http://a.slow.example/", *grpc, "--fail", "reset:enhance_your_calm"),
        "If every attempt ends with reset:ENHANCE_YOUR_CALM:",
    )


def test_a_base_url_is_reverse_use(explain) -> None:  # type: ignore[no-untyped-def]
    for url in ("http://127.0.0.1:8080/payments/v1/search?k=secret", "/payments/v1/search?k=secret"):
        text = explain("GET", url)
        says(text, "upstream payments, by prefix /payments (r.yaml:6)", "route /v1/search (r.yaml:18)")
        assert "secret" not in text


def test_where_each_value_comes_from(explain) -> None:  # type: ignore[no-untyped-def]
    text = explain("GET", "http://api.payments.example/v1/x")
    says(
        text,
        "strategy.name patient r.yaml:8",
        "strategy.max_attempts 5 r.yaml:4",
        "strategy.backoff.base 200ms r.yaml:4",
        "strategy.backoff.max 20s default",
        "dialects [http, aws] r.yaml:9",
        "headers.request.set.X-Api-Key *** r.yaml:10",
    )
    assert "hunter2" not in text


def test_remarks_about_this_upstream_and_no_other(explain) -> None:  # type: ignore[no-untyped-def]
    text = explain("GET", "http://api.payments.example/v1/x")
    assert "upstreams.payments.routes[1].strategy: warning: hedges without a bucket" in text
    assert "upstreams.inside" not in text
    assert "needs the local CA" in explain("GET", "http://inside.example/")


def test_a_connect(explain) -> None:  # type: ignore[no-untyped-def]
    says(
        explain("CONNECT", "inside.example:443"),
        "upstream inside, by host inside.example:443",
        "connect intercept: TLS is ended here, and the requests inside are calls like any other",
    )
    assert "tunnel: a blind tunnel" in explain("CONNECT", "elsewhere.example:443")


def test_refusals(explain) -> None:  # type: ignore[no-untyped-def]
    assert "refused: 404, outcome bad_request (no upstream has this Host or prefix: there are /" in explain(
        "GET", "/nobody/x"
    )
    assert "refused: 400, outcome bad_request" in explain("GET", "/payments/../../x")
    for place in ("inside.example:", "inside.example", "[::1:443", "x]:443", "inside.example:0"):
        assert "refused: 400, outcome bad_request (this is not host:port)" in explain("CONNECT", place)
    assert "refused: 403, outcome denied (the address is on the deny list)" in explain("GET", "http://169.254.169.254/")
    assert "refused: 403, outcome denied (the address is the proxy's own)" in explain("GET", "http://127.0.0.1:9901/")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["G ET", "http://x/"], "'G ET' is not a method"),
        (
            ["GET", "x.example"],
            "the url should be http://…, https://… or /…, not 'x.example' (did you mean http://x.example?)",
        ),
        (["GET", "http://x/a b"], "the url has white space, which is written %20: 'http://x/a b'"),
        (["GET", "orders/7"], "the url should be http://…, https://… or /…, not 'orders/7'"),
        (["CONNECT", "http://x/"], "the url should be HOST:PORT, not 'http://x/'"),
        (
            ["GET", "http://x/", "--status", "99"],
            "a status is a number from 200 to 999 or a gRPC status name, not '99'",
        ),
        (["GET", "http://münchen.example:8443/x"], "(did you mean http://xn--mnchen-3ya.example:8443?)"),
        (["GET", "http://é..example/x"], "'http://é..example/x'; a port is from 1"),
        (["GET", "http://münchen.example:99999/x"], "'http://münchen.example:99999/x'; a port is from 1"),
        (
            ["GET", "http://bob:s3cret@münchen.example/x"],
            "'http://***@münchen.example/x' (did you mean http://xn--mnchen-3ya.example?)",
        ),
        (["GET", "http://x/", "--fail", "boom"], "a fault is one of"),
        (["GET", "http://x/", "--fail", "rest"], "attempt_timeout, not 'rest' (did you mean reset?)"),
        (["GET", "http://x/", "--fail", "reset:BOOM"], "only a reset has a code, which is one of NO_ERROR, "),
        (["GET", "http://x/", "--fail", "connect_failure:CANCEL"], "only a reset has a code"),
        (["GET", "http://x/", "-H", "no colon"], "a field should be 'Name: value'"),
    ],
)
def test_bad_questions(explain, arguments: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    text = explain(*arguments, status=2)
    assert message in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("host", ["[::1", "x]", "[zz]", "a:x", "a:99999", "a:0", ":80"])
def test_a_place_that_cannot_be_is_a_bad_question(explain, host: str) -> None:  # type: ignore[no-untyped-def]
    text = explain("GET", f"http://{host}/", status=2)
    assert text.startswith(f"redrive: the url's host or port is not valid: 'http://{host}/'; a port is from 1 to 65535")


@pytest.mark.parametrize(
    ("method", "said"), [("get", " (did you mean GET?)"), ("GTE", " (did you mean GET?)"), ("PURGE", ""), ("POST", "")]
)
def test_a_slip_of_a_method_is_told(explain, method: str, said: str) -> None:  # type: ignore[no-untyped-def]
    says(explain(method, "http://x/"), f"repeating {method} is not idempotent{said}; unsafe_methods is provider")


def test_a_refused_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("upstreams:\n  a: {urls: http://x}\n")
    assert main(["explain", "-c", str(tmp_path / "bad.yaml"), "GET", "http://x/"]) == 2
    assert "bad.yaml:2:" in capsys.readouterr().err


def test_a_service_config(explain, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "r.yaml").write_text("""\
upstreams:
  echo:
    url: http://127.0.0.1:50051
    dialects: [http, grpc]
    service_config:
      methodConfig:
        - name: [{service: echo.Echo}]
          hedgingPolicy: {maxAttempts: 3, hedgingDelay: 0.5s, nonFatalStatusCodes: [UNAVAILABLE]}
      retryThrottling: {maxTokens: 10, tokenRatio: 0.1}
""")
    grpc = ("-H", "Content-Type: application/grpc")
    says(
        explain("POST", "http://127.0.0.1:50051/echo.Echo/Find", *grpc, "--status", "unavailable"),
        "strategy hedging: 3 attempts, the next one every 500ms",
        "bucket its own: throttle of 10; a failure takes 1, a success returns 0.1, retries above 5",
        "repeating POST is not idempotent, but its service config says that it is safe: hedged",
        "codes UNAVAILABLE, by its service config instead of the lists of classify",
        "class transient (service config: UNAVAILABLE)",
        "the app gets 200 after 0s: that answer, outcome attempts_exhausted",
        "grpc-retry-pushback-ms: -1",
        "bucket.max_tokens 10 r.yaml:9",
    )
    says(
        explain("POST", "http://127.0.0.1:50051/echo.Echo/Find", *grpc, "--status", "503"),
        "the app gets 200 after 0s: trailers that say UNAVAILABLE, in place of that answer, outcome attempts_exhausted",
    )


def test_long_values_stand_on_several_lines_beside_their_places(explain) -> None:  # type: ignore[no-untyped-def]
    lines = explain("GET", "http://api.payments.example/v1/x").splitlines()
    table = lines[lines.index("Where each value comes from:") + 1 : lines.index("Worth knowing:")]
    assert max(map(len, table)) <= 80
    (at,) = (place for place, line in enumerate(table) if line.startswith("  classify.rules "))
    assert table[at].endswith(" r.yaml:13")
    folded = " ".join([table[at].removesuffix("r.yaml:13"), *table[at + 1 : at + 4]])
    assert "json: {error.code: rate_limited}, as: throttling}]" in " ".join(folded.split())


def test_a_terminal_gets_lines_that_fit() -> None:
    row = "  bucket     its own: quota of 500; a retry costs 5, after a timeout 5, after throttling 5; and so on"
    pieces = list(layout.fit(row, 60))
    assert max(map(len, pieces)) <= 60
    assert [piece[:13] for piece in pieces] == ["  bucket     ", " " * 13]
    assert " ".join(" ".join(pieces).split()) == " ".join(row.split())
    assert list(layout.fit(row, None)) == [row]


def test_a_table_that_does_not_fit_has_two_lines_for_each_end() -> None:
    rows = [
        ("503", "transient", "3", "attempts_exhausted", "0s–100ms, 0s–200ms"),
        ("404", "unnamed", "1", "not_retryable", "nothing names it as retryable"),
        ("deaf", "success", "1", "success", ""),
    ]
    assert len(list(layout.ends_table(rows, None))) == len(list(layout.ends_table(rows, 100))) == 4
    assert list(layout.ends_table(rows, 60)) == [
        "  503: transient",
        "    3 attempts, attempts_exhausted: 0s–100ms, 0s–200ms",
        "  404: unnamed",
        "    1 attempt, not_retryable: nothing names it as retryable",
        "  deaf: success",
        "    1 attempt, success",
    ]


CHANCE = """\
from proxy.retry import StandardRetryStrategy

WAITS = iter([3.0, 1.0, 5.0, 2.0])


class Chance(StandardRetryStrategy):
    def refresh_retry_token_for_retry(self, **keywords):
        token = super().refresh_retry_token_for_retry(**keywords)
        token.retry_delay = next(WAITS)
        return token
"""


def test_ranges_of_a_strategy_with_its_own_chance_run_forwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chance_of_its_own.py").write_text(CHANCE)
    (tmp_path / "r.yaml").write_text('upstreams: {a: {url: "http://a.example", strategy: "chance_of_its_own:Chance"}}')
    assert main(["explain", "-c", str(tmp_path / "r.yaml"), "GET", "http://a.example/", "--status", "503"]) == 0
    says(
        capsys.readouterr().out,
        "attempt 1 retried after 3s to 5s",
        "attempt 2 retried after 1s to 2s",
        "attempt earliest latest",
        "1 0s 0s",
        "2 3s 5s",
        "3 4s 7s",
    )


def test_fields_of_one_side_alone(explain) -> None:  # type: ignore[no-untyped-def]
    url = "http://api.payments.example/v1/x"
    assert "retried after 7s (retry-after)" in explain(
        "GET", url, "--status", "429", "--answer-header", "Retry-After: 7"
    )
    assert "(retry-after)" not in explain("GET", url, "--status", "429", "--request-header", "Retry-After: 7")
    disabled = ("--status", "503", "--request-header", "X-Retry-Disable: true")
    assert "not retried: disabled" in explain("GET", url, *disabled)
    assert "not retried: disabled" not in explain(
        "GET", url, "--status", "503", "--answer-header", "X-Retry-Disable: true"
    )
    assert "needs --status" in explain("GET", url, "--answer-header", "A: b", status=2)


COOLDOWNS = [
    (
        ("--status", "429"),
        "cooldown: none, because the answer names no delay; with Retry-After other calls of the scope wait",
    ),
    (("--status", "429", "-H", "Retry-After: 7"), "cooldown: other calls of the scope wait for 7s (retry-after)"),
    (("--status", "503", "-H", "Retry-After: 700"), "cooldown: other calls of the scope wait for 1m (retry-after)"),
]


@pytest.mark.parametrize(("asked", "explained"), COOLDOWNS)
def test_what_other_calls_meet(explain, asked: tuple[str, ...], explained: str) -> None:  # type: ignore[no-untyped-def]
    assert explained in explain("GET", "http://api.payments.example/v1/x", *asked)


def test_the_path_of_the_url_stands_in_front_by_prefix_alone(
    tmp_path: Path,
    explain,  # type: ignore[no-untyped-def]
) -> None:
    (tmp_path / "r.yaml").write_text("upstreams: {a: {url: 'https://a.example/base'}}\n")
    says(explain("GET", "http://a.example/x?key=1"), "sent to https://a.example/x?key=***")
    says(explain("GET", "/a/x"), "sent to https://a.example/base/x")


def test_json_says_what_the_text_says(explain) -> None:  # type: ignore[no-untyped-def]
    asked = ("GET", "http://api.payments.example/v1/x", "--status", "503")
    text, explained = " ".join(explain(*asked).split()), json.loads(explain(*asked, "--json"))
    assert explained["refused"] is None and explained["request"] in text
    for name, value in explained["applies"].items():
        assert f"{name} {' '.join(value.split())}" in text
    (end,) = explained["ends"]
    assert f"class {end['class']} ({end['because']})" in text
    for each in end["judgements"]:
        assert f"attempt {each['attempt']} {each['decision']}" in text
    assert [each["bucket_after"] for each in end["schedule"]] == [500, 495, 490, 485, 480]
    assert [each["latest"] for each in end["schedule"]] == pytest.approx([0, 0.2, 0.6, 1.4, 3])
    assert f"the app gets {end['status']} after 0s to {end['latest']:g}s: that answer, outcome {end['outcome']}" in text
    for name, value in end["headers"]:
        assert f"{name}: {value}" in text
    assert f"cooldown: {end['cooldown']}" in text
    for each in explained["values"]:
        assert each["key"] in text and each["from"] in text
    assert "hunter2" not in json.dumps(explained)
    for warning in explained["warnings"]:
        assert warning in text


def test_json_of_all_ends_a_tunnel_and_a_refusal(explain) -> None:  # type: ignore[no-untyped-def]
    explained = json.loads(explain("POST", "http://api.payments.example/v1/x", "--json"))
    assert [each["end"] for each in explained["ends"]][:3] == ["connect_failure", "refused_stream", "reset"]
    assert json.loads(explain("CONNECT", "inside.example:443", "--json"))["applies"]["connect"].startswith("intercept")
    assert json.loads(explain("GET", "/nowhere", "--json"))["refused"]["status"] == 404


GRPC = ("-H", "Content-Type: application/grpc")


def test_what_is_spoken_upstream_and_why(explain, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "r.yaml").write_text(
        "upstreams:\n"
        "  plain: {url: http://plain.example, services: acme.Echo, dialects: [grpc]}\n"
        "  tls: {url: https://tls.example}\n"
        "  old: {url: http://old.example, protocol: http/1.1}\n"
        "  new: {url: http://new.example, protocol: http/2}\n"
    )
    for arguments, line in (
        (("http://plain.example/",), "protocol http/1.1, as the app speaks: no --http2, and no gRPC content type"),
        (("http://plain.example/", "--http2"), "protocol http/2, as the app speaks: --http2"),
        (("http://tls.example/", *GRPC), "protocol http/2, as the app speaks: its content type is application/grpc"),
        (("http://tls.example/", "--http2"), "protocol http/2 or http/1.1, as the TLS handshake selects: --http2"),
        (("http://new.example/",), "protocol http/2, by the key `protocol`"),
        (
            ("http://old.example/", *GRPC),
            "protocol http/1.1, by the key `protocol`; its content type is application/grpc, so the call is answered "
            "UNIMPLEMENTED",
        ),
    ):
        says(explain("GET", *arguments), line)
    text = explain("POST", "/acme.Echo/echo", *GRPC)
    says(text, "upstream plain, by its gRPC service (r.yaml:2)", "sent to http://plain.example/acme.Echo/echo")


FALLBACK = """\
upstreams:
  llm:
    url: https://a.example
    dialects: [http, openai]
    fallback: [{to: other, json: {model: big-2}, keep: [X-Team-Key]}, third]
  other: {url: https://b.example, dialects: [http, openai], strategy: none}
  third: {url: https://c.example, strategy: none}
"""


def test_fallbacks(explain, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "r.yaml").write_text(FALLBACK)
    says(
        explain("POST", "/llm/v1/chat", "--status", "503"),
        "fallback goes on at other (sets model; keeps x-team-key), then third; POST only while none of its attempts "
        "may have been carried out, or where the provider's own client repeats it",
        "attempt 3 goes on at another upstream: attempts_exhausted: that was the last of 3 attempts",
        "attempt 4 goes on at another upstream: attempts_exhausted: the strategy makes one attempt",
        "attempt 5 not retried: not_retryable, POST may have been carried out, and is not idempotent",
        "X-Attempt-Count: 5",
    )
    text = explain("GET", "/llm/v1/chat", "--request-header", "Authorization: AWS4-HMAC-SHA256 Credential=x")
    says(text, "fallback never: its signature (SigV4) is for one host only")
    found = json.loads(explain("GET", "/llm/v1/chat", "--status", "503", "--json"))
    assert found["applies"]["fallback"] == "goes on at other (sets model; keeps x-team-key), then third"
    (end,) = found["ends"]
    assert (end["attempts"], end["outcome"]) == (4, "attempts_exhausted")  # a GET has no body to set members in
    assert "fallback" not in json.loads(explain("GET", "/third/x", "--json"))["applies"]


def test_what_is_waited_for_and_looked_at_in_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "r.yaml"
    config.write_text(
        "upstreams:\n  llm:\n    url: http://llm.example\n    dialects: [http, anthropic]\n"
        "    timeouts: {first_byte: 20s}\n    classify:\n      rules:\n"
        "        - {status: 200, json: {error.code: server_busy}, as: throttling}\n"
    )

    def explained(*arguments: str) -> str:
        assert main(["explain", "-c", str(config), "POST", "http://llm.example/v1/messages", *arguments]) == 0
        return capsys.readouterr().out

    says(
        explained(),
        "first byte within 20s of the request's last byte; until then a success's head is kept; only for calls whose "
        'body has "stream": true, and message_start, ping say nothing',
        "looks into the first event that counts of a stream (dialect anthropic), "
        "JSON that is whole within 64 KiB (rules)",
        "attempt_timeout timeout 3 attempts_exhausted 20s–20.1s, 20s–20.2s",
        "200, JSON server_busy throttling (rule 1) 3 attempts_exhausted 0s–100ms, 0s–200ms",
        "200, event error overloaded_error transient (dialect anthropic: error overloaded_error) 3 attempts_exhausted "
        "0s–100ms, 0s–200ms",
    )
    event = 'event: error\ndata: {"error": {"type": "overloaded_error"}}\n\n'
    says(
        explained("--status", "200", "-H", "content-type: text/event-stream", "--body", event),
        "class transient (dialect anthropic: error overloaded_error)",
        "safety repeated because anthropic's own client repeats it (unsafe_methods: provider)",
        "the app gets 200 after 0s to 300ms: that answer, outcome attempts_exhausted",
    )


def test_without_all_only_what_differs_from_the_defaults_is_listed(  # type: ignore[no-untyped-def]
    explain, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = explain("GET", "http://api.payments.example/v1/x").partition("Where each value comes from:")[2]
    assert main(["explain", "-c", "r.yaml", "GET", "http://api.payments.example/v1/x"]) == 0
    short = capsys.readouterr().out.partition("Where each value comes from:")[2]
    assert "backoff.max" in listed and " default" in listed
    assert "backoff.max" not in short and " default\n" not in short
    assert re.search(r"The other \d+ values are the defaults: --all lists them\.", short)


def test_what_helps_is_said_for_each_end(explain) -> None:  # type: ignore[no-untyped-def]
    asked = ("POST", "http://api.payments.example/v1/x")
    said = "send an Idempotency-Key, or say unsafe_methods: always on this upstream if repeating a POST is harmless"
    assert f"what helps: {said}" in explain(*asked, "--fail", "reset") or f": {said}" in explain(*asked)
    (end,) = json.loads(explain("GET", "http://api.payments.example/v1/x", "--status", "404", "--json"))["ends"]
    assert end["remedy"] == (
        "if another attempt can succeed, name it in classify.transient, or write a rule: classify.rules"
    )
    assert "what helps" not in explain("GET", "http://api.payments.example/v1/x", "--status", "200")


@pytest.mark.parametrize(
    ("upstream", "call", "said"),
    [
        (
            "",
            ("GET", "/a/x"),
            "an answer that breaks within its first 64KiB is asked for again, except on the last attempt",
        ),
        (
            "",
            ("POST", "/a/x"),
            "an answer that breaks is not asked for again: the first attempt may have been carried out",
        ),
        ("answers: off", ("GET", "/a/x"), None),
        ("strategy: none", ("GET", "/a/x"), None),
        ("mode: observe", ("GET", "/a/x"), None),
        (
            "answers: off, resume: {wait: 10s}",
            ("GET", "/a/x"),
            "later it goes on where it broke if it has a strong ETag and a length, within 10s",
        ),
        (
            "answers: off, dialects: [openai], streams: {unfinished: event}",
            ("POST", "/a/x"),
            "a stream without the last event of openai gets the provider's own error event",
        ),
    ],
)
def test_an_answer_that_breaks(tmp_path: Path, capsys, upstream: str, call: tuple[str, str], said: str | None) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "r.yaml"
    file.write_text(f'upstreams:\n  a: {{url: "http://a.example"{upstream and ", "}{upstream}}}\n')
    assert main(["explain", "-c", str(file), *call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["applies"].get("if it breaks") == said


def test_a_wait_of_a_microsecond_is_printed_as_none() -> None:
    """So late the alarm of a waiter rings that has to ask again (`proxy.retry.budgets.token_bucket.STEP`)."""
    assert between(STEP, 2.0) == "0s to 2s"
    assert between(0.00025, 0.1) == "0.25ms to 100ms"


def test_a_key_from_a_file_is_named_with_what_a_401_leads_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, file = tmp_path / "key", tmp_path / "r.yaml"
    key.write_text("s3cr3t\n")
    keys = "credentials: {header: x-key, values: [{file: key}, plain], pick: first}"
    file.write_text(f'upstreams:\n  a: {{url: "http://a.example", {keys}}}\n')

    def ask(*more: str) -> str:
        assert main(["explain", "-c", str(file), "--status", "401", "POST", "/a/x", *more]) == 0
        return capsys.readouterr().out

    shown = ask()
    assert f"2 keys in x-key, the first that may be used; key 1 from the file {key}\n" in shown
    again = f"made once more if {key} has another key by then"
    assert again in shown and "s3cr3t" not in shown
    assert again not in ask("-H", "X-Retry-Disable: true")
    key.unlink()  # this process has read it
    assert f"from the file {key} (which can't be read now: the value before it is used)" in ask()
