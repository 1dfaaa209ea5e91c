"""The optional parts of an installation: which are missing, and how to install them."""

from __future__ import annotations

from importlib.util import find_spec

#: The package that an extra of pyproject.toml stands or falls with.
_PACKAGES = {"intercept": "cryptography", "redis": "redis", "otel": "opentelemetry.sdk"}


def is_installed(extra: str) -> bool:
    """Whether an extra (intercept, redis, otel) is there."""
    try:
        return find_spec(_PACKAGES[extra]) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


def remedy(extra: str) -> str:
    """The command that installs an extra, for people."""
    return f"pip install 'redrive[{extra}]', or in a checkout make extras"
