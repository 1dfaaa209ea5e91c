"""Whether heads are read, and simple ones rendered, by compiled code (scan.pyx, splice.pyx), or by Python alone: it was
not built, or is not wanted.

It changes nothing but what a head costs (`docs/decisions/0011-compiled-heads.md`).
"""

from __future__ import annotations

try:
    from proxy.wire.http1 import splice  # noqa: F401  it is there if all is

    #: Which of both it is, as `--version` and `/readyz?verbose` say it.
    CORE = "compiled"
except ImportError:
    CORE = "Python"
