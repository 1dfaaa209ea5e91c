"""An incremental reader of server-sent events: bytes in, events out as soon as each is complete.

The grammar is the WHATWG's (HTML, "Server-sent events", 9.2.5 and 9.2.6). Lines end with LF, CRLF or CR; a byte order
mark at the very beginning is skipped; a line that begins with a colon is a comment; the data lines of an event are
joined with LF. An event without a data line is dropped, and so is one that no blank line ends. The events do not depend
on how the bytes are cut into pieces.

Law: the bytes kept between two pieces are bounded. An event of more than `MOST` bytes is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proxy.retry.answers.json_paths import AS_WRITTEN
from proxy.retry.facts import Reply, first

#: The name of an event that has none of its own (HTML, 9.2.6).
MESSAGE = "message"
#: The most bytes of an incomplete event that are kept: as many as of an answer that is peeked at.
MOST = 64 * 1024

_BOM = b"\xef\xbb\xbf"


_UNREAD = object()


@dataclass(slots=True)
class Event:
    """A server-sent event. `name`: its name. `data`: its data lines as they came, joined with LF."""

    name: str
    data: bytes
    _document: Any = field(default=_UNREAD, repr=False, compare=False)

    @property
    def document(self) -> Any:
        """The data as JSON, parsed when first asked for; None if it is not JSON."""
        if self._document is _UNREAD:
            try:
                self._document = AS_WRITTEN.decode(self.data.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                self._document = None
        return self._document


def is_event_stream(reply: Reply) -> bool:
    """Whether an answer's media type says that it is a stream of events."""
    return media_type(reply) == "text/event-stream"


def media_type(reply: Reply) -> str:
    """The media type of an answer in lower case, without parameters; "" if it names none."""
    media = reply.media
    if media is None:
        text = first(reply.fields, "content-type") or ""
        media = reply.media = text.partition(";")[0].strip().lower()
    return media


class SseReader:
    """The reader of one stream of events."""

    __slots__ = ("_after_cr", "_data", "_held", "_name", "_pieces", "_size", "_started", "_too_long")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # the beginning of a line that has not ended
        self._held = 0  # the number of bytes in them
        self._started = False  # the first bytes, which may be a byte order mark, have been read
        self._after_cr = False  # the last byte was a CR: a LF that follows belongs to it
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0  # bytes of the event's data lines
        self._too_long = False  # the event that is under way is longer than is kept

    def feed(self, data: bytes) -> list[Event]:
        """Read `data`, the next bytes of the stream, and return the events that they complete."""
        if not self._started:
            data = b"".join([*self._pieces, data])
            self._pieces.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._pieces.append(data)
                return []
            self._started = True
            data = data.removeprefix(_BOM)
        if self._after_cr and data:
            data, self._after_cr = data.removeprefix(b"\n"), False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        rest = lines.pop()
        events: list[Event] = []
        for line in lines:
            if self._pieces:
                line = b"".join([*self._pieces, line])
                self._pieces.clear()
                self._held = 0
            if line:
                self._read(line)
            else:
                self._dispatch(events)
        if rest:
            self._hold(rest)
        return events

    @property
    def is_between_events(self) -> bool:
        """Whether all events that have begun are complete: the last bytes that came were a blank line, or nothing has
        come.
        """
        return not (self._pieces or self._data or self._name or self._too_long)

    def is_at_event(self) -> bool:
        """Whether the next byte begins a line, and that line is the first of an event."""
        return (
            self._started
            and not self._after_cr
            and not (self._pieces or self._data or self._name or self._too_long)  # is_between_events
        )

    def cut_short(self) -> bytes:
        """The data of the unfinished event, if the stream ends here without the blank line that would complete it; b""
        if there is none.
        """
        name, _, value = b"".join(self._pieces).partition(b":")
        last = [value.removeprefix(b" ")] if name == b"data" else []
        return b"\n".join([*self._data, *last]) if not self._too_long else b""

    def _hold(self, rest: bytes) -> None:
        """Keep `rest`, the beginning of a line, until the rest of the line comes. Once the kept bytes exceed MOST,
        their event is skipped. A single byte is kept in their place, so that the line does not look blank.
        """
        self._held += len(rest)
        if self._held > MOST:
            self._too_long = True
            self._pieces[:] = [b":"]
        else:
            self._pieces.append(rest)

    def _read(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if len(line) > MOST:
            self._too_long = True
        elif name == b"data":
            self._size += len(line)
            self._too_long = self._too_long or self._size > MOST
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")
        if self._too_long:
            self._data.clear()

    def _dispatch(self, events: list[Event]) -> None:
        """Complete the event that is being read, because a blank line has come, and append it to `events`."""
        if self._data:
            events.append(Event(self._name or MESSAGE, b"\n".join(self._data)))
            self._data = []
        self._name, self._size, self._too_long = "", 0, False
