"""Who is served, who is told that there is no room, and who is closed; between two workers too."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.resources import REFUSED_IN_WORDS
from proxy.server import connection_limit
from proxy.server.connection_limit import ConnectionLimit
from proxy.stores.shared_memory.factory import open_memory
from proxy.stores.shared_memory.records import Memory, descriptor
from proxy.supervisor.rows import Neighbours, Rows


class Connection:
    """What is looked at of a connection. Closing it is told later, as a loop does."""

    def __init__(self, since: float = 0.0) -> None:
        self.surplus = False
        self.exchange: object | None = None
        self.since = since
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    @property
    def how(self) -> str:
        return "closed" if self.aborted else "told" if self.surplus else "served"


def enter(of: ConnectionLimit, count: int, **how: Any) -> list[Connection]:
    came = [Connection(**how) for _ in range(count)]
    for each in came:
        of.enter(each)  # type: ignore[arg-type]
    return came


def test_served_then_told_then_closed() -> None:
    came = [each.how for each in enter(ConnectionLimit(3, 100), 3 + REFUSED_IN_WORDS + 2)]
    assert came == ["served"] * 3 + ["told"] * 100 + ["closed"] * (REFUSED_IN_WORDS - 100 + 2)
    assert [each.how for each in enter(ConnectionLimit(1000, 5), 11)] == ["served"] * 5 + ["told"] * 5 + ["closed"]


def test_those_that_were_to_be_told_do_not_take_up_room() -> None:
    few = ConnectionLimit(2, 100)
    first, second, third = enter(few, 3)
    assert not few.admit(third)  # type: ignore[arg-type]
    few.leave(first)  # type: ignore[arg-type]
    assert few.admit(third)  # type: ignore[arg-type]
    assert [each.how for each in enter(few, 1)] == ["told"]
    few.leave(second)  # type: ignore[arg-type]
    few.leave(second)  # type: ignore[arg-type]
    assert [each.how for each in enter(few, 2)] == ["served", "told"]


def test_one_that_rested_makes_room_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several may be accepted in one turn of the loop, before the closed one's end is told."""
    monkeypatch.setattr(connection_limit, "monotonic", lambda: 1000.0)
    few = ConnectionLimit(2, 100)
    (rested,) = enter(few, 1, since=900.0)
    enter(few, 1, since=999.0)
    assert [each.how for each in enter(few, 3, since=1000.0)] == ["served", "told", "told"]
    assert rested.aborted
    few.leave(rested)  # type: ignore[arg-type]
    assert len(few.open) == 4


def test_a_lowered_limit() -> None:
    few = ConnectionLimit(5, 100)
    enter(few, 5)
    few.limit = 2
    assert [each.how for each in enter(few, 1)] == ["told"]


def two_workers(limit: int, most: int) -> tuple[Memory, ConnectionLimit, ConnectionLimit]:
    """The memory that two workers share, and the view that each has of their one limit; `most`: what each may hold."""
    memory = open_memory(descriptor())
    rows = Rows(memory)
    one, other = ConnectionLimit(limit, most), ConnectionLimit(limit, most)
    one.others, other.others = Neighbours(memory, rows.take()), Neighbours(memory, rows.take())
    return memory, one, other


def test_two_workers_share_one_limit() -> None:
    memory = open_memory(descriptor())
    rows = Rows(memory)
    workers = []
    for _ in range(2):
        of = ConnectionLimit(10, 1000)
        of.others = Neighbours(memory, rows.take())
        workers.append(of)
    came = [each for turn in range(100) for each in enter(workers[turn % 2], 2)]
    assert [sum(each.how == how for each in came) for how in ("served", "told", "closed")] == [
        10,
        REFUSED_IN_WORDS,
        200 - 10 - REFUSED_IN_WORDS,
    ]
    assert Neighbours(memory, rows.take()).count() == (10, REFUSED_IN_WORDS)
    rows.free(1)  # that worker is dead
    assert sum(each.how == "served" for each in enter(workers[1], 10)) == 6


def test_the_last_seat_is_not_given_to_two_that_come_at_once() -> None:
    """The second comes when the first has said that it is there, and has not yet looked who else is."""
    memory, one, other = two_workers(1, 10)
    late: list[Connection] = []

    class Interrupted(Neighbours):
        def count(self) -> tuple[int, int]:
            if not late:
                late.extend(enter(other, 1))
            return super().count()

    one.others = Interrupted(memory, 1)
    (first,) = enter(one, 1)
    assert [first.how, late[0].how].count("served") <= 1


def test_one_refused_while_the_others_are_counted_gives_no_room() -> None:
    """Another worker refuses a connection between two words that are read here."""
    memory, one, other = two_workers(3, 10)
    enter(other, 3)

    class Changing:
        """The words of shared memory, where each reading is followed by the refusal of one more connection."""

        def __getitem__(self, index: int) -> int:
            value = memory.words[index]
            assert [each.how for each in enter(other, 1)] == ["told"]
            return value

        def __setitem__(self, index: int, value: int) -> None:
            memory.words[index] = value

    one.others._words = Changing()
    assert [each.how for each in enter(one, 1)] == ["told"]
    assert not one.expect()


def test_one_that_comes_back_is_not_served_beyond_the_limit() -> None:
    """Another worker has used the place of a connection that was to be given away."""
    _, one, other = two_workers(1, 10)
    (first,) = enter(one, 1)
    one.leave(first)  # type: ignore[arg-type]
    (second,) = enter(other, 1)
    one.come_back(first)  # type: ignore[arg-type]
    assert [first.how, second.how] == ["told", "served"]
    other.leave(second)  # type: ignore[arg-type]
    assert one.admit(first)  # type: ignore[arg-type]
    one.leave(first)  # type: ignore[arg-type]
    one.come_back(first)  # type: ignore[arg-type]
    assert first.how == "served"


def test_one_that_is_not_admitted_keeps_its_place_among_those_to_be_told() -> None:
    """Another worker holds one more connection while this one finds out whether there is room for its request."""
    memory, one, other = two_workers(1, 1000)
    enter(other, 1)
    told = enter(one, REFUSED_IN_WORDS)
    late: list[Connection] = []

    class Interrupted(Neighbours):
        def count(self) -> tuple[int, int]:
            late.extend(enter(other, 1))
            return super().count()

    one.others = Interrupted(memory, 1)
    assert not one.admit(told[0])  # type: ignore[arg-type]
    assert {each.how for each in late} == {"closed"}
    assert Neighbours(memory, 3).count() == (1, REFUSED_IN_WORDS)


def test_a_place_is_not_promised_to_two_connections_that_are_handed_over() -> None:
    """Two workers take a connection each before either has begun to serve it."""
    _, one, other = two_workers(2, 10)
    enter(other, 1)
    assert one.expect()
    assert not other.expect()
    other.forget()
    assert [each.how for each in enter(other, 1)] == ["told"]
    one.arrives()
    assert [each.how for each in enter(one, 1)] == ["served"]
    assert not one.expect()
