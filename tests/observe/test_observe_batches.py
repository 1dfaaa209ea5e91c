"""Calls that succeed at once are told of in batches, and nobody can see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from observed import POLICY, WALL, ended, retried, shown

from proxy.observe.access_log import AccessLog
from proxy.observe.call_record import CallRecord, refused
from proxy.observe.metrics import Metrics
from proxy.observe.observers import BATCH, Observers
from proxy.observe.recent_calls import RecentCalls
from proxy.retry.facts import Outcome


class Kept(list[str]):
    def __init__(self) -> None:
        self.at_once = 0

    def add(self, lines: str) -> None:
        self.extend(lines.splitlines(keepends=True))

    def add_now(self, lines: str) -> None:
        self.at_once += lines.count("\n")
        self.add(lines)


class Watched:
    """Observers with a log, over a clock that stands still until `tick`."""

    def __init__(self) -> None:
        self.lines, self.due = Kept(), list[Callable[[], None]]()
        self.metrics, self.recent = Metrics(), RecentCalls()
        self.log = AccessLog(self.lines)
        later = lambda seconds, function: self.due.append(function)  # noqa: E731
        self.observers = Observers(self.metrics, self.recent, self.log, later)

    def tick(self) -> None:
        due, self.due = self.due, []
        for function in due:
            function()


def plain(status: int = 200, path: str = "/v1/x", policy: str = "payments") -> CallRecord:
    return ended(status=status, policy=replace(POLICY, upstream=policy), path=path)


def test_gathered_calls_are_told_after_a_moment_by_one_timer() -> None:
    watched = Watched()
    for number in range(3):
        watched.observers.call_ended(plain(path=f"/{number}"))
    assert watched.lines == []
    assert len(watched.due) == 1
    watched.tick()
    assert [json.loads(line)["path"] for line in watched.lines] == ["/0", "/1", "/2"]
    watched.observers.call_ended(plain(path="/3"))
    assert len(watched.due) == 1
    watched.tick()
    assert len(watched.lines) == 4
    assert watched.lines.at_once == 4  # they have waited


def test_a_full_batch_waits_for_nothing() -> None:
    watched = Watched()
    for _ in range(BATCH):
        watched.observers.call_ended(plain())
    assert len(watched.lines) == BATCH
    watched.tick()
    assert len(watched.lines) == BATCH
    assert watched.lines.at_once == 0  # under load many batches are written in one


def test_who_reads_the_metrics_sees_every_call() -> None:
    watched = Watched()
    watched.observers.call_ended(plain(status=204))
    watched.observers.call_ended(plain(policy="search"))
    assert [(series.upstream, series.calls, series.attempts) for series in watched.metrics.all()] == [
        ("payments", 1, 1),
        ("search", 1, 1),
    ]
    watched.observers.call_ended(plain(status=301))
    (series, _) = watched.metrics.all()
    assert series.at_once[2:4] == [1, 1]
    assert sum(series.call_seconds.slots) == sum(series.attempt_seconds.slots) == 2


def test_who_reads_the_ring_sees_every_call_in_order() -> None:
    watched = Watched()
    refusal = refused(WALL, "127.0.0.1:1", 400, Outcome.BAD_REQUEST, "no", "GET", "h", "/bad")
    watched.observers.call_ended(plain(path="/1"))
    watched.observers.call_ended(retried())
    watched.observers.call_ended(plain(path="/3"))
    watched.observers.call_ended(refusal)
    watched.observers.call_ended(plain(path="/5"))
    assert watched.recent.seen == 5
    assert [(call["number"], call["path"]) for call in shown(watched.recent.since(0))] == [
        (1, "/1"),
        (2, "/v1/x?key=***"),
        (3, "/3"),
        (4, "/bad"),
        (5, "/5"),
    ]
    watched.observers.call_ended(plain(path="/6"))
    assert [call.number for call in watched.recent.show(watched.recent.choose_notable(0))] == [2, 4]
    assert [call.number for call in watched.recent.show(watched.recent.choose_news(4, 5))] == [5, 6]
    assert [json.loads(line)["path"] for line in watched.lines] == ["/1", "/v1/x?key=***", "/3", "/bad", "/5", "/6"]


def test_a_log_that_closes_or_changes_has_written_all_that_was_before() -> None:
    watched = Watched()
    watched.observers.call_ended(plain(path="/1"))
    watched.log.configure(console=True, level="info")
    watched.observers.call_ended(plain(path="/2"))
    watched.log.configure(console=True, level="warning")
    watched.observers.call_ended(plain(path="/3"))
    watched.log.configure(console=False, level="info")
    watched.observers.call_ended(plain(path="/4"))
    watched.log.close()
    first, second, last = watched.lines
    assert json.loads(first)["path"] == "/1"
    assert second == "00:00:00.250 GET api.payments.example/2 -> 200 success 4ms [payments]\n"
    assert json.loads(last)["path"] == "/4"
