"""Calls that an outage of their endpoint holds while a limit of their route or credential is in force."""

from __future__ import annotations

import pytest

from proxy.retry.facts import MappingFields, Request
from proxy.retry.weather.caller import Caller
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.lost_rows import LostRow

REFUSED = AttemptEnding(False, True, False, False, "endpoint", "connect_failure")
TIMED_OUT = AttemptEnding(False, True, False, False, "route", "attempt_timeout")
NEVER = float("inf")


class Held:
    """A call whose attempts all find no connection, and which is held again after each that was a probe. `key`: its
    credential, if it has one.
    """

    def __init__(self, governor: Governor, path: str, key: str = "") -> None:
        self.governor = governor
        request = Request("GET", "u.example", path, fields=MappingFields([("authorization", key)] if key else []))
        self.caller = Caller(request, request.fields, "")
        self.caller.limits = self.caller.outages = self.caller.retries = self.caller.cools = True
        self.due = NEVER
        self.sent: list[float] = []

    def retime(self, at: float) -> None:
        self.due = at

    def wake(self, now: float) -> None:
        self.due, why = self.governor.ask(self, self.caller, now)
        if why:
            return
        attempt = object()
        self.due = NEVER
        self.governor.sent(self, attempt, now)
        self.sent.append(now)
        was_probe = self.governor.is_probe(attempt)
        self.governor.failed(attempt, self.caller, REFUSED, now, now, again=True, cools=False)
        assert was_probe, "in an outage, only a probe is sent"
        self.governor.stays(self, self.caller, now)
        self.wake(now)


def play(governor: Governor, names: list[bytes]) -> list[Held]:
    """Play four calls for 2.5 s of an outage that began at 1 s, while lanes with these names have a limit of one."""
    governor.traffic.answered_at = 0.9
    for name in names:
        lane = governor.lanes.of(("", name))
        lane.lasts = True
        lane.limit.begin_elsewhere(1.0, 1.0, 1.0)
        governor.lanes.look((lane,), 1.0)
    governor.first.begin_outage(1.0, LostRow(0.9, 2), 0.9)
    governor.lanes.look((governor.first,), 1.0)
    calls = [Held(governor, f"/{number}") for number in range(4)]
    for each in calls:
        each.wake(1.0)
    for _ in range(1000):
        first = min(calls, key=lambda each: each.due)
        if first.due > 3.5:
            return calls
        first.wake(max(first.due, 1.0))
    raise AssertionError("the calls wake again and again")


@pytest.mark.parametrize("limited", ["nothing", "route", "credential", "both"])
def test_probes_keep_their_distance_while_a_limit_of_fewer_calls_is_in_force(limited: str) -> None:
    """Each call that comes out of the limit's queue would else be taken for the only call that is held."""
    governor = Governor()
    caller = Held(governor, "/").caller
    names = {"route": [caller.names.lost], "credential": [caller.credential()]}
    names |= {"nothing": [], "both": [name for each in names.values() for name in each]}
    calls = play(governor, names[limited])
    first, *others = calls
    assert first.sent[0] == 1.0, "the only call is not delayed"
    assert first.sent[1:] == pytest.approx([1.2, 1.6, 2.4, 3.4])
    assert not any(each.sent for each in others)


def test_a_call_that_a_cooldown_holds_is_not_the_probe_of_an_outage() -> None:
    """It is not sent before its cooldown ends: other calls may probe until then."""
    governor = Governor()
    cooled, other = Held(governor, "/cooled"), Held(governor, "/other", key="j")
    cooled.caller.cools = True
    governor.traffic.answered_at = governor.first.outage.answered_at = 0.9
    governor.requests_wait(cooled.caller, 429, 15.0, 0.9, 1.0, whole=False)
    governor.first.begin_outage(1.0, LostRow(0.9, 5), 0.9)
    governor.lanes.look((governor.first,), 1.0)
    assert governor.ask(cooled, cooled.caller, 1.2) == (16.0, "cooldown")
    assert governor.first.outage.probe is None
    assert governor.ask(other, other.caller, 1.3) == (1.3, "")


def test_a_probe_after_a_call_was_held_in_vain_turns_away_while_others_wait() -> None:
    """Such a probe is not sent again at once, though it found no connection: the calls that wait are next."""
    governor = Governor()
    first, other = Held(governor, "/first"), Held(governor, "/other")
    governor.traffic.answered_at = governor.first.outage.answered_at = 0.9
    governor.first.begin_outage(1.0, LostRow(0.9, 2), 0.9)
    governor.lanes.look((governor.first,), 1.0)
    assert governor.ask(first, first.caller, 1.0) == (1.0, "")
    probe = object()
    governor.sent(first, probe, 1.0)
    assert governor.is_probe(probe)
    assert governor.ask(other, other.caller, 1.05)[1] == "outage"
    assert not governor.turns_away(probe, 1.1)
    governor.first.outage.held_in_vain()
    assert governor.turns_away(probe, 1.1)
    governor.leave(other, 1.1)
    assert not governor.turns_away(probe, 1.1), "no other call waits"


def test_calls_that_wait_for_a_limit_wait_for_an_outage_of_their_route_in_the_order_in_which_they_came() -> None:
    """The outage's probe would else come after all of them in the limit's queue, and each of them would use up a turn
    there without being sent.
    """
    governor = Governor()
    first = governor.first
    governor.answered_well(object(), Held(governor, "/").caller, 0.4, 0.5)
    first.lasts = True
    first.limit.begin_elsewhere(1.0, 1.0, 1.0)
    first.limit.pace.slow_down(1.0)
    governor.lanes.look((first,), 1.0)
    sent, *waiting = [Held(governor, "/") for _ in range(9)]
    assert governor.ask(sent, sent.caller, 1.0) == (1.0, "")
    governor.sent(sent, object(), 1.0)
    for each in waiting:
        assert governor.ask(each, each.caller, 1.1)[1] == "limit"
    for number in range(5):
        governor.failed(object(), sent.caller, TIMED_OUT, 1.0, 2.0 + number / 10, again=False, cools=False)
    assert [lane.name[1] for lane in governor.all_lanes() if lane.outage.is_on] == [sent.caller.names.lost_path()]
    answers = []
    for _ in waiting:
        due = min(waiting, key=lambda each: each.due)
        assert due.due <= 2.4, "all of them ask again at once"
        answers.append((due, governor.ask(due, due.caller, 2.4)[1]))
        due.due = NEVER
    probe, *others = waiting
    assert answers == [(probe, ""), *((each, "outage") for each in others)]
    assert len(first.queue) == 0


def test_a_call_that_leaves_when_its_turn_has_come_does_not_use_it_up() -> None:
    governor = Governor()
    first = governor.first
    first.lasts = True
    first.limit.begin_elsewhere(2.0, 2.0, 1.0)
    first.limit.pace.slow_down(1.0)
    governor.lanes.look((first,), 1.0)
    calls = [Held(governor, "/") for _ in range(3)]
    answers = [governor.ask(each, each.caller, 1.0)[1] for each in calls]
    assert answers == ["", "limit", "limit"]
    governor.leave(calls[0], 1.2)
    assert governor.ask(calls[1], calls[1].caller, 1.2) == (1.2, "")
    assert governor.ask(calls[2], calls[2].caller, 1.3)[1] == "limit"


@pytest.mark.parametrize("paths", [("/",), ("/", "/other")])
def test_calls_return_from_an_outage_of_their_route_by_the_slowness_of_their_endpoint(paths: tuple[str, ...]) -> None:
    """Else other clients' queue, which answers have shown to be there whatever is sent, would be taken for one of this
    client's own in the second limit on the same calls.
    """
    governor = Governor()
    first = governor.first
    calls = [Held(governor, path) for path in paths]
    for each in calls:
        governor.answered_well(object(), each.caller, 0.4, 0.5)
    first.lasts = True
    first.limit.begin_elsewhere(1.0, 1.0, 1.0)
    first.limit._base = 20.0
    first.limit.held(1.0, 1.5)
    governor.lanes.look((first,), 1.5)
    for number in range(6):
        caller = calls[number % len(calls)].caller
        governor.failed(object(), caller, TIMED_OUT, 1.0, 2.0 + number / 10, again=False, cools=False)
    (out,) = [lane for lane in governor.all_lanes() if lane.outage.is_on]
    held = [Held(governor, "/") for _ in range(3)]
    assert [governor.ask(each, each.caller, 2.55)[1] for each in held] == ["", "outage", "outage"]
    governor.answered_well(object(), calls[0].caller, 2.6, 2.7)
    assert not out.outage.is_on
    assert out.limit.is_on
    assert out.limit.slowness(2.7) == 20.0
