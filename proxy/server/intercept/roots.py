"""The root certificates that this machine trusts, and the bundle made of them and the local CA.

An app that uses the bundle trusts the same roots as before, and the local CA. The variables that name a bundle replace
an app's roots, so a bundle without the system's roots would cut the app off from every server that is not intercepted.

The first of these sources that has any certificate is used: SSL_CERT_FILE, OpenSSL's own file, the places where
distributions keep theirs (Go's crypto/x509/root_linux.go has the list), OpenSSL's directory, certifi if it is
installed. A bundle of ours is not a source: `eval "$(redrive env)"` leaves SSL_CERT_FILE pointing at it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")

#: The files of Debian, Fedora, openSUSE, RHEL 7 and later, Alpine and macOS.
USUAL_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True, slots=True)
class Roots:
    """Root certificates as PEM blocks, each once, and the source that they are from ("" if there are none)."""

    blocks: tuple[str, ...]
    source: str


def system_roots(environ: Mapping[str, str], bundle: Path) -> Roots:
    """The roots that this machine trusts; none, with the source "", if no source has any. `environ`: the environment
    variables, which may name a source; `bundle`: our own file, which is not used as one.
    """
    for source in _sources(environ):
        if source.exists() and not (bundle.exists() and bundle.samefile(source)):
            blocks = _blocks(source)
            if blocks:
                return Roots(blocks, str(source))
    return Roots((), "")


def bundle_text(roots: Roots, ca: str) -> str:
    """The text of the bundle: a line that says what it is, the roots, then the local CA's certificates (PEM)."""
    own = _PEM.findall(ca)
    head = f"# The roots of {roots.source or 'no place'}, and the local CA of redrive, which is the last.\n"
    return head + "".join(f"{block}\n" for block in (*(one for one in roots.blocks if one not in own), *own))


def _sources(environ: Mapping[str, str]) -> Iterator[Path]:
    paths = ssl.get_default_verify_paths()
    named = environ.get(paths.openssl_cafile_env)
    if named:
        yield Path(named)
    for file in (paths.openssl_cafile, *USUAL_FILES, environ.get(paths.openssl_capath_env), paths.openssl_capath):
        if file:
            yield Path(file)
    if find_spec("certifi") is not None:
        import certifi

        yield Path(certifi.where())


def _blocks(source: Path) -> tuple[str, ...]:
    """The certificates of a file, or of the files of a directory; a file that cannot be read counts as empty."""
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    found: dict[str, None] = {}
    for file in files:
        try:
            text = file.read_text("ascii", "replace")
        except OSError:  # a directory, a broken link, or no permission
            continue
        found.update(dict.fromkeys(_PEM.findall(text)))
    return tuple(found)
