"""Attempts without an answer over the workers of one machine: they begin an outage as those of one process do."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from callers import BROKEN, NO_FIELDS, REFUSED, UNREACHED, Waiting, Worker, factories

from proxy.retry.facts import Request
from proxy.retry.scopes.factory import Factory
from proxy.retry.scopes.registry import MOST_SCOPES
from proxy.retry.weather.caller import Caller
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.lost_rows import FORGOTTEN_AFTER, LostRows
from proxy.stores.shared_memory import lost_rows, records
from proxy.stores.shared_memory.records import Memory

unshared = iter(range(1_000_000))
GATEWAY = AttemptEnding(False, True, False, True, "route", "503")


def workers(memory: Memory, count: int) -> list[Worker]:
    """So many workers that share their lanes; one alone shares nothing."""
    upstream = f"rows {next(unshared)}"
    return [Worker(each, upstream) for each in (factories(memory, count) if count > 1 else [Factory()])]


def caller(path: str = "/x") -> Caller:
    """A call for this path that everything may hold."""
    made = Caller(Request("GET", "u.example", path), NO_FIELDS, "r")
    made.cools = made.limits = made.outages = True
    return made


def ends(worker: Worker, ending: AttemptEnding, at: float, path: str = "/x") -> None:
    """An attempt fails, as `proxy.retry.call.feedback` reports it: by the short way, if that is enough."""
    attempt, who = object(), caller(path)
    worker.governor.traffic.failed()
    if not worker.governor.failed_freely(attempt, who.names, ending, at - 0.01, at):
        worker.governor.failed(attempt, who, ending, at - 0.01, at, again=False, cools=False)


def answers(worker: Worker, at: float, path: str = "/x") -> None:
    """An attempt is answered well, and reported if that is asked for."""
    who = caller(path)
    if worker.governor.traffic.went_well(at):
        worker.governor.answered_freely(who.names, "", at - 0.01, at)


def is_held(worker: Worker, at: float, path: str = "/x") -> bool:
    """Whether a call for this path is held by an outage."""
    governor = worker.governor
    waiter = Waiting()
    held = governor.holds(at) and governor.ask(waiter, caller(path), at)[1] == "outage"
    governor.leave(waiter, at)
    return held


@pytest.mark.parametrize("ending", [BROKEN, UNREACHED, GATEWAY])
@pytest.mark.parametrize("paths", [("/x",), ("/x", "/y")])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_as_many_attempts_begin_an_outage_over_all_workers_as_in_one(
    memory: Memory, count: int, paths: tuple[str, ...], ending: AttemptEnding
) -> None:
    group = workers(memory, count)
    for each in group:
        for number in range(40):
            answers(each, 10.0 + number / 100, paths[number % len(paths)])
    held = []
    for number in range(6):
        at = 11.0 + number * 0.03
        ends(group[number % count], ending, at, paths[number % len(paths)])
        held.append(all(is_held(each, at + 0.001, paths[0]) for each in group))
    assert held == [False] * 4 + [True] * 2


def test_as_many_attempts_of_one_path_begin_its_outage_while_others_are_answered(memory: Memory) -> None:
    begun = []
    for count in (1, 4):
        group = workers(memory, count)
        for each in group:
            for number in range(40):
                answers(each, 10.0 + number / 100, ("/x", "/poll")[number % 2])
        for number in range(20):
            at = 11.0 + number * 0.1
            ends(group[number % count], GATEWAY, at, "/poll")
            answers(group[(number + 1) % count], at + 0.05)
            if is_held(group[(number + 2) % count], at + 0.06, "/poll"):
                break
        begun.append(number)
        assert not any(is_held(each, at + 0.07) for each in group)
    assert begun == [4, 4]


def test_an_answer_in_any_worker_ends_the_row_of_all(memory: Memory) -> None:
    group = workers(memory, 3)
    for each in group:
        for number in range(40):
            answers(each, 10.0 + number / 100)
    for number in range(4):
        ends(group[number % 2], BROKEN, 11.0 + number * 0.1)
    answers(group[2], 11.35)
    for number in range(4):
        ends(group[number % 2], BROKEN, 11.4 + number * 0.1)
        assert not is_held(group[0], 11.41 + number * 0.1)
    ends(group[2], BROKEN, 11.9)
    assert is_held(group[0], 11.91)


def test_every_answer_of_a_worker_is_reported_once_it_knows_of_a_row_and_no_longer(memory: Memory) -> None:
    one, other = workers(memory, 2)
    for each in (one, other):
        for number in range(40):
            answers(each, 10.0 + number / 100)
    ends(one, BROKEN, 11.0)
    assert not other.governor.traffic.is_watched
    answers(other, 11.01, "/elsewhere")  # the first after a tenth of a second is reported, and does not end the row
    assert other.governor.traffic.is_watched
    ends(one, BROKEN, 11.02)
    answers(other, 11.03)
    assert not other.governor.traffic.is_watched
    answers(one, 11.04, "/elsewhere")
    assert not one.governor.traffic.is_watched


@pytest.mark.parametrize("ending", [BROKEN, UNREACHED])
def test_a_worker_that_got_no_answer_itself_knows_that_others_did(memory: Memory, ending: AttemptEnding) -> None:
    silent, other = workers(memory, 2)
    for number in range(40):
        answers(other, 10.0 + number / 100)
    for number in range(5):
        ends(silent, ending, 300.0 + number * 0.03)
    assert is_held(other, 300.13)
    silent, other = workers(memory, 2)
    for number in range(5):
        ends(silent, ending, 300.0 + number * 0.03)
    assert not is_held(other, 300.13)


def test_a_row_of_refusals_counts_for_a_worker_that_got_no_answer_itself(memory: Memory) -> None:
    """Everything is refused, with no delay: one attempt at a time is sent if one was served in the last ten minutes."""
    for served in (True, False):
        silent, other = workers(memory, 2)
        if served:
            for number in range(40):
                answers(other, 10.0 + number / 100)
        for number in range(12):
            silent.fails(silent.sends(Waiting(), 11.0 + number * 0.05), REFUSED, 11.01 + number * 0.05)
        limit = silent.governor.first.limit
        assert limit.is_on
        assert limit.all_refused.is_on == served


def test_an_outage_that_was_forgotten_begins_again_with_five(memory: Memory) -> None:
    for count in (1, 2):
        group = workers(memory, count)
        for each in group:
            for number in range(40):
                answers(each, 10.0 + number / 100)
        for number in range(5):
            ends(group[0], UNREACHED, 11.0 + number * 0.03)
        assert is_held(group[-1], 11.13)
        assert not is_held(group[-1], 40.0)  # no attempt for ten seconds
        for number in range(4):
            ends(group[-1], UNREACHED, 41.0 + number * 0.1)
            assert not is_held(group[0], 41.01 + number * 0.1)
        ends(group[0], UNREACHED, 41.5)
        assert is_held(group[-1], 41.51)


@pytest.mark.parametrize("ending", [BROKEN, UNREACHED, GATEWAY])
@pytest.mark.parametrize("forgets", [0, 1])
@pytest.mark.parametrize("fails", [(0,), (1,), (0, 1)])
def test_an_outage_that_one_worker_forgot_is_none_for_the_others(
    memory: Memory, ending: AttemptEnding, forgets: int, fails: tuple[int, ...]
) -> None:
    """A worker that knew of the outage, and held no call, took it for one still: it began no other."""
    begun = []
    for count in (1, 2):
        group = workers(memory, count)
        for each in group:
            for number in range(40):
                answers(each, 10.0 + number / 100)
        for number in range(5):
            ends(group[0], ending, 11.0 + number * 0.03)
        assert all(is_held(each, 11.13) for each in group)
        assert not is_held(group[forgets % count], 40.0)  # no attempt for ten seconds
        for number in range(8):
            ends(group[fails[number % len(fails)] % count], ending, 41.0 + number * 0.1)
            if is_held(group[0], 41.01 + number * 0.1):
                break
        begun.append(number)
    assert begun[0] == begun[1] < 7


def test_a_scope_has_one_record_and_in_trouble_its_rows_and_a_lane_of_a_path_too(memory: Memory) -> None:
    """There is room for the records of all scopes that are kept: a table that is full gives away those of others."""
    used = memory.lanes.used
    group = workers(memory, 2)
    for number in range(40):
        answers(group[number % 2], 10.0 + number / 100)
    assert memory.lanes.used == used + 1
    ends(group[0], GATEWAY, 11.0)
    ends(group[1], GATEWAY, 11.1)
    assert memory.lanes.used == used + 3
    assert 3 * MOST_SCOPES < 0.5 * records.LANES


DYING = """
import sys
sys.path.insert(0, {tests!r})
from callers import UNREACHED, Worker
from test_shared_lost_rows import ends
from proxy.stores.shared_memory.factory import SharedFactory, open_memory

worker = Worker(SharedFactory(open_memory(int(sys.argv[1]))), sys.argv[2])
for number in range(3):
    ends(worker, UNREACHED, 11.0 + number * 0.03)
rows = worker.governor.lanes.lost
rows.record.open()  # as in the middle of a count
print("counted", flush=True)
sys.stdin.readline()
"""


def test_what_a_killed_worker_has_counted_counts_and_holds_up_no_other(memory: Memory) -> None:
    (one,) = workers(memory, 2)[:1]
    upstream = f"rows {next(unshared) - 1}"
    for number in range(40):
        answers(one, 10.0 + number / 100)
    arguments = [sys.executable, "-c", DYING.format(tests=str(Path(__file__).parent)), str(memory.descriptor), upstream]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, pass_fds=[memory.descriptor]) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"counted\n"
        dying.send_signal(signal.SIGKILL)
    ends(one, UNREACHED, 11.1)
    assert not is_held(one, 11.11)
    ends(one, UNREACHED, 11.13)
    assert is_held(one, 11.14)


def rows_of(memory: Memory, count: int = 2) -> list[LostRows]:
    return [each.governor.lanes.lost for each in workers(memory, count)]


def test_rows_are_the_same_in_all_workers(memory: Memory) -> None:
    one, other = rows_of(memory)
    assert isinstance(other, lost_rows.SharedLostRows)
    names = caller("/x").names
    for number, how in enumerate(("503", "reset", "504", "attempt_timeout", "502", "connect_failure")):
        one.lost_route("e:80", names, how, False, 10.0 + number)
        one.lost_path("e:80", names, how, 5.0, 10.0 + number)
        one.lost_endpoint("e:80", how, 0.0, 10.0 + number)
    assert not other.is_suspected("e:80")
    assert other.refresh()
    assert not other.refresh()
    assert other.is_suspected("e:80")
    assert not other.is_suspected("f:80")
    found = [*other.rows.values(), *other.endpoints.values()]
    assert [(row.count, row.since) for row in found] == [(6, 10.0)] * 3
    assert {tuple(row.endings) for row in found} == {("reset", "504", "attempt_timeout", "502", "connect_failure")}
    assert [row.answered_at for row in found][1] == 5.0
    assert other.answered("e:80", names, 20.0)
    assert other.endpoint_answered("e:80")
    assert not other.endpoint_answered("e:80")
    assert isinstance(one, lost_rows.SharedLostRows)
    assert one.refresh()
    assert not one.rows
    assert not one.endpoints


def test_paths_make_room_for_others_first_and_are_forgotten_if_none_fails_for_long(memory: Memory) -> None:
    (one,) = rows_of(memory, 2)[:1]
    names = [caller(f"/{number}").names for number in range(40)]
    one.lost_endpoint("e:80", "reset", 0.0, 9.0)
    for each in names:
        one.lost_route("", each, "503", False, 10.0)
        one.lost_path("", each, "503", 0.0, 10.0)
    assert one.is_suspected("e:80")
    assert len(one.rows) < 40
    assert one.lost_route("", names[0], "503", False, 10.0).count == 41, "all are of one route"
    assert one.lost_path("", names[-1], "503", 0.0, 10.0).count == 2
    assert one.lost_path("", names[0], "503", 0.0, 10.0).count == 1, "it had to make room"
    assert one.answered("", caller("/answered").names, 10.1 + FORGOTTEN_AFTER)
    assert not one.rows


def test_a_path_is_told_from_its_route_where_many_routes_fail(memory: Memory) -> None:
    """The record was full of routes: each attempt of the path made room by the path's own row, which counted one."""
    (one,) = rows_of(memory, 2)[:1]
    for number in range(100):
        one.lost_route("", Caller(Request("GET", "u.example", "/x"), NO_FIELDS, f"r{number}").names, "503", False, 9.0)
    names = caller("/polled").names
    counts = [
        (one.lost_route("", names, "503", False, at).count, one.lost_path("", names, "503", 0.0, at).count)
        for at in (10.0, 11.0, 12.0)
    ]
    assert counts == [(1, 1), (2, 2), (3, 3)]
