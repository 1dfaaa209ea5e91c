"""TLS terminated here: a local CA, leaf certificates for the names that apps ask for (contract, section 6).

Only what an upstream's `connect: intercept` names is ever intercepted, and nothing leaves this package except public
certificates and TLS contexts. `cryptography` is the extra `intercept`: importing the package does not need it, the
modules below it (`ca`, `leaves`) do, and `needed()` says in one line what to install.
"""

from __future__ import annotations

from proxy.config.settings import Settings
from proxy.extras import is_installed, remedy


class CaError(Exception):
    """The local CA cannot do what is asked of it; the text is for people, one line, and names the remedy."""


class NotForNameError(CaError):
    """The local CA is fine, and not for the name that was asked for: its constraints or the name itself forbid it."""


def intercepts(settings: Settings) -> bool:
    """Whether any upstream's TLS is ended here."""
    return any(upstream.connect == "intercept" for upstream in settings.router.upstreams)


def needed() -> None:
    """Raise CaError where the extra is not installed."""
    if not is_installed("intercept"):
        raise CaError(f"interception needs the package cryptography: {remedy('intercept')}")
