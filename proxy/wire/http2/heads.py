"""Heads and trailers that came on HTTP/2, with the interface of HTTP/1's, so that `forward`, `retry` and `observe` read
either.

A head keeps its fields as they were encoded. It can be written in two ways: by `block` as HPACK, in slices of what
came, and by `render` as HTTP/1 text, which is made on request and read again by HTTP/1's own strict grammar. `raw` is
empty; `text` makes the HTTP/1 text. `request_block` and `answer_block` write any head as HPACK; a head that came on
HTTP/1 is translated.

A head that RFC 9113 section 8 calls malformed raises Malformed, and goes no further. A head is a value: it never
changes, and equal blocks make one head (`read_request` and `read_answer` cache short ones).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import Final

from proxy.wire.authority import read_authority, without_empty_port
from proxy.wire.errors import BadAnswer, malformed
from proxy.wire.field_names import ANSWER_CUT, ANSWER_KEYS, MISLEADING_TRAILERS, REQUEST_CUT, REQUEST_KEYS
from proxy.wire.fields import NO_NAMES, Trailers
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.response import ResponseHead
from proxy.wire.http1.syntax import REQUEST, RESPONSE, TARGET, TCHAR
from proxy.wire.http2.hpack import CREDENTIALS, Field, encoded_lines, literal, walk

#: The longest block, in bytes, that is cached with the head that it makes.
SHORT: Final = 2048

#: Fields that concern one HTTP/1 connection (RFC 9113 section 8.2.2). TE is allowed with the value `trailers`.
CONNECTION_SPECIFIC = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
#: Fields that are malformed in trailers. TE belongs in the head of a request alone.
_NOT_IN_TRAILERS = CONNECTION_SPECIFIC | MISLEADING_TRAILERS | {b"te"}
#: Fields that are never forwarded, whatever the policy; TE passes.
_REQUEST_CUT = REQUEST_CUT - {b"te"}
_ANSWER_CUT = ANSWER_CUT - {b"te"}
_REQUEST_NAMES = frozenset(REQUEST_KEYS.values()) - {b"authorization"}
_ANSWER_NAMES = frozenset(ANSWER_KEYS.values())
_PSEUDO = frozenset({b":method", b":scheme", b":authority", b":path"})
_PORTS = {b"http": b":80", b"https": b":443"}
#: Methods that anticipate a body: without one, HTTP/1.1 should get a Content-Length of 0 (RFC 9110 section 8.6).
_WITH_BODIES = frozenset({"POST", "PUT", "PATCH"})

_METHOD = re.compile(TCHAR + rb"{1,64}+").fullmatch
_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*+").fullmatch
_STATUS = re.compile(rb"[1-9][0-9][0-9]").fullmatch
_PATH = re.compile(rb"(?:/" + TARGET + rb"*+|\*)").fullmatch


class Malformed(Exception):  # noqa: N818 - named by what happened
    """Raised for a head that RFC 9113 calls malformed, whose stream is reset. Its text is one clause."""


def _get_all(fields: list[Field], name: str) -> Sequence[str]:
    wanted = name.encode("latin-1", "replace")
    return [field.value.strip(b" \t").decode("latin-1") for field in fields if field.name == wanted]


def _get(fields: list[Field], name: bytes) -> bytes | None:
    for field in fields:
        if field.name == name:
            return field.value.strip(b" \t")
    return None


def _check_padding(fields: list[Field]) -> None:
    """Raise Malformed if any of these fields has white space around its value (RFC 9113 section 8.2.1), unless the
    fields are gRPC's. C-core sends metadata and messages as an application wrote them, and gRPC accepts white space
    around them (PROTOCOL-HTTP2, ASCII-Value). Writers of HTTP/1 strip it.
    """
    kind = _get(fields, b"content-type") or b""
    if not kind.lower().startswith(b"application/grpc") and _get(fields, b"grpc-status") is None:
        raise Malformed("a field value begins or ends with white space")


def _lines(fields: Iterable[Field]) -> bytes:
    """Write fields as HTTP/1 lines; `cookie` lines are joined into one at the place of the first (RFC 9113 section
    8.2.3).
    """
    lines: list[bytes] = []
    cookies: list[bytes] = []
    for field in fields:
        name, text = field.name, field.value.strip(b" \t")
        if name != b"cookie":
            lines.append(b"%b: %b\r\n" % (name, text))
            continue
        if not cookies:
            lines.append(b"")
            index = len(lines) - 1
        cookies.append(text)
        lines[index] = b"cookie: %b\r\n" % b"; ".join(cookies)
    return b"".join(lines)


def _wire(fields: list[Field], cut: Set[bytes]) -> bytes:
    return b"".join([field.wire for field in fields if field.name not in cut])


def _whole_wire(fields: list[Field]) -> bytes:
    return b"".join([field.wire for field in fields])


def _length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise Malformed("content-length is not a number of 1 to 18 digits")
    return int(value)


class Trailers2(Trailers):
    """Trailers that came on HTTP/2. `fields`: as they came; `block`: their encoding to forward; `list_size`: what they
    count for in a header list.
    """

    __slots__ = ("_names", "_written", "block", "fields", "list_size")

    def __init__(self, fields: list[Field]) -> None:
        self._read(fields)

    def _read(self, fields: list[Field]) -> None:
        size = 0
        padded = False
        for field in fields:
            size += field.size
            if field.steers:
                name = field.name
                padded = padded or field.padded
                if field.fault or name[0] == 0x3A or name in _NOT_IN_TRAILERS:
                    raise Malformed(field.fault or f"{name.decode('latin-1')} in trailers")
        if padded:
            _check_padding(fields)
        self.list_size = size
        self.fields = fields
        self.block = _whole_wire(fields)
        self._names = frozenset([field.name for field in fields])
        self._lowered = None
        self.raw = b""
        self._written: bytes | None = None

    def text(self) -> bytes:
        """Return the trailers as HTTP/1 text, made by the first call."""
        if self._written is not None:
            return self._written
        self._written = b"\r\n" + _lines(self.fields)
        return self._written

    def get(self, name: bytes) -> bytes | None:
        """Return the first value of the field with this lower-case name, stripped, or None if there is none."""
        return _get(self.fields, name)

    def get_all(self, name: str) -> Sequence[str]:
        """Return every value of the field with this lower-case name, in order, stripped, as latin-1."""
        return _get_all(self.fields, name)

    def without(self, names: Set[bytes]) -> Trailers2 | None:
        """Return the trailers to forward: all but the fields with these lower-case names, as they came; None if none is
        left.
        """
        if names.isdisjoint(self._names):
            return self
        left = [field for field in self.fields if field.name not in names]
        return Trailers2(left) if left else None


class Request2(RequestHead):
    """The head of a request that came on HTTP/2. `fields`: its regular fields, without the pseudo-fields; `whole`: no
    body follows it.

    `list_size` and `count`: what it counts for in a header list, and its number of fields, for the limits.
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
            _check_padding(fields)
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
        self._slow_path = None
        self.scanned = False
        self._kept = None
        self._host = None
        self._locate2()
        length = specials.get(b"content-length")
        self.content_length = None if length is None else _length(length)
        if whole and self.content_length:
            raise Malformed("content-length on a request without a body")
        self.minor = 1
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
        """Return the head as HTTP/1 text, made by the first call."""
        if self._written is not None:
            return self._written
        host = b"" if b"host" in self.specials else b"Host: %b\r\n" % self._authority_sent
        framing = b"Transfer-Encoding: chunked\r\n" if self.chunked else b""
        if self.whole and self.content_length is None and self.method in _WITH_BODIES:
            framing = b"Content-Length: 0\r\n"
        te = b"Connection: TE\r\n" if b"te" in self.specials else b""
        method = self.method.encode("ascii")
        head = b"%b %b HTTP/1.1\r\n%b" % (method, self.target, host)
        self._written = b"%b%b%b%b\r\n" % (head, _lines(self.fields), te, framing)
        return self._written

    @property
    def _authority_sent(self) -> bytes:
        named = self._pseudo.get(b":authority")
        return b"" if named is None else named.value

    @property
    def version(self) -> str:
        """The version of HTTP on which the request came."""
        return "2.0"

    @property
    def expect_continue(self) -> bool:
        """Whether the app waits for 100 Continue before it sends the body."""
        return self.specials.get(b"expect") == b"100-continue"

    def get(self, name: bytes) -> bytes | None:
        """Return the first value of the field with this lower-case name, stripped, or None if there is none."""
        return _get(self.fields, name)

    def trailers_to_send(self, trailers: Trailers) -> Trailers | None:
        """Return the body's trailers to send, all but the fields that never are; None if no field is left."""
        return trailers.without(REQUEST_CUT)

    def get_all(self, name: str) -> Sequence[str]:
        """Return every value of the field with this lower-case name, in order, stripped, as latin-1."""
        key = REQUEST_KEYS.get(name)
        if key is not None and key not in self.specials and key in _REQUEST_NAMES:
            return ()
        return _get_all(self.fields, name)

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
            parts += [_wire(self.fields, cut | {b"max-forwards"}), literal(b"max-forwards", b"%d" % max(hops - 1, 0))]
        elif usual and cut.isdisjoint(self.specials):
            parts.append(_whole_wire(self.fields))
        else:
            parts.append(_wire(self.fields, cut))
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


class Response2(ResponseHead):
    """The head of an answer that came on HTTP/2. `fields`: its regular fields, without `:status`; `whole`: no body
    follows it.
    """

    __slots__ = ("_text", "_wired", "_written", "count", "fields", "list_size", "whole")

    def __init__(self, fields: list[Field], whole: bool) -> None:
        self._read(fields, whole)

    def _read(self, fields: list[Field], whole: bool) -> None:
        specials: dict[bytes, bytes] = {}
        size = 0
        padded = False
        if not fields or fields[0].name != b":status" or _STATUS(fields[0].value) is None:
            raise Malformed(":status is missing, or malformed")
        for at, field in enumerate(fields):
            size += field.size
            if not field.steers:
                continue
            name, value = field.name, field.value
            if field.fault:
                raise Malformed(field.fault)
            padded = padded or field.padded
            if name[0] == 0x3A and at:
                raise Malformed(f"{name.decode('latin-1')} is unknown, repeated, or after a field")
            if name in CONNECTION_SPECIFIC or (name == b"te" and value != b"trailers"):
                raise Malformed(f"{name.decode('latin-1')} is not a field of HTTP/2")
            if name in _ANSWER_NAMES:
                if name == b"content-length" and specials.get(name, value) != value:
                    raise Malformed("more than one content-length")
                specials[name] = value.lower()
        if padded:
            _check_padding(fields)
        self.status = int(fields[0].value)
        if self.status == 101:
            raise Malformed("101 is not an answer of HTTP/2")
        self.fields = fields[1:]
        self.list_size = size
        self.count = len(fields)
        self.whole = whole
        self.specials = specials
        self._lowered = None
        self.raw = b""
        self._written: bytes | None = None
        self._text: ResponseHead | None = None
        self._wired: bytes | None = None
        self._slow_path = None
        self.scanned = False
        self._kept = None
        length = specials.get(b"content-length")
        self.content_length = (0 if whole else None) if length is None else _length(length)
        self.minor = 1
        self.keep_alive = True
        self.chunked = not whole and length is None
        self.simple = False

    def text(self) -> bytes:
        """Return the head as HTTP/1 text, made by the first call."""
        if self._written is not None:
            return self._written
        framing = b""
        if b"content-length" not in self.specials and self.status >= 200 and self.status not in (204, 304):
            framing = b"Content-Length: 0\r\n" if self.whole else b"Transfer-Encoding: chunked\r\n"
        self._written = b"HTTP/1.1 %d \r\n%b%b\r\n" % (self.status, _lines(self.fields), framing)
        return self._written

    def says_same(self, other: ResponseHead) -> bool:
        """Return False: heads on HTTP/2 are not compared, since equal blocks already share one head."""
        return False

    @property
    def version(self) -> str:
        """The version of HTTP on which the answer came."""
        return "2.0"

    @property
    def login_bound(self) -> bool:
        """Always False: NTLM and Negotiate are no schemes of HTTP/2."""
        return False

    def get(self, name: bytes) -> bytes | None:
        """Return the first value of the field with this lower-case name, stripped, or None if there is none."""
        return _get(self.fields, name)

    def trailers_to_forward(self, trailers: Trailers) -> Trailers | None:
        """Return the body's trailers to forward, all but the fields that never are; None if no field is left."""
        return trailers.without(ANSWER_CUT)

    def get_all(self, name: str) -> Sequence[str]:
        """Return every value of the field with this lower-case name, in order, stripped, as latin-1."""
        key = ANSWER_KEYS.get(name)
        if key is not None and key not in self.specials:
            return ()
        return _get_all(self.fields, name)

    def render(self, *, drop: frozenset[bytes] = NO_NAMES, add: bytes = b"") -> bytes:
        """Render the head to forward on HTTP/1.1: without the fields named in `drop`, and with the lines `add` at the
        end. Raises BadAnswer if HTTP/1 can't express it.
        """
        text = self._text
        if text is None:
            raw = self.text()
            found = RESPONSE(raw)
            if found is None or found.end() != len(raw):
                raise BadAnswer("a field holds an octet that HTTP/1 can't carry")
            self._text = text = ResponseHead(raw, found[1], found[2], found[3])
        return text.render(drop=drop, add=add)

    def block(self, drop: frozenset[bytes] = NO_NAMES, add: bytes = b"") -> bytes:
        """Encode the head to forward as HPACK: fields as they were encoded, then `add`, lines with their CRLF; without
        the fields named in `drop`.
        """
        if not drop or drop <= ANSWER_CUT:
            block = self._wired
            if block is None:
                block = self._wired = _status(self.status) + _wire(self.fields, _ANSWER_CUT)
        else:
            block = _status(self.status) + _wire(self.fields, _ANSWER_CUT | drop)
        return block + encoded_lines(add) if add else block


@lru_cache(maxsize=64)
def _status(status: int) -> bytes:
    """Encode `:status`, by the static table if it has the status, else as a literal."""
    index = {200: 0x88, 204: 0x89, 206: 0x8A, 304: 0x8B, 400: 0x8C, 404: 0x8D, 500: 0x8E}.get(status)
    return literal(b":status", b"%d" % status) if index is None else bytes((index,))


# -- from blocks ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def read_request(block: bytes, whole: bool) -> Request2:
    """Return the request whose head is this header block, which can be decoded without HPACK's dynamic table. `whole`:
    no body follows it. Raises Malformed, `hpack.Unreadable`.
    """
    return Request2(walk(block), whole)


@lru_cache(maxsize=512)
def read_answer(block: bytes, whole: bool) -> Response2:
    """Return the answer whose head is this header block, which can be decoded without HPACK's dynamic table. `whole`:
    no body follows it. Raises Malformed, `hpack.Unreadable`.
    """
    return Response2(walk(block), whole)


@lru_cache(maxsize=512)
def read_trailers(block: bytes) -> Trailers2:
    """Return the trailers in this header block, which can be decoded without HPACK's dynamic table. Raises Malformed,
    `hpack.Unreadable`.
    """
    return Trailers2(walk(block))


# -- to blocks ------------------------------------------------------------------------------------------------------


def request_block(
    head: RequestHead,
    scheme: bytes,
    authority: bytes | None,
    target: bytes | None,
    drop: frozenset[bytes] = NO_NAMES,
    add: bytes = b"",
) -> bytes:
    """Encode a request's head as HPACK, on whichever protocol it came. `scheme`: what the endpoint speaks; `authority`
    and `target` are sent in place of those that came (None: as they came). The fields named in `drop` (in lower case)
    are left out, and the HTTP/1 field lines `add` are encoded last.
    """
    if isinstance(head, Request2):
        return head.block(scheme, authority, target, drop, add)
    text = head.render(target=target, host=authority, drop=drop, add=add)
    line, _, fields = text.partition(b"\r\n")
    method, path, _ = line.split(b" ")
    pairs = list(_translated(fields))
    parts = [literal(b":method", method), literal(b":scheme", scheme)]
    for name, value in pairs:
        if name == b"host" and value:
            parts.append(literal(b":authority", value))
            break
    parts.append(literal(b":path", path))
    parts += [literal(name, value, never=name in CREDENTIALS) for name, value in pairs if name != b"host"]
    return b"".join(parts)


def answer_block(head: ResponseHead, drop: frozenset[bytes] = NO_NAMES, add: bytes = b"") -> bytes:
    """Encode an answer's head as HPACK, on whichever protocol it came. The fields named in `drop` are left out, and the
    lines `add` come last.
    """
    if isinstance(head, Response2):
        return head.block(drop, add)
    _, _, fields = head.render(drop=drop, add=add).partition(b"\r\n")
    return _status(head.status) + b"".join([literal(name, value) for name, value in _translated(fields)])


def trailers_block(trailers: Trailers | None) -> bytes:
    """Encode trailers as HPACK, on whichever protocol they came; b"" for none."""
    if trailers is None:
        return b""
    if isinstance(trailers, Trailers2):
        return trailers.block
    return b"".join([literal(name, value) for name, value in _translated(trailers.lines)])


def own_block(status: int, lines: bytes) -> bytes:
    """Encode the head of an answer that redrive itself makes: a status, and field lines with their CRLF."""
    return _status(status) + encoded_lines(lines)


def _translated(fields: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Yield the fields of HTTP/1 lines as HTTP/2 has them: names in lower case, values stripped, hop-by-hop fields left
    out.
    """
    for line in fields.split(b"\r\n"):
        if not line:
            continue
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name not in CONNECTION_SPECIFIC and (name != b"te" or value == b"trailers"):
            yield name, value
