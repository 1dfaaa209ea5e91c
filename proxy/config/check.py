"""What the command line asks of this room: `redrive check` and `redrive schema`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.config.load import load
from proxy.config.problem import Problem


def check(path: str | None, environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """Every error, warning and note of a file. Errors (`severity == "error"`) refuse it, the rest is advice."""
    return load(path, environ).problems


def schema() -> dict[str, Any]:
    """The JSON Schema of the configuration file, for editors."""
    from proxy.config import model

    return model.schema()
