"""What redrive is meant to reach beside its peers in one run, and whether it did.

A ratio is that of one round's figures, and what is judged is the median of the rounds' ratios: rounds are interleaved, so
that a slow minute of the machine is in both. A figure that a round did not yield is None in its place.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

CPU = "cpu us/call"
PURE = "python alone"
#: Rows of one large answer, and by whose name the direct way is kept.
TUNNEL, INTERCEPTED, DIRECT = "CONNECT tunnel, 512 MiB", "intercepted, 200 MiB over TLS", "direct"
#: The row whose 99th percentile is compared.
AT_32 = "small GET, 32 connections, 5 fields"
#: Of Envoy's memory at rest at most this, and seconds from start to the first answer.
MEMORY, START = 0.6, 0.6
#: MiB that memory at rest after the loads is above that before them; and what a process does at rest, in a second:
#: context switches, and milliseconds of CPU.
GROWN, SWITCHES, COMPUTED = 2.0, 5.0, 0.3
#: What a download through the proxy takes at most, as a multiple of the direct one's time.
DOWNLOAD = 1.3
#: Rows of forward proxying, and beside which row of the same run each is judged, with what multiple of that row's CPU a
#: call takes at most. Neither Envoy nor HAProxy takes part, and the peers that do keep no log and retry no answer; but
#: redrive does the same for a call whose request names a whole URL as for one that names a path. A tenth is what rows
#: of one run differ by when they are the same work.
FORWARD = {
    "small GET, forward": (AT_32, 1.1),
    "64 KiB GET, forward": ("64 KiB GET", 1.1),
}


#: Thousand instructions that a call of a row of bench/instructions.py takes at most, compiled, on 32 connections.
#: The first six: what they took at commit cde58e8, and 2 % more.
INSTRUCTIONS = {
    "repeated": 18.7,
    "query": 22.8,
    "differs": 28.6,
    "shapes": 31.4,
    "fail": 34.4,
    "fail+differs": 40.7,
    **dict.fromkeys(("rate", "concurrency", "adaptive", "off", "observe", "hedging", "breaker"), 45.0),
    **dict.fromkeys(("headers", "attempt_headers", "credentials", "first_byte"), 60.0),
    **dict.fromkeys(("routes10", "routes1000", "json_rule"), 60.0),
}
#: The same of the calls that fail at first, which a tenth of the calls of a row do: of the retry alone, beside the call
#: that it repeats; and of a whole call whose 503 no token is left to retry.
RETRY, EMPTY = ("fail", 60.0), ("empty", 80.0)

#: Rows of bench/growth.py, by the end of their names: beside which row of the same run a call is judged, and what
#: multiple of that row's CPU it takes at most. What is asked for is that nothing grows: a quarter is what rows of one
#: run differ by on a busy machine. A hundred fields are twenty times the text of five; telemetry makes objects of an SDK
#: in Python for each call, and its rows say that this grows no further.
ONE, REPEATED = "1 upstream, us/call", "one request repeated, us/call"
GROWTH: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("100 upstreams, us/call", "1,000 upstreams, us/call"), (ONE, 1.25)),
    "10,000 upstreams without routes, us/call": (ONE, 1.25),
    "100,000 hosts, us/call": (ONE, 1.25),
    "30 fields, us/call": (ONE, 1.35),
    "100 fields, us/call": (ONE, 1.75),
    "ten scrapes a second, us/call": (ONE, 1.25),
    "idle connections, us/call": (ONE, 1.25),
    "1,000 parked calls, us/call": (ONE, 1.25),
    "the same, log for people, us/call": (REPEATED, 1.25),
    "the same, log of failures alone, us/call": (REPEATED, 1.1),
    "the same, OpenTelemetry's metrics, us/call": (REPEATED, 2.0),
    "the same, OpenTelemetry's traces, us/call": (REPEATED, 8.0),
    "the same, OpenTelemetry's log, us/call": (REPEATED, 10.0),
    "two workers, one bucket, us/call": ("Envoy, two threads, us/call", 0.6),
}
#: Milliseconds by which the slowest call over reloads is slower than the slowest one at rest, at most.
STALL = 50.0


@dataclass(frozen=True)
class Target:
    """What a call of a row is to cost: Envoy's CPU divided by redrive's, HAProxy's by redrive's (its efficiency), and
    Envoy's by that of redrive in Python alone, each at least this. None: nothing is asked for.
    """

    row: str
    envoy: float | None
    haproxy: float | None
    alone: float | None = None


TARGETS = [
    Target(AT_32, 3.2, 1.0, 2.0),
    Target("small GET, 32 connections, 5 fields, another query each", 2.8, 1.0, 1.6),
    Target("small GET, 32 connections, 12 fields, queries, ids and answers' ids differ", 2.8, 1.0, 1.2),
    Target("GET, GET, PUT, DELETE in turn, everything differs", 2.4, 1.0, 1.0),
    Target("small GET, 10 % of attempts fail", 2.6, 1.0, 1.2),
    Target("10 % of attempts fail, everything differs", 2.4, 1.0, 1.1),
    Target("small GET, 10 % of attempts fail, 128 connections", 2.6, 1.0, 1.2),
    Target("10 % of attempts fail, everything differs, 128 connections", 2.4, 1.0, 1.1),
    Target("small GET, 10,000 calls/s", 2.0, 1.0),
    Target("everything differs, 10,000 calls/s", 2.0, 1.0),
    Target("small GET, 10,000 calls/s, 10 % of attempts fail", 2.0, 1.0),
    Target("10 % of attempts fail, everything differs, 10,000 calls/s", 2.0, 1.0),
    Target("small GET, 32 connections, 12 fields", 1.0, 1.0),
    Target("small GET, 32 connections, 30 fields", 1.0, 1.0),
    Target("small GET, 32 connections, 12 fields, another query and request id each", 1.0, 1.0),
    Target("small GET, 1 connection", 1.0, 1.0),
    Target("small GET, 256 connections", 1.0, 1.0),
    Target("64 KiB GET", 1.0, 1.0),
    Target("10 KiB POST", 1.0, 1.0),
    Target("small GET, TLS upstream", 1.0, 1.0),
    Target("HTTP/2: gRPC unary, 4 connections of 8 streams", 2.5, None, 1.4),
    Target("HTTP/2: gRPC unary, with a deadline", 1.0, None),
    Target("HTTP/2: gRPC unary, another query each", 1.0, None),
    Target("HTTP/2: gRPC unary, 10 KiB answers", 1.0, None),
    Target("HTTP/2: grpcio end to end, with deadlines", 1.0, None),
    Target("100 server-sent events, watched", 1.43, None),
    Target("100 server-sent events", 1.0, None),
    Target("a WebSocket message and its echo", 1.0, None),
    Target("HTTP/2 to HTTP/1, 4 connections of 8 streams", 1.0, None),
    Target("HTTP/1 to HTTP/2, 32 connections", 1.0, None),
    Target("HTTP/2: grpcio end to end, 100 messages streamed", 1.0, None),
    Target("small GET, the app closes each call", 1.11, None),
    Target("small GET, the upstream closes each call", 1.67, None),
    Target("small GET, TLS upstream closes each call", None, 0.91),
    Target("small GET, TLS upstream without tickets closes each call", None, 0.77),
    *(Target(f"{size} MiB GET, with a length", None, 1.33) for size in (1, 100)),
    *(Target(f"{size} MiB GET, chunked", None, 1.0) for size in (1, 100)),
    *(Target(f"{size} MiB POST, with a length", None, 1.11) for size in (1, 100)),
    *(Target(f"{size} MiB POST, chunked", None, 1.0) for size in (1, 100)),
]


def verdicts(raw: dict[str, Any]) -> list[str]:
    """A table in Markdown: each target, what was reached, and the word missed where it was not."""
    lines = ["Targets: the median of the rounds' ratios, and in brackets what is asked for", ""]
    lines += [
        "| workload | Envoy's CPU to redrive's | HAProxy's to redrive's | HAProxy's own to Envoy's | Envoy's to Python alone |",
        "| --- | --- | --- | --- | --- |",
    ]
    for target in TARGETS:
        cells = [
            _at_least(_ratio(raw, target.row, "envoy", "redrive"), target.envoy),
            _at_least(_ratio(raw, target.row, "haproxy", "redrive"), target.haproxy),
            _plain(_ratio(raw, target.row, "envoy", "haproxy")),
            _at_least(_ratio(raw, target.row, "envoy", PURE), target.alone),
        ]
        lines.append(f"| {target.row} | {' | '.join(cells)} |")
    lines += ["", "| | redrive | asked for |", "| --- | --- | --- |"]
    p99 = _ratio(raw, AT_32, "redrive", "envoy", "p99 us")
    held = _ratio(raw, "process", "redrive", "envoy", "memory at rest, MiB")
    process = {
        key: statistics.median(kept) for key, kept in without_gaps(raw).get("redrive", {}).get("process", {}).items()
    }
    before, after = process.get("memory at rest, MiB"), process.get("memory after the loads, MiB")
    rows = [
        ("p99 at 32 connections, to Envoy's", p99, 1.0),
        ("memory at rest, to Envoy's", held, MEMORY),
        ("memory after the loads, above that, MiB", None if before is None or after is None else after - before, GROWN),
        ("context switches a second at rest", process.get("switches a second at rest"), SWITCHES),
        ("ms of CPU a second at rest", process.get("ms of CPU a second at rest"), COMPUTED),
        ("start to first answer, s", process.get("start to first answer, s"), START),
    ]
    for way in (TUNNEL, INTERCEPTED):  # a rate's ratio upside down is that of the times
        rows.append((f"{way}: time, to the direct one", _ratio(raw, way, DIRECT, "redrive", "MiB/s"), DOWNLOAD))
    for row, (beside, most) in FORWARD.items():
        rows.append((f"{row}: CPU, to that without forward", _ratio_of_rows(raw, row, beside), most))
    lines += [f"| {name} | {_at_most(value, most)} | {most:g} |" for name, value, most in rows]
    return lines


def _ratio(raw: dict[str, Any], row: str, one: str, other: str, key: str = CPU) -> float | None:
    """The median of the rounds' ratios of two proxies' figures; None where one has none."""
    return _median_ratio(*(raw.get(name, {}).get(row, {}).get(key, []) for name in (one, other)))


def _ratio_of_rows(raw: dict[str, Any], row: str, beside: str) -> float | None:
    """The median of the rounds' ratios of redrive's CPU in two rows; None where one has no figure."""
    return _median_ratio(*(raw.get("redrive", {}).get(name, {}).get(CPU, []) for name in (row, beside)))


def _median_ratio(ours: list[float | None], theirs: list[float | None]) -> float | None:
    both = [a / b for a, b in zip(ours, theirs, strict=False) if a and b]  # None, or 0: no figure of that round
    return statistics.median(both) if both else None


def growth_verdict(name: str, figures: dict[str, list[float]]) -> str:
    """What is asked for of a row of bench/growth.py, what was reached, and the word missed where it was not; "" if
    nothing is asked for, or the row that it is judged beside was not measured. `figures`: those of each row, by round.
    """
    slowest = "slowest call over reloads, ms"
    if name.endswith(slowest):
        over, rest = (figures[row] for row in (name, name.replace(slowest, "slowest call at rest, ms")))
        above = statistics.median(a - b for a, b in zip(over, rest, strict=True))
        return f"{above:.1f} above rest ({STALL:g}){'' if above <= STALL else ' **missed**'}"
    for row, (beside, most) in GROWTH.items():
        if name.endswith(row) and beside in figures:
            ratio = statistics.median(a / b for a, b in zip(figures[name], figures[beside], strict=True))
            missed = "" if round(ratio, 2) <= most else " **missed**"
            return f"{ratio:.2f} of {beside.removesuffix(', us/call')} ({most:g}){missed}"
    return ""


def without_gaps(raw: dict[str, Any]) -> dict[str, Any]:
    """The figures of a run without the places of rounds that did not yield them."""
    return {
        name: {
            row: {key: [each for each in values if each is not None] for key, values in keys.items()}
            for row, keys in rows.items()
        }
        for name, rows in raw.items()
    }


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _at_least(value: float | None, asked: float | None) -> str:
    if value is None or asked is None:
        return _plain(value)
    return f"{value:.2f} ({asked:g}){'' if round(value, 2) >= asked else ' **missed**'}"


def _at_most(value: float | None, asked: float) -> str:
    return "not measured" if value is None else f"{value:.2f}{'' if round(value, 2) <= asked else ' **missed**'}"
