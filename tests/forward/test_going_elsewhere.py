"""Calls that go on at another upstream, on the wire: what is sent there, what comes back, and what is told of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from support.front import FAST, NONE, STANDARD, App, Front, chunked, endpoint, policy, request, to
from support.scripted import Step, Upstream, answer, hang, reset

from proxy.config.settings import Buffers
from proxy.observe.compiled import call_json
from proxy.retry.facts import Outcome
from proxy.retry.policies import routing
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec
from proxy.retry.policies.policy import (
    Backoff,
    Fallback,
    HeaderEdits,
    IdempotencyKey,
    PushbackPolicy,
    Strategy,
    Timeouts,
)
from proxy.retry.policies.routing import Match, Route

BUSY = answer(503, b"busy")
TWICE = Strategy("standard", "standard", 2, FAST, QuotaSpec())


class Several(AsyncExitStack):
    """Upstreams a, b, … with these steps, and the proxy in front of them. `policies` are by name."""

    def __init__(
        self, *steps: tuple[Step, ...], policies: dict[str, dict[str, Any]] | None = None, path: str = "", **front: Any
    ) -> None:
        super().__init__()
        self._steps, self._policies, self._path, self._settings = steps, policies or {}, path, front
        self.upstreams: list[Upstream] = []

    async def __aenter__(self) -> Several:
        await super().__aenter__()
        made = []
        for name, steps in zip("abcd", self._steps, strict=False):
            upstream = await self.enter_async_context(Upstream(*steps))
            self.upstreams.append(upstream)
            changes = {"strategy": NONE, "bucket": None, **self._policies.get(name, {})}
            made.append(to(name, upstream.url + (self._path if name != "a" else ""), **changes))
        self.front = await self.enter_async_context(Front(*made, **self._settings))
        self.app: App = await self.enter_async_context(self.front.app())
        return self

    @property
    def sent(self) -> list[list[str | None]]:
        """The attempt counts that each upstream saw."""
        return [[each.one("x-attempt-count") for each in upstream.requests] for upstream in self.upstreams]

    @property
    def observed(self) -> Any:
        return self.front.observed


def falls(*entries: str | Fallback, **changes: Any) -> dict[str, dict[str, Any]]:
    """The policy of the first upstream."""
    return {"a": {"fallback": tuple(Fallback(e) if isinstance(e, str) else e for e in entries), **changes}}


#: Repeats every method.
ALWAYS: dict[str, Any] = {"classify": replace(policy().classify, unsafe_methods="always")}


def always(*entries: str | Fallback, **changes: Any) -> dict[str, dict[str, Any]]:
    """The same of one that repeats every method."""
    return falls(*entries, **ALWAYS, **changes)


async def test_a_chain_of_three() -> None:
    policies = falls("b", "c", strategy=TWICE) | {"b": {"strategy": TWICE}}
    async with Several((BUSY,), (BUSY, answer(500)), (answer(200, b"x", "X-From: c"),), policies=policies) as three:
        reply = await three.app.ask("GET", "/a/v1/x?q=1")
        assert (reply.status, reply.body, reply.one("x-from")) == (200, b"x", "c")
        assert three.sent == [["1", "2"], ["3", "4"], ["5"]]
        assert reply.one("x-attempt-count") == "5"
        told = "a attempt 1: 503, a attempt 2: 503, b attempt 3: 503, b attempt 4: 500, c attempt 5: 200"
        status = f'redrive; received-status=200; attempts=5; outcome=success; details="{told}"'
        assert reply.one("proxy-status") == status
        (call,) = await three.observed.until(1)
        assert (call["upstream"], call["outcome"], call["attempts"]) == ("a", Outcome.SUCCESS, 5)
        assert [(each.upstream, each.decision) for each in call["history"]] == [
            *(("a", "retried"), ("a", "fell back"), ("b", "retried"), ("b", "fell back"), ("c", "delivered")),
        ]


async def test_host_and_path_are_the_next_ones_as_by_prefix() -> None:
    async with Several((BUSY,), (answer(200),), policies=falls("b"), path="/base") as two:
        b = f"127.0.0.1:{two.upstreams[1].port}"
        await two.app.ask("GET", "/a/v1/x?q=1")
        await two.app.ask("GET", "/a")
        assert [(each.target, each.one("host")) for each in two.upstreams[1].requests] == [
            ("/base/v1/x?q=1", b),
            ("/base/", b),
        ]


async def test_by_host_the_whole_path_goes_behind_the_url() -> None:
    async with Upstream(BUSY) as a, Upstream(answer(200)) as b:
        first = to("a", a.url, hosts=["api.test"], fallback=(Fallback("b"),), strategy=NONE)
        async with Front(first, to("b", b.url + "/base")) as front, front.app() as app:
            assert (await app.ask("GET", "http://api.test/v1//x", "Host: api.test")).status == 200
            assert (await app.ask("GET", "/v1/%2e/y", "Host: api.test")).status == 200
            climbing = await app.ask("GET", "/v1/../../y", "Host: api.test")
            assert climbing.status == 503
            assert [each.target for each in b.requests] == ["/base/v1//x", "/base/v1/%2e/y"]
            assert [each.one("host") for each in b.requests] == [f"127.0.0.1:{b.port}"] * 2


async def test_routes_and_policy_are_the_next_ones() -> None:
    async with Upstream(BUSY) as a, Upstream(BUSY, answer(200)) as b:
        second = to("b", b.url, request_headers=HeaderEdits(set=(("X-Key", "b's own"),)))
        routed = policy("b", second.target, route="r", strategy=TWICE, request_headers=second.policy.request_headers)
        match = Match(paths=("/v1/x",), headers=(("x-tier", "gold"),))
        second = routing.Upstream(**{**vars(second), "routes": (Route(match, routed),)})
        first = to("a", a.url, fallback=(Fallback("b"),), strategy=NONE)
        async with Front(first, second) as front, front.app() as app:
            reply = await app.ask("GET", "/a/v1/x", "X-Tier: gold", "X-Key: a's own")
            assert reply.status == 200
            assert [each.one("x-key") for each in b.requests] == ["b's own", "b's own"]
            (call,) = await front.observed.until(1)
            assert [(each.upstream, each.route) for each in call["history"]] == [("a", ""), ("b", "r"), ("b", "r")]


SECRETS = (
    *("Authorization: Bearer a", "Cookie: a=b", "api-key: a", "X-Api-Key: a", "x-goog-api-key: a"),
    *("X-Amz-Security-Token: a", "X-My-Auth: a", "X-Session: a", "X-Secret-Thing: a", "X-Password: a"),
    *("Signature: a", "Signature-Input: a", "X-Jwt: a", "X-Bearer: a", "X-Credential: a", "X-Pwd: a", "X-Passwd: a"),
    *("X-Passphrase: a", "DPoP: a", "Client-Cert: a", "X-Forwarded-Client-Cert: a", "Cookie2: a", "X-Csrf-Token: a"),
    *("Referer: http://a.test/?key=a", "X-Acme-Grant: s3cr3t", "Baggage: user=a"),
)


async def test_credentials_of_the_first_stay_behind() -> None:
    async with Several((BUSY,), (answer(200),), policies=falls("b")) as two:
        plain = ("Accept: text/plain", "Idempotency-Key: k", "X-Trace: 1", "X-Tenant-Id: acme")
        came = "/v1;jsessionid=6/x?key=1&a=2&sig=3&code=4&X-Token=5&b=sk-7&sk-8"
        await two.app.ask("GET", f"/a{came}", *SECRETS, *plain)
        (first,), (second,) = (each.requests for each in two.upstreams)
        assert [first.one(line.split(":")[0]) for line in SECRETS] == [line.split(": ")[1] for line in SECRETS]
        names = {name.lower() for name, _ in second.fields}
        assert names == {"host", "accept", "idempotency-key", "x-trace", "x-tenant-id", "x-attempt-count", "via"}
        assert (first.target, second.target) == (came, "/v1/x?a=2")


async def test_what_another_upstream_needs_goes_along() -> None:
    needed = (
        *("Accept: application/json", "Accept-Encoding: gzip", "Accept-Language: de", "Content-Language: en"),
        *("Content-Type: application/json", "Content-Encoding: gzip", "User-Agent: an SDK/1.0", "Range: bytes=0-9"),
        *("If-None-Match: W/x", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        *("tracestate: a=b", "X-Request-Id: req_0123456789abcdef", "X-Stainless-Lang: python", "Via: 1.1 elsewhere"),
        *(
            "anthropic-version: 2023-06-01",
            "anthropic-beta: a-2025-01-01",
            "Cache-Control: no-cache",
            "X-Dry-Run: true",
        ),
    )
    async with Several((BUSY,), (answer(200),), policies=always("b")) as two:
        await two.app.ask("POST", "/a/v1", *needed, body=b"body")
        (second,) = two.upstreams[1].requests
        assert {line: second.all(line.split(":")[0])[:1] for line in needed} == {
            line: [line.split(": ")[1]] for line in needed
        }
        assert second.body == b"body"


async def test_a_path_that_climbs_without_its_parameters_stays() -> None:
    """`..;x=1` is a name like any other until its parameter is left out."""
    async with Several((BUSY,), (answer(200),), policies=falls("b"), path="/base") as two:
        reply = await two.app.ask("GET", "/a/..;x=1/admin")
        assert (reply.status, two.sent) == (503, [["1"], []])


async def test_what_the_entry_keeps_goes_along() -> None:
    entry = Fallback("b", keep=frozenset({"x-team-key", "code", "authorization"}))
    mine = {"a": {**falls(entry)["a"], "idempotency_key": IdempotencyKey("X-Once-Key")}}
    async with Several((BUSY,), (answer(200),), policies=mine) as two:
        fields = ("X-Team-Key: t", "Authorization: Bearer a", "X-Once-Key: o", "Cookie: c=1")
        await two.app.ask("GET", "/a/v1?key=1&code=4", *fields)
        (second,) = two.upstreams[1].requests
        assert [second.one(name) for name in ("x-team-key", "authorization", "x-once-key")] == ["t", "Bearer a", "o"]
        assert second.one("cookie") is None
        assert second.target == "/v1?code=4"


async def test_the_next_after_a_next_is_sent_the_request_as_it_came() -> None:
    entries = (Fallback("b", json=(("model", b'"b"'),)), Fallback("c", json=(("n", b"1"),), keep=frozenset({"x-key"})))
    async with Several((BUSY,), (BUSY,), (answer(200),), policies=always(*entries) | {"b": ALWAYS}) as three:
        body = b'{"model": "a"}'
        reply = await three.app.ask("POST", "/a/v1?key=1", "X-Key: k", body=body)
        assert reply.status == 200
        assert [each.requests[0].body for each in three.upstreams] == [
            *(body, b'{"model": "b"}', b'{"model": "a", "n": 1}')
        ]
        assert [each.requests[0].one("x-key") for each in three.upstreams] == ["k", None, "k"]


JSON = Fallback("b", json=(("model", b'"big-2"'), ("top", b"null")))


async def test_members_are_set_in_the_body_and_nothing_else() -> None:
    digests = (
        "Content-Digest: sha-256=:aa:",
        "Content-MD5: aa",
        "Digest: x",
        "x-amz-checksum-crc32: x",
        "Repr-Digest: x",
    )
    async with Several((BUSY,), (answer(200),), policies=always(JSON)) as two:
        body = b'{ "model":"small",\r\n "n": 1.50e3, "text": "\\u00e9" }'
        await two.app.ask("POST", "/a/v1", *digests, "Content-Type: application/json", body=body)
        first, second = (each.requests[0] for each in two.upstreams)
        assert first.body == body
        assert second.body == b'{ "model":"big-2",\r\n "n": 1.50e3, "text": "\\u00e9", "top": null }'
        assert second.one("content-length") == str(len(second.body))
        assert second.one("content-type") == "application/json"
        assert not [line for line in digests if second.one(line.split(":")[0])]
        assert first.one("content-md5") == "aa"


async def test_a_chunked_body_gets_a_length_but_keeps_its_trailers() -> None:
    async with Several((BUSY,), (answer(200),), policies=always(JSON)) as two:
        for trailers in (b"", b"X-Sum: 1\r\nX-Token: t\r\nContent-Digest: x\r\n"):
            head = request("POST", "/a/v1", "Transfer-Encoding: chunked", host=two.app.authority)
            two.app.send(head + chunked(b'{"mod', b'el": 1}', trailers=trailers))
            assert (await two.app.read()).status == 200
        plain, with_trailers = two.upstreams[1].requests
        assert plain.body == with_trailers.body == b'{"model": "big-2", "top": null}'
        assert (plain.one("content-length"), plain.one("transfer-encoding")) == (str(len(plain.body)), None)
        assert (with_trailers.one("content-length"), with_trailers.trailers) == (None, b"X-Sum: 1\r\n")


async def test_trailers_of_a_body_as_it_came_are_looked_at_too() -> None:
    policies = always("b", Fallback("c", keep=frozenset({"x-token"}))) | {"b": ALWAYS}
    async with Several((BUSY,), (BUSY,), (answer(200),), policies=policies) as three:
        head = request("POST", "/a/v1", "Transfer-Encoding: chunked", host=three.app.authority)
        three.app.send(head + chunked(b"body", trailers=b"X-Sum: 1\r\nX-Token: t\r\n"))
        assert (await three.app.read()).status == 200
        assert [each.requests[0].trailers for each in three.upstreams] == [
            *(b"X-Sum: 1\r\nX-Token: t\r\n", b"X-Sum: 1\r\n", b"X-Sum: 1\r\nX-Token: t\r\n"),
        ]


@pytest.mark.parametrize(
    ("fields", "body", "why"),
    [
        ((), b"[1]", "the body is JSON, but not an object"),
        ((), b'{"a": 1', "the body is not JSON"),
        ((), b'\xef\xbb\xbf{"a": 1}', "the body begins with a byte order mark"),
        (("Content-Encoding: gzip",), b'{"a": 1}', "its body is encoded"),
        ((), b"", "it has no body to set members in"),
    ],
)
async def test_an_entry_whose_members_can_not_be_set_is_skipped(fields: tuple[str, ...], body: bytes, why: str) -> None:
    async with Several((BUSY,), (answer(200),), (answer(200, b"c"),), policies=always(JSON, "c")) as three:
        reply = await three.app.ask("POST", "/a/v1", *fields, body=body)
        assert reply.body == b"c"
        assert [each.body for each in three.upstreams[2].requests] == [body]
        assert three.sent == [["1"], [], ["2"]]
        (call,) = await three.observed.until(1)
        assert [(each.to, each.skipped) for each in call["fallbacks"]] == [("b", why), ("c", "")]


async def test_where_no_entry_takes_it_the_answer_goes_to_the_app() -> None:
    async with Several((BUSY,), (answer(200),), policies=always(JSON)) as two:
        reply = await two.app.ask("POST", "/a/v1", body=b"[1]")
        assert (reply.status, reply.body) == (503, b"busy")
        assert two.sent == [["1"], []]


async def test_an_unsafe_call_that_may_have_been_carried_out_stays() -> None:
    async with Several((BUSY, answer(429)), (answer(200),), policies=falls("b")) as two:
        put = await two.app.ask("PUT", "/a/v1", "Idempotency-Key: k", body=b"x")
        assert put.status == 503
        throttled = await two.app.ask("PUT", "/a/v1", body=b"x")
        assert throttled.status == 200
        assert [each.body for each in two.upstreams[1].requests] == [b"x"]


async def test_its_cookies_do_not_come_back() -> None:
    cookies = ("Set-Cookie: a=1", "set-cookie: b=2", "X-Fine: 1")
    async with Several((BUSY, answer(200, b"a", *cookies)), (answer(200, b"b", *cookies),), policies=falls("b")) as two:
        elsewhere = await two.app.ask("GET", "/a/v1")
        assert (elsewhere.body, elsewhere.all("set-cookie"), elsewhere.one("x-fine")) == (b"b", [], "1")
        here = await two.app.ask("GET", "/a/v1")
        assert (here.body, here.all("set-cookie")) == (b"a", ["a=1", "b=2"])


async def test_the_last_answer_is_kept_until_another_attempt_is_sent() -> None:
    """The second upstream sends nothing, so the app gets the first one's answer, with the second one's no."""
    full = BucketRef(RateSpec(1.0, 1.0, "reject", initial=0))
    policies = falls("b", response_headers=HeaderEdits(set=(("X-Of", "a"),)))
    policies["b"] = {"rate": full, "response_headers": HeaderEdits(set=(("X-Of", "b"),))}
    busy = answer(503, b"busy", "Set-Cookie: a=1", "Retry-After: 0")
    async with Several((busy,), (answer(200),), policies=policies) as two:
        reply = await two.app.ask("GET", "/a/v1")
        assert (reply.status, reply.body, reply.one("x-of"), reply.one("set-cookie")) == (503, b"busy", "a", "a=1")
        told = reply.one("proxy-status") or ""
        assert "attempts=1; outcome=rate_limited" in told
        assert "; b: rate_limited" in told
        assert reply.one("x-should-retry") == "false"
        assert two.sent == [["1"], []]


async def test_the_answer_of_the_proxy_itself_names_upstreams_by_name_alone() -> None:
    async with Several((reset,), (reset,), policies=falls("b")) as two:
        reply = await two.app.ask("GET", "/a/v1?q=secret")
        assert reply.status == 502
        told = reply.one("proxy-status") or ""
        assert 'details="a attempt 1: reset, b attempt 2: reset' in told
        assert str(two.upstreams[1].port) not in told
        assert json.loads(reply.body)["upstream"] == "b"
        assert json.loads(reply.body)["attempts"] == 2
        assert reply.one("x-should-retry") == "false"  # one attempt at each of two is giving up


async def test_nothing_is_sent_to_the_first_where_it_holds_nobody_up() -> None:
    full = BucketRef(RateSpec(1.0, 1.0, "reject", initial=0))
    async with Several((answer(200),), (answer(200, b"b", "Set-Cookie: a=1"),), policies=falls("b", rate=full)) as two:
        reply = await two.app.ask("GET", "/a/v1", "X-Retry-Disable: true")
        assert (reply.body, reply.one("x-attempt-count"), reply.one("set-cookie")) == (b"b", "1", None)
        assert two.sent == [[], ["1"]]
        (call,) = await two.observed.until(1)
        assert [(each.to, each.outcome) for each in call["fallbacks"]] == [("b", Outcome.RATE_LIMITED)]


async def test_a_deadline_that_refuses_a_wait_goes_on_with_the_time_that_is_left() -> None:
    slow = Strategy("standard", "standard", 3, Backoff(30.0, 60.0, jitter="none"), QuotaSpec())
    mine = falls("b", strategy=slow, timeouts=Timeouts(total=5.0))
    async with Several((BUSY,), (answer(200),), policies=mine) as two:
        assert (await two.app.ask("GET", "/a/v1", "grpc-timeout: 5S")).status == 200
        timeout = two.upstreams[1].requests[0].one("grpc-timeout")
        assert timeout is not None and timeout.endswith("m") and int(timeout[:-1]) <= 5000


async def test_an_app_that_leaves_cancels_the_attempt_elsewhere() -> None:
    async with Several((BUSY,), (hang,), policies=falls("b")) as two:
        two.app.send(request("GET", "/a/v1", host=two.app.authority))
        await two.upstreams[1].until(1)
        two.app.vanish()
        await two.upstreams[1].gone.wait()
        (call,) = await two.observed.until(1)
        assert (call["outcome"], call["upstream"]) == (Outcome.CLIENT_GONE, "a")


async def test_a_body_that_still_comes_goes_along() -> None:
    async with Several((BUSY,), (answer(200, b"b"),), policies=always("b")) as two:
        two.app.send(request("POST", "/a/v1", "Content-Length: 6", host=two.app.authority) + b"abc")
        await two.upstreams[0].until(1)
        two.app.send(b"def")
        assert (await two.app.read()).status == 200


async def test_an_attempt_that_is_sent_keeps_the_answers_stream() -> None:
    """The answer elsewhere streams like any other."""
    parts = asyncio.Event()

    async def slowly(turn: Any) -> None:
        await turn.read_body()
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
        await parts.wait()
        await turn.write(b"def")

    async with Several((BUSY,), (slowly,), policies=falls("b")) as two:
        two.app.send(request("GET", "/a/v1", host=two.app.authority))
        assert await two.app.reader.readuntil(b"abc")
        parts.set()
        assert await two.app.reader.readexactly(3) == b"def"


async def test_the_record_of_the_call() -> None:
    kept: list[Any] = []
    async with Several((BUSY,), (answer(200),), policies=always(JSON, "b")) as two:
        ended = two.observed.call_ended
        two.observed.call_ended = lambda call: (kept.append(call), ended(call))
        assert (await two.app.ask("POST", "/a/v1?key=1", body=b"x")).status == 200
        await two.observed.until(1)
        line = json.loads(call_json(kept[0]))
        assert (line["upstream"], line["path"], line["status"], line["attempts"]) == ("a", "/a/v1?key=***", 200, 2)
        assert line["fallbacks"] == [
            {"to": "b", "outcome": "attempts_exhausted", "skipped": "the body is not JSON"},
            {"to": "b", "outcome": "attempts_exhausted"},
        ]
        assert [(each["upstream"], each["decision"]) for each in line["history"]] == [
            ("a", "fell back"),
            ("b", "delivered"),
        ]


async def test_no_room_for_a_body_with_members_set() -> None:
    async with Several((BUSY,), (answer(200),), policies=always(JSON), buffers=Buffers(64, 1024)) as two:
        reply = await two.app.ask("POST", "/a/v1", body=b'{"a": "%b"}' % (b"x" * 50))
        assert reply.status == 503
        (call,) = await two.observed.until(1)
        skipped = "its body, with the members that `json` sets, does not fit into `buffers`"
        assert call["fallbacks"][0].skipped == skipped


async def test_a_failed_upgrade_stays() -> None:
    async with Several((BUSY,), (answer(200),), policies=falls("b")) as two:
        fields = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")
        assert (await two.app.ask("GET", "/a/v1", *fields)).status == 503


async def test_a_signed_call_stays() -> None:
    async with Several((BUSY,), (answer(200),), policies=falls("b")) as two:
        assert (await two.app.ask("GET", "/a/v1", "Authorization: AWS4-HMAC-SHA256 Credential=x")).status == 503
        assert (await two.app.ask("GET", "/a/v1?X-Amz-Signature=x")).status == 503
        assert two.sent[1] == []


async def test_a_cooldown_of_the_first_sends_calls_elsewhere() -> None:
    policies = falls("b", strategy=STANDARD, bucket=BucketRef(QuotaSpec()), pushback=PushbackPolicy(cooldown="reject"))
    async with Several((answer(503, b"", "Retry-After: 70"),), (answer(200),), policies=policies) as two:
        assert (await two.app.ask("GET", "/a/v1")).status == 200  # pushback_too_long
        assert (await two.app.ask("GET", "/a/v1")).status == 200  # cooling
        assert two.sent == [["1"], ["2", "1"]]
        calls = await two.observed.until(2)
        assert [call["fallbacks"][0].outcome for call in calls] == [Outcome.PUSHBACK_TOO_LONG, Outcome.COOLING]


async def test_an_endpoint_of_several_is_one_of_the_next_upstreams() -> None:
    async with Upstream(BUSY) as a, Upstream(answer(200)) as b, Upstream(answer(200)) as c:
        first = to("a", a.url, fallback=(Fallback("b"),), strategy=NONE)
        async with Front(first, to("b", b.url, c.url)) as front, front.app() as app:
            for _ in range(4):
                assert (await app.ask("GET", "/a/v1")).status == 200
            assert [[each.one("host") for each in one.requests] for one in (b, c)] == [
                [endpoint(b.url).authority] * 2,
                [endpoint(c.url).authority] * 2,
            ]


async def test_a_reload_meanwhile_changes_nothing_for_a_call_under_way() -> None:
    """It goes where the configuration said that it began under, with its policy there."""
    go = asyncio.Event()

    async def slowly(turn: Any) -> None:
        await turn.read_body()
        await go.wait()
        await turn.write(BUSY)

    async with Several((slowly,), (answer(200, b"b"),), policies=falls("b")) as two:
        two.app.send(request("GET", "/a/v1", host=two.app.authority))
        await two.upstreams[0].until(1)
        without = routing.Router(two.front.settings.router.upstreams[:1], two.front.settings.router.fallback)
        two.front.path.use(replace(two.front.settings, router=without))
        go.set()
        assert (await two.app.read()).body == b"b"
