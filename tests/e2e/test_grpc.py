"""Unmodified grpcio through the running command: a changed target is all that it takes."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.grpc_peer import OPTIONS, GrpcServer
from support.ports import free_port
from support.process import Redrive
from support.scripted import Upstream, answer

POLICY = """
defaults: {{strategy: {{kind: grpc, backoff: {{base: 20ms, max: 50ms}}}}, dialects: [grpc], attempt_headers: [grpc]}}
upstreams:
  greeter: {{url: "http://127.0.0.1:{port}", hosts: [greeter.test]}}
"""


class App:
    """A channel to the sidecar, for calls of acme.Echo. What blocks is done in a thread."""

    def __init__(self, redrive: Redrive, *, authority: str = "greeter.test", by_proxy: bool = False) -> None:
        self.redrive = redrive
        if by_proxy:  # what `http_proxy` does
            target, option = authority, ("grpc.http_proxy", redrive.url)
        else:
            target, option = redrive.authority, ("grpc.default_authority", authority)
        self.channel = grpc.insecure_channel(target, options=[*OPTIONS, option])

    def echo(self, request: bytes = b"hello", *, timeout: float = 10, **metadata: Any) -> Any:
        """A unary call: (answer, call)."""
        pairs = tuple((name, value if isinstance(value, bytes) else str(value)) for name, value in metadata.items())
        return self.channel.unary_unary("/acme.Echo/echo").with_call(request, timeout=timeout, metadata=pairs)


@pytest.fixture
def server() -> Iterator[GrpcServer]:
    with GrpcServer() as running:
        yield running


@pytest.fixture
async def app(server: GrpcServer, tmp_path: Path) -> AsyncIterator[App]:
    async with Redrive(tmp_path, POLICY.format(port=server.port)) as redrive:
        app = App(redrive)
        try:
            yield app
        finally:
            await asyncio.to_thread(app.channel.close)


async def failure(work: Callable[[], Any]) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        await asyncio.to_thread(work)
    return caught.value


async def test_a_unary_call_and_its_metadata(app: App, server: GrpcServer) -> None:
    reply, call = await asyncio.to_thread(lambda: app.echo(key="a", **{"some-bin": b"\x00\xff\x80,"}))
    assert reply == b"hello"
    trailing = dict(call.trailing_metadata())
    assert trailing["back-bin"] == b"\x00\xff" + bytes(range(10)) and trailing["seen"] == "1"
    assert dict(call.initial_metadata())["x-attempt-count"] == "1"
    (seen,) = server.seen("a")
    assert seen["some-bin"] == b"\x00\xff\x80,"
    assert seen["x-attempt-count"] == "1" and "grpc-previous-rpc-attempts" not in seen
    assert str(seen["via"]).startswith("2.0 ")


async def test_white_space_around_metadata_and_messages_passes(app: App, server: GrpcServer) -> None:
    """Against RFC 9113, 8.2.1: C-core sends it as its application wrote it, and takes it from a peer."""
    error = await failure(lambda: app.echo(key="w", fail=1, say=" failed: ", padded=" v ", **{"with": "NOT_FOUND"}))
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, " failed: ")
    assert [each["padded"] for each in server.seen("w")] == [" v "]


async def test_unavailable_is_retried(app: App, server: GrpcServer) -> None:
    reply, call = await asyncio.to_thread(lambda: app.echo(key="a", fail=2))
    assert reply == b"hello" and dict(call.trailing_metadata())["seen"] == "3"
    assert dict(call.initial_metadata())["grpc-previous-rpc-attempts"] == "2"
    assert [each["x-attempt-count"] for each in server.seen("a")] == ["1", "2", "3"]
    assert [each.get("grpc-previous-rpc-attempts") for each in server.seen("a")] == [None, "1", "2"]
    line = await app.redrive.call()
    assert (line["attempts"], line["outcome"]) == (3, "success")


async def test_given_up_after_the_policys_attempts(app: App, server: GrpcServer) -> None:
    error = await failure(lambda: app.echo(key="a", fail=9))
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "attempt 4 ∞")
    assert len(server.seen("a")) == 4
    assert dict(error.trailing_metadata())["grpc-retry-pushback-ms"] == "-1"


@pytest.mark.parametrize(
    ("steering", "attempts"),
    [
        ({"with": "INVALID_ARGUMENT"}, 1),
        ({"late": "1"}, 1),  # its head has committed the call
        ({"pushback": "-1"}, 1),
        ({"pushback": "5"}, 4),
    ],
    ids=["another status", "late", "do not retry", "soon"],
)
async def test_what_is_retried(app: App, server: GrpcServer, steering: dict[str, str], attempts: int) -> None:
    error = await failure(lambda: app.echo(key="a", fail=9, **steering))
    assert error.code() is grpc.StatusCode[steering.get("with", "UNAVAILABLE")]
    assert len(server.seen("a")) == attempts


async def test_all_kinds_of_streams(app: App, server: GrpcServer) -> None:
    fails = (("key", "a"), ("fail", "2"))
    count = app.channel.unary_stream("/acme.Echo/count")
    assert await asyncio.to_thread(lambda: list(count(b"4 0", metadata=fails, timeout=10))) == [b"0", b"1", b"2", b"3"]
    join = app.channel.stream_unary("/acme.Echo/join")
    fails = (("key", "b"), ("fail", "2"))
    assert await asyncio.to_thread(lambda: join(iter([b"x", b"y", b"z"]), metadata=fails, timeout=10)) == b"x,y,z"
    chat = app.channel.stream_stream("/acme.Echo/chat")
    fails = (("key", "c"), ("fail", "2"))
    said: queue.Queue[bytes | None] = queue.Queue()

    def converse() -> list[bytes]:
        replies = chat(iter(said.get, None), metadata=fails, timeout=10)
        heard = []
        for word in (b"a", b"b", b"c"):  # the next word only once the one before was answered
            said.put(word)
            heard.append(next(replies))
        said.put(None)
        return [*heard, *replies]

    assert await asyncio.to_thread(converse) == [b"<a>", b"<b>", b"<c>"]
    assert [len(server.seen(key)) for key in "abc"] == [3, 3, 3]


async def test_a_deadline_ends_waiting_and_shrinks(app: App, server: GrpcServer) -> None:
    wait = app.channel.unary_unary("/acme.Echo/wait")
    for deadline in (0.3, 3, 30):  # on a busy machine a call may not reach the server within the first
        error = await failure(partial(wait, b"", timeout=deadline))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if await asyncio.to_thread(partial(server.cancelled.wait, 10)):
            break
    assert server.cancelled.is_set()
    await asyncio.to_thread(lambda: app.echo(key="a", fail=2, pushback="300"))
    # grpcio hides grpc-timeout from handlers: what is left shows in the log's second attempt alone.
    assert len(server.seen("a")) == 3


RECV_TIMEOUT = """
upstreams:
  greeter:
    url: "http://127.0.0.1:{port}"
    hosts: [greeter.test]
    service_config:
      methodConfig:
        - name: [{{service: acme.Echo, method: echo}}]
          retryPolicy:
            {{maxAttempts: 5, initialBackoff: 0.02s, maxBackoff: 1s, backoffMultiplier: 1, perAttemptRecvTimeout: 0.5s}}
"""


async def test_an_attempt_that_its_recv_timeout_ended_is_retried(server: GrpcServer, tmp_path: Path) -> None:
    async with Redrive(tmp_path, RECV_TIMEOUT.format(port=server.port)) as redrive:
        app = App(redrive)
        error = await failure(lambda: app.echo(key="last", silent=5, timeout=60))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        line = await redrive.call()
        ends = [(each["fault"], each["decision"]) for each in line["history"]]
        assert ends == [("attempt_timeout", "retried")] * 4 + [("attempt_timeout", "attempts_exhausted")]
        assert len(server.seen("last")) == 5
        assert (await asyncio.to_thread(lambda: app.echo(key="one", silent=1, timeout=60)))[0] == b"hello"
        assert len(server.seen("one")) >= 2  # more on a machine that takes longer than half a second to answer
        await asyncio.to_thread(app.channel.close)


async def test_a_cancelled_call_is_cancelled_upstream(app: App, server: GrpcServer) -> None:
    call = app.channel.unary_unary("/acme.Echo/wait").future(b"", metadata=(("key", "a"),), timeout=20)
    await asyncio.to_thread(lambda: server.wait_for("a"))
    call.cancel()
    assert await asyncio.to_thread(lambda: server.cancelled.wait(10))
    assert (await app.redrive.call())["outcome"] == "client_gone"


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_messages_of_20_megabytes(app: App, compression: grpc.Compression) -> None:
    message = bytes(range(256)) * 4096 * 20
    call = app.channel.unary_unary("/acme.Echo/echo")
    assert await asyncio.to_thread(lambda: call(message, timeout=60, compression=compression)) == message


async def test_a_large_stream_and_a_slow_reader_beside_others(app: App) -> None:
    count = app.channel.unary_stream("/acme.Echo/count")

    def read_slowly() -> int:
        replies = count(b"200 100000", timeout=60)
        size = len(next(replies))
        for number in range(20):  # the others go on while this one stands still
            assert app.echo(b"%d" % number)[0] == b"%d" % number
        return size + sum(map(len, replies))

    assert await asyncio.to_thread(read_slowly) == 200 * 100_000 + 10 + 90 * 2 + 100 * 3


async def test_many_calls_at_once_share_a_connection(app: App, server: GrpcServer) -> None:
    def all_of_them() -> list[bytes]:
        call = app.channel.unary_unary("/acme.Echo/echo")
        flying = [call.future(b"%d" % number, timeout=20, metadata=(("key", str(number)),)) for number in range(100)]
        return [each.result() for each in flying]

    assert await asyncio.to_thread(all_of_them) == [b"%d" % number for number in range(100)]


async def test_an_upstream_that_is_not_there(tmp_path: Path) -> None:
    async with Redrive(tmp_path, POLICY.format(port=free_port())) as redrive:
        app = App(redrive)
        error = await failure(app.echo)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert (await redrive.call())["attempts"] == 4
        await asyncio.to_thread(app.channel.close)


async def test_an_upstream_that_speaks_something_else(tmp_path: Path) -> None:
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, POLICY.format(port=upstream.port)) as redrive,
    ):
        app = App(redrive)
        error = await failure(app.echo)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        line = await redrive.call()
        assert {each["fault"] for each in line["history"]} == {"connect_failure"}
        await asyncio.to_thread(app.channel.close)


async def test_a_name_that_no_upstream_has(app: App) -> None:
    stranger = App(app.redrive, authority="127.0.0.1:1")
    error = await failure(stranger.echo)
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED  # 404
    await asyncio.to_thread(stranger.channel.close)


async def test_a_channel_that_finds_the_proxy_by_a_variable(app: App, server: GrpcServer) -> None:
    other = App(app.redrive, authority="greeter.test:80", by_proxy=True)
    reply, call = await asyncio.to_thread(lambda: other.echo(key="a", fail=2))
    assert reply == b"hello" and dict(call.trailing_metadata())["seen"] == "3"
    assert [each["x-attempt-count"] for each in server.seen("a")] == ["1", "2", "3"]
    await asyncio.to_thread(other.channel.close)


async def test_a_server_that_goes_away_and_another_in_its_place(tmp_path: Path) -> None:
    with GrpcServer() as first:
        policy = POLICY.format(port=first.port).replace("attempt_headers:", "outage: fail, attempt_headers:")
        async with Redrive(tmp_path, policy) as redrive:
            app = App(redrive)
            await asyncio.to_thread(app.echo)
            waiting = app.channel.unary_unary("/acme.Echo/wait").future(b"", metadata=(("key", "w"),), timeout=20)
            await asyncio.to_thread(lambda: first.wait_for("w"))
            first.stop(0.2)  # GOAWAY, and then the call that waits is cut
            error = await failure(waiting.result)
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            await asyncio.to_thread(app.channel.close)


async def test_draining_loses_no_call(app: App, server: GrpcServer) -> None:
    import signal

    chat = app.channel.stream_stream("/acme.Echo/chat")
    said: queue.Queue[bytes | None] = queue.Queue()
    replies = chat(iter(said.get, None), timeout=20)
    said.put(b"a")
    assert await asyncio.to_thread(lambda: next(replies)) == b"<a>"
    app.redrive.signal(signal.SIGTERM)
    assert await app.redrive.line(lambda line: line["event"] == "draining") is not None
    said.put(b"b")
    assert await asyncio.to_thread(lambda: next(replies)) == b"<b>"
    said.put(None)
    assert await asyncio.to_thread(lambda: list(replies)) == []
    assert await app.redrive.ended() == 0
