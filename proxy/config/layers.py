"""One layer of configuration over another: the built-in defaults, the file's, an upstream's, a route's.

Law: merging makes new mappings and changes none; every value keeps the place it was written at, so that the merged tree
can say where each comes from (provenance.py). A mapping is merged, a list or a word replaces.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.config.nodes import Map


def lay(over: Map, under: Map, special: Callable[[str, Map, Map], bool] | None = None) -> Map:
    """`over` laid over `under`: mappings are merged, everything else replaces. Both stay as they are.

    `special(key, result, over)` may take a key on itself.
    """
    result = under.copy()
    if over.mark.line or not under.mark.line:
        result.mark = over.mark
    for key, value in over.items():
        if special is not None and special(key, result, over):
            continue
        below = result.get(key)
        if isinstance(value, Map) and isinstance(below, Map):
            result.put(key, lay(value, below), over.keys_at[key], over.values_at[key])
        else:
            result.take(key, over)
    return result
