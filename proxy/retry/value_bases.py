"""The base classes of the frozen values that deciding reads most (policies, apps, and how attempts end), which name
their members.

A dataclass can't be compiled to a class with typed members. So each of these values has a base class that names its
members, and is compiled. Compiled code then reads a member from the object's memory; a look-up by name takes some 140
instructions, and there were some 140 of them for each retry. Without compiled code, the members are slots.

Law: a base names all fields of its dataclass, and nothing else (`tests/deploy/test_compiled.py`). A field of the
dataclass without a default is set to `field()`: otherwise `dataclass` would take the base's member for the default.
"""

from __future__ import annotations


class BackoffBase:
    """The compiled base of `Backoff`, which names its members."""

    __slots__ = ("base", "jitter", "max", "multiplier", "throttling_base")


class StrategyBase:
    """The compiled base of `Strategy`, which names its members."""

    __slots__ = (
        "backoff",
        "custom",
        "delay_first",
        "exact_pushback",
        "extra",
        "hedging_delay",
        "hedging_percentile",
        "kind",
        "max_attempts",
        "name",
        "non_fatal",
        "own_bucket",
        "paced",
        "pushback_clamp",
        "remake",
        "safe_methods",
    )  # fmt: skip


class TimeoutsBase:
    """The compiled base of `Timeouts`, which names its members."""

    __slots__ = ("attempt", "connect", "first_byte", "idle", "total")


class HeaderEditsBase:
    """The compiled base of `HeaderEdits`, which names its members."""

    __slots__ = ("remove", "set")


class PushbackPolicyBase:
    """The compiled base of `PushbackPolicy`, which names its members."""

    __slots__ = ("ahead", "cooldown", "hold", "max_delay", "of")


class ClassifyBase:
    """The compiled base of `Classify`, which names its members."""

    __slots__ = (
        "credentials",
        "delays_in_bodies",
        "dialects",
        "empty_events",
        "faults",
        "grpc",
        "grpc_dialect",
        "hosts",
        "inside",
        "key_header",
        "keys_injected",
        "known",
        "looks_below_400",
        "out_of_quota",
        "own_dialects",
        "plain_below_400",
        "reads",
        "repeats",
        "resets",
        "rules",
        "ruleset",
        "service_codes",
        "service_retries",
        "service_timeout",
        "service_unnamed",
        "sought",
        "statuses",
        "stop_fields",
        "stream_ends",
        "unsafe_methods",
    )  # fmt: skip


class PolicyBase:
    """The compiled base of `Policy`, which names its members."""

    __slots__ = (
        "answers",
        "attempt_headers",
        "balance",
        "bucket",
        "circuit_breaker",
        "classify",
        "concurrency",
        "course",
        "credentials",
        "endpoints",
        "fallback",
        "idempotency_key",
        "limit",
        "mode",
        "more_rates",
        "outage",
        "pushback",
        "rate",
        "request_headers",
        "response_headers",
        "resume",
        "route",
        "scope",
        "strategy",
        "target",
        "timeouts",
        "tokens",
        "undecided",
        "unfinished",
        "upstream",
        "via",
    )  # fmt: skip


class NamedAppBase:
    """The compiled base of `NamedApp`, which names its members."""

    __slots__ = ("name", "rank", "weight", "who")


class VerdictBase:
    """The compiled base of `Verdict`, which names its members."""

    __slots__ = ("because", "cls", "counts_as", "dialect", "repeated_by", "repeated_within", "unprocessed")


class PushbackBase:
    """The compiled base of `Pushback`, which names its members."""

    __slots__ = ("cooldown", "delay", "retry", "source", "stop")


class FaultBase:
    """The compiled base of `Fault`, which names its members."""

    __slots__ = ("by_attempt", "code", "detail", "error", "kind", "ours", "progress", "reused")
