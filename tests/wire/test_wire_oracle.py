"""Differential fuzz against llhttp (httptools): a message that both complete is the same message.

llhttp is laxer here and stricter there, so that only messages which both accept are compared: method, target, version,
fields, body, and how many bytes the message took, seen as the number of messages in the stream.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import httptools
from wire_mutants import mutated, seeds

from proxy.wire.errors import BadMessage
from proxy.wire.head import RequestHead, ResponseHead
from proxy.wire.http1.body import body_reader
from proxy.wire.http1.parser import RequestParser, ResponseParser

Message = tuple[object, ...]


class Oracle:
    """Collects what httptools tells, message by message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._parser: httptools.HttpRequestParser | httptools.HttpResponseParser

    def on_message_begin(self) -> None:
        self.url = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.ended = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.ended:
            self.fields.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self.ended = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        parser = self._parser
        if isinstance(parser, httptools.HttpRequestParser):
            first: object = (parser.get_method(), self.url)
        else:
            first = parser.get_status_code()
        self.messages.append((first, parser.get_http_version(), self.fields, self.body))


def read_by_llhttp(data: bytes, *, requests: bool) -> list[Message]:
    """The messages that are whole in `data`, up to where it goes wrong."""
    oracle = Oracle()
    oracle._parser = httptools.HttpRequestParser(oracle) if requests else httptools.HttpResponseParser(oracle)
    with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        oracle._parser.feed_data(data)
    return oracle.messages


def read_by_us(data: bytes, *, requests: bool) -> list[Message]:
    """The same by the grammar of `proxy/wire`."""
    parser = RequestParser() if requests else ResponseParser()
    messages: list[Message] = []
    try:
        while (head := parser.feed(data)) is not None:
            fields = head.pairs()
            reader = body_reader(head.body_size if isinstance(head, RequestHead) else head.body_size("GET"))
            body, done, data = reader.feed(parser.leftover()) if reader else (b"", True, parser.leftover())
            if not done:
                break
            line = head.raw.split(b"\r\n", 1)[0].decode("latin-1")
            if isinstance(head, ResponseHead):
                messages.append((head.status, line[5:8], fields, body))
            else:
                messages.append(((head.method.encode(), head.target), line[-3:], fields, body))
            if head.raw.lower().find(b"\nupgrade:") >= 0 or (
                isinstance(head, RequestHead) and head.form == "authority"
            ):
                break
    except BadMessage:
        pass
    return messages


def compare(seed: int, rounds: int) -> int:
    """Compare that many mutants of requests and of answers; how many messages both completed."""
    random = Random(seed)
    asked, told = seeds(random)
    both = 0
    for _ in range(rounds):
        for requests, pool in ((True, asked), (False, told)):
            data = mutated(random.choice(pool), random)
            ours = read_by_us(data, requests=requests)
            theirs = read_by_llhttp(data, requests=requests)
            first = min(len(ours), len(theirs))
            assert ours[:first] == theirs[:first], data
            both += first
    return both


def test_what_both_complete_is_the_same() -> None:
    assert compare(seed=1, rounds=8000) > 1000
