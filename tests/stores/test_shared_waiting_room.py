"""Workers that wait in one room: its limits are those of all together, and a dead worker's places are free again."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.stores.shared_memory import waiting_room
from proxy.stores.shared_memory.records import PAGE_PAIRS, Memory, digest
from proxy.stores.shared_memory.waiting_room import SharedWaitingRoom
from proxy.supervisor.rows import Rows

shapes = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


def rooms(memory: Memory, capacity: int, workers: int = 2) -> list[SharedWaitingRoom]:
    rows = Rows(memory)
    return [SharedWaitingRoom(memory, rows.take(), capacity) for _ in range(workers)]


def test_half_of_the_room_is_counted_over_all_workers(own_memory: Memory) -> None:
    one, two = rooms(own_memory, 4)
    assert one.enter("a", held=True)
    assert two.enter("a", held=True)
    assert not one.enter("a", held=True)
    assert not two.enter("a", held=True)
    assert two.enter("b", held=True)
    one.leave("a", held=True)
    assert two.enter("a", held=True)
    assert one.enter("b")
    assert not two.enter("b"), "four of four are taken"


def test_who_only_looks_sees_what_all_workers_hold(own_memory: Memory) -> None:
    one, two = rooms(own_memory, 10)
    looking = SharedWaitingRoom(own_memory, 0)
    assert looking.held_for("a") == 0
    assert one.enter("a", held=True)
    assert two.enter("a", held=True)
    assert two.enter("a")
    assert two.enter("b", held=True)
    assert [room.held_for("a") for room in (looking, one, two)] == [2, 2, 2]
    one.leave("a", held=True)
    assert looking.held_for("a") == 1


@shapes
@given(
    st.integers(0, 7),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abcd"), st.booleans(), st.booleans()), max_size=80),
)
def test_three_workers_answer_as_one(
    own_memory: Memory, capacity: int, script: list[tuple[int, str, bool, bool]]
) -> None:
    whole, parts = WaitingRoom(capacity), rooms(own_memory, capacity, 3)
    inside: list[tuple[int, str, bool]] = []
    for worker, upstream, held, enters in script:
        if enters:
            answer = parts[worker].enter(upstream, held=held)
            assert answer == whole.enter(upstream, held=held)
            if answer:
                inside.append((worker, upstream, held))
        elif (worker, upstream, held) in inside:
            inside.remove((worker, upstream, held))
            parts[worker].leave(upstream, held=held)
            whole.leave(upstream, held=held)
        assert sum(part.waiting for part in parts) == whole.waiting
    for worker, upstream, held in inside:
        parts[worker].leave(upstream, held=held)
    for row in (1, 2, 3):
        page = own_memory.page(row)
        assert not any(own_memory.words[page : page + 1 + 2 * PAGE_PAIRS]), "nothing is left behind"


def test_upstreams_whose_names_meet_in_the_table_are_told_apart(
    own_memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {f"u{number}": 1 + PAGE_PAIRS * (1 + number) for number in range(5)}  # all have one home, near the end
    monkeypatch.setattr(waiting_room, "digest", lambda _sort, name: keys[name] + PAGE_PAIRS - 3)
    one, two = rooms(own_memory, 10)
    for name in keys:
        assert one.enter(name, held=True)
    for name in ("u0", "u2"):
        one.leave(name, held=True)
    for name, count in {"u0": 5, "u1": 4, "u2": 5, "u3": 4, "u4": 4}.items():
        taken = 0
        while two.enter(name, held=True):
            taken += 1
        assert taken == min(count, 10 - 3)
        for _ in range(taken):
            two.leave(name, held=True)
    for name in ("u4", "u1", "u3"):
        one.leave(name, held=True)
    assert one.enter("u3", held=True)
    one.leave("u3", held=True)
    for row in (1, 2):
        page = own_memory.page(row)
        assert not any(own_memory.words[page : page + 1 + 2 * PAGE_PAIRS])


def test_more_upstreams_than_the_table_has_places_for(own_memory: Memory) -> None:
    (one,) = rooms(own_memory, 2 * PAGE_PAIRS, 1)
    page = own_memory.page(1)
    for pair in range(PAGE_PAIRS):
        own_memory.words[page + 1 + 2 * pair], own_memory.words[page + 2 + 2 * pair] = digest("other", pair), 1
    assert not one.enter("a", held=True)
    assert one.waiting == 0
    assert one.enter("a")


HOLDS = """
import sys
from proxy.stores.shared_memory.factory import open_memory
from proxy.stores.shared_memory.waiting_room import SharedWaitingRoom
room = SharedWaitingRoom(open_memory(int(sys.argv[1])), int(sys.argv[2]), 4)
print([room.enter("a", held=True) for _ in range(3)], flush=True)
room._memory.waiting_lock.__enter__()  # and it dies with the lock in its hands
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_killed_worker_gives_its_places_back(own_memory: Memory) -> None:
    rows = Rows(own_memory)
    mine, others = rows.take(), rows.take()
    room = SharedWaitingRoom(own_memory, mine, 4)
    command = [sys.executable, "-c", HOLDS, str(own_memory.descriptor), str(others)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[own_memory.descriptor]
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "[True, True, False]\n"
        assert worker.stdout.readline() == "held\n"
        worker.send_signal(signal.SIGKILL)
    assert not room.enter("a", held=True), "nobody has said that it is gone"
    rows.free(others)
    assert [room.enter("a", held=True) for _ in range(3)] == [True, True, False]
