"""The ends of streams: whether a stream of events that ended cleanly was complete.

Contract, section 15, "A stream's end". A chunked body may end properly although the provider's server broke down in the
middle of its answer. The dialect packs (files with rules for a provider) say which events end a stream, which other
events belong to such streams, and which requests ask for such a stream. A stream that has only events of other kinds is
not judged.

Law: an event's data is parsed as JSON only if it contains the bytes of a mark that is looked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from proxy.retry.answers.content_coding import READABLE, coding_of_reply
from proxy.retry.answers.event_stream import MESSAGE, Event, is_event_stream
from proxy.retry.answers.event_texts import least
from proxy.retry.answers.first_byte import asks_for_stream
from proxy.retry.answers.json_paths import values_at
from proxy.retry.answers.text_search import holds_any, holds_member
from proxy.retry.facts import Fault, FaultKind, Progress, Reply, Request
from proxy.retry.policies.dialect import Classify, EndMark, StreamEnds

#: The combinations of packs whose marks are kept.
_MOST = 16
#: The fault of a stream that ended cleanly without its last event.
UNFINISHED = Fault(
    FaultKind.RESET,
    Progress.ANSWERED,
    detail="the stream of events ended without its last event",
    error="http_response_incomplete",
)


def ends_of(rules: Classify, request: Request, reply: Reply) -> tuple[StreamEnds, ...]:
    """The ways in which this answer may end, as the dialect packs define them. Empty if the answer is no stream of
    events that the request asked for.
    """
    if not rules.stream_ends or reply.status >= 400 or not is_event_stream(reply):
        return ()
    if coding_of_reply(reply) not in READABLE:
        return ()
    return tuple(each for each in rules.stream_ends if _is_asked_for(each, request))


def _is_asked_for(ends: StreamEnds, request: Request) -> bool:
    if ends.path and request.path.partition("?")[0].endswith(ends.path):
        return True
    body = None if request.body is None or not ends.by_body else request.body.whole()
    return body is not None and asks_for_stream(body)


class EndReader:
    """A reader of one stream's events, which finds out whether the stream is complete. `packs`: the ways in which the
    stream may end, from the dialect packs. `ended`: an event has come that ends a stream of one of these packs.
    """

    __slots__ = ("_any", "_ends", "_known", "_members", "_packs", "_texts", "ended")

    def __init__(self, packs: Sequence[StreamEnds]) -> None:
        self._packs = packs
        self._known: StreamEnds | None = None  # the first pack that knows one of the events
        self._any = False
        self._ends, self._texts, self._members = _marks_of(packs)
        self.ended = False

    @property
    def unfinished(self) -> bool:
        """Whether the stream, if it ends now, lacks its last event."""
        return not self.ended and (self._known is not None or not self._any)

    def ends_with(self, cut_short: bytes) -> bool:
        """Whether a stream is complete although its last event was cut short, because that event would only say that
        the stream is over. `cut_short`: the data of that event (`SseReader.cut_short`).
        """
        return any(mark.is_all(cut_short) for mark in self._ends)

    def is_known(self) -> bool:
        """Whether an event that one of the packs knows has come. From then on it is known to which pack the stream
        belongs, and only the last event matters.
        """
        return self._known is not None

    def is_in(self, data: bytes) -> bool:
        """Whether the bytes `data` may contain an event that ends the stream, so that the events in them must be
        read.
        """
        return holds_any(data, self._texts) or holds_member(data, self._members)

    @property
    def error(self) -> bytes:
        """The provider's own event for an error of its server, which may be sent to the app in place of the missing
        end; b"" if the provider's pack has none.
        """
        pack = self._packs[0] if self._known is None else self._known
        return pack.error

    def see(self, events: Iterable[Event]) -> None:
        """Examine the next events of the stream: does one of them end the stream, and does a pack know one of them?"""
        for event in events:
            self._any = True
            if self._known is None:
                for pack in self._packs:
                    if _knows(pack, event):
                        self._known = pack
                        break
            if not self.ended:
                for mark in self._ends:
                    if mark.matches(event):
                        self.ended = True
                        break


#: The marks of the packs of the last streams, the newest last.
_prepared: list[tuple[Sequence[StreamEnds], list[_Mark], tuple[bytes, ...], tuple[bytes, ...]]] = []


def _marks_of(packs: Sequence[StreamEnds]) -> tuple[list[_Mark], tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the marks of the events that end a stream of these packs, and what to look for before an event is parsed:
    texts, and names of JSON members with their quotes. Each such event contains one of the texts, or has one of the
    members with a value that is not null.
    """
    for known, marks, texts, members in _prepared:
        if known == packs:  # quick: nearly always the same objects
            return marks, texts, members
    marks = [_Mark(mark) for pack in packs for mark in pack.ends]
    texts = least({mark.text for mark in marks if not mark.is_member})
    members = tuple({mark.text for mark in marks if mark.is_member})
    members = tuple(each for each in members if not any(text in each for text in texts))
    _prepared.append((packs, marks, texts, members))
    del _prepared[:-_MOST]
    return marks, texts, members


def _knows(pack: StreamEnds, event: Event) -> bool:
    return any(_Mark(mark).matches(event) for mark in (*pack.known, *pack.ends))


class _Mark:
    """A pack's mark of events (`EndMark`), prepared for matching. `text`: bytes that every event with the mark
    contains. `is_member`: `text` is the name of a member that is not null.
    """

    __slots__ = ("_data", "_name", "_path", "_prefix", "_quick", "is_member", "text")

    def __init__(self, mark: EndMark) -> None:
        self._name = mark.event.removesuffix("*")
        self._prefix = mark.event.endswith("*")
        self._data = mark.data.encode()
        self._path = mark.present
        self._quick = (
            re.compile(rb'"%s"\s*:\s*(?!null\b|\s)' % re.escape(mark.present[-1].encode())) if mark.present else None
        )
        member = b'"%s"' % mark.present[-1].encode() if mark.present else b""
        self.text = self._name.encode() or self._data or member
        self.is_member = bool(member) and not (self._name or self._data)

    def matches(self, event: Event) -> bool:
        """Whether an event has this mark. Depending on the mark, what counts is the event's name (or, if it has none,
        the `type` in its data), its whole data, or a member that is not null.
        """
        if self._name:
            if event.name != MESSAGE:
                return self._is_named(event.name)
            if b'"%s' % self._name.encode() not in event.data:
                return False
            document = event.document
            return isinstance(document, dict) and self._is_named(str(document.get("type", "")))
        if self._data:
            return self.is_all(event.data)
        if self._quick is None or self._quick.search(event.data) is None:
            return False
        for value in values_at(_json(event.data), self._path):  # noqa: SIM110  no generator in a compiled method
            if value is not None:
                return True
        return False

    def is_all(self, data: bytes) -> bool:
        """Whether the mark is about an event's whole data, and `data` is this data."""
        return bool(self._data) and data.strip() == self._data

    def _is_named(self, name: str) -> bool:
        return name.startswith(self._name) if self._prefix else name == self._name


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
