"""Rendering heads by one copy: splice.pyx."""

from typing import Any

def splice(
    raw: bytes,
    edges: Any,
    drop: frozenset[bytes] | None,
    target: bytes | None,
    host: bytes | None,
    add: bytes,
    body: bytes,
) -> bytes | None: ...
def same_lines(raw: bytes, edges: Any, known: bytes, others: Any) -> bool: ...
def ask_for(names: frozenset[bytes]) -> int: ...
