"""The common base of the heads of requests and answers, and the slow path for unusual ones: repeated or contradictory
framing, Connection, TE, Host.

The grammar is that of the common path, and nothing is guessed. A message that two readers could take for two different
ones is refused (RFC 9112 section 11). The arguments called `found` are what `wire.field_names` finds: pairs of
lower-case name and lower-case value, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

from proxy.wire.authority import read_authority, without_empty_port
from proxy.wire.errors import BadAnswer, BadMessage, Refused, malformed
from proxy.wire.field_names import FRAMING, KEEP_ALIVE
from proxy.wire.fields import NO_NAMES, FieldBlock, Trailers, needle
from proxy.wire.http1.syntax import TOKENS

Found = list[tuple[bytes, bytes]]

#: Fields that are not cut even if Connection names them, against RFC 9110 section 7.6.1. A peer must not change framing
#: and routing (every proxy has to keep Via, section 7.6.3), and the TE and Upgrade to send are written by `lines`.
#: `keep-alive` and `close` are options of Connection itself; a field Keep-Alive is always cut, and no field is called
#: Close (section 18.4).
NEVER_NOMINATED = FRAMING | {b"host", b"via", b"x-redrive-loop", b"te", b"upgrade", b"close", b"keep-alive"}


def connection_options(found: Found, bad: Callable[[str], BadMessage]) -> frozenset[bytes]:
    """Return the options of all Connection fields together, in lower case; raise `bad` for a value that is no list of
    tokens.
    """
    options: set[bytes] = set()
    for name, value in found:
        if name == b"connection":
            if TOKENS(value) is None:
                raise bad("Connection is not a list of tokens")
            options.update(option.strip(b" \t") for option in value.split(b","))
    options.discard(b"")
    return frozenset(options)


def request_framing(found: Found, version: str) -> tuple[int | None, bool]:
    """Return Content-Length (None for none) and whether the body is chunked, for a request, which may have only one of
    the two fields, and only once. `version`: that of HTTP. Raises Refused.
    """
    lengths = [value.rstrip(b" \t") for name, value in found if name == b"content-length"]
    codings = [value.rstrip(b" \t") for name, value in found if name == b"transfer-encoding"]
    if codings:
        if lengths:
            raise malformed("Transfer-Encoding together with Content-Length")
        if version == "1.0":
            raise malformed("Transfer-Encoding in HTTP/1.0")
        coding = b",".join(codings)
        if coding != b"chunked":
            _refuse_coding(coding)
        return None, True
    if not lengths:
        return None, False
    if len(lengths) > 1:
        raise malformed("more than one Content-Length")
    if not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise malformed("Content-Length is not a number of 1 to 18 digits")
    return int(lengths[0]), False


def _refuse_coding(value: bytes) -> NoReturn:
    """Refuse a Transfer-Encoding other than `chunked`: with 400 if readers may disagree on the list, or if it does not
    end in `chunked`, so that the body's end is unknown (RFC 9112 section 6.3); with 501 if another coding, unknown
    here, comes before it (section 6.1).
    """
    codings = [coding.strip(b" \t") for coding in value.split(b",")]
    if TOKENS(value) is None or b"" in codings or codings.count(b"chunked") > 1:
        raise malformed("Transfer-Encoding is malformed")
    if codings[-1] != b"chunked":
        raise malformed("chunked is not the last transfer coding")
    raise Refused(501, "Not Implemented", "no transfer coding but chunked is supported here")


def answer_framing(found: Found, version: str) -> tuple[int | None, bool, bytes | None]:
    """Return how the body of an answer with the fields `found` is framed: its Content-Length (None if the answer has
    none), whether it is chunked, and the Content-Length line to write in place of several equal ones (None if there is
    nothing to replace). `version`: the answer's version of HTTP. Raises BadAnswer.
    """
    lengths = [value.rstrip(b" \t") for name, value in found if name == b"content-length"]
    codings = [value.rstrip(b" \t") for name, value in found if name == b"transfer-encoding"]
    if codings:
        if lengths:
            raise BadAnswer("Transfer-Encoding together with Content-Length")
        if version == "1.0":
            raise BadAnswer("Transfer-Encoding in HTTP/1.0")
        if codings != [b"chunked"]:
            raise BadAnswer("Transfer-Encoding is not chunked")
        return None, True, None
    if not lengths:
        return None, False, None
    each = {length.strip(b" \t") for value in lengths for length in value.split(b",")}
    length = each.pop()
    if each or not length.isdigit() or len(length) > 18:
        raise BadAnswer("Content-Length is not one number of 1 to 18 digits")
    merged = None if lengths == [length] else b"Content-Length: " + length + b"\r\n"
    return int(length), False, merged


def closer_host(specials: dict[bytes, bytes], version: str, *, empty: bool) -> tuple[str, bytes | None]:
    """Read a Host that is unusual (missing, empty, or in need of a correction). Returns the authority that it names,
    and the value to send if it differs from what came (else None). The authority is "" if an HTTP/1.0 request has no
    Host, or if Host is empty and that is allowed (`empty`: the target names the destination, RFC 9112 section 3.2).
    `specials`: the fields that the proxy acts on; `version`: that of HTTP. Raises Refused.
    """
    host = specials.get(b"host")
    if host is None:
        if version != "1.0":
            raise malformed("no Host")
        return "", None
    host = host.rstrip(b" \t")
    named = without_empty_port(host)
    authority = read_authority(named)
    if not authority and (host or not empty):
        raise malformed("Host is not a host with an optional port")
    return authority, named if named != host else None


def upgrade_protocols(values: list[bytes]) -> bytes | None:
    """Return the protocols of Upgrade without h2c, as written; None if none is left."""
    protocols = [protocol.strip(b" \t") for value in values for protocol in value.split(b",")]
    kept = [protocol for protocol in protocols if protocol and protocol.lower() != b"h2c"]
    return b", ".join(kept) if kept else None


def switches_as_asked(offered: bytes | None, chosen: bytes | None) -> bool:
    """Whether every protocol in `chosen`, the Upgrade of a 101, is in `offered`, the Upgrade of the request; False if
    either is None (RFC 9110 section 7.8).
    """
    if offered is None or chosen is None:
        return False
    offers = {protocol.partition(b"/")[0].strip(b" \t") for protocol in offered.lower().split(b",")}
    return all(protocol.partition(b"/")[0].strip(b" \t") in offers for protocol in chosen.lower().split(b","))


class SlowPath(NamedTuple):
    """The facts that rendering needs of a head that took the slow path.

    nominated: the names that Connection lists, whose fields are to be cut. present: those of them that came in the
    head. upgrade: the protocols of Upgrade to forward, None for none. trailers: whether TE lists `trailers`.
    """

    nominated: frozenset[bytes]
    present: frozenset[bytes]
    upgrade: bytes | None
    trailers: bool

    def lines(self) -> dict[bytes, bytes]:
        """Return, by lower-case name, the TE, Upgrade and Connection lines to send (RFC 9110 sections 7.8, 10.1.4)."""
        lines: dict[bytes, bytes] = {}
        if self.trailers:
            lines[b"te"] = b"TE: trailers\r\n"
        if self.upgrade is not None:
            lines[b"upgrade"] = b"Upgrade: " + self.upgrade + b"\r\n"
        if lines:
            options = b"TE, Upgrade" if len(lines) == 2 else b"TE" if self.trailers else b"Upgrade"
            lines[b"connection"] = b"Connection: " + options + b"\r\n"
        return lines


def around(raw: bytes, mark: bytes) -> tuple[bytes, bytes]:
    """Return the part of a head before a field line that the head has once, and the part after that line. The CRLF
    before the line belongs to neither part. `mark`: that CRLF, then the line's field name and colon in the letter case
    that most senders use; the name is found in any case.
    """
    before, found, after = raw.partition(mark)
    if not found:
        at = raw.lower().find(mark.lower())
        before, after = raw[:at], raw[at + 2 :]
    return before, after.partition(b"\r\n")[2]


class Head(FieldBlock):
    """The base of the heads of requests and of answers."""

    __slots__ = ("chunked", "content_length", "keep_alive", "scanned", "simple", "slow_path", "specials", "version")

    slow_path: SlowPath | None  # None if version, connection and framing were all decided without the slow path
    scanned: bool  # whether compiled code read the head, so that `splice` may render it
    edges: Any  # the offsets of its lines; only compiled code has them
    version: str  # that of HTTP in which the head came, as Via names it (RFC 9110 section 7.6.3)
    specials: dict[bytes, bytes]
    content_length: int | None

    #: Fields that are never forwarded as they came, and the names that the proxy acts on, by their text.
    _cut: ClassVar[frozenset[bytes]] = NO_NAMES
    _keys: ClassVar[dict[str, bytes]] = {}

    @property
    def upgrade(self) -> bytes | None:
        """The value of Upgrade without h2c, if Connection names it, in an HTTP/1.1 request, a 101 or a 426; else
        None.
        """
        return None if self.slow_path is None else self.slow_path.upgrade

    def get_all(self, name: str) -> Sequence[str]:
        key = self._keys.get(name)
        if key is not None and key not in self.specials:
            return ()
        return FieldBlock.get_all(self, name)

    def trailers_to_send(self, trailers: Trailers) -> Trailers | None:
        """Return the trailers of the body to forward: all but hop-by-hop fields and those that Connection names (RFC
        9110 section 7.6.1); None if none is left.
        """
        nominated = NO_NAMES if self.slow_path is None else self.slow_path.nominated
        return trailers.without(self._cut | nominated)

    def _is_plainly_framed(self, specials: dict[bytes, bytes]) -> bool:
        """Read the common framing: one Content-Length of 1 to 18 digits, or chunked. Returns False if the framing needs
        the slow path. `specials`: the fields that the proxy acts on.
        """
        length = specials.get(b"content-length")
        if length is None:
            self.content_length = None
            self.chunked = specials.get(b"transfer-encoding") == b"chunked" and self.coded_plainly
            return self.chunked
        self.chunked = False
        if b"transfer-encoding" in specials or not length.isdigit() or len(length) > 18:
            return False
        self.content_length = int(length)
        return True

    def _settle_connection(
        self, found: Found, bad: Callable[[str], BadMessage], *, may_upgrade: bool, trailers: bool
    ) -> None:
        """Decide, by a Connection field with more than `keep-alive`, whether the connection stays open, which fields
        are left out, and whether an Upgrade is forwarded; raise `bad` if the field can't be read. `may_upgrade`: an
        Upgrade in this head may be forwarded; `trailers`: TE lists `trailers`.
        """
        options = connection_options(found, bad)
        self.keep_alive = b"close" not in options if self.version != "1.0" else KEEP_ALIVE in options
        upgrade = None
        if may_upgrade and b"upgrade" in options and b"upgrade" in self.specials:
            upgrade = upgrade_protocols(self.values(needle("upgrade")))
        nominated = options - NEVER_NOMINATED
        self.slow_path = SlowPath(nominated, self.present(nominated), upgrade, trailers)
