"""A request's head: what decisions need of it, and the head that is sent on in its place.

Law: a head is validated whole and then forwarded as slices of the same bytes. The common head takes one pass, no loop
over fields. Anything unusual about connection, framing or place goes by the slow path (`wire/awkward.py`), which
decides by the same rules and refuses what is ambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.wire import awkward
from proxy.wire.authority import read_absolute, read_authority, read_connect
from proxy.wire.fields import CHUNKED, NO_NAMES, FieldBlock, edited, needle
from proxy.wire.names import KEEP_ALIVE, REQUEST_CUT, REQUEST_KEYS, REQUEST_SLOW, find_request
from proxy.wire.syntax import malformed


class RequestHead(FieldBlock):
    """A request's head.

    raw: bytes            the head as it came, from the request line to the empty line
    method: str           any token; case-sensitive
    target: bytes         the request target as it came
    form: str             "origin" | "absolute" | "authority" (CONNECT) | "asterisk"
    scheme: str           "http" or "https" where the target named one, else ""
    authority: str        the absolute form's, CONNECT's, else Host's; host in lower case, port as written; "" if none
    path: bytes           path and query in origin form, raw; b"" for CONNECT, b"*" for the asterisk form
    minor: int            0 or 1 (a higher minor version is treated as 1)
    keep_alive: bool      the app wants the connection kept
    content_length: int | None
    chunked: bool         the body comes chunked
    simple: bool          nothing to cut but `Connection: keep-alive`, nothing of redrive's own in it
    specials: dict[bytes, bytes]   the names that matter which came (lower case) -> last value, in LOWER CASE
    """

    __slots__ = (
        "_host",
        "_nominated",
        "_te",
        "authority",
        "chunked",
        "content_length",
        "form",
        "keep_alive",
        "method",
        "minor",
        "path",
        "scheme",
        "simple",
        "specials",
        "target",
        "upgrade",
    )

    authority: str
    path: bytes
    form: str
    scheme: str
    #: The Upgrade field's value without h2c, where the call is an upgrade (Connection names it, HTTP/1.1); else None.
    upgrade: bytes | None

    def __init__(self, raw: bytes, method: bytes, target: bytes, minor: bytes) -> None:
        self.raw = raw
        self.lowered = lowered = raw.lower()
        self.method = method.decode("ascii")
        self.target = target
        self.minor = 1
        self._host: bytes | None = None
        self._nominated = NO_NAMES
        self._te = False
        self.upgrade = None
        found: list[tuple[bytes, bytes]] = find_request(lowered)
        self.specials = specials = dict(found)
        if (
            minor != b"1"
            or len(specials) != len(found)
            or not REQUEST_SLOW.isdisjoint(specials)
            or specials.get(b"connection", KEEP_ALIVE) != KEEP_ALIVE
            or not self._plainly_framed(specials)
        ):
            self._settle(found, minor)
            return
        self.keep_alive = self.simple = True
        if target[0] == 0x2F and method != b"CONNECT":
            authority = read_authority(specials.get(b"host", b""))
            if authority:
                self.form = "origin"
                self.scheme = ""
                self.path = target
                self.authority = authority
                return
        self._locate([value for name, value in found if name == b"host"])

    def _plainly_framed(self, specials: dict[bytes, bytes]) -> bool:
        """Read the common framing: none, one Content-Length of 1 to 18 digits, or chunked. False: look closer."""
        length = specials.get(b"content-length")
        coding = specials.get(b"transfer-encoding")
        if length is None:
            self.content_length = None
            self.chunked = coding is not None
            return coding is None or coding == b"chunked"
        self.chunked = False
        if coding is not None or not length.isdigit() or len(length) > 18:
            return False
        self.content_length = int(length)
        return True

    def _settle(self, found: list[tuple[bytes, bytes]], minor: bytes) -> None:
        """Decide what is unusual about connection and framing; Refused where it is ambiguous."""
        self.simple = False
        self.minor = int(minor != b"0")
        self.content_length, self.chunked = awkward.request_framing(found, self.minor)
        options = awkward.connection_options(found, malformed)
        self.keep_alive = b"close" not in options if self.minor else KEEP_ALIVE in options
        self._nominated = options - awkward.NEVER_NOMINATED
        self._te = b"te" in self.specials and awkward.wants_trailers(found)
        if self.minor and b"upgrade" in options and b"upgrade" in self.specials:
            self.upgrade = awkward.upgrade_protocols(self.values(needle("upgrade")))
        self._locate([value for name, value in found if name == b"host"])

    def _locate(self, hosts: list[bytes]) -> None:
        """Find out where the request goes from target and Host (RFC 9112 sections 3.2 and 3.3)."""
        target, method = self.target, self.method
        host = awkward.one_host(hosts, self.minor)
        self.scheme = ""
        if method == "CONNECT":
            self.form, self.path, self.authority = "authority", b"", read_connect(target)
        elif target[0] == 0x2F:
            self.form, self.path, self.authority = "origin", target, awkward.named_host(host)
        elif target == b"*" and method == "OPTIONS":
            self.form, self.path, self.authority = "asterisk", target, awkward.named_host(host)
        else:
            self.form = "absolute"
            self.scheme, named, self.authority, self.path = read_absolute(target, method)
            self._host = None if host is not None and named.lower() == host else named

    @property
    def body_size(self) -> int:
        """How many bytes of body follow the head, or CHUNKED."""
        return CHUNKED if self.chunked else self.content_length or 0

    @property
    def expect_continue(self) -> bool:
        """Whether the app waits for 100 Continue before it sends the body."""
        return self.minor == 1 and self.specials.get(b"expect", b"").rstrip(b" \t") == b"100-continue"

    @property
    def max_forwards(self) -> int | None:
        """Max-Forwards where it matters: on OPTIONS and TRACE, and readable (RFC 9110 section 7.6.2)."""
        if b"max-forwards" not in self.specials or self.method not in ("OPTIONS", "TRACE"):
            return None
        value = self.specials[b"max-forwards"].rstrip(b" \t")
        return int(value) if value.isdigit() and len(value) <= 18 else None

    @property
    def login_bound(self) -> bool:
        """Whether NTLM or Negotiate is used: its connection upstream belongs to this app connection alone."""
        return b"authorization" in self.specials

    def get_all(self, name: str) -> Sequence[str]:
        """Every value of the field of this lower-case name, in order, white space around it stripped, as latin-1."""
        key = REQUEST_KEYS.get(name)
        if key is not None and key not in self.specials:
            return ()
        return super().get_all(name)

    def render(
        self,
        *,
        target: bytes | None = None,
        host: bytes | None = None,
        drop: frozenset[bytes] = NO_NAMES,
        add: bytes = b"",
    ) -> bytes:
        """The head to send on, HTTP/1.1: fields in order as they came, then `add`, ready-made lines with their CRLF.

        target: the request target to send; None sends what came, the absolute form as origin form.
        host: the Host to send, in the place of the one that came; None sends what came, with the absolute form the
            target's authority.
        drop: lower-case names of further fields to leave out. Hop-by-hop fields and those that Connection names are
            left out by themselves (X-Retry-*, X-Attempt-Count too); Transfer-Encoding and Content-Length only if
            named in `drop`. Max-Forwards of OPTIONS and TRACE is counted down in its place. An upgrade keeps its
            Connection and Upgrade (without h2c); `TE: trailers` goes on as RFC 9110 asks, named in Connection.
        """
        if self.form == "absolute":
            if target is None:
                target = self.path
            if host is None:
                host = self._host
        raw = self.raw
        if not self.simple or not drop <= REQUEST_CUT:
            return self._render_closely(target, host, drop, add)
        if host is not None:
            start = 0 if target is None else raw.find(b"\n") + 1
            parts = edited(self, start, (b"connection",), {b"host": b"Host: " + host + b"\r\n"})
        elif b"connection" in self.specials:
            start = 0 if target is None else raw.find(b"\n") + 1
            cut = self.lowered.find(b"\nconnection:") + 1
            parts = [raw[start:cut], raw[raw.find(b"\n", cut) + 1 : -2]]
        else:
            parts = [raw[:-2] if target is None else raw[raw.find(b"\n") + 1 : -2]]
        if target is None:
            return b"%b%b\r\n" % (b"".join(parts), add)
        return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (self.method.encode("ascii"), target, b"".join(parts), add)

    def _render_closely(self, target: bytes | None, host: bytes | None, drop: frozenset[bytes], add: bytes) -> bytes:
        """The same for a head of which more must be cut or changed."""
        cut = REQUEST_CUT | self._nominated | drop
        put = {} if host is None else {b"host": b"Host: " + host + b"\r\n"}
        hops = self.max_forwards
        if hops is not None and b"max-forwards" not in cut:
            put[b"max-forwards"] = b"Max-Forwards: %d\r\n" % max(hops - 1, 0)
        put.update(awkward.connection_lines(self.upgrade, self._te))
        parts = edited(self, self.raw.find(b"\n") + 1, cut, put)
        line = (self.method.encode("ascii"), self.target if target is None else target)
        return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (*line, b"".join(parts), add)
