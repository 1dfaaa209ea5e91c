"""redrive: a retrying HTTP sidecar. See docs/architecture.md for the layers (`floors`) of its code and what each may
use.
"""

import os
import sys

__version__ = "0.1.0"

if os.environ.get("REDRIVE_PURE", "0") not in ("", "0"):  # Python alone, whatever of it was compiled
    from proxy import source_alone

    sys.meta_path.insert(0, source_alone)
else:
    try:
        from proxy import compiled_modules
    except ImportError:  # nothing was compiled
        pass
    else:
        sys.meta_path.insert(0, compiled_modules)
