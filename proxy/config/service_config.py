"""A gRPC service config becomes layers of policy: one for each method it names, one for all the rest.

A6's validation rules, each field named by its path in the user's own spelling. The draft of A6 is read too:
`max_retry_attempts: n` is n + 1 attempts, `max_requests: n` is n, `*_ms` are milliseconds. A layer is an ordinary
configuration tree whose values keep their places in the service config, so that merging and `explain` need know nothing
of it.

Lenient where gRPC's own parsers are (proto3 JSON): names in camelCase, snake_case or any case, numbers as strings,
unknown fields (warned about). Sources: gRPC A6; grpc/doc/service_config.md; grpc-core's retry_service_config.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.config.problems import DEFAULT, Mark, Problems, did_you_mean, dotted
from proxy.config.problems import Path as KeyPath
from proxy.config.read import read_text
from proxy.config.service_fields import (
    BadError,
    Object,
    as_code,
    as_duration,
    as_float,
    as_milliseconds,
    as_whole,
    plain,
    spelled_seconds,
)
from proxy.config.units import guess, written
from proxy.config.yaml_tree import Map, Seq, Text, adopt, parse
from proxy.retry.facts import GRPC_STATUS_NAMES

_TOP = ("methodConfig", "retryThrottling", "loadBalancingPolicy", "loadBalancingConfig", "healthCheckConfig")
_NO_EFFECT = ("maxRequestMessageBytes", "maxResponseMessageBytes", "waitForReady")
_METHOD = ("name", "timeout", "retryPolicy", "hedgingPolicy", *_NO_EFFECT)
_THROTTLING = ("maxTokens", "tokenRatio")
_PUBLISHED = ("initialBackoff", "maxBackoff", "backoffMultiplier")
_RETRY = ("maxAttempts", *_PUBLISHED, "retryableStatusCodes", "perAttemptRecvTimeout")
_DRAFT_RETRY = ("maxRetryAttempts", "exponentialBackoff", "retryableStatusCodes", "perAttemptRecvTimeout")
_DRAFT_BACKOFF = ("initialBackoffMs", "maxBackoffMs", "multiplier")
_HEDGING = ("maxAttempts", "hedgingDelay", "nonFatalStatusCodes", "perAttemptRecvTimeout")
_DRAFT_HEDGING = ("maxRequests", "hedgingDelayMs", "nonFatalStatusCodes")

#: A6: values greater than 5 are treated as 5 without being considered a validation error.
MOST_ATTEMPTS = 5


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
        return _ServiceConfigReader(problems, dotted(path)).config(value, mark)
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
    return _ServiceConfigReader(problems, "").config(Map(Mark(file, 1, 1)) if tree is None else tree, Mark(file, 1, 1))


class _ServiceConfigReader:
    """Reads one config, and tells what is wrong with it. `lead` is put in front of every path."""

    def __init__(self, problems: Problems, lead: str) -> None:
        self.problems = problems
        self.bad = False
        self._lead = lead

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

    # -- a method's policy -------------------------------------------------------------------------------------------

    def retry(self, section: Object, timeouts: Map) -> tuple[Map, frozenset[int]]:
        """A method's retryPolicy as a strategy, and its codes. Its attempts' timeout goes to `timeouts`."""
        inner = self.object_(section, "retryPolicy")
        strategy = Map(section.at("retryPolicy"))
        if inner is None:
            return strategy, frozenset()
        draft = "maxRetryAttempts" in inner or "exponentialBackoff" in inner
        strategy.put("kind", adopt("grpc"), DEFAULT, section.at("retryPolicy"))
        if draft:
            self.ignored(inner, _DRAFT_RETRY)
            self._attempts(inner, "maxRetryAttempts", strategy, plus=1)
            backoff = self.object_(inner, "exponentialBackoff")
            if backoff is not None:
                self.ignored(backoff, _DRAFT_BACKOFF)
                self._backoff(backoff, _DRAFT_BACKOFF, as_milliseconds, strategy)
        else:
            self.ignored(inner, _RETRY)
            self._attempts(inner, "maxAttempts", strategy)
            self._backoff(inner, _PUBLISHED, as_duration, strategy)
        put(strategy, "jitter", "full" if draft else "proportional", DEFAULT)
        codes = self._codes(inner, "retryableStatusCodes", required="perAttemptRecvTimeout" not in inner)
        self.timeout(inner, "perAttemptRecvTimeout", timeouts, "attempt")
        return strategy, codes

    def hedging(self, section: Object, timeouts: Map) -> tuple[Map, frozenset[int]]:
        """The same of a hedgingPolicy."""
        inner = self.object_(section, "hedgingPolicy")
        strategy = Map(section.at("hedgingPolicy"))
        if inner is None:
            return strategy, frozenset()
        strategy.put("kind", adopt("hedging"), DEFAULT, section.at("hedgingPolicy"))
        draft = "maxRequests" in inner or "hedgingDelayMs" in inner
        self.ignored(inner, _DRAFT_HEDGING if draft else _HEDGING)
        self._attempts(inner, "maxRequests" if draft else "maxAttempts", strategy)
        name = "hedgingDelayMs" if draft else "hedgingDelay"
        delay = self.field(inner, name, as_milliseconds if draft else as_duration, required=False)
        if delay is not None and delay < 0:
            self.tell(inner.at(name), inner.path_of(name), "must not be below 0")
        # A6: without a delay all requests go at once.
        put(
            strategy,
            "hedging_delay",
            spelled_seconds(max(0.0, delay or 0.0)),
            inner.at(name) if delay is not None else DEFAULT,
        )
        codes = self._codes(inner, "nonFatalStatusCodes", required=False)
        non_fatal = Seq(inner.at("nonFatalStatusCodes"))
        for code in sorted(codes):
            non_fatal.put(adopt(GRPC_STATUS_NAMES[code]), inner.at("nonFatalStatusCodes"))
        strategy.put("non_fatal", non_fatal, non_fatal.mark, non_fatal.mark)
        self.timeout(inner, "perAttemptRecvTimeout", timeouts, "attempt")
        return strategy, codes

    def _attempts(self, inner: Object, name: str, strategy: Map, plus: int = 0) -> None:
        attempts = self.field(inner, name, as_whole)
        if attempts is None:
            return
        if attempts + plus < 2:
            self.tell(inner.at(name), inner.path_of(name), f"must be at least {2 - plus}")
        elif attempts + plus > MOST_ATTEMPTS:
            message = f"more than {MOST_ATTEMPTS} attempts are treated as {MOST_ATTEMPTS}"
            self.problems.warn(inner.at(name), self.path(inner.path_of(name)), message)
        put(strategy, "max_attempts", str(min(attempts + plus, MOST_ATTEMPTS)), inner.at(name))

    def _backoff(self, inner: Object, names: tuple[str, ...], read_time: Callable[[Any], float], strategy: Map) -> None:
        ours = ("initial_backoff", "max_backoff", "multiplier")
        for name, key, reader in zip(names, ours, (read_time, read_time, as_float), strict=True):
            value = self.field(inner, name, reader)
            if value is None:
                continue
            if value <= 0:
                self.tell(inner.at(name), inner.path_of(name), "must be greater than 0")
            else:
                put(strategy, key, repr(value) if reader is as_float else spelled_seconds(value), inner.at(name))

    def timeout(self, section: Object, name: str, timeouts: Map, key: str) -> None:
        """A duration of the config as one of `timeouts`."""
        timeout = self.field(section, name, as_duration, required=False)
        if timeout is None:
            return
        if timeout <= 0:
            self.tell(section.at(name), section.path_of(name), "must be greater than 0")
        else:
            put(timeouts, key, spelled_seconds(timeout), section.at(name))

    def _codes(self, inner: Object, name: str, *, required: bool) -> frozenset[int]:
        value = inner.get(name)
        if value is None:
            if required:
                self.tell(inner.at(name), inner.path_of(name), "is missing")
            return frozenset()
        if not isinstance(value, Seq):
            self.tell(inner.at(name), inner.path_of(name), "is not an array")
            return frozenset()
        if not value and name == "retryableStatusCodes":
            self.tell(inner.at(name), inner.path_of(name), "must not be empty")
        found: set[int] = set()
        for number, each in enumerate(value):
            try:
                found.add(as_code(each))
            except BadError as error:
                self.tell(value.marks[number], (*inner.path_of(name), number), str(error))
        return frozenset(found)

    # -- fields ------------------------------------------------------------------------------------------------------

    def object_(self, section: Object, name: str) -> Object | None:
        """An object that must be there."""
        value = section.get(name)
        if isinstance(value, Map):
            return Object(value, section.path_of(name))
        message = "is missing" if value is None else f"is not an object but {written(value)}"
        self.tell(section.at(name), section.path_of(name), message)
        return None

    def field(self, section: Object, name: str, reader: Callable[[Any], Any], *, required: bool = True) -> Any:
        """What a reader makes of a field; None where it is absent, or wrong, which is told."""
        value = section.get(name)
        if value is None:
            if required:
                self.tell(section.at(name), section.path_of(name), "is missing")
            return None
        try:
            return reader(value)
        except BadError as error:
            self.tell(section.at(name), section.path_of(name), str(error))
            return None

    def ignored(self, section: Object, known: tuple[str, ...], ignored: tuple[str, ...] = ()) -> None:
        """Warn of fields that gRPC knows and we do not act on, and of those that nobody knows."""
        names = {plain(name): name for name in known}
        for short, key in section.spelled.items():
            name = names.get(short)
            if name is None:
                message = f"is no field of a service config{did_you_mean(key, known)}"
            elif name in ignored:
                message = "has no effect here"
            else:
                continue
            self.problems.warn(section.tree.keys_at[key], self.path((*section.path, key)), message)

    def tell(self, mark: Mark, path: KeyPath, message: str) -> None:
        """An error."""
        self.bad = True
        self.problems.add(mark, self.path(path), message)

    def path(self, path: KeyPath) -> str:
        """A path as problems name it."""
        inner = dotted(path)
        return f"{self._lead}.{inner}" if self._lead and inner else self._lead or inner


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


def put(tree: Map, key: str, value: str, mark: Mark) -> None:
    """Set a key as it would be written."""
    tree.put(key, Text.make(value), mark, mark)
