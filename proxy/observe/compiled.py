"""The writer of a call's JSON: compiled code (json_line.pyx), else Python (not compiled, or REDRIVE_PURE=1)."""

from __future__ import annotations

try:
    from proxy.observe.json_line import attempt_json, call_json, call_lines
except ImportError:
    from proxy.observe.call_json import attempt_json, call_json, call_lines

__all__ = ("attempt_json", "call_json", "call_lines")
