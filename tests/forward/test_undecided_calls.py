"""Calls of which nothing has to be decided at first: the same as any other, whatever becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from support.front import AT_ONCE, Answer, CutError, Front, attempts_counted, request, to
from support.scripted import Step, Turn, Upstream, answer, close, gated, hang, then_close

from proxy.forward import call_driver, request_plan
from proxy.retry.call.machine import Call
from proxy.retry.facts import FaultKind, MappingFields, Outcome, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.policy import BreakerSpec, Credentials, HeaderEdits, Timeouts
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState
from proxy.transport.clock import monotonic
from proxy.transport.pool import Pool

DATED = answer(200, b"ok", "Date: Thu, 01 Jan 2026 00:00:00 GMT")
LOW = BucketRef(QuotaSpec(capacity=100, initial=50))


class Warm:
    """A proxy whose pool holds a connection, and an app whose next call can go at once."""

    def __init__(self, *steps: Step, **policy: Any) -> None:
        self.upstream = Upstream(DATED, *steps)
        self.policy = policy

    async def __aenter__(self) -> Warm:
        await self.upstream.__aenter__()
        self.front = await Front(to("api", self.upstream.url, bucket=LOW, **self.policy)).__aenter__()
        self.entering = self.front.app()
        self.app = await self.entering.__aenter__()
        await self.app.ask("GET", "/api/first")
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.entering.__aexit__(*error)
        await self.front.__aexit__(*error)
        await self.upstream.__aexit__(*error)

    @property
    def scope(self) -> ScopeState:
        (upstream,) = self.front.settings.router.upstreams
        authority = self.upstream.authority
        return self.front.path.registry.scope(upstream.policy, Request("GET", authority, "/", MappingFields([])))

    @property
    def level(self) -> float:
        bucket = self.scope.bucket
        assert bucket is not None
        return bucket.level(0.0)

    @property
    def is_undecided(self) -> bool:
        """Whether nothing has had to be decided yet of the call in progress."""
        (connection,) = self.front.path.acceptor.open
        return connection.exchange is not None and not connection.exchange.decided


async def test_a_success_pays_the_bucket_and_is_told_like_any_other() -> None:
    async with Warm(DATED) as warm:
        for _ in range(3):
            reply = await warm.app.ask("GET", "/api/x")
            assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, b"ok", "1")
        assert warm.level == 54.0
        assert warm.upstream.connections == 1
        first, *others = warm.front.observed.calls
        for call in others:
            assert {**call, "took": 0} == {**first, "took": 0}


async def test_an_attempt_is_under_way_until_its_head_has_come() -> None:
    head_may_come, go_on = asyncio.Event(), asyncio.Event()

    async def step(turn: Turn) -> None:
        await turn.read_body()
        await head_may_come.wait()
        await turn.write(DATED[:-1])
        await go_on.wait()
        await turn.write(DATED[-1:])

    async with Warm(step) as warm:
        traffic = warm.scope.governor.traffic
        assert (traffic.flying, traffic.ended) == (0, 1)
        warm.app.send(request("GET", "/api/x", host="127.0.0.1"))
        await warm.upstream.until(2)
        assert warm.is_undecided
        assert (traffic.flying, traffic.ended) == (1, 1)
        head_may_come.set()
        await warm.app.reader.readuntil(b"\r\n\r\no")
        assert warm.is_undecided
        assert (traffic.flying, traffic.ended) == (0, 2)
        go_on.set()
        await warm.front.observed.until(2)
        assert (traffic.flying, traffic.ended) == (0, 2)


async def test_the_time_of_one_answer_in_sixteen_is_measured_once_twenty_are_known() -> None:
    async with Warm(DATED) as warm:
        for _ in range(51):
            await warm.app.ask("GET", "/api/x")
        scope = warm.scope
        assert (scope.governor.traffic.ended, scope.governor.usual.count) == (52, 22)


async def test_a_small_body_goes_that_way_too_and_is_sent_again() -> None:
    async with Warm(answer(503), DATED) as warm:
        reply = await warm.app.ask("PUT", "/api/x", body=b"twice")
        assert (reply.status, reply.one("x-attempt-count")) == (200, "2")
        assert [r.body for r in warm.upstream.requests[1:]] == [b"twice"] * 2
        assert warm.front.observed.calls[1]["bytes_in"] == 5
        assert warm.level == 51.0


EDITS = {
    "set": {
        "request_headers": HeaderEdits(set=(("X-Team", "ours"),)),
        "response_headers": HeaderEdits((("Etag", "1"),)),
    },
    "remove": {"request_headers": HeaderEdits(remove=frozenset({"x-team", "accept", "host"}))},
    "remove from answers": {"response_headers": HeaderEdits(remove=frozenset({"server", "x-none"}))},
    "remove what is cut anyway": {
        "request_headers": HeaderEdits(remove=frozenset({"x-team", "proxy-authorization", "x-attempt-count"})),
        "response_headers": HeaderEdits(remove=frozenset({"x-attempt-count"})),
    },
    "counts": {"attempt_headers": frozenset({"grpc", "aws", "envoy"})},
    "without via": {"via": False, "request_headers": HeaderEdits(set=(("X-Team", "ours"),))},
    "with a credential": {
        "credentials": Credentials("X-Api-Key", ("one", "two")),
        "request_headers": HeaderEdits((("X-Team", "ours"),), frozenset({"accept"})),
    },
}


@pytest.mark.parametrize("name", EDITS)
async def test_heads_are_edited_as_those_of_a_decided_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def heads() -> list[Any]:
        step = answer(200, b"ok", "Date: Thu, 01 Jan 2026 00:00:00 GMT", "Server: a", "grpc-previous-rpc-attempts: 7")
        async with Warm(step, **EDITS[name]) as warm:
            seen: list[Any] = []
            for fields in (("X-Team: mine", "Accept: */*", "X-Api-Key: app"), ("X-Envoy: 1",), ("X-Team: mine",)):
                reply = await warm.app.ask("GET", "/api/x", *fields)
                seen += [reply.head, warm.upstream.requests[-1].head]
            (connection,) = warm.front.path.acceptor.open
            seen.append(connection.plan.plain)
            via, place = warm.front.path.context.via.encode(), warm.upstream.authority.encode()
            return [
                each.replace(via, b"us").replace(place, b"up") if isinstance(each, bytes) else each for each in seen
            ]

    *undecided, is_plain = await heads()
    assert is_plain
    monkeypatch.setattr(request_plan, "may_start_undecided", lambda *_: False)
    *decided, is_plain = await heads()
    assert not is_plain
    assert undecided == decided


@pytest.mark.parametrize("decided", [False, True])
async def test_a_breaker_counts_an_answer_once_even_if_it_breaks(
    decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if decided:
        monkeypatch.setattr(request_plan, "may_start_undecided", lambda *_: False)
    broken = then_close(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
    async with Warm(DATED, broken, circuit_breaker=BreakerSpec()) as warm:
        await warm.app.ask("GET", "/api/x")
        (connection,) = warm.front.path.acceptor.open
        assert connection.plan.plain is not decided
        with pytest.raises(CutError):
            await warm.app.ask("GET", "/api/y")
        await warm.front.observed.until(3)
        ((_, _, breaker),) = warm.front.path.registry.breakers()
        assert (breaker._ended.count(0.0), breaker._ill.count(0.0)) == (3, 0)


async def test_interim_answers_and_bodies_in_pieces() -> None:
    async def step(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        await turn.write(DATED[:-1])
        await asyncio.sleep(0)
        await turn.write(DATED[-1:])

    async with Warm(step) as warm:
        reply = await warm.app.ask("GET", "/api/x")
        assert (reply.body, len(reply.infos)) == (b"ok", 1)


async def test_a_connection_that_dies_costs_nothing() -> None:
    async with Warm(close, DATED) as warm:
        assert (await warm.app.ask("GET", "/api/x")).body == b"ok"
        assert warm.front.observed.calls[1]["resent"]
        assert warm.level == 52.0


async def test_a_failure_is_judged_and_the_answer_handed_on() -> None:
    async with Warm(answer(404, b"no"), answer(500)) as warm:
        assert (await warm.app.ask("GET", "/api/x")).body == b"no"
        assert (await warm.app.ask("POST", "/api/x")).status == 500
        assert warm.front.observed.outcomes[1:] == [Outcome.NOT_RETRYABLE] * 2
        assert [len(call["history"]) for call in warm.front.observed.calls] == [0, 1, 1]


@pytest.mark.parametrize(
    ("steps", "status", "is_kept"),
    [
        ((answer(503), DATED), 200, True),  # retried
        ((answer(404),), 404, True),
        ((close,) * 4, 502, False),  # the proxy's own answer
    ],
)
async def test_the_exchange_of_a_decided_call_is_kept_for_the_next_one(
    steps: tuple[Step, ...], status: int, is_kept: bool
) -> None:
    """An exchange that is kept has nothing of its call left: the next call is as its first."""
    async with Warm(*steps, DATED, strategy=AT_ONCE) as warm:
        (connection,) = warm.front.path.acceptor.open
        kept = connection._kept
        assert (await warm.app.ask("GET", "/api/x")).status == status
        assert (connection._kept is kept) is is_kept
        reply = await warm.app.ask("GET", "/api/y")
        assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, b"ok", "1")
        first, _, last = warm.front.observed.calls
        assert {**last, "took": 0, "path": ""} == {**first, "took": 0, "path": ""}
        assert not is_kept or (kept.call is kept.sender is None)


async def test_a_kept_exchange_reports_to_no_breaker_of_another_upstream() -> None:
    async with Upstream(DATED, answer(503), DATED) as broken, Upstream(DATED) as other:
        ends = to("api", broken.url, circuit_breaker=BreakerSpec(), strategy=AT_ONCE), to("other", other.url)
        async with Front(*ends) as front, front.app() as app:
            for path in ("/api/x", "/api/x", "/other/x", "/other/x"):
                assert (await app.ask("GET", path)).status == 200
            ((_, _, breaker),) = front.path.registry.breakers()
            assert (breaker._ended.count(0.0), breaker._ill.count(0.0)) == (3, 1)


async def test_an_app_that_leaves() -> None:
    async with Warm(hang) as warm:
        warm.app.send(request("GET", "/api/x", host="127.0.0.1"))
        await warm.upstream.until(2)
        assert warm.is_undecided
        warm.app.vanish()
        await warm.upstream.gone.wait()
        assert (await warm.front.observed.until(2))[1]["outcome"] is Outcome.CLIENT_GONE


async def test_a_deadline_and_an_attempt_timeout() -> None:
    async def late(warm: Warm) -> Answer:
        warm.app.send(request("GET", "/api/x", host="127.0.0.1"))
        await warm.upstream.until(2)
        warm.front.pass_time(30.0)
        return await warm.app.read()

    async with Warm(hang, timeouts=Timeouts(total=30.0)) as warm:
        assert (await late(warm)).status == 504
        assert warm.front.observed.outcomes[1] is Outcome.DEADLINE
    async with Warm(hang, DATED, timeouts=Timeouts(attempt=30.0), strategy=AT_ONCE) as warm:
        reply = await late(warm)
        assert (reply.status, reply.one("x-attempt-count")) == (200, "2")


async def test_a_grpc_timeout_brings_the_deadline_nearer_and_is_lowered_for_later_attempts() -> None:
    async with Warm(hang) as warm:
        warm.app.send(request("GET", "/api/x", "grpc-timeout: 90S", host="127.0.0.1"))
        await warm.upstream.until(2)
        assert warm.is_undecided
    async with Warm(hang) as warm:
        await warm.app.ask("GET", "/api/x", "grpc-timeout: 50m")
        assert warm.front.observed.outcomes[1] is Outcome.DEADLINE
    async with Warm(answer(503, b""), DATED) as warm:
        reply = await warm.app.ask("GET", "/api/x", "grpc-timeout: 90S")
        assert (reply.status, reply.one("x-attempt-count")) == (200, "2")
        first, second = (each.one("grpc-timeout") for each in warm.upstream.requests[1:])
        assert first == "90S"
        assert second is not None and 80_000 < int(second.removesuffix("m")) < 90_000


async def test_heads_that_differ_are_never_mixed_up() -> None:
    answers = [answer(200, str(n).encode(), "Date: x", f"X-N: {n % 2}") for n in range(6)]
    async with Warm(*answers) as warm:
        for n in range(6):
            reply = await warm.app.ask("GET", f"/api/{n}", f"X-M: {n % 3}")
            assert (reply.body, reply.one("x-n")) == (str(n).encode(), str(n % 2))
            assert warm.upstream.requests[n + 1].one("x-m") == str(n % 3)
            assert warm.upstream.requests[n + 1].target == f"/{n}"


async def test_head_requests_between_others() -> None:
    headless = b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 2\r\n\r\n"
    async with Warm(headless, DATED, headless, DATED) as warm:
        for method, body in (("HEAD", b""), ("GET", b"ok"), ("HEAD", b""), ("GET", b"ok")):
            reply = await warm.app.ask(method, "/api/x")
            assert (reply.status, reply.body) == (200, body)
        assert warm.upstream.connections == 1


HEAD = b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"


async def test_an_answer_that_comes_in_pieces_goes_on_as_it_comes() -> None:
    more = asyncio.Event()
    begun = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
    async with Warm(gated(more, begun, b"3\r\ntwo\r\n0\r\n\r\n")) as warm:
        warm.app.send(request("GET", "/api/x", host="127.0.0.1"))
        assert (await warm.app.reader.readuntil(b"one\r\n")).count(b"X-Attempt-Count: 1\r\n") == 1
        assert warm.is_undecided
        more.set()
        assert await warm.app.reader.readuntil(b"0\r\n\r\n") == b"3\r\ntwo\r\n0\r\n\r\n"
        assert (await warm.front.observed.until(2))[1]["bytes_out"] == 6
        assert warm.level == 52.0


async def test_one_that_is_cut_on_its_way() -> None:
    async with Warm(then_close(HEAD + b"Content-Length: 9\r\n\r\nfive")) as warm:
        with pytest.raises(CutError) as cut:
            await warm.app.ask("GET", "/api/x")
        assert cut.value.answer.body == b"five"
        call = (await warm.front.observed.until(2))[1]
        assert (call["outcome"], call["status"], call["bytes_out"]) == (Outcome.COMMITTED, 200, 4)
        assert warm.level == 51.0


async def test_one_whose_app_leaves_on_the_way_and_one_that_falls_silent() -> None:
    async def begin(turn: Turn) -> None:
        await turn.write(HEAD + b"Content-Length: 9\r\n\r\nfive")
        await turn.gone()
        turn.upstream.gone.set()

    async with Warm(begin) as warm:
        warm.app.send(request("GET", "/api/x", host="127.0.0.1"))
        await warm.app.reader.readuntil(b"five")
        warm.app.vanish()
        await warm.upstream.gone.wait()
        assert (await warm.front.observed.until(2))[1]["outcome"] is Outcome.CLIENT_GONE
    async with Warm(begin, timeouts=Timeouts(idle=0.2)) as warm:
        with pytest.raises(CutError):
            await warm.app.ask("GET", "/api/x")
        assert (await warm.front.observed.until(2))[1]["outcome"] is Outcome.COMMITTED


async def test_trailers_are_heeded() -> None:
    fields = b"Transfer-Encoding: chunked\r\nContent-Type: application/grpc\r\n\r\n"
    begun = HEAD + fields + b"3\r\none\r\n"
    more = asyncio.Event()
    async with Warm(gated(more, begun, b"0\r\ngrpc-status: 14\r\n\r\n")) as warm:
        warm.app.send(request("POST", "/api/x", "Content-Type: application/grpc", host="127.0.0.1"))
        await warm.app.reader.readuntil(b"one\r\n")
        more.set()
        assert await warm.app.reader.readuntil(b"\r\n\r\n") == b"0\r\ngrpc-status: 14\r\n\r\n"
        assert (await warm.front.observed.until(2))[1]["outcome"] is not Outcome.SUCCESS


async def test_a_slow_reader_holds_it_back() -> None:
    body = b"x" * 5_000_000
    async with Warm(answer(200, body, "Date: x")) as warm:
        warm.app.writer.transport.pause_reading()
        warm.app.send(request("GET", "/api/x", host="127.0.0.1"))
        (connection,) = warm.front.path.acceptor.open
        while not connection.blocked:  # noqa: ASYNC110  a state, no event
            await asyncio.sleep(0.001)
        warm.app.writer.transport.resume_reading()
        assert (await warm.app.read()).body == body


class Broken(Registry):
    def scope(self, *_: object) -> ScopeState:
        raise RuntimeError("a defect")


@pytest.mark.parametrize("where", ["in the answer", "in the scope"])
async def test_a_defect_ends_the_call(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bool:
        raise RuntimeError("a defect")

    async with Warm(DATED) as warm:
        said: list[dict[str, Any]] = []
        warm.front.path.context.loop.set_exception_handler(lambda loop, context: said.append(context))
        for _ in range(2):
            with monkeypatch.context() as patched:
                if where == "in the answer":
                    (connection,) = warm.front.path.acceptor.open
                    connection.plan.answered = None  # else the head is known from the answer before
                    patched.setattr(request_plan, "is_plain_success", broken)
                else:
                    patched.setattr(warm.front.path.context, "registry", Broken())
                assert (await warm.app.ask("GET", "/api/x")).status == 500
            assert str(said.pop()["exception"]) == "a defect"
            assert not said
            assert (await warm.app.ask("GET", "/api/x")).status == 200


class Noted(Call):
    """A `Call`, of which each that is made is kept in `made`."""

    made: ClassVar[list[Call]] = []

    def __init__(self, *facts: Any) -> None:
        self.made.append(self)
        super().__init__(*facts)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    monkeypatch.setattr(call_driver, "Call", Noted)
    Noted.made.clear()
    return Noted.made


CLOSING = answer(200, b"ok", "Connection: close")
#: By a `DirectDial`, or by a task.
DIRECTLY = pytest.mark.parametrize("directly", [True, False], ids=["directly", "by a task"])


async def test_calls_that_dial_are_not_decided_either(made: list[Call]) -> None:
    async with Upstream(CLOSING) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        for _ in range(3):
            assert (await app.ask("GET", "/api/x")).body == b"ok"
        assert not made
        assert upstream.connections == 3
        calls = await front.observed.until(3)
        assert {(call["outcome"], call["attempts"], call["bytes_out"]) for call in calls} == {(Outcome.SUCCESS, 1, 2)}
        assert {call["endpoint"] for call in calls} == {upstream.authority}


def dial_by_a_task(pool: Pool, *, unless: bool) -> None:
    """Let each dial of a pool take a task, as one that has to look up a name does."""
    if not unless:
        pool.dialer.only_address = lambda *_: ""


@DIRECTLY
async def test_a_dial_that_fails_is_retried(made: list[Call], directly: bool) -> None:
    """The endpoint refuses the first dial, and then takes the next one."""
    async with Upstream(CLOSING) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        pool, opened = front.path.context.pool, 0
        real = pool.dialer.connecting

        async def refuses_once(*way: Any, **more: Any) -> None:
            nonlocal opened
            opened += 1
            if opened == 1:
                raise ConnectionRefusedError
            await real(*way, **more)

        pool.dialer.connecting = refuses_once
        dial_by_a_task(pool, unless=directly)
        reply = await app.ask("GET", "/api/x")
        assert (reply.status, opened, len(upstream.requests)) == (200, 2, 1)
        assert len(made) == 1
        (call,) = await front.observed.until(1)
        first, second = call["history"]
        assert first.fault is FaultKind.CONNECT_FAILURE
        assert (first.endpoint, second.endpoint) == (upstream.authority, upstream.authority)


@DIRECTLY
@pytest.mark.parametrize("ends", ["the app leaves", "its time is out", "the process ends"])
async def test_a_call_that_ends_while_it_dials(ends: str, directly: bool) -> None:
    """Its dial is given up, and everything that it took is given back."""
    async with Upstream(CLOSING) as upstream, Front(to("api", upstream.url, timeouts=Timeouts(total=60.0))) as front:
        dialling, cancelled = asyncio.Event(), asyncio.Event()

        async def hangs(*_: Any, **__: Any) -> None:
            dialling.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        pool = front.path.context.pool
        pool.dialer.connecting = hangs
        dial_by_a_task(pool, unless=directly)
        async with front.app() as app:
            app.send(request("GET", "/api/x", host=app.authority))
            await dialling.wait()
            if ends == "the app leaves":
                app.writer.transport.abort()
            elif ends == "the process ends":
                (connection,) = front.path.acceptor.open
                connection.cut()
            else:
                front.pass_time(60.0)
            if ends != "the app leaves":
                assert (await app.read()).status in (503, 504)
            await cancelled.wait()
            (call,) = await front.observed.until(1)
            assert call["outcome"] in (Outcome.CLIENT_GONE, Outcome.DEADLINE, Outcome.OVERLOADED)
        assert attempts_counted(front.path.registry) == 0


@DIRECTLY
async def test_a_call_that_is_decided_while_it_dials_is_sent(made: list[Call], directly: bool) -> None:
    """A timeout is looked at before the dial has succeeded: the request is sent all the same, once."""
    async with Upstream(CLOSING) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        dialling, go = asyncio.Event(), asyncio.Event()
        pool = front.path.context.pool
        real = pool.dialer.connecting

        async def waits(*way: Any, **more: Any) -> None:
            dialling.set()
            await go.wait()
            await real(*way, **more)

        pool.dialer.connecting = waits
        dial_by_a_task(pool, unless=directly)
        app.send(request("GET", "/api/x", host=app.authority))
        await dialling.wait()
        (connection,) = front.path.acceptor.open
        connection.exchange.attend(monotonic())
        assert len(made) == 1
        go.set()
        reply = await app.read()
        assert (reply.status, reply.one("x-attempt-count"), len(upstream.requests)) == (200, "1", 1)


async def test_a_call_with_a_body_that_dials_is_decided(made: list[Call]) -> None:
    async with Upstream(CLOSING) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("PUT", "/api/x", body=b"a body")).body == b"ok"
        assert len(made) == 1
        assert upstream.requests[0].body == b"a body"
