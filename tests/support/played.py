"""Answers as data, which an upstream of HTTP/1 or HTTP/2 plays in turn, and an app of either protocol that asks.

async with playing(2, Played(body=b"half", come=2, then="breaks"), Played(body=b"half")) as upstream:
    ...
    reply = await asked(front, 1, "GET", "/api/x")

The last answer repeats. A function in place of an answer gets the request, and returns the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
from support.front import Answer, CutError, Front, chunked
from support.scripted import Received, Step, Turn, Upstream, answer

Protocol = Literal[1, 2]


@dataclass(frozen=True)
class Played:
    """An answer. `fields` are lines; `sized`: it names its length; `come`: so many bytes of its body come, None for
    all; `then`: it ends there, or its connection or stream breaks, or stalls until the proxy goes; "waits": it stalls
    until the test sets `Playing.broken`, and breaks then; "silent": nothing of it comes at all.
    """

    body: bytes = b""
    fields: tuple[str, ...] = ()
    status: int = 200
    sized: bool = True
    come: int | None = None
    then: Literal["ends", "breaks", "stalls", "waits", "silent"] = "ends"

    @property
    def coming(self) -> bytes:
        return self.body if self.come is None else self.body[: self.come]


Script = Played | Callable[[Received], Played]


@dataclass
class Playing:
    """An upstream that plays. `stalled` is set while an answer stalls; `broken` breaks one that waits for it."""

    url: str
    requests: list[Received]
    stalled: asyncio.Event = field(default_factory=asyncio.Event)
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    plays: list[Script] = field(default_factory=list)
    _next: int = 0

    def play(self, request: Received) -> Played:
        script = self.plays[min(self._next, len(self.plays) - 1)]
        self._next += 1
        return script if isinstance(script, Played) else script(request)


@contextlib.asynccontextmanager
async def playing(protocol: Protocol, *plays: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Playing]:
    """An upstream of this protocol on loopback."""
    ours = Playing("", [], plays=list(plays))
    if protocol == 1:
        async with Upstream(_step(ours), tls=tls) as upstream:
            ours.url, ours.requests = upstream.url, upstream.requests
            yield ours
        return
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    server = await asyncio.start_server(lambda *both: _serve(ours, *both), "127.0.0.1", 0, ssl=tls)
    ours.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield ours
    finally:
        server.close()


def _step(ours: Playing) -> Step:
    async def step(turn: Turn) -> None:
        await turn.read_body()
        played = ours.play(turn.request)
        if played.then == "silent":
            await turn.gone()
            return
        if played.sized:
            head = answer(played.status, b"", *played.fields, length=False)[:-2]
            data = head + b"Content-Length: %d\r\n\r\n" % len(played.body) + played.coming
        else:
            data = answer(played.status, b"", *played.fields, "Transfer-Encoding: chunked", length=False)
            data += chunked(played.coming)[:-5] if played.coming else b""
            data += b"0\r\n\r\n" if played.then == "ends" else b""
        await turn.write(data)
        if played.then == "breaks" or (played.sized and played.coming != played.body and played.then == "ends"):
            turn.close()
        elif played.then == "stalls":
            ours.stalled.set()
            await turn.gone()
        elif played.then == "waits":
            ours.stalled.set()
            await ours.broken.wait()
            turn.close()

    return step


class Peer:
    """One side of a connection of HTTP/2, as the library h2 has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool) -> None:
        self.reader, self.writer = reader, writer
        settings = h2.config.H2Configuration(client_side=client, header_encoding="latin-1")
        self.wire = h2.connection.H2Connection(settings)
        self.moved = asyncio.Condition()
        self.wire.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.writer.write(self.wire.data_to_send())

    async def read(self) -> list[Any]:
        """The next events; raises ConnectionError at the connection's end."""
        data = await self.reader.read(65536)
        if not data:
            raise ConnectionError("the connection has ended")
        events = self.wire.receive_data(data)
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                self.wire.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.flush()
        async with self.moved:
            self.moved.notify_all()
        return list(events)

    async def write(self, sid: int, data: bytes) -> None:
        """Send data, as the peer's windows allow."""
        while data:
            room = min(self.wire.local_flow_control_window(sid), self.wire.max_outbound_frame_size)
            if room <= 0:
                async with self.moved:
                    await self.moved.wait()
                continue
            self.wire.send_data(sid, data[:room])
            data = data[room:]
            self.flush()


def _serve(ours: Playing, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    return _converse(ours, Peer(reader, writer, client=False))


async def _converse(ours: Playing, peer: Peer) -> None:
    requests: dict[int, Received] = {}
    tasks: dict[int, asyncio.Task[None]] = {}
    try:
        while True:
            for event in await peer.read():
                sid = getattr(event, "stream_id", None) or 0
                if isinstance(event, h2.events.RequestReceived):
                    requests[sid] = _received(event.headers)
                    ours.requests.append(requests[sid])
                elif isinstance(event, h2.events.DataReceived):
                    requests[sid].body += event.data
                elif isinstance(event, h2.events.StreamReset) and sid in tasks:
                    tasks[sid].cancel()
                if isinstance(event, h2.events.StreamEnded):
                    tasks[sid] = asyncio.create_task(_answer(ours, peer, sid, requests[sid]))
    except ConnectionError:
        peer.writer.close()
    finally:
        for task in tasks.values():
            task.cancel()


def _received(headers: Any) -> Received:
    pairs = [(str(name), str(value)) for name, value in headers]
    named = dict(pairs)
    lines = [f"{named[':method']} {named.get(':path', '')} HTTP/2.0"]
    lines += [f"{name}: {value}" for name, value in pairs if not name.startswith(":")]
    return Received("\r\n".join([*lines, "", ""]).encode("latin-1"), 0)


async def _answer(ours: Playing, peer: Peer, sid: int, request: Received) -> None:
    played = ours.play(request)
    if played.then == "silent":
        return
    pairs = [(":status", str(played.status))]
    for line in played.fields:
        name, _, value = line.partition(":")
        pairs.append((name.lower(), value.strip()))
    if played.sized:
        pairs.append(("content-length", str(len(played.body))))
    with contextlib.suppress(h2.exceptions.ProtocolError):  # the proxy may have reset it
        peer.wire.send_headers(sid, pairs)
        peer.flush()
        await peer.write(sid, played.coming)
        if played.then == "ends":
            peer.wire.end_stream(sid)
        elif played.then == "stalls":
            ours.stalled.set()
        else:
            if played.then == "waits":
                ours.stalled.set()
                await ours.broken.wait()
            peer.wire.reset_stream(sid, h2.errors.ErrorCodes.INTERNAL_ERROR)
        peer.flush()


async def asked(
    front: Front, protocol: Protocol, method: str, path: str, *fields: str, body: bytes = b""
) -> Answer | CutError:
    """The answer to an app of this protocol; `CutError` if it broke off."""
    if protocol == 1:
        async with front.app() as app:
            try:
                return await app.ask(method, path, *fields, body=body)
            except CutError as cut:
                return cut
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    peer = Peer(reader, writer, client=True)
    try:
        pseudo = [(":method", method), (":scheme", "http"), (":authority", f"127.0.0.1:{front.port}"), (":path", path)]
        pairs = [(line.partition(":")[0].lower(), line.partition(":")[2].strip()) for line in fields]
        sid = peer.wire.get_next_available_stream_id()
        peer.wire.send_headers(sid, [*pseudo, *pairs], end_stream=not body)
        if body:
            peer.wire.send_data(sid, body, end_stream=True)
        peer.flush()
        return await _answered(peer)
    finally:
        writer.transport.abort()


async def _answered(peer: Peer) -> Answer | CutError:
    answer = Answer(b"")
    while True:
        for event in await peer.read():
            if isinstance(event, h2.events.ResponseReceived):
                lines = ["HTTP/2.0 " + str(dict(event.headers)[":status"])]
                lines += [f"{name}: {value}" for name, value in event.headers if not str(name).startswith(":")]
                answer.head = "\r\n".join([*lines, "", ""]).encode("latin-1")
            elif isinstance(event, h2.events.DataReceived):
                answer.body += event.data
            elif isinstance(event, h2.events.StreamReset):
                return CutError(answer, reset=True)
            elif isinstance(event, h2.events.StreamEnded):
                return answer
