"""The optional parts of an installation: which are missing, and how to install them."""

from __future__ import annotations

from importlib.util import find_spec

#: The package that each extra of pyproject.toml needs.
_PACKAGES = {"intercept": "cryptography", "redis": "redis", "otel": "opentelemetry.sdk"}


def is_installed(extra: str) -> bool:
    """Whether an extra (intercept, redis, otel) is installed."""
    try:
        return find_spec(_PACKAGES[extra]) is not None
    except ModuleNotFoundError:  # the parent package is not installed
        return False


def remedy(extra: str) -> str:
    """The command that installs an extra, as text for people."""
    return f"in a checkout pip install '.[{extra}]', or make extras"
