"""Errors in a stream of events that is already going to the app. They are counted and reported, and passed on
unchanged.

Contract, section 13, "Looking into a success". What counts as an error is decided by the same rules that look at a
stream's first event.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.retry.answers.classification import words_of
from proxy.retry.answers.content_coding import DECODED, READABLE, Decoder, coding_of_reply
from proxy.retry.answers.event_stream import Event, SseReader, is_event_stream
from proxy.retry.answers.event_texts import mark_of, plain_name, texts_of
from proxy.retry.answers.rules import ReplyEvidence, any_matches, is_named
from proxy.retry.answers.stream_ends import EndReader
from proxy.retry.answers.text_search import holds_any
from proxy.retry.facts import Class, Reply
from proxy.retry.policies.dialect import Classify, EventRule, Rule, StreamEnds

#: The end of a chunk whose data end with a blank line, if lines end with CRLF.
_BLANK_LINE = b"\r\n\r\n\r\n"


class Sought:
    """The events that rules for errors in streams look for. `rules`: each rule's condition, with the words for reports
    and the class that the rule gives. `names`: the event names that rules ask for. `marks`: bytes for rules that ask
    for no plain name; an event that matches such a rule contains at least one of them. `texts`: every event that
    matches a rule contains at least one of these.
    """

    __slots__ = ("marks", "names", "rules", "texts")

    def __init__(self, rules: Sequence[tuple[str, Rule, EventRule]]) -> None:
        self.rules = [(because, rule.as_, event) for because, rule, event in rules]
        events = [event for _, _, event in rules]
        self.names = {name for name in map(plain_name, events) if name is not None}
        self.marks = tuple({mark_of(event) for event in events if plain_name(event) is None})
        self.texts = texts_of(events)


class StreamWatch:
    """A reader that finds errors in a stream of events while the stream is going to the app. It has little to do for a
    stream without errors: events that contain none of the rules' texts are not even separated, and JSON is parsed only
    of events whose data contain such a text. `ends`: the reader that finds out whether the stream is complete, None for
    none.
    """

    __slots__ = ("_decoder", "_marks", "_names", "_reader", "_rules", "_texts", "ends")

    def __init__(self, sought: Sought, coding: str, ends: EndReader | None) -> None:
        self.ends = ends
        self._rules, self._names, self._marks = sought.rules, sought.names, sought.marks
        self._texts = sought.texts
        self._reader = SseReader()
        self._decoder = Decoder(coding) if coding else None

    def feed(self, data: bytes) -> list[str]:
        """Take `data`, the next bytes of the stream. Returns the names of the rules that find errors in the events
        which these bytes complete; the names reveal nothing of the content.
        """
        if self._decoder is not None:
            data = self._decoder.feed(data, DECODED)
        if self._says_nothing(data):
            return []
        events = self._reader.feed(data)
        if self.ends is not None:
            self.ends.see(events)
        found: list[str] = []
        for event in events:
            words = self._error(event)
            if words:
                found.append(words)
        return found

    @property
    def unfinished(self) -> bool:
        """Whether the stream, if it ends now, lacks its last event."""
        ends = self.ends
        return ends is not None and ends.unfinished and not ends.ends_with(self._reader.cut_short())

    @property
    def is_between_events(self) -> bool:
        """Whether the bytes so far end with a complete event, so that another event could follow."""
        return self._decoder is None and self._reader.is_between_events

    def passes_over(self, chunks: bytes, size: int) -> bool:
        """Whether the events in `chunks` can be skipped (see `_says_nothing`). `chunks`: whole chunks of a chunked
        body, with their framing, in which none of the texts occurs. `size`: the bytes of data in them.

        Each chunk but the last ends with a line feed. So a text that occurs is within one chunk. And where the last
        chunk is a line end alone, the end of its size line is taken for that of the line before, which is there too.
        """
        end, text = len(chunks) - 3, chunks  # a pointer when compiled; the last octet of the data
        if size < 2 or text[end] != 10 or not (text[end - 1] == 10 or (size > 3 and chunks.endswith(_BLANK_LINE))):
            return False
        return self._decoder is None and self._holds_nothing(chunks)

    def _says_nothing(self, data: bytes) -> bool:
        """Whether the events in `data` can be skipped, because they are complete and none can be an error or the
        stream's last event: no text that such events contain occurs in `data`. None of these texts has a line end, so a
        text that occurs is within one line.
        """
        size, text = len(data), data  # a pointer when compiled
        if size < 2 or text[size - 1] != 10 or not (text[size - 2] == 10 or data.endswith(b"\r\n\r\n")):
            return False
        return self._holds_nothing(data)

    def _holds_nothing(self, data: bytes) -> bool:
        if not self._reader.is_at_event():
            return False
        ends = self.ends
        if ends is not None and not (ends.ended or (ends.is_known() and not ends.is_in(data))):
            return False
        return not holds_any(data, self._texts)

    def _error(self, event: Event) -> str:
        data = event.data
        if event.name not in self._names:
            for mark in self._marks:
                if data.find(mark) >= 0:
                    break
            else:
                return ""  # nearly every event ends here
        for because, cls, rule in self._rules:
            if is_named(rule, event):
                return because if cls is not Class.SUCCESS else ""
        return ""


def watch_for_errors(rules: Classify, reply: Reply, ends: tuple[StreamEnds, ...] = ()) -> StreamWatch | None:
    """A `StreamWatch` for a success that goes to the app; None if no rule could find an error in it, and `ends` is
    empty. `ends`: the ways in which the stream may end, from the dialect packs.
    """
    if not (rules.looks_below_400 or ends) or reply.status >= 400 or not is_event_stream(reply):
        return None
    coding = coding_of_reply(reply)
    if coding not in READABLE:
        return None
    sought = rules.sought.get(reply.status) or _sought(rules, reply)
    if not (sought.rules or ends):
        return None
    return StreamWatch(sought, coding, EndReader(ends) if ends else None)


def _sought(rules: Classify, reply: Reply) -> Sought:
    """Return the events that the rules look for in this answer. They are kept for later answers of the same status,
    unless one of the rules also asks for header fields.
    """
    evidence = ReplyEvidence(reply, None)
    packs = [("", rules.rules), *((dialect.name, dialect.rules) for dialect in rules.dialects)]
    named = [
        (words_of(dialect, rule), rule, rule.event)
        for dialect, some in packs
        for rule in some
        if rule.event is not None and (rule.statuses is None or reply.status in rule.statuses)
    ]
    found = [each for each in named if all(any_matches(evidence.header(name), glob) for name, glob in each[1].headers)]
    sought = Sought(found)
    if not any(rule.headers for _, rule, _ in named):
        rules.sought[reply.status] = sought
    return sought
