"""What happened, beside what was expected.

Only what `expect` names is compared. Times match within 1 ms, levels and rates within 1e-6 relative (contract,
section 8); lists match entry by entry and must be of one length, but for `sent`, which names the attempts it cares for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.retry.attempt_record import AttemptRecord

#: Seconds.
TIME_TOLERANCE = 0.001
#: Relative, and absolute where it is more.
LEVEL_TOLERANCE = 1e-6


@dataclass(slots=True)
class PlayedCall:
    """What became of one call. Times are seconds; names and meanings are those of `expect`."""

    attempts: int = 0
    delays: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    status: int | None = None
    outcome: str | None = None
    tokens: float | None = None
    tokens_after_each: list[float | None] = field(default_factory=list)
    elapsed: float | None = None
    sent: list[dict[str, str]] = field(default_factory=list)
    fill_rate: float | None = None
    measured_rate: float | None = None
    history: Sequence[AttemptRecord] = ()
    hedged: bool = False  # `tokens_after_each` is in order of ending then


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that was expected otherwise."""

    key: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.key}: expected {shown(self.key, self.expected)}, got {shown(self.key, self.got)}"


def compare(expect: dict[str, Any], played: PlayedCall) -> list[Mismatch]:
    """Every expectation that does not hold."""
    return [
        Mismatch(key, expected, getattr(played, key))
        for key, expected in expect.items()
        if not holds(key, expected, getattr(played, key))
    ]


def holds(key: str, expected: Any, got: Any) -> bool:
    """Whether one expectation holds."""
    return _COMPARE[key](expected, got)


def shown(key: str, value: Any) -> str:
    """A value for people: seconds as durations, lists in brackets."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return f"[{', '.join(shown(key, item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {'absent' if text is None else text}" for name, text in value.items()) + "}"
    if key in _TIMES and isinstance(value, int | float):
        return duration(value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Seconds as `250ms` or `2.01s`."""
    if 0 < abs(seconds) < 1:
        return f"{round(seconds * 1000, 6):g}ms"
    return f"{seconds:.9g}s"


def _same(expected: Any, got: Any) -> bool:
    return bool(expected == got)


def _close_time(expected: float, got: float | None) -> bool:
    return got is not None and abs(expected - got) <= TIME_TOLERANCE + 1e-9


def _close_level(expected: float | None, got: float | None) -> bool:
    if expected is None or got is None:
        return expected is got
    return abs(expected - got) <= max(LEVEL_TOLERANCE, LEVEL_TOLERANCE * abs(expected))


def _each(close: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare_lists(expected: Any, got: Any) -> bool:
        return len(expected) == len(got) and all(map(close, expected, got))

    return compare_lists


def _sent(expected: list[dict[str, str | None]], got: list[dict[str, str]]) -> bool:
    return len(got) >= len(expected) and all(
        fields.get(name) == value
        for wanted, fields in zip(expected, got, strict=False)
        for name, value in wanted.items()
    )


_TIMES = frozenset({"delays", "starts", "elapsed"})

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "attempts": _same,
    "status": _same,
    "outcome": _same,
    "tokens": _close_level,
    "tokens_after_each": _each(_close_level),
    "delays": _each(_close_time),
    "starts": _each(_close_time),
    "elapsed": _close_time,
    "sent": _sent,
    "fill_rate": _close_level,
    "measured_rate": _close_level,
}
