"""What is waited for in a success whose head is kept: its first byte that counts, and the end of what a rule looks at.

Contract, section 13, "First byte" and "Looking into a success". A stream may begin with 200 and then stall, or open
with an error: while its head is kept, the attempt can still be made again. The machine makes a `Look` and asks the
driver to collect (`actions.Peek`); the driver feeds it what comes, with the time, until it has `ended`.

What counts: of a stream of events the first event that no pack calls empty, with the blank line that ends it; of
anything else any byte, and so of a stream under a content coding that nobody here can undo. What is looked at: that
same event, or a JSON body to its end. A body that cannot be JSON is let go with its first byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from proxy.retry.content_coding import DECODED, READABLE, Decoder, coding_of
from proxy.retry.event_stream import SseReader, is_event_stream, media_type
from proxy.retry.facts import Reply, Request, first
from proxy.retry.policy import Policy

#: The bytes that a JSON text may begin with (RFC 8259): blanks among them.
_BEGINS_JSON = frozenset(b' \t\r\n{["-0123456789tfn')


def first_byte_of(policy: Policy, request: Request, body: Iterable[bytes] | None) -> float | None:
    """Seconds from the last byte of a call's request to the first byte that counts; None where nothing bounds it.

    `body`: the request's, None where it is not kept. Under a pack that names empty events only a body that is a JSON
    object with `stream: true` is bounded: an answer that does not stream has no byte before it is done.
    """
    bound = policy.timeouts.first_byte
    if bound is None or policy.mode != "enforce" or request.method == "CONNECT" or request.is_grpc:
        return None
    return bound if not policy.classify.empty_events or asks_for_stream(body) else None


def asks_for_stream(body: Iterable[bytes] | None) -> bool:
    """Whether a request's body is a JSON object with `stream: true`."""
    whole = b"" if body is None else b"".join(body)
    if b'"stream"' not in whole:
        return False
    try:
        document = json.loads(whole)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("stream") is True


def may_be_whole_json(reply: Reply) -> bool:
    """Whether a success's body may be JSON that is whole within what is looked at."""
    media = media_type(reply)
    if media and media not in ("application/json", "text/json") and not media.endswith("+json"):
        return False
    length = first(reply.fields, "content-length") or ""
    return not (length.isascii() and length.isdigit() and int(length[:9]) > DECODED)


class Look:
    """A success whose head is kept. `counted`: when the first byte that counts came (seconds), None until then;
    `began`: when the request's last byte was sent, which the driver says. `within`: the call's `first_byte_of`.

    `whole`: a rule looks at its JSON, which must be there to the end.
    """

    __slots__ = ("_coding", "_decoder", "_empty", "_reader", "_whole", "began", "counted", "within")

    def __init__(self, reply: Reply, empty: frozenset[str], within: float | None, *, whole: bool) -> None:
        coding = self._coding = coding_of(reply.fields)
        events = is_event_stream(reply) and coding in READABLE
        self._reader = SseReader() if events else None
        self._decoder = Decoder(coding) if events and coding else None
        self._empty = empty
        self._whole = whole and not events and coding in READABLE
        self.within = within
        self.began: float | None = None
        self.counted: float | None = None

    @property
    def due(self) -> float | None:
        """When the first byte that counts is too late; None where nothing bounds it, or it has come."""
        if self.within is None or self.began is None or self.counted is not None:
            return None
        return self.began + self.within

    def seconds(self, sent: float) -> float | None:
        """From the request's last byte to the first that counts; None where that did not come. `sent`: when the attempt
        was sent, where nobody said more.
        """
        return None if self.counted is None else self.counted - (sent if self.began is None else self.began)

    def feed(self, data: bytes, now: float) -> bool:
        """More of the body came; whether all has that is waited for."""
        if self._reader is not None:
            return self._feed_events(self._reader, data, now)
        if self.counted is None:
            self.counted = now
            if not self._coding and data[0] not in _BEGINS_JSON:
                self._whole = False
        return not self._whole

    def end(self, now: float) -> None:
        """The answer has ended, or is more than is kept: there is nothing more to wait for."""
        if self.counted is None:
            self.counted = now

    def _feed_events(self, reader: SseReader, data: bytes, now: float) -> bool:
        decoder = self._decoder
        if decoder is not None:
            data = decoder.feed(data, DECODED)
        if any(event.name not in self._empty for event in reader.feed(data)) or (decoder is not None and decoder.over):
            self.counted = now
            return True
        return False
