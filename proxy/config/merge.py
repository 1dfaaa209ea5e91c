"""One layer of configuration over another: the built-in defaults, the file's, an upstream's, a route's.

Merging makes new mappings and changes none; every value keeps the place it was written at, so that the merged tree
can say where each comes from (provenance.py). A mapping is merged, a list or a word replaces.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.config.yaml_tree import Map


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


def submap(tree: Map, key: str) -> Map:
    """A mapping inside a mapping; an empty one where there is none."""
    found = tree.get(key)
    return found if isinstance(found, Map) else Map(tree.mark)


def without_overruled(over: Map, under: Map) -> Map:
    """`under` without the fields that it sets and `over` removes or sets in another spelling: else what is inherited
    would put them in again.
    """
    for side in ("request", "response"):
        edits = submap(submap(over, "headers"), side)
        fields = submap(submap(submap(under, "headers"), side), "set")
        names = {name.lower() for name in (*(edits.get("remove") or ()), *submap(edits, "set"))}
        gone = names & {name.lower() for name in fields}
        if gone:
            kept = fields.copy()
            for name in fields:
                if name.lower() in gone:
                    kept.drop(name)
            under = _with(under, ("headers", side, "set"), kept)
    return under


def _with(tree: Map, path: tuple[str, ...], value: Map) -> Map:
    """A copy of a tree with another value at a path that it has."""
    key, *rest = path
    result = tree.copy()
    inner = _with(tree[key], tuple(rest), value) if rest else value
    result.put(key, inner, tree.keys_at[key], tree.values_at[key])
    return result
