"""The hosts that a local CA may issue certificates for: the name constraints in its certificate.

This module needs the package `cryptography`, the extra `intercept`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509


def limits_of(cert: x509.Certificate) -> x509.NameConstraints | None:
    """The name constraints of a CA's certificate; None if it has none."""
    try:
        return cert.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return None


def covers(limits: x509.NameConstraints | None, name: x509.DNSName | x509.IPAddress) -> bool:
    """Whether a CA with the name constraints `limits` may issue a certificate for this name."""
    if limits is None:
        return True
    if any(_within(name, subtree) for subtree in limits.excluded_subtrees or ()):
        return False
    same_kind = [subtree for subtree in limits.permitted_subtrees or () if type(subtree) is type(name)]
    return not same_kind or any(_within(name, subtree) for subtree in same_kind)


def covers_all(limits: x509.NameConstraints | None, wanted: x509.DNSName | x509.IPAddress) -> bool:
    """Whether a CA with the constraints `limits` may issue certificates for all of `wanted`: a name and its subdomains,
    or a network.
    """
    if limits is None:
        return True
    if isinstance(wanted, x509.DNSName):
        return covers(limits, wanted)
    network = wanted.value
    ends = (
        (network[0], network[-1]) if isinstance(network, ipaddress.IPv4Network | ipaddress.IPv6Network) else (network,)
    )
    return all(covers(limits, x509.IPAddress(address)) for address in ends)


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
        and address in network  # False if the versions differ
    )


def not_covered(cert: str, hosts: Iterable[str]) -> list[str]:
    """The hosts for which the CA in the file `cert` may not make certificates. `hosts`: the hosts or patterns to check,
    as a configuration has them. A pattern stands for all names below what follows its last `*`, and for any name if it
    ends with `*`. Raises OSError or ValueError if the certificate can't be read.
    """
    limits = limits_of(x509.load_pem_x509_certificates(Path(cert).read_bytes())[0])
    return [] if limits is None else [host for host in hosts if not covers_all(limits, _named(host))]


def _named(host: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return x509.DNSName(host.rpartition("*")[2].partition(".")[2] if "*" in host else host)
