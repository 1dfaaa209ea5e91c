"""Who began the last cooldowns: bounded, masked, and told once."""

from __future__ import annotations

from dataclasses import replace

from proxy.observe.cooldown_log import EACH, MOST, PATH, CooldownLog, facts, line
from proxy.retry.weather.cooldown import ALL_CALLERS, CooldownBegan


def began(at: float, delay: float = 5.0, upstream: str = "a", path: str = "/x") -> CooldownBegan:
    return CooldownBegan(upstream, "", ALL_CALLERS, 503, "retry-after", delay, at, "GET", path, 1, "10.0.0.1:80", 0)


def test_the_one_in_force_is_the_one_that_ends_last() -> None:
    log = CooldownLog()
    log.note(began(10.0, delay=30))
    log.note(began(12.0, delay=1))
    found = log.in_force("a", 20.0)
    assert found is not None
    assert (found.began.at, found.began.until) == (10.0, 40.0)
    assert log.in_force("a", 40.0) is None
    assert log.in_force("b", 20.0) is None


def test_it_is_bounded() -> None:
    log = CooldownLog()
    for number in range(EACH + 3):
        log.note(began(float(number)))
    assert [each.began.at for each in log.last("a")] == [float(number) for number in range(3, EACH + 3)]
    for number in range(MOST):
        log.note(began(1.0, upstream=f"u{number}"))
    assert log.last("a") == []
    log.note(began(1.0, upstream="long", path="/" + "x" * 9000))
    assert len(log.last("long")[0].began.path) == PATH + 1


def test_what_a_path_says_is_masked() -> None:
    log = CooldownLog()
    log.note(began(1.0, path="/x?card=4242"))
    assert log.last("a")[0].began.path == "/x?card=***"


def test_what_redis_told_of_is_kept_once_and_gives_way_to_the_call_itself() -> None:
    log = CooldownLog()
    heard = replace(began(10.2, delay=4.9), method="", path="")
    log.note(heard, worker=1)
    log.note(heard, worker=2)  # all workers hear of it
    assert [each.began.is_elsewhere for each in log.last("a")] == [True]
    log.note(began(10.0), worker=3)  # and it was one of ours
    log.note(heard, worker=3)
    assert [(each.began.is_elsewhere, each.worker) for each in log.last("a")] == [(False, 3)]
    assert log.counts["a"] == 1  # the sidecar where it began counts the other


def test_news_are_told_once_and_what_a_worker_told_is_none() -> None:
    log = CooldownLog()
    log.note(began(1.0))
    log.note(began(2.0), worker=77)
    assert [each.at for each in log.news()] == [1.0]
    assert list(log.news()) == []
    assert [each.worker for each in log.last("a")] == [0, 77]


def test_an_upstream_has_an_event_a_second() -> None:
    log = CooldownLog()
    seen = [
        log.is_event(began(at, upstream=upstream)) for at, upstream in ((5.0, "a"), (5.5, "a"), (5.5, "b"), (6.0, "a"))
    ]
    assert seen == [True, False, True, True]


def test_a_cooldown_in_words_and_as_data() -> None:
    assert line(began(1.0)) == "a: 10.0.0.1:80: a 503 to GET asked for 5 s (retry-after): all calls wait"
    own = replace(began(1.0, delay=0.25), group=b"x" * 12, status=429, endpoint="", route="r", attempt=2)
    assert line(own) == ("a: a 429 to GET asked for 0.25 s (retry-after): callers with the same credential wait")
    assert facts(own) == {
        "upstream": "a",
        "endpoint": None,
        "route": "r",
        "callers": "callers with the same credential",
        "status": 429,
        "field": "retry-after",
        "seconds": 0.25,
        "method": "GET",
        "attempt": 2,
    }
