"""When a rate's tokens come to the processes that wait for them: in the order in which they asked, and all of them."""

from __future__ import annotations

import pytest
from redis import Redis
from support.redis_server import client_of_own, needs_redis
from support.timed_scripts import timed

pytestmark = needs_redis
RATE, BEGIN = 10.0, 5_000_000


class Line:
    """Processes at one rate, whose time is the test's: what each is told of its tokens."""

    def __init__(self, redis: Redis, key: str, capacity: float) -> None:
        self._redis, self._key, self._capacity = redis, key, capacity
        self._script = timed("rate")
        self._numbers: dict[str, int] = {}

    def ask(
        self, who: str, at: float, waiting: float, *, needs: float = 1.0, keep: float = 0.0, spent: float = 0.0,
        more: float = 0.0, demand: float = 0.0,
    ) -> list[bytes]:  # fmt: skip
        """A report: so many tokens are waited for, of which the first call needs `needs`."""
        self._numbers[who] = number = self._numbers.get(who, 0) + 1
        report = [spent, 0, 0, 0, keep, waiting, needs, more, demand, 0, len(self._numbers)]
        words = [who, number, "", *report, "", 0, self._capacity, RATE, 0, 0, needs, "", "making", 10, 60_000]
        micros = round(at * 1e6)
        reply = self._redis.eval(self._script, 1, self._key, *words, BEGIN + micros // 1_000_000, micros % 1_000_000)  # type: ignore[arg-type]
        assert isinstance(reply, list)
        return reply[1:]

    def token_at(self, who: str, at: float, waiting: float = 1.0, **more: float) -> float:
        """The time at which the process has the last of the tokens that it asks for; those that are there: now."""
        reply = self.ask(who, at, waiting, **more)
        reserved, first, free = (float(each) for each in reply[4:7])
        return round(at + first + (reserved - 1) / free, 6) if reserved else at


redis = pytest.fixture(scope="module")(client_of_own)


@pytest.mark.parametrize("names", ["abcd", "dcba", "bdac"])
def test_tokens_go_to_those_who_wait_in_the_order_in_which_they_asked(redis: Redis, names: str) -> None:
    """Whatever their names, and whoever reports again meanwhile."""
    line = Line(redis, f"order {names}", 1.0)
    assert [line.token_at(who, 0.01 * number) for number, who in enumerate(names)] == [0.1, 0.2, 0.3, 0.4]
    first, *others = names
    for number, who in enumerate(reversed(others)):  # what each was promised stays its own
        assert float(line.ask(who, 0.05 + 0.01 * number, 0.0, keep=1.0)[0]) == 1.0
    # Who was served goes to the end of the line.
    assert line.token_at(first, 0.1, spent=1.0) == 0.5


def test_a_small_price_does_not_overtake_a_large_one(redis: Redis) -> None:
    line = Line(redis, "prices", 4.0)
    assert line.token_at("large", 0.0, 3.0, needs=3.0) == 0.3
    assert line.token_at("small", 0.01) == 0.4
    assert line.token_at("large", 0.02, 3.0, needs=3.0, keep=3.0) == pytest.approx(0.7)


def test_those_who_wait_go_before_tokens_to_keep_ready(redis: Redis) -> None:
    line = Line(redis, "ready", 20.0)
    line.ask("one", 0.0, 0.0)  # the rate begins empty
    granted = float(line.ask("one", 0.5, 3.0, more=20.0)[0])
    assert granted == 3.0 + 1.0  # and half of the other two are kept ready
    assert float(line.ask("two", 0.5, 2.0)[0]) == 1.0


def test_what_is_refilled_before_a_reserved_token_is_reported_as_spent_is_not_lost(redis: Redis) -> None:
    """The burst is one token, and the one that came is not taken for a full bucket."""
    line = Line(redis, "small burst", 1.0)
    assert line.token_at("one", 0.0) == 0.1
    assert line.token_at("one", 0.25, spent=1.0) == 0.25
