"""Rendering heads by one copy: splice.pyx."""

from typing import Any

def splice(raw: bytes, edges: Any, target: bytes | None, host: bytes | None, add: bytes, body: bytes) -> bytes: ...
