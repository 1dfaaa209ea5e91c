"""A defect of the proxy ends the call that it came to light in, with an answer, and nothing else.

What fails is put in by hand: each function that translates or passes a message on raises, for one call alone. Another
call shares that call's connections, to the app and to the upstream, and is under way all the while.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
from support.front import App, Front, to
from support.scripted import Upstream, answer

from proxy.forward.attempt import Attempt
from proxy.forward.exchange import Exchange
from proxy.forward.sending import Sender
from proxy.server import http2_stream
from proxy.server.connection import AppConnection
from proxy.server.http2 import Http2Connection
from proxy.server.http2_stream import Http2AppStream
from proxy.transport import http2 as http2_upstream
from proxy.wire.http1.compiled import CORE
from proxy.wire.http1.request import RequestHead
from proxy.wire.http2.frames import INTERNAL_ERROR
from proxy.wire.http2.request import Request2
from proxy.wire.http2.response import Response2

pytestmark = pytest.mark.skipif(CORE == "compiled", reason="compiled classes can't be made to fail")

BAD, STRANGER = "/api/bad", "/api/stranger"


class DefectError(Exception):
    """What the functions under test raise."""


def fields_of(event: Any) -> dict[str, str]:
    return dict(event.headers)


class H2Peer:
    """One end of an HTTP/2 connection, of the h2 library's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool) -> None:
        self.reader, self.writer = reader, writer
        self.wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding="utf-8"))
        self.wire.initiate_connection()
        self.flush()
        self.events: dict[int, list[Any]] = defaultdict(list)

    def flush(self) -> None:
        self.writer.write(self.wire.data_to_send())

    async def read(self) -> list[Any]:
        data = await self.reader.read(65536)
        assert data, "the connection was closed"
        events = self.wire.receive_data(data)
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                self.wire.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.events[getattr(event, "stream_id", 0)].append(event)
        self.flush()
        return events

    def ask(self, path: str, body: bytes | None = None, *, end: bool = True) -> int:
        sid = self.wire.get_next_available_stream_id()
        method = "GET" if body is None else "POST"
        pseudo = [(":method", method), (":scheme", "http"), (":authority", "127.0.0.1"), (":path", path)]
        self.wire.send_headers(sid, pseudo, end_stream=body is None)
        if body is not None:
            self.wire.send_data(sid, body, end_stream=end)
        self.flush()
        return sid

    async def over(self, sid: int) -> int:
        """The status of the answer on a stream, once it is whole; the negative code of its reset."""
        while True:
            status = 0
            for event in self.events[sid]:
                if isinstance(event, h2.events.ResponseReceived):
                    status = int(fields_of(event)[":status"])
                elif isinstance(event, h2.events.StreamReset):
                    return -int(event.error_code)
                elif isinstance(event, h2.events.StreamEnded):
                    return status
            await self.read()


class Shared:
    """An upstream on HTTP/2. A call of the stranger's is answered once `go_on` is set, others once they are whole:
    with a 103, a head, a body and trailers, each in a packet of its own. `connections`: how many there were.
    """

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()  # by the stranger
        self.begun = asyncio.Event()  # a request of another
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._marks = itertools.count()
        self._read: dict[bytes, asyncio.Event] = {}

    async def __aenter__(self) -> Shared:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        peer = H2Peer(reader, writer, client=False)
        paths: dict[int, str] = {}
        with contextlib.suppress(AssertionError, ConnectionError):
            while True:
                for event in await peer.read():
                    if isinstance(event, h2.events.RequestReceived):
                        paths[event.stream_id] = path = fields_of(event)[":path"]
                        (self.asked if "stranger" in path else self.begun).set()
                    elif isinstance(event, h2.events.PingAckReceived):
                        self._read.pop(event.ping_data).set()
                    elif isinstance(event, h2.events.StreamEnded):
                        task = asyncio.create_task(self._answer(peer, event.stream_id, paths[event.stream_id]))
                        self._tasks.add(task)
        writer.close()

    async def _answer(self, peer: H2Peer, sid: int, path: str) -> None:
        if "stranger" in path:
            await self.go_on.wait()
        steps: list[Callable[[], None]] = [
            lambda: peer.wire.send_headers(sid, [(":status", "103"), ("link", "</a>")]),
            lambda: peer.wire.send_headers(sid, [(":status", "200")]),
            lambda: peer.wire.send_data(sid, b"body"),
            lambda: peer.wire.send_headers(sid, [("x-end", "1")], end_stream=True),
        ]
        with contextlib.suppress(h2.exceptions.ProtocolError):  # it may have been reset
            for step in steps:
                step()
                mark = next(self._marks).to_bytes(8)
                read = self._read[mark] = asyncio.Event()
                peer.wire.ping(mark)
                peer.flush()
                await read.wait()  # so that no step comes together with the next


def path_of(thing: Any, *given: Any) -> str:
    """The path of the call that a function was called for."""
    if isinstance(thing, Attempt):
        thing = thing.owner
    if isinstance(thing, Exchange | Sender):
        thing = thing.plan
    head = thing if isinstance(thing, RequestHead) else getattr(thing, "head", None)
    if not isinstance(head, RequestHead):
        head = next(each for each in given if isinstance(each, RequestHead))
    return head.path.decode()


def make_fail(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
    """Have this function raise for the bad call, and do what it does for any other."""
    real = getattr(where, name)

    def failing(*given: Any, **named: Any) -> Any:
        if "bad" in path_of(*given):
            raise DefectError(name)
        return real(*given, **named)

    monkeypatch.setattr(where, name, failing)


@pytest.fixture
def reports() -> Iterator[list[Any]]:
    """What the loop was reported."""
    found: list[Any] = []
    yield found
    assert any(isinstance(each.get("exception"), DefectError) for each in found), found


@contextlib.asynccontextmanager
async def app_of(front: Front) -> AsyncIterator[H2Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    try:
        yield H2Peer(reader, writer, client=True)
    finally:
        writer.transport.abort()


def keep(reports: list[Any]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))


#: What fails, and what the app gets: a status, or a reset where an answer had begun.
FAILING: dict[str, tuple[Any, str, int]] = {
    "translating the request": (http2_upstream, "request_block", 500),
    "an interim answer of the upstream": (Attempt, "on_info", 502),
    "passing it on": (Exchange, "informed", 500),
    "writing it": (Http2AppStream, "inform", 500),
    "the answer's head": (Attempt, "on_head", 502),
    "writing the head": (Http2AppStream, "respond", 500),
    "the answer's body": (Attempt, "on_data", -INTERNAL_ERROR),
    "passing the body on": (Exchange, "forward", -INTERNAL_ERROR),
    "writing the body": (Http2AppStream, "write", -INTERNAL_ERROR),
    "the answer's end": (Exchange, "answer_ended", -INTERNAL_ERROR),
    "writing the end": (Http2AppStream, "finish", -INTERNAL_ERROR),
    "the request's body": (Exchange, "app_data", 500),
    "the request's end": (Exchange, "app_ended", 500),
}


@pytest.mark.parametrize("what", FAILING)
async def test_other_streams_go_on(what: str, reports: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, expected = FAILING[what]
    make_fail(monkeypatch, where, name)
    keep(reports)
    async with (
        asyncio.timeout(60),
        Shared() as upstream,
        Front(to("api", upstream.url, target={"protocol": "http/2"})) as front,
        app_of(front) as app,
    ):
        stranger = app.ask(STRANGER, b"kept")
        await upstream.asked.wait()
        for _ in range(3):
            sid = app.ask(BAD, b"x", end=not what.startswith("the request's"))
            if what.startswith("the request's"):
                await upstream.begun.wait()
                upstream.begun.clear()
                app.wire.send_data(sid, b"y", end_stream=True)
                app.flush()
            assert await app.over(sid) == expected
        upstream.go_on.set()
        assert await app.over(stranger) == 200
        assert await app.over(app.ask("/api/good")) == 200
        assert upstream.connections == 1


@pytest.mark.parametrize(
    ("where", "name"), [(http2_upstream, "request_block"), (Sender, "begin"), (Sender, "_request_for")]
)
async def test_a_call_without_a_connection_does_not_hang(
    where: Any, name: str, reports: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails after a dial fails in a task of its own, which has no caller."""
    make_fail(monkeypatch, where, name)
    keep(reports)
    async with asyncio.timeout(60), Shared() as upstream:
        upstreams = to("api", upstream.url, target={"protocol": "http/2"})
        async with Front(upstreams) as front, app_of(front) as app:
            assert await app.over(app.ask(BAD)) == 500
            assert await app.over(app.ask("/api/good")) == 200


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_request_that_http1_has_no_words_for(
    pooled: bool, reports: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fail(monkeypatch, Request2, "render")
    keep(reports)
    async with (
        asyncio.timeout(60),
        Upstream(*[answer(200, b"ok")] * 5) as upstream,
        Front(to("api", upstream.url, target={"protocol": "http/1.1"})) as front,
        app_of(front) as app,
    ):
        if pooled:
            assert await app.over(app.ask("/api/good")) == 200
        for body in (None, b"x", None):
            assert await app.over(app.ask(BAD, body)) == 500
        assert await app.over(app.ask("/api/good")) == 200
        assert [call["status"] for call in front.observed.calls if call["status"] != 200] == [500] * 3


@pytest.mark.parametrize(("name", "status"), [("inform", 500), ("respond", 500)])
async def test_an_app_of_http1_gets_an_answer(
    name: str, status: int, reports: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fail(monkeypatch, AppConnection, name)
    keep(reports)
    async with (
        asyncio.timeout(60),
        Shared() as upstream,
        Front(to("api", upstream.url, target={"protocol": "http/2"})) as front,
        front.app() as app,
        front.app() as other,
    ):
        other.send(f"GET {STRANGER} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await upstream.asked.wait()
        assert isinstance(app, App)
        assert (await app.ask("GET", BAD)).status == status
        assert (await app.ask("GET", "/api/good")).status == 200
        upstream.go_on.set()
        assert (await other.read()).status == 200
        assert upstream.connections == 1


async def test_an_upstreams_answer_that_http1_has_no_words_for(
    reports: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(reports)
    real = Response2.render

    def failing(self: Response2, **named: Any) -> bytes:
        if self.get(b"link") is not None:
            raise DefectError
        return real(self, **named)

    monkeypatch.setattr(Response2, "render", failing)
    async with (
        asyncio.timeout(60),
        Shared() as upstream,
        Front(to("api", upstream.url, target={"protocol": "http/2"})) as front,
        front.app() as app,
        front.app() as other,
        app_of(front) as third,
    ):
        other.send(f"GET {STRANGER} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await upstream.asked.wait()
        stranger = third.ask(STRANGER, b"kept")
        assert (await app.ask("GET", BAD)).status == 500
        upstream.go_on.set()
        assert (await other.read()).status == 500
        assert await third.over(stranger) == 200
        assert upstream.connections == 1


async def test_a_retried_call_whose_answer_can_not_be_written(
    reports: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a call that was decided about is passed on by another way, and has not begun either."""
    monkeypatch.setattr(http2_stream, "answer_block", lambda *_: (_ for _ in ()).throw(DefectError))
    keep(reports)
    async with (
        asyncio.timeout(60),
        Upstream(answer(503), answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, target={"protocol": "http/1.1"})) as front,
        app_of(front) as app,
    ):
        assert await app.over(app.ask(BAD)) == 500
        assert (front.observed.calls[0]["attempts"], front.observed.calls[0]["status"]) == (2, 500)


async def test_a_request_that_can_not_be_admitted(reports: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    make_fail(monkeypatch, Http2Connection, "admit")
    keep(reports)
    async with (
        asyncio.timeout(60),
        Shared() as upstream,
        Front(to("api", upstream.url, target={"protocol": "http/2"})) as front,
        app_of(front) as app,
    ):
        stranger = app.ask(STRANGER, b"kept")
        await upstream.asked.wait()
        assert await app.over(app.ask(BAD, b"x")) == -INTERNAL_ERROR
        upstream.go_on.set()
        assert await app.over(stranger) == 200
