"""The rows of `redrive top`: one for each upstream of the board, the rows that the admin port's stream /events reports.

The figures cover a window of time, the last 30 to 60 seconds. The board says which state an upstream is in, and how
serious that state is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.retry.facts import GRPC_STATUS_NAMES

#: The most upstreams whose newest failure is read: each costs a request to the admin port.
_FAILURES = 10
#: The columns that rows can be sorted by.
ORDERS = ("state", "name", "calls", "success", "attempts", "p95", "bucket", "cooldown")


@dataclass(frozen=True, slots=True)
class Level:
    """A bucket: its label, its kind, the tokens in it, and its capacity (0 for a bucket without one). `drained`: the
    bucket refuses nearly every retry. `unit`: what a rate's tokens stand for, as the configuration says it.
    """

    label: str
    kind: str
    level: float
    capacity: float
    drained: bool
    unit: str = "attempts"

    @property
    def share(self) -> float:
        """The share of the bucket's capacity that is left, 0 to 1."""
        return self.level / (self.capacity or 1)


@dataclass(frozen=True, slots=True)
class Row:
    """An upstream, over `window` seconds.

    `name` is "" for requests that were refused before any policy applied. `state` is a word, `also` has other states
    that apply at the same time, `rank` says how serious the state is (0: no trouble). `at_once`: calls that succeeded
    with the first attempt. `arrived`: calls that came from another upstream, as its fallback; they are not among the
    calls that began here, but `attempts` and `retries` include theirs. `latencies` has p50, p95 and p99 in seconds,
    None without calls. `pays`: the upstream's retries are paid from a bucket; `bucket` is None until a bucket was used.
    `cooldown`: the seconds for which calls are still held, `until` the end as a Unix time, and `began` the answer that
    caused it, as /upstreams describes it, if that is known. `circuits`: open circuit breakers by endpoint. `keys`:
    credentials that are put aside, by number. `cooling_keys`: credentials that cool, each with the seconds left.
    `unreadable`: credentials whose files can't be read, by number.
    `limit`: how much a rate, a limiter or a concurrency limit allows. `weather`: its limits and outages, as /upstreams
    describes them. `held_by`: how many calls are held by what, as the metric's label `by` names it. `newest_failure`:
    the newest call that failed, as /requests shows it, if that is known.
    """

    name: str
    state: str
    also: tuple[str, ...]
    rank: int
    window: float
    calls: int
    at_once: int
    failed: int
    attempts: int
    retries: int
    arrived: int
    latencies: dict[str, float | None]
    bucket: Level | None
    pays: bool
    cooldown: float
    until: float
    began: dict[str, Any] | None
    held: int
    circuits: Sequence[tuple[str, float]]
    keys: Sequence[tuple[int, float]]
    cooling_keys: Sequence[tuple[int, float]]
    queued: int
    limit: str
    weather: Sequence[dict[str, Any]] = ()
    held_by: Mapping[str, int] = field(default_factory=dict)
    newest_failure: Mapping[str, Any] | None = None
    unreadable: Sequence[int] = ()

    @property
    def per_second(self) -> float | None:
        """The upstream's calls a second; None before the window covers any time."""
        return self.calls / self.window if self.window else None

    @property
    def success(self) -> float | None:
        """The share of the upstream's calls that succeeded, 0 to 1; None without calls."""
        return 1 - self.failed / self.calls if self.calls else None

    @property
    def without_retries(self) -> float | None:
        """The share of the upstream's calls that succeeded with the first attempt, 0 to 1; None without calls."""
        return self.at_once / self.calls if self.calls else None

    @property
    def attempts_per_call(self) -> float | None:
        """The average number of attempts of the calls that sent at least one attempt to this upstream; None if there
        are no such calls.
        """
        return self.attempts / (self.attempts - self.retries) if self.attempts > self.retries else None

    @property
    def is_retrying(self) -> bool:
        """Whether more than one in ten of the upstream's attempts was a retry."""
        return self.retries > (self.attempts - self.retries) * 0.1

    def as_data(self) -> dict[str, Any]:
        """The row for JSON: shares from 0 to 1, seconds, and null for what is unknown."""
        return {
            "name": self.name,
            "state": self.state,
            "also": list(self.also),
            "calls": self.calls,
            "calls_per_second": _rounded(self.per_second),
            "arrived_by_fallback": self.arrived,
            "success": _rounded(self.success),
            "success_without_retries": _rounded(self.without_retries),
            "attempts_per_call": _rounded(self.attempts_per_call),
            "latency": self.latencies,
            "bucket": None
            if self.bucket is None
            else {
                "bucket": self.bucket.label,
                "kind": self.bucket.kind,
                "level": self.bucket.level,
                "capacity": self.bucket.capacity,
            },
            "cooldown_seconds": self.cooldown,
            "cooldown": self.began,
            "held_calls": self.held,
            "held_by": dict(self.held_by),
            "open_circuits": [{"endpoint": name, "seconds_left": left} for name, left in self.circuits],
            "credentials_cooling": [{"key": key, "seconds_left": left} for key, left in self.cooling_keys],
            "credentials_aside": [{"key": key, "seconds_left": left} for key, left in self.keys],
            "key_files_unreadable": list(self.unreadable),
            "waiting_for_a_place": self.queued,
            "limit": self.limit or None,
            "weather": list(self.weather),
            "newest_failure": self.newest_failure,
        }


class Board:
    """The state that the admin port has reported so far. `ready` is the port's readiness, `window` the seconds that the
    figures cover.
    """

    def __init__(self) -> None:
        self.ready: dict[str, Any] = {}
        self.window = 0.0
        self._states: dict[str, dict[str, Any]] = {}
        self._upstreams: dict[str, dict[str, Any]] = {}
        self._buckets: dict[str, dict[str, Any]] = {}
        self._about: dict[str, dict[str, Any]] = {}
        self._cooling_before: set[str] = set()
        self._failures: dict[str, Mapping[str, Any]] = {}

    @property
    def reload_errors(self) -> list[str]:
        """The errors of the changed file that the redrive refused; [] if the last one is in force."""
        return list(self.ready.get("reload_errors", ()))

    def describe(self, upstreams: Iterable[dict[str, Any]]) -> None:
        """Take entries of the answer of /upstreams: those of all upstreams, or newer ones of some."""
        self._about.update((each["label"], each) for each in upstreams)

    def new_cooldowns(self) -> list[str]:
        """The upstreams whose cooldown began since this method was last called; /upstreams says which call began it."""
        cooling = {name for name, live in self._upstreams.items() if live["cooldown"]}
        new = cooling - self._cooling_before
        self._cooling_before = cooling
        return sorted(new & self._about.keys())

    def failing(self) -> list[str]:
        """At most ten upstreams whose newest failure is worth a look: those in trouble with calls that failed within
        the window, the most serious trouble first.
        """
        found = [live for live in self._upstreams.values() if live["recent"]["failed"] and self._rank(live)]
        return [live["name"] for live in sorted(found, key=self._rank, reverse=True)[:_FAILURES]]

    def note_failure(self, upstream: str, call: Mapping[str, Any] | None) -> None:
        """Take the newest call to this upstream that failed, as /requests shows it; None if no such call is kept."""
        if call is None:
            self._failures.pop(upstream, None)
        else:
            self._failures[upstream] = call

    def knows_failure(self, upstream: str) -> bool:
        """Whether a call to this upstream that failed is known."""
        return upstream in self._failures

    def take(self, message: dict[str, Any]) -> None:
        """Take a message of the admin port's event stream: all rows of the board, or those that changed."""
        if message["full"]:
            self._upstreams, self._buckets, self._states = {}, {}, message["states"]
        self._upstreams.update((each["name"], each) for each in message["upstreams"])
        self._buckets.update((each["bucket"], each) for each in message["buckets"])
        self.ready, self.window = message["ready"], message["window"]

    def __len__(self) -> int:
        return len(self._upstreams)

    def rows(self, now: float) -> list[Row]:
        """The row of every upstream: first the configured ones in the file's order, then other ones that were called.
        `now` is a Unix time.
        """
        return [self._row(live, now) for live in self._upstreams.values()]

    def _rank(self, live: dict[str, Any]) -> int:
        return int(self._states[live["state"]]["rank"])

    def _row(self, live: dict[str, Any], now: float) -> Row:
        about = self._about.get(live["name"])
        policies = [about, *about["routes"]] if about else []
        state, recent = self._states[live["state"]], live["recent"]
        return Row(
            name=live["name"],
            state=state["text"],
            also=tuple(self._states[each]["text"] for each in live.get("also", ())),
            rank=state["rank"],
            window=self.window,
            calls=recent["calls"],
            at_once=recent["at_once"],
            failed=recent["failed"],
            attempts=recent["attempts"],
            retries=recent["retries"],
            arrived=recent["arrived"],
            latencies={name: recent[name] for name in ("p50", "p95", "p99") if name in recent},
            bucket=self._bucket(live["bucket"]),
            pays=any(policy["bucket"] for policy in policies),
            cooldown=live["cooldown"],
            until=now + live["cooldown"],
            began=about["cooldown"] if about and live["cooldown"] else None,
            held=live["held"],
            held_by=live.get("held_by", {}),
            circuits=[(endpoint, left) for endpoint, left in live["open"]],
            keys=[(key, left) for key, left in live["aside"]],
            cooling_keys=[(key, left) for key, left in live["cooling"]],
            unreadable=live.get("unreadable", ()),
            queued=live["queued"],
            limit=self._limit(live, about),
            weather=live["weather"],
            newest_failure=self._failures.get(live["name"]) if state["rank"] and recent["failed"] else None,
        )

    def _bucket(self, label: str | None) -> Level | None:
        """The bucket with this label; None if it is not in use."""
        found = self._buckets.get(label or "")
        if found is None:
            return None
        return Level(
            found["bucket"],
            found["kind"],
            found["level"],
            found["capacity"],
            found["drained"],
            found.get("unit", "attempts"),
        )

    def _limit(self, live: dict[str, Any], about: dict[str, Any] | None) -> str:
        """The state of an upstream's limits in words: attempts a second of its adaptive limiter, tokens of its rate,
        attempts under way of its concurrency limit, or of the limit that was found since it is in trouble. `live` is
        its row, `about` its entry in /upstreams.
        """
        parts = []
        limiter = self._buckets.get(f"{about['limiter']} (limiter)") if about and about["limiter"] else None
        rated = self._bucket(live["rate"])
        if limiter:
            parts.append(f"{rate(limiter['fill_rate'])}/s" if limiter["enabled"] else "open")
        elif rated:
            of = "" if rated.unit == "attempts" else " tokens"
            parts.append(f"{count(math.floor(rated.level))}{of} left")  # no attempt is paid with a fraction
        elif about and (about["limiter"] or about["rate"]):
            parts.append("open")
        found = [lane["limit"] for lane in live["weather"] if lane["limit"] and lane["limit"]["attempts"] is not None]
        if found:
            least = min(found, key=lambda limit: int(limit["attempts"]))
            parts.append(f"{least['under_way']}/{least['attempts']}")
        elif about and about["concurrency"] not in (None, "auto"):
            parts.append(f"{live['under_way']}/{about['concurrency']}")
        return ", ".join(parts)


def chosen(rows: Iterable[Row], text: str) -> list[Row]:
    """The rows whose upstream's name contains this text, in upper or lower case."""
    return [row for row in rows if text.lower() in (row.name or "(refused)").lower()]


def ordered(rows: Iterable[Row], by: str, *, turned: bool = False) -> list[Row]:
    """The rows sorted by one of ORDERS: names from A on, everything else with the most serious first. `turned` reverses
    the order. Rows that are equal keep their order.
    """
    keys = {
        "state": lambda row: -row.rank,
        "name": lambda row: row.name.lower(),
        "calls": lambda row: -row.calls,
        "success": lambda row: 2.0 if row.success is None else row.success,
        "attempts": lambda row: -(row.attempts_per_call or 0.0),
        "p95": lambda row: -(row.latencies.get("p95") or 0.0),
        "bucket": lambda row: 2.0 if row.bucket is None else row.bucket.share,
        "cooldown": lambda row: -row.cooldown,
    }
    return sorted(rows, key=keys[by], reverse=turned)


def total(rows: Sequence[Row], window: float) -> Row:
    """A row with the sums of all rows, for the figures that can be added; its name is `total`. `window`: the seconds
    that the figures cover.
    """
    return Row(
        name="total",
        state="",
        also=(),
        rank=0,
        window=window,
        calls=sum(row.calls for row in rows),
        at_once=sum(row.at_once for row in rows),
        failed=sum(row.failed for row in rows),
        attempts=sum(row.attempts for row in rows),
        # A call that fell back is one call: its first attempt there is another attempt of it.
        retries=sum(row.retries + row.arrived for row in rows),
        arrived=0,
        latencies={},
        bucket=None,
        pays=False,
        cooldown=0.0,
        until=0.0,
        began=None,
        held=sum(row.held for row in rows),
        circuits=[],
        keys=[],
        cooling_keys=[],
        queued=sum(row.queued for row in rows),
        limit="",
    )


def in_trouble(rows: Iterable[Row]) -> int:
    """The number of upstreams in trouble. The row of refused requests is none of them: no upstream got these."""
    return sum(row.rank > 0 and bool(row.name) for row in rows)


#: The totals that JSON has.
_ADDED = (
    "calls",
    "calls_per_second",
    "success",
    "success_without_retries",
    "attempts_per_call",
    "held_calls",
    "waiting_for_a_place",
)


def total_as_data(rows: Sequence[Row], window: float) -> dict[str, Any]:
    """The totals for JSON, with the number of upstreams and the number of upstreams in trouble."""
    added = total(rows, window).as_data()
    counted = {"upstreams": sum(bool(row.name) for row in rows), "in_trouble": in_trouble(rows)}
    return counted | {name: added[name] for name in _ADDED}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def count(number: float) -> str:
    """A number as text of at most six characters."""
    if number < 10_000:
        return f"{number:,.0f}"
    if number < 999_500:
        return f"{number / 1000:.{1 if number < 99_950 else 0}f}k"
    return f"{number / 1_000_000:.1f}M"


def rate(number: float) -> str:
    """A number per second as text, rounded to what is of use."""
    if not number:
        return "0"
    return f"{number:.2f}" if number < 0.95 else f"{number:.1f}" if number < 99.5 else count(number)


def tokens(level: float) -> str:
    """A bucket's level as text: whole numbers and levels from 100 without a fraction, others with one digit of it."""
    return count(level) if level == int(level) or level >= 100 else f"{level:.1f}"


def status_of(ended: Mapping[str, Any]) -> str:
    """The status of a call or an attempt, as /requests shows it, as text: for gRPC with the name of a status that is
    not OK; "" if there was no answer.
    """
    status, number = str(ended.get("status") or ""), ended.get("grpc_status")
    if not number:
        return status
    name = GRPC_STATUS_NAMES[number] if number < len(GRPC_STATUS_NAMES) else f"grpc-status {number}"
    return f"{status} {name}".lstrip()


def duration(seconds: float) -> str:
    """A time as text, rounded to what is of use: milliseconds, seconds, minutes or hours."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.{1 if 0 < seconds < 0.00995 else 0}f} ms"
    if seconds < 99.5:
        return f"{seconds:.{1 if seconds < 9.95 else 0}f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5940 else f"{seconds / 3600:.1f} h"
