"""Calls that began undecided and are retried: the same as ones decided from the start, whatever becomes of them."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.front import CutError, Front, policy, request, to
from support.scripted import Step, Turn, Upstream, answer, close, hang, reset, then_close

from proxy.forward import call_driver, request_plan
from proxy.forward.exchange import Exchange
from proxy.forward.headers import CallEnd, answer_fields
from proxy.retry.call.actions import Actions
from proxy.retry.call.machine import Call
from proxy.retry.facts import Class, MappingFields, Outcome, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec
from proxy.retry.policies.dialect import Dialect, Reads, Rule
from proxy.retry.policies.policy import (
    Backoff,
    BreakerSpec,
    Concurrency,
    Credentials,
    HeaderEdits,
    PushbackPolicy,
    Strategy,
    Timeouts,
)

DATE = "Date: Thu, 01 Jan 2026 00:00:00 GMT"
HEAD = f"HTTP/1.1 200 OK\r\n{DATE}\r\n".encode()
FINE = answer(200, b"ok", DATE)
BUSY = answer(503, b"busy", DATE)
QUICK = Backoff(0.001, 0.002, jitter="none")
LONG = Backoff(30.0, 60.0, jitter="none")
#: Seconds beside which the time that a test takes is nothing: what is left of them is the same whenever it is read.
AGES = 1e25


def standard(backoff: Backoff = QUICK, attempts: int = 3) -> Strategy:
    return Strategy("standard", "standard", attempts, backoff, QuotaSpec())


def bucket(level: float) -> BucketRef:
    return BucketRef(QuotaSpec(capacity=100, initial=level))


@dataclass
class Case:
    """What the upstream does to the attempts of a call, and the call."""

    steps: tuple[Step, ...]
    method: str = "GET"
    fields: tuple[str, ...] = ()
    body: bytes = b""
    level: float = 50
    policy: dict[str, Any] = field(default_factory=dict)
    passes: float = 0.0  # seconds, once the upstream has the second attempt


def pieces(*parts: bytes) -> Step:
    """Parts that come one by one."""

    async def step(turn: Turn) -> None:
        await turn.read_body()
        for part in parts:
            await turn.write(part)
            for _ in range(5):
                await asyncio.sleep(0)

    return step


def busy(*fields: str, status: int = 503) -> bytes:
    return answer(status, b"busy", DATE, *fields)


JSON = answer(400, b'{"error":"again"}', DATE, "Content-Type: application/json")
RULES = (Rule(Class.TRANSIENT, "rule 1", statuses=frozenset({400}), json=((("error",), "again"),)),)

CASES = {
    "a retry": Case((BUSY, FINE)),
    "two retries": Case((BUSY, busy(status=500), FINE)),
    "three failures": Case((BUSY,)),
    "at once": Case((BUSY, FINE), policy={"strategy": standard(Backoff(0.0, 0.0))}),
    "nothing that is retried": Case((busy(status=404),)),
    "a retry that comes to nothing": Case((BUSY, busy(status=404))),
    "an empty bucket": Case((BUSY,), level=3),
    "a bucket for one": Case((BUSY,), level=7),
    "throttled": Case((busy(status=429), FINE)),
    "a pushback": Case((busy("Retry-After-Ms: 5"), FINE), policy={"pushback": PushbackPolicy(cooldown="off")}),
    "a pushback that cools": Case((busy("Retry-After-Ms: 5"), busy("Retry-After-Ms: 3"), FINE)),
    "a stop": Case((busy("X-Should-Retry: false"),)),
    "a stop after a retry": Case((BUSY, busy("X-Should-Retry: false", "Stripe-Should-Retry: true"))),
    "an app's own word": Case((busy("X-Should-Retry: true", status=404), FINE)),
    "a pushback too long": Case((busy("Retry-After: 3600"),)),
    "no time left": Case((BUSY, FINE), policy={"strategy": standard(LONG), "timeouts": Timeouts(total=5.0)}),
    "a body that goes on": Case((BUSY, pieces(HEAD + b"Content-Length: 6\r\n\r\none", b"two"))),
    "a body in chunks": Case((BUSY, HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n")),
    "trailers": Case((BUSY, HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\nX-Sum: 1\r\n\r\n")),
    "a failure in chunks": Case(
        (BUSY.replace(b"Content-Length: 4\r\n\r\nbusy", b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"), FINE)
    ),
    "an answer until the end": Case((BUSY, then_close(HEAD + b"\r\nall of it"))),
    "a failure in pieces": Case((pieces(BUSY[:-2], b"sy"), FINE)),
    "a second failure in pieces": Case((BUSY, pieces(BUSY[:-2], b"sy"), FINE)),
    "a large failure": Case((answer(503, b"x" * 70_000, DATE), FINE)),
    "interim answers": Case((BUSY, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + FINE)),
    "a connection that closes": Case((busy("Connection: close"), FINE)),
    "a retry that is reset": Case((BUSY, reset, FINE)),
    "a retry that is closed on": Case((BUSY, close, FINE)),
    "a retry that makes no sense": Case((BUSY, b"HTTP/1.1 2xx\r\n\r\n", FINE)),
    "a login": Case((busy("WWW-Authenticate: NTLM", status=401),)),
    "a login after a retry": Case((BUSY, busy("WWW-Authenticate: NTLM", status=401))),
    "a head": Case((BUSY[: -len(b"busy")], FINE[: -len(b"ok")]), method="HEAD"),
    "a post": Case((BUSY, FINE), method="POST"),
    "a post that was not carried out": Case((busy(status=429), FINE), method="POST"),
    "a body": Case((BUSY, FINE), method="PUT", body=b"twice"),
    "an attempt that takes too long": Case(
        (BUSY, hang, FINE),
        policy={"strategy": standard(Backoff(0.0, 0.0)), "timeouts": Timeouts(attempt=30.0)},
        passes=30.0,
    ),
    "a call that takes too long": Case((BUSY, hang), policy={"timeouts": Timeouts(total=60.0)}, passes=60.0),
    "a body that decides": Case((JSON, FINE), policy={"classify": replace(policy().classify, rules=RULES)}),
    "a trailer of grpc": Case((busy("grpc-status: 14"), FINE)),
    "edited heads": Case(
        (BUSY, FINE),
        fields=("X-Team: mine", "X-Old: 1"),
        policy={
            "request_headers": HeaderEdits((("X-Team", "ours"), ("X-New", "1")), frozenset({"x-old"})),
            "response_headers": HeaderEdits((("X-Seen", "1"),), frozenset({"server", "date"})),
        },
    ),
    "further counts": Case((BUSY, FINE), policy={"attempt_headers": frozenset({"grpc", "aws", "envoy"})}),
    "off": Case((BUSY,), policy={"mode": "off"}),
    "observed": Case((BUSY,), policy={"mode": "observe"}),
    "observed without tokens": Case((BUSY,), level=3, policy={"mode": "observe"}),
    "a rate": Case((BUSY, FINE), policy={"rate": BucketRef(RateSpec(rate=1e-6, burst=3.0))}),
    "a rate without tokens": Case(
        (BUSY, FINE), policy={"rate": BucketRef(RateSpec(rate=1e-6, burst=2.0, when_empty="reject"))}
    ),
    "places": Case((BUSY, FINE), policy={"concurrency": Concurrency(max=1)}),
    "a limiter": Case((busy(status=429), FINE), policy={"strategy": replace(standard(), paced=True)}),
    "a breaker": Case((BUSY, FINE), policy={"circuit_breaker": BreakerSpec()}),
    "a breaker that opens": Case((BUSY, FINE), policy={"circuit_breaker": BreakerSpec(minimum_attempts=2, open=AGES)}),
    "a breaker that is not asked": Case((BUSY,), policy={"mode": "observe", "circuit_breaker": BreakerSpec()}),
    "a breaker and a credential": Case(
        (BUSY, FINE), policy={"credentials": Credentials("X-Key", ("one",)), "circuit_breaker": BreakerSpec()}
    ),
    "no content": Case((BUSY, answer(204, b"", DATE))),
}


async def played(case: Case) -> dict[str, Any]:
    """All that app, upstream, bucket and observers saw of the case's call, which came second on a warm connection."""
    kept = {"strategy": standard(), **case.policy}
    async with Upstream(FINE, *case.steps) as upstream:
        place = to("api", upstream.url, bucket=bucket(case.level), **kept)
        async with Front(place) as front, front.app() as app:
            await app.ask("GET", "/api/first")
            try:
                asking = asyncio.create_task(app.ask(case.method, "/api/x", *case.fields, body=case.body))
                if case.passes:
                    await upstream.until(3)
                    front.pass_time(case.passes)
                reply = await asking
                seen: dict[str, Any] = {"answer": (reply.head, reply.body, reply.trailers, reply.infos)}
            except CutError as cut:
                seen = {"cut": cut.answer.head}
            call = (await front.observed.until(2))[1]
            (settled,) = front.settings.router.upstreams
            where = Request("GET", upstream.authority, "/", MappingFields([]))
            scope = front.path.registry.scope(settled.policy, where)
            assert scope.bucket is not None
            assert front.path.context.env.waiting.waiting == 0
            (connection,) = front.path.acceptor.open
            own = [len(resting) for resting in (connection.own or {}).values()]
            via = front.path.context.via.encode()
            return seen | {
                "answer": tuple(part.replace(via, b"us") for part in seen["answer"][:3]) if "answer" in seen else None,
                "observed": {**call, "took": 0, "client": "", "history": [shown(record) for record in call["history"]]},
                "sent": [(r.head.replace(via, b"us"), r.body) for r in upstream.requests[1:]],
                "level": scope.bucket.level(0.0),
                "shadow": None if scope.shadow is None else scope.shadow.level(0.0),
                "rates": [round(each.level(0.0), 3) for each in scope.rates],
                "in use": None if scope.places is None else (scope.places.in_use, len(scope.places.queue)),
                "limiter": None if scope.pacing is None else scope.pacing.enabled,
                "under way": (scope.governor.traffic.flying, scope.governor.traffic.ended),
                "own": own,
                "breakers": [
                    (breaker.is_open, breaker._ended.count(0.0), breaker._ill.count(0.0))
                    for _, _, breaker in front.path.registry.breakers()
                ],
            }


def shown(record: Any) -> dict[str, Any]:
    names = (name for name in record.__slots__ if name not in ("started", "ended", "delay", "held"))
    return {name: getattr(record, name) for name in names} | {"waits": record.delay is not None}


@pytest.mark.parametrize("name", CASES)
async def test_it_is_the_same_as_one_decided_from_the_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, began = CASES[name], []

    class RecordingCall(Call):
        """Notes when a call began without being decided on."""

        def flown(self, since: float, *facts: Any) -> Actions:
            began.append(since)
            return super().flown(since, *facts)

    monkeypatch.setattr(call_driver, "Call", RecordingCall)
    seen = await played(case)
    assert len(began) == 1
    monkeypatch.setattr(request_plan, "may_start_undecided", lambda *_: False)
    driven = await played(case)
    assert len(began) == 1
    port = seen["observed"]["endpoint"]
    assert _without(seen, port) == _without(driven, driven["observed"]["endpoint"])


def _without(seen: dict[str, Any], endpoint: str) -> str:
    """What was seen, but for the port that the upstream happened to have, and the second of our own answers."""
    timed = re.sub(r"which is in [0-9.]+ s", "which is soon", repr(seen).replace(endpoint, "there"))
    return re.sub(r"Date: [^\\]*", "Date", timed)


READS = Dialect("mcp", reads=Reads("mcp-method", ("*/list",), (("mcp-protocol-version", "2026-07-28"),)))


@pytest.mark.parametrize(
    ("fields", "attempts"),
    [
        (("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list"), 2),
        (("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call"), 1),
        (("MCP-Protocol-Version: 2025-11-25", "Mcp-Method: tools/list"), 1),
        (("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list", "Mcp-Method: tools/call"), 1),
        (("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list", "Connection: Mcp-Method"), 1),
    ],
)
@pytest.mark.parametrize("failed", [BUSY, reset], ids=["a 503", "a reset"])
async def test_a_post_that_a_dialect_calls_a_read(failed: Step, fields: tuple[str, ...], attempts: int) -> None:
    """The fields decide on the wire, too: a read is sent again with its body, anything else is not."""
    rules = replace(policy().classify, dialects=(READS,))
    body = b'{"jsonrpc":"2.0","id":1}'
    seen = await played(Case((failed, FINE), method="POST", fields=fields, body=body, policy={"classify": rules}))
    assert [sent for _, sent in seen["sent"]] == [body] * attempts
    assert seen["observed"]["outcome"] == ("success" if attempts == 2 else "not_retryable")


async def _begun(front: Front) -> Exchange:
    """The call in progress, once it is waited with or its second attempt is out."""
    while True:
        for connection in front.path.acceptor.open:
            if connection.exchange is not None and connection.exchange.decided:
                return connection.exchange
        await asyncio.sleep(0)


@pytest.mark.parametrize("second", [False, True], ids=["while it waits", "while a retry is out"])
async def test_an_app_that_leaves_gets_its_tokens_back(second: bool) -> None:
    strategy = standard(QUICK if second else LONG)
    async with AsyncExitStack() as held:
        upstream = await held.enter_async_context(Upstream(FINE, BUSY, hang))
        front = await held.enter_async_context(Front(to("api", upstream.url, bucket=bucket(50), strategy=strategy)))
        async with front.app() as app:
            await app.ask("GET", "/api/first")
            app.send(request("GET", "/api/x", host=app.authority))
            if second:
                async with upstream.arrived:
                    await upstream.arrived.wait_for(lambda: len(upstream.requests) == 3)
            again = await _begun(front)
            app.vanish()
            call = (await front.observed.until(2))[1]
            assert (call["outcome"], call["attempts"]) == (Outcome.CLIENT_GONE, 2 if second else 1)
            assert [record.decision for record in call["history"]] == ["retried", "client_gone"][not second :]
            assert {record.endpoint for record in call["history"]} == {upstream.authority}
            if second:
                await upstream.gone.wait()
            assert again.over
            where = Request("GET", upstream.authority, "/", MappingFields([]))
            (settled,) = front.settings.router.upstreams
            shared = front.path.registry.scope(settled.policy, where).bucket
            assert shared is not None
            assert shared.level(0.0) == (46 if second else 51)
            assert front.path.context.env.waiting.waiting == 0


async def test_a_call_that_our_end_cuts_gets_the_answer_that_was_kept() -> None:
    async with AsyncExitStack() as held:
        upstream = await held.enter_async_context(Upstream(FINE, BUSY, FINE))
        place = to("api", upstream.url, bucket=bucket(50), strategy=standard(LONG))
        front = await held.enter_async_context(Front(place))
        async with front.app() as app:
            await app.ask("GET", "/api/first")
            app.send(request("GET", "/api/x", host=app.authority))
            (await _begun(front)).cut()
            assert (await app.read()).body == b"busy"
            assert (await front.observed.until(2))[1]["outcome"] is Outcome.OVERLOADED


async def test_a_defect_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Call):
        def woke(self, now: float) -> Actions:
            raise RuntimeError("a defect")

        def head(self, attempt: int, reply: Reply, now: float) -> Actions:
            raise RuntimeError("a defect")

    async with AsyncExitStack() as held:
        upstream = await held.enter_async_context(Upstream(FINE, BUSY, FINE))
        front = await held.enter_async_context(Front(to("api", upstream.url, bucket=bucket(50))))
        async with front.app() as app:
            said: list[dict[str, Any]] = []
            front.path.context.loop.set_exception_handler(lambda loop, context: said.append(context))
            await app.ask("GET", "/api/first")
            monkeypatch.setattr(call_driver, "Call", Broken)
            assert (await app.ask("GET", "/api/x")).status == 500
            monkeypatch.undo()
            assert [str(context["exception"]) for context in said] == ["a defect"]
            assert (await app.ask("GET", "/api/y")).status == 200


KEPT_OFF = {
    "no time at all": (busy("Retry-After: 0", status=429), "60", None),
    "a date that is over": (busy("Retry-After: Thu, 01 Jan 2015 00:00:00 GMT", status=429), "60", None),
    "nothing": (busy(status=429), "60", None),
    "milliseconds": (busy("Retry-After-Ms: 0"), "60", "60000"),
    "no time, in an answer that asks nobody to wait": (busy("Retry-After: 0", status=500), "60", None),
    "nothing, in such an answer": (busy(status=500), None, None),
    "more digits than time": (busy(f"Retry-After: {'9' * 40}"), "9" * 40, None),
}


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("name", KEPT_OFF)
async def test_an_answer_handed_on_in_a_cooldown_names_what_is_left_of_it(name: str, in_pieces: bool) -> None:
    """While the first attempt is under way another call is asked to wait for an hour: nobody is sent for a minute."""
    last, seconds, milliseconds = KEPT_OFF[name]
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def first(turn: Turn) -> None:
        arrived.set()
        await go_on.wait()
        await pieces(*((last[:9], last[9:]) if in_pieces else (last,)))(turn)

    rejects = PushbackPolicy(cooldown="reject")
    async with (
        Upstream(first, busy("Retry-After: 3600", status=429)) as upstream,
        Front(to("api", upstream.url, pushback=rejects)) as front,
        front.app() as app,
        front.app() as other,
    ):
        held = asyncio.create_task(app.ask("GET", "/api/held"))
        await arrived.wait()
        assert (await other.ask("GET", "/api/other")).one("retry-after") == "3600"
        go_on.set()
        answered = await held
        retry_after = answered.one("retry-after"), answered.one("retry-after-ms")
        assert (answered.status, answered.body) == (int(last[9:12]), b"busy")
        assert retry_after[0] == seconds or (seconds == "60" and 50 < int(retry_after[0] or 0) < 60)
        assert retry_after[1] == milliseconds or 50_000 < int(retry_after[1] or 0) <= 60_000
        cooled = Outcome.PUSHBACK_TOO_LONG if len(seconds or "") == 40 else Outcome.COOLING
        assert front.observed.outcomes == [Outcome.PUSHBACK_TOO_LONG, cooled]


@pytest.mark.parametrize(
    ("came", "told"),
    [
        ({}, {}),
        ({"retry-after": "Thu, 01 Jan 2099 00:00:00 GMT"}, {}),
        ({"retry-after-ms": "9000"}, {}),
        ({"retry-after": "9"}, {"Retry-After": "4"}),
    ],
)
def test_an_answer_that_was_held_without_a_cooldown_gets_no_delay_that_its_upstream_did_not_name(
    came: dict[str, str], told: dict[str, str]
) -> None:
    """It was held for 5.5 s, as for a place or until the process ended."""
    end = CallEnd(Outcome.OVERLOADED, 1, grpc=False, status=503, held=5.5)
    added = dict(answer_fields(policy("api"), MappingFields(list(came.items())), end).add)
    assert {name: value for name, value in added.items() if name.startswith("Retry-After")} == told
