"""The kinds of strategies and buckets as a user would spell them: which keys each has, and its defaults.

Law: the values are proxy.retry's own (its presets.py and bucket specs); here they are only written out, so that a
user's keys can be laid over them and `explain` can show them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from proxy.config.policy_keys import BACKOFF
from proxy.config.yaml_tree import Map, adopt
from proxy.retry.facts import FaultKind
from proxy.retry.policy import BucketSpec, BudgetSpec, QuotaSpec, Strategy, ThrottleSpec
from proxy.retry.presets import BUILT_IN

_RETRYING = ("max_attempts", "backoff")
#: The keys of each kind, besides `kind`.
STRATEGY_KEYS: dict[str, tuple[str, ...]] = {
    "standard": _RETRYING,
    "standard-2026": (*_RETRYING, "pushback_clamp"),
    "legacy": _RETRYING,
    "adaptive": (*_RETRYING, "delay_first"),
    "smithy": _RETRYING,
    "grpc": (*_RETRYING, "initial_backoff", "max_backoff", "multiplier", "jitter"),
    "hedging": ("max_attempts", "hedging_delay", "non_fatal"),
    "none": (),
}
BUCKET_KEYS: dict[str, tuple[str, ...]] = {
    "quota": (
        *("capacity", "retry_cost", "timeout_cost", "throttling_cost", "success_refund", "refund"),
        *("refill", "initial", "store"),
    ),
    "throttle": ("max_tokens", "token_ratio", "initial", "store"),
    "budget": ("percent", "min_per_second", "window", "store"),
    "rate": ("rate", "burst", "when_empty", "initial", "store"),
}
#: grpc's own spellings of backoff's keys.
ALIASES = {"initial_backoff": "base", "max_backoff": "max", "multiplier": "multiplier", "jitter": "jitter"}


def plain_backoff(tree: Map) -> Map:
    """A strategy's mapping with grpc's spellings moved into `backoff`."""
    if ":" in str(tree.get("kind", "")) or not any(key in tree for key in ALIASES):
        return tree
    result = tree.copy()
    backoff = result["backoff"].copy() if isinstance(result.get("backoff"), Map) else Map(tree.mark)
    for alias, key in ALIASES.items():
        if alias in result:
            backoff.put(key, result[alias], tree.keys_at[alias], tree.values_at[alias])
            result.drop(alias)
    result.put("backoff", backoff, tree.keys_at.get("backoff", tree.mark), tree.values_at.get("backoff", tree.mark))
    return result


def _seconds(value: float) -> str:
    return f"{value:g}s" if value == 0 or value >= 1 else f"{value * 1000:g}ms"


@lru_cache(maxsize=64)
def spelled(strategy: Strategy) -> Map:
    """A built-in kind's keys and defaults as a mapping, which nobody changes."""
    keys = STRATEGY_KEYS[strategy.kind]
    tree: dict[str, Any] = {"kind": strategy.kind}
    if "max_attempts" in keys:
        tree["max_attempts"] = strategy.max_attempts
    if "backoff" in keys:
        backoff = {key: getattr(strategy.backoff, key) for key in BACKOFF.keys}
        tree["backoff"] = {
            key: value if isinstance(value, str) else f"{value:g}" if key == "multiplier" else _seconds(value)
            for key, value in backoff.items()
            if value is not None
        }
    if strategy.pushback_clamp is not None:
        tree["pushback_clamp"] = _seconds(strategy.pushback_clamp)
    if "delay_first" in keys:
        tree["delay_first"] = strategy.delay_first
    if strategy.hedging_delay is not None:
        tree["hedging_delay"] = _seconds(strategy.hedging_delay)
        tree["non_fatal"] = _in_order(strategy.non_fatal)
    found = adopt(tree)
    assert isinstance(found, Map)
    return found


def _in_order(failures: Iterable[int | str | FaultKind]) -> list[str]:
    return sorted((str(each) for each in failures), key=lambda text: (text.isdigit(), not text.isupper(), text))


@lru_cache(maxsize=256)
def spelled_bucket(spec: BucketSpec) -> Map:
    """A bucket's keys as a mapping. Costs that are no other than retry_cost are left out: they follow it."""
    tree: dict[str, Any] = {"kind": spec.kind}
    for key in BUCKET_KEYS[spec.kind]:
        value = getattr(spec, key, None)
        if isinstance(spec, QuotaSpec) and key == "refund":
            value = "flat" if spec.flat_refund else "last"
        if isinstance(spec, QuotaSpec) and key in ("timeout_cost", "throttling_cost") and value == spec.retry_cost:
            continue
        if key == "refill" and value is not None:
            value = f"{value:.17g}/s"
        if value is not None:
            is_number = isinstance(value, int | float)
            tree[key] = value if not is_number else _seconds(float(value)) if key == "window" else f"{value:g}"
    found = adopt(tree)
    assert isinstance(found, Map)
    return found


def bucket_defaults(kind: str) -> Map:
    """The defaults of a bucket's kind."""
    if kind == "rate":
        found = adopt({"kind": "rate", "when_empty": "wait", "store": "memory"})
        assert isinstance(found, Map)
        return found
    specs: dict[str, BucketSpec] = {"quota": QuotaSpec(), "throttle": ThrottleSpec(), "budget": BudgetSpec()}
    return spelled_bucket(specs[kind])


def described(tree: Map) -> str:
    """A name for an inline mapping, the same for the same definition: `standard(max_attempts=5)`."""
    kind = str(tree["kind"])
    base = spelled(BUILT_IN[kind]) if kind in BUILT_IN else Map()
    parts = sorted(f"{path}={value}" for path, value in _flat(tree, "") if _flat_get(base, path) != value)
    return f"{kind}({', '.join(parts)})" if parts else kind


def _flat(tree: Map, path: str) -> Iterable[tuple[str, str]]:
    for key, value in tree.items():
        if key == "kind" and not path:
            continue
        if isinstance(value, Map):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", "/".join(map(str, value)) if isinstance(value, list) else str(value)


def _flat_get(tree: Map, path: str) -> str | None:
    return dict(_flat(tree, "")).get(path)
