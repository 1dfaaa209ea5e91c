"""The writer of a call's JSON: the compiled one (json_line.pyx); if it was not compiled, or with REDRIVE_PURE=1, the
one in Python.
"""

from __future__ import annotations

try:
    from proxy.observe.json_line import attempt_json, call_json, call_lines
except ImportError:
    from proxy.observe.call_json import attempt_json, call_json, call_lines

__all__ = ("attempt_json", "call_json", "call_lines")
