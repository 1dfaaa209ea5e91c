"""Workers that share places for attempts under way: the limit is that of all together, whoever came first goes first,
and a dead worker's places come back.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.policies.policy import Concurrency
from proxy.stores.shared_memory.concurrency import POLL, STALE
from proxy.stores.shared_memory.factory import SharedFactory
from proxy.stores.shared_memory.records import SLOT, SLOTS, Memory
from proxy.supervisor.rows import Rows

shapes = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
KEY = ("u", "concurrency", "x")
RULES = Concurrency(1, wait=1e9)


class Caller:
    def __init__(self) -> None:
        self.served_at: list[float] = []

    def retime(self, at: float) -> None:
        self.served_at.append(at)


def doors(memory: Memory, most: int, workers: int = 2) -> list[Places]:
    rows = Rows(memory)
    return [SharedFactory(memory, row=rows.take()).places(KEY, most) for _ in range(workers)]


def test_the_limit_is_that_of_all_workers_together(own_memory: Memory) -> None:
    one, two = doors(own_memory, 2)
    assert one.ask(Caller(), RULES, 0.0) == 0.0
    assert two.ask(Caller(), RULES, 0.0) == 0.0
    assert one.ask(Caller(), RULES, 0.0) == POLL
    two.give_back(1.0)
    assert one.ask(next(iter(one.queue)), RULES, 1.0) == 1.0
    assert (one.total(1.0), two.total(1.0)) == ((2, 0), (2, 0))


def test_a_place_goes_to_who_came_first_in_whichever_worker(own_memory: Memory) -> None:
    one, two = doors(own_memory, 1)
    first, second, third = (Caller() for _ in range(3))
    assert one.ask(Caller(), RULES, 0.0) == 0.0
    two.ask(first, RULES, 0.1)
    one.ask(second, RULES, 0.2)
    one.give_back(0.21)
    assert second.served_at == [0.21]
    assert one.ask(second, RULES, 0.21) > 0.21, "somebody waits in the other worker for longer"
    assert one.ask(third, RULES, 0.22) > 0.22
    assert two.ask(first, RULES, 0.23) == 0.23
    two.give_back(0.24)
    assert two.ask(Caller(), RULES, 0.24) > 0.24, "two wait in the other worker"
    assert one.ask(second, RULES, 0.25) == 0.25


def test_a_worker_that_does_not_look_any_more_holds_up_nobody(own_memory: Memory) -> None:
    one, two = doors(own_memory, 1)
    one.ask(Caller(), RULES, 0.0)
    two.ask(Caller(), RULES, 0.1)
    one.give_back(0.2)
    assert one.ask(Caller(), RULES, 0.2) > 0.2
    assert one.ask(next(iter(one.queue)), RULES, 0.1 + STALE + 0.01) == 0.1 + STALE + 0.01


def test_the_queue_is_that_of_all_workers_together(own_memory: Memory) -> None:
    one, two = doors(own_memory, 1)
    rules = Concurrency(1, 2, 10.0)
    assert one.ask(Caller(), rules, 0.0) == 0.0
    assert one.ask(Caller(), rules, 0.0) < 10.0
    assert two.ask(Caller(), rules, 0.0) < 10.0
    assert one.ask(Caller(), rules, 0.0) == REJECTED
    assert two.ask(Caller(), rules, 0.0) == REJECTED


def test_who_only_looks_sees_all_of_it_and_takes_no_part(own_memory: Memory) -> None:
    one, two = doors(own_memory, 1)
    looking = SharedFactory(own_memory).places(KEY, 1)
    assert looking.total(0.0) == (0, 0)
    assert not any(own_memory.words[own_memory.slots : own_memory.slots + SLOTS]), "a slot is given to who uses it"
    one.ask(Caller(), RULES, 0.0)
    two.ask(Caller(), RULES, 0.0)
    assert looking.total(0.0) == (1, 1)


@shapes
@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["come", "come", "ask", "leave", "back"]), st.integers(0, 9))
    ),
)
def test_three_workers_answer_as_one(own_memory: Memory, most: int, script: list[tuple[int, str, int]]) -> None:
    """One process that has all the callers, beside three that share memory: the same ones go, in the same order."""
    layout_rows = [1, 2, 3]
    for row in layout_rows:
        own_memory.wipe_pages(row)
    rules = Concurrency(most, 5, 1e9)
    whole, parts = Places(most), doors(own_memory, most, 3)
    inside: list[int] = []
    waiting: list[tuple[int, Caller, Caller]] = []  # the worker, and who waits there and in the one process
    for step, (worker, what, which) in enumerate(script):
        now = step * STALE / 100
        for at, caller, _ in list(waiting):  # each worker's first looks in time
            if caller is next(iter(parts[at].queue)) and (len(inside) == most or caller is not waiting[0][1]):
                assert parts[at].ask(caller, rules, now) > now
        if what == "come":
            caller, double = Caller(), Caller()
            at = parts[worker].ask(caller, rules, now)
            assert (at <= now) == (whole.ask(double, rules, now) <= now)
            if at <= now:
                inside.append(worker)
            elif at < REJECTED:
                waiting.append((worker, caller, double))
        elif what == "ask" and waiting:
            place = which % len(waiting)
            worker, caller, double = waiting[place]
            goes = parts[worker].ask(caller, rules, now) <= now
            assert goes == (whole.ask(double, rules, now) <= now)
            if goes:
                assert place == 0
                inside.append(waiting.pop(0)[0])
        elif what == "leave" and waiting:
            worker, caller, double = waiting.pop(which % len(waiting))
            parts[worker].leave(caller, now)
            whole.leave(double, now)
        elif what == "back" and inside:
            parts[inside.pop(which % len(inside))].give_back(now)
            whole.give_back(now)
        assert sum(part.in_use for part in parts) == whole.in_use == len(inside) <= most
        assert parts[0].total(now) == (len(inside), len(waiting))


def test_keys_that_meet_in_the_directory_are_told_apart(own_memory: Memory) -> None:
    from proxy.stores.shared_memory.concurrency import SharedPlaces

    row = Rows(own_memory).take()
    keys = [1 + SLOTS * number for number in range(1, 5)]
    places = [SharedPlaces(own_memory, row, key, 1) for key in keys]
    assert [each.ask(Caller(), RULES, 0.0) for each in places] == [0.0] * 4
    assert [each.total(0.0) for each in places] == [(1, 0)] * 4
    places[0].give_back(1.0)  # its slot is unused, and may be another's
    other = SharedPlaces(own_memory, row, 1 + SLOTS * 9, 1)
    assert other.ask(Caller(), RULES, 1.0) == 1.0
    assert places[0].ask(Caller(), RULES, 1.0) == 1.0
    assert [each.total(1.0) for each in (*places, other)] == [(1, 0)] * 5


def test_more_keys_at_a_time_than_there_are_slots(own_memory: Memory) -> None:
    from proxy.stores.shared_memory.concurrency import SharedPlaces

    rows = Rows(own_memory)
    mine, others = rows.take(), rows.take()
    for slot in range(SLOTS):
        own_memory.words[own_memory.slots + slot] = 7
        own_memory.words[own_memory.under_way(others) + slot * SLOT] = 1
    places, caller = SharedPlaces(own_memory, mine, 3, 1), Caller()
    assert places.ask(caller, RULES, 0.0) == POLL, "it waits until a slot is free"
    rows.free(others)
    assert places.ask(caller, RULES, POLL) == POLL


HOLDS = """
import sys, time
from proxy.retry.policies.policy import Concurrency
from proxy.stores.shared_memory.factory import SharedFactory, open_memory
class Caller:
    def retime(self, at): pass
factory = SharedFactory(open_memory(int(sys.argv[1])), row=int(sys.argv[2]))
places, now = factory.places(("u", "concurrency", "x"), 3), float(sys.argv[3])
print([places.ask(Caller(), Concurrency(3), now) <= now for _ in range(4)], flush=True)
places.memory.under_way_lock.__enter__()  # and it dies with the lock in its hands
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_killed_workers_places_come_back(own_memory: Memory) -> None:
    rows = Rows(own_memory)
    mine, others = rows.take(), rows.take()
    places, now = SharedFactory(own_memory, row=mine).places(KEY, 3), time.monotonic()
    command = [sys.executable, "-c", HOLDS, str(own_memory.descriptor), str(others), str(now)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[own_memory.descriptor]
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "[True, True, True, False]\n"
        assert worker.stdout.readline() == "held\n"
        worker.send_signal(signal.SIGKILL)
    callers = [Caller() for _ in range(3)]
    assert [places.ask(each, RULES, now) > now for each in callers] == [True] * 3, "nobody has said that it is gone"
    rows.free(others)
    assert [places.ask(each, RULES, now) for each in callers] == [now] * 3
    assert places.total(now) == (3, 0)
