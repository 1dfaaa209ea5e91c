"""Where a request says it goes: the request target's four forms, and authorities.

Law: an authority is host[:port] and nothing else. User info, an empty host, an empty or impossible port and characters
outside RFC 3986's reg-name are refused, since two readers could take them for two places (RFC 9110 section 4.2.4).
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

from proxy.wire.syntax import malformed

_AUTHORITY = re.compile(
    rb"(?:\[([0-9A-Fa-f:.]++)\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})++)(?::([0-9]{1,5}))?"
).fullmatch
_ABSOLUTE = re.compile(rb"(?i:(https?))://([^/?]*+)([^\n]*+)").fullmatch


@lru_cache(maxsize=4096)
def read_authority(raw: bytes) -> str:
    """The authority with its host in lower case and the port as written; "" where it is not a valid one."""
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


def read_absolute(target: bytes, method: str) -> tuple[str, bytes, str, bytes]:
    """Split an absolute-form target: scheme, raw authority, read authority, path with query in origin form.

    An empty path becomes "/", for OPTIONS without a query "*" (RFC 9112 section 3.2.4).
    """
    found = _ABSOLUTE(target)
    if found is None:
        raise malformed("the request target is neither a path nor an http or https URL")
    scheme, raw, path = found.groups()
    authority = read_authority(raw)
    if not authority:
        raise malformed("the URL's authority is not a host with an optional port")
    if not path:
        path = b"*" if method == "OPTIONS" else b"/"
    elif path[0] == 0x3F:
        path = b"/" + path
    return "https" if len(scheme) == 5 else "http", raw, authority, path


def read_connect(target: bytes) -> str:
    """The authority of CONNECT, which must name a port (RFC 9110 section 9.3.6)."""
    authority = read_authority(target)
    if not authority or target[-1] == 0x5D or b":" not in target:
        raise malformed("CONNECT takes host:port")
    return authority
