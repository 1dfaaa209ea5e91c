"""Stub."""

from __future__ import annotations

from proxy.config.compile import Compiled
from proxy.config.nodes import Map
from proxy.config.problem import Problems


def advise(compiled: Compiled, tree: Map, problems: Problems) -> None:
    """Stub."""
