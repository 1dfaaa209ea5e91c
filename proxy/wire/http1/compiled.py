"""The choice between the compiled reader and writer of heads (scan.pyx, splice.pyx) and Python alone, which is used if
they were not built or are not wanted.

The choice changes nothing but what a head costs (`docs/decisions/0011-compiled-heads.md`).
"""

from __future__ import annotations

try:
    from proxy.wire.http1 import splice  # noqa: F401  all compiled modules are built together

    #: The choice, as `--version` and `/readyz?verbose` report it.
    CORE = "compiled"
except ImportError:
    CORE = "Python"
