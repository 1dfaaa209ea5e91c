"""What the upstream goes through, over and over: calm, failures, an outage, throttling, a slow spell.

Pure: the time since the beginning goes in, what prevails comes out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weather:
    """What prevails. `share` is of a round; `failing`, `reset` and `hanging` are shares of requests, `latency` seconds,
    `limit` the requests a second that are admitted, as a multiple of the calls.
    """

    name: str
    share: float
    failing: float = 0.01
    reset: float = 0.0
    hanging: float = 0.0
    latency: float = 0.02
    limit: float = 4.0


#: One round. Calm follows each trouble, so that one sees what recovers and when.
ROUND = (
    Weather("calm", 0.16),
    Weather("failures", 0.14, failing=0.3),
    Weather("calm", 0.10),
    Weather("outage", 0.14, failing=1.0, reset=0.5),
    Weather("calm", 0.14),
    Weather("throttling", 0.10, limit=0.7),
    Weather("calm", 0.08),
    Weather("slow", 0.14, hanging=0.15, latency=0.25),
)


def at(elapsed: float, round_seconds: float) -> Weather:
    """What prevails this many seconds after the beginning."""
    return ROUND[_place(elapsed, round_seconds)[0]]


def left(elapsed: float, round_seconds: float) -> float:
    """Seconds until it changes."""
    return _place(elapsed, round_seconds)[1]


def _place(elapsed: float, round_seconds: float) -> tuple[int, float]:
    into = elapsed % round_seconds
    end = 0.0
    for number, weather in enumerate(ROUND):
        end += weather.share * round_seconds
        if into < end:
            return number, end - into
    return len(ROUND) - 1, 0.0
