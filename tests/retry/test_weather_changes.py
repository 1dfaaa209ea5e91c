"""What is reported of limits and outages: when they begin and are over, and on what evidence."""

from __future__ import annotations

from proxy.retry.caller import Caller
from proxy.retry.ending import AttemptEnding
from proxy.retry.facts import Request
from proxy.retry.governor import Governor
from proxy.retry.weather_changes import REASONS, WeatherChanged, WeatherWatch, limit_of

REFUSED = AttemptEnding(False, True, False, True, "", "503")
THROTTLED = AttemptEnding(False, True, True, True, "", "429")
TIMED_OUT = AttemptEnding(False, True, False, False, "route", "attempt_timeout")
UNCONNECTED = AttemptEnding(False, True, False, False, "endpoint", "connect_failure")


class Scope:
    """A governor that is watched, and the calls that it governs."""

    def __init__(self) -> None:
        self.changes: list[WeatherChanged] = []
        self.governor = Governor()
        self.governor.watch = WeatherWatch("u", "host", self.changes.append)

    def caller(self, method: str = "GET") -> Caller:
        caller = Caller(Request(method, "u.example", "/x"), Request(method, "u.example", "/x").fields, "r")
        caller.cools = caller.limits = caller.outages = True
        return caller

    def goes_well(self, at: float, seconds: float = 0.01) -> None:
        attempt, caller, lane = object(), self.caller(), self.governor.lane("")
        lane.traffic.flying += 1
        if lane.traffic.went_well(at + seconds):
            self.governor.answered_well(attempt, caller, at, at + seconds)

    def fails(self, ending: AttemptEnding, at: float, seconds: float = 0.01, *, again: bool = False) -> None:
        lane = self.governor.lane("")
        lane.traffic.ended += 1
        self.governor.failed(object(), self.caller(), ending, at, at + seconds, again=again, cools=False)

    def events(self) -> list[str]:
        return [change.event for change in self.changes]


def test_a_limit_that_begins_is_reported_with_how_the_latest_attempts_ended() -> None:
    scope = Scope()
    for number in range(30):
        scope.goes_well(number * 0.1)
    for number in range(3):
        scope.fails(REFUSED, 3.0 + number * 0.01)
    (began,) = scope.changes
    assert (began.event, began.upstream, began.why) == ("limit_began", "u", "refused")
    assert (began.ended, began.of) == ((("503", 3),), 10)
    assert began.limit == limit_of(scope.governor.first) < float("inf")
    assert began.at == began.since == 3.03


def test_a_limit_that_binds_no_call_is_reported_as_over_with_the_fewest_places_that_it_had() -> None:
    scope = Scope()
    for number in range(30):
        scope.goes_well(number * 0.1)
    for number in range(3):
        scope.fails(REFUSED, 3.0 + number * 0.01)
    scope.governor.settle(4.0)
    assert scope.events() == ["limit_began"]
    scope.governor.settle(20.0)
    over = scope.changes[-1]
    assert (over.event, over.why, over.limit) == ("limit_over", "unused", scope.changes[0].limit)
    assert over.seconds == 20.0 - 3.03


def test_an_outage_is_reported_from_its_first_failure_to_the_answer_that_ends_it() -> None:
    scope = Scope()
    for number in range(30):
        scope.goes_well(number * 0.1)
    scope.fails(UNCONNECTED, 3.0)
    scope.fails(UNCONNECTED, 3.1, again=True)
    began = next(change for change in scope.changes if change.event == "outage_began")
    assert (began.since, began.at, began.why) == (3.01, 3.11, "lost")
    assert (began.ended, began.of) == ((("connect_failure", 2),), 2)
    attempt = object()
    scope.governor.answered_well(attempt, scope.caller(), 9.0, 9.5)
    over = next(change for change in scope.changes if change.event == "outage_over")
    assert (over.why, over.seconds) == ("answered", 9.5 - 3.01)


def test_an_outage_of_a_route_names_its_callers() -> None:
    scope = Scope()
    for number in range(30):
        scope.goes_well(number * 0.1)
    for number in range(6):
        scope.fails(TIMED_OUT, 3.0 + number * 0.1)
    began = next(change for change in scope.changes if change.event == "outage_began")
    assert began.group == scope.caller().lost_route() != scope.caller("POST").lost_route()
    assert began.ended == (("attempt_timeout", 5),)


def test_an_outage_of_which_nothing_is_known_any_more_is_reported_as_over() -> None:
    scope = Scope()
    scope.goes_well(0.0)
    scope.fails(UNCONNECTED, 3.0)
    scope.fails(UNCONNECTED, 3.1, again=True)
    scope.governor.settle(5.0)
    assert "outage_over" not in scope.events()
    scope.governor.settle(30.0)
    over = next(change for change in scope.changes if change.event == "outage_over")
    assert over.why == "unknown"


def test_a_limit_of_one_credential_does_not_count_the_attempt_that_began_it_as_under_way() -> None:
    scope = Scope()
    for number in range(3):
        scope.fails(THROTTLED, number * 0.01)
    limited = next(lane for lane in scope.governor.lanes() if lane.limit.is_on)
    assert limited is not scope.governor.first
    assert limited.in_use() == 0


def test_every_reason_has_words() -> None:
    assert all(" " in words for words in REASONS.values())
