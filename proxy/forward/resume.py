"""Resuming an answer that broke: which answers can be resumed, which bytes are asked for, and which answers are
accepted as the rest.

Contract, section 15, "Resume"; RFC 9110, sections 13.1.5, 14.2 and 14.4. Only a strong validator shows that the rest
belongs to the same bytes. So an answer without a strong ETag, or without a length, is not resumed but broken off. A
SigV4 signature covers only the fields that SignedHeaders names (AWS, "Create a signed AWS API request"), so a Range can
be added to a request whose signature leaves Range out.

Law: the app gets the bytes of the answer that began, each once and in order, or its answer is broken off.
"""

from __future__ import annotations

import re
from datetime import datetime

from proxy.forward.attempt import Attempt
from proxy.forward.request_plan import Plan
from proxy.retry.facts import Fault, FaultKind, Progress, Request
from proxy.transport.origins import Origin
from proxy.wire.head import ResponseHead

#: The fields of the app's request that a resumption leaves out: its own conditions and range.
CONDITIONS = frozenset(
    {b"range", b"if-range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"}
)
#: The fault of a rest that ended before its last byte, or brought more than that.
NOT_THE_REST = Fault(
    FaultKind.RESET,
    Progress.ANSWERED,
    detail="what came for the rest of the answer is not as long as it says",
    error="http_response_incomplete",
)
#: Seconds after which a signature is too old (Amazon refuses it after five minutes).
_SIGNED_FOR = 240.0
_STRONG = re.compile(rb'"[\x21\x23-\x7e\x80-\xff]*"').fullmatch
_RANGE = re.compile(rb"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})").fullmatch
_SIGNED = re.compile(r"SignedHeaders=([^,\s&]*)").search
_AWS_DATE = "%Y%m%dT%H%M%S%z"


class Resumer:
    """The resumption of one answer that broke. `head`: the answer's head; `origin`: the endpoint that the answer came
    from; `first` and `end`: the offsets in the resource of the answer's first byte and of the byte after its last;
    `total`: the bytes of the whole resource. `asked`: the Range that is asked for; `is_sent`: whether an attempt is
    under way that asks for it; `taken`: the bytes that the app has got; `since`: when it got the last of them
    (seconds); `progress`: the bytes since the last resumption.
    """

    __slots__ = (
        "_coding", "_end", "_etag", "_first", "_modified", "_skip", "_total", "asked", "at_last", "is_sent",
        "origin", "since", "taken",
    )  # fmt: skip

    def __init__(self, head: ResponseHead, origin: Origin, first: int, end: int, total: int) -> None:
        self.origin = origin
        self._etag = head.get(b"etag")
        self._modified, self._coding = head.get(b"last-modified"), head.get(b"content-encoding")
        self._first, self._end, self._total = first, end, total
        self._skip = 0
        self.asked = ""
        self.is_sent = False
        self.taken = self.at_last = 0
        self.since = 0.0

    @property
    def progress(self) -> int:
        """The bytes that the app has got since the last resumption."""
        return self.taken - self.at_last

    @property
    def is_whole(self) -> bool:
        """Whether the app has got all of the answer."""
        return self._first + self.taken == self._end

    def ask(self) -> None:
        """Compute the Range of the bytes that are missing now, which the next attempt asks for."""
        self.at_last = self.taken
        last = f"{self._end - 1}" if self._first or self._end != self._total else ""
        self.asked = f"bytes={self._first + self.taken}-{last}"

    def lines(self) -> bytes:
        """Return the field lines (Range and If-Range) that ask for the rest if the entity is still the same."""
        assert self._etag is not None  # only such answers go on
        return b"Range: %b\r\nIf-Range: %b\r\n" % (self.asked.encode(), self._etag)

    def accepts(self, head: ResponseHead, discard: int) -> bool:
        """Whether an answer with this head brings the missing rest of the same entity: a 206 that begins at the first
        missing byte, or a 200 of which at most `discard` bytes have to be skipped. A 206 that ends too soon is
        accepted: the answer then breaks again, further on.
        """
        at, length = self._first + self.taken, head.content_length
        if head.get(b"etag") != self._etag or head.get(b"content-encoding") != self._coding:
            return False
        if self._modified is not None and head.get(b"last-modified") not in (None, self._modified):
            return False
        if head.status == 206:
            self._skip = 0
            found = _range_of(head)
            if found is None or found[0] != at or found[1] > self._end or found[2] != self._total:
                return False
            return length in (None, found[1] - at)
        if head.status != 200 or length not in (None, self._total) or self._end != self._total or at > discard:
            return False
        self._skip = at
        return True

    def take(self, data: bytes, now: float) -> bytes | None:
        """Take `data`, the next bytes of the answer that brings the rest. Returns the part of them that the app has not
        got yet; None if they go beyond the end of the rest.
        """
        if self._skip:
            read = min(self._skip, len(data))
            self._skip -= read
            data = data[read:]
        if self._first + self.taken + len(data) > self._end:
            return None
        if data:
            self.taken += len(data)
            self.since = now
        return data


def resumer_of(plan: Plan, attempt: Attempt, wall: float) -> Resumer | None:
    """Return what resumes this attempt's answer, which broke; None if the answer can't be resumed. `wall`: seconds
    since the epoch.
    """
    head, request = attempt.head, plan.request
    if request.method != "GET" or request.body is not None or plan.head.login_bound or head.login_bound:
        return None
    etag = head.get(b"etag")
    if etag is None or _STRONG(etag) is None or not may_add(request, wall):
        return None
    if head.status == 206:
        found = _range_of(head)
        if found is None or head.content_length not in (None, found[1] - found[0]):
            return None
        return Resumer(head, attempt.origin, *found)
    if head.status != 200 or head.content_length is None:
        return None
    return Resumer(head, attempt.origin, 0, head.content_length, head.content_length)


def _range_of(head: ResponseHead) -> tuple[int, int, int] | None:
    """Return the first byte of the only range of a 206, the byte after its last one, and the length of the whole
    resource; None if the answer's Content-Range does not give these three.
    """
    said = head.get_all("content-range")
    match = _RANGE(said[0].encode("latin-1")) if len(said) == 1 else None
    if match is None:
        return None
    first, last, total = map(int, match.groups())
    return (first, last + 1, total) if first <= last < total else None


def may_add(request: Request, wall: float) -> bool:
    """Whether Range and If-Range may be added to a request, and the request's own conditions left out. They may not if
    a signature covers these fields, or if the signature is so old that the upstream would refuse it. `wall`: seconds
    since the epoch.
    """
    fields = request.fields
    values = fields.get_all("authorization")
    if len(values) > 1:
        return False
    query = request.path.partition("?")[2]
    if "X-Amz-Signature=" in query:
        signed = re.search(r"X-Amz-SignedHeaders=([^&]*)", query)
        return not values and signed is not None and _leaves_out(signed[1].replace("%3B", ";").replace("%3b", ";"))
    if not values:
        return True
    scheme = values[0].partition(" ")[0].lower()
    if scheme in ("basic", "bearer"):
        return True
    signed = _SIGNED(values[0])
    if scheme != "aws4-hmac-sha256" or signed is None or not _leaves_out(signed[1]):
        return False
    dates = fields.get_all("x-amz-date")
    try:
        made = datetime.strptime(dates[0].replace("Z", "+0000"), _AWS_DATE).timestamp() if len(dates) == 1 else None
    except ValueError:
        return False
    return made is not None and -_SIGNED_FOR < wall - made < _SIGNED_FOR


def _leaves_out(signed: str) -> bool:
    return CONDITIONS.isdisjoint(name.encode("latin-1", "replace") for name in signed.lower().split(";"))
