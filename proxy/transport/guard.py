"""Where the proxy may not connect (contract, section 6, "Denied").

Law: what is checked is the address that is then connected to, never a name: a name may resolve to anything, and to
something else a moment later. An IPv6 address that stands for an IPv4 one is checked as both. Only an upstream's own
`url` lifts the ban, and only from the address that it spells out.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Cloud metadata services and link-local addresses: credentials live there (contract, section 3).
ALWAYS_DENIED: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "168.63.129.16/32", "100.100.100.200/32")
)

#: IPv6 prefixes whose last 32 bits are an IPv4 address: mapped, compatible (RFC 4291), NAT64 (RFC 6052, RFC 8215).
_EMBEDDING = tuple(ipaddress.IPv6Network(text) for text in ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/96"))
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")  # RFC 3056: the 32 bits after the prefix


def meanings(text: str) -> tuple[Address, ...]:
    """The address, and the IPv4 address that it stands for if it is an IPv6 form of one."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if any(address in network for network in _EMBEDDING) and int(address) > 1:
        return (address, ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address in _SIX_TO_FOUR:
        return (address, ipaddress.IPv4Address(int(address) >> 80 & 0xFFFFFFFF))
    return (address,)


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

    def refuses(self, address: str, port: int, *, strict: bool) -> str:
        """Why not, or "". `strict`: the call came in by a listener off loopback, so loopback is denied too."""
        for meaning in meanings(address):
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
    if host == "localhost":  # RFC 6761: never anything but loopback
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _named(host: str) -> tuple[Address, ...]:
    try:
        return (ipaddress.ip_address(host.partition("%")[0]),)
    except ValueError:
        return (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
