"""TLS interception: a local CA, and leaf certificates for the names that apps ask for (contract, section 6).

Only calls to upstreams with `connect: intercept` are intercepted, and only public certificates and TLS contexts leave
this package. `cryptography` is the extra `intercept`. This package can be imported without it, but its modules `ca` and
`leaves` can't; `needed()` says in one line what to install.
"""

from __future__ import annotations

from proxy.config.settings import Settings
from proxy.extras import is_installed, remedy


class CaError(Exception):
    """An error of the local CA: it cannot do what it is asked for. The text is one line for people, and names the
    remedy.
    """


class NotForNameError(CaError):
    """An error for one name: the local CA works, but its constraints forbid this name, or no certificate can have
    it.
    """


def intercepts(settings: Settings) -> bool:
    """Whether any upstream's TLS is intercepted."""
    return any(upstream.connect == "intercept" for upstream in settings.router.upstreams)


def needed() -> None:
    """Raise CaError, with the command that installs it, if the extra `intercept` is not installed."""
    if not is_installed("intercept"):
        raise CaError(f"interception needs the package cryptography: {remedy('intercept')}")
