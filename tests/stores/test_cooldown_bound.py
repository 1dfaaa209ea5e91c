"""More credentials cool than a cooldown remembers: the one soonest over makes room, nothing looks at all of them; in
one process, and over workers.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
from callers import Waiting, cooling

from proxy.retry.facts import MappingFields
from proxy.retry.scopes.factory import Factory
from proxy.retry.weather.cooldown import ALL_CALLERS, MOST_GROUPS, credential_of
from proxy.retry.weather.governor import Governor
from proxy.stores.redis.scopes import Heard
from proxy.stores.shared_memory import records
from proxy.stores.shared_memory.factory import SharedFactory, open_memory

Make = Callable[[], Governor]


class Unscanned(dict[Any, Any]):
    """A table that is never gone through."""

    def _scanned(self, *_: object) -> NoReturn:
        raise AssertionError("all groups were looked at")

    __iter__ = values = items = keys = _scanned  # type: ignore[assignment]


@pytest.fixture(params=["process", "workers"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes cooldowns of one scope: over workers, each is another worker's."""

    def made(factory: Factory) -> Governor:
        governor = factory.governor("u", "")
        if inspect.isfunction(Governor.requests_wait):  # compiled code takes a plain dict only
            governor.lanes.by_name = Unscanned(governor.lanes.by_name)
        return governor

    if request.param == "process":
        yield lambda: made(Factory())
        return
    memory = open_memory(records.descriptor())
    yield lambda: made(SharedFactory(memory))


def who(number: int) -> MappingFields:
    return MappingFields([("authorization", f"Bearer {number}")])


def asks(governor: Governor, fields: MappingFields, status: int, delay: float, *, sent: float, now: float) -> Any:
    """An answer to a call with these fields, sent at `sent`, asks for a delay."""
    return governor.requests_wait(cooling(fields), status, delay, sent=sent, now=now, whole=True)


def fill(governor: Governor, delay: Callable[[int], float] = lambda n: 10.0 + n % 40) -> None:
    for n in range(MOST_GROUPS):
        asks(governor, who(n), 429, delay(n), sent=0.0, now=0.0)


def test_a_newcomers_429_begins_a_cooldown(make: Make) -> None:
    governor = make()
    fill(governor)
    for n in range(MOST_GROUPS, MOST_GROUPS + 200):
        assert asks(governor, who(n), 429, 30.0, sent=0.0, now=1.0) == ("", credential_of(who(n)))
        assert governor.holds(2.0)
        assert governor.ask(Waiting(), cooling(who(n)), 2.0)[0] > 2.0
    assert len(governor.lanes.by_name) == MOST_GROUPS + 1  # and the lane of all callers


def test_the_one_soonest_over_makes_room() -> None:
    governor = Factory().governor("u", "")
    delays = random.Random(7).sample(range(10, 5000), MOST_GROUPS)
    fill(governor, lambda n: float(delays[n]))
    asks(governor, who(3), 429, 9000.0, sent=0.5, now=0.5)  # an end that moved
    delays[3] = 9000
    for n in sorted(range(MOST_GROUPS), key=delays.__getitem__)[:20]:
        assert governor.holds_caller(who(n), 1.0)
        asks(governor, who(MOST_GROUPS + n), 429, 9999.0, sent=1.0, now=1.0)
        assert not governor.holds_caller(who(n), 1.0)


def test_a_call_in_the_queue_stays_there_when_its_own_attempt_is_given_the_same_delay(make: Make) -> None:
    governor, waiter = make(), Waiting()
    asks(governor, who(0), 429, 5.0, sent=0.0, now=0.0)
    held = governor.ask(waiter, cooling(who(0)), 1.0)[0]
    assert held > 1.0
    assert governor.ask(waiter, cooling(who(0)), 1.0, own=(5.0,))[0] == held
    assert (
        governor.ask(Waiting(), cooling(who(0)), 1.0, own=(5.0,))[0] == 1.0
    )  # its own delay holds no call that was not held


def test_all_callers_group_makes_room_for_none(make: Make) -> None:
    governor = make()
    asks(governor, who(0), 503, 5.0, sent=0.0, now=0.0)
    for n in range(2 * MOST_GROUPS):
        asks(governor, who(n), 429, 30.0, sent=0.0, now=0.0)
    assert ("", ALL_CALLERS) in governor.lanes.by_name
    assert governor.holds_caller(who(-1), 1.0)


def test_one_that_holds_calls_is_kept_rather_than_one_that_holds_none(make: Make) -> None:
    governor, held = make(), Waiting()
    asks(governor, who(0), 429, 5.0, sent=0.0, now=0.0)
    assert governor.ask(held, cooling(who(0)), 0.0)[0] > 0.0
    for n in range(1, MOST_GROUPS + 3):
        asks(governor, who(n), 429, 30.0, sent=0.0, now=0.0)
    assert ("", credential_of(who(0))) in governor.lanes.by_name
    assert governor.ask(held, cooling(who(0)), 1.0)[0] > 1.0


def test_calls_of_one_that_makes_room_ask_again(make: Make) -> None:
    governor, callers = make(), [Waiting() for _ in range(MOST_GROUPS)]
    fill(governor, lambda n: 10.0 + n)
    for n, caller in enumerate(callers):
        assert governor.ask(caller, cooling(who(n)), 0.0)[0] > 0.0
        caller.at = -1.0
    asks(governor, who(MOST_GROUPS), 429, 9000.0, sent=1.0, now=1.0)
    assert [n for n, caller in enumerate(callers) if caller.at >= 0] == [0]


def test_a_worker_that_comes_to_know_the_lanes_of_others_is_bounded_too() -> None:
    memory = open_memory(records.descriptor())
    one, other = (SharedFactory(memory).governor("u", "") for _ in range(2))
    for n in range(MOST_GROUPS + 100):
        asks(one, who(n), 429, 30.0, sent=0.0, now=0.0)
        assert other.holds_caller(who(n), 1.0)
    assert len(other.lanes.by_name) == MOST_GROUPS + 1


def test_from_when_on_no_call_is_held_is_known_without_a_look_at_all_lanes() -> None:
    """As a look at all would say, whatever came before."""
    chance, governor, now = random.Random(5), Factory().governor("u", ""), 0.0
    latest, callers = 0.0, dict[Waiting, MappingFields]()
    for _ in range(3000):
        now += chance.random() / 4
        fields, what = who(chance.randrange(20)), chance.randrange(5)
        if what == 0:
            delay = chance.random() * 3
            latest = max(latest, now + delay)
            asks(governor, fields, chance.choice((429, 429, 503)), delay, sent=now - chance.random(), now=now)
        elif what in (1, 2):
            callers[caller := Waiting()] = fields
            governor.ask(caller, cooling(fields), now)
        elif callers:
            caller = chance.choice(list(callers))
            if what == 3:
                governor.leave(caller, now)
                del callers[caller]
            elif governor.ask(caller, cooling(callers[caller]), now)[0] <= now:
                attempt, who_asks = object(), cooling(callers[caller])
                if governor.sent(caller, attempt, now):
                    governor._landed(attempt, who_asks, now, now, well=chance.random() < 0.5)
                del callers[caller]
        held = any(group.queue for group in governor.lanes.by_name.values())
        assert governor.lanes.quiet_from == (float("inf") if held else latest or -float("inf"))


def test_cooldowns_heard_of_before_their_place_is_used_are_bounded() -> None:
    heard = Heard()
    for n in range(MOST_GROUPS + 50):
        heard.note(("", str(n).encode()), 1000.0 - n, 429)
    assert len(heard.lanes) == MOST_GROUPS
    assert ("", str(MOST_GROUPS + 49).encode()) in heard.lanes
    heard.note(("", b"0"), 2000.0, 503)
    heard.note(("", b"0"), 5.0, 429)
    assert heard.lanes["", b"0"] == (2000.0, 503)
