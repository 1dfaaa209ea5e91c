"""The metrics as Prometheus text, with the names and labels of the contract's section 10.

This code runs only when /metrics is requested, and only then is prometheus_client imported. A thousand upstreams make
60,000 lines, which take a third of a second: a thread writes them, from a copy (`Series.copy`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

from proxy.observe.held_apps import HeldByApp
from proxy.observe.metrics import BOUNDS, GE, RATIOS, Durations, Metrics, Series, Wires, outcomes_of
from proxy.retry.apps import OTHERS
from proxy.retry.facts import Outcome
from proxy.wire.first_bytes import HTTP1, HTTP2

LABELS = ("upstream", "route")
SIDES = ("app", "upstream")
#: The values of the label that says what happened to an idle connection of an app between two processes of redrive: it
#: was given away, taken, or sent back because the taker had no room.
HANDED = ("given", "taken", "returned")


@dataclass(frozen=True, slots=True)
class Gauges:
    """The figures that are not counted but read, as they were when the metrics were asked for.

    By bucket label: `levels` and `capacities`; by bucket label and upstream: `paid_by` (always 1). By upstream:
    `cooldowns` (seconds left), `begun` (the number of cooldowns that have begun) and, for upstreams that limit attempts
    under way, `under_way` (those attempts) and `waiting_for_place` (the calls that wait to be sent). By upstream and
    cause: `held` (calls that are held); by upstream, app and cause: `held_by_app` (the same, if the configuration names
    apps). By upstream and limit: `remaining` (what is left of the upstream's own limits). By upstream and endpoint:
    `circuits` (1: open), `places` (the limit that was found; infinity: none) and `outages` (1: there is one). By
    upstream and number: `credentials` (1: usable) and, for those from files, `key_files` (1: readable).
    """

    levels: Sequence[tuple[str, float]] = ()
    capacities: Sequence[tuple[str, float]] = ()
    paid_by: Sequence[tuple[tuple[str, str], float]] = ()
    cooldowns: Sequence[tuple[str, float]] = ()
    begun: Sequence[tuple[str, float]] = ()
    held: Sequence[tuple[tuple[str, str], float]] = ()
    held_by_app: HeldByApp | None = None
    places: Sequence[tuple[tuple[str, str], float]] = ()
    outages: Sequence[tuple[tuple[str, str], float]] = ()
    remaining: Sequence[tuple[tuple[str, str], float]] = ()
    circuits: Sequence[tuple[tuple[str, str], float]] = ()
    credentials: Sequence[tuple[tuple[str, str], float]] = ()
    key_files: Sequence[tuple[tuple[str, str], float]] = ()
    under_way: Sequence[tuple[str, float]] = ()
    waiting_for_place: Sequence[tuple[str, float]] = ()
    buffered_bytes: float = 0.0
    waiting_calls: float = 0.0
    wires: Wires = field(default_factory=Wires)
    open_files: float = 0.0
    limits: Sequence[tuple[str, float]] = ()
    workers: Sequence[tuple[str, float]] = ()
    worker_restarts: float = 0.0
    worker_hangs: float = 0.0
    redis_up: bool | None = None
    redis_outages: float = 0.0


def render(metrics: Metrics, gauges: Gauges, accept: str = "") -> tuple[bytes, str]:
    """The metrics as Prometheus text, and the content type of that text. `accept`: the value of the request's field
    Accept. If it asks for OpenMetrics, the format is OpenMetrics; else the classic text.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metrics, gauges))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def families(metrics: Metrics, gauges: Gauges) -> Iterator[Any]:
    """Every metric family, in the form in which prometheus_client has them."""
    return _Collector(metrics, gauges).collect()


class _Collector:
    """The custom collector through which prometheus_client reads the metrics."""

    def __init__(self, metrics: Metrics, gauges: Gauges) -> None:
        self._metrics = metrics
        self._gauges = gauges

    def describe(self) -> list[Any]:
        """Return no metrics: their names are known only when they are collected."""
        return []

    def collect(self) -> Iterator[Any]:
        """Every metric family."""
        every = self._metrics.all()
        yield from _by_place(every)
        yield _histogram("redrive_call_duration_seconds", "From a call's head to its end.", every, "call_seconds")
        yield _histogram("redrive_attempt_duration_seconds", "From sending to its end.", every, "attempt_seconds")
        first = "From a request's last byte to the first byte of its answer that counts, where that is measured."
        yield _histogram("redrive_first_byte_seconds", first, every, "first_byte_seconds")
        reloads, lost = self._metrics.reloads.items(), self._metrics.lines_lost
        yield _counter("redrive_config_reloads", "Configurations loaded after start.", "result", reloads)
        yield _counter("redrive_log_lines_lost", "Lines that could not be written to the log.", "", lost)
        yield _held(every, self._gauges)
        yield from _gauges(self._gauges)


def _by_place(every: list[Series]) -> Iterator[Any]:
    """The metric families that are labelled by upstream, and most also by route, made from all series (`every`)."""

    def made(name: str, help_: str, read: Callable[[Series], Iterable[tuple[Any, float]]], *labels: str) -> Any:
        samples = (((s.upstream, s.route, *_several(of)), count) for s in every for of, count in read(s))
        return _counter(name, help_, (*LABELS, *labels), samples)

    def made_by_app(name: str, help_: str, read: Callable[[Series], Iterable[tuple[Any, float]]], *labels: str) -> Any:
        """A metric family labelled by upstream, route and `labels`, and also by app if the configuration names apps.
        `read` gives the values of a series, each with its labels.
        """
        if not any(s.apps for s in every):
            return made(name, help_, read, *labels)
        split = ((s.upstream, s.route, app, own) for s in every for app, own in _by_app(s))
        samples = (((up, route, app, *_several(of)), n) for up, route, app, own in split for of, n in read(own))
        return _counter(name, help_, (*LABELS, "app", *labels), samples)

    yield made_by_app("redrive_calls", "Calls by outcome.", _calls, "outcome", "code_class")
    ended = "gRPC calls by the status that they ended with for the app."
    yield made("redrive_grpc_calls", ended, lambda series: series.grpc.items(), "grpc_status")
    yield made("redrive_attempts", "Attempts by what came of them.", _attempts, "result")
    faults = "Attempts without a whole answer, by the proxy error type of RFC 9209."
    yield made("redrive_attempt_faults", faults, lambda series: series.faults.items(), "error")
    yield made_by_app("redrive_retries", "Retries by what they were for.", lambda each: each.reasons.items(), "reason")
    once = "Retries by their number, each in exactly one class (gRPC A6)."
    yield made("redrive_retry_attempts", once, lambda series: zip(GE, series.ge, strict=True), "ge")
    cost = "A language model's tokens that calls cost, where a rate bucket counts them."
    yield made("redrive_tokens", cost, lambda series: series.tokens.items(), "kind")
    yield _estimates(every)
    yield _denied(every)
    fallen: Counter[tuple[str, str, str]] = Counter()
    for series in every:
        fallen.update({(series.upstream, to, why.value): count for (to, why), count in series.fallbacks.items()})
    resumed: Counter[tuple[str, str]] = Counter()
    brought: Counter[str] = Counter()
    for series in every:
        resumed.update({(series.upstream, result): count for result, count in series.resumes.items()})
        brought[series.upstream] += series.resumed_bytes
    went_on = "Resumptions of answers that broke, by what came of them."
    yield _counter("redrive_resumes", went_on, ("upstream", "result"), resumed.items())
    bytes_ = "Bytes of answers that resumptions brought."
    yield _counter(
        "redrive_resumed_bytes", bytes_, "upstream", ((name, size) for name, size in brought.items() if size)
    )
    gone = "Calls that went on at another upstream, by the outcome they would have had."
    yield _counter("redrive_fallbacks", gone, ("upstream", "to", "outcome"), fallen.items())
    for name, help_, of in (
        ("redrive_retries_failed", "Retries that failed.", "retries_failed"),
        ("redrive_hedges", "Retries begun before the earlier attempt had answered.", "hedges"),
        ("redrive_transparent_retries", "Requests that never left or were refused, sent again at once.", "transparent"),
        ("redrive_stream_errors", "Errors in streams that had already begun to go to the app.", "stream_errors"),
        ("redrive_streams_unfinished", "Streams that ended cleanly without their last event.", "streams_unfinished"),
        ("redrive_backoff_seconds", "Seconds of waiting between attempts, as decided.", "backoff_seconds"),
    ):
        yield made(name, help_, lambda series, of=of: [((), getattr(series, of))])  # type: ignore[misc]
    yield made(
        "redrive_app_retries",
        'Calls that were an app\'s own retry; sure="no": they may have been one, though nothing in them says so.',
        lambda series: (("yes", series.app_retries), ("no", series.likely_app_retries)),
        "sure",
    )


def _by_app(series: Series) -> Iterable[tuple[str, Series]]:
    """The parts of a series, each of which counts one app, with the app's name. The series of requests that no policy
    applied to has no such parts: its name is OTHERS, that of the apps without a name.
    """
    return (series.apps or {OTHERS: series}).items()


def _denied(every: list[Series]) -> Any:
    """The metric of the failures after which no retry was made, by upstream and reason, and by app if the configuration
    names apps. `every`: all series.
    """
    named = any(series.apps for series in every)
    counts: Counter[tuple[str, ...]] = Counter()
    for series in every:
        for app, own in _by_app(series) if named else [("", series)]:
            for why, count in own.denied.items():
                counts[(series.upstream, app, why.value) if named else (series.upstream, why.value)] += count
    labels = ("upstream", "app", "why") if named else ("upstream", "why")
    return _counter("redrive_retries_denied", "Failures not retried.", labels, counts.items())


def _estimates(every: list[Series]) -> Any:
    """The metric, a histogram, that compares what answers cost in a language model's tokens with what was expected:
    each value is the cost as a multiple of the expected one. `every`: all series.
    """
    from prometheus_client.core import HistogramMetricFamily

    help_ = "Tokens that an answer cost, as a multiple of what was expected."
    family = HistogramMetricFamily("redrive_token_estimate_ratio", help_, labels=LABELS)
    upto = [*(str(bound) for bound in RATIOS), "+Inf"]
    for series in every:
        if series.estimate_ratios:
            counts = accumulate(series.estimate_ratios[slot] for slot in range(len(upto)))
            buckets = list(zip(upto, counts, strict=True))
            family.add_metric([series.upstream, series.route], buckets=buckets, sum_value=series.estimate_ratio_sum)
    return family


def _held(every: list[Series], gauges: Gauges) -> Any:
    """The metric of the calls that are held now, by upstream and cause. If the configuration names apps, the metric is
    by app too, and has a sample for each app that has called the upstream or has calls held there. `every`: all series.
    """
    help_ = "Calls that are held now, by what holds them; rate: also the adaptive limiter."
    held = gauges.held_by_app
    if held is None:
        return _gauge("redrive_held_calls", help_, ("upstream", "by"), gauges.held)
    apps = {(series.upstream, app) for series in every for app in series.apps}
    apps |= {(upstream, app) for upstream, app, _ in held}
    causes = dict.fromkeys(by for (_, by), _ in gauges.held)
    samples = (((upstream, app, by), held[upstream, app, by]) for upstream, app in sorted(apps) for by in causes)
    return _gauge("redrive_held_calls", help_, ("upstream", "app", "by"), samples)


def _gauges(gauges: Gauges) -> Iterator[Any]:
    yield _gauge("redrive_bucket_level", "Tokens left; the lowest of a bucket's scopes.", "bucket", gauges.levels)
    yield _gauge("redrive_bucket_capacity", "The most tokens that a bucket can hold.", "bucket", gauges.capacities)
    paid = "1 for each upstream whose retries are paid from the bucket."
    yield _gauge("redrive_bucket_paid_by", paid, ("bucket", "upstream"), gauges.paid_by)
    yield _gauge("redrive_cooldown_seconds", "Seconds that calls are still held.", "upstream", gauges.cooldowns)
    yield _counter("redrive_cooldowns", "Cooldowns that answers began.", "upstream", gauges.begun)
    found = (
        "The attempts that may be under way to an endpoint in trouble, as found by redrive; +Inf: there is no limit."
    )
    yield _gauge("redrive_concurrency_limit", found, ("upstream", "endpoint"), gauges.places)
    out = "Whether attempts to an endpoint, or to one of its routes, end without an answer, so that calls are held."
    yield _gauge("redrive_outage", out, ("upstream", "endpoint"), gauges.outages)
    told = "What is left of a limit of the upstream's own, as its answers said (pushback.ahead)."
    yield _gauge("redrive_limit_remaining", told, ("upstream", "limit"), gauges.remaining)
    opened = "Whether an endpoint's circuit breaker is open; without one: how many are, of hosts that requests named."
    yield _gauge("redrive_circuit_open", opened, ("upstream", "endpoint"), gauges.circuits)
    usable = "Whether a credential is in use; 0: its upstream refused it, and it is put aside for a while."
    yield _gauge("redrive_credential_usable", usable, ("upstream", "key"), gauges.credentials)
    read = "Whether the file of a credential could be read when it last changed; 0: an earlier value stays in use."
    yield _gauge("redrive_key_file_readable", read, ("upstream", "key"), gauges.key_files)
    now = "Attempts under way where concurrency limits them."
    yield _gauge("redrive_concurrency", now, "upstream", gauges.under_way)
    waiting = "Calls that wait for a place among the attempts under way."
    yield _gauge("redrive_concurrency_waiting", waiting, "upstream", gauges.waiting_for_place)
    yield _gauge("redrive_buffered_bytes", "Request bodies kept for another attempt.", "", gauges.buffered_bytes)
    yield _gauge("redrive_waiting_calls", "Calls in a backoff or a queue.", "", gauges.waiting_calls)
    wires = gauges.wires
    both = (((side, spoken), wires.connections[side, spoken]) for side in SIDES for spoken in (HTTP1, HTTP2))
    yield _gauge("redrive_connections", "Connections by side and protocol.", ("side", "protocol"), both)
    streams = ((side, wires.streams[side]) for side in SIDES)
    yield _gauge("redrive_streams", "HTTP/2 streams in flight.", "side", streams)
    failed = "HTTP/2 streams reset and connections given up, by either end."
    yield _counter("redrive_http2_errors", failed, ("side", "code"), wires.errors.items())
    over = "Idle connections of apps that went to or came from another process of redrive, which replaces one."
    yield _counter(
        "redrive_connections_handed_over", over, "what", ((what, wires.handed_over[what]) for what in HANDED)
    )
    yield _gauge("redrive_open_files", "File descriptors in use.", "", gauges.open_files)
    yield _gauge("redrive_limit", "The upper limits of the gauges of these names.", "of", gauges.limits)
    yield _gauge("redrive_workers", "Worker processes by state; 0 without workers.", "state", gauges.workers)
    yield _counter("redrive_worker_restarts", "Workers that ended unasked.", "", gauges.worker_restarts)
    yield _counter("redrive_worker_hangs", "Workers that hung, and were killed.", "", gauges.worker_hangs)
    if gauges.redis_up is not None:
        yield _gauge("redrive_redis_up", "Whether buckets in Redis are kept there now.", "", float(gauges.redis_up))
        yield _counter("redrive_redis_outages", "Times that Redis was not available.", "", gauges.redis_outages)


def _calls(series: Series) -> Iterator[tuple[tuple[str, str], float]]:
    total = Counter(outcomes_of(series))
    total.update({(Outcome.SUCCESS, hundreds): count for hundreds, count in enumerate(series.at_once) if count})
    for (outcome, hundreds), count in total.items():
        yield (outcome.value, f"{hundreds}xx" if hundreds else "none"), count


def _attempts(series: Series) -> Iterator[tuple[str, float]]:
    at_once = sum(series.at_once)
    successes = at_once + series.results.get("success", 0)
    if successes:
        yield "success", successes
    yield from ((result, count) for result, count in series.results.items() if result != "success")


def _several(of: Any) -> tuple[Any, ...]:
    return of if isinstance(of, tuple) else (of,)


def _family(kind: str, name: str, help_: str, labels: str | tuple[str, ...], value: Any) -> Any:
    """A metric family of the type `kind` (counter, gauge, …), with `help_` as its text. `value` is one number, or pairs
    of a label's value (a tuple if there are several labels) and a number.
    """
    from prometheus_client import core

    make = getattr(core, f"{kind}MetricFamily")
    if isinstance(value, (int, float)):
        return make(name, help_, value=value)
    family = make(name, help_, labels=_several(labels))
    for of, amount in value:
        family.add_metric([str(each) for each in _several(of)], amount)
    return family


_counter, _gauge = partial(_family, "Counter"), partial(_family, "Gauge")


def _histogram(name: str, help_: str, every: list[Series], attribute: str) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, help_, labels=LABELS)
    for series in every:
        durations: Durations = getattr(series, attribute)
        upto = [str(bound) for bound in BOUNDS] + ["+Inf"]
        counts = list(zip(upto, accumulate(durations.slots), strict=True))
        family.add_metric([series.upstream, series.route], buckets=counts, sum_value=durations.total)
    return family
