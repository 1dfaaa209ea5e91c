"""The trace that a call is part of (W3C Trace Context).

Every sending has a span of its own, and the upstream gets that one as its parent, so that of three attempts it is
visible which one an upstream's own spans belong to. What the app sent decides the trace; if it sent none, or one that
can't be read, a new one begins (W3C Trace Context, section 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

#: Version, trace, parent, flags. A higher version may go on after a dash (section 3.2.4); ff is none.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

_SAMPLED = 1

Bits = Callable[[int], int]


class Trace:
    """One call's. `parent` is the app's span, None where the app sent none; `is_new` where the trace begins here.

    `spans` are those of its sendings: for each attempt's number, in order of sending. `urls` are scheme and path (with
    the query, unmasked) that each attempt was sent to.
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
        """Whether its spans are wanted."""
        return bool(self.flags & _SAMPLED)

    def launch(self, attempt: int) -> None:
        """An attempt is about to be sent, or sent again."""
        self.spans.setdefault(attempt, []).append(self._bits(64) or 1)

    def field(self, attempt: int) -> str:
        """The traceparent of an attempt's latest sending."""
        return f"00-{self.identity:032x}-{self.spans[attempt][-1]:016x}-{self.flags:02x}"


def read(sent: Sequence[str]) -> tuple[int, int, int] | None:
    """(trace, parent, flags) of a traceparent; None where there is none, or more than one, or an unreadable one."""
    if len(sent) != 1:
        return None
    found = _TRACEPARENT.fullmatch(sent[0])
    if found is None or (found[1] == "00" and found[5] is not None):
        return None
    return int(found[2], 16), int(found[3], 16), int(found[4], 16) & _SAMPLED
