"""Where the proxy may not connect (contract, section 6, "Denied").

Law: what is checked is the address that is then connected to, never a name: a name may resolve to anything, and to
something else a moment later. An IPv6 address that stands for an IPv4 one is checked as both. Only an upstream's own
`url` lifts the ban, and only from the address that it spells out. Behind a parent proxy, which looks names up itself,
the host's text is all there is: it is checked in every way in which a resolver may read it as an address.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from proxy.transport.ip_forms import Address, is_localhost, is_numeric, meanings, readings

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Cloud metadata services and link-local addresses: credentials live there (contract, section 3).
ALWAYS_DENIED: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "168.63.129.16/32", "100.100.100.200/32")
)
_LOOPBACK: tuple[Address, ...] = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))


class Guard:
    """Says whether an address may be connected to.

    `own` are the proxy's listeners (proxy, admin, probe) as (address, port); the wildcard addresses stand for every
    address of this machine.
    """

    __slots__ = ("_networks", "_own")

    def __init__(self, denied: Iterable[Network] = (), own: Iterable[tuple[str, int]] = ()) -> None:
        self._networks = (*ALWAYS_DENIED, *denied)
        self._own: dict[int, set[Address]] = {}
        for host, port in own:
            self.add_own(host, port)

    def deny(self, denied: Iterable[Network]) -> None:
        """Deny these networks, beside those that always are."""
        self._networks = (*ALWAYS_DENIED, *denied)

    def add_own(self, host: str, port: int) -> None:
        """A listener of this process is never a destination. Names stand for both loopback addresses."""
        self._own.setdefault(port, set()).update(_named(host))

    def drop_own(self, host: str, port: int) -> None:
        """It listens there no more."""
        self._own.get(port, set()).difference_update(_named(host))

    def refuses(self, host: str, port: int, *, strict: bool) -> str:
        """Why a host may not be connected to, as far as its text says which address it is, or "".

        `host` is an address, or, for a parent proxy to look up, what the request named; of a name only localhost can be
        judged. `strict`: the call came in by a listener off loopback, so loopback is denied too.
        """
        addresses = readings(host)
        if not addresses and is_localhost(host):
            addresses = _LOOPBACK
        elif not addresses and is_numeric(host):
            return "it is neither a name nor an address"
        for meaning in (meaning for address in addresses for meaning in meanings(address)):
            if any(meaning in network for network in self._networks):
                return "the address is on the deny list"
            if strict and (meaning.is_loopback or meaning.is_unspecified):
                return "loopback is not reachable through a listener off loopback"
            if port in self._own and self._is_own(meaning, port):
                return "the address is the proxy's own"
        return ""

    def _is_own(self, address: Address, port: int) -> bool:
        listening = self._own[port]
        if address in listening or address.is_unspecified:
            return True
        return any(own.is_unspecified for own in listening) and is_local(address)


def is_local(address: Address) -> bool:
    """Whether the address is one of this machine: it is then also the source that the kernel chooses towards it."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False
        return bool(ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address)


def names_address(host: str) -> bool:
    """Whether a url's host spells an address out, rather than a name that anybody may point anywhere."""
    return host == "localhost" or bool(readings(host))  # RFC 6761: localhost is never anything but loopback


def _named(host: str) -> tuple[Address, ...]:
    """The addresses of a listener's host; a name stands for both loopback addresses."""
    return readings(host) or _LOOPBACK
