"""Thousands of mixed calls with faults, and afterwards nothing is left over: no task, connection, timer, replay
buffer, place, socket or token, and none of the objects that a call is made of.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

import pytest
import uvloop
from support.front import App, CutError, Front, chunked, policy, request
from support.two_runs import examples, first_seed

from proxy.forward.attempt import Attempt
from proxy.forward.exchange import Exchange
from proxy.retry.call.machine import Call
from proxy.retry.facts import Outcome, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.policy import Backoff, Strategy
from proxy.retry.policies.routing import Target
from proxy.server.connection import AppConnection
from proxy.transport.connection import Connection
from proxy.transport.replay_buffer import Replay
from proxy.wire.fields import FieldBlock

CALLS, APPS = examples(3_000), 50
PARTS = (Attempt, Exchange, Call, AppConnection, Connection, Replay)
#: So large that neither end is ever met, so that each token can be accounted for.
QUOTA = QuotaSpec(capacity=10_000_000, initial=5_000_000)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FAIL = b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno"
BIG = b"x" * 40_000


class CountingLoop(uvloop.Loop):
    """Knows which timers are still to ring."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: set[asyncio.TimerHandle] = set()

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self._keep(super().call_later, delay, callback, args, context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self._keep(super().call_at, when, callback, args, context)

    def _keep(
        self, schedule: Callable[..., asyncio.TimerHandle], at: float, callback: Any, args: Any, context: Any
    ) -> Any:
        def ring() -> None:
            self.timers.discard(handle)
            callback(*args)

        handle = schedule(at, ring, context=context)
        self.timers.add(handle)
        return handle

    @property
    def pending(self) -> list[asyncio.TimerHandle]:
        return [handle for handle in self.timers if not handle.cancelled()]


class Upstream(asyncio.Protocol):
    """Does to each request what its path says; `seen` counts the sendings of each path."""

    opened: ClassVar[set[Upstream]] = set()
    seen: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.held = b""
        self.opened.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.opened.discard(self)

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n")) >= 0:
            head = self.held[:end].lower()
            at = head.find(b"content-length: ")
            size = int(head[at + 16 :].split(b"\r\n")[0]) if at >= 0 else 0
            if b"transfer-encoding: chunked" in head:
                if self.held.find(b"0\r\n", end + 4) < 0 or not self.held.endswith(b"\r\n\r\n"):
                    return
                size = len(self.held) - end - 4
            if len(self.held) < end + 4 + size and b"/early" not in head and b"/hang" not in head:
                return
            path = self.held.split(b" ", 2)[1].decode()
            self.held = self.held[end + 4 + size :]
            self.answer(path)

    def answer(self, path: str) -> None:
        kind = path.split("/")[1]
        write = self.transport.write
        self.seen[path] += 1
        if kind == "once" and self.seen[path] == 1:
            write(FAIL)
        elif kind in ("always", "early"):
            write(FAIL if kind == "always" else b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
        elif kind == "reset" or (kind == "resetonce" and self.seen[path] == 1):
            self.transport.abort()
        elif kind == "bad":
            write(b"HTTP/2.0 200 OK\r\nX : y\r\n\r\n")
        elif kind == "cut":
            write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
            self.transport.close()
        elif kind == "stream":
            write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            write(chunked(BIG, BIG, trailers=b"X: y\r\n"))
        elif kind == "close":
            write(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
            self.transport.close()
        elif kind == "hints":
            write(b"HTTP/1.1 103 E\r\nLink: x\r\n\r\nHTTP/1.1 100 C\r\n\r\n" + OK)
        elif kind == "stale":
            write(OK)
            self.transport.close()
        elif kind == "switch":
            write(b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello")
        elif kind == "behind":
            write(OK + b"unasked")
        elif kind != "hang":
            write(OK if kind != "head" else OK[:-2])


Make = Callable[..., bytes]
KINDS = (
    *("ok", "ok", "ok", "once", "always", "resetonce", "stream", "close", "hints", "stale", "behind", "reset", "bad"),
)


async def ask(app: App, make: Make, kind: str, method: str = "GET", *fields: str, body: bytes = b"") -> None:
    app.send(make(kind, method, *fields, body=body))
    await app.read(method)


async def one(app: App, make: Make, random: Random) -> bool:
    """One call of a kind that chance chooses; whether the app's connection is still of use."""
    kind = random.choice(KINDS)
    way = random.randrange(20)
    if way < 10:
        await ask(
            app, make, kind, random.choice(("GET", "GET", "POST", "PUT", "DELETE")), body=random.choice((b"", b"hello"))
        )
    elif way == 10:
        body = chunked(b"hello", b"you", trailers=b"X: y\r\n")
        await ask(app, make, kind, "PUT", "Transfer-Encoding: chunked", body=body)
    elif way == 11:
        app.send(make("ok") + make("once") + make("ok"))
        for _ in range(3):
            await app.read()
    elif way == 12:
        await ask(app, make, "head", "HEAD")
    elif way == 13:
        app.send(make(random.choice(("hang", "stream", "once", "always"))))
        return False  # gone without a word
    elif way == 14:
        app.send(make("ok"))
        app.end()
        await app.read()
        return False
    elif way == 15:
        app.send(b"GET / HTTP/1.1\r\nX : y\r\n\r\n")
        assert (await app.read()).status == 400
        return False
    elif way == 16:
        app.send(make("ok", "PUT", "Transfer-Encoding: chunked")[:-2] + b"\r\n5\r\nhello\r\nnonsense\r\n")
        await app.read()
        return False
    elif way == 17:
        app.send(make("early", "POST", "Content-Length: 500000") + b"x" * 1000)
        await app.read()
        return False
    elif way == 18:
        app.send(make("switch", "GET", "Connection: upgrade", "Upgrade: x"))
        assert (await app.read()).status == 101
        await app.reader.readexactly(5)
        app.end()
        return False
    else:
        app.send(make("cut"))
        with contextlib.suppress(CutError):
            await app.read()
        return False
    return True


async def call_after_call(front: Front, authority: str, number: int) -> None:
    """An app that makes its share of the calls, on as many connections as it takes."""
    random = Random(number + first_seed() * APPS)
    left = CALLS // APPS
    count = 0

    def make(kind: str, method: str = "GET", *fields: str, body: bytes = b"") -> bytes:
        nonlocal count, left
        count += 1
        left -= 1
        return request(method, f"http://{authority}/{kind}/{number}/{count}", *fields, body=body, host=authority)

    while left > 0:
        async with front.app() as app:
            with contextlib.suppress(CutError):
                while left > 0 and await one(app, make, random):
                    pass


async def until(settled: Callable[[], bool]) -> None:
    """Let everything happen that is under way already; what is settled stays so. What is left over fails the test."""
    async with asyncio.timeout(60):
        while not settled():  # noqa: ASYNC110  nothing tells that nothing is left
            await asyncio.sleep(0)


def parts() -> Counter[str]:
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, PARTS))


async def mixed_calls(loop: CountingLoop) -> None:
    server = await loop.create_server(Upstream, "127.0.0.1", 0)
    before = parts()
    files = len(os.listdir("/proc/self/fd"))
    await between(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert loop.pending == []
    server.close()
    await server.wait_closed()
    assert parts() == before
    assert len(os.listdir("/proc/self/fd")) <= files


async def between(authority: str) -> None:
    """A proxy's whole life."""
    strategy = Strategy("standard", "standard", 3, Backoff(0.0005, 0.001), QUOTA)
    async with Front(fallback={"strategy": strategy, "bucket": BucketRef(QUOTA)}) as front:
        await asyncio.gather(*(call_after_call(front, authority, number) for number in range(APPS)))
        path = front.path
        await until(lambda: not path.in_flight and not path.acceptor.open)  # the last that went away
        assert len(front.observed.calls) > CALLS * 0.8
        assert set(front.observed.outcomes) >= {
            *(Outcome.SUCCESS, Outcome.ATTEMPTS_EXHAUSTED, Outcome.NOT_RETRYABLE),
            *(Outcome.CLIENT_GONE, Outcome.COMMITTED),
        }
        assert (path.buffered, path.waiting) == (0, 0)
        assert not path.acceptor.dripping
        pool = path.context.pool  # of which a connection may be closing, which nobody uses any more
        await until(lambda: all(connection in connection.origin.idle for connection in pool.connections))
        level_is_accounted_for(front, authority)
        pool.close_idle()
        await until(lambda: not pool.connections and not Upstream.opened)
        assert all(origin.open == 0 for origin in pool._origins.values())


def level_is_accounted_for(front: Front, authority: str) -> None:
    """Each retry that was sent cost 5; a success gave back what its last retry had paid, or 1; nothing else moved."""
    assert QUOTA.initial is not None
    level = QUOTA.initial
    for call in front.observed.calls:
        retries = call["attempts"] - 1
        level -= 5 * max(retries, 0)
        if call["outcome"] is Outcome.SUCCESS:
            level += 5 if retries else 1
    now = asyncio.get_running_loop().time()
    head = FieldBlock(b"\r\n")
    mine = front.path.acceptor.settings.router.unmatched(authority).policy
    bucket = front.path.registry.scope(mine, Request("GET", authority, "/", head), now).bucket
    assert bucket is not None
    assert bucket.level(now) == pytest.approx(level)


def test_nothing_is_left_over() -> None:
    Upstream.seen.clear()
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        runner.run(mixed_calls(loop))


def test_the_accounting_sees_a_leak() -> None:
    """A timer, a call's part: what is kept is counted."""
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)

        async def leak() -> None:
            handle = loop.call_later(60, print)
            assert loop.pending == [handle]
            handle.cancel()
            assert loop.pending == []

        runner.run(leak())
    before = parts()["Replay"]  # a test that ran before in this process may still hold one
    kept = Replay.__new__(Replay)
    assert parts()["Replay"] == before + 1
    del kept
    assert parts()["Replay"] == before
    assert policy("x", Target(())).upstream == "x"
