"""Checks of the Host and Origin of a request that a web page in a browser may have made: which of them the proxy port
and the admin port accept.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from proxy.retry.policies.routing import split_authority
from proxy.transport.egress_guard import meanings

#: The port of an authority that has none, by scheme.
PORTS = {"http": 80, "https": 443}


def is_own_origin(origin: str, authority: str, *schemes: str) -> bool:
    """Whether the value of an Origin field is that of a page of this very server: one of `schemes`, and the host and
    port that the request asked (`authority`).
    """
    scheme, _, place = origin.strip(" \t").lower().partition("://")
    named = split_authority(place, PORTS[scheme]) if scheme in schemes else None
    return named is not None and named == split_authority(authority, PORTS[scheme])


@lru_cache(maxsize=1024)
def is_literal(authority: str) -> bool:
    """Whether a Host is an IP literal or localhost, which no web page's name can be made to point at. Unspecified
    addresses (0.0.0.0, [::]), however written, do not count: they reach this machine, and browsers treat them as
    foreign.
    """
    place = split_authority(authority, 80)
    if place is None:
        return False
    host = place[0]
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return not any(meaning.is_unspecified for meaning in meanings(address))
