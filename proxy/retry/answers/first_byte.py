"""The wait during which a success's head is kept back: until the first byte that counts, or until a rule has seen what
it looks at.

Contract, section 13, "First byte" and "Looking into a success". A stream may begin with 200 and then stall, or open
with an error: while its head is kept back, another attempt can still be made. The machine makes a `BodyWait` and asks
the driver to collect (`actions.Peek`). The driver feeds the body to the `BodyWait` as it comes, with the time, until
the wait is over.

In a stream of events, the first byte that counts is the end (the blank line) of the first event that no dialect pack
calls empty. In any other body, and in a stream under a content coding that can't be decoded here, it is the first byte.
A rule looks at that same event, or at a JSON body to its end. A body that cannot be JSON is delivered from its first
byte.

The same wait is used to keep an answer back until it is complete (`proxy.retry.answers.whole_answers`), whether or not
its beginning is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from proxy.retry.answers.content_coding import DECODED, READABLE, Decoder, coding_of_reply
from proxy.retry.answers.event_stream import SseReader, is_event_stream
from proxy.retry.answers.whole_answers import Budget, WholeAnswer
from proxy.retry.answers.xml_root import RootLook
from proxy.retry.facts import Reply, Request
from proxy.retry.instants import NEVER
from proxy.retry.policies.policy import Policy

#: Contract, section 4: bodies are peeked at up to 64 KiB.
PEEK_LIMIT = 64 * 1024
#: The bytes that a JSON text may begin with (RFC 8259), white space included.
_BEGINS_JSON = frozenset(b' \t\r\n{["-0123456789tfn')


def first_byte_of(policy: Policy, request: Request, body: Iterable[bytes] | None) -> float | None:
    """The most seconds from the end of a call's request to the first byte that counts (see the module); None if there
    is no bound.

    `body`: the pieces of the request's body, None if the body is not kept. If a dialect pack names events that are
    empty, only a request whose body is a JSON object with `stream: true` has a bound: an answer that is no stream has
    no byte before it is complete.
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


class BodyWait:
    """The wait for the beginning of a success, whose head is kept back until then.

    `counted`: the time (seconds) at which the first byte that counts came, None until then. `began`: the time at which
    the request's last byte was sent, which the driver sets. `within`: the seconds allowed from `began` to that byte
    (`first_byte_of`). `whole`: a rule looks at the body's JSON, all of which has to come. `root`: the search for an
    error in the body's XML, None if there is no such search. `looks`: whether the beginning of the body is waited for
    at all. `over`: whether that part of the wait is over. `kept`: the rest of the wait if the answer is to be kept
    until it is complete, None if it is not.
    """

    __slots__ = (
        "_coding", "_decoder", "_empty", "_reader", "_root", "_size", "_whole", "began", "counted", "kept", "looks",
        "over", "within",
    )  # fmt: skip

    def __init__(
        self,
        reply: Reply,
        empty: frozenset[str],
        within: float | None,
        *,
        whole: bool,
        looks: bool = True,
        kept: WholeAnswer | None = None,
        root: RootLook | None = None,
    ) -> None:
        self._root = root
        self.looks = looks
        self.over = not looks  # the look at the beginning is over
        self.kept = kept
        self._size = 0
        coding = self._coding = coding_of_reply(reply)
        events = is_event_stream(reply) and coding in READABLE
        self._reader = SseReader() if events else None
        self._decoder = Decoder(coding) if (events or root is not None) and coding else None
        self._empty = empty
        self._whole = whole and not events and coding in READABLE
        self.within = within
        self.began: float | None = None
        self.counted: float | None = None

    @property
    def goes_on(self) -> float:
        """The time (seconds) at which the driver should call `tire`, which says whether the wait is over; infinity if
        time does not end the wait.
        """
        looks = NEVER if self.over or self._root is None else self._root.goes_on
        return looks if self.kept is None else min(looks, self.kept.goes_on)

    def tire(self, now: float) -> bool:
        """End those parts of the wait whose time is over: the wait for the complete answer, or for the end of the white
        space before an XML root. Returns whether nothing is waited for any more, so that the answer can be delivered.
        """
        if not self.over and self._root is not None:
            self.over = self._root.is_tired(now)
        if self.kept is not None and self.kept.is_tired(now):
            self.give_up()
        return self.over and self.kept is None

    def charge(self, budget: Budget) -> None:
        """Count the bytes of the answer in `budget`, the limit on the memory of the replay buffers, if the answer is
        kept until it is complete.
        """
        if self.kept is not None:
            self.kept.budget = budget

    def give_up(self) -> None:
        """Stop keeping the answer, though it is not complete, so that it goes on to the app as it comes."""
        if self.kept is not None:
            self.kept.release()
            self.kept = None

    @property
    def due(self) -> float | None:
        """The time (seconds) after which the first byte that counts is too late; None if there is no bound, or the byte
        has come.
        """
        if self.within is None or self.began is None or self.counted is not None:
            return None
        return self.began + self.within

    def seconds(self, sent: float) -> float | None:
        """The seconds from the request's last byte to the first byte that counts; None if that byte has not come.
        `sent`: the time at which the attempt was sent, used if the driver did not set `began`.
        """
        return None if self.counted is None else self.counted - (sent if self.began is None else self.began)

    def feed(self, data: bytes, now: float) -> bool:
        """Take `data`, the next bytes of the body. Returns whether the wait is over."""
        self._size += len(data)
        if not self.over:
            self.over = self._look(data, now) or self._size >= PEEK_LIMIT
        if self.kept is not None and self.kept.feed(len(data), now):
            self.give_up()
        return self.over and self.kept is None

    def _look(self, data: bytes, now: float) -> bool:
        if self._root is not None:
            return self._look_at_root(self._root, data, now)
        if self._reader is not None:
            return self._feed_events(self._reader, data, now)
        if self.counted is None:
            self.counted = now
            if not self._coding and data[0] not in _BEGINS_JSON:
                self._whole = False
        return not self._whole

    def end(self, now: float) -> None:
        """End the wait, because the answer has ended, or because its body is longer than what may be looked at."""
        if self.counted is None and self.looks:
            self.counted = now
        self.give_up()

    def _look_at_root(self, root: RootLook, data: bytes, now: float) -> bool:
        if self.counted is None:
            self.counted = now
        if self._decoder is not None:
            data = self._decoder.feed(data, DECODED)
        return root.feed(data, now) or (self._decoder is not None and self._decoder.over)

    def _feed_events(self, reader: SseReader, data: bytes, now: float) -> bool:
        decoder = self._decoder
        if decoder is not None:
            data = decoder.feed(data, DECODED)
        if any(event.name not in self._empty for event in reader.feed(data)) or (decoder is not None and decoder.over):
            self.counted = now
            return True
        return False
