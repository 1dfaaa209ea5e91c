from __future__ import annotations

import socket
import ssl
from bisect import bisect_left
from collections import Counter
from itertools import pairwise

import pytest
from observed import POLICY, STANDARD, WALL, ended, retried
from prometheus_client.parser import text_string_to_metric_families

from proxy.observe.call_record import refused
from proxy.observe.exposition import Gauges, render
from proxy.observe.metrics import BOUNDS, GE, Durations, Metrics, ge_class
from proxy.retry.call.attempt_record import AttemptRecord, FallbackRecord
from proxy.retry.facts import Class, FaultKind, Outcome
from proxy.retry.policies.policy import Policy
from proxy.transport import faults as transport_faults

PLACE = {"upstream": "payments", "route": ""}


class Samples:
    """The exposition, read back."""

    def __init__(self, metrics: Metrics, gauges: Gauges | None = None) -> None:
        text, kind = render(metrics, gauges or Gauges())
        assert kind.startswith("text/plain")
        self.families = {f.name: f for f in text_string_to_metric_families(text.decode())}

    def value(self, name: str, **labels: str) -> float:
        found = [s.value for f in self.families.values() for s in f.samples if s.name == name and s.labels == labels]
        return found[0] if found else 0.0


def test_no_two_bounds_of_durations_are_far_apart() -> None:
    """Calls of apps that give up after a minute were shown with a 99th percentile of five minutes."""
    assert max(above / below for below, above in pairwise(BOUNDS)) <= 2.5


def test_a_first_attempt_success() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.add([ended()])
    seen = Samples(metrics)
    assert seen.value("redrive_calls_total", **PLACE, outcome="success", code_class="2xx") == 3
    assert seen.value("redrive_attempts_total", **PLACE, result="success") == 3
    assert seen.value("redrive_call_duration_seconds_count", **PLACE) == 3
    assert seen.value("redrive_call_duration_seconds_bucket", **PLACE, le="0.005") == 3
    assert seen.value("redrive_call_duration_seconds_bucket", **PLACE, le="0.0025") == 0
    assert seen.value("redrive_attempt_duration_seconds_sum", **PLACE) == pytest.approx(0.012)


def test_a_call_that_was_retried() -> None:
    metrics = Metrics()
    metrics.add([ended()])
    metrics.add([retried()])
    seen = Samples(metrics)
    assert seen.value("redrive_calls_total", **PLACE, outcome="success", code_class="2xx") == 2
    assert seen.value("redrive_attempts_total", **PLACE, result="success") == 2
    assert seen.value("redrive_attempts_total", **PLACE, result="transient") == 1
    assert seen.value("redrive_attempts_total", **PLACE, result="reset") == 1
    assert seen.value("redrive_retries_total", **PLACE, reason="transient") == 1
    assert seen.value("redrive_retries_total", **PLACE, reason="reset") == 1
    assert seen.value("redrive_retries_failed_total", **PLACE) == 1
    assert seen.value("redrive_retry_attempts_total", **PLACE, ge="1") == 1
    assert seen.value("redrive_retry_attempts_total", **PLACE, ge="2") == 1
    assert seen.value("redrive_retry_attempts_total", **PLACE, ge="3") == 0
    assert seen.value("redrive_backoff_seconds_total", **PLACE) == pytest.approx(0.3)
    assert seen.value("redrive_attempt_duration_seconds_count", **PLACE) == 4


@pytest.mark.parametrize(
    ("retry", "ge"), [(1, 1), (4, 4), (5, 5), (9, 5), (10, 10), (99, 10), (100, 100), (5000, 1000)]
)
def test_each_retry_is_in_exactly_one_class(retry: int, ge: int) -> None:
    assert GE[ge_class(retry)] == ge


def test_a_copy_stays_as_it_is() -> None:
    metrics = Metrics()
    metrics.add([retried()])
    before, _ = render(metrics, Gauges())
    copy = Metrics()
    for series in metrics.all():
        copy.put(series.copy())
    metrics.add([retried()])
    metrics.add([ended()])
    metrics.reloaded("success")
    assert render(copy, Gauges())[0] == before


def test_a_denied_retry_and_a_failure_nobody_would_retry() -> None:
    metrics = Metrics()
    failed = AttemptRecord(1, 10, 10.1, 503, cls=Class.TRANSIENT, decision="bucket_empty")
    metrics.add([ended(outcome=Outcome.BUCKET_EMPTY, status=503, history=[failed])])
    unsafe = AttemptRecord(1, 10, 10.1, 503, cls=Class.TRANSIENT, decision="not_retryable")
    metrics.add([ended(outcome=Outcome.NOT_RETRYABLE, status=503, history=[unsafe])])
    unnamed = AttemptRecord(1, 10, 10.1, 404, cls=Class.UNNAMED, decision="not_retryable")
    metrics.add([ended(outcome=Outcome.NOT_RETRYABLE, status=404, history=[unnamed])])
    seen = Samples(metrics)
    assert seen.value("redrive_retries_denied_total", upstream="payments", why="bucket_empty") == 1
    assert seen.value("redrive_retries_denied_total", upstream="payments", why="not_retryable") == 1
    assert seen.value("redrive_calls_total", **PLACE, outcome="not_retryable", code_class="4xx") == 1


def test_what_kept_a_connection_from_being_opened_is_told_apart() -> None:
    metrics = Metrics()
    faults = [
        transport_faults.dialling(error)
        for error in (ConnectionRefusedError(), socket.gaierror(), ssl.SSLCertVerificationError(), socket.gaierror())
    ]
    for fault in faults:
        sent_again, record = AttemptRecord(1, 10, 10, decision="transparent"), AttemptRecord(1, 10, 10.1)
        sent_again.record_fault(fault)
        record.record_fault(fault)
        metrics.add([ended(outcome=Outcome.ATTEMPTS_EXHAUSTED, status=502, history=[sent_again, record])])
    copy = Metrics()
    for series in metrics.all():
        copy.put(series.copy())
    seen = Samples(copy)
    assert seen.value("redrive_attempts_total", **PLACE, result="connect_failure") == 4
    for error, count in (("dns_error", 2), ("connection_refused", 1), ("tls_certificate_error", 1)):
        assert seen.value("redrive_attempt_faults_total", **PLACE, error=error) == count


def test_transparent_retries_hedges_and_app_retries() -> None:
    metrics = Metrics()
    again = [
        AttemptRecord(1, 10, 10, fault=FaultKind.CONNECT_FAILURE, decision="transparent"),
        AttemptRecord(1, 10, 10.1, 200, cls=Class.SUCCESS, decision="delivered"),
    ]
    metrics.add([ended(history=again)])
    hedged = [
        AttemptRecord(1, 10, 10.6, decision="cancelled"),
        AttemptRecord(2, 10.5, 10.6, 200, cls=Class.SUCCESS, decision="delivered"),
    ]
    metrics.add([ended(attempts=2, history=hedged, app_retry=True)])
    seen = Samples(metrics)
    assert seen.value("redrive_transparent_retries_total", **PLACE) == 1
    assert seen.value("redrive_hedges_total", **PLACE) == 1
    assert seen.value("redrive_retries_total", **PLACE, reason="hedge") == 1
    assert seen.value("redrive_retries_failed_total", **PLACE) == 0
    assert seen.value("redrive_attempts_total", **PLACE, result="cancelled") == 1
    assert seen.value("redrive_attempts_total", **PLACE, result="success") == 2
    assert seen.value("redrive_app_retries_total", **PLACE, sure="yes") == 1
    assert seen.value("redrive_app_retries_total", **PLACE, sure="no") == 0


def test_hedges_that_the_first_attempt_beat_are_counted_too() -> None:
    metrics = Metrics()
    beaten = [
        AttemptRecord(2, 10.1, 10.4, decision="cancelled"),
        AttemptRecord(3, 10.2, 10.4, decision="cancelled"),
        AttemptRecord(1, 10.0, 10.4, 200, cls=Class.SUCCESS, decision="delivered"),
    ]
    metrics.add([ended(attempts=3, history=beaten, ended=10.4)])
    failed = [
        AttemptRecord(1, 10.0, 10.1, 503, cls=Class.TRANSIENT, decision="hedged on"),
        AttemptRecord(2, 10.1, 10.2, 200, cls=Class.SUCCESS, decision="delivered"),
    ]
    metrics.add([ended(attempts=2, history=failed, ended=10.2)])
    seen = Samples(metrics)
    assert seen.value("redrive_hedges_total", **PLACE) == 2
    assert seen.value("redrive_retries_total", **PLACE, reason="hedge") == 2
    assert seen.value("redrive_retries_total", **PLACE, reason="transient") == 1


def test_a_call_that_was_held_succeeded_at_once_all_the_same() -> None:
    metrics = Metrics()
    held = AttemptRecord(1, 12.0, 12.5, 200, cls=Class.SUCCESS, decision="delivered", held=2.0, held_by="cooldown")
    metrics.add([ended(history=[held], ended=12.5)])
    assert sum(metrics.all()[0].at_once) == 1
    seen = Samples(metrics)
    assert seen.value("redrive_attempts_total", **PLACE, result="success") == 1
    assert seen.value("redrive_call_duration_seconds_sum", **PLACE) == 2.5
    assert seen.value("redrive_attempt_duration_seconds_sum", **PLACE) == 0.5


def test_what_was_denied_is_no_attempt() -> None:
    metrics = Metrics()
    denied = AttemptRecord(1, 10, 10, because="on the deny list", decision="denied")
    metrics.add([ended(outcome=Outcome.DENIED, status=403, attempts=0, history=[denied])])
    assert metrics.all()[0].attempts == 0


def test_a_client_that_left_and_a_request_that_was_refused() -> None:
    metrics = Metrics()
    metrics.add([ended(outcome=Outcome.CLIENT_GONE, status=0, history=[AttemptRecord(1, 10)])])
    metrics.add([refused(WALL, "127.0.0.1:1", 400, Outcome.BAD_REQUEST, "two lengths")])
    seen = Samples(metrics)
    assert seen.value("redrive_calls_total", **PLACE, outcome="client_gone", code_class="none") == 1
    assert seen.value("redrive_attempts_total", **PLACE, result="aborted") == 1
    assert seen.value("redrive_calls_total", upstream="", route="", outcome="bad_request", code_class="4xx") == 1


def test_gauges_and_reloads() -> None:
    metrics = Metrics()
    metrics.reloaded("failure")
    gauges = Gauges(
        levels=[("grpc", 7.5)],
        capacities=[("grpc", 10)],
        cooldowns=[("payments", 3.5)],
        buffered_bytes=65536,
        waiting_calls=4,
    )
    seen = Samples(metrics, gauges)
    assert seen.value("redrive_bucket_level", bucket="grpc") == 7.5
    assert seen.value("redrive_bucket_capacity", bucket="grpc") == 10
    assert seen.value("redrive_cooldown_seconds", upstream="payments") == 3.5
    assert seen.value("redrive_buffered_bytes") == 65536
    assert seen.value("redrive_waiting_calls") == 4
    assert seen.value("redrive_config_reloads_total", result="failure") == 1
    assert seen.value("redrive_config_reloads_total", result="success") == 0


def test_policies_come_and_go_without_series_growing() -> None:
    metrics = Metrics()
    for _ in range(10_000):
        metrics.add([ended(policy=Policy("unmatched", "", STANDARD, None))])
    assert [(s.upstream, s.calls, s.attempts) for s in metrics.all()] == [("unmatched", 10_000, 10_000)]
    assert len(metrics._by_policy) <= 4096
    assert metrics.series(POLICY).calls == 0


def test_grpc_calls_by_what_they_came_to_and_over_workers() -> None:
    metrics, other = Metrics(), Metrics()
    metrics.add(
        [
            ended(grpc_status=0),
            ended(grpc_status=14),
            ended(),
            refused(WALL, "", 200, Outcome.NOT_RETRYABLE, "", grpc_status=12),
        ]
    )
    other.add([ended(grpc_status=14)])
    kept = metrics.series(POLICY).copy()
    metrics.series(POLICY).add(other.series(POLICY))
    assert (kept.grpc, metrics.series(POLICY).grpc) == ({0: 1, 14: 1}, {0: 1, 14: 2})
    text = render(metrics, Gauges())[0].decode()
    assert 'redrive_grpc_calls_total{grpc_status="14",route="",upstream="payments"} 2.0' in text
    assert 'redrive_grpc_calls_total{grpc_status="12",route="",upstream=""} 1.0' in text


def test_attempts_count_where_they_went_and_all_else_where_the_call_began() -> None:
    first, other = {"upstream": "payments", "route": ""}, {"upstream": "other", "route": "r"}
    history = [
        AttemptRecord(1, 10.0, 10.1, 503, cls=Class.TRANSIENT, decision="retried", delay=0.1, upstream="payments"),
        AttemptRecord(2, 10.2, 10.3, 503, cls=Class.TRANSIENT, decision="fell back", upstream="payments"),
        AttemptRecord(
            3, 10.3, 10.4, 500, cls=Class.TRANSIENT, decision="retried", delay=0.2, upstream="other", route="r"
        ),
        AttemptRecord(
            4, 10.6, 10.7, 500, cls=Class.TRANSIENT, decision="attempts_exhausted", upstream="other", route="r"
        ),
    ]
    gone = FallbackRecord("other", Outcome.ATTEMPTS_EXHAUSTED)
    skipped = FallbackRecord("none", Outcome.ATTEMPTS_EXHAUSTED, "its body is encoded")
    call = ended(attempts=4, history=history, fallbacks=(skipped, gone), outcome=Outcome.ATTEMPTS_EXHAUSTED, status=500)
    metrics = Metrics()
    told: dict[tuple[str, str], int] = {}
    metrics.add([call])
    assert {(each.upstream, each.route) for each in metrics.moved(told)} == {("payments", ""), ("other", "r")}
    assert metrics.moved(told) == []
    call.app = "web"
    named = Metrics()
    named.add([call])
    seen = Samples(named)
    for reason in ("fallback", "transient"):
        assert seen.value("redrive_retries_total", **other, app="web", reason=reason) == 1
    assert seen.value("redrive_retries_denied_total", upstream="other", app="web", why="attempts_exhausted") == 1
    seen = Samples(metrics)
    ends = {"outcome": "attempts_exhausted"}
    assert seen.value("redrive_calls_total", **first, **ends, code_class="5xx") == 1
    assert seen.value("redrive_calls_total", **other, **ends, code_class="5xx") == 0
    assert seen.value("redrive_fallbacks_total", upstream="payments", to="other", **ends) == 1
    assert seen.value("redrive_fallbacks_total", upstream="payments", to="none", **ends) == 0
    assert seen.value("redrive_attempts_total", **first, result="transient") == 2
    assert seen.value("redrive_attempts_total", **other, result="transient") == 2
    assert seen.value("redrive_retries_total", **first, reason="transient") == 1
    assert seen.value("redrive_retries_total", **other, reason="fallback") == 1
    assert seen.value("redrive_retries_total", **other, reason="transient") == 1
    assert seen.value("redrive_retry_attempts_total", **other, ge="3") == 1
    assert seen.value("redrive_hedges_total", **other) == 0
    assert seen.value("redrive_backoff_seconds_total", **first) == pytest.approx(0.1)
    assert seen.value("redrive_backoff_seconds_total", **other) == pytest.approx(0.2)
    assert seen.value("redrive_retries_denied_total", upstream="other", why="attempts_exhausted") == 1
    assert seen.value("redrive_retries_denied_total", upstream="payments", why="attempts_exhausted") == 0
    assert seen.value("redrive_call_duration_seconds_count", **first) == 1
    assert seen.value("redrive_call_duration_seconds_count", **other) == 0


@pytest.mark.parametrize("seconds", [0.0, *BOUNDS, *(bound * 1.0001 for bound in BOUNDS), 1e9])
def test_a_duration_counts_in_the_first_slot_whose_bound_it_does_not_exceed(seconds: float) -> None:
    durations = Durations()
    durations.add(seconds)
    assert durations.slots.index(1) == bisect_left(BOUNDS, seconds)
    assert sum(durations.slots) == 1


def test_apps_are_told_apart_if_they_have_names() -> None:
    metrics = Metrics()
    for app, call in (("web", ended()), ("batch", retried()), ("batch", ended())):
        call.app = app
        metrics.add([call])
    (series,) = metrics.all()
    seen = Samples(metrics)
    told = {"outcome": "success", "code_class": "2xx"}
    assert seen.value("redrive_calls_total", **PLACE, app="web", **told) == 1
    assert seen.value("redrive_calls_total", **PLACE, app="batch", **told) == 2
    assert seen.value("redrive_calls_total", **PLACE, **told) == 0
    assert seen.value("redrive_retries_total", **PLACE, app="batch", reason="transient") == 1
    assert seen.value("redrive_attempts_total", **PLACE, result="success") == 3
    metrics.add([refused(WALL, "app", 407, Outcome.DENIED, "no name")])
    unnamed = {"upstream": "", "route": "", "outcome": "denied", "code_class": "4xx"}
    assert Samples(metrics).value("redrive_calls_total", **unnamed, app="others") == 1
    twice = series.copy()
    twice.add(series)
    told["app"] = "batch"
    assert twice.apps["batch"].calls == 4 and series.apps["batch"].calls == 2
    assert Samples(metrics).value("redrive_calls_total", **PLACE, **told) == 2


def test_held_calls_by_app_are_shown_for_every_app_that_called() -> None:
    metrics, call = Metrics(), ended()
    call.app = "web"
    metrics.add([call])
    held = Counter({("payments", "batch", "rate"): 2})
    causes = [(("payments", by), 0.0) for by in ("outage", "rate")]
    seen = Samples(metrics, Gauges(held=causes, held_by_app=held)).families["redrive_held_calls"].samples
    assert {(each.labels["upstream"], each.labels["app"], each.labels["by"]): each.value for each in seen} == {
        ("payments", "batch", "outage"): 0,
        ("payments", "batch", "rate"): 2,
        ("payments", "web", "outage"): 0,
        ("payments", "web", "rate"): 0,
    }
