"""A request's head: what decisions need of it, and the head that is sent in its place.

A head is validated as a whole and then forwarded as slices of the same bytes. The common head takes one pass, without a
loop over fields. Anything unusual about connection, framing or destination takes the slow path
(`wire.http1.slow_path`), which decides by the same rules and refuses what is ambiguous. A head is a value: it never
changes, and calls may share it (what it has rendered once is kept for the next time).
"""

from __future__ import annotations

from typing import ClassVar

from proxy.wire.authority import read_absolute, read_authority, read_connect
from proxy.wire.errors import malformed
from proxy.wire.field_names import (
    CLOSE,
    FRAMING,
    KEEP_ALIVE,
    REQUEST_CUT,
    REQUEST_KEYS,
    REQUEST_MERELY_CUT,
    REQUEST_NAMES,
    REQUEST_SLOW,
    find_request,
)
from proxy.wire.fields import CHUNKED, CODING_LINE, FEW, NO_NAMES, edited, needle
from proxy.wire.http1 import slow_path
from proxy.wire.http1.compiled import CORE
from proxy.wire.http1.slow_path import Head

if CORE == "compiled":
    from proxy.wire.http1.splice import same_lines, splice

#: The recipient's maximum supported value for Max-Forwards, as RFC 9110 section 7.6.2 calls it.
MOST_HOPS = 10**18


class RequestHead(Head):
    """A request's head.

    raw: bytes            the head as it came, from the request line to the empty line
    method: str           any token; case-sensitive
    target: bytes         the request target as it came
    form: str             "origin" | "absolute" | "authority" (CONNECT) | "asterisk"
    scheme: str           "http" or "https" if the target named one, else ""
    authority: str        the absolute form's, CONNECT's, else Host's; host in lower case, port as written; "" if none
    path: bytes           path and query in origin form, raw; b"" for CONNECT, b"*" for the asterisk form
    version: str          "1.0" or "1.1" (as which a higher minor version counts), "2.0" on HTTP/2
    keep_alive: bool      whether the app wants the connection kept open
    content_length: int | None
    chunked: bool         whether the body comes chunked
    simple: bool          whether nothing is to be cut but one Connection, keep-alive or close, and no field is
                          redrive's own
    specials: dict[bytes, bytes]   the fields that the proxy acts on: lower-case name -> last value, in LOWER CASE
                          (b"" for Content-Length if compiled code read the head: heads share them, lengths differ)
    """

    __slots__ = ("_host", "_kept", "authority", "form", "method", "path", "scheme", "target")

    _cut, _keys = REQUEST_CUT, REQUEST_KEYS
    path: bytes
    form: str

    #: Whether Host may be empty in origin form, in which it alone names the destination.
    may_lack_host: ClassVar[bool] = False

    def __init__(
        self,
        raw: bytes,
        method: bytes,
        target: bytes,
        minor: bytes,
        found: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        """Make the head from `raw`, which has been matched against the grammar, and from the parts of its request line.
        `found`: the fields that the proxy acts on, as names and values in lower case, if they have been found already.
        """
        self.raw = raw
        self._lowered = None
        self.method = method.decode("ascii")
        self.target = target
        self.version = "1.1"
        self.content_length = None
        self.chunked = False
        self.slow_path = None
        self._kept: tuple[bytes | None, bytes] | None = None  # a Host, and the field lines to send with it
        self.scanned = False
        if found is None:
            found = find_request(self.lowered)
        self.specials = specials = dict(found)
        if (
            minor == b"1"
            and len(specials) == len(found)
            and REQUEST_SLOW.isdisjoint(specials)
            and specials.get(b"connection", KEEP_ALIVE) in (KEEP_ALIVE, CLOSE)
            and (FRAMING.isdisjoint(specials) or self._is_plainly_framed(specials))
        ):
            self.keep_alive = specials.get(b"connection") != CLOSE
            self.simple = REQUEST_MERELY_CUT.isdisjoint(specials)
        else:
            self._settle(found, minor)
        self._locate()

    @classmethod
    def alike(cls, like: RequestHead, raw: bytes, method: bytes, target: bytes) -> RequestHead:
        """Return the head `raw`, whose request line has this method and target. `like`: a head that was read without
        the slow path, and whose lines that the proxy acts on are equal to those of `raw`; what these lines
        mean is taken from it.
        """
        self = RequestHead.__new__(RequestHead)
        self.raw = raw
        self._lowered = None
        self.method = method.decode("ascii")
        self.target = target
        self.version = "1.1"
        self.content_length = like.content_length
        self.chunked = like.chunked
        self.slow_path = None
        self.specials = like.specials
        self.keep_alive = like.keep_alive
        self.simple = like.simple
        self._kept = None
        self.scanned = False
        if (
            like.form == "origin" and target[0] == 0x2F and method != b"CONNECT"
        ):  # the branch of `_locate` that `like` took
            self.form = "origin"
            self.path = target
            self.authority = like.authority
            self.scheme = ""
            self._host = like._host
        else:
            self._locate()
        return self

    def _settle(self, found: slow_path.Found, minor: bytes) -> None:
        """Decide what an unusual Connection, Upgrade, TE or framing means; raise Refused if it is ambiguous. `found`:
        the fields that the proxy acts on; `minor`: HTTP's minor version.
        """
        self.simple = False
        self.version = "1.0" if minor == b"0" else "1.1"
        if sum(name == b"host" for name, _ in found) > 1:
            raise malformed("more than one Host")
        self.content_length, self.chunked = slow_path.request_framing(found, self.version)
        members = [member.strip(b" \t") for name, value in found if name == b"te" for member in value.split(b",")]
        self._settle_connection(found, malformed, may_upgrade=self.version != "1.0", trailers=b"trailers" in members)

    def _locate(self) -> None:
        """Find the request's destination from target and Host (RFC 9112 sections 3.2 and 3.3). Raises Refused."""
        target = self.target
        host = self.specials.get(b"host", b"")
        authority = read_authority(host)
        self.scheme = ""
        self._host: bytes | None = None
        if target[0] == 0x2F and self.method != "CONNECT":
            self.form = "origin"
            self.path = target
            if not authority:
                authority, self._host = slow_path.closer_host(self.specials, self.version, empty=self.may_lack_host)
            self.authority = authority
            return
        asterisk = target == b"*" and self.method == "OPTIONS"
        if not authority:
            authority, self._host = slow_path.closer_host(self.specials, self.version, empty=not asterisk)
        if asterisk:
            self.form, self.path, self.authority = "asterisk", target, authority
        elif self.method == "CONNECT":
            self.form, self.path, self.authority = "authority", b"", read_connect(target)
            if self.body_size:
                raise malformed("CONNECT with a body: where the tunnel begins is not clear")
        else:
            self.form = "absolute"
            origin, self.path = read_absolute(target, self.method)
            self.scheme, named, lowered, self.authority = origin
            self._host = named if lowered != host else None

    @property
    def body_size(self) -> int:
        """The number of bytes of body that follow the head, or CHUNKED."""
        return CHUNKED if self.chunked else self.content_length or 0

    @property
    def expect_continue(self) -> bool:
        """Whether the app waits for 100 Continue before it sends the body."""
        return self.version != "1.0" and self.specials.get(b"expect", b"").rstrip(b" \t") == b"100-continue"

    @property
    def max_forwards(self) -> int | None:
        """Max-Forwards if it counts: on OPTIONS and TRACE, if it is a number (RFC 9110 section 7.6.2); else None.

        Of repeated fields the least counts, and numbers are capped at MOST_HOPS.
        """
        if b"max-forwards" not in self.specials or self.method not in ("OPTIONS", "TRACE"):
            return None
        counts = [value.lstrip(b"0") for value in self.values(needle("max-forwards")) if value.isdigit()]
        return min((int(digits or b"0") if len(digits) <= 18 else MOST_HOPS for digits in counts), default=None)

    #: Whether the request came on HTTP/2.
    is_http2: ClassVar[bool] = False

    @property
    def login_bound(self) -> bool:
        """Whether NTLM or Negotiate is used, so that its connection upstream belongs to this app connection alone."""
        return b"authorization" in self.specials

    def has_lines_of(self, other: RequestHead) -> bool:
        """Whether this head has the same field lines as `other`, octet for octet; False too if one of them came on
        HTTP/2, where a comparison of single fields costs less.
        """
        if self.scanned and other.scanned:
            return same_lines(self.raw, self.edges, other.raw, other.edges)
        if self.is_http2 or other.is_http2:
            return False
        raw, known = self.raw, other.raw
        return raw[raw.find(b"\n") :] == known[known.find(b"\n") :]

    def render(
        self,
        *,
        target: bytes | None = None,
        host: bytes | None = None,
        drop: frozenset[bytes] = NO_NAMES,
        add: bytes = b"",
    ) -> bytes:
        """Render the head to send as HTTP/1.1: fields in order as they came, then `add`, lines with their CRLF.

        target: the request target to send; None sends what came, the absolute form as origin form.
        host: the Host to send instead of the one that came; None sends what came, or with the absolute form the
            target's authority.
        drop: lower-case names of further fields to leave out. Hop-by-hop fields, those that Connection names,
            X-Retry-Disable, X-Retry-Timeout and X-Attempt-Count are always left out; Transfer-Encoding and
            Content-Length only if named in `drop`. Max-Forwards of OPTIONS and TRACE is counted down in its place. An
            upgrade keeps its Upgrade (without h2c), TE its `trailers`, and Connection names them (RFC 9110 sections
            7.8, 10.1.4).
        """
        if target is None:
            target = self.path if self.form == "absolute" else self.target
        if host is None:
            host = self._host
        if drop <= REQUEST_CUT:
            if self.scanned and self.simple:
                shown = None if target is self.target else target
                text = splice(self.raw, self.edges, None, shown, host, add, b"")
                if text is not None:
                    return text
            kept = self._kept
            if kept is None or kept[0] != host:
                fields = self._simple_fields(host) if self.simple else self._fields(host, NO_NAMES)
                self._kept = kept = (host, fields)
            fields = kept[1]
        else:
            fields = self._fields_but(drop - REQUEST_CUT, host) or self._fields(host, drop)
        method = self.raw[: len(self.method)]
        return b"".join((method, b" ", target, b" HTTP/1.1\r\n", fields, add, b"\r\n"))

    def message(
        self, target: bytes | None, host: bytes | None, add: bytes, body: bytes, drop: frozenset[bytes]
    ) -> bytes:
        """Render the head to send as HTTP/1.1, as `render` does with the same arguments, and `body` after it, but
        without a loop over its fields if that is possible. `drop`: lower-case names of fields to leave out beside those
        that are always left out; `target` and `host`: sent instead of what came, None to send what came; `add`: lines
        to add, each with its CRLF.
        """
        if self.scanned:
            shown = self.path if target is None and self.form == "absolute" else target
            text = splice(self.raw, self.edges, drop, shown, self._host if host is None else host, add, body)
            if text is not None:
                return text
        return self.render(target=target, host=host, drop=drop, add=add) + body

    def _simple_fields(self, host: bytes | None) -> bytes:
        """Return the field lines to send, if the head is `simple`. `host` replaces the value of Host; None keeps it."""
        fields = self.raw[len(self.method) + len(self.target) + 10 : -2]  # from the CRLF of the request line on
        if b"connection" in self.specials:
            fields = b"\r\n".join(slow_path.around(fields, b"\r\nConnection:"))
        if host is not None:
            before, after = slow_path.around(fields, b"\r\nHost:")
            fields = b"".join((before, b"\r\nHost: ", host, b"\r\n", after))
        return fields[2:]

    def _fields_but(self, drop: frozenset[bytes], host: bytes | None) -> bytes:
        """Return the field lines to send if the head is `simple` and has at most one of each field in `drop`, of which
        none means anything to the proxy; else b"". These lines are left out. `host`: instead of Host; None keeps it.
        """
        if not self.simple or len(drop) > FEW or not drop.isdisjoint(REQUEST_NAMES):
            return b""
        fields = b"\n" + self._simple_fields(host)
        lowered = fields.lower()
        for name in drop:
            mark = b"\n" + name + b":"
            at = lowered.find(mark)
            if at >= 0:
                if lowered.find(mark, at + 1) >= 0:
                    return b""
                after = lowered.index(b"\n", at + 1)
                fields, lowered = fields[:at] + fields[after:], lowered[:at] + lowered[after:]
        return fields[1:]

    def _fields(self, host: bytes | None, drop: frozenset[bytes]) -> bytes:
        """Return the field lines to send of any head, with `host` in place of its Host (None keeps the one that came),
        without the fields named in `drop` (in lower case).
        """
        cut = REQUEST_CUT.intersection(self.specials) | (drop - REQUEST_CUT)
        put: dict[bytes, bytes] = {}
        if self.slow_path is not None:
            cut |= self.slow_path.present
            put = self.slow_path.lines()
            if self.chunked and b"transfer-encoding" not in cut and not self.coded_plainly:
                put[b"transfer-encoding"] = CODING_LINE
        if host is not None:
            put[b"host"] = b"Host: " + host + b"\r\n"
        hops = self.max_forwards
        if hops is not None and b"max-forwards" not in cut:
            put[b"max-forwards"] = b"Max-Forwards: %d\r\n" % max(hops - 1, 0)
        return edited(self, self.raw.find(b"\n") + 1, cut, put)
