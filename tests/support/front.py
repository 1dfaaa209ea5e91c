"""The proxy port of this process, with policies made by hand, and a raw app to talk to it.

async with Upstream(answer(503), answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front:
    async with front.app() as app:
        reply = await app.ask("GET", "/api/x")
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from support.scripted import Headed

from proxy.config.settings import Address, Buffers, Limits, PoolLimits, Settings
from proxy.observe.call_record import NO_POLICY, CallRecord, Observer
from proxy.retry.facts import Class, FaultKind, Outcome
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Backoff, Policy, Strategy
from proxy.retry.policies.routing import ConnectMode, Endpoint, HostPattern, Router, Target, Upstream
from proxy.retry.scopes.registry import Registry
from proxy.runtime import DataPath
from proxy.server.inherited import bound
from proxy.server.listeners import bind
from proxy.transport.clock import monotonic

QUOTA = QuotaSpec()
FAST = Backoff(0.001, 0.002, jitter="none")
STANDARD = Strategy("standard", "standard", 3, FAST, QUOTA)
AT_ONCE = replace(STANDARD, backoff=Backoff(0.0, 0.0))
NONE = Strategy("none", "none", 1, FAST)
T, H, O = Class.TRANSIENT, Class.THROTTLING, Class.TIMEOUT  # noqa: E741
CLASSIFY = Classify(
    statuses={425: T, 500: T, 502: T, 503: T, 429: H, 408: O, 504: O},
    faults={
        FaultKind.CONNECT_FAILURE: T,
        FaultKind.REFUSED_STREAM: T,
        FaultKind.RESET: T,
        FaultKind.ATTEMPT_TIMEOUT: O,
    },
)


def policy(name: str = "api", target: Target | None = None, **changes: Any) -> Policy:
    """The contract's default policy with a fast backoff, and `changes`."""
    base = Policy(name, "", STANDARD, BucketRef(QUOTA), classify=CLASSIFY, target=target)
    return replace(base, **changes)


def endpoint(url: str) -> Endpoint:
    if url.startswith("unix:"):
        return Endpoint("http", "localhost", 80, unix=url.removeprefix("unix:"))
    place = urlsplit(url)
    scheme: Any = place.scheme
    return Endpoint(
        scheme, place.hostname or "", place.port or (443 if scheme == "https" else 80), place.path.rstrip("/")
    )


def to(
    name: str,
    *urls: str,
    hosts: Iterable[str] = (),
    connect: ConnectMode = "auto",
    target: dict[str, Any] | None = None,
    **changes: Any,
) -> Upstream:
    """An upstream under the prefix /NAME; `changes` go to its policy, `target` to its target."""
    where = Target(tuple(endpoint(url) for url in urls), **(target or {}))
    patterns = []
    for text in hosts:
        host, _, port = text.partition(":")
        patterns.append(HostPattern(host, int(port) if port else None))
    return Upstream(name, name, where, policy(name, where, **changes), connect, f"/{name}", tuple(patterns))


@dataclass
class RecordingObserver(Observer):
    """An observer that keeps what it needs of each call."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[CallRecord] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    stream_errors: list[tuple[str, str]] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    resumes: list[tuple[str, int]] = field(default_factory=list)
    tokens: list[tuple[int, int]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def call_ended(self, call: CallRecord) -> None:
        if call.policy is NO_POLICY:
            self.refusals.append(call)
            return
        names = ("outcome", "status", "attempts", "bytes_in", "bytes_out", "endpoint", "detail", "client")
        seen = {name: getattr(call, name) for name in names}
        seen["history"] = list(call.history)
        seen["resent"] = any(record.decision == "transparent" for record in call.history)
        seen["took"] = call.ended - call.started
        seen["upstream"] = call.policy.upstream
        seen["app"] = call.app
        seen["fallbacks"] = list(call.course.fallbacks)
        self.calls.append(seen)
        self.changed.set()

    def stream_unfinished(self, policy: Policy) -> None:
        self.unfinished.append(policy.upstream)

    def resumed(self, policy: Policy, result: str, size: int) -> None:
        self.resumes.append((result, size))

    def stream_failed(self, policy: Policy, error: str) -> None:
        self.stream_errors.append((policy.upstream, error))

    def tokens_used(self, policy: Policy, prompt: float, output: float, expected: float) -> None:
        self.tokens.append((round(prompt), round(output)))

    def app_repeated(self, policy: Policy) -> None:
        self.repeated.append(policy.upstream)

    def last_calls(self) -> list[CallRecord]:
        return []

    async def until(self, count: int) -> list[dict[str, Any]]:
        """The calls, once so many have ended."""
        while len(self.calls) < count:
            self.changed.clear()
            await self.changed.wait()
        return self.calls

    @property
    def outcomes(self) -> list[Outcome]:
        return [call["outcome"] for call in self.calls]


class Front:
    """A running proxy port on loopback. `path` is the DataPath, `observed` its observer."""

    def __init__(
        self,
        *upstreams: Upstream,
        fallback: dict[str, Any] | None = None,
        listen: Address | None = None,
        target: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        unmatched = Target(**(target or {}))
        last = Upstream(
            "unmatched", "unmatched", unmatched, policy("unmatched", unmatched, **(fallback or {})), "tunnel"
        )
        listen = listen or Address("127.0.0.1", 0)
        values: dict[str, Any] = {
            "file": None,
            "files": (),
            "listen": (listen,),
            "admin": None,
            "probe": None,
            "workers": 1,
            "unmatched": "forward",
            "deny_destinations": (),
            "via_proxy": None,
            "buffers": Buffers(1 << 20, 64 << 20),
            "limits": Limits(65536, 256, 10000, 2000, None),
            "pool": PoolLimits(4.0, 100, 30.0),
            "redis": None,
            "ca": None,
            "log": None,
            "drain": 25.0,
            "router": Router(upstreams, last),
            "buckets": {},
            "provenance": None,
        }
        self.settings = Settings(**{**values, **settings})
        self.listen = listen
        self.observed = RecordingObserver()

    async def __aenter__(self) -> Self:
        self.path = DataPath(asyncio.get_running_loop(), self.settings, self.observed)
        for sock in bind(self.listen, "listen"):
            await self.path.listen(bound(sock), sock)
            self.port: int = bound(sock).port or 80
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.path.close()
        if error is None:
            assert self.path.in_flight == 0
            assert self.path.buffered == 0
            assert self.path.waiting == 0
            assert attempts_counted(self.path.registry) == 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pass_time(self, seconds: float) -> None:
        """Have the calls in progress see to their deadlines and timeouts as if so much more time had passed. What is
        limited is limited generously then, and the test says when the time is out, whatever the machine does meanwhile.
        A backoff that begins with a timeout is counted from its end: without one, a retry goes at once.
        """
        for call in self.calls:
            call.attend(monotonic() + seconds)

    @property
    def calls(self) -> list[Any]:
        """The calls in progress."""
        return [call for connection in self.path.acceptor.open for call in connection.calls()]

    async def head_kept(self) -> None:
        """Wait until the head of an answer has come, and is kept."""
        while not any(attempt.waits for call in self.calls for attempt in call.flights.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)  # no event tells of it

    @contextlib.asynccontextmanager
    async def app(self) -> AsyncIterator[App]:
        """A raw connection."""
        if self.listen.unix is not None:
            reader, writer = await asyncio.open_unix_connection(self.listen.unix)
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield App(reader, writer, f"127.0.0.1:{self.port}")
        finally:
            writer.transport.abort()


def attempts_counted(registry: Registry) -> int:
    """The number of attempts that governors and endpoints count as under way."""
    counts = [
        traffic.flying for governor, _ in registry._places.values() for traffic in governor.lanes.traffics.values()
    ]
    return sum(counts) + sum(load.in_use for load in registry._loads.values())


@dataclass
class Answer(Headed):
    """One answer as it came. `infos` are the interim heads before it."""

    body: bytes = b""
    trailers: bytes = b""
    infos: list[bytes] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.head[9:12])


class CutError(Exception):
    """The connection ended before the answer did; `answer` is what came. `reset`: it did so with a RST."""

    def __init__(self, answer: Answer, *, reset: bool = False) -> None:
        super().__init__(answer)
        self.answer = answer
        self.reset = reset


@dataclass
class App:
    """A raw HTTP/1 client that reads answers by their framing and nothing more."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    authority: str

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, method: str, target: str, *fields: str, body: bytes = b"", version: str = "1.1") -> Answer:
        """Send a request and read its answer."""
        self.send(request(method, target, *fields, body=body, version=version, host=self.authority))
        return await self.read(method)

    async def read(self, method: str = "GET") -> Answer:
        """The next answer."""
        infos = []
        while True:
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise CutError(Answer(self._partial(error))) from None
            answer = Answer(head, infos=infos)
            if 100 <= answer.status < 200 and answer.status != 101:
                infos.append(head)
                continue
            try:
                await self._read_body(answer, method)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                answer.body += self._partial(error)
                raise CutError(answer, reset=isinstance(error, ConnectionError)) from None
            return answer

    def _partial(self, error: Exception) -> bytes:
        """What came before the end. A stream reader keeps what came before a reset from whoever asks for more."""
        return bytes(getattr(error, "partial", b"") or self.reader._buffer)  # type: ignore[attr-defined]

    async def _read_body(self, answer: Answer, method: str) -> None:
        if method == "HEAD" or answer.status in (101, 204, 304) or (method == "CONNECT" and answer.status < 300):
            return
        length = answer.one("content-length")
        if answer.one("transfer-encoding") == "chunked":
            while size := int((await self._line()).split(b";")[0], 16):
                answer.body += await self.reader.readexactly(size)
                assert await self.reader.readexactly(2) == b"\r\n"
            while (line := await self._line()) != b"\r\n":
                answer.trailers += line
        elif length is not None:
            answer.body = await self.reader.readexactly(int(length))
        else:
            answer.body = await self.reader.read(-1)

    async def _line(self) -> bytes:
        return await self.reader.readuntil(b"\r\n")

    async def rest(self) -> bytes:
        """Everything up to the end of the connection; raises ConnectionError on a reset."""
        return await self.reader.read(-1)

    def end(self) -> None:
        """Send no more."""
        self.writer.write_eof()

    def vanish(self) -> None:
        """Go away without a word more: close the socket."""
        self.writer.transport.abort()


def request(
    method: str, target: str, *fields: str, body: bytes = b"", version: str = "1.1", host: str | None = "proxy.test"
) -> bytes:
    """A request; Content-Length where there is a body and no other framing is named."""
    lines = [f"{method} {target} HTTP/{version}"]
    names = [line.split(":")[0].lower() for line in fields]
    if host is not None and "host" not in names:
        lines.append(f"Host: {host}")
    lines += fields
    if body and "transfer-encoding" not in names and "content-length" not in names:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(*parts: bytes, trailers: bytes = b"") -> bytes:
    """Parts as a chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n" + trailers + b"\r\n"
