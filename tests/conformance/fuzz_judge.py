"""Plays a case of the fuzzer, and judges it by the rules that `fuzz_protocols` names."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import httptools
from memory_wire import EOF, Stage
from strict_reader import Malformed, Read, read_answer, read_requests

from proxy.wire.errors import BadMessage
from proxy.wire.http1.body import body_reader
from proxy.wire.http1.parser import RequestParser


@dataclass(frozen=True)
class Case:
    """`app`: the app's bytes; `answers`: (bytes, EOF | RESET | "") for each request that arrives upstream, in order.

    `cuts`: the seed of how all of it is cut into packets, and of when the app does not read.
    """

    app: bytes
    answers: tuple[tuple[bytes, str], ...] = ()
    cuts: int = 0


def packets(data: bytes, random: Random) -> list[bytes]:
    """Cut it: seldom octet by octet, often not at all."""
    if not data:
        return []
    if random.random() < 0.4:
        return [data]
    if random.random() < 0.1 and len(data) < 3000:
        return [bytes([octet]) for octet in data]
    places = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(1, 5)))
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    return [piece for piece in pieces if piece]


class Find(AssertionError):  # noqa: N818 - what it is called here
    """A case that breaks a rule."""


async def play(stage: Stage, case: Case) -> None:
    """Play a case, and judge it."""
    random = Random(case.cuts)
    stage.fars.clear()
    stage.errors.clear()
    stage.script.clear()
    for data, end in case.answers:
        stage.script.append((packets(data, random), end))
    app = stage.app()
    connection = app.protocol
    app.coming.extend(packets(case.app, random))
    for _ in range(100_000):
        if random.random() < 0.05:
            connection.pause_writing()
            await stage.settle()
            if not app.lost:
                connection.resume_writing()
        if not app.deliver():
            await stage.settle()
            if not app.deliver():
                break
        await stage.settle()
    judge(stage, case, app)
    await finish(stage, app)


def understood(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """The requests that the grammar finds in what the app said: method, target, body as far as it came."""
    parser = RequestParser()
    found = []
    with suppress(BadMessage):
        while (head := parser.feed(data)) is not None:
            reader = body_reader(head.body_size)
            body, done, data = reader.feed(parser.leftover()) if reader else (b"", True, parser.leftover())
            found.append((head.method.encode(), head.target, body))
            if not done or head.form == "authority":
                break
    return found


async def finish(stage: Stage, app: Any) -> None:
    """Everybody leaves: nothing may be left over."""
    stage.script.clear()
    ended: set[int] = set()
    while any(not far.wire.closing for far in stage.fars):
        for far in stage.fars:
            if far.wire.paused or id(far) in ended:  # nothing is read for an app that does not; a tunnel has two ends
                far.wire._close(None)
            ended.add(id(far))
            if not far.wire.closing:
                far.wire.coming.append(EOF)
        await stage.settle()
    app.coming.clear()
    app.paused = False
    app.coming.append(EOF)
    app.deliver()
    await stage.settle()
    app._close(None)
    await stage.settle()
    path = stage.path
    left = {
        "calls": path.in_flight, "buffered": path.buffered, "waiting": path.waiting,
        "connections": len(path.acceptor.open),
        "dripping": sum(not c.dripping for c in path.acceptor.dripping), "errors": stage.errors[:1],
        "upstream": [far.wire for far in stage.fars if not far.wire.lost],
    }  # fmt: skip
    if any(left.values()):
        raise Find(f"left over: {left}")


def judge(stage: Stage, case: Case, app: Any) -> None:
    """The rules, once everything has settled and before anybody leaves."""
    if stage.errors:
        raise Find(f"raised: {stage.errors[0]!r}")
    asked = understood(case.app)
    forwarded = judge_forwarded(stage, asked)
    judge_given(stage, case, app, [method for method, _, _ in asked])
    for far in stage.fars:
        if far.wire.protocol in far.wire.protocol.origin.idle and far.wire.paused:
            raise Find("a connection rests paused")
    connection = app.protocol
    waits = any(far.answered > len(far.said) or far.wire.coming for far in stage.fars)
    if connection.exchange is not None and not waits and connection._body is None and not connection._tunnel:
        script_over = any(far.said and not far.said[-1][1] for far in stage.fars)  # an answer that never ends
        if not script_over:
            raise Find(f"a call hangs: forwarded {forwarded}")


def judge_forwarded(stage: Stage, asked: list[tuple[bytes, bytes, bytes]]) -> list[Read]:
    """What went upstream, by two readers, is what the app said."""
    every = []
    for far in stage.fars:
        data = bytes(far.wire.out)
        if not data or far.wire.protocol._tunnel:
            continue
        requests = read_requests(data)
        mine = [(r.line[0], r.line[1], r.body) for r in requests if r.whole]
        # llhttp takes an upgrade for whole with its head, whatever it says of a body.
        others = [] if any(r.all(b"upgrade") for r in requests) else by_llhttp(data, requests=True)
        if others != mine[: len(others)]:
            raise Find(f"two readers disagree on what was forwarded: {mine} and {others}")
        every += requests
    first = [r for r in every if r.all(b"x-attempt-count") == [b"1"]]
    at = 0
    # Stale connections repeat a request under the same count, so the order is that of a subsequence with repeats.
    for request in sorted(first, key=lambda r: find_index(asked, r, 0)):
        at = find_index(asked, request, 0)
        if at < 0 and request.whole:
            raise Find(f"forwarded what nobody asked: {request} of {asked}")
    return every


def find_index(asked: list[tuple[bytes, bytes, bytes]], request: Read, start: int) -> int:
    """Which of the app's requests this is, -1 for none."""
    sought = (request.line[0], request.line[1], request.body)
    for index in range(start, len(asked)):
        method, target, body = asked[index]
        if (method, sent_as(method, target), body) == sought:
            return index
    return -1


def sent_as(method: bytes, target: bytes) -> bytes:
    """The origin form of a target (RFC 9112 section 3.2)."""
    if target[:1] in (b"/", b"*"):
        return target
    rest = target.partition(b"://")[2]
    places = [place for place in (rest.find(b"/"), rest.find(b"?")) if place >= 0]
    if not places:
        return b"*" if method == b"OPTIONS" else b"/"
    path = rest[min(places) :]
    return path if path.startswith(b"/") else b"/" + path


def judge_given(stage: Stage, case: Case, app: Any, methods: list[bytes]) -> None:
    """What the app got is well-formed, in order, and whole only where the upstream's answer was."""
    data = bytes(app.out)
    ended = app.lost and not app.aborted
    whole = [
        whole_answer(raw, end, method)
        for far in stage.fars
        for (raw, end), method in zip(far.said, far.methods, strict=False)
    ]
    count = 0
    while data:
        method = methods[count] if count < len(methods) else b"GET"
        try:
            answer, data = read_answer(data, method, ended=ended)
        except Malformed as bad:
            raise Find(f"the app was given {bad!r}: {bytes(app.out)!r}") from None
        if answer is None or answer.tunnel:
            return
        count += 1
        if count > len(methods) + 1:
            raise Find("more answers than requests")
        counted = answer.all(b"x-attempt-count")
        if len(counted) != 1:
            raise Find(f"no count: {answer}")
        own = any(b"error=" in value for value in answer.all(b"proxy-status")) or counted == [b"0"]
        if own or not answer.whole:
            continue
        if (answer.line[1], answer.body) not in whole:
            raise Find(f"it looks whole and was not: {answer} of {whole}")


def whole_answer(raw: bytes, end: str, method: bytes) -> tuple[bytes, bytes] | None:
    """Status and body of an upstream's answer if it was whole."""
    with suppress(Malformed):
        answer, _ = read_answer(raw, method, ended=end == EOF)
        if answer is not None and answer.whole:
            return answer.line[1], b"" if answer.tunnel else answer.body
    return None


class _Collector:
    def __init__(self, requests: bool) -> None:
        self.done: list[tuple[bytes, bytes, bytes]] = []
        self.parser: Any = httptools.HttpRequestParser(self) if requests else httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        self.url = self.body = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.done.append((self.parser.get_method(), self.url, self.body))


def by_llhttp(data: bytes, *, requests: bool) -> list[tuple[bytes, bytes, bytes]]:
    collector = _Collector(requests)
    with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        collector.parser.feed_data(data)
    return collector.done
