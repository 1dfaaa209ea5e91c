"""The packages of an installation, those of optional parts too: which are missing, and how to install them."""

from __future__ import annotations

from importlib.util import find_spec

#: The package that each extra of pyproject.toml needs.
_PACKAGES = {"intercept": "cryptography", "redis": "redis", "otel": "opentelemetry.sdk"}

#: The packages that redrive never does without, by the module that each has: the dependencies in pyproject.toml, as
#: a test compares.
NEEDED = {
    "aiohappyeyeballs": "aiohappyeyeballs",
    "aiohttp": "aiohttp",
    "hpack": "hpack",
    "prometheus_client": "prometheus_client",
    "rich": "rich",
    "uvloop": "uvloop",
    "yaml": "PyYAML",
}


def is_installed(extra: str) -> bool:
    """Whether an extra (intercept, redis, otel) is installed."""
    try:
        return find_spec(_PACKAGES[extra]) is not None
    except ModuleNotFoundError:  # the parent package is not installed
        return False


def remedy(extra: str) -> str:
    """The command that installs an extra, as text for people."""
    return f"in a checkout make extras, or for an environment of your own pip install '.[{extra}]'"


def missing(error: ModuleNotFoundError) -> str:
    """The line that says which package is missing, if a module was not found, and how to install it; "" if redrive does
    not always need the package of this module.
    """
    package = NEEDED.get((error.name or "").partition(".")[0])
    if package is None:
        return ""
    return (
        f"the package {package} is not installed, which redrive needs: in a checkout make venv, or for an environment "
        "of your own pip install ."
    )
