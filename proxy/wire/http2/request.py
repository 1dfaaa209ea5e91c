"""The head of a request that came on HTTP/2, with the interface of HTTP/1's, so that `forward`, `retry` and `observe`
read either.

A head keeps its fields as they were encoded. It can be written in two ways: by `block` as HPACK, in slices of what
came, and by `render` as HTTP/1 text, which is made on request and read again by HTTP/1's own strict grammar. `raw` is
empty; `text` makes the HTTP/1 text.

A head that RFC 9113 section 8 calls malformed raises Malformed, and goes no further. A head is a value: it never
changes, and equal blocks make one head (`read_request` caches short ones).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from proxy.wire.authority import read_authority, without_empty_port
from proxy.wire.errors import malformed
from proxy.wire.field_names import REQUEST_CUT, REQUEST_KEYS
from proxy.wire.fields import NO_NAMES, Trailers
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.syntax import REQUEST, TARGET, TCHAR
from proxy.wire.http2.fields import (
    CONNECTION_SPECIFIC,
    Malformed,
    check_padding,
    length_of,
    lines_of,
    value_of,
    values_of,
    whole_wire,
    wire_of,
)
from proxy.wire.http2.hpack import Field, encoded_lines, literal, walk

#: Fields that are never forwarded, whatever the policy; TE passes.
_REQUEST_CUT = REQUEST_CUT - {b"te"}
_REQUEST_NAMES = frozenset(REQUEST_KEYS.values()) - {b"authorization"}
_PSEUDO = frozenset({b":method", b":scheme", b":authority", b":path"})
_PORTS = {b"http": b":80", b"https": b":443"}
#: Methods that anticipate a body: without one, HTTP/1.1 should get a Content-Length of 0 (RFC 9110 section 8.6).
_WITH_BODIES = frozenset({"POST", "PUT", "PATCH"})

_METHOD = re.compile(TCHAR + rb"{1,64}+").fullmatch
_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*+").fullmatch
_PATH = re.compile(rb"(?:/" + TARGET + rb"*+|\*)").fullmatch


class Request2(RequestHead):
    """The head of a request that came on HTTP/2. `fields`: its regular fields, without the pseudo-fields; `whole`: no
    body follows it. For the limits: `list_size`, the bytes of all fields as RFC 9113 counts a header list, and `count`,
    the number of fields.
    """

    __slots__ = ("_pseudo", "_text", "_wired", "_written", "count", "fields", "list_size", "whole")

    is_http2 = True

    def __init__(self, fields: list[Field], whole: bool) -> None:
        self._read(fields, whole)

    def _read(self, fields: list[Field], whole: bool) -> None:
        pseudo: dict[bytes, Field] = {}
        specials: dict[bytes, bytes] = {}
        size = 0
        begun = padded = False  # whether a regular field has come, whether some value is padded
        for field in fields:
            size += field.size
            if not field.steers:
                begun = True
                continue
            name = field.name
            if field.fault:
                raise Malformed(field.fault)
            padded = padded or field.padded
            if name[0] == 0x3A:
                if begun or name in pseudo or name not in _PSEUDO:
                    raise Malformed(f"{name.decode('latin-1')} is unknown, repeated, or after a field")
                pseudo[name] = field
                continue
            begun = True
            if name in _REQUEST_NAMES:
                value = field.value
                if name in CONNECTION_SPECIFIC or (name == b"te" and value != b"trailers"):
                    raise Malformed(f"{name.decode('latin-1')} is not a field of HTTP/2")
                if name in specials and name in (b"content-length", b"host"):
                    raise Malformed(f"more than one {name.decode('latin-1')}")
                specials[name] = value.lower()
        if padded:
            check_padding(fields)
        self.fields = fields[len(pseudo) :]
        self.list_size = size
        self.count = len(fields)
        self.whole = whole
        self.specials = specials
        self._pseudo = pseudo
        self._lowered = None
        self.raw = b""
        self._written: bytes | None = None
        self._text: RequestHead | None = None
        self._wired: tuple[bytes, bytes | None, bytes | None, bytes] | None = None
        self.slow_path = None
        self.scanned = False
        self._kept = None
        self._host = None
        self._locate2()
        length = specials.get(b"content-length")
        self.content_length = None if length is None else length_of(length)
        if whole and self.content_length:
            raise Malformed("content-length on a request without a body")
        self.version = "2.0"
        self.keep_alive = True
        self.chunked = not whole and length is None
        self.simple = _REQUEST_CUT.isdisjoint(specials)

    def _locate2(self) -> None:
        """Find the request's destination from its pseudo-fields and Host (RFC 9113 section 8.3.1). Raises Malformed."""
        pseudo = self._pseudo
        try:
            method = pseudo[b":method"].value
            named = pseudo.get(b":authority")
            if method != b"CONNECT":
                scheme, path = pseudo[b":scheme"].value, pseudo[b":path"].value
            elif named is None or len(pseudo) > 2:
                raise Malformed("CONNECT takes :method and :authority")
        except KeyError as missing:
            raise Malformed(f"{missing.args[0].decode('ascii')} is missing") from None
        self.method = _method(method)
        self.scheme = ""
        host = self.specials.get(b"host")
        authority = host or b""
        if named is not None and named.value:
            authority = named.value.lower()
        self.authority = _authority(authority)
        if authority and not self.authority:
            raise Malformed(":authority is not a host with an optional port")
        if method == b"CONNECT":
            self.form, self.path, self.target = "authority", b"", authority
            return
        if scheme not in _PORTS and _SCHEME(scheme) is None:
            raise Malformed(":scheme is malformed")
        if _PATH(path) is None or (path == b"*" and method != b"OPTIONS"):
            raise Malformed(":path is malformed")
        if host is not None and host != authority and not _same_authority(host, authority, scheme):
            raise Malformed("Host differs from :authority")
        self.form = "asterisk" if path == b"*" else "origin"
        self.path = self.target = path

    def text(self) -> bytes:
        if self._written is not None:
            return self._written
        host = b"" if b"host" in self.specials else b"Host: %b\r\n" % self._authority_sent
        framing = b"Transfer-Encoding: chunked\r\n" if self.chunked else b""
        if self.whole and self.content_length is None and self.method in _WITH_BODIES:
            framing = b"Content-Length: 0\r\n"
        te = b"Connection: TE\r\n" if b"te" in self.specials else b""
        method = self.method.encode("ascii")
        head = b"%b %b HTTP/1.1\r\n%b" % (method, self.target, host)
        self._written = b"%b%b%b%b\r\n" % (head, lines_of(self.fields), te, framing)
        return self._written

    @property
    def _authority_sent(self) -> bytes:
        named = self._pseudo.get(b":authority")
        return b"" if named is None else named.value

    @property
    def expect_continue(self) -> bool:
        return self.specials.get(b"expect") == b"100-continue"

    def get(self, name: bytes) -> bytes | None:
        return value_of(self.fields, name)

    def trailers_to_send(self, trailers: Trailers) -> Trailers | None:
        return trailers.without(REQUEST_CUT)

    def get_all(self, name: str) -> Sequence[str]:
        key = REQUEST_KEYS.get(name)
        if key is not None and key not in self.specials and key in _REQUEST_NAMES:
            return ()
        return values_of(self.fields, name)

    def render(
        self,
        *,
        target: bytes | None = None,
        host: bytes | None = None,
        drop: frozenset[bytes] = NO_NAMES,
        add: bytes = b"",
    ) -> bytes:
        """Render the head to send on HTTP/1.1: with this `target` and `host` (None: those that came), without the
        fields named in `drop`, and with the lines `add` at the end. Raises Refused if HTTP/1 can't express it.
        """
        text = self._text
        if text is None:
            raw = self.text()
            found = REQUEST(raw)
            if found is None or found.end() != len(raw):
                raise malformed("a field holds an octet that HTTP/1 can't carry")
            self._text = text = RequestHead(raw, found[1], found[2], found[3])
        return text.render(target=target, host=host, drop=drop, add=add)

    def block(
        self,
        scheme: bytes,
        authority: bytes | None,
        target: bytes | None,
        drop: frozenset[bytes] = NO_NAMES,
        add: bytes = b"",
    ) -> bytes:
        """Encode the head to send as HPACK: fields as they were encoded, then `add`, lines with their CRLF.

        scheme: what the endpoint speaks, http or https. authority, target: sent instead of what came; None keeps it.
        drop: lower-case names of fields to leave out, beside those that are never forwarded.
        """
        usual = not drop or drop <= REQUEST_CUT
        kept = self._wired
        if usual and kept is not None and kept[0] == scheme and kept[1] == authority and kept[2] == target:
            return kept[3] + encoded_lines(add) if add else kept[3]
        put = {b":scheme": scheme, b":authority": authority, b":path": target}
        parts: list[bytes] = []
        for name, field in self._pseudo.items():
            value = put.get(name)
            if value is None or value == field.value:
                parts.append(field.wire)
            else:
                parts.append(literal(name, value) if name == b":path" else _put(name, value))
        cut = _REQUEST_CUT if usual else _REQUEST_CUT | (drop - {b"te"})
        if authority is not None:
            if b"host" in self.specials:
                cut |= {b"host"}
            if b":authority" not in self._pseudo:
                parts.append(_put(b":authority", authority))
        hops = self.max_forwards
        if hops is not None and b"max-forwards" not in cut:
            parts += [wire_of(self.fields, cut | {b"max-forwards"}), literal(b"max-forwards", b"%d" % max(hops - 1, 0))]
        elif usual and cut.isdisjoint(self.specials):
            parts.append(whole_wire(self.fields))
        else:
            parts.append(wire_of(self.fields, cut))
        block = b"".join(parts)
        if usual:
            self._wired = (scheme, authority, target, block)
        return block + encoded_lines(add) if add else block


@lru_cache(maxsize=256)
def _put(name: bytes, value: bytes) -> bytes:
    """Encode a pseudo-field (`name` with its colon) that replaces one that came. The values are those of endpoints, so
    they recur, and their encodings are cached.
    """
    return literal(name, value)


@lru_cache(maxsize=64)
def _method(method: bytes) -> str:
    if _METHOD(method) is None:
        raise Malformed(":method is malformed")
    return method.decode("ascii")


@lru_cache(maxsize=1024)
def _authority(authority: bytes) -> str:
    return read_authority(without_empty_port(authority))


def _same_authority(host: bytes, authority: bytes, scheme: bytes) -> bool:
    """Whether two lower-case authorities name the same host and port; true also if `authority` is empty. `scheme`:
    `http` or `https`, whose usual port may be left out.
    """
    port = _PORTS.get(scheme.lower(), b"")
    one, other = without_empty_port(host), without_empty_port(authority)
    return not other or one.removesuffix(port) == other.removesuffix(port)


@lru_cache(maxsize=512)
def read_request(block: bytes, whole: bool) -> Request2:
    """Return the request whose head is this header block, which can be decoded without HPACK's dynamic table. `whole`:
    no body follows it. Raises Malformed, `hpack.Unreadable`.
    """
    return Request2(walk(block), whole)
