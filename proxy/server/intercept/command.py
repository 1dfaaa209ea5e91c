"""`redrive ca` and the part of `redrive env` that is about certificates (contract, sections 2 and 6).

What a program may read goes to standard output, what people are told about it to standard error, and nothing of
the key to either.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from proxy.config.settings import Settings
from proxy.server.intercept import intercepts, needed
from proxy.transport.clock import wall

#: They replace an app's roots, so they name the bundle: OpenSSL's and Go's, requests', curl's, the AWS SDKs', gRPC's.
BUNDLE_NAMES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)
#: It adds to an app's roots.
CA_NAME = "NODE_EXTRA_CA_CERTS"


def variables(settings: Settings) -> dict[str, str]:
    """What makes apps trust the local CA; nothing where nobody's TLS is ended here."""
    if not intercepts(settings):
        return {}
    cert = Path(settings.ca.cert)
    bundle = str(cert.with_name("bundle.pem"))
    return {**dict.fromkeys(BUNDLE_NAMES, bundle), CA_NAME: str(cert)}


def tell_if_missing(settings: Settings) -> None:
    """Say so where apps are about to be told of files that are not there."""
    missing = sorted({path for path in variables(settings).values() if not Path(path).exists()})
    if missing:
        _tell(f"not there yet: {' and '.join(missing)}: redrive ca init makes them, apps fail until then")


def init(settings: Settings, hosts: list[str]) -> None:
    """Make the CA, and say what to do with it. Raises CaError."""
    needed()
    from proxy.server.intercept import ca

    made = ca.init(Path(settings.ca.cert), Path(settings.ca.key), hosts, _now(), os.environ)
    _print_description(settings)
    _tell_of_roots(len(made.roots.blocks), made.roots.source)
    _tell('what apps need to trust it: eval "$(redrive env)", where an upstream says connect: intercept')


def show(settings: Settings) -> None:
    """Say which CA there is. Raises CaError."""
    needed()
    _print_description(settings)


def export(settings: Settings, *, bundle: bool) -> None:
    """Print the CA's certificate, or the bundle made anew from what the machine trusts now. Raises CaError."""
    needed()
    from cryptography.hazmat.primitives.serialization import Encoding

    from proxy.server.intercept import ca

    cert = Path(settings.ca.cert)
    if not bundle:
        print(ca.load_chain(cert)[0].public_bytes(Encoding.PEM).decode("ascii"), end="")
        return
    roots, text = ca.bundle(cert, os.environ)
    print(text, end="")
    _tell_of_roots(len(roots.blocks), roots.source)


def _print_description(settings: Settings) -> None:
    from proxy.server.intercept import ca

    for label, value in ca.describe(Path(settings.ca.cert), Path(settings.ca.key), _now()):
        print(f"{label + ':':<13}{value}")


def _tell_of_roots(count: int, source: str) -> None:
    if count:
        _tell(f"the bundle has the {count} roots of {source}, and this CA")
    else:
        _tell("this machine has no root certificates (install ca-certificates): the bundle has this CA alone")


def _tell(text: str) -> None:
    print(f"redrive: {text}", file=sys.stderr)


def _now() -> datetime:
    return datetime.fromtimestamp(wall(), UTC)
