"""Rendering heads by one copy: splice.pyx."""

from typing import Any

def splice(raw: bytes, edges: Any, target: bytes | None, host: bytes | None, add: bytes, body: bytes) -> bytes: ...
def splice_without(
    raw: bytes, edges: Any, drop: frozenset[bytes], target: bytes | None, host: bytes | None, add: bytes
) -> bytes: ...
