"""The origin of each effective value: file and line, an environment variable, or the default.

Keeping it costs calls nothing. Merging keeps the position of every value it takes (yaml_tree.py), so the merged tree
itself is the record; it is read only on request. Until then, a process that serves keeps it compressed ("folded").
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from proxy.config.problems import Mark
from proxy.config.yaml_tree import Map, Seq


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """An effective value: `path` is its dotted key in the policy, `value` as it was written, `mark` the position that
    sets it.

    `plain` is the value as plain data; `argument`: the value is passed to a custom strategy, so it may be a secret.
    """

    path: str
    value: str
    mark: Mark
    plain: Any = None
    argument: bool = False


@dataclass(frozen=True)
class Provenance:
    """The merged tree of the file's top level (`top`), and that of every policy (`policies`, by the labels of its
    upstream and route).
    """

    top: Map = field(default_factory=Map)
    policies: Mapping[tuple[str, str], Map] = field(default_factory=dict)

    def of(self, upstream: str, route: str = "") -> list[EffectiveValue]:
        """Every effective value of the policy of an upstream, or of its route, in the order of the contract's keys: one
        item for each value that is neither a mapping nor a list.
        """
        tree = self.policies.get((upstream, route))
        return [] if tree is None else list(_leaves(tree, "", tree.mark))

    def of_top(self) -> list[EffectiveValue]:
        """Every effective value outside the policies: one item for each value that is neither a mapping nor a list."""
        return list(_leaves(self.top, "", self.top.mark))

    def origin(self, upstream: str, route: str, path: str) -> EffectiveValue | None:
        """The effective value at a dotted path (such as `timeouts.total`) of the policy of an upstream and a route,
        with the position that sets it; None if there is none.
        """
        return next((each for each in self.of(upstream, route) if each.path == path), None)

    def effective(self) -> dict[str, Any]:
        """The effective configuration as plain data, for /config. Secrets are not masked here."""
        plain: dict[str, Any] = _plain(self.top)
        plain["upstreams"] = {}
        for (upstream, route), tree in self.policies.items():
            entry = plain["upstreams"].setdefault(upstream, {})
            (entry.setdefault("routes", {}).setdefault(route, {}) if route else entry).update(_plain(tree))
        return plain

    def folded(self) -> Provenance:
        """A provenance with the same content, in which the trees of all policies are compressed. The trees of this
        object are emptied.
        """
        folded = Folded(fold(self.policies))
        if isinstance(self.policies, dict):
            release_parts(self.policies)
        return Provenance(self.top, folded)

    def parts(self) -> list[object]:
        """The trees of the policies, compressed or not, as a list: a caller that no longer needs them frees them a few
        at a time.
        """
        return list(self.policies.pages.values() if isinstance(self.policies, Folded) else self.policies.values())


#: The trees of an upstream, compressed: its label, its routes' labels, the bytes.
Page = tuple[str, tuple[str, ...], bytes]


class Folded(Mapping[tuple[str, str], Map]):
    """The merged trees of all policies, compressed to some hundred bytes each and grouped by upstream; the trees of an
    upstream are unpacked when one of them is read.
    """

    def __init__(self, pages: Iterable[Page]) -> None:
        self.pages = {page[0]: page for page in pages}
        self._open: tuple[str, dict[str, Map]] = "", {}

    def __getitem__(self, key: tuple[str, str]) -> Map:
        upstream, route = key
        name, trees = self._open
        if name != upstream:
            trees = pickle.loads(zlib.decompress(self.pages[upstream][2]))  # noqa: S301  bytes that `fold` made
            self._open = upstream, trees
        return trees[route]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((upstream, route) for upstream, routes, _ in self.pages.values() for route in routes)

    def __len__(self) -> int:
        return sum(len(routes) for _, routes, _ in self.pages.values())


def fold(trees: Mapping[tuple[str, str], Map]) -> Iterator[Page]:
    """Compress the merged trees of all policies for `Folded`: a page for each upstream, with its label, its routes'
    labels and the compressed trees.
    """
    for upstream, keys in groupby(trees, key=lambda key: key[0]):
        page = {route: trees[upstream, route] for _, route in keys}
        yield upstream, tuple(page), zlib.compress(pickle.dumps(page, pickle.HIGHEST_PROTOCOL), 1)


def _leaves(value: Any, path: str, mark: Mark, *, argument: bool = False) -> Iterator[EffectiveValue]:
    if isinstance(value, Map) and value:
        custom = ":" in str(value.get("kind", ""))
        for key, item in value.items():
            where, given = f"{path}.{key}" if path else key, argument or (custom and key != "kind")
            yield from _leaves(item, where, value.values_at[key], argument=given)
    else:
        yield EffectiveValue(path, shown(value), mark, _plain(value), argument)


def shown(value: Any) -> str:
    """A value in one line, as YAML's flow style writes it; a value from the environment as its ${NAME}."""
    if isinstance(value, Map):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Seq):
        return "[" + ", ".join(map(shown, value)) + "]"
    return "" if value is None else str(getattr(value, "raw", value))


def _plain(value: Any) -> Any:
    if isinstance(value, Map):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Seq):
        return [_plain(item) for item in value]
    return None if value is None else str(getattr(value, "raw", value))


# -- large configurations, made and freed in a thread while calls go on ------------------------------------------------
#
# A thread releases the interpreter to calls between two steps of Python code. A single step that takes long holds calls
# up: a garbage collection that examines all new objects, or freeing a tree at once with all its parts.


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Turn the garbage collector off, and exempt the objects made meanwhile from it for good: they have no cycles, so
    that it would find nothing to free.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.freeze()
            gc.enable()


def release_parts(parts: list[Any] | dict[Any, Any]) -> None:
    """Empty a container, one part after the other. No other object holds the parts, so that each is freed at once."""
    drop = parts.pop if isinstance(parts, list) else parts.popitem
    while parts:
        drop()
