"""The strategies and buckets that a name or a mapping in a file stands for.

A mapping that names `kind` replaces what was inherited; one without `kind` is merged into the definition that the
inherited name or mapping stands for. So each layer's value is resolved against the one below it, into a name or a whole
mapping, and the last one is compiled. A user's name hides a built-in kind of that name; `kind` always means the
built-in one. The values of the kinds are proxy.retry's own (presets.py, policy.py); here they are only written out, so
that a user's keys can be merged into them and `explain` can show them.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path as FilePath
from typing import Any

from proxy.config.policy_schema import BACKOFF, BUCKET, IN_STRATEGY, STRATEGY
from proxy.config.problems import Mark, Path, Problems, did_you_mean, meant, nearest
from proxy.config.schema_language import already_reported
from proxy.config.units import guess, is_off, rate
from proxy.config.yaml_tree import Map, Seq, adopt, lay
from proxy.retry.apps import Shares
from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.policy import Backoff, Percentile, Strategy
from proxy.retry.strategies.presets import BUILT_IN, EXTRA

# -- the kinds as a user would spell them ------------------------------------------------------------------------------

_RETRYING = ("max_attempts", "backoff")
#: The keys of each kind, besides `kind`.
STRATEGY_KEYS: dict[str, tuple[str, ...]] = {
    "standard": _RETRYING,
    "standard-2026": (*_RETRYING, "pushback_clamp"),
    "legacy": _RETRYING,
    "adaptive": (*_RETRYING, "delay_first"),
    "smithy": _RETRYING,
    "grpc": (*_RETRYING, "initial_backoff", "max_backoff", "multiplier", "jitter"),
    "hedging": ("max_attempts", "hedging_delay", "extra", "non_fatal"),
    "none": (),
}
BUCKET_KEYS: dict[str, tuple[str, ...]] = {
    "quota": (
        "capacity",
        "retry_cost",
        "timeout_cost",
        "throttling_cost",
        "success_refund",
        "refund",
        "refill",
        "initial",
        "store",
    ),
    "throttle": ("max_tokens", "token_ratio", "initial", "store"),
    "budget": ("percent", "min_per_second", "window", "store"),
    "rate": ("rate", "burst", "unit", "when_empty", "initial", "store"),
}
#: The kind grpc's own spellings of backoff's keys.
ALIASES = {"initial_backoff": "base", "max_backoff": "max", "multiplier": "multiplier", "jitter": "jitter"}


def plain_backoff(tree: Map) -> Map:
    """A strategy's mapping in which gRPC's keys for the backoff (ALIASES) are replaced by redrive's keys under
    `backoff`.
    """
    if ":" in str(tree.get("kind", "")) or not any(key in tree for key in ALIASES):
        return tree
    result = tree.copy()
    backoff = result["backoff"].copy() if isinstance(result.get("backoff"), Map) else Map(tree.mark)
    for alias, key in ALIASES.items():
        if alias in result:
            backoff.put(key, result[alias], tree.keys_at[alias], tree.values_at[alias])
            del result[alias]
    result.put("backoff", backoff, tree.keys_at.get("backoff", tree.mark), tree.values_at.get("backoff", tree.mark))
    return result


_DURATIONS = frozenset({"base", "throttling_base", "max", "pushback_clamp", "hedging_delay", "window"})


def _spelled(key: str, value: Any) -> Any:
    """The value of a built-in strategy's attribute `key` as a user would write it in the file: seconds as `2s` or
    `250ms`, a set as a list.
    """
    if isinstance(value, Backoff):
        parts = {each: getattr(value, each) for each in BACKOFF.keys}
        return {each: _spelled(each, part) for each, part in parts.items() if part is not None}
    if isinstance(value, frozenset):
        return sorted(map(str, value), key=lambda text: (text.isdigit(), not text.isupper(), text))
    if isinstance(value, str | bool):
        return value
    if key in _DURATIONS:
        return f"{value:g}s" if value == 0 or value >= 1 else f"{value * 1000:g}ms"
    return f"{value:.17g}/s" if key == "refill" else f"{value:g}"


@lru_cache(maxsize=64)
def spelled(strategy: Strategy) -> Map:
    """The mapping that a user would write for `strategy`, whose kind has to be built in: the kind, and each of its keys
    with the value that this strategy has; keys without a value are left out. The mapping is cached, so it must not be
    changed.
    """
    values = {key: getattr(strategy, key, None) for key in ("kind", *STRATEGY_KEYS[strategy.kind])}
    return Map.of({key: _spelled(key, value) for key, value in values.items() if value is not None})


@lru_cache(maxsize=256)
def spelled_bucket(spec: BucketSpec) -> Map:
    """A bucket's keys as a mapping. Costs equal to retry_cost are left out, since retry_cost is their default."""
    values = {key: getattr(spec, key, None) for key in ("kind", *BUCKET_KEYS[spec.kind])}
    if isinstance(spec, QuotaSpec):
        values["refund"] = "flat" if spec.flat_refund else "last"
        for key in ("timeout_cost", "throttling_cost"):
            if values[key] == spec.retry_cost:
                del values[key]
    return Map.of({key: _spelled(key, value) for key, value in values.items() if value is not None})


#: The defaults of each kind of bucket.
_BUCKETS: dict[str, Map] = {
    **{spec.kind: spelled_bucket(spec) for spec in (QuotaSpec(), ThrottleSpec(), BudgetSpec())},
    "rate": Map.of({"kind": "rate", "unit": "attempts", "when_empty": "wait", "store": "memory"}),
}
#: A compiled bucket or strategy, and its whole mapping; None if there is none.
FoundBucket = tuple[BucketRef | None, Map | None]
FoundStrategy = tuple[Strategy | None, Map | None]


def described(tree: Map) -> str:
    """A name for an inline mapping, the same for equal definitions: `standard(max_attempts=5)`."""
    kind = str(tree["kind"])
    base = spelled(BUILT_IN[kind]) if kind in BUILT_IN else Map()
    known = dict(_flat(base, ""))
    parts = sorted(f"{path}={value}" for path, value in _flat(tree, "") if known.get(path) != value)
    return f"{kind}({', '.join(parts)})" if parts else kind


def _flat(tree: Map, path: str) -> Iterable[tuple[str, str]]:
    for key, value in tree.items():
        if key == "kind" and not path:
            continue
        if isinstance(value, Map):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", "/".join(map(str, value)) if isinstance(value, list) else str(value)


# -- the strategies and buckets of a configuration ---------------------------------------------------------------------


class Kinds:
    """The named strategies and buckets of one configuration, and the resolver of every value that uses them."""

    def __init__(
        self, strategies: Map, buckets: Map, problems: Problems, refused: Container[str], shares: Shares
    ) -> None:
        """Make the kinds from the file's sections `strategies` and `buckets`. `refused`: those of the two sections that
        could not be read at all, which was reported. `shares`: the apps' shares of every bucket that retries are paid
        from; none if the configuration names no apps.
        """
        self._problems = problems
        self._refused = refused
        self._shares = shares
        self._raw = {"strategy": strategies, "bucket": buckets, "rate": buckets}
        self._customs: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self._whole: dict[str, Map] = {}
        self._compiled: dict[str, FoundStrategy] = {}
        self._inline: dict[Strategy, Strategy] = {}
        self.buckets: dict[str, BucketRef] = {}
        for name in list(buckets):
            tree = self._definition("bucket", name)
            spec = None if tree is None else bucket_spec(tree, buckets.keys_at[name], ("buckets", name), self._problems)
            if spec is not None:
                self.buckets[name] = BucketRef(self._parted(spec), name)
        for name in list(strategies):
            self.strategy(name, strategies.keys_at[name], ("strategies", name))

    def over(self, setting: str, value: Any, below: Any, mark: Mark, path: Path) -> Any:
        """Lay `value`, which a policy's layer has for `setting` ("strategy", "bucket" or "rate"), over `below`, the
        inherited value. Return a name, or a mapping with every key of its kind; None if the value is wrong, which was
        reported. A bucket without `kind` that inherits none is returned unchanged: it is later merged into the
        strategy's own bucket.
        """
        if not isinstance(value, Map) or "kind" in value:
            return value
        if "kind" in value.keys_at:  # the kind was refused, so it is not known which keys are right
            return None
        if setting == "bucket" and below is None:
            return value
        if setting == "rate" and (below is None or is_off(below) or isinstance(below, Seq)):
            whole = value.copy()
            whole.put("kind", adopt("rate"), value.mark)
            return whole
        if is_off(below):
            self._problems.add(mark, path, f"needs a kind: the inherited {setting} is off")
            return None
        base = below if isinstance(below, Map) else self._definition(setting, str(below))
        if base is None:  # reported when the name is resolved (`strategy`, `bucket`)
            return None
        if "kind" in base and not self._knows(setting, value, str(base["kind"]), path):
            return None
        return lay(plain_backoff(value), plain_backoff(base))

    def _definition(self, setting: str, name: str) -> Map | None:
        """The mapping that a name of a strategy or bucket stands for, laid over its kind's defaults; None if the name
        is unknown. `setting`: where the name is used, "strategy", "bucket" or "rate".
        """
        known = self._whole.get(f"{setting} {name}")
        if known is not None:
            return known
        table = self._raw[setting]
        if name not in table:
            if setting == "strategy" and name in BUILT_IN:
                return spelled(BUILT_IN[name])
            return Map.of({"kind": name}) if setting == "strategy" and ":" in name else None
        tree, at = table[name], table.keys_at[name]
        section, kinds = ("strategies", STRATEGY_KEYS) if setting == "strategy" else ("buckets", BUCKET_KEYS)
        whole = None
        if "kind" in tree or (setting == "strategy" and name in BUILT_IN):
            whole = self._with_kind(setting, tree, str(tree.get("kind", name)), (section, name))
        elif "kind" not in tree.keys_at:  # a wrong value was reported already
            self._problems.add(at, (section, name, "kind"), f"is missing; it is one of {', '.join(kinds)}")
        if whole is None:
            table.pop(name)
        else:
            self._whole[f"{setting} {name}"] = whole
        return whole

    def _with_kind(self, setting: str, tree: Map, kind: str, path: Path) -> Map | None:
        """Lay a mapping, the value of `setting` ("strategy", "bucket" or "rate"), over the defaults of its `kind`.
        Returns None if the kind or a key in the mapping is wrong, which is reported.
        """
        if setting != "strategy":
            return lay(tree, _BUCKETS[kind]) if self._knows(setting, tree, kind, path) else None
        if ":" in kind:
            return tree
        if kind not in BUILT_IN:
            hint = meant(kind, BUILT_IN)
            if kind in self._raw["strategy"]:
                hint = f"; {kind} is the name of a strategy (did you mean strategy: {kind}?)"
            at = tree.values_at.get("kind", tree.mark)
            self._problems.add(at, (*path, "kind"), f"{kind!r} is not a kind of strategy{hint}")
            return None
        return lay(plain_backoff(tree), spelled(BUILT_IN[kind])) if self._knows(setting, tree, kind, path) else None

    def _knows(self, setting: str, tree: Map, kind: str, path: Path) -> bool:
        """Whether every key of a mapping, the value of `setting` ("strategy", "bucket" or "rate"), is one of its
        kind's; other keys are reported.
        """
        if setting == "strategy" and (":" in kind or kind not in STRATEGY_KEYS):
            return True
        table = STRATEGY_KEYS if setting == "strategy" else BUCKET_KEYS
        allowed = table[kind]
        wrong = [key for key in tree if key != "kind" and key not in allowed]
        meant_kind = [key for key in wrong if "kind" not in tree and nearest(key, ("kind", *allowed)) == "kind"]
        for key in meant_kind:
            self._problems.add(tree.keys_at[key], (*path, key), "unknown key (did you mean kind?)")
        for key in wrong if not meant_kind else ():
            if others := [other for other, keys in table.items() if key in keys]:
                hint = f"; it belongs to {', '.join(others)}"
            elif setting == "strategy" and key in IN_STRATEGY:
                hint = f" (did you mean {IN_STRATEGY[key]}?)"
            else:
                hint = did_you_mean(key, allowed)
            self._problems.add(tree.keys_at[key], (*path, key), f"unknown key for the kind {kind}{hint}")
        twice = [key for key in ALIASES if key in tree and ALIASES[key] in (tree.get("backoff") or {})]
        for key in twice:
            message = f"is set twice: backoff.{ALIASES[key]} is the same"
            self._problems.add(tree.keys_at[key], (*path, key), message)
        return not wrong and not twice

    def strategy(self, value: Any, mark: Mark, path: Path) -> FoundStrategy:
        """Compile a resolved strategy: `value` is its name, or its keys as a mapping; `mark` and `path` are its
        position. Return the strategy, and the mapping that it stands for, which has every key of its kind; None for
        either if it is wrong, which was reported.
        """
        if isinstance(value, Map):
            tree = self._with_kind("strategy", value, str(value["kind"]), path)
            return None if tree is None else self._compile(tree, None, mark, path), tree
        name, named = str(value), self._raw["strategy"].keys_at
        if name not in self._compiled:
            tree = self._definition("strategy", name)
            if tree is None and name not in named and "strategies" not in self._refused:
                remedy = f"define it under strategies, or use one of {', '.join(BUILT_IN)}"
                hint = meant(name, [*named, *BUILT_IN], remedy)
                self._problems.add(mark, path, f"there is no strategy called {name!r}{hint}")
            self._compiled[name] = None if tree is None else self._compile(tree, name, mark, path), tree
        return self._compiled[name]

    def _compile(self, tree: Map, name: str | None, mark: Mark, path: Path) -> Strategy | None:
        kind = str(tree["kind"])
        if ":" in kind:
            return self._custom(tree, name, mark, path)
        typed = STRATEGY.read(tree, mark, path, already_reported)
        plain = ("max_attempts", "pushback_clamp", "delay_first", "hedging_delay", "extra")
        changes = {key: typed[key] for key in plain if key in typed}
        if isinstance(measured := changes.get("hedging_delay"), Percentile):
            del changes["hedging_delay"]
            changes = {"extra": EXTRA, **changes, "hedging_percentile": measured.percent}
        if "backoff" in typed:
            changes["backoff"] = Backoff(**typed["backoff"])
        if "non_fatal" in typed:
            changes["non_fatal"] = frozenset().union(*typed["non_fatal"])
        made = replace(BUILT_IN[kind], **changes, name=name if name is not None else described(tree))
        # Equal ones are one object: thousands of routes differ in little, and the registry compares them.
        return self._inline.setdefault(made, made)

    def _custom(self, tree: Map, name: str | None, mark: Mark, path: Path) -> Strategy | None:
        kind = str(tree["kind"])
        at = tree.values_at["kind"] if tree.values_at["kind"].line else mark
        key = f"{kind} {described(tree)}"
        if key not in self._customs:
            try:
                self._customs[key] = _imported(kind, tree, at)
            except ValueError as error:
                self._problems.add(at, path, str(error))
                self._customs[key] = None
        made = self._customs[key]
        if made is None:
            return None
        if name is None:  # the name has no arguments, since any of them may be a secret
            alike = sum(each.startswith(f"{kind} ") for each in self._names)
            name = self._names.setdefault(key, f"{kind} #{alike + 1}" if alike else kind)
        attempts = made.max_attempts if isinstance(made.max_attempts, int) else 1
        waits = Backoff(0.0, 0.0, jitter="none")  # the custom strategy chooses its waits itself
        again = partial(_imported, kind, tree, at)
        return Strategy("custom", name, attempts, waits, custom=made, remake=again)

    def bucket(
        self, setting: str, value: Any, strategy: Strategy, mark: Mark, path: Path, group: str | None
    ) -> FoundBucket:
        """Compile the resolved value of `setting`, "bucket" or "rate". If the file sets no bucket, the strategy's own
        is used. Uses of one definition with the same `group` share their buckets (`BucketRef.group`); None: each
        strategy has its own.
        """
        own = strategy.own_bucket if setting == "bucket" else None
        if value is None:
            default = strategy.default_bucket if own is not None else None
            return (None, None) if default is None else (BucketRef(self._parted(default)), spelled_bucket(default))
        if is_off(value):
            return None, None
        if not isinstance(value, Map):
            return self._named_bucket(setting, str(value), mark, path)
        whole = "kind" in value
        if not whole:
            if own is None:
                if strategy.max_attempts >= 2:  # else there are no retries to pay for
                    message = f"needs a kind: {strategy.name} has no bucket of its own to merge it into"
                    self._problems.add(mark, path, message)
                return None, None
            base = spelled_bucket(own)
            if not self._knows("bucket", value, str(base["kind"]), path):
                return None, None
            value = lay(value, base)
        tree = self._with_kind("bucket", value, str(value["kind"]), path)
        if tree is not None and setting == "bucket" and tree["kind"] == "rate":
            self._problems.add(mark, path, "a retry bucket is a quota, a throttle or a budget (did you mean rate: …?)")
            return None, None
        spec = None if tree is None else bucket_spec(tree, mark, path, self._problems)
        if spec is None:
            return None, None
        if setting == "rate" and not isinstance(spec, RateSpec):
            self._problems.add(mark, path, f"takes a bucket of kind rate, not {spec.kind}")
            return None, None
        # A bucket that was laid over the strategy's own belongs to that strategy; one that was written whole is shared
        # by all policies that inherit it.
        return BucketRef(self._parted(spec), group=group or ("inline" if whole else None)), tree

    def _parted(self, spec: BucketSpec) -> BucketSpec:
        """The definition of a bucket, to which the apps' shares of it are added if it is of a kind that retries are
        paid from (`quota`, `budget`).
        """
        return replace(spec, apps=self._shares) if isinstance(spec, QuotaSpec | BudgetSpec) else spec

    def rates(
        self, value: Any, strategy: Strategy, mark: Mark, path: Path, group: str
    ) -> tuple[tuple[BucketRef, ...], Map | None]:
        """Compile the resolved value of the key `rate`: one bucket, or a list of buckets, all of which an attempt pays.
        Returns the buckets and, if the value is one bucket and no list, the whole mapping that it stands for (else
        None). Uses of one definition with the same `group` share their buckets.
        """
        if not isinstance(value, Seq):
            ref, whole = self.bucket("rate", value, strategy, mark, path, group)
            return (() if ref is None else (ref,)), whole
        found: list[BucketRef] = []
        for number, (each, at) in enumerate(zip(value, value.marks, strict=True)):
            if isinstance(each, Map) and "kind" not in each:
                if "kind" in each.keys_at:
                    continue  # the kind was refused, which was reported
                whole = each.copy()
                whole.put("kind", adopt("rate"), at)
                each = whole
            kept_by = group if not number else f"{group}-{number + 1}"
            ref, _ = self.bucket("rate", each, strategy, at, (*path, number), kept_by)
            if ref is not None and ref.name is not None and any(ref.name == other.name for other in found):
                self._problems.add(at, (*path, number), f"{ref.name} is in this list already")
            elif ref is not None:
                found.append(ref)
        return tuple(found), None

    def _named_bucket(self, setting: str, name: str, mark: Mark, path: Path) -> FoundBucket:
        ref = self.buckets.get(name)
        if ref is None:
            if name not in self._raw["bucket"].keys_at and "buckets" not in self._refused:
                hint = did_you_mean(name, self._raw["bucket"].keys_at)
                if not hint:
                    inline = [f"kind: {name}"] if name in BUCKET_KEYS else []
                    if setting == "rate":
                        inline += [f"rate: {each}" for each in (name, f"{name}/s") if _is_rate(each)]
                    hint = f" (did you mean {{{inline[0]}}}?)" if inline else "; define it under buckets"
                self._problems.add(mark, path, f"there is no bucket called {name!r}{hint}")
            return None, None
        if isinstance(ref.spec, RateSpec) is not (setting == "rate"):
            wanted = "takes a bucket of kind rate" if setting == "rate" else "takes a quota, a throttle or a budget"
            self._problems.add(mark, path, f"{wanted}, but {name} is of kind {ref.spec.kind}")
            return None, None
        return ref, self._whole[f"bucket {name}"]


def _is_rate(text: str) -> bool:
    """Whether a text can be read as a rate."""
    try:
        return rate(text) > 0
    except ValueError:
        return False


def bucket_spec(tree: Map, mark: Mark, path: Path, problems: Problems) -> BucketSpec | None:
    """Compile a bucket's mapping that names its `kind`; None if it is wrong, which is reported to `problems`. `mark`:
    the position in the file at which the bucket is written; `path`: the keys that lead to it.
    """
    typed: dict[str, Any] = BUCKET.read(tree, mark, path, already_reported)
    kind = typed.pop("kind")
    spec: BucketSpec
    if kind == "quota":
        typed["flat_refund"] = typed.pop("refund", "last") == "flat"
        for key in ("timeout_cost", "throttling_cost"):
            typed.setdefault(key, typed["retry_cost"])
        spec, most = QuotaSpec(**typed), typed["capacity"]
    elif kind == "throttle":
        # gRPC A6: decimals of token_ratio beyond the third are dropped; the same is done for max_tokens.
        for key in ("max_tokens", "token_ratio"):
            typed[key] = int(typed[key] * 1000 + 1e-6) / 1000
            if typed[key] <= 0:
                at = tree.values_at[key]
                problems.add(at, (*path, key), "must be at least 0.001: it is counted in thousandths")
                return None
        spec, most = ThrottleSpec(**typed), typed["max_tokens"]
    elif kind == "budget":
        return BudgetSpec(**typed)
    elif "rate" not in typed:
        if "rate" not in tree.keys_at:  # a wrong value was reported already
            problems.add(tree.mark if tree.mark.line else mark, (*path, "rate"), "is missing; write it as 100/s")
        return None
    elif typed.get("burst", 1.0) < 1:
        problems.add(tree.values_at["burst"], (*path, "burst"), "must be at least 1: an attempt takes one")
        return None
    else:
        typed.setdefault("burst", max(1.0, typed["rate"]))  # one second's worth, and at least one attempt
        spec, most = RateSpec(**typed), typed["burst"]
    if typed.get("initial", 0.0) > most:
        message = f"must not be above what the bucket holds, {most:g}"
        problems.add(tree.values_at["initial"], (*path, "initial"), message)
        return None
    return spec


# -- a user's own strategy, named as "module:Class" (contract, section 7), made while a file is checked ----------------
#
# Any exception while a module is imported or called becomes one clear line; neither happens during a call.


#: The attributes that a strategy must have, and how messages name them.
_METHODS = ("acquire_initial_retry_token", "refresh_retry_token_for_retry", "record_success", "max_attempts")
_INTERFACE = "the methods of proxy.retry.RetryStrategy"


def _imported(kind: str, tree: Map, at: Mark) -> Any:
    """Import and make a user's own strategy, whose class `kind` names as module:Class; modules beside the file are
    found too. Raises ValueError with the reason in one line.
    """
    module_name, _, class_name = kind.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), class_name)):
        raise ValueError(f"{kind!r} names no class; write module:Class, as in my_retries:Patient")
    folder = str(FilePath(at.file).resolve().parent) if at.line else ""
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        raise ValueError(f"cannot import {module_name}: {_error_text(error)}") from None
    made = getattr(module, class_name, None)
    if not callable(made):
        if hasattr(module, class_name):
            what = "a module" if inspect.ismodule(made) else f"of type {type(made).__name__}"
            raise ValueError(f"{kind} is {what}, not a class; write module:Class, a class that has {_INTERFACE}")
        classes = [name for name, each in vars(module).items() if inspect.isclass(each) and not name.startswith("_")]
        raise ValueError(f"{module_name} has no class {class_name}{meant(class_name, classes)}")
    arguments = {key: guess(value) for key, value in tree.items() if key != "kind"}
    try:
        strategy = made(**arguments)
    except BaseException as error:
        raise ValueError(f"{kind} cannot be made: {_without(arguments, _error_text(error))}") from None
    wanted = _METHODS
    lacking = [name for name in wanted if not hasattr(strategy, name)]
    if lacking:
        raise ValueError(f"{kind} is not a RetryStrategy: it has no {', '.join(lacking)}")
    if awaited := [name for name in wanted if inspect.iscoroutinefunction(getattr(strategy, name))]:
        plain = "its methods must be plain functions, not async"
        raise ValueError(f"{kind} is not a RetryStrategy: {plain}: {', '.join(awaited)}")
    return strategy


def _without(arguments: Any, text: str) -> str:
    """A text, such as an exception's message, with each of these arguments that it contains replaced by `…`: an
    argument of any name may be a secret.
    """
    if isinstance(arguments, Mapping):
        arguments = list(arguments.values())
    if isinstance(arguments, (list, tuple)):
        for each in arguments:
            text = _without(each, text)
        return text
    return text.replace(arguments, "…") if isinstance(arguments, str) and len(arguments) > 2 else text


def _error_text(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        raise error
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
