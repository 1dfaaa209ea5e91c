"""The guard of egress: addresses that the proxy may not connect to (contract, section 6, "Denied").

Law: the address that is then connected to is checked, never a name: a name may resolve to anything, and to something
else a moment later. An IPv6 address that stands for an IPv4 one is checked as both. Only an upstream's own `url` lifts
the ban, and only from the address that it spells out. If a parent proxy looks names up, only the host's text is known:
it is checked in every way in which a resolver may read it as an address.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Cloud metadata services, which give out credentials, and link-local addresses (contract, section 3).
ALWAYS_DENIED: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "168.63.129.16/32", "100.100.100.200/32")
)
_LOOPBACK: tuple[Address, ...] = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))


class Guard:
    """The rules by which an address may be connected to.

    `own` are the proxy's listeners (proxy, admin, probe) as (address, port); the wildcard addresses stand for every
    address of this machine.
    """

    def __init__(self, denied: Iterable[Network] = (), own: Iterable[tuple[str, int]] = ()) -> None:
        self.deny(denied)
        self._own: dict[int, set[Address]] = {}
        for host, port in own:
            self.add_own(host, port)

    def deny(self, denied: Iterable[Network]) -> None:
        """Set the networks that are denied in addition to those that always are."""
        self._networks: tuple[Network, ...] = (*ALWAYS_DENIED, *denied)

    def add_own(self, host: str, port: int) -> None:
        """Deny a listener of this process, at `host` and `port`, as a destination. A host that is a name counts as both
        loopback addresses.
        """
        self._own.setdefault(port, set()).update(readings(host) or _LOOPBACK)

    def drop_own(self, host: str, port: int) -> None:
        """Allow this address as a destination again, unless another rule denies it: the listener there is closed."""
        self._own.get(port, set()).difference_update(readings(host) or _LOOPBACK)

    def refuses(self, host: str, port: int, *, strict: bool) -> str:
        """The reason why a host may not be connected to, as far as its text says which address it is; "" if it may.

        `host` is an address, or, if a parent proxy will look it up, the host that the request named; of names only
        localhost can be judged. `strict`: the call arrived by a listener off loopback, so loopback is denied too.
        """
        addresses = readings(host)
        if not addresses and f".{_plain(host)}".endswith(".localhost"):  # always loopback (RFC 6761 section 6.3)
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
        return any(own.is_unspecified for own in listening) and (address.is_loopback or _is_local(address))


def _is_local(address: Address) -> bool:
    """Whether the address is one of this machine's own. It is if the kernel would send packets to it from that same
    address.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False
        return bool(ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address)


def names_address(host: str) -> bool:
    """Whether a url's host spells an address out; any other name may be made to point anywhere."""
    return host == "localhost" or bool(readings(host))  # RFC 6761: localhost is never anything but loopback


# -- addresses as hosts spell them -----------------------------------------------------------------------------------

# `127.1`, `0x7f000001`, `0177.0.0.1`, `2130706433`, `127.0.0.1.` and `127%2e0%2e0%2e1` are one address to some resolver
# or other: inet_aton takes one to four numbers, decimal, octal or hexadecimal, the last one filling what is left
# (POSIX, inet_addr; the WHATWG URL standard, "IPv4 parser"). Some readers take a leading zero for decimal, so both
# readings are given: the caller wants to know what an address may be, not what one reader makes of it.

#: A number of inet_aton, in lower case.
_NUMBER = r"(?:0x[0-9a-f]*+|[0-9]++)"
_NUMBERS = re.compile(rf"{_NUMBER}(?:\.{_NUMBER})*+").fullmatch
_IPV4 = 0xFFFFFFFF

#: IPv6 prefixes whose last 32 bits are an IPv4 address: compatible and mapped (RFC 4291 sections 2.5.5.1 and 2.5.5.2),
#: translated (SIIT: RFC 2765 section 2.1), NAT64 (RFC 6052 section 2.1).
_LAST_32 = tuple(ipaddress.IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96"))
#: RFC 8215: a network's own NAT64 prefixes are in this one, with any length of RFC 6052 section 2.2 from 48 on.
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")  # RFC 3056: the 32 bits after the prefix
_TEREDO = ipaddress.IPv6Network("2001::/32")  # RFC 4380 section 4: the server's address, and the client's inverted
#: RFC 5214 section 6.1: the upper half of an ISATAP interface identifier, but for its "u" bit.
_ISATAP, _U_BIT = 0x00005EFE, 0x02000000


def readings(host: str) -> tuple[Address, ...]:
    """The addresses that a host's text (with brackets and zone or without) may stand for without a look-up; () for a
    name.
    """
    host = _plain(host)
    try:
        return (ipaddress.ip_address(host.strip("[]").partition("%")[0]),)
    except ValueError:
        pass
    if not _NUMBERS(host):
        return ()
    read = (_inet_aton(host, octal=octal) for octal in (True, False))
    return tuple(dict.fromkeys(address for address in read if address is not None))


def is_numeric(host: str) -> bool:
    """Whether a host consists of numbers and dots alone. Such a host is an IPv4 address, or a text that only some
    resolvers read as an address (`127.1`).
    """
    return _NUMBERS(_plain(host)) is not None


def meanings(address: Address) -> tuple[Address, ...]:
    """The address without its zone and, if it is an IPv6 address that a gateway translates into an IPv4 one, every IPv4
    address that it may stand for.

    The length of a network's own NAT64 prefix is not known, so every length is tried; results in 0.0.0.0/8, which come
    from the zeros of a longer prefix, are left out, because no host has such an address.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    bits = int(address)
    found: list[int] = []
    if any(address in network for network in _LAST_32) and bits > 1:
        found.append(bits & _IPV4)
    elif address in _LOCAL_NAT64:
        found.append(bits & _IPV4)
        others = (
            (bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF,  # /48: bits 48 to 63 and 72 to 87
            (bits >> 64 & 0xFF) << 24 | bits >> 32 & 0xFFFFFF,  # /56: bits 56 to 63 and 72 to 95
            bits >> 24 & _IPV4,  # /64: bits 72 to 103
        )
        found += [other for other in others if other >> 24]
    elif address in _SIX_TO_FOUR:
        found.append(bits >> 80 & _IPV4)
    elif address in _TEREDO:
        found += [bits >> 64 & _IPV4, ~bits & _IPV4]
    if bits >> 32 & _IPV4 & ~_U_BIT == _ISATAP:
        found.append(bits & _IPV4)
    return (ipaddress.IPv6Address(bits), *map(ipaddress.IPv4Address, found))


def _plain(host: str) -> str:
    """A host in lower case and without trailing dots, with percent-encoding undone and full-width digits and dots
    narrowed.
    """
    if "%" in host and ":" not in host:  # in a text with a colon it begins a zone
        host = unquote(host, errors="replace")
    if not host.isascii():
        host = unicodedata.normalize("NFKC", host).replace("\u3002", ".")
    return host.lower().rstrip(".")


def _inet_aton(host: str, *, octal: bool) -> ipaddress.IPv4Address | None:
    """The address that one to four numbers spell; None if they spell none. `octal`: a leading zero marks an octal
    number.
    """
    *bytes_, last = (_number(part, octal=octal) for part in host.split("."))
    if len(bytes_) > 3 or last >= 1 << 8 * (4 - len(bytes_)) or any(value > 255 for value in bytes_):
        return None
    for place, value in enumerate(bytes_):
        last += value << 8 * (3 - place)
    return ipaddress.IPv4Address(last)


def _number(text: str, *, octal: bool) -> int:
    """The value of one number of an address: hexadecimal after `0x` and, if `octal`, octal after `0`. 2**32 if the text
    is not a number, or larger than an address can be.
    """
    base = 16 if text.startswith("0x") else 8 if octal and text.startswith("0") else 10
    try:
        return min(int(text.removeprefix("0x").lstrip("0") or "0", base), 1 << 32)
    except ValueError:  # an 8 or 9 in an octal number, or more digits than Python reads
        return 1 << 32
