"""A gRPC service config becomes layers of policy: one for each method it names, one for all the rest.

Law: A6's validation rules, each field named by its path in the user's own spelling. The draft of A6 is read too:
`max_retry_attempts: n` is n + 1 attempts, `max_requests: n` is n, `*_ms` are milliseconds. A layer is an ordinary
configuration tree whose values keep their places in the service config, so that merging and `explain` need know nothing
of it.

Lenient where gRPC's own parsers are (proto3 JSON): names in camelCase, snake_case or any case, numbers as strings,
unknown fields (warned about). Sources: gRPC A6; grpc/doc/service_config.md; grpc-core's retry_service_config.cc.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.config.problems import DEFAULT, Mark, Problems, dotted
from proxy.config.problems import Path as KeyPath
from proxy.config.read import read_text
from proxy.config.service_fields import (
    Object,
    as_float,
    as_whole,
)
from proxy.config.service_policies import PolicyReading, put
from proxy.config.units import guess, written
from proxy.config.yaml_tree import Map, Seq, adopt, parse

_TOP = ("methodConfig", "retryThrottling", "loadBalancingPolicy", "loadBalancingConfig", "healthCheckConfig")
_NO_EFFECT = ("maxRequestMessageBytes", "maxResponseMessageBytes", "waitForReady")
_METHOD = ("name", "timeout", "retryPolicy", "hedgingPolicy", *_NO_EFFECT)
_THROTTLING = ("maxTokens", "tokenRatio")


@dataclass(frozen=True)
class MethodPolicy:
    """One method's policy: the path glob it holds for, None for all the rest; the layer it lays over the upstream's.

    `codes` take the place of the lists; None where there is neither policy, so that nothing is named anew and the one
    attempt of `none` is judged as it would be elsewhere. `retried`: there is a retryPolicy, under which an attempt that
    timed out is retried whatever the codes are. `hedged`: the config says that these methods are safe to hedge.
    """

    glob: str | None
    label: str
    layer: Map
    codes: frozenset[int] | None
    retried: bool = False
    hedged: bool = False


def read(value: Any, mark: Mark, path: KeyPath, problems: Problems) -> list[MethodPolicy] | None:
    """The policies of a service config, a mapping or a file's name: methods before services before the rest.

    None where it is wrong, which was told.
    """
    if not isinstance(value, str):
        return _Reading(problems, dotted(path)).config(value, mark)
    file = str((Path(mark.file).parent if mark.line else Path()) / value)
    text = read_text(file, problems, named_at=mark, path=dotted(path))
    if text is None:
        return None
    inner = Problems()
    tree = parse(text, file, inner)
    for each in inner.sorted():
        problems.add(Mark(each.file, each.line, each.column), each.path, each.message)
    if inner.fatal:
        return None
    return _Reading(problems, "").config(Map(Mark(file, 1, 1)) if tree is None else tree, Mark(file, 1, 1))


class _Reading(PolicyReading):
    # -- the config --------------------------------------------------------------------------------------------------

    def config(self, tree: Any, mark: Mark) -> list[MethodPolicy] | None:
        if not isinstance(tree, Map):
            self.tell(mark, (), f"a service config is an object, not {written(tree)}")
            return None
        section = Object(tree, ())
        self.ignored(section, _TOP, ("loadBalancingPolicy", "loadBalancingConfig", "healthCheckConfig"))
        throttling = self._throttling(section)
        found: dict[str | None, MethodPolicy] = {}
        methods = section.get("methodConfig")
        if methods is not None and not isinstance(methods, Seq):
            self.tell(section.at("methodConfig"), section.path_of("methodConfig"), "is not an array")
            methods = None
        for number, each in enumerate(methods or ()):
            path = (*section.path_of("methodConfig"), number)
            if isinstance(each, Map):
                self._method(Object(each, path), throttling, found)
            else:
                self.tell(section.at("methodConfig"), path, f"is not an object but {written(each)}")
        if None not in found:
            found[None] = MethodPolicy(None, "", _layer("none", Map(), throttling), None)
        if self.bad:
            return None
        # Method before service before all; the one for all the rest ends the list.
        return sorted(found.values(), key=lambda each: (each.glob is None, (each.glob or "").endswith("/*")))

    def _throttling(self, section: Object) -> Map | None:
        if "retryThrottling" not in section:
            return None
        inner = self.object_(section, "retryThrottling")
        if inner is None:
            return None
        self.ignored(inner, _THROTTLING)
        most = self.field(inner, "maxTokens", as_whole)
        ratio = self.field(inner, "tokenRatio", as_float)
        if most is not None and not 0 < most <= 1000:
            self.tell(inner.at("maxTokens"), inner.path_of("maxTokens"), "must be above 0 and at most 1000")
        if ratio is not None and int(ratio * 1000 + 1e-9) <= 0:
            self.tell(inner.at("tokenRatio"), inner.path_of("tokenRatio"), "must be above 0, in thousandths")
        if most is None or ratio is None:
            return None
        bucket = Map(inner.tree.mark)
        bucket.put("kind", adopt("throttle"), DEFAULT, inner.tree.mark)
        put(bucket, "max_tokens", str(most), inner.at("maxTokens"))
        put(bucket, "token_ratio", repr(ratio), inner.at("tokenRatio"))
        return bucket

    def _method(self, section: Object, throttling: Map | None, found: dict[str | None, MethodPolicy]) -> None:
        self.ignored(section, _METHOD, _NO_EFFECT)
        timeouts = Map(section.tree.mark)
        self.timeout(section, "timeout", timeouts, "total")
        if "retryPolicy" in section and "hedgingPolicy" in section:
            message = "retryPolicy and hedgingPolicy exclude each other"
            self.tell(section.at("hedgingPolicy"), section.path_of("hedgingPolicy"), message)
        strategy, hedged = Map(), False
        codes: frozenset[int] | None = None
        if "retryPolicy" in section:
            strategy, codes = self.retry(section, timeouts)
        elif "hedgingPolicy" in section:
            strategy, codes = self.hedging(section, timeouts)
            hedged = True
        layer = _layer(str(strategy.get("kind", "none")), strategy, throttling)
        if timeouts:
            layer.put("timeouts", timeouts, section.tree.mark, section.tree.mark)
        for glob, label, at, path in self._names(section):
            if glob in found:
                self.tell(at, path, "is named by two methodConfig entries")
            found[glob] = MethodPolicy(glob, label, layer, codes, "retryPolicy" in section, hedged)

    def _names(self, section: Object) -> Iterable[tuple[str | None, str, Mark, KeyPath]]:
        names = section.get("name")
        if names is None or (isinstance(names, Seq) and not names):
            message = "has no name, so that it applies to nothing"
            self.problems.warn(section.tree.mark, self.path(section.path), message)
            return
        if not isinstance(names, Seq):
            self.tell(section.at("name"), section.path_of("name"), "is not an array")
            return
        for number, each in enumerate(names):
            path, at = (*section.path_of("name"), number), names.marks[number]
            if not isinstance(each, Map):
                self.tell(at, path, f"is not an object but {written(each)}")
                continue
            entry = Object(each, path)
            self.ignored(entry, ("service", "method"))
            service, method = entry.get("service") or "", entry.get("method") or ""
            if not _is_string(service) or not _is_string(method):
                self.tell(at, path, "service and method are strings")
            elif method and not service:
                self.tell(entry.at("method"), entry.path_of("method"), "names a method without its service")
            elif any(char in service + method for char in "/*"):
                self.tell(at, path, "service and method are names, without / or *")
            elif not service:
                yield None, "", at, path
            else:
                glob = f"/{service}/{method or '*'}"
                yield glob, glob, at, path


def _is_string(value: Any) -> bool:
    """Whether JSON would call it one: a bare number or true is not, a bare word in YAML is."""
    return isinstance(value, str) and isinstance(guess(value), str)


def _layer(kind: str, strategy: Map, throttling: Map | None) -> Map:
    """What a method's policy lays over its upstream's."""
    layer = Map(strategy.mark)
    if "kind" not in strategy:
        strategy = Map(strategy.mark)
        strategy.put("kind", adopt(kind), DEFAULT, DEFAULT)
    layer.put("strategy", strategy, strategy.mark, strategy.mark)
    if throttling is None:
        layer.put("bucket", adopt("off"), DEFAULT, DEFAULT)
    else:
        layer.put("bucket", throttling, throttling.mark, throttling.mark)
    return layer
