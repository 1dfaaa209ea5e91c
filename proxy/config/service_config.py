"""The reader of a gRPC service config: it makes layers of policy, one for each method it names and one for all others.

The config is checked by A6's validation rules; errors name a field by its path in the user's own spelling. The draft of
A6 is read too: `max_retry_attempts: n` is n + 1 attempts, `max_requests: n` is n, `*_ms` are milliseconds. A layer is
an ordinary configuration tree whose values keep their positions in the service config, so that merging and `explain`
need know nothing of it.

Lenient where gRPC's own parsers are (proto3 JSON): names in camelCase, snake_case or any case, numbers as strings,
unknown fields (warned about). Sources: gRPC A6; grpc/doc/service_config.md; grpc-core's retry_service_config.cc.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.config.problems import DEFAULT, Mark, Problems, did_you_mean, dotted
from proxy.config.problems import Path as KeyPath
from proxy.config.units import guess, written
from proxy.config.yaml_tree import Map, Seq, Text, adopt, parse, read_text
from proxy.retry.facts import GRPC_STATUS_NAMES, GRPC_STATUS_NUMBERS

_TOP_NO_EFFECT = ("loadBalancingPolicy", "loadBalancingConfig", "healthCheckConfig")
_TOP = ("methodConfig", "retryThrottling", *_TOP_NO_EFFECT)
_NO_EFFECT = ("maxRequestMessageBytes", "maxResponseMessageBytes")
#: The warning about waitForReady, by its value: no client's channel waits here until its upstream is ready.
_WAITS = {
    True: "has no effect here: limits and outages hold calls without it, too",
    False: "only has the effect that no limit and no outage holds these calls",
}
_METHOD = ("name", "timeout", "retryPolicy", "hedgingPolicy", "waitForReady", *_NO_EFFECT)
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
    """The policy of a method. `glob` matches the method's path, None stands for all other calls; `layer` is laid over
    the upstream's tree.

    `codes` are the gRPC statuses to retry, in place of the policy's lists of failures; None if there is neither a
    retryPolicy nor a hedgingPolicy: then the strategy is `none`, and its one attempt is judged as it would be without a
    service config. `retried`: there is a retryPolicy, under which an attempt that timed out is retried whatever the
    codes are; `timed`: the retryPolicy sets perAttemptRecvTimeout, which allows such retries for every method.
    `hedged`: the config says that these methods are safe to hedge. `fails_fast`: `waitForReady` is false, so neither a
    limit nor an outage holds these calls.
    """

    glob: str | None
    layer: Map
    codes: frozenset[int] | None
    retried: bool = False
    hedged: bool = False
    timed: bool = False
    fails_fast: bool = False


def read(value: Any, mark: Mark, path: KeyPath, problems: Problems) -> list[MethodPolicy] | None:
    """Read a gRPC service config, which is a mapping or a file's name, into policies: those of methods first, then
    those of whole services, then that for all other calls. None if the config is wrong, which was reported. `value`:
    the config as it is in the tree; `mark` and `path`: its position, for problems.
    """
    own_problems = Problems()  # separate, to know whether this config has an error
    if isinstance(value, str):
        file = str((Path(mark.file).parent if mark.line else Path()) / value)
        text = read_text(file, problems, named_at=mark, path=dotted(path))
        if text is None:
            return None
        path, mark = (), Mark(file, 1, 1)
        value = parse(text, file, own_problems)
        if value is None:
            value = Map(mark)
    found = None if own_problems.fatal else _read_config(value, mark, path, own_problems)
    problems.take(own_problems.sorted())
    return None if own_problems.fatal else found


class _Object:
    """An object of the config: its fields by their published names, whatever their spelling."""

    def __init__(self, tree: Map, path: KeyPath, problems: Problems) -> None:
        self.tree = tree
        self.path = path
        self.problems = problems
        self._spelled = {_plain(key): key for key, value in tree.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return _plain(name) in self._spelled

    def get(self, name: str) -> Any:
        """A field's value, None if it is absent."""
        key = self._spelled.get(_plain(name))
        return None if key is None else self.tree[key]

    def at(self, name: str) -> Mark:
        """The position of a field's value; that of the object, if the field is absent."""
        key = self._spelled.get(_plain(name))
        return self.tree.mark if key is None else self.tree.values_at[key]

    def path_of(self, name: str) -> KeyPath:
        """A field's path, in the user's spelling."""
        return (*self.path, self._spelled.get(_plain(name), name))

    def error(self, name: str, message: str) -> None:
        self.problems.add(self.at(name), self.path_of(name), message)

    def inner(self, name: str) -> _Object | None:
        """Read a field that must be an object; report it if it is not, and return None."""
        value = self.get(name)
        if isinstance(value, Map):
            return _Object(value, self.path_of(name), self.problems)
        self.error(name, "is missing" if value is None else f"is not an object but {written(value)}")
        return None

    def array(self, name: str, *, required: bool = False) -> Seq | None:
        """The value of the field `name`, which must be a list. None if it is absent, which is reported if the field is
        `required`, or if it is something else, which is always reported.
        """
        value = self.get(name)
        if isinstance(value, Seq):
            return value
        if value is not None or required:
            self.error(name, "is missing" if value is None else "is not an array")
        return None

    def field(self, name: str, reader: Callable[[Any], Any], *, required: bool = True) -> Any:
        """The value of the field `name`, converted by `reader`; None if `reader` refuses it (ValueError), which is
        reported, or if the field is absent, which is reported if it is `required`.
        """
        value = self.get(name)
        if value is None and not required:
            return None
        try:
            if value is None:
                raise ValueError("is missing")
            return reader(value)
        except ValueError as error:
            self.error(name, str(error))
            return None

    def positive(
        self, name: str, reader: Callable[[Any], float], into: Map, key: str, *, required: bool = False
    ) -> None:
        """Read the field `name` with `reader`: a number or a duration above zero. Put it into the mapping `into` under
        `key`, as redrive's own files spell it. An absent field is reported if it is `required`.
        """
        value = self.field(name, reader, required=required)
        if value is not None and value <= 0:
            self.error(name, "must be greater than 0")
        elif value is not None:
            _put(into, key, repr(value) if reader is _as_float else _spelled_seconds(value), self.at(name))

    def known(self, names: tuple[str, ...], ignored: tuple[str, ...] = ()) -> None:
        """Warn of fields that have no effect here (`ignored`), and of fields whose names are not among `names`."""
        published = {_plain(name): name for name in names}
        for short, key in self._spelled.items():
            name = published.get(short)
            if name is None or name in ignored:
                unknown = f"is not a field of a service config{did_you_mean(key, names)}"
                message = unknown if name is None else "has no effect here"
                self.problems.warn(self.tree.keys_at[key], (*self.path, key), message)


# -- the config --------------------------------------------------------------------------------------------------------


def _read_config(tree: Any, mark: Mark, path: KeyPath, problems: Problems) -> list[MethodPolicy] | None:
    if not isinstance(tree, Map):
        problems.add(mark, path, f"a service config is an object, not {written(tree)}")
        return None
    top = _Object(tree, path, problems)
    top.known(_TOP, _TOP_NO_EFFECT)
    throttling = _throttling(top) if "retryThrottling" in top else None
    found: dict[str | None, MethodPolicy] = {}
    for number, each in enumerate(top.array("methodConfig") or ()):
        path = (*top.path_of("methodConfig"), number)
        if isinstance(each, Map):
            _method(_Object(each, path, problems), throttling, found)
        else:
            problems.add(top.at("methodConfig"), path, f"is not an object but {written(each)}")
    if None not in found:
        found[None] = MethodPolicy(None, _layer(Map(), throttling), None)
    # Methods come before services; the policy for all other calls is the last.
    return sorted(found.values(), key=lambda each: (each.glob is None, (each.glob or "").endswith("/*")))


def _throttling(top: _Object) -> Map | None:
    inner = top.inner("retryThrottling")
    if inner is None:
        return None
    inner.known(("maxTokens", "tokenRatio"))
    most, ratio = inner.field("maxTokens", _as_whole), inner.field("tokenRatio", _as_float)
    if most is not None and not 0 < most <= 1000:
        inner.error("maxTokens", "must be above 0 and at most 1000")
    if ratio is not None and int(ratio * 1000 + 1e-9) <= 0:
        inner.error("tokenRatio", "must be at least 0.001: it is counted in thousandths")
    if most is None or ratio is None:
        return None
    bucket = Map(inner.tree.mark)
    bucket.put("kind", adopt("throttle"), DEFAULT, inner.tree.mark)
    _put(bucket, "max_tokens", str(most), inner.at("maxTokens"))
    _put(bucket, "token_ratio", repr(ratio), inner.at("tokenRatio"))
    return bucket


def _method(section: _Object, throttling: Map | None, found: dict[str | None, MethodPolicy]) -> None:
    section.known(_METHOD, _NO_EFFECT)
    timeouts = Map(section.tree.mark)
    section.positive("timeout", _as_duration, timeouts, "total")
    retried, hedged = "retryPolicy" in section, "hedgingPolicy" in section
    if retried and hedged:
        section.error("hedgingPolicy", "retryPolicy and hedgingPolicy exclude each other")
    strategy = Map()
    codes: frozenset[int] | None = None
    timed = False
    if retried or hedged:
        name, read_policy = ("retryPolicy", _retry) if retried else ("hedgingPolicy", _hedging)
        strategy, codes = Map(section.at(name)), frozenset()
        if inner := section.inner(name):
            codes = read_policy(inner, strategy)
            inner.positive("perAttemptRecvTimeout", _as_duration, timeouts, "attempt")
            timed = "attempt" in timeouts
    layer = _layer(strategy, throttling)
    waits = section.field("waitForReady", _as_bool, required=False)
    if waits is not None:
        section.problems.warn(section.at("waitForReady"), section.path_of("waitForReady"), _WAITS[waits])
    if waits is False:
        _put(layer, "outage", "fail", section.at("waitForReady"))
    if timeouts:
        layer.put("timeouts", timeouts, section.tree.mark)
    for glob, at, path in _names(section):
        if glob in found:
            section.problems.add(at, path, "is named by two methodConfig entries")
        found[glob] = MethodPolicy(
            glob, layer, codes, retried, hedged and not retried, timed=retried and timed, fails_fast=waits is False
        )


def _names(section: _Object) -> Iterable[tuple[str | None, Mark, KeyPath]]:
    """The calls that an entry of `methodConfig` is for, each with its position: the glob of a method's or service's
    path, or None for all calls that no other entry names.
    """
    names, problems = section.array("name"), section.problems
    if names is None and "name" in section:
        return
    if not names:
        problems.warn(section.tree.mark, section.path, "has no name, so it applies to nothing")
        return
    for number, each in enumerate(names):
        path, at = (*section.path_of("name"), number), names.marks[number]
        if not isinstance(each, Map):
            problems.add(at, path, f"is not an object but {written(each)}")
            continue
        entry = _Object(each, path, problems)
        entry.known(("service", "method"))
        service, method = entry.get("service") or "", entry.get("method") or ""
        if not _is_string(service) or not _is_string(method):
            problems.add(at, path, "service and method are strings")
        elif method and not service:
            entry.error("method", "names a method without its service")
        elif any(char in service + method for char in "/*"):
            problems.add(at, path, "service and method are names, without / or *")
        else:
            yield f"/{service}/{method or '*'}" if service else None, at, path


def _layer(strategy: Map, throttling: Map | None) -> Map:
    """Make the layer of a method's policy, which takes precedence over its upstream's: the key `strategy`, and the key
    `bucket`, from the service config's `throttling` (None: off).
    """
    layer = Map(strategy.mark)
    if "kind" not in strategy:
        strategy.put("kind", adopt("none"), DEFAULT)
    layer.put("strategy", strategy, strategy.mark)
    layer.put("bucket", throttling or adopt("off"), throttling.mark if throttling else DEFAULT)
    return layer


# -- a method's policy -------------------------------------------------------------------------------------------------


def _retry(inner: _Object, strategy: Map) -> frozenset[int]:
    """Convert a method's retryPolicy, `inner`, to keys of redrive's, add them to `strategy`, and return the gRPC
    statuses to retry.
    """
    draft = "maxRetryAttempts" in inner or "exponentialBackoff" in inner
    strategy.put("kind", adopt("grpc"), DEFAULT, strategy.mark)
    inner.known(_DRAFT_RETRY if draft else _RETRY)
    _attempts(inner, "maxRetryAttempts" if draft else "maxAttempts", strategy, plus=1 if draft else 0)
    backoff = inner.inner("exponentialBackoff") if draft else inner
    if backoff is not None:
        names, as_time = (_DRAFT_BACKOFF, _as_milliseconds) if draft else (_PUBLISHED, _as_duration)
        if draft:
            backoff.known(names)
        backoff.positive(names[0], as_time, strategy, "initial_backoff", required=True)
        backoff.positive(names[1], as_time, strategy, "max_backoff", required=True)
        backoff.positive(names[2], _as_float, strategy, "multiplier", required=True)
    _put(strategy, "jitter", "full" if draft else "proportional", DEFAULT)
    return _codes(inner, "retryableStatusCodes", required="perAttemptRecvTimeout" not in inner)


def _hedging(inner: _Object, strategy: Map) -> frozenset[int]:
    strategy.put("kind", adopt("hedging"), DEFAULT, strategy.mark)
    draft = "maxRequests" in inner or "hedgingDelayMs" in inner
    inner.known(_DRAFT_HEDGING if draft else _HEDGING)
    _attempts(inner, "maxRequests" if draft else "maxAttempts", strategy)
    name, as_time = ("hedgingDelayMs", _as_milliseconds) if draft else ("hedgingDelay", _as_duration)
    delay = inner.field(name, as_time, required=False)
    if delay is not None and delay < 0:
        inner.error(name, "must not be below 0")
    # A6: without a delay, all requests are sent at once.
    at = DEFAULT if delay is None else inner.at(name)
    _put(strategy, "hedging_delay", _spelled_seconds(max(0.0, delay or 0.0)), at)
    codes = _codes(inner, "nonFatalStatusCodes")
    at = inner.at("nonFatalStatusCodes")
    strategy.put("non_fatal", adopt([GRPC_STATUS_NAMES[code] for code in sorted(codes)], at), at)
    return codes


def _attempts(inner: _Object, name: str, strategy: Map, plus: int = 0) -> None:
    attempts = inner.field(name, _as_whole)
    if attempts is None:
        return
    if attempts + plus < 2:
        inner.error(name, f"must be at least {2 - plus}")
    elif attempts + plus > MOST_ATTEMPTS:
        message = f"more than {MOST_ATTEMPTS} attempts are treated as {MOST_ATTEMPTS}"
        inner.problems.warn(inner.at(name), inner.path_of(name), message)
    _put(strategy, "max_attempts", str(min(attempts + plus, MOST_ATTEMPTS)), inner.at(name))


def _codes(inner: _Object, name: str, *, required: bool = False) -> frozenset[int]:
    value = inner.array(name, required=required)
    if value is None:
        return frozenset()
    if not value and name == "retryableStatusCodes":
        inner.error(name, "must not be empty")
    found: set[int] = set()
    for number, each in enumerate(value):
        try:
            found.add(_as_code(each))
        except ValueError as error:
            inner.problems.add(value.marks[number], (*inner.path_of(name), number), str(error))
    return frozenset(found)


# -- values in proto3's JSON forms: a reader returns one, or raises ValueError with what is wrong ----------------------

_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
#: proto3's JSON form of a Duration; as in grpc-go, the leading zero may be missing.
_DURATION = re.compile(r"(-?)([0-9]*)(\.[0-9]{1,9})?s")
_LONGEST = 315_576_000_000  # seconds, proto3's limit of a Duration
#: The most seconds of our own durations (units.py); longer ones are cut to it, since no call lasts that long.
_LONGEST_SPELLED = 1000 * 365 * 24 * 3600


def _plain(name: str) -> str:
    """A field's name in lower case without underscores, so that camelCase, snake_case and any other case are equal."""
    return name.replace("_", "").lower()


def _is_string(value: Any) -> bool:
    """Whether a value is a string in JSON: a bare number or true is not, a bare word in YAML is."""
    return isinstance(value, str) and isinstance(guess(value), str)


def _as_float(value: Any) -> float:
    """A JSON number, or a string of one."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise ValueError(f"is not a number but {written(value)}")
    number = float(value)
    if number in (float("inf"), float("-inf")):
        raise ValueError("is too large")
    return number


def _as_whole(value: Any) -> int:
    number = _as_float(value)
    if number != int(number):
        raise ValueError(f"must be a whole number, not {written(value)}")
    return int(number)


def _as_bool(value: Any) -> bool:
    """Read a JSON boolean. Raises ValueError, which says what is wrong, for any other value."""
    found = guess(value)
    if not isinstance(found, bool):
        raise ValueError(f"must be true or false, not {written(value)}")
    return found


def _as_duration(value: Any) -> float:
    """Read a Duration of proto3, `1s` or `0.25s`, as seconds."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"is not a duration but {written(value)}; write seconds with an s, as 1s or 0.25s")
    seconds = float(f"{match[2] or '0'}{match[3] or ''}")
    if seconds > _LONGEST:
        raise ValueError("is too long")
    return -seconds if match[1] else seconds


def _as_milliseconds(value: Any) -> float:
    """Read the draft's milliseconds as seconds."""
    return _as_float(value) / 1000


def _as_code(value: Any) -> int:
    """Read the status of a failure by name, in any case, or by number (A6). OK is none, as in grpc-java."""
    if isinstance(value, str):
        number = GRPC_STATUS_NUMBERS.get(value.upper())
        if number is None and getattr(value, "plain", True) and value.isascii() and value.isdigit():
            number = int(value)
        if number == 0:
            raise ValueError("must not be OK, which is no failure")
        if number is not None and number <= 16:
            return number
    raise ValueError(
        f"is not a gRPC status but {written(value)}{did_you_mean(str(value).upper(), GRPC_STATUS_NUMBERS)}"
    )


def _spelled_seconds(value: float) -> str:
    """A number of seconds as text, such as `0.25s`, as durations in redrive's configuration are written."""
    return f"{min(value, _LONGEST_SPELLED):.9f}".rstrip("0").rstrip(".") + "s"


def _put(tree: Map, key: str, value: str, mark: Mark) -> None:
    tree.put(key, Text.make(value), mark)
