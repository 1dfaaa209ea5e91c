"""One policy out of its merged tree: what applies to a call, frozen.

Every key is read by the form that the file was held against, so a policy cannot hold what a file could not say.
Sections that nobody changed are the same object everywhere and are read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proxy.config.classification import classify, dialects
from proxy.config.merge import lay, without_overruled
from proxy.config.problems import Mark, Problems
from proxy.config.problems import Path as KeyPath
from proxy.config.read import is_file
from proxy.config.schema import DEFAULTS
from proxy.config.schema_language import told_already
from proxy.config.strategies import Kinds
from proxy.config.yaml_tree import Map, Seq
from proxy.retry.policy import (
    BucketRef,
    Classify,
    Dialect,
    HeaderEdits,
    IdempotencyKey,
    Policy,
    PushbackPolicy,
    Scope,
    Strategy,
    Timeouts,
)
from proxy.retry.presets import STANDARD
from proxy.retry.routing import Endpoint, Target

if TYPE_CHECKING:
    from proxy.config.service_config import MethodPolicy

Part = TypeVar("Part")

#: Keys of an upstream or route that are worked out elsewhere.
_ELSEWHERE = frozenset(
    {"strategy", "bucket", "rate", "service_config", "routes", "url", "hosts", "prefix", "services", "match"}
)


@dataclass(frozen=True, slots=True)
class PolicyPlace:
    """Which policy is made: its labels, where it was written, and the keys that are its own and not inherited."""

    upstream: str
    route: str
    endpoints: tuple[Endpoint, ...]
    path: KeyPath
    at: Mark
    own: frozenset[str] = frozenset()


class Policies:
    """Makes policies, and keeps the effective tree of each for `explain`."""

    def __init__(self, kinds: Kinds, problems: Problems) -> None:
        self._kinds = kinds
        self._problems = problems
        known = DEFAULTS.default_values
        self._read = {(name, id(tree)): (tree, known[name]) for name, tree in DEFAULTS.defaults.items()}
        self._targets: dict[object, Target] = {}
        self._packs: dict[tuple[str, ...], tuple[Dialect, ...]] = {}
        self._classified: dict[object, Classify] = {}
        self._parts: dict[tuple[type, Any], Any] = {}
        self.trees: dict[tuple[str, str], Map] = {}
        self.defaults: Map | None = None  # what every upstream inherits; None while that is put together

    def layer(self, over: Map, under: Map, path: KeyPath) -> Map:
        """One layer of a policy over the one it inherits (contract, section 3)."""
        if "service_config" in over:
            over = self._without(over, path)
            under = under.copy()
            under.drop("bucket")
        under = without_overruled(over, under)

        def special(key: str, result: Map, over: Map) -> bool:
            if key not in ("strategy", "bucket", "rate"):
                return False
            value = self._kinds.over(key, over[key], result.get(key), over.values_at[key], (*path, key))
            if value is not None:
                result.put(key, value, over.keys_at[key], over.values_at[key])
                if key == "strategy":
                    result.drop("service_config")
            return True

        return lay(over, under, special)

    def _without(self, over: Map, path: KeyPath) -> Map:
        """A layer without the keys that its service config takes the place of."""
        over = over.copy()
        for key in ("strategy", "bucket"):
            if key in over:
                message = "has no effect: service_config takes its place"
                self._problems.warn(over.keys_at[key], (*path, key), message)
                over.drop(key)
        return over

    def make(
        self,
        tree: Map,
        place: PolicyPlace,
        groups: Mapping[str, str | None],
        method: MethodPolicy | None = None,
    ) -> Policy | None:
        """The policy of a merged tree; None where something in it is wrong, which was told.

        `groups`: see BucketRef. `method` is a service config's.
        """
        path = place.path
        found = self._kinds.strategy(tree["strategy"], tree.values_at["strategy"], (*path, "strategy"))
        strategy = found if found is not None else STANDARD  # what else is wrong is told all the same
        if method is not None and method.hedged:
            strategy = replace(strategy, safe_methods=True)
        bucket = self._bucket(tree, "bucket", strategy, path, groups.get("bucket"))
        rate = self._bucket(tree, "rate", strategy, path, groups.get("rate") or "rate")
        typed = {name: self._typed(tree, name) for name in DEFAULTS.keys if name in tree and name not in _ELSEWHERE}
        idempotency, pushback = typed["idempotency_key"], typed["pushback"]
        key = IdempotencyKey(idempotency["header"], idempotency["inject"])
        policy = Policy(
            place.upstream,
            place.route,
            strategy,
            self._one(bucket[0]),
            self._one(rate[0]),
            self._one(_scope(typed["scope"])),
            self._one(Timeouts(**typed["timeouts"])),
            self._classify(tree, method, key, path),
            self._one(frozenset(typed["attempt_headers"])),
            self._one(key),
            self._one(PushbackPolicy(pushback["max_delay"], pushback["cooldown"], pushback["hold"])),
            typed["mode"],
            self._one(_edits(typed["headers"]["request"])),
            self._one(_edits(typed["headers"]["response"])),
            self._target(tree, place.endpoints, path),
        )
        if found is None:
            return None
        self.trees[place.upstream, place.route] = self._effective(tree, strategy, bucket, rate, path)
        return policy

    def _one(self, part: Part) -> Part:
        """The first that was equal to this: thousands of routes differ in little."""
        known: Part = self._parts.setdefault((type(part), part), part)
        return known

    def _typed(self, tree: Map, name: str) -> Any:
        """A key's value, read; the same object is read once."""
        value = tree[name]
        known = self._read.get((name, id(value)))
        if known is None:
            form = DEFAULTS.keys[name].form
            typed = form.read(value, tree.values_at[name], (name,), told_already)
            known = self._read[name, id(value)] = value, typed
        return known[1]

    def _classify(
        self, tree: Map, method: MethodPolicy | None, idempotency_key: IdempotencyKey, path: KeyPath
    ) -> Classify:
        """Lists, rules and packs; the same ones are compiled once."""
        typed, names = self._typed(tree, "classify"), self._typed(tree, "dialects")
        codes, retried = (None, False) if method is None else (method.codes, method.retried)
        inherited = self.defaults is None or tree.keys_at["dialects"] == self.defaults.keys_at["dialects"]
        key = id(typed), id(names), codes, retried, method is None, inherited, idempotency_key
        known = self._classified.get(key)
        if known is None:
            named = tree["dialects"]
            marks = named.marks if isinstance(named, Seq) else [tree.values_at["dialects"]]
            if method is not None and codes is None and "grpc" not in names:  # gRPC's own UNAVAILABLE is a failure here
                names, marks = (*names, "grpc"), [*marks, tree.values_at["dialects"]]
            packs = self._packs.get(names) if not any(name.endswith(("yaml", "yml")) for name in names) else None
            if packs is None:
                packs = dialects(names, marks, (*path, "dialects"), self._problems)
                self._packs[names] = packs
            known = self._classified[key] = classify(typed, packs, codes, retried, not inherited, idempotency_key)
        return known

    def _bucket(
        self, tree: Map, key: str, strategy: Strategy, path: KeyPath, group: str | None
    ) -> tuple[BucketRef | None, Map | None]:
        value, mark = tree.get(key), tree.values_at.get(key, tree.mark)
        if key == "rate":
            return self._kinds.rate(value, mark, (*path, key), group)
        return self._kinds.bucket(value, strategy, mark, (*path, key), group)

    def _target(self, tree: Map, endpoints: tuple[Endpoint, ...], path: KeyPath) -> Target:
        verify: bool | str = True
        if "verify" in tree:
            word = str(tree["verify"])
            if word.lower() in ("false", "no", "off"):
                verify = False
            elif word.lower() not in ("true", "yes", "on"):
                verify = self._file(word, tree.values_at["verify"], (*path, "verify"))
        cert = tree.get("client_cert")
        pair = None
        if isinstance(cert, Map):
            missing = [key for key in ("cert", "key") if key not in cert]
            for key in missing:
                self._problems.add(tree.values_at["client_cert"], (*path, "client_cert", key), "is missing")
            if not missing:
                pair = tuple(
                    self._file(str(cert[key]), cert.values_at[key], (*path, "client_cert", key))
                    for key in ("cert", "key")
                )
        via = self._typed(tree, "via_proxy") if "via_proxy" in tree else None
        target = Target(endpoints, verify, (pair[0], pair[1]) if pair else None, via, self._typed(tree, "protocol"))
        return self._targets.setdefault(target, target)

    def _file(self, name: str, mark: Mark, path: KeyPath) -> str:
        """A file that another names: relative to that one, and there."""
        file = relative_to(mark, name)
        if not is_file(file):
            self._problems.add(mark, path, f"there is no file {file}")
        return file

    def _effective(
        self,
        tree: Map,
        strategy: Strategy,
        bucket: tuple[BucketRef | None, Map | None],
        rate: tuple[BucketRef | None, Map | None],
        path: KeyPath,
    ) -> Map:
        result = tree.copy()
        for key in ("routes", "match", "service_config"):
            result.drop(key)
        whole = self._kinds.whole_strategy(tree["strategy"], tree.values_at["strategy"], (*path, "strategy"))
        for key, named, found in (
            ("strategy", strategy.name, whole),
            ("bucket", bucket[0].name if bucket[0] else None, bucket[1]),
            ("rate", rate[0].name if rate[0] else None, rate[1]),
        ):
            at = tree.values_at.get(key) if key in tree else None
            if found is None:
                continue
            shown = Map(found.mark)
            if named is not None and at is not None and not isinstance(tree[key], Map):
                shown.put("name", tree[key], at, at)
            for inner in found:
                shown.take(inner, found)
            result.put(key, shown, at or found.mark, at or found.mark)
        return result


def relative_to(mark: Mark, name: str) -> str:
    """An absolute path: names in a file are relative to it, others to where we are."""
    base = Path(mark.file).parent if mark.line else Path()
    return str((base / name).absolute())


def _scope(typed: Any) -> Scope:
    return Scope("header", typed["header"].lower()) if isinstance(typed, dict) else Scope(typed)


def _edits(typed: dict[str, Any]) -> HeaderEdits:
    """Names are one in any case: what a route sets takes the place of what its upstream does."""
    fields = {name.lower(): (name, value) for name, value in typed["set"].items()}
    return HeaderEdits(tuple(fields.values()), frozenset(name.lower() for name in typed["remove"]))
