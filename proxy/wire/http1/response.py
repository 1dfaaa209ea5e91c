"""An answer's head: what decisions need of it, and the head that is forwarded in its place.

The rules are those for requests (`wire/http1/request.py`). A head that cannot be trusted is a BadAnswer; it is never
repaired.
"""

from __future__ import annotations

from proxy.wire.errors import BadAnswer
from proxy.wire.field_names import (
    ANSWER_CUT,
    ANSWER_KEYS,
    ANSWER_MERELY_CUT,
    ANSWER_NAMES,
    ANSWER_SLOW,
    CLOSE,
    FRAMING,
    KEEP_ALIVE,
    find_answer,
)
from proxy.wire.fields import CHUNKED, CODING_LINE, NO_NAMES, UNTIL_CLOSE, Trailers, edited
from proxy.wire.http1 import slow_path
from proxy.wire.http1.compiled import CORE
from proxy.wire.http1.slow_path import Head

if CORE == "compiled":
    from proxy.wire.http1.splice import splice


class ResponseHead(Head):
    """An answer's head.

    raw: bytes            the head as it came
    status: int           100 to 999
    version: str          "1.0" or "1.1" (as which a higher minor version counts), "2.0" on HTTP/2
    keep_alive: bool      whether the upstream keeps the connection open, unless framing ends it (see `body_size`)
    content_length: int | None
    chunked: bool
    simple: bool          whether it is HTTP/1.1, final, may have a body, is framed by Content-Length or chunked, and
                          nothing is to be cut but one Connection, keep-alive or close
    specials: dict[bytes, bytes]   the fields that the proxy acts on: lower-case name -> last value, in LOWER CASE
                          (b"" for Content-Length if compiled code read the head: heads share them, lengths differ)
    """

    __slots__ = ("_kept", "_length_line", "status")

    _cut, _keys = ANSWER_CUT, ANSWER_KEYS

    def __init__(
        self,
        raw: bytes,
        minor: bytes,
        status: bytes,
        reason: bytes | None,
        found: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        """Make the head from `raw`, which has been matched against the grammar, and from the parts of its status line.
        `found`: the fields that the proxy acts on, as names and values in lower case, if they have been found already.
        """
        self.raw = raw
        self._lowered = None
        self.status = code = int(status)
        self.version = "1.1"
        self.slow_path = None
        self.scanned = False
        self._kept: bytes | None = None  # the head to forward, without the empty line
        if found is None:
            found = find_answer(self.lowered)
        self.specials = specials = dict(found)
        if (
            minor == b"1"
            and self._is_plainly_framed(specials)
            and len(specials) == len(found)
            and code >= 200
            and code != 204
            and code != 304
            and ANSWER_SLOW.isdisjoint(specials)
            and specials.get(b"connection", KEEP_ALIVE) in (KEEP_ALIVE, CLOSE)
            and reason is not None
        ):
            self.keep_alive = specials.get(b"connection") != CLOSE
            self.simple = ANSWER_MERELY_CUT.isdisjoint(specials)
        else:
            self._settle(found, minor)

    @classmethod
    def alike(cls, like: ResponseHead, raw: bytes) -> ResponseHead:
        """Return the head `raw`. Its status line, and those of its lines that the proxy acts on, are equal to those of
        `like`, a head without a `slow_path`, so what these lines mean is taken from `like`.
        """
        self = ResponseHead.__new__(ResponseHead)
        self.raw = raw
        self._lowered = None
        self.status = like.status
        self.version = "1.1"
        self.slow_path = None
        self.scanned = False
        self._kept = None
        self.specials = like.specials
        self.content_length = like.content_length
        self.chunked = like.chunked
        self.keep_alive = like.keep_alive
        self.simple = like.simple
        return self

    def says_same(self, other: ResponseHead) -> bool:
        """Whether both heads have the same status and the same values in the fields that the proxy acts on, except for
        the length of the body. False also if the comparison would cost more than it saves.
        """
        return self.raw == other.raw or (self.specials is other.specials and self.status == other.status)

    def _settle(self, found: slow_path.Found, minor: bytes) -> None:
        """Decide what an unusual Connection, Upgrade or framing means; raise BadAnswer if it cannot be trusted.
        `found`: the fields that the proxy acts on; `minor`: HTTP's minor version.
        """
        self.simple = False
        self.version = "1.0" if minor == b"0" else "1.1"
        self.content_length, self.chunked, self._length_line = slow_path.answer_framing(found, self.version)
        self._settle_connection(found, BadAnswer, may_upgrade=self.status in (101, 426), trailers=False)
        if self.slow_path is not None and b"date" in self.slow_path.nominated:
            self.specials.pop(b"date", None)  # Date is cut, and ours replaces it (RFC 9110 section 6.6.1)

    def body_size(self, method: str) -> int:
        """Return the number of bytes of body that follow in answer to this method, or CHUNKED, or UNTIL_CLOSE.

        RFC 9112 section 6.3: 1xx (101 among them), 204, 304, any answer to HEAD and 2xx to CONNECT have none.
        """
        status = self.status
        if method == "HEAD" or status < 200 or status == 204 or status == 304:
            return 0
        if method == "CONNECT" and status < 300:
            return 0
        if self.chunked:
            return CHUNKED
        return UNTIL_CLOSE if self.content_length is None else self.content_length

    @property
    def login_bound(self) -> bool:
        """Whether NTLM or Negotiate is offered, so that this connection belongs to the app connection that used it."""
        return b"www-authenticate" in self.specials or b"proxy-authenticate" in self.specials

    def trailers_to_forward(self, trailers: Trailers) -> Trailers | None:
        """Return the body's trailers to forward: all but hop-by-hop fields and those that Connection names; None if
        none is left.
        """
        return self.trailers_to_send(trailers)

    def render(self, *, drop: frozenset[bytes] = NO_NAMES, add: bytes = b"") -> bytes:
        """Render the head to forward as HTTP/1.1: fields in order as they came, then `add`, lines with their CRLF.

        Hop-by-hop fields, those that Connection names and X-Attempt-Count are always left out, and so are the fields
        whose lower-case names are in `drop`. Transfer-Encoding and Content-Length stay unless `drop` names them, but
        1xx and 204 have neither (RFC 9110 section 8.6, RFC 9112 section 6.1). A 101 or 426 keeps its upgrade.
        """
        if not drop or not self._has_any(drop):
            if self.scanned and self.simple:
                text = splice(self.raw, self.edges, None, None, None, add, b"")
                if text is not None:
                    return text
            kept = self._kept or self._keep()
        else:
            kept = self._lines(drop)
        return b"".join((kept, add, b"\r\n"))

    def _has_any(self, names: frozenset[bytes]) -> bool:
        """Whether a field with one of these lower-case names came, beside those that are always left out."""
        for name in names:
            if name not in ANSWER_CUT:
                came = name in self.specials if name in ANSWER_NAMES else self.lowered.find(b"\n" + name + b":") >= 0
                if came:
                    return True
        return False

    def message(self, add: bytes, body: bytes, drop: frozenset[bytes]) -> bytes:
        """Render the head with the lines `add`, leaving out the fields whose lower-case names are in `drop` and those
        that are always left out, and `body` after it.
        """
        if self.scanned:
            text = splice(self.raw, self.edges, drop, None, None, add, body)
            if text is not None:
                return text
        if drop:
            return self.render(drop=drop, add=add) + body
        return b"".join((self._kept or self._keep(), add, b"\r\n", body))

    def _keep(self) -> bytes:
        """Render the head to forward, without the empty line, and keep it for the next time."""
        if not self.simple:
            kept = self._lines(NO_NAMES)
        elif b"connection" in self.specials:
            kept = self.raw.replace(b"\r\nConnection: keep-alive\r\n", b"\r\n", 1)[:-2]
            if len(kept) == len(self.raw) - 2:  # the line is spelt in another way
                before, after = slow_path.around(self.raw, b"\r\nConnection:")
                kept = b"".join((before, b"\r\n", after[:-2]))
        else:
            kept = self.raw[:-2]
        self._kept = kept
        return kept

    def _lines(self, drop: frozenset[bytes]) -> bytes:
        """Return the head to forward, without the empty line, for any head, without the fields named in `drop`."""
        cut = ANSWER_CUT.intersection(self.specials) | (drop - ANSWER_CUT)
        put: dict[bytes, bytes] = {}
        if self.slow_path is not None:
            cut |= self.slow_path.present
            if self.status < 200 or self.status == 204:
                cut |= FRAMING
            put = self.slow_path.lines()
            if self._length_line is not None and b"content-length" not in cut:
                put[b"content-length"] = self._length_line
            if self.chunked and b"transfer-encoding" not in cut and not self.coded_plainly:
                put[b"transfer-encoding"] = CODING_LINE
        start = self.raw.find(b"\n") + 1
        # A status line that ends after the status lacks the space that RFC 9112 section 4 asks senders to write.
        reason = self.raw[12 : start - 2] or b" "
        return b"HTTP/1.1 %d%b\r\n%b" % (self.status, reason, edited(self, start, cut, put))
