"""The trace that a call is part of (W3C Trace Context).

Every sending has a span of its own, and the upstream gets that span as its parent. So if there are three attempts, it
is visible to which of them an upstream's own spans belong. The app's traceparent decides the trace. If the app sent
none, or an unreadable one, a new trace begins (W3C Trace Context, section 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from proxy.retry.call.attempt_record import AttemptRecord

#: Version, trace, parent, flags. A higher version may go on after a dash (section 3.2.4); ff is none.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

_SAMPLED = 1

Bits = Callable[[int], int]


class Trace:
    """The trace of one call.

    `parent`: the app's span, None if the app sent none; `is_new`: whether the trace begins here. `spans`: for the
    number of each attempt, the spans of its sendings in order. `urls`: for each attempt, its scheme and path (with the
    query, unmasked).
    """

    __slots__ = ("_bits", "flags", "identity", "parent", "spans", "urls")

    def __init__(self, identity: int, parent: int | None, flags: int, bits: Bits) -> None:
        self.identity = identity
        self.parent = parent
        self.flags = flags
        self.spans: dict[int, list[int]] = {}
        self.urls: dict[int, tuple[str, str]] = {}
        self._bits = bits

    @property
    def is_sampled(self) -> bool:
        """Whether the trace's spans are recorded."""
        return bool(self.flags & _SAMPLED)

    def launch(self, attempt: int) -> None:
        """Begin the span of an attempt that is about to be sent, or sent again."""
        self.spans.setdefault(attempt, []).append(self._bits(64) or 1)

    def field(self, attempt: int) -> str:
        """The traceparent of an attempt's latest sending."""
        return self._field(self.spans[attempt][-1])

    def shown(self, history: Sequence[AttemptRecord]) -> str:
        """The traceparent for the log record of a call with this `history`. It names the span whose answer went to the
        app; if there is no such span, the latest span; if there is none, the app's own span. "" if there is none of
        these.
        """
        if self.spans:
            delivered = [record.attempt for record in history if record.decision == "delivered"]
            return self.field(delivered[-1] if delivered else max(self.spans))
        return "" if self.parent is None else self._field(self.parent)

    def _field(self, span: int) -> str:
        return f"00-{self.identity:032x}-{span:016x}-{self.flags:02x}"


def read(sent: Sequence[str]) -> tuple[int, int, int] | None:
    """The trace id, parent span id and flags of an app's traceparent; None if `sent` has no such field, has several, or
    has an unreadable one.
    """
    if len(sent) != 1:
        return None
    found = _TRACEPARENT.fullmatch(sent[0])
    if found is None or (found[1] == "00" and found[5] is not None):
        return None
    return int(found[2], 16), int(found[3], 16), int(found[4], 16) & _SAMPLED
