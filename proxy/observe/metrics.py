"""The metrics: plain integers, incremented in place and read on request.

A call that succeeds at once costs one look-up, one search and a handful of additions. Everything that needs a call's
history is counted on the slow path. `proxy.observe.exposition` turns these numbers into Prometheus text.

Theory: there is one `Series` for each pair of upstream and route; it is looked up once for each policy object. Names
come only from the configuration (an unmatched host is `unmatched`), so nothing that an app sends creates a series. Each
retry is counted in exactly one class of `ge`: the first in 1, the fifth to ninth in 5, as gRPC's proposal A6 says
(grpc/proposal A6, "Retry and Hedging Statistics").
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from proxy.observe.call_record import AT_ONCE, NO_POLICY, CallRecord, Course
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.facts import Class, Outcome
from proxy.retry.policies.policy import Policy

_Key = TypeVar("_Key")

#: Names for members of enumerations: see `proxy.retry.facts`.
_SUCCESS, _NOT_RETRYABLE, _SUCCEEDED = Class.SUCCESS, Outcome.NOT_RETRYABLE, Outcome.SUCCESS
#: Seconds; upper bounds of the histograms' buckets: Prometheus' own defaults stretched to both sides, and two more up
#: to a little above 20 s, the default of `pushback.hold`, since calls that are held for so long end just after it. A
#: percentile is known to the distance between two bounds, so each is at most 2.5 times the one before.
BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 15.0, 21.0, 30.0, 60.0, 120.0, 300.0),
)

#: The first bounds, for durations of most calls that do not wait.
_SHORT, _SHORTEST = BOUNDS[:5], BOUNDS[0]

#: The slots of a histogram that has counted nothing. Compiled, they are an array, which can't be made from `[0] * n`.
_NOTHING = [0] * (len(BOUNDS) + 1)
#: Calls by status // 100, of which none was counted; compiled, they are an array too, which is set as a whole.
_NO_CALLS = [0] * 10

#: A6's classes of retry attempts.
GE = (1, 2, 3, 4, 5, 10, 100, 1000)

#: Policy objects remembered at most; reloads and evicted unmatched hosts leave old ones behind.
_POLICIES = 4096

#: A retryable failure that these outcomes ended was denied its retry.
_DENIALS = frozenset(
    {
        Outcome.ATTEMPTS_EXHAUSTED,
        Outcome.BUCKET_EMPTY,
        Outcome.PUSHBACK_STOP,
        Outcome.PUSHBACK_TOO_LONG,
        Outcome.DEADLINE,
        Outcome.COMMITTED,
        Outcome.DISABLED,
        Outcome.OVERLOADED,
        Outcome.RATE_LIMITED,
        Outcome.COOLING,
        Outcome.CIRCUIT_OPEN,
        Outcome.OUTAGE,
    }
)

#: Decisions after which a record counts as no attempt: it is sent once more under the same number, or was never sent.
_NOT_COUNTED = frozenset({"transparent", Outcome.DENIED.value})

#: A retry that ended so has not failed: another attempt won, or the app left.
_NOBODYS_FAULT = frozenset({"cancelled", Outcome.CLIENT_GONE.value})


@dataclass(frozen=True, slots=True)
class Wires:
    """The connections open now, by side (app, upstream) and protocol; the HTTP/2 streams in flight now, by side; the
    HTTP/2 errors since the process began, by side and name of the code; and the number of idle connections that this
    process exchanged with another process of redrive, by what happened to them (given, taken, returned).
    """

    connections: Counter[tuple[str, str]] = field(default_factory=Counter)
    streams: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    handed_over: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Wires) -> Wires:
        return Wires(
            self.connections + other.connections,
            self.streams + other.streams,
            self.errors + other.errors,
            self.handed_over + other.handed_over,
        )


class Tally(dict[_Key, int]):
    """Counts by key, 0 for a key that was never counted: the part of `collections.Counter` that a series needs. A
    series has five tallies. A Counter takes 1.7 times as long to make (116 ns; a Tally 69), and 24 bytes more.
    """

    __slots__ = ()

    def __missing__(self, key: _Key) -> int:
        return 0

    def add(self, other: Mapping[_Key, int]) -> None:
        """Add the counts of another tally to these."""
        for key, count in other.items():
            self[key] += count


class Durations:
    """A histogram of durations. `slots`: a count for each upper bound in BOUNDS, and one for longer durations; `total`:
    the sum of all durations, in seconds.
    """

    __slots__ = ("_slots", "total")

    def __init__(self) -> None:
        self._slots = list(_NOTHING)
        self.total = 0.0

    @property
    def slots(self) -> list[int]:
        """The present count of each slot of the histogram."""
        return list(self._slots)

    def __add__(self, other: Durations) -> Durations:
        made = Durations()
        made._slots = [a + b for a, b in zip(self._slots, other._slots, strict=True)]
        made.total = self.total + other.total
        return made

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._slots[_slot(seconds)] += 1
        self.total += seconds


def _slot(seconds: float) -> int:
    """The index of a duration's slot: the first bound that the duration does not exceed. The first bounds are tried one
    by one, because most durations are short.
    """
    for slot, bound in enumerate(_SHORT):
        if seconds <= bound:
            return slot
    return bisect_left(BOUNDS, seconds)


#: The bounds of the histogram of what an answer cost, as a multiple of what was expected (contract, section 16).
RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)


class Series:
    """Everything that is counted for one pair of upstream and route.

    `at_once`: the calls that succeeded with their first attempt, by status // 100. These calls are in neither
    `outcomes_of` nor `results`: code that shows those adds the sum of `at_once` to the successes. `after_retries`: the
    other calls that succeeded, by status // 100. `endings`: all calls that did not, by outcome and status // 100.
    `grpc`: gRPC calls by the status that the app got. `apps`: the calls, the retries and the refused retries of each
    app, if the configuration names apps. `tokens`: a language model's tokens, by kind; `estimate_ratios`: a histogram
    of what answers cost, as a multiple of their estimates, by the bounds RATIOS. `faults`: attempts that ended with
    a fault, by its RFC 9209 proxy error type. `fallbacks`: calls that went on from here to another upstream, by that
    upstream and by the outcome that they would have had. An attempt is counted for the upstream to which it went,
    everything else for the upstream at which the call began.
    """

    __slots__ = (
        "_latest_app", "_of_latest_app", "after_retries", "app_retries", "apps", "at_once", "attempt_seconds",
        "backoff_seconds", "call_seconds", "denied", "endings", "estimate_ratio_sum", "estimate_ratios", "fallbacks",
        "faults", "first_byte_seconds", "ge", "grpc", "hedges",
        "likely_app_retries", "reasons", "results", "resumed_bytes", "resumes", "retries_failed", "route",
        "stream_errors", "streams_unfinished", "tokens", "transparent", "upstream",
    )  # fmt: skip

    def __init__(self, upstream: str, route: str) -> None:
        self.upstream = upstream
        self.route = route
        self.apps: dict[str, Series] = {}
        self._latest_app = ""  # the app that was counted last
        self._of_latest_app: Series | None = None
        self.at_once = list(_NO_CALLS)
        self.after_retries = list(_NO_CALLS)
        # These five without a Tally: compiled code counts in a dict at half the price.
        self.endings: dict[tuple[Outcome, int], int] = {}
        self.results: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.denied: dict[Outcome, int] = {}
        self.faults: dict[str, int] = {}
        self.grpc: Tally[int] = Tally()
        self.fallbacks: Tally[tuple[str, Outcome]] = Tally()
        self.ge = [0] * len(GE)
        self.retries_failed = self.hedges = self.transparent = self.app_retries = self.likely_app_retries = 0
        self.stream_errors = self.streams_unfinished = 0
        self.tokens: Tally[str] = Tally()
        self.resumes: Tally[str] = Tally()
        self.resumed_bytes = 0
        self.estimate_ratios: Tally[int] = Tally()
        self.estimate_ratio_sum = 0.0
        self.backoff_seconds = 0.0
        self.call_seconds = Durations()
        self.attempt_seconds = Durations()
        self.first_byte_seconds = Durations()

    def copy(self) -> Series:
        """A copy of these numbers as they are now; later counting does not change it."""
        made = Series(self.upstream, self.route)
        made.add(self)
        return made

    def add(self, other: Series) -> None:
        """Add the counts of another series, of the same upstream and route in another process."""
        for name in self.__slots__:
            if name.startswith("_"):
                continue
            mine, counted = getattr(self, name), getattr(other, name)
            if isinstance(counted, Tally):
                mine.add(counted)
            elif name in ("denied", "endings", "faults", "reasons", "results"):
                for key, count in counted.items():
                    mine[key] = mine.get(key, 0) + count
            elif isinstance(counted, list):
                setattr(self, name, [a + b for a, b in zip(mine, counted, strict=True)])
            elif name == "apps":
                for app, series in counted.items():
                    mine.setdefault(app, Series(self.upstream, self.route)).add(series)
            elif name not in ("upstream", "route"):
                setattr(self, name, mine + counted)

    def add_estimate(self, ratio: float) -> None:
        """Count an estimate of a call's tokens. `ratio`: the language model's tokens that the call cost, as a multiple
        of those estimated.
        """
        self.estimate_ratios[bisect_left(RATIOS, ratio)] += 1
        self.estimate_ratio_sum += ratio

    @property
    def calls(self) -> int:
        """The number of calls in all."""
        return sum(self.at_once) + sum(self.after_retries) + sum(self.endings.values())

    @property
    def attempts(self) -> int:
        """The number of attempts in all."""
        return sum(self.at_once) + sum(self.results.values())


def count_outcome(series: Series, outcome: Outcome, hundred: int) -> None:
    """Count a call that did not simply succeed with its first attempt. `hundred`: its status // 100."""
    if outcome is not _SUCCEEDED:
        series.endings[outcome, hundred] = series.endings.get((outcome, hundred), 0) + 1
        return
    if not series.after_retries[hundred]:
        series.endings[outcome, hundred] = 0  # its place among the others, which are in order of first use
    series.after_retries[hundred] += 1


def outcomes_of(series: Series) -> dict[tuple[Outcome, int], int]:
    """The calls that did not simply succeed with their first attempt, by outcome and status // 100."""
    return {
        (outcome, hundred): series.after_retries[hundred] if outcome is _SUCCEEDED else count
        for (outcome, hundred), count in series.endings.items()
    }


class Metrics:
    """The counts of all calls, in one `Series` for each pair of upstream and route, and the counts of the process
    itself: reloads, and lines of the log that were lost.
    """

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], Series] = {}
        self._by_policy: dict[Policy, Series] = {}
        self.catch_up: Callable[[], None] = lambda: None  # counts what is gathered (`proxy.observe.observers`)
        self.reloads: dict[str, int] = {"success": 0, "failure": 0}
        self.lines_lost = 0  # of the log

    def all(self) -> list[Series]:
        """The series of every pair of upstream and route, in order of first use."""
        self.catch_up()
        return list(self._series.values())

    def put(self, series: Series) -> None:
        """Replace the series that has the upstream and the route of `series` by `series`, which was added up outside
        this object.
        """
        self._series[series.upstream, series.route] = series

    def moved(self, known: dict[tuple[str, str], int]) -> list[Series]:
        """The series that have changed since the caller last asked. `known`: by upstream and route, the number of calls
        and attempts that each series had then; this method updates it.
        """
        found = []
        for series in self.all():  # attempts of calls that began elsewhere count as well
            labels, calls = (series.upstream, series.route), series.calls + series.attempts
            if known.get(labels) != calls:
                known[labels] = calls
                found.append(series)
        return found

    def series(self, policy: Policy) -> Series:
        """The series in which this policy's calls are counted."""
        found = self._by_policy.get(policy)
        if found is not None:
            return found
        if len(self._by_policy) >= _POLICIES:
            self._by_policy.clear()
        found = self._by_policy[policy] = self.labelled(policy.upstream, policy.route)
        return found

    def labelled(self, upstream: str, route: str) -> Series:
        """The series of an upstream and a route, which is made if there is none."""
        return self._series.setdefault((upstream, route), Series(upstream, route))

    def add(self, calls: Iterable[CallRecord]) -> None:
        """Count calls, and requests that no policy applied to; the latter have empty labels."""
        latest: Policy | None = None  # the policy of the call before: `series` is its series
        for call in calls:
            policy, course = call.policy, call.course
            if policy is not latest:
                latest, series = policy, self.series(policy)
            if call.grpc_status is not None:
                series.grpc[call.grpc_status] += 1
            if policy is NO_POLICY:
                count_outcome(series, course.outcome, call.status // 100)
                continue
            seconds = call.ended - call.started
            at = 0 if seconds <= _SHORTEST else _slot(seconds)
            histogram = series.call_seconds
            histogram._slots[at] += 1
            histogram.total += seconds
            code_class, app = call.status // 100, call.app
            own = None
            if app:
                own = series._of_latest_app
                if own is None or app is not series._latest_app:
                    own = series._of_latest_app = _of_app(series, app)
                    series._latest_app = app
                if course.was_sent_once:  # else its outcome is counted below
                    own.at_once[code_class] += 1
            if course is not AT_ONCE and course.key is None and self._count_decided(series, own, call, course):
                continue
            series.at_once[code_class] += 1
            histogram = series.attempt_seconds
            histogram._slots[at] += 1
            histogram.total += seconds

    def _count_decided(self, series: Series, own: Series | None, call: CallRecord, course: Course) -> bool:
        """Count a call about which something was decided; its course is `course`. `own`: the part of `series` that
        counts the calls of the call's app, None if there is no such part. Returns False if the call had only one
        attempt, which lasted as long as the call and which the caller has yet to count.
        """
        if course.app_retry:
            series.app_retries += 1
        if not course.was_sent_once:
            count_outcome(series, course.outcome, call.status // 100)
            if own is not None:
                count_outcome(own, course.outcome, call.status // 100)
            if course.fallbacks:
                self._count_journey(series, call)
            else:
                _count_history(series, own, call, course.history)
            return True
        if not course.history:
            return False
        series.at_once[call.status // 100] += 1  # a gate held it before, or its first byte was waited for
        series.attempt_seconds.add(call.ended - course.history[0].started)
        _count_first_byte(series, course.history[0])
        return True

    def _count_journey(self, series: Series, call: CallRecord) -> None:
        """Count the attempts and the fallbacks of a call that was allowed to fall back to other upstreams. An attempt
        counts in the series of the upstream that it was sent to. The fallbacks count in `series`, the series of the
        call's first upstream.
        """
        for gone in call.course.fallbacks:
            if not gone.skipped:
                series.fallbacks[gone.to, gone.outcome] += 1
        history = call.course.history
        last = history[-1] if history else None
        for (upstream, route), group in groupby(history, lambda each: (each.upstream, each.route)):
            there, records = self.labelled(upstream, route) if upstream else series, list(group)
            own = _of_app(there, call.app) if call.app else None
            _count_history(there, own, call, records, is_over=records[-1] is last)

    def lost(self, lines: int) -> None:
        """Count lines of the log that will never be written."""
        self.lines_lost += lines

    def reloaded(self, result: str) -> None:
        """Count a reload: "success" or "failure"."""
        self.reloads[result] = self.reloads.get(result, 0) + 1


def _of_app(series: Series, app: str) -> Series:
    """The part of a series that counts one app's calls, made if there is none."""
    own = series.apps.get(app)
    if own is None:
        own = series.apps[app] = Series(series.upstream, series.route)
    return own


def _count_history(
    series: Series, own: Series | None, call: CallRecord, records: Sequence[AttemptRecord], is_over: bool = True
) -> None:
    """Count each attempt of a call, and whether a retry was denied after the last one. `records`: the call's attempts
    at one upstream; `is_over`: whether the call ended at that upstream. `own`: the part of `series` that counts the
    calls of the call's app, None if there is no such part; only retries and denied retries are counted there.
    """
    opening = records[0] if records else None
    before = 1 if opening is None else opening.attempt
    if before > 1:  # attempts that are sent side by side end in any order
        for record in records:
            before = min(before, record.attempt)
    before -= 1  # made elsewhere
    last: AttemptRecord | None = None
    ended, reason = before, ""  # the result of `last`
    for record in records:
        decision = record.decision
        if decision in _NOT_COUNTED:
            series.transparent += decision == "transparent"
            continue
        what = _count_result(series, record)
        if record.first_byte is not None:
            _count_first_byte(series, record)
        if record.ended is not None:
            over = record.ended
            series.attempt_seconds.add(over - record.started)
        if record.attempt > 1:
            if before and record.attempt == before + 1:
                reason = "fallback"
            elif last is None or ended != record.attempt - 1 or last.ended is None or last.ended > record.started:
                reason = _reason(series, record, records)
            _count(series, record, reason)
            if own is not None:
                own.reasons[reason] = own.reasons.get(reason, 0) + 1
        last, reason, ended = record, what, ended + 1
        if record.delay is not None and decision == "retried":
            waited = record.delay
            series.backoff_seconds += waited
    course = call.course
    if is_over and course.attempts and last is not None:
        refused = course.outcome is _NOT_RETRYABLE and last.cls is not None and last.cls.retryable
        if refused or course.outcome in _DENIALS:
            series.denied[course.outcome] = series.denied.get(course.outcome, 0) + 1
            if own is not None:
                own.denied[course.outcome] = own.denied.get(course.outcome, 0) + 1


def _count_result(series: Series, record: AttemptRecord) -> str:
    """Count what came of an attempt, and return it."""
    what = result(record)
    series.results[what] = series.results.get(what, 0) + 1
    if record.error and what == record.fault:
        series.faults[record.error] = series.faults.get(record.error, 0) + 1
    return what


def _count_first_byte(series: Series, record: AttemptRecord) -> None:
    """Add the time to the first byte of an answer's body to its histogram, for a successful attempt whose head was held
    back until that byte came (`timeouts.first_byte`).
    """
    if record.first_byte is not None and record.cls in (None, _SUCCESS):
        series.first_byte_seconds.add(record.first_byte)


def _reason(series: Series, record: AttemptRecord, records: Sequence[AttemptRecord]) -> str:
    """The reason of the retry `record`, for a retry that did not simply follow the record before it. If an earlier
    attempt was still in flight when the retry was sent, the reason is "hedge", and a hedge is counted; if no earlier
    attempt has a record, the reason is "hedge" too. Otherwise, the reason is the result of the last attempt that had
    ended. `records`: the records of the call's attempts, in the order in which the attempts ended.
    """
    earlier = [other for other in records if other.attempt < record.attempt]
    over = [other for other in earlier if other.ended is not None and other.ended <= record.started]
    hedged = len(over) < len(earlier)
    series.hedges += hedged
    return "hedge" if hedged or not over else result(over[-1])


def _count(series: Series, record: AttemptRecord, reason: str) -> None:
    series.reasons[reason] = series.reasons.get(reason, 0) + 1
    retry = record.attempt - 1
    at = _GE_OF[retry] if retry < len(_GE_OF) else ge_class(retry)
    series.ge[at] += 1
    if record.cls is not _SUCCESS and record.decision not in _NOBODYS_FAULT:
        series.retries_failed += 1


def result(record: AttemptRecord) -> str:
    """The result of an attempt, as one of a bounded set of words: the kind of its fault; without a fault, the class of
    its answer; without either, how the attempt ended.
    """
    if record.decision == "cancelled":
        return "cancelled"
    return record.fault or record.cls or "aborted"


def ge_class(retry: int) -> int:
    """The class of gRPC's in which the n-th retry counts (`retry` is n, from 1), as the index of the class's lower
    bound in GE.
    """
    index = bisect_left(GE, retry)
    return index if index < len(GE) and GE[index] == retry else index - 1


#: The same for the first retries, made ready: nearly all retries are these.
_GE_OF = tuple(ge_class(retry) if retry else 0 for retry in range(17))
