"""Stub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxy.config.nodes import Map
from proxy.config.problem import Mark, Path, Problems


@dataclass(frozen=True)
class MethodPolicy:
    """One method's policy: the path glob it holds for, None for all the rest; the layer it lays over the upstream's."""

    glob: str | None
    label: str
    layer: Map
    codes: frozenset[int]
    hedged: bool = False


def read(tree: Any, mark: Mark, path: Path, problems: Problems) -> list[MethodPolicy] | None:
    return None
