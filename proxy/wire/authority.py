"""The destination that a request names: the four forms of the request target, and authorities.

An authority is host[:port] and nothing else. User info, an empty host, an impossible port and characters outside RFC
3986's reg-name are refused, because two readers could take them for two destinations (RFC 9110 section 4.2.4). An empty
port counts as none (RFC 9110 section 4.2.1) and is not forwarded: callers apply `without_empty_port` first.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

from proxy.wire.errors import malformed

_AUTHORITY = re.compile(
    rb"(?:\[([0-9A-Fa-f:.]++)\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})++)(?::([0-9]{1,5}))?"
).fullmatch
_ORIGIN = re.compile(rb"(?i:(https?))://([^/?]*+)").match

#: The number of authorities in each cache. They recur, but a hostile one may be as long as a head, so few are kept.
REMEMBERED = 256


@lru_cache(maxsize=REMEMBERED)
def read_authority(raw: bytes) -> str:
    """Return the authority with its host in lower case and the port as written, or "" if it is invalid."""
    found = _AUTHORITY(raw)
    if found is None:
        return ""
    literal, port = found.groups()
    if port is not None and not 0 < int(port) < 65536:
        return ""
    if literal is not None:
        try:
            ipaddress.IPv6Address(literal.decode("ascii"))
        except ValueError:
            return ""
    return raw.decode("ascii").lower()


def without_empty_port(raw: bytes) -> bytes:
    """Return the authority without a colon that no port follows (RFC 3986 section 6.2.3)."""
    return raw.removesuffix(b":")


class UrlOrigin(NamedTuple):
    """The destination that a URL names.

    scheme: "http" or "https". named: the authority as written, without an empty port. lowered: `named` in lower case.
    authority: the authority as `read_authority` returns it.
    """

    scheme: str
    named: bytes
    lowered: bytes
    authority: str


@lru_cache(maxsize=REMEMBERED)
def _read_origin(start: bytes) -> UrlOrigin:
    """Return the destination that a URL names. `start`: the URL without its path and query. Raises Refused."""
    found = _ORIGIN(start)
    if found is None or found.end() != len(start):
        raise malformed("the request target is neither a path nor an http or https URL")
    scheme, named = found[1], without_empty_port(found[2])
    authority = read_authority(named)
    if not authority:
        raise malformed("the URL's authority is not a host with an optional port")
    return UrlOrigin("https" if len(scheme) == 5 else "http", named, named.lower(), authority)


def read_absolute(target: bytes, method: str) -> tuple[UrlOrigin, bytes]:
    """Split a target in absolute form into the destination that it names, and its path and query in origin form. Raises
    Refused.

    An empty path becomes "/", or "*" for OPTIONS without a query (RFC 9112 section 3.2.4).
    """
    slash, query = target.find(b"/", 8), target.find(b"?")
    if slash > 0 and (query < 0 or slash < query):
        return _read_origin(target[:slash]), target[slash:]
    if query > 0:
        return _read_origin(target[:query]), b"/" + target[query:]
    return _read_origin(target), b"*" if method == "OPTIONS" else b"/"


def read_connect(target: bytes) -> str:
    """Return the authority of a CONNECT target, which must name a port (RFC 9110 section 9.3.6). Raises Refused."""
    authority = read_authority(target)
    if not authority or target[-1] == 0x5D or b":" not in target:
        raise malformed("CONNECT takes host:port")
    return authority
