"""What is reported of limits and outages: when they begin and are over, and on what evidence."""

from __future__ import annotations

from proxy.retry.facts import Request
from proxy.retry.weather.caller import Caller
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.weather_changes import REASONS, WeatherChanged, WeatherWatch, limit_of

REFUSED = AttemptEnding(False, True, False, True, "", "503")
THROTTLED = AttemptEnding(False, True, True, True, "", "429")
TIMED_OUT = AttemptEnding(False, True, False, False, "route", "attempt_timeout")
UNAVAILABLE = AttemptEnding(False, True, False, True, "route", "503")
UNCONNECTED = AttemptEnding(False, True, False, False, "endpoint", "connect_failure")


class Waiting:
    """A call that waits."""

    def retime(self, at: float) -> None:
        """Do nothing: the test asks again."""


class Scope:
    """A governor that is watched, and the calls that it governs."""

    def __init__(self) -> None:
        self.changes: list[WeatherChanged] = []
        self.governor = Governor()
        self.governor.lanes.watch = WeatherWatch("u", "host", self.changes.append)

    def caller(self, method: str = "GET", path: str = "/x") -> Caller:
        request = Request(method, "u.example", path)
        caller = Caller(request, request.fields, "r")
        caller.cools = caller.limits = caller.outages = True
        return caller

    def goes_well(self, at: float, seconds: float = 0.01, path: str = "/x") -> None:
        attempt, caller, lane = object(), self.caller(path=path), self.governor.lanes.of_endpoint("")
        lane.traffic.flying += 1
        if lane.traffic.went_well(at + seconds):
            self.governor.answered_well(attempt, caller, at, at + seconds)

    def fails(
        self, ending: AttemptEnding, at: float, seconds: float = 0.01, *, again: bool = False, path: str = "/x"
    ) -> None:
        lane = self.governor.lanes.of_endpoint("")
        lane.traffic.ended += 1
        self.governor.failed(object(), self.caller(path=path), ending, at, at + seconds, again=again, cools=False)

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
    scope.governor.lanes.settle(4.0)
    assert scope.events() == ["limit_began"]
    scope.governor.lanes.settle(20.0)
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
        scope.fails(TIMED_OUT, 3.0 + number * 0.1, path=f"/x/{number}")
    began = next(change for change in scope.changes if change.event == "outage_began")
    assert began.group == scope.caller().names.lost != scope.caller("POST").names.lost
    assert began.ended == (("attempt_timeout", 5),)


def test_an_outage_of_one_path_names_its_callers_and_holds_no_others() -> None:
    scope = Scope()
    for number in range(30):
        scope.goes_well(number * 0.1)
    for number in range(5):
        scope.goes_well(3.0 + number * 0.1, path="/y")
        scope.fails(UNAVAILABLE, 3.05 + number * 0.1)
    began, out, over = scope.changes
    assert (began.event, out.event, over.event) == ("limit_began", "outage_began", "limit_over")
    assert out.group == scope.caller().names.lost_path() != scope.caller(path="/y").names.lost_path()
    assert out.ended == (("503", 5),)
    governor = scope.governor
    assert governor.ask(Waiting(), scope.caller(path="/y"), 3.5) == (3.5, "")
    assert governor.ask(Waiting(), scope.caller("POST"), 3.5) == (3.5, "")
    held = Waiting()
    assert governor.ask(held, scope.caller(), 3.5)[1] == "outage"
    governor.leave(held, 3.6)
    scope.goes_well(3.8)
    assert scope.events()[-1] == "limit_began"
    assert governor.ask(Waiting(), scope.caller(), 3.9) == (3.9, "")


def test_a_path_that_never_answered_has_no_outage() -> None:
    scope = Scope()
    for number in range(30):
        scope.goes_well(number * 0.1)
    for number in range(20):
        scope.fails(UNAVAILABLE, 3.0 + number * 0.1, path="/never")
    assert "outage_began" not in scope.events()


def test_the_outage_of_a_route_ends_those_of_its_paths() -> None:
    scope = Scope()
    for number in range(30):
        scope.goes_well(number * 0.1)
        scope.goes_well(number * 0.1, path="/y")
    for number in range(5):
        scope.fails(TIMED_OUT, 3.0 + number * 0.1)
    scope.fails(TIMED_OUT, 3.6, path="/y")
    told = [(change.event, change.group) for change in scope.changes if "outage" in change.event]
    path, route = scope.caller().names.lost_path(), scope.caller().names.lost
    assert told == [("outage_began", path), ("outage_over", path), ("outage_began", route)]


def test_an_outage_of_which_nothing_is_known_any_more_is_reported_as_over() -> None:
    scope = Scope()
    scope.goes_well(0.0)
    scope.fails(UNCONNECTED, 3.0)
    scope.fails(UNCONNECTED, 3.1, again=True)
    scope.governor.lanes.settle(5.0)
    assert "outage_over" not in scope.events()
    scope.governor.lanes.settle(30.0)
    over = next(change for change in scope.changes if change.event == "outage_over")
    assert over.why == "unknown"


def test_a_limit_of_one_credential_does_not_count_the_attempt_that_began_it_as_under_way() -> None:
    scope = Scope()
    for number in range(3):
        scope.fails(THROTTLED, number * 0.01)
    limited = next(lane for lane in scope.governor.all_lanes() if lane.limit.is_on)
    assert limited is not scope.governor.first
    assert limited.places.in_use() == 0


def test_every_reason_has_words() -> None:
    assert all(" " in words for words in REASONS.values())
