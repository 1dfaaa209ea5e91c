"""The names that certificates carry: what `--for` may say, and what a CONNECT may ask for.

A name goes into a certificate as one DNS name or one IP address, never as a wildcard, and only if it can be one.
"""

from __future__ import annotations

import ipaddress
import re

from cryptography import x509

from proxy.server.intercept import CaError, NotForNameError

#: RFC 1123 labels, and the underscore that real names have. Names are in ASCII (A-labels) on the wire.
_DNS = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)

#: A name that cannot exist (RFC 6761): permitting it alone forbids the whole kind (RFC 5280 section 4.2.1.10).
NO_DNS = x509.DNSName("redrive.invalid")
ALL_ADDRESSES = tuple(x509.IPAddress(ipaddress.ip_network(net)) for net in ("0.0.0.0/0", "::/0"))


def subject_alternative(host: str) -> x509.DNSName | x509.IPAddress:
    """The one name of a leaf. `host` is without port; brackets, a trailing dot and case do not matter."""
    bare = host.removeprefix("[").removesuffix("]")
    try:
        if "%" not in bare:  # a zone means something on one machine alone
            return x509.IPAddress(ipaddress.ip_address(bare))
    except ValueError:
        pass
    name = host.lower().removesuffix(".")
    if not _DNS.fullmatch(name):
        raise NotForNameError(f"no certificate can be made for the name {host!r}")
    return x509.DNSName(name)


def permitted(text: str) -> x509.DNSName | x509.IPAddress:
    """A subtree that `--for` names: a host (and its subdomains; a port or `*.` is let go), an address, a network."""
    try:
        return x509.IPAddress(ipaddress.ip_network(text.removeprefix("[").removesuffix("]"), strict=False))
    except ValueError:
        pass
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        host = text
    host = host.removeprefix("[").removesuffix("]").removeprefix("*.").lower().removesuffix(".")
    try:
        return x509.IPAddress(ipaddress.ip_network(host))
    except ValueError:
        pass
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not _DNS.fullmatch(name):
        raise CaError(f"--for {text}: neither a host name, an address nor a network")
    return x509.DNSName(name)


def constraints(hosts: list[str]) -> x509.NameConstraints:
    """The name constraints of a CA that is for these hosts alone. A kind of name that no permitted subtree mentions is
    not constrained at all (RFC 5280 section 4.2.1.10), so a CA for names excludes every address, and a CA for addresses
    permits no name but one that cannot exist.
    """
    subtrees = list(dict.fromkeys(permitted(host) for host in hosts))
    excluded = None
    if not any(isinstance(subtree, x509.IPAddress) for subtree in subtrees):
        excluded = list(ALL_ADDRESSES)
    if not any(isinstance(subtree, x509.DNSName) for subtree in subtrees):
        subtrees.append(NO_DNS)
    return x509.NameConstraints(permitted_subtrees=subtrees, excluded_subtrees=excluded)


def covers(limits: x509.NameConstraints | None, name: x509.DNSName | x509.IPAddress) -> bool:
    """Whether a CA under these constraints may vouch for this name."""
    if limits is None:
        return True
    if any(_within(name, subtree) for subtree in limits.excluded_subtrees or ()):
        return False
    same_kind = [subtree for subtree in limits.permitted_subtrees or () if type(subtree) is type(name)]
    return not same_kind or any(_within(name, subtree) for subtree in same_kind)


def _within(name: x509.DNSName | x509.IPAddress, subtree: x509.GeneralName) -> bool:
    if isinstance(name, x509.DNSName):
        if not isinstance(subtree, x509.DNSName):
            return False
        base = subtree.value.lower().lstrip(".")
        return not base or name.value == base or name.value.endswith("." + base)
    if not isinstance(subtree, x509.IPAddress):
        return False
    address, network = name.value, subtree.value
    return (
        isinstance(address, ipaddress.IPv4Address | ipaddress.IPv6Address)
        and isinstance(network, ipaddress.IPv4Network | ipaddress.IPv6Network)
        and address in network  # of another version: not in it
    )


def shown(subtree: x509.GeneralName) -> str:
    """A subtree as `redrive ca show` prints it."""
    return str(subtree.value)
