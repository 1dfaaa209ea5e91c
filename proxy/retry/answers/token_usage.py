"""The number of a language model's tokens that an answer says that it cost (contract, section 16, "Settled").

The answer goes to the app as it came; a `UsageReader` reads it as it passes. In a stream of events the last event with
a number counts, because providers report running totals. In JSON the numbers are often at the end of a long document:
if a body is too long to be kept whole, its end is searched for the member that has the numbers. If the answer has no
numbers, the output is estimated by its text.

Law: the memory is bounded by KEPT bytes of a body and one event; a content coding other than gzip and deflate is not
read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proxy.retry.answers.content_coding import DECODED, READABLE, Decoder, coding_of_reply
from proxy.retry.answers.event_stream import SseReader, is_event_stream
from proxy.retry.answers.json_paths import values_at, whole_number
from proxy.retry.answers.stream_errors import StreamWatch
from proxy.retry.facts import Reply
from proxy.retry.policies.bucket_specs import JsonPath, TokenRules, UsageFields

#: The most bytes of a body's end that are kept to be searched.
KEPT = 64 * 1024


@dataclass(slots=True)
class TokenUsage:
    """The tokens that an answer cost: those of the `prompt` and of the `output`, each None if the answer does not say.
    `text`: the number of bytes in the output's text, None if the text can't be read. `whole`: the answer came to its
    end.
    """

    prompt: float | None = None
    output: float | None = None
    text: int | None = None
    whole: bool = False


class UsageReader:
    """A reader of one answer's body, which finds how many tokens of a language model the call cost. `watch`: the
    `StreamWatch` that reads the same bytes for errors and for the stream's end, None for none; `feed` and `unfinished`
    return its findings.
    """

    __slots__ = ("_decoder", "_events", "_fields", "_readable", "_tail", "_text", "_usage", "_whole", "watch")

    def __init__(self, rules: TokenRules, reply: Reply, watch: StreamWatch | None = None) -> None:
        coding = coding_of_reply(reply)
        self.watch = watch
        self._fields = rules.fields
        self._readable = coding in READABLE
        self._decoder = Decoder(coding) if coding and self._readable else None
        self._events = SseReader() if is_event_stream(reply) else None
        self._usage = TokenUsage()
        self._text = 0
        self._tail = b""
        self._whole = True  # the tail is the whole body

    @property
    def unfinished(self) -> bool:
        """Whether the stream, if it ends now, lacks its last event, as `watch` has found; False without a `watch`."""
        return self.watch is not None and self.watch.unfinished

    def feed(self, data: bytes) -> list[str]:
        """Take `data`, the next bytes of the answer's body. Returns the names of the rules that find errors in them
        (`StreamWatch.feed`).
        """
        found = [] if self.watch is None else self.watch.feed(data)
        if not self._readable:
            return found
        if self._decoder is not None:
            data = self._decoder.feed(data, 16 * DECODED)
            self._readable = not self._decoder.over
        if self._events is not None:
            for event in self._events.feed(data):
                self._read(event.data)
        else:
            self._tail += data
            if len(self._tail) > 2 * KEPT:
                self._tail, self._whole = self._tail[-KEPT:], False
        return found

    def _read(self, data: bytes) -> None:
        """Record the numbers of tokens, and the size of the output's text, from the data of one event (`data`), if that
        is a JSON object. Other data is ignored.
        """
        if not data.startswith(b"{"):
            return
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return
        self._learn(document)
        self._text += _text_of(self._fields, document)

    def _learn(self, document: Any) -> None:
        """Record the numbers of tokens in a JSON document."""
        usage = self._usage
        for fields in self._fields:
            prompt, output = _sum(document, fields.prompt), _sum(document, fields.output)
            if prompt is not None:
                usage.prompt = max(0.0, prompt - (_sum(document, fields.prompt_free) or 0.0))
            if output is not None:
                usage.output = output

    def ended(self, *, whole: bool) -> TokenUsage:
        """The tokens that the answer cost, according to the bytes that have come. `whole`: the body has come to its
        end.
        """
        usage = self._usage
        if self._events is None and self._readable:
            self._read_tail()
        usage.text, usage.whole = self._text if whole and self._readable else None, whole
        return usage

    def _read_tail(self) -> None:
        """Record the numbers of tokens in a body that is no stream of events, or in its end if the body was too long to
        be kept.
        """
        tail, self._tail = self._tail, b""
        if self._whole:
            try:
                document = json.loads(tail)
            except (ValueError, RecursionError):
                self._readable = False
                return
            documents = document if isinstance(document, list) else [document]
            for each in documents:  # Gemini's stream without SSE is a list
                self._learn(each)
                self._text += _text_of(self._fields, each)
            self._readable = any(True for fields in self._fields for path in fields.text for _ in _at(documents, path))
            return
        self._readable = False
        for fields in self._fields:
            for name in {path[0] for path in (*fields.prompt, *fields.output)}:
                part = _last_member(tail, name)
                if part is not None:
                    self._learn({name: part})


def _at(documents: Iterable[Any], path: JsonPath) -> Iterable[Any]:
    for each in documents:
        yield from values_at(each, path)


def _last_member(text: bytes, name: str) -> Any:
    """The value of the last member with this name in `text`, the end of a JSON text; None if it can't be read."""
    mark = json.dumps(name).encode()
    at = text.rfind(mark)
    if at < 0:
        return None
    rest = text[at + len(mark) :].decode("utf-8", "replace").lstrip()
    if not rest.startswith(":"):
        return None
    try:
        return json.JSONDecoder().raw_decode(rest[1:].lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _sum(document: Any, paths: tuple[JsonPath, ...]) -> float | None:
    """The sum of the whole numbers at the paths in `document`, a parsed JSON text; None if there is no such number."""
    found = [
        number for path in paths for each in values_at(document, path) if (number := whole_number(each)) is not None
    ]
    return float(sum(found)) if found else None


def _text_of(fields: tuple[UsageFields, ...], document: Any) -> int:
    """The number of bytes in the output's text in a JSON document. `fields`: where providers put that text."""
    texts = (each for one in fields for path in one.text for each in values_at(document, path))
    return sum(len(each.encode("utf-8", "surrogatepass")) for each in texts if isinstance(each, str))
