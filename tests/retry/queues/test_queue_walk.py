"""A walk along a queue gives each call the turn that counting from the head of the queue gives it."""

from __future__ import annotations

import weakref

from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.queues.queue_walk import QueueWalk, QueueWalks
from proxy.retry.queues.waiter import Waiter


class Call:
    def retime(self, at: float) -> None:
        """No call of this test has an alarm."""


def counted(queue: dict[Call, float], waiter: Call, gap: float, patience: float) -> float:
    turn = 5.0
    for other, since in queue.items():
        if other is waiter:
            break
        if turn + gap <= since + patience:
            turn += gap
    return turn


@given(
    st.floats(0.01, 2.0),
    st.floats(0.5, 20.0) | st.just(float("inf")),
    st.lists(st.tuples(st.sampled_from(["came", "asked", "asked and left", "left"]), st.integers(0, 50)), max_size=60),
)
def test_each_turn_is_what_counting_gives(gap: float, patience: float, steps: list[tuple[str, int]]) -> None:
    queue: dict[Call, float] = {Call(): 0.1 * nth for nth in range(10)}
    walk = QueueWalk(queue, 5.0, gap, patience)
    for step, nth in steps:
        if step == "came":
            queue[came := Call()] = 2.0
            walk.joined(came)
            continue
        if not queue:
            continue
        waiter = list(queue)[nth % len(queue)]
        if step.startswith("asked"):
            assert walk.turn_of(waiter) == counted(queue, waiter, gap, patience)
        if step.endswith("left"):
            del queue[waiter]
            if not walk.left(waiter):
                walk = QueueWalk(queue, 5.0, gap, patience)
    assert walk.is_of(queue, 5.0, gap, patience)
    assert walk.turn_of(Call()) == counted(queue, Call(), gap, patience)


def test_a_walk_goes_on_when_the_call_that_asked_last_leaves() -> None:
    queue = {Call(): float(nth) for nth in range(5)}
    calls = list(queue)
    walk = QueueWalk(queue, 0.0, 1.0, float("inf"))
    assert walk.turn_of(calls[2]) == 2
    del queue[calls[2]]
    assert walk.left(calls[2])
    assert walk.is_of(queue, 0.0, 1.0, float("inf"))
    assert [walk.turn_of(call) for call in (calls[1], calls[3], calls[4])] == [1, 2, 3]


def test_a_walk_is_over_when_a_call_leaves_that_others_have_passed() -> None:
    queue = {Call(): float(nth) for nth in range(5)}
    calls = list(queue)
    walk = QueueWalk(queue, 0.0, 1.0, float("inf"))
    assert walk.turn_of(calls[4]) == 4
    del queue[calls[1]]
    assert not walk.left(calls[1])


def test_nothing_is_kept_of_calls_that_come_after_a_walk_is_over() -> None:
    queue: dict[Waiter, float] = {Call(): float(nth) for nth in range(3)}
    walks = QueueWalks()
    calls = list(queue)
    assert walks.number_of(calls[1], queue) == 1
    del queue[calls[0]]
    walks.left(calls[0])
    late = Call()
    gone = weakref.ref(late)
    queue[late] = 5.0
    walks.joined(late)
    del queue[late]
    walks.left(late)
    del late
    assert gone() is None
