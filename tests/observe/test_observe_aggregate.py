"""What several workers have counted and shown, as one."""

from __future__ import annotations

from collections import Counter

from observed import POLICY, shown

from proxy.observe.aggregate import Aggregate, AggregatedCalls, Report
from proxy.observe.metrics import Metrics, Series, Wires, count_outcome
from proxy.observe.recent_calls import NumberedCall
from proxy.retry.facts import Outcome


def call_of(number: int, at: int) -> NumberedCall:
    return NumberedCall(number, f'{{"path":"/{at}"}}', float(at), notable=False)


def counted(calls: int) -> list[Series]:
    series = Series(POLICY.upstream, POLICY.route)
    for _ in range(calls):
        count_outcome(series, Outcome.SUCCESS, 2)
    return [series]


def house() -> tuple[Aggregate, Metrics, AggregatedCalls]:
    metrics, recent = Metrics(), AggregatedCalls()
    return Aggregate(metrics, recent), metrics, recent


def test_calls_of_one_look_stand_in_order_of_time() -> None:
    gathered, metrics, recent = house()
    gathered.keep(1, Report(counted(2), 2, [call_of(1, 10), call_of(2, 13)]))
    gathered.keep(2, Report(counted(2), 2, [call_of(1, 11), call_of(2, 12)]))
    assert recent.since(0) == []
    gathered.take()
    assert [call["path"] for call in shown(recent.since(0))] == ["/10", "/11", "/12", "/13"]
    assert [call["number"] for call in shown(recent.since(0))] == [1, 2, 3, 4]
    assert [series.calls for series in metrics.all()] == [4]


def test_a_report_without_calls_takes_none_away() -> None:
    gathered, metrics, recent = house()
    gathered.keep(1, Report(counted(1), 1, [call_of(1, 10)]))
    gathered.keep(1, Report(counted(3), 3, None))
    gathered.take()
    assert len(recent.since(0)) == 1
    assert [series.calls for series in metrics.all()] == [3]
    assert gathered.seen(1) == 1
    gathered.keep(1, Report(counted(3), 3, [call_of(2, 11), call_of(3, 12)]))
    gathered.take()
    assert [call["path"] for call in shown(recent.since(1))] == ["/11", "/12"]


def test_what_a_worker_has_told_stays_when_it_ends() -> None:
    gathered, metrics, recent = house()
    gathered.keep(1, Report(counted(1), 1, [call_of(1, 10)]))
    gathered.ended(1)
    gathered.keep(2, Report(counted(1), 1, [call_of(1, 11)]))
    gathered.take()
    assert [call["path"] for call in shown(recent.since(0))] == ["/10", "/11"]
    assert [series.calls for series in metrics.all()] == [2]


def test_only_series_that_moved_are_told_of() -> None:
    gathered, metrics, _ = house()
    working = Metrics()
    known: dict[tuple[str, str], int] = {}
    for name in ("a", "b"):
        count_outcome(working.labelled(name, ""), Outcome.SUCCESS, 2)
    gathered.keep(1, Report(working.moved(known), 2))
    assert working.moved(known) == []
    working.labelled("b", "").at_once = [0, 0, 1, *[0] * 7]
    moved = working.moved(known)
    assert [series.upstream for series in moved] == ["b"]
    gathered.keep(1, Report(moved, 3))
    gathered.keep(2, Report(counted(4), 4))
    gathered.take()
    assert {series.upstream: series.calls for series in metrics.all()} == {"a": 1, "b": 2, POLICY.upstream: 4}
    gathered.ended(1)
    gathered.keep(3, Report(counted(1), 1))
    gathered.take()
    assert {series.upstream: series.calls for series in metrics.all()} == {"a": 1, "b": 2, POLICY.upstream: 5}


def test_a_worker_that_ends_leaves_its_errors_and_no_connections() -> None:
    gathered, _, _ = house()
    has = Wires(Counter({("app", "http/2"): 2}), Counter({"app": 3}), Counter({("app", "CANCEL"): 4}))
    gathered.keep(1, Report(wires=has))
    gathered.keep(2, Report(wires=has))
    gathered.take()
    assert gathered.wires == has + has
    gathered.keep(1, Report(wires=has))  # its newest takes the place of the one before
    gathered.ended(1)
    assert gathered.wires == Wires(has.connections, has.streams, Counter({("app", "CANCEL"): 8}))
