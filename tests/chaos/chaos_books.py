"""The books: what the log, the metrics, the upstream and the apps say of the same calls, and what buckets should hold.

Nothing of the proxy's own code is used here: figures and levels are worked out anew from the log's lines, by the rules
of the contract (sections 3, 4 and 10).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from chaos_upstream import ChaosUpstream
from prometheus_client.parser import text_string_to_metric_families

Line = dict[str, Any]

GE = (1, 2, 3, 4, 5, 10, 100, 1000)
RETRYABLE = ("transient", "throttling", "timeout")
#: A retryable failure that these ended was denied its retry.
DENIALS = (
    *("attempts_exhausted", "bucket_empty", "pushback_stop", "pushback_too_long", "deadline", "committed", "disabled"),
    *("overloaded", "rate_limited", "cooling"),
)
#: What may have come of a sending to which the upstream did this. `gone`: nobody waited for it any more.
COMES_TO = {
    **dict.fromkeys(
        ("ok", "chunked", "until_close", "fine_then_close", "hints", "redirect", "long", "slow"), "success"
    ),
    **dict.fromkeys(("missing", "early"), "unnamed"),
    **dict.fromkeys(("failure", "gateway", "busy", "stop", "early_close"), "transient"),
    **dict.fromkeys(("throttled", "throttled_named"), "throttling"),
    "too_late": "timeout",
    "stall": "attempt_timeout",
    **dict.fromkeys(("reset", "close", "garbage", "half_head", "two_lengths"), "reset"),
    **dict.fromkeys(("short", "short_reset", "short_chunked", "stall_in_body"), "reset"),
}


@dataclass
class Differences:
    """What does not balance: (book, what, here, there)."""

    rows: list[tuple[str, str, object, object]] = field(default_factory=list)

    def equal(self, book: str, what: str, here: object, there: object) -> None:
        if here != there:
            self.rows.append((book, what, here, there))

    def within(self, book: str, what: str, low: float, value: float, high: float) -> None:
        if not low - 1e-6 <= value <= high + 1e-6:
            self.rows.append((book, what, value, f"{low:g} to {high:g}"))

    def counters(self, book: str, here: Counter[Any], there: Counter[Any], slack: int = 0) -> None:
        """Equal, or apart by at most `slack` over all keys."""
        apart = {key: (here[key], there[key]) for key in {*here, *there} if here[key] != there[key]}
        if sum(abs(a - b) for a, b in apart.values()) > slack:
            for key, (a, b) in sorted(apart.items(), key=str):
                self.rows.append((book, " ".join(map(str, key)) if isinstance(key, tuple) else str(key), a, b))

    def table(self, most: int = 60) -> str:
        lines = [f"{'book':<34} {'what':<60} {'here':>14} {'there':>14}"]
        for book, what, here, there in self.rows[:most]:
            lines.append(f"{book:<34} {what:<60} {here!s:>14} {there!s:>14}")
        if len(self.rows) > most:
            lines.append(f"… and {len(self.rows) - most} more")
        return "\n".join(lines)


def call_of(line: Line) -> str:
    """The name that the app gave a call."""
    return str(line["path"]).rsplit("/", 1)[-1]


def sent(line: Line) -> list[Line]:
    """What was sent for a call, but for transparent sendings and what was denied."""
    return [each for each in line["history"] if each["decision"] not in ("transparent", "denied")]


def result(record: Line) -> str:
    """What a sending came to."""
    if record["decision"] == "cancelled":
        return "cancelled"
    return str(record.get("fault") or record.get("class") or "aborted")


@dataclass
class Counted:
    """What metrics should say of these lines."""

    calls: Counter[Any] = field(default_factory=Counter)
    attempts: Counter[Any] = field(default_factory=Counter)
    retries: Counter[Any] = field(default_factory=Counter)
    ge: Counter[Any] = field(default_factory=Counter)
    denied: Counter[Any] = field(default_factory=Counter)
    plain: Counter[Any] = field(default_factory=Counter)  # by metric and upstream
    backoff: float = 0.0

    def add(self, line: Line) -> None:
        upstream, records = line["upstream"], sent(line)
        status = line["status"] // 100
        self.calls[upstream, line["outcome"], f"{status}xx" if status else "none"] += 1
        self.plain["calls", upstream] += 1
        self.plain["transparent", upstream] += sum(each["decision"] == "transparent" for each in line["history"])
        for record in records:
            self.attempts[upstream, result(record)] += 1
            self.plain["ended", upstream] += "duration" in record
            if record["decision"] == "retried":
                self.backoff += record.get("delay", 0.0)
            if record["attempt"] > 1:
                self.retry(upstream, record, records)
        last = records[-1] if records else None
        if line["attempts"] and last is not None:
            outcome, cls = line["outcome"], last.get("class")
            if outcome in DENIALS or (outcome == "not_retryable" and cls in RETRYABLE):
                self.denied[upstream, outcome] += 1

    def retry(self, upstream: str, record: Line, records: list[Line]) -> None:
        number = record["attempt"] - 1
        self.ge[upstream, str(max(each for each in GE if each <= number))] += 1
        earlier = [each for each in records if each["attempt"] < record["attempt"]]
        over = [each for each in earlier if each["start"] + each.get("duration", math.inf) <= record["start"] + 2e-6]
        hedged = len(over) < len(earlier)
        self.plain["hedges", upstream] += hedged
        self.retries[upstream, "hedge" if hedged or not over else result(over[-1])] += 1
        if record.get("class") != "success" and record["decision"] not in ("cancelled", "client_gone"):
            self.plain["retries_failed", upstream] += 1


class Samples:
    """What /metrics said."""

    def __init__(self, text: str) -> None:
        self.samples = [each for family in text_string_to_metric_families(text) for each in family.samples]

    def by(self, name: str, *labels: str) -> Counter[Any]:
        """Counts by these labels' values."""
        found: Counter[Any] = Counter()
        for each in self.samples:
            if each.name == name and each.value:
                found[tuple(each.labels[label] for label in labels)] += each.value
        return Counter({key: int(value) for key, value in found.items()})

    def one(self, name: str) -> float:
        return sum(each.value for each in self.samples if each.name == name)


def metrics_balance(lines: Iterable[Line], said: Samples, differences: Differences, unreported: int) -> None:
    """Log = metrics. `unreported`: calls that a killed worker may have ended and counted, or logged, and not both."""
    counted = Counted()
    for line in lines:
        counted.add(line)
    slack = unreported
    check = differences.counters
    labels = ("upstream", "outcome", "code_class")
    check("calls: log / metrics", counted.calls, said.by("redrive_calls_total", *labels), slack)
    most = slack * 8  # attempts of a call
    attempts = said.by("redrive_attempts_total", "upstream", "result")
    check("attempts: log / metrics", counted.attempts, attempts, most)
    check("retries: log / metrics", counted.retries, said.by("redrive_retries_total", "upstream", "reason"), most)
    check("ge: log / metrics", counted.ge, said.by("redrive_retry_attempts_total", "upstream", "ge"), most)
    check("denied: log / metrics", counted.denied, said.by("redrive_retries_denied_total", "upstream", "why"), slack)
    plain: Counter[Any] = Counter()
    for what, name in (
        ("calls", "redrive_call_duration_seconds_count"),
        ("ended", "redrive_attempt_duration_seconds_count"),
        ("transparent", "redrive_transparent_retries_total"),
        ("hedges", "redrive_hedges_total"),
        ("retries_failed", "redrive_retries_failed_total"),
    ):
        plain.update({(what, upstream): count for (upstream,), count in said.by(name, "upstream").items()})
    check("others: log / metrics", +counted.plain, plain, most)
    if not unreported:
        waited = said.one("redrive_backoff_seconds_total")
        differences.within(
            "backoff seconds: log / metrics", "all", counted.backoff - 0.1, waited, counted.backoff + 0.1
        )


def upstream_balance(lines: Iterable[Line], upstream: ChaosUpstream, differences: Differences) -> None:
    """Attempts at the upstream = attempts in the log, sending by sending.

    What the upstream has seen was sent, and stands in the log; what was answered was seen. A sending that the upstream
    has not seen went to a connection that was closed under it, or was never whole: it can only be a fault, or one that
    nobody waited for any more.
    """
    for line in lines:
        call = call_of(line)
        numbers = {each["attempt"] for each in line["history"]}
        for number in numbers:
            records = [each for each in line["history"] if each["attempt"] == number and each["decision"] != "denied"]
            seen = upstream.seen[call, number]
            answered = sum("status" in each for each in records)
            differences.within("sendings: upstream / log", f"{call} attempt {number}", answered, seen, len(records))
            if len(records) == seen == 1:
                did, came = upstream.did[call, number][0], result(records[0])
                if not _may_come(did, came, records[0]):
                    differences.equal("what came of it: upstream / log", f"{call} attempt {number}", did, came)


def _may_come(did: str, came: str, record: Line) -> bool:
    expected = COMES_TO[did]
    if came == expected:
        return True
    if came in ("cancelled", "aborted", "attempt_timeout"):  # the app left, the deadline, or it came too late
        return True
    if came == "reset":  # the body of the request was cut off, or a worker or the upstream's connection was
        return True
    return did in ("short", "short_reset", "short_chunked", "stall_in_body", "early") and came == "success"


def apps_balance(
    lines: dict[str, Line], answers: dict[str, Any], differences: Differences, missing: Iterable[str] = ()
) -> None:
    """What apps were told = what the log says."""
    excused = set(missing)
    for call, answer in answers.items():
        line = lines.get(call)
        if line is None:
            if call not in excused:
                differences.equal("calls: apps / log", call, answer.status, "no line")
            continue
        differences.equal("status: apps / log", call, answer.status, line["status"])
        if answer.attempts is not None or line["upstream"]:
            differences.equal("attempts: apps / log", call, answer.attempts, str(line["attempts"]))


# -- levels -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quota:
    """AWS's retry quota, where neither end is met. The price of an outage's probe that was not processed pays for the
    attempt after it (contract, section 14).
    """

    initial: float
    costs: dict[str, float]
    refund: float

    def change(self, line: Line) -> float:
        """What a call does to the level."""
        paid = [0.0]
        records = sent(line)
        for before, record in pairwise(records):
            assert record["attempt"] == before["attempt"] + 1
            if before["decision"] != "probed":
                paid.append(self.costs[price_class(before)])
        back = 0.0
        if line["outcome"] == "success":
            back = paid[-1] if len(paid) > 1 else self.refund
        return back - sum(paid)


def price_class(record: Line) -> str:
    """The class that the retry after this failure pays for; faults as the lists name them."""
    if record.get("fault") == "attempt_timeout":
        return "timeout"
    cls = record.get("class")
    return str(cls) if cls in RETRYABLE else "transient"


@dataclass(frozen=True)
class Throttle:
    """gRPC's throttle, where neither end is met. `non_fatal`: of a hedged call, what alone is no end of it."""

    initial: float
    ratio: float
    non_fatal: tuple[int | str, ...] = ()

    def counts(self, record: Line) -> bool:
        """Whether this sending failed in a way that takes a token."""
        if self.non_fatal and "class" in record:
            return record.get("fault", record.get("status")) in self.non_fatal
        return record.get("class") in RETRYABLE

    def change(self, line: Line) -> float:
        failed = sum(self.counts(each) for each in sent(line))
        return (self.ratio if line["outcome"] == "success" else 0.0) - failed


def retries_of(lines: Iterable[Line]) -> int:
    """Retries sent that were paid for; the price of an outage's probe pays for the attempt after it as well."""
    return sum(before["decision"] != "probed" for line in lines for before, _ in pairwise(sent(line)))


def budget(lines: list[Line], percent: float) -> float:
    """The retries that would be granted now; nothing has left the window, and the last second is over."""
    return float(math.ceil(max(0.0, len(lines) * percent / 100 - retries_of(lines))))


def rate(lines: Iterable[Line], burst: float) -> float:
    """What attempts have left of the burst."""
    return burst - sum(len(sent(line)) for line in lines)
