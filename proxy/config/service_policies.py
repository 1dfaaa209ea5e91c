"""The retryPolicy and hedgingPolicy of a gRPC service config become strategies, as a configuration would write them.

Law: A6's validation rules, published and draft; see `service_config`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.config.problems import DEFAULT, Mark
from proxy.config.service_fields import (
    BadError,
    Object,
    Telling,
    as_code,
    as_duration,
    as_float,
    as_milliseconds,
    as_whole,
    spelled_seconds,
)
from proxy.config.yaml_tree import Map, Seq, Text, adopt
from proxy.retry.facts import GRPC_STATUS_NAMES

#: A6: values greater than 5 are treated as 5 without being considered a validation error.
MOST_ATTEMPTS = 5

_PUBLISHED = ("initialBackoff", "maxBackoff", "backoffMultiplier")
_RETRY = ("maxAttempts", *_PUBLISHED, "retryableStatusCodes", "perAttemptRecvTimeout")
_DRAFT_RETRY = ("maxRetryAttempts", "exponentialBackoff", "retryableStatusCodes", "perAttemptRecvTimeout")
_DRAFT_BACKOFF = ("initialBackoffMs", "maxBackoffMs", "multiplier")
_HEDGING = ("maxAttempts", "hedgingDelay", "nonFatalStatusCodes", "perAttemptRecvTimeout")
_DRAFT_HEDGING = ("maxRequests", "hedgingDelayMs", "nonFatalStatusCodes")


class PolicyReading(Telling):
    """See the module."""

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


def put(tree: Map, key: str, value: str, mark: Mark) -> None:
    """Set a key as it would be written."""
    tree.put(key, Text.make(value), mark, mark)
