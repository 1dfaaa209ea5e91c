from __future__ import annotations

import gzip
import json
import sys
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.two_runs import examples

from proxy.retry.answers.classification import (
    NEEDS_BODY,
    SERVICE_CONFIG,
    SUCCESS,
    classify,
    classify_fault,
    is_plain_end,
    is_plain_success,
    may_look_into,
)
from proxy.retry.answers.content_coding import DECODED
from proxy.retry.answers.rules import ReplyEvidence, Ruleset, SingleRule
from proxy.retry.facts import (
    GRPC_STATUS_NUMBERS,
    Class,
    Fault,
    FaultKind,
    MappingFields,
    NoFields,
    Progress,
    Reply,
    Request,
    Verdict,
)
from proxy.retry.policies.dialect import BodyDelay, Classify, Dialect, Repeats, Rule
from proxy.transport.faults import attempt_timeout, closed, first_byte_timeout, idle_timeout

UNAVAILABLE = GRPC_STATUS_NUMBERS["UNAVAILABLE"]
ABORTED = GRPC_STATUS_NUMBERS["ABORTED"]
NOT_FOUND = GRPC_STATUS_NUMBERS["NOT_FOUND"]
RESOURCE_EXHAUSTED = GRPC_STATUS_NUMBERS["RESOURCE_EXHAUSTED"]

HTTP = Dialect("http")
GRPC = Dialect("grpc", grpc=True)
STATUSES = {
    **dict.fromkeys((425, 500, 502, 503), Class.TRANSIENT),
    429: Class.THROTTLING,
    **dict.fromkeys((408, 504), Class.TIMEOUT),
}
FAULTS = {
    FaultKind.CONNECT_FAILURE: Class.TRANSIENT,
    FaultKind.REFUSED_STREAM: Class.TRANSIENT,
    FaultKind.RESET: Class.TRANSIENT,
    FaultKind.ATTEMPT_TIMEOUT: Class.TIMEOUT,
}
GET = Request("GET", "h", "/")
RPC = Request("POST", "h", "/s/m", MappingFields([("content-type", "application/grpc+proto")]))


def rules(**keywords: Any) -> Classify:
    return Classify(**{"statuses": STATUSES, "faults": FAULTS, "dialects": (HTTP,)} | keywords)


def reply(status: int, *pairs: tuple[str, str], trailers: list[tuple[str, str]] | None = None) -> Reply:
    return Reply(status, MappingFields(list(pairs)), trailers=MappingFields(trailers) if trailers else None)


def of(
    classify_by: Classify,
    status: int,
    *pairs: tuple[str, str],
    body: bytes | None = b"",
    request: Request = GET,
    trailers: list[tuple[str, str]] | None = None,
) -> Verdict:
    verdict = classify(classify_by, request, reply(status, *pairs, trailers=trailers), body)
    assert isinstance(verdict, Verdict)
    return verdict


# -- lists ----------


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        *((status, Class.TRANSIENT) for status in (425, 500, 502, 503)),
        *((status, Class.TIMEOUT) for status in (408, 504)),
        (429, Class.THROTTLING),
        *((status, Class.UNNAMED) for status in (400, 401, 404, 409, 501, 505, 511, 520)),
        *((status, Class.SUCCESS) for status in (101, 200, 204, 301, 304)),
    ],
)
def test_statuses(status: int, cls: Class) -> None:
    assert of(rules(), status).cls is cls


def test_a_success_is_one_shared_value() -> None:
    assert classify(rules(), GET, reply(200), None) is SUCCESS
    assert classify(rules(dialects=(HTTP, GRPC)), RPC, reply(200, ("grpc-status", "0")), None) is SUCCESS


def test_a_list_may_name_what_is_below_400() -> None:
    assert of(rules(statuses={202: Class.TRANSIENT}), 202).cls is Class.TRANSIENT


def test_grpc_names_in_lists_need_no_dialect() -> None:
    lists = rules(grpc={RESOURCE_EXHAUSTED: Class.THROTTLING, ABORTED: Class.TRANSIENT})
    assert of(lists, 200, ("grpc-status", "8")).cls is Class.THROTTLING
    assert of(lists, 200, trailers=[("grpc-status", "10")]).cls is Class.TRANSIENT
    assert of(lists, 200, ("grpc-status", "5")).cls is Class.UNNAMED
    assert of(lists, 503, ("grpc-status", "8")).cls is Class.THROTTLING  # named twice: the stronger class
    assert of(lists, 504, ("grpc-status", "10")).cls is Class.TIMEOUT
    for unreadable in ("nonsense", "-1", "17", "", "9" * 5000):
        assert of(lists, 200, ("grpc-status", unreadable)).cls is Class.UNNAMED


@pytest.mark.parametrize(("kind", "cls"), FAULTS.items())
def test_faults(kind: FaultKind, cls: Class) -> None:
    assert classify_fault(rules(), GET, Fault(kind, Progress.UNKNOWN)).cls is cls
    assert classify_fault(rules(faults={}), GET, Fault(kind, Progress.UNKNOWN)).cls is Class.UNNAMED


def test_it_says_why() -> None:
    assert of(rules(), 503).because == "transient: 503"
    assert of(rules(rules=(Rule(Class.FATAL, "rule 1", frozenset({503})),)), 503).because == "rule 1"
    aws = Dialect("aws", rules=(Rule(Class.THROTTLING, "SlowDown", headers=(("x-amzn-errortype", "SlowDown"),)),))
    assert of(rules(dialects=(aws,)), 503, ("x-amzn-errortype", "SlowDown")).because == "dialect aws: SlowDown"
    assert of(rules(grpc={8: Class.THROTTLING}), 200, ("grpc-status", "8")).because == "throttling: RESOURCE_EXHAUSTED"


# -- rules ----------


def test_rules_come_before_dialects_before_lists_and_the_first_match_wins() -> None:
    dialects = (
        Dialect("one", rules=(Rule(Class.THROTTLING, "a", frozenset({503})),)),
        Dialect("two", rules=(Rule(Class.TIMEOUT, "b", frozenset({503, 502})),)),
    )
    by_dialect = rules(dialects=dialects)
    assert of(by_dialect, 503).cls is Class.THROTTLING
    assert of(by_dialect, 502).cls is Class.TIMEOUT
    assert of(by_dialect, 500).cls is Class.TRANSIENT
    by_rule = rules(
        dialects=dialects, rules=(Rule(Class.FATAL, "1", frozenset({503})), Rule(Class.SUCCESS, "2", frozenset({503})))
    )
    assert of(by_rule, 503).cls is Class.FATAL


@pytest.mark.parametrize(
    ("glob", "values", "matches"),
    [
        ("Throttling*", ["ThrottlingException"], True),
        ("Throttling*", ["throttlingexception"], False),
        ("Throttling*", ["Other", "Throttling"], True),
        ("*", [], False),
        ("*", [""], True),
        ("*", ["x"], True),
        ("[0-9]", ["7"], True),
        ("a?c", ["abc"], True),
        ("*#Slow", ["com.amazonaws#Slow"], True),
        ("Slow:*", ["Slow:http://internal.amazon.com/coral/"], True),
    ],
)
def test_headers_match_by_globs(glob: str, values: list[str], matches: bool) -> None:
    by_rule = rules(rules=(Rule(Class.THROTTLING, "1", headers=(("x-code", glob),)),))
    assert (of(by_rule, 400, *(("X-Code", value) for value in values)).cls is Class.THROTTLING) is matches


def test_all_parts_must_match() -> None:
    by_rule = rules(
        rules=(Rule(Class.THROTTLING, "1", frozenset({403}), headers=(("a", "1"), ("b", "2")), grpc=frozenset({7})),)
    )
    fields = ("a", "1"), ("b", "2"), ("grpc-status", "7")
    assert of(by_rule, 403, *fields).cls is Class.THROTTLING
    assert of(by_rule, 400, *fields).cls is Class.UNNAMED
    assert of(by_rule, 403, *fields[:2]).cls is Class.UNNAMED
    assert of(by_rule, 403, *fields[1:]).cls is Class.UNNAMED


def test_a_rule_may_name_a_success() -> None:
    by_rule = rules(rules=(Rule(Class.SUCCESS, "gone is fine", frozenset({410})),))
    assert of(by_rule, 410).cls is Class.SUCCESS
    by_rule = rules(rules=(Rule(Class.TRANSIENT, "not yet", frozenset({200}), headers=(("x-pending", "*"),)),))
    assert of(by_rule, 200, ("x-pending", "1")).cls is Class.TRANSIENT
    assert of(by_rule, 200).cls is Class.SUCCESS


def test_faults_match_rules_that_ask_for_nothing_of_an_answer() -> None:
    reset = Fault(FaultKind.RESET, Progress.UNKNOWN)
    by_kind = rules(rules=(Rule(Class.FATAL, "1", faults=frozenset({FaultKind.RESET})),))
    assert classify_fault(by_kind, GET, reset).cls is Class.FATAL
    assert of(by_kind, 503).cls is Class.TRANSIENT
    assert classify_fault(rules(rules=(Rule(Class.FATAL, "all"),)), GET, reset).cls is Class.FATAL
    for part in ({"statuses": frozenset({502})}, {"headers": (("a", "*"),)}, {"json": ((("a",), "*"),)}):
        by_answer = rules(rules=(Rule(Class.FATAL, "1", **part),))  # type: ignore[arg-type]
        assert classify_fault(by_answer, GET, reset).cls is Class.TRANSIENT


# -- bodies ----------


def body_rule(status: int = 400, **parts: Any) -> Classify:
    return rules(rules=(Rule(Class.THROTTLING, "1", frozenset({status}), **parts),))


RATE_LIMITED = body_rule(json=((("error", "code"), "rate_limited"),))


def test_a_body_is_asked_for_only_where_it_could_decide() -> None:
    assert classify(RATE_LIMITED, GET, reply(400), None) is NEEDS_BODY
    assert of(RATE_LIMITED, 500, body=None).cls is Class.TRANSIENT
    assert classify(RATE_LIMITED, GET, reply(400, ("content-encoding", "GZIP")), None) is NEEDS_BODY
    assert of(RATE_LIMITED, 400, ("content-encoding", "br"), body=None).cls is Class.UNNAMED
    assert of(RATE_LIMITED, 400, ("content-encoding", "gzip, gzip"), body=None).cls is Class.UNNAMED
    assert classify(RATE_LIMITED, GET, reply(400, ("content-encoding", "identity")), None) is NEEDS_BODY
    assert of(body_rule(200, xml=(("a", "*"),)), 200, body=None).cls is Class.SUCCESS
    bodiless = Reply(400, MappingFields([]), end=True)
    assert classify(RATE_LIMITED, GET, bodiless, None).cls is Class.UNNAMED  # type: ignore[union-attr]
    by_header_first = rules(
        rules=(Rule(Class.FATAL, "1", headers=(("x-fatal", "*"),)), *RATE_LIMITED.rules),
    )
    assert of(by_header_first, 400, ("x-fatal", "1"), body=None).cls is Class.FATAL


def test_gzip_and_deflate_are_undone_for_the_look_alone() -> None:
    said = b'{"error": {"code": "rate_limited"}}'
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    for coding, body in (
        ("gzip", gzip.compress(said)),
        ("x-gzip", gzip.compress(said)),
        ("deflate", zlib.compress(said)),
        ("deflate", bare.compress(said) + bare.flush()),
        ("identity", said),
    ):
        assert of(RATE_LIMITED, 400, ("content-encoding", coding), body=body).cls is Class.THROTTLING, coding
    assert of(RATE_LIMITED, 400, ("content-encoding", "gzip"), body=said).cls is Class.UNNAMED  # it is no gzip
    cut = gzip.compress(said + b" " * 50_000)[:-9]
    assert of(RATE_LIMITED, 400, ("content-encoding", "gzip"), body=cut).cls is Class.THROTTLING


def test_a_body_that_grows_without_end_is_looked_at_up_to_its_bound() -> None:
    bomb = gzip.compress(b" " * 50_000_000 + b'{"error": {"code": "rate_limited"}}')
    assert len(bomb) < 64 * 1024
    evidence = ReplyEvidence(reply(400, ("content-encoding", "gzip")), bomb)
    assert len(evidence.body or b"") == DECODED


@pytest.mark.parametrize(
    ("body", "matches"),
    [
        ({"error": {"code": "rate_limited"}}, True),
        ({"error": {"code": "other"}}, False),
        ({"error": "rate_limited"}, False),
        ({"errors": {"code": "rate_limited"}}, False),
        ([{"error": {"code": "x"}}, {"error": {"code": "rate_limited"}}], True),
        ({"error": [{"code": "x"}, {"code": "rate_limited"}]}, True),
        ({}, False),
        (None, False),
    ],
)
def test_json_paths(body: object, matches: bool) -> None:
    assert (of(RATE_LIMITED, 400, body=json.dumps(body).encode()).cls is Class.THROTTLING) is matches


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"error": {"code": "rate_li', b"[" * 60_000, b"1" * 9000])
def test_what_is_no_json_matches_nothing(body: bytes) -> None:
    assert of(RATE_LIMITED, 400, body=body).cls is Class.UNNAMED


@pytest.mark.parametrize("depth", range(100, 1000, 100))
def test_deep_lists_raise_nothing(depth: int) -> None:
    assert of(RATE_LIMITED, 400, body=b"[" * depth + b"]" * depth).cls is Class.UNNAMED


@pytest.mark.parametrize(
    ("path", "glob", "value", "matches"),
    [
        (("code",), "429", 429, True),
        (("code",), "4*", 429, True),
        (("code",), "1.50", 1.5, False),
        (("code",), "true", True, True),
        (("code",), "null", None, True),
        (("code",), "*", None, True),
        (("code",), "*", {"a": 1}, True),
        (("code",), "?*", {"a": 1}, False),
        (("code", "1"), "b", ["a", "b"], True),
        (("code", "2"), "b", ["a", "b"], False),
        (("code", "00000000001"), "b", ["a", "b"], False),
    ],
)
def test_json_values(path: tuple[str, ...], glob: str, value: object, matches: bool) -> None:
    body = json.dumps({"code": value}).encode()
    assert (of(body_rule(json=((path, glob),)), 400, body=body).cls is Class.THROTTLING) is matches


@pytest.mark.parametrize(
    ("body", "matches"),
    [
        (b"<Error><Code>SlowDown</Code></Error>", True),
        (b'<?xml version="1.0"?><e:Error xmlns:e="x"><e:Code a="b">\n SlowDown </e:Code></e:Error>', True),
        (b"<Error><Code>Other</Code></Error>", False),
        (b"<Errors><Code>Other</Code><Code>SlowDown</Code></Errors>", True),
        (b"<Error><CodeX>SlowDown</CodeX></Error>", False),
        (b"<Error><Code>Slow&#68;own</Code></Error>", True),
        (b"<Error><Code/></Error>", False),
        (b"<Code>SlowDown", False),
        (b"\xff\xfe\x00", False),
    ],
)
def test_xml_elements(body: bytes, matches: bool) -> None:
    assert (of(body_rule(503, xml=(("Code", "SlowDown"),)), 503, body=body).cls is Class.THROTTLING) is matches


def test_hostile_bodies_cost_little() -> None:
    by_both = body_rule(json=((("a",), "*b*c*d*"),), xml=(("Code", "*a*b*c*"),))
    bodies = [b"<Code " * 10_000, b"<a:" * 20_000, b"<Code>" * 10_000, b'{"a":"' + b"bc" * 30_000 + b'"}']
    for body in bodies:  # milliseconds; the square of 60,000 would hold up the whole run
        assert of(by_both, 400, body=body).cls is Class.UNNAMED


# -- packs of many values ----------

PACK = Dialect(
    "pack",
    tuple(
        rule
        for code in ("Slow", "Slower", "T*", "a.b#*")
        for rule in (
            Rule(Class.THROTTLING, code, headers=(("x-code", code),)),
            Rule(Class.THROTTLING, code, json=((("code",), code),)),
            Rule(Class.THROTTLING, code, xml=(("Code", code),)),
        )
    ),
)


@pytest.mark.parametrize("code", ["Slow", "Slower", "Throttled", "a.b#c"])
def test_a_pack_is_asked_header_first(code: str) -> None:
    by_pack = rules(dialects=(PACK,))
    assert of(by_pack, 400, ("x-code", code), body=None).cls is Class.THROTTLING  # no peek: the header decides
    assert classify(by_pack, GET, reply(400, ("x-code", "Other")), None) is NEEDS_BODY
    assert of(by_pack, 400, body=json.dumps({"code": code}).encode()).cls is Class.THROTTLING
    assert of(by_pack, 400, body=f"<Code>{code}</Code>".encode()).cls is Class.THROTTLING
    assert of(by_pack, 400, body=b'{"code": "slow"}').cls is Class.UNNAMED


def test_a_pack_says_which_value_it_was() -> None:
    assert of(rules(dialects=(PACK,)), 400, ("x-code", "Tired")).because == "dialect pack: T*"
    assert of(rules(dialects=(PACK,)), 400, ("x-code", "Slow")).because == "dialect pack: Slow"


# -- gRPC ----------


def test_the_grpc_dialect() -> None:
    by_grpc = rules(dialects=(HTTP, GRPC))
    for status in (502, 503, 504):
        verdict = of(by_grpc, status, request=RPC)
        assert (verdict.cls, verdict.unprocessed) == (Class.TRANSIENT, False)  # made up: proves nothing
    assert of(by_grpc, 504, request=GET).cls is Class.TIMEOUT  # not a gRPC call: the lists
    assert of(by_grpc, 429, request=RPC).cls is Class.THROTTLING
    assert of(by_grpc, 500, request=RPC).cls is Class.TRANSIENT  # the lists
    own = of(by_grpc, 200, ("grpc-status", "14"), request=RPC)
    assert (own.cls, own.unprocessed) == (Class.TRANSIENT, True)
    for kind in (FaultKind.CONNECT_FAILURE, FaultKind.REFUSED_STREAM, FaultKind.RESET):
        assert classify_fault(rules(dialects=(GRPC,), faults={}), RPC, Fault(kind, Progress.UNKNOWN)).cls is (
            Class.TRANSIENT
        )
    assert classify_fault(by_grpc, RPC, Fault(FaultKind.ATTEMPT_TIMEOUT, Progress.UNKNOWN)).cls is Class.TIMEOUT


def test_a_grpc_status_beats_the_http_status() -> None:
    by_grpc = rules(dialects=(GRPC,), grpc={ABORTED: Class.TRANSIENT})
    assert of(by_grpc, 503, ("grpc-status", "5"), request=RPC).cls is Class.UNNAMED
    assert of(by_grpc, 429, ("grpc-status", "14"), request=RPC).cls is Class.TRANSIENT
    assert of(by_grpc, 404, ("grpc-status", "10"), request=RPC).cls is Class.TRANSIENT
    assert of(by_grpc, 503, ("grpc-status", "0"), request=RPC).cls is Class.UNNAMED  # no success above 400 either


@pytest.mark.parametrize(
    ("media", "speaks"),
    [
        ("application/grpc", True),
        ("application/grpc+json", True),
        ("Application/GRPC; charset=x", True),
        ("application/grpc-web", False),
        ("application/json", False),
    ],
)
def test_who_speaks_grpc(media: str, speaks: bool) -> None:
    request = Request("POST", "h", "/s/m", MappingFields([("content-type", media)]))
    assert (of(rules(dialects=(GRPC,), statuses={}), 503, request=request).cls is Class.TRANSIENT) is speaks


def test_service_codes_take_the_place_of_lists_and_of_the_grpc_dialects_class() -> None:
    only_aborted = rules(dialects=(HTTP, GRPC), service_codes=frozenset({ABORTED}))
    assert of(only_aborted, 200, ("grpc-status", "10"), request=RPC).cls is Class.TRANSIENT
    assert of(only_aborted, 200, ("grpc-status", "14"), request=RPC).cls is Class.UNNAMED
    assert of(only_aborted, 503, request=RPC).cls is Class.UNNAMED
    assert of(only_aborted, 500, request=RPC).cls is Class.UNNAMED
    assert of(only_aborted, 429, request=RPC).cls is Class.UNNAMED
    assert classify_fault(only_aborted, RPC, Fault(FaultKind.RESET, Progress.UNKNOWN)).cls is Class.UNNAMED
    assert of(only_aborted, 200, request=RPC) is SUCCESS


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (8, "CANCELLED"),
        (11, "RESOURCE_EXHAUSTED"),
        (12, "PERMISSION_DENIED"),
        (0, "INTERNAL"),
        (2, "INTERNAL"),
        (99, "INTERNAL"),
    ],
)
def test_a_stream_reset_with_a_code_stands_for_its_status(code: int, status: str) -> None:
    reset = Fault(FaultKind.RESET, Progress.UNKNOWN, code=code)
    number = GRPC_STATUS_NUMBERS[status]
    named = rules(dialects=(GRPC,), faults={}, grpc={number: Class.TRANSIENT})
    dialect = rules(dialects=(GRPC,), faults={})
    assert classify_fault(dialect, RPC, reset).cls is Class.UNNAMED  # not UNAVAILABLE
    assert classify_fault(named, RPC, reset).cls is Class.TRANSIENT
    assert classify_fault(rules(dialects=(GRPC,), grpc={number: Class.THROTTLING}), RPC, reset).cls is Class.THROTTLING
    assert classify_fault(named, GET, reset).cls is Class.UNNAMED
    assert classify_fault(rules(service_codes=frozenset({number})), RPC, reset).cls is Class.TRANSIENT
    assert classify_fault(rules(service_codes=frozenset({UNAVAILABLE})), RPC, reset).cls is Class.UNNAMED
    assert not classify_fault(named, RPC, reset).unprocessed


@pytest.mark.parametrize("dialects", [(HTTP,), (HTTP, GRPC)])
def test_service_codes_reach_http_and_faults_by_unavailable(dialects: tuple[Dialect, ...]) -> None:
    codes = rules(dialects=dialects, service_codes=frozenset({UNAVAILABLE}))
    made_up = of(codes, 503, request=RPC)
    assert (made_up.cls, made_up.unprocessed) == (Class.TRANSIENT, True)  # made up, but the service config names it
    reset = classify_fault(codes, RPC, Fault(FaultKind.RESET, Progress.UNKNOWN))
    assert (reset.cls, reset.unprocessed) == (Class.TRANSIENT, True)
    assert of(codes, 429, request=RPC).cls is Class.THROTTLING
    assert of(codes, 500, request=RPC).cls is Class.UNNAMED
    timeout = Fault(FaultKind.ATTEMPT_TIMEOUT, Progress.UNKNOWN)
    assert classify_fault(codes, RPC, timeout).cls is Class.UNNAMED
    retried = classify_fault(rules(service_codes=frozenset(), service_retries=True), RPC, timeout)
    assert (retried.cls, retried.unprocessed, retried.repeated_by) == (Class.TIMEOUT, False, "")


def test_the_service_config_speaks_for_the_attempts_that_its_own_time_ended() -> None:
    timed = rules(service_codes=frozenset(), service_retries=True, service_timeout=True)
    silent = classify_fault(timed, RPC, attempt_timeout())
    assert (silent.cls, silent.unprocessed, silent.repeated_by) == (Class.TIMEOUT, False, SERVICE_CONFIG)
    for other in (first_byte_timeout(answered=False), first_byte_timeout(answered=True), idle_timeout(answered=False)):
        assert classify_fault(timed, RPC, other).repeated_by == ""  # other limits, of which the config says nothing
    reset = classify_fault(timed, RPC, Fault(FaultKind.RESET, Progress.UNKNOWN))
    assert (reset.cls, reset.repeated_by) == (Class.UNNAMED, "")
    fatal = rules(rules=(Rule(Class.FATAL, "1"),), service_codes=frozenset(), service_timeout=True)
    assert classify_fault(fatal, RPC, attempt_timeout()).repeated_by == ""


def test_rules_come_before_service_codes() -> None:
    by_rule = rules(service_codes=frozenset({UNAVAILABLE}), rules=(Rule(Class.FATAL, "1", grpc=frozenset({14})),))
    assert of(by_rule, 200, ("grpc-status", "14"), request=RPC).cls is Class.FATAL
    assert of(by_rule, 503, request=RPC).cls is Class.FATAL  # it counts as UNAVAILABLE


# -- what proves that the upstream did nothing ----------


def test_unprocessed() -> None:
    assert of(rules(), 429).unprocessed
    assert of(rules(rules=(Rule(Class.THROTTLING, "1", frozenset({503})),)), 503).unprocessed
    assert not of(rules(), 503).unprocessed
    assert not of(rules(), 408).unprocessed
    assert not of(rules(), 503, ("retry-after", "1"), ("x-should-retry", "true")).unprocessed


def test_too_early_proves_it_unless_the_app_sent_early_data() -> None:
    early = Request("POST", "h", "/", MappingFields([("early-data", "1")]))
    assert of(rules(), 425).unprocessed
    assert not of(rules(), 425, request=early).unprocessed


def test_a_named_grpc_status_of_the_upstreams_own_proves_it() -> None:
    named = rules(grpc={ABORTED: Class.TRANSIENT})
    assert of(named, 200, ("grpc-status", "10")).unprocessed
    assert of(named, 504, ("grpc-status", "10")).unprocessed
    assert not of(named, 200, ("grpc-status", "13")).unprocessed
    by_rule = rules(rules=(Rule(Class.TRANSIENT, "1", grpc=frozenset({NOT_FOUND})),))
    assert of(by_rule, 200, ("grpc-status", "5")).unprocessed
    by_status = rules(rules=(Rule(Class.TRANSIENT, "1", frozenset({200}), headers=(("grpc-status", "5"),)),))
    assert not of(by_status, 200, ("grpc-status", "5")).unprocessed  # names the field, not the status


@pytest.mark.parametrize(
    ("kind", "progress", "proves"),
    [
        (FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT, True),
        (FaultKind.REFUSED_STREAM, Progress.REFUSED, True),
        (FaultKind.RESET, Progress.UNKNOWN, False),
        (FaultKind.RESET, Progress.ANSWERED, False),
        (FaultKind.ATTEMPT_TIMEOUT, Progress.UNKNOWN, False),
    ],
)
def test_faults_prove_it_by_their_progress(kind: FaultKind, progress: Progress, proves: bool) -> None:
    assert classify_fault(rules(), GET, Fault(kind, progress)).unprocessed is proves
    assert classify_fault(rules(dialects=(GRPC,)), RPC, Fault(kind, progress)).unprocessed is proves


# -- whatever comes ----------

globs = st.sampled_from(["*", "a*", "?", "[a-z]", "[", "Throttling*"])
some_rules = st.builds(
    Rule,
    st.sampled_from([Class.TRANSIENT, Class.THROTTLING, Class.TIMEOUT, Class.SUCCESS, Class.FATAL]),
    st.just("rule"),
    st.none() | st.frozensets(st.sampled_from([200, 400, 429, 503])),
    st.lists(st.tuples(st.sampled_from(["a", "grpc-status"]), globs), max_size=2).map(tuple),
    st.lists(st.tuples(st.sampled_from([("a",), ("a", "b"), ("0",)]), globs), max_size=1).map(tuple),
    st.lists(st.tuples(st.sampled_from(["a", "b"]), globs), max_size=1).map(tuple),
    st.none() | st.frozensets(st.integers(0, 16)),
    st.none() | st.frozensets(st.sampled_from(FaultKind)),
)
single_parts = st.builds(
    lambda as_, statuses, part: Rule(as_, "rule", statuses, **part),
    st.sampled_from([Class.TRANSIENT, Class.FATAL]),
    st.sampled_from([None, frozenset({400, 503})]),
    st.one_of(
        globs.map(lambda glob: {"headers": (("a", glob),)}),
        globs.map(lambda glob: {"json": ((("a",), glob),)}),
        globs.map(lambda glob: {"xml": (("a", glob),)}),
    ),
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


@settings(max_examples=examples(200))
@given(
    st.lists(some_rules, max_size=4).map(tuple),
    st.lists(some_rules | single_parts, max_size=8).map(tuple),
    st.booleans(),
    st.none() | st.frozensets(st.integers(0, 16)),
    st.sampled_from([100, 200, 302, 400, 425, 429, 503, 504, 999]),
    st.lists(st.tuples(st.sampled_from(["a", "grpc-status", "content-encoding"]), st.text(max_size=6)), max_size=4),
    st.binary(max_size=40) | documents.map(lambda document: json.dumps(document).encode()),
    st.sampled_from([GET, RPC]),
)
def test_every_answer_gets_one_class_and_the_fast_way_agrees_with_the_slow(
    user: tuple[Rule, ...],
    pack: tuple[Rule, ...],
    grpc: bool,
    codes: frozenset[int] | None,
    status: int,
    pairs: list[tuple[str, str]],
    body: bytes,
    request: Request,
) -> None:
    by = rules(rules=user, dialects=(Dialect("pack", pack, grpc=grpc),), service_codes=codes)
    verdict = classify(by, request, reply(status, *pairs), body)
    assert isinstance(verdict, Verdict)
    peeked = classify(by, request, reply(status, *pairs), None)
    assert peeked == verdict or peeked is NEEDS_BODY
    looks = any(rule.looks_into_success for rule in (*user, *pack))
    assert peeked is not NEEDS_BODY or status >= 400 or looks
    object.__setattr__(by, "plain_below_400", False)
    assert classify(by, request, reply(status, *pairs), body) == verdict
    assert peeked is not NEEDS_BODY or status >= 400 or may_look_into(by, status, MappingFields(pairs))
    one_by_one = Ruleset(by)
    one_by_one.steps = (*(("", SingleRule(rule)) for rule in user), *(("pack", SingleRule(rule)) for rule in pack))
    object.__setattr__(by, "ruleset", one_by_one)
    slow = classify(by, request, reply(status, *pairs), body)
    assert isinstance(slow, Verdict)
    assert (slow.cls, slow.unprocessed) == (verdict.cls, verdict.unprocessed)
    for kind in FaultKind:
        assert isinstance(classify_fault(by, request, Fault(kind, Progress.UNKNOWN)), Verdict)


PACKS = (
    rules(),
    rules(dialects=()),
    rules(dialects=(HTTP, GRPC)),
    rules(statuses={425: Class.TRANSIENT, 404: Class.TIMEOUT}),
    rules(rules=(Rule(Class.FATAL, "rule 1", statuses=frozenset({503})),)),
    rules(service_codes=frozenset({UNAVAILABLE})),
)


@pytest.mark.parametrize("pack", range(len(PACKS)))
def test_an_answer_that_says_nothing_is_classed_as_any_other(pack: int) -> None:
    early = Request("GET", "h", "/", MappingFields([("early-data", "1")]))
    for _ in range(2):  # what is known by then is the same
        for request in (GET, early, RPC, Request("POST", "h", "/")):
            for status in range(200, 600):
                fields = MappingFields([("server", "x")])
                full, plain = Reply(status, fields), Reply(status, fields, plain=True)
                assert classify(PACKS[pack], request, plain, b"") == classify(PACKS[pack], request, full, b"")


def test_lists_within_lists_cost_in_proportion_to_the_body() -> None:
    document: object = [{"a": 1}] * 500
    for _ in range(300):
        document = [document]
    evidence = ReplyEvidence(reply(400), json.dumps(document).encode())
    entered = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(count)
    try:
        values = evidence.json(("a",))
    finally:
        sys.setprofile(None)
    assert values == ["1"] * 500
    assert entered < 3000


@pytest.mark.parametrize("said", [(), ("0",), ("0", "0"), ("00",), ("",), ("2",), ("14",), ("x",)])
@pytest.mark.parametrize(
    "rules",
    [
        Classify(),
        Classify(dialects=(GRPC,)),
        Classify(grpc={14: Class.TRANSIENT}),
        Classify(grpc={0: Class.TRANSIENT}),
        Classify(service_codes=frozenset({0, 14})),
    ],
)
def test_trailers_that_need_no_deciding_are_a_success(rules: Classify, said: tuple[str, ...]) -> None:
    trailers = MappingFields([("grpc-status", value) for value in said])
    if said and is_plain_success(rules, 200, NoFields()) and is_plain_end(rules, trailers):
        whole = Reply(200, trailers, end=True, trailers=trailers)
        assert classify(rules, Request("POST", "a", "/"), whole, b"") is SUCCESS
    plain = not said or (said == ("0",) and 0 not in rules.grpc and not rules.service_codes)
    assert is_plain_end(rules, trailers) == plain


def test_a_repeated_fault_is_called_by_its_kind() -> None:
    pack = Dialect("openai", repeats=Repeats("a client", faults=frozenset({FaultKind.RESET})))
    rules = Classify(dialects=(pack,), own_dialects=True, unsafe_methods="provider")
    verdict = classify_fault(rules, GET, closed(sent=True, answered=False, reused=False))
    assert (verdict.cls, verdict.because) == (Class.TRANSIENT, "dialect openai: its client repeats reset")


def test_an_answer_is_held_for_a_rule_that_names_a_grpc_status_and_a_body() -> None:
    rule = Rule(Class.TRANSIENT, "rule", frozenset({200}), json=((("a",), "*"),), grpc=frozenset({2}))
    by, fields = rules(rules=(rule,)), MappingFields([("grpc-status", "2")])
    assert classify(by, GET, Reply(200, fields), None) is NEEDS_BODY
    assert may_look_into(by, 200, fields)


DELAYS = Classify(statuses=STATUSES, dialects=(Dialect("d", delays=(BodyDelay(("delay",), "seconds"),)),))


@pytest.mark.parametrize(
    ("reply", "is_asked_for"),
    [
        (Reply(429, NoFields()), True),
        (Reply(429, NoFields(), end=True), False),
        (Reply(429, MappingFields([("content-encoding", "br")])), False),
        (Reply(400, NoFields()), False),
        (Reply(200, NoFields()), False),
    ],
    ids=["throttled", "without a body", "unreadable", "not retried", "well"],
)
def test_a_body_that_may_name_a_delay_is_asked_for_once(reply: Reply, is_asked_for: bool) -> None:
    assert (classify(DELAYS, GET, reply, None) is NEEDS_BODY) == is_asked_for
    assert classify(DELAYS, GET, reply, b"") is not NEEDS_BODY
