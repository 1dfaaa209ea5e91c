"""What holds for every lane from which calls return, whatever comes back and whoever leaves (hypothesis)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.two_runs import examples

from proxy.lab.clock import ALARM, BEGIN, UPSTREAM, Clock
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.weather.lane import Lane
from proxy.retry.weather.lane_in_fleet import allot, limit_elsewhere, wanted
from proxy.retry.weather.lost_rows import LostRow

HOLD = 20.0

times = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 3.7])
ends = st.one_of(
    st.tuples(st.just("well"), times),
    st.tuples(st.just("badly"), times),
    st.tuples(st.just("never"), times),
    st.tuples(st.sampled_from([429, 503]), times, st.sampled_from([0.5, 1.0, 3.0])),
)
callers = st.fixed_dictionaries(
    {
        "at": times,
        "end": ends,
        "gone": st.one_of(st.none(), st.none(), times),
        "again": st.booleans(),
        "aside": st.one_of(st.none(), st.none(), times),  # another gate holds it for so long when its turn has come
    }
)


class Caller:
    """Asks when it comes and when its alarm rings; what it met is its script's."""

    def __init__(self, play: Play, number: int, spec: dict[str, Any]) -> None:
        self.play, self.number, self.spec = play, number, spec
        self.alarm = math.inf
        self.came = self.sent_at = self.held = math.nan
        self.state, self.began = "new", False
        self.aside: float | None = spec.get("aside")
        self.stepped = False  # aside

    def come(self) -> None:
        self.came, self.state = self.play.clock.now, "held"
        self.ask()

    def ask(self) -> None:
        now, gate = self.play.clock.now, self.play.gate
        if not gate.has(self) and gate.is_over(now):
            self.go()
            return
        at = gate.ask(self, now)
        if at <= now and self.aside and gate.has(self):
            gate.step_aside(self, now)
            assert self not in gate.places.taken or gate.outage.probe is self
            self.retime(now + self.aside)
            self.aside, self.stepped = None, True
            self.play.check()
        elif at <= now:
            self.play.went(self)
            self.go()
        elif now >= self.came + HOLD - 1e-9 or now + gate.wait_of(self, now) > self.came + HOLD:
            gate.leave(self, now)
            self.state = "refused"
        else:
            self.retime(min(at, self.came + HOLD))

    def retime(self, at: float) -> None:
        self.alarm = min(at, self.came + HOLD)
        self.play.clock.at(self.alarm, ALARM, self.ring, self.alarm)

    def ring(self, at: float) -> None:
        if self.state == "held" and at == self.alarm:
            self.ask()

    def go(self) -> None:
        gate, now = self.play.gate, self.play.clock.now
        gate.sent(self, self, now)
        self.state, self.sent_at = "flying", now
        if self.spec["end"][0] != "never":
            self.play.clock.at(now + self.spec["end"][1], UPSTREAM, self.end)
        self.play.check()

    def end(self) -> None:
        gate, now, (how, *_, delay) = self.play.gate, self.play.clock.now, self.spec["end"]
        if self.state != "flying":
            return
        if how in (429, 503):
            began = gate.start(delay, how, self.sent_at, now)
            gate.landed(self, self.sent_at, now, well=False)
            if began and self.spec["again"] and gate.claim(self, now + delay):
                self.spec = {**self.spec, "end": ("well", 0.1)}
                self.came, self.began = self.play.clock.now + delay, True
                self.state = "held"
                self.alarm = now + delay
                self.play.clock.at(self.alarm, ALARM, self.ring, self.alarm)
                self.play.check()
                return
        else:
            gate.landed(self, self.sent_at, now, well=how == "well")
        self.state = "done"
        self.play.check()

    def leave(self) -> None:
        if self.state in ("held", "flying"):
            self.play.gate.leave(self, self.play.clock.now)
            self.state = "gone"
            self.play.check()


class Play:
    """All of them at one gate."""

    def __init__(self, specs: list[dict[str, Any]], delay: float) -> None:
        self.clock, self.gate = Clock(), Lane(Traffic())
        self.gate.start(delay, 503, 0.0, 0.0)
        self.callers = [Caller(self, number, spec) for number, spec in enumerate(specs)]
        for caller in self.callers:
            self.clock.at(caller.spec["at"], BEGIN, caller.come)
            if caller.spec["gone"] is not None:
                self.clock.at(caller.spec["at"] + caller.spec["gone"], UPSTREAM, caller.leave)

    def went(self, caller: Caller) -> None:
        now = self.clock.now
        assert now >= self.gate.until - 1e-9, "never early"
        assert now - caller.came <= HOLD + 1e-9, "nobody is held for longer than that"
        if caller.began:
            return  # it met the word in force, and has the first place
        held = [other for other in self.gate.queue if isinstance(other, Caller) and not other.stepped]
        assert not [other.number for other in held if other.came < caller.came], "in order of arrival"

    def check(self) -> None:
        gate, now = self.gate, self.clock.now
        assert gate.places.in_use() >= 0
        assert gate.limit.most >= 1
        if gate.queue and now >= gate.until:
            alarms = [caller.alarm for caller in self.callers if caller.state == "held" and caller in gate.queue]
            assert gate.due.admitted or gate.places.taken or gate.due.aside or min(alarms) < math.inf

    def run(self) -> None:
        self.clock.run()
        assert not self.gate.queue, "nobody is stranded"
        assert not self.gate.due.admitted
        assert not self.gate.due.aside
        assert {caller.state for caller in self.callers} <= {"done", "gone", "refused", "flying"}
        for caller in self.callers:
            if caller.state == "flying":
                assert caller.spec["end"][0] == "never"
            else:
                assert caller not in self.gate.places.taken, "places come back"


A_SHORTER_WORD_LATER: list[dict[str, Any]] = [
    {"at": at, "end": end, "gone": None, "again": again}
    for at, end, again in (
        (0.0, ("badly", 0.0), False),
        (0.1, ("well", 0.0), False),
        (0.0, (429, 2.0, 1.0), False),
        (0.0, (429, 3.7, 1.0), False),
        (0.0, (429, 2.0, 0.5), True),
    )
]


@example(specs=A_SHORTER_WORD_LATER, delay=0.5)
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(callers, min_size=1, max_size=12), st.sampled_from([0.5, 2.0, 5.0]))
def test_the_laws_of_a_return(specs: list[dict[str, Any]], delay: float) -> None:
    Play(specs, delay).run()


class Still:
    def retime(self, at: float) -> None:
        """It asks when the test says so."""


def held(count: int, *, until: float = 2.0) -> tuple[Lane, list[Still]]:
    gate, waiting = Lane(Traffic()), [Still() for _ in range(count)]
    gate.start(until, 429, 0.0, 0.0)
    for each in waiting:
        gate.ask(each, 0.0)
    return gate, waiting


def go(gate: Lane, waiting: list[Still], now: float) -> list[Still]:
    """Those that go now, of those that wait."""
    gone = [each for each in waiting if each in gate.queue and gate.ask(each, now) == now]
    gone += [each for each in waiting if each in gate.due.admitted and each not in gone]
    for each in gone:
        gate.sent(each, each, now)
    return gone


def test_places_double_with_each_round_trip() -> None:
    gate, waiting = held(16)
    now, counts = 2.0, []
    while gate.queue:
        gone = go(gate, waiting, now)
        counts.append(len(gone))
        now += 0.1
        for each in gone:
            gate.landed(each, now - 0.1, now, well=True)
        counts[-1] = len(gone)
        waiting = [each for each in waiting if each not in gone]
    assert counts[:4] == [1, 2, 4, 8]


def test_a_word_before_it_is_over_halves_them_once_and_they_grow_with_care() -> None:
    gate, waiting = held(40)
    now = 2.0
    for _ in range(3):
        gone = go(gate, waiting, now)
        for each in gone:
            gate.landed(each, now, now + 0.1, well=True)
        now += 0.1
    assert gate.limit.most == 8
    gone = go(gate, waiting, now)
    assert len(gone) == 8
    assert gate.start(2.0, 429, now, now + 0.1)
    assert not gate.start(2.0, 429, now, now + 0.15), "sent before the word that is in force"
    assert (gate.limit.most, gate.until) == (4, pytest.approx(now + 2.15))
    for each in gone:
        gate.landed(each, now, now + 0.2, well=True)
    assert gate.limit.most == 4, "an answer from before it tells of the time before it"
    now = gate.until
    gone = go(gate, waiting, now)
    assert len(gone) == 4
    for each in gone:
        gate.landed(each, now, now + 0.1, well=True)
    assert int(gate.limit.most) == 4 and gate.limit.most > 4.8, "one more a round trip"


def test_a_starter_that_nothing_held_goes_once_before_the_others() -> None:
    """Its retry was due at the very end of the delay, so that it was sent without being asked for."""
    gate, (starter, first, second) = Lane(Traffic()), [Still() for _ in range(3)]
    gate.start(2.0, 503, 0.0, 0.0)
    assert gate.claim(starter, 2.0)
    for each in (first, second):
        gate.ask(each, 0.0)
    assert gate.sent(starter, starter, 2.0)
    gate.landed(starter, 2.0, 2.1, well=False)
    assert go(gate, [first, second], 2.1) == [first]
    assert gate.ask(starter, 2.1) == math.inf
    assert list(gate.queue) == [second, starter]


def test_a_shorter_word_lets_nobody_go_before_a_longer_one_is_over() -> None:
    gate, again = Lane(Traffic()), Still()
    gate.start(4.0, 429, 0.0, 2.0)
    assert gate.start(1.0, 429, 2.5, 3.0), "sent after the longer word"
    assert gate.claim(again, 4.0)
    assert gate.ask(again, 4.0) == 6.0
    assert gate.ask(again, 6.0) == 6.0


def test_who_met_the_longest_word_itself_may_come_back_sooner() -> None:
    """As `standard-2026` does, by its clamp."""
    gate, again = Lane(Traffic()), Still()
    gate.start(1.0, 429, 0.0, 2.0)
    assert gate.start(4.0, 429, 2.5, 3.0)
    assert gate.claim(again, 5.0)
    assert gate.ask(again, 5.0) == 5.0


def test_an_upstream_that_served_no_call_for_twenty_seconds_is_expected_to_go_on_like_that() -> None:
    gate = Lane(Traffic())
    gate.start(2.0, 503, 0.0, 0.0)
    first, second = Still(), Still()
    gate.ask(first, 1.0)
    gate.ask(second, 1.0)
    assert (gate.wait_of(first, 1.0), gate.wait_of(second, 1.0)) == (1.0, 1.0)
    gate.start(2.0, 503, 2.0, 2.1)
    gate.start(2.0, 503, 4.1, 4.2)
    assert gate.wait_of(first, 4.2) == 2.0
    assert gate.wait_of(second, 4.2) == 2.0
    for at in (8.0, 12.0, 16.0, 20.0):
        gate.start(2.0, 503, at, at)
    assert gate.wait_of(first, 20.0) == 2.0  # the next to ask
    assert gate.wait_of(second, 20.0) == 20.0


def test_a_cooldown_that_begins_under_a_limit_lets_none_wait_for_ever() -> None:
    gate, (first, second) = Lane(Traffic()), (Still(), Still())
    gate.lasts = True
    gate.limit._begin(3.0, 3.0, 1.0)
    assert gate.start(2.0, 503, 1.5, 2.0)
    gate.ask(first, 2.0)
    gate.ask(second, 2.0)
    assert gate.wait_of(second, 2.0) == 2.0  # though nothing had been served before
    assert not gate.limit.returns
    fleets = Lane(Traffic())
    fleets.fleet.share = 0.0
    fleets.limit._begin(3.0, 3.0, 1.0)
    assert fleets.start(2.0, 503, 1.5, 2.0)
    assert fleets.limit.returns  # the fleet gives the first place


# -- calls that another gate holds ----------


def limit_of(count: int, waiting: int) -> tuple[Lane, list[Still]]:
    """A lane with a limit of so many places, all of them free, and calls that come to it at 1 s."""
    gate, calls = Lane(Traffic()), [Still() for _ in range(waiting)]
    gate.lasts = True
    gate.limit._begin(float(count), float(count), 1.0)
    for call in calls:
        gate.ask(call, 1.0)
    return gate, calls


def test_a_call_that_another_gate_holds_has_no_place_and_keeps_its_turn() -> None:
    gate, (first, second, third) = limit_of(1, 3)
    gate.step_aside(first, 1.0)
    assert (gate.places.in_use(), gate.free(1.0)) == (0, 1)
    assert first in gate.due
    assert gate.ask(second, 1.0) == 2.0, "the turn is another's"
    assert gate.ask(first, 1.2) == 1.2
    gate.step_aside(first, 1.2)  # the other gate gave what it had to another worker
    assert gate.ask(first, 1.4) == 1.4
    assert gate.sent(first, first, 1.4)
    assert gate.places.in_use() == 1
    gate.landed(first, 1.4, 1.5, well=False)
    assert second in gate.due
    assert third not in gate.due


def test_calls_go_on_after_a_while_beside_those_that_another_gate_holds_for_long() -> None:
    """As where calls of one route wait for a rate that the others do not have."""
    gate, calls = limit_of(1, 6)
    gate.step_aside(calls[0], 1.0)
    at = gate.ask(calls[1], 1.0)
    assert at == 1.0 + gate.place_seconds
    assert gate.ask(calls[1], at) == at
    gate.sent(calls[1], calls[1], at)
    gate.landed(calls[1], at, at, well=False)
    assert calls[2] in gate.due
    gate.step_aside(calls[2], at)
    later = at + gate.place_seconds
    assert gate.ask(calls[3], at) == later
    assert gate.ask(calls[3], later) == later
    gate.step_aside(calls[3], later)
    assert calls[4] in gate.due, "twice as many step aside each time"


def test_calls_that_stepped_aside_return_together_and_in_their_order_if_there_is_no_place() -> None:
    gate, calls = limit_of(3, 5)
    for call in calls[:3]:
        gate.step_aside(call, 1.0)
    assert list(gate.queue) == calls[3:]
    other = Still()
    gate.places.occupy(other, 1.5)
    gate.limit.most = 1.0
    assert gate.ask(calls[0], 2.0) > 2.0
    assert list(gate.queue) == calls
    gate.free_place(other, 1.5, 2.1)
    gate.release(2.1)
    assert [call in gate.due for call in calls] == [True, False, False, False, False]


def test_a_call_that_stepped_aside_and_got_a_place_again_keeps_it_if_there_is_none_for_others() -> None:
    """It may wait for another lane with its place in this one: it waits in one queue at a time."""
    gate, calls = limit_of(2, 4)
    for call in calls[:2]:
        gate.step_aside(call, 1.0)
    gate.limit.most = 1.0
    assert gate.ask(calls[0], 1.1) == 1.1
    assert gate.ask(calls[1], 1.2) > 1.2
    assert list(gate.queue) == calls[1:]
    assert gate.sent(calls[0], calls[0], 1.3)
    gate.landed(calls[0], 1.3, 1.4, well=False)
    assert [call in gate.due for call in calls] == [False, True, False, False]
    assert list(gate.queue) == calls[2:]


def test_a_call_that_was_put_back_asks_at_once_whatever_the_lane_does_before() -> None:
    """It still stands in the queue of the gate that held it, and those behind it there look for it all the time."""

    class Told(Still):
        at = 0.0

        def retime(self, at: float) -> None:
            self.at = at

    gate, calls = Lane(Traffic()), [Told() for _ in range(3)]
    gate.lasts = True
    gate.limit._begin(2.0, 2.0, 1.0)
    for call in calls:
        gate.ask(call, 1.0)
    gate.step_aside(calls[0], 1.0)
    gate.step_aside(calls[1], 1.0)
    gate.places.occupy(Still(), 1.5)
    gate.limit.most = 1.0
    assert gate.ask(calls[1], 2.0) > 2.0
    assert (gate.queue.first(), calls[0].at) == (calls[0], 2.0)
    gate.release(2.0)
    assert calls[0].at == 2.0, "not when a place may be free"
    assert gate.ask(calls[0], 2.0) > 2.0
    gate.release(2.1)
    assert calls[0].at > 2.1


def test_few_calls_step_aside_after_one_found_no_place_and_more_with_each_that_is_sent() -> None:
    gate, calls = limit_of(1, 20)
    now, most = 1.0, []
    while gate.queue:
        while gate.due.admitted:
            gate.step_aside(next(iter(gate.due.admitted)), now)
        most.append(len(gate.due.aside))
        now += 0.1
        assert gate.ask(calls[0], now) == now
        gate.sent(calls[0], calls[0], now)
        gate.landed(calls.pop(0), now, now, well=False)
    assert most[:4] == [1, 2, 4, 8]
    gate.places.occupy(Still(), now)
    assert gate.ask(calls[0], now) > now
    assert gate.due._most == 1


def test_a_place_that_a_call_gives_up_for_another_gate_does_not_use_the_pace_up() -> None:
    gate, (first, second) = limit_of(2, 0)[0], (Still(), Still())
    gate.limit.pace.slow_down(1.0)
    assert gate.ask(first, 1.0) == 1.0
    assert gate.limit.pace.next_at == 2.0
    gate.step_aside(first, 1.0)
    assert gate.limit.pace.next_at == 1.0
    assert gate.ask(first, 1.5) == 1.5
    gate.sent(first, first, 1.5)
    assert gate.ask(second, 1.6) == 2.5


def test_a_delay_that_is_named_meanwhile_holds_calls_that_stepped_aside_before_all_others() -> None:
    gate, calls = limit_of(2, 4)
    gate.step_aside(calls[0], 1.0)
    assert gate.start(3.0, 503, 0.5, 2.0)
    assert list(gate.queue) == calls
    assert (gate.places.in_use(), gate.ask(calls[0], 2.0)) == (0, 5.0)


def test_a_probe_that_another_gate_holds_stays_the_probe() -> None:
    gate, probe, other = out(), Still(), Still()
    assert gate.ask(probe, 11.01) == 11.1
    assert gate.ask(other, 11.05) == math.inf
    assert gate.ask(probe, 11.1) == 11.1
    gate.step_aside(probe, 11.1)
    assert gate.ask(other, 11.5) == math.inf
    assert gate.ask(probe, 12.0) == 12.0


def test_a_probe_that_a_delay_holds_before_it_is_sent_is_sent_after_the_delay() -> None:
    """Another machine was asked to wait, while the operator's rate held the probe here."""
    gate, probe, other = out(), Still(), Still()
    gate.ask(probe, 11.01)
    assert gate.ask(probe, 11.1) == 11.1
    gate.step_aside(probe, 11.1)
    gate.ask(other, 11.2)
    gate.started_elsewhere(2.0, 503, 11.5)
    assert gate.ask(probe, 11.5) == 13.5
    assert gate.ask(probe, 13.5) == 13.5
    assert gate.outage.probe is probe
    assert gate.ask(other, 13.6) == math.inf


# -- outages ----------


def limited(flying: int) -> Lane:
    """A lane with a limit of half of the attempts that were under way, since 1 s."""
    gate = Lane(Traffic())
    gate.traffic.ended = 1000
    for _ in range(3):
        gate.traffic.ended += 1
        gate.refused_freely("503", flying, 1.0)
    return gate


def test_attempts_sent_at_the_instant_at_which_a_limit_begins_are_from_before_it() -> None:
    gate = limited(4)
    assert (gate.limit.most, gate.places.in_use()) == (2.0, 4)
    gate.free_place(object(), 1.0, 1.0)
    assert gate.places.in_use() == 3
    gate.free_place(object(), 1.5, 1.5)
    assert gate.places.in_use() == 3, "it was sent later, and its place was freed when its head came"


def out() -> Lane:
    """A lane with an outage from 11 s on."""
    gate = Lane(Traffic())
    gate.outage.answered_at = 10.0
    assert gate.lost(11.0, 0.0, LostRow(11.0, 2), again=True)
    return gate


def test_one_probe_at_a_time_goes_while_an_outage_lasts() -> None:
    gate, (first, second) = out(), (Still(), Still())
    assert gate.holds(11.01) == "outage"
    assert gate.ask(first, 11.01) == 11.1
    assert gate.ask(second, 11.02) == math.inf
    assert gate.ask(first, 11.1) == 11.1
    gate.sent(first, first, 11.1)
    assert gate.ask(second, 11.5) == math.inf  # for as long as the probe is under way
    assert gate.probe_lost(first, 11.6)
    gate.landed(first, 11.1, 11.6, well=False)
    assert gate.ask(second, 11.7) == pytest.approx(11.8)  # twice as long after it


def test_calls_that_an_outage_held_return_by_a_limit_and_none_is_thought_to_wait_for_ever() -> None:
    gate, waiting = out(), [Still() for _ in range(8)]
    for each in waiting:
        gate.ask(each, 11.0)
    gate.lasts = True
    (probe,) = go(gate, waiting, 11.1)
    assert gate.answered(11.2)
    gate.landed(probe, 11.1, 11.2, well=True)
    assert all(gate.wait_of(each, 11.2) < math.inf for each in gate.queue)
    now, left = 11.2, waiting[1:]
    while gate.queue:
        gone = go(gate, left, now)
        assert 0 < len(gone) <= gate.limit.most
        now += 0.1
        for each in gone:
            gate.landed(each, now - 0.1, now, well=True)
        left = [each for each in left if each not in gone]
    assert gate.holds(now) == "limit"


# -- fleets ----------


def test_a_fleet_shares_the_places_of_a_return_and_no_other_limit() -> None:
    gate, waiting = held(4)
    gate.lasts = True
    allot(gate, 3.0, 2.0, math.inf, True, 2.0)
    assert wanted(gate) == 4
    assert len(go(gate, waiting, 2.0)) == 2
    other = Lane(Traffic())
    other.fleet.share = 0.0  # as a fleet sets it before it has given places
    other.lasts = True
    other.limit._begin(3.0, 3.0, 1.0)
    callers = [Still() for _ in range(5)]
    assert sum(other.ask(each, 1.0) == 1.0 for each in callers) == 3
    assert wanted(other) == 0


def test_a_process_without_a_place_of_the_fleets_limit_waits_for_its_share() -> None:
    gate, call = Lane(Traffic()), Still()
    limit_elsewhere(gate, 4.0, 0.0, 4.0, busy=True, holds=True, now=1.0)
    assert gate.ask(call, 1.0) == math.inf
    limit_elsewhere(gate, 4.0, 1.0, 4.0, busy=True, holds=True, now=2.0)
    assert call in gate.due


def test_attempts_from_before_the_fleets_limit_have_places_for_as_long_as_others() -> None:
    gate, call = Lane(Traffic()), Still()
    gate.traffic.flying = 2
    limit_elsewhere(gate, 4.0, 2.0, 4.0, busy=True, holds=True, now=1.0)
    assert gate.ask(call, 1.5) == 1.0 + gate.place_seconds
    assert gate.ask(call, 1.001 + gate.place_seconds) == 1.001 + gate.place_seconds


def test_a_process_whose_places_of_the_fleets_limit_are_in_use_asks_again_when_they_are_taken_back() -> None:
    gate, first, second = Lane(Traffic()), Still(), Still()
    limit_elsewhere(gate, 4.0, 1.0, 4.0, busy=True, holds=True, now=1.0)
    assert gate.ask(first, 1.0) == 1.0
    gate.sent(first, first, 1.0)
    assert gate.ask(second, 1.5) == 1.0 + gate.place_seconds


@pytest.mark.parametrize("places", [1.0, 2.0])
def test_calls_that_have_a_place_of_the_fleet_wait_for_the_pace_alone(places: float) -> None:
    gate, waiting = held(3)
    allot(gate, 3.0, places, math.inf, True, 1.0)
    gate.limit.pace.slow_down(2.0)
    (first,) = go(gate, waiting, 2.0)
    gate.landed(first, 2.0, 2.1, well=True)
    assert gate.ask(waiting[1], 2.2) == 2.5
    assert go(gate, waiting, 2.5) == [waiting[1]]


# -- looked at from outside ----------


def test_one_more_attempt_passes_while_a_place_is_free() -> None:
    gate = limited(4)  # the limit has two places, and four attempts are under way
    gate.lasts = True
    assert not gate.passes(1.1)
    for _ in range(2):
        gate.free_place(object(), 1.0, 1.1)
    assert not gate.passes(1.1)
    gate.free_place(object(), 1.0, 1.1)
    assert gate.passes(1.1)


def test_one_more_attempt_passes_when_it_is_due_at_the_pace() -> None:
    gate = limited(1)
    gate.lasts = True
    gate.free_place(object(), 1.0, 1.1)
    gate.limit.pace.slow_down(2.0)
    gate.limit.pace.sent(1.1, 0)
    assert [gate.passes(at) for at in (1.5, 1.6)] == [False, True]


def test_one_more_attempt_passes_once_a_delay_is_over_unless_others_wait() -> None:
    gate, _ = held(0)
    gate.lasts = True
    assert [gate.passes(at) for at in (1.9, 2.0)] == [False, True]
    gate, _ = held(1)
    assert [gate.passes(at) for at in (1.9, 2.0)] == [False, False]


class Told:
    """The link to a fleet, which keeps what it is told of cuts."""

    def __init__(self) -> None:
        self.cuts: list[float] = []

    def limit_cut(self, part: float, sent: float, now: float) -> None:
        self.cuts.append(part)

    def held(self, now: float) -> None:
        """Nothing is asked."""


def test_a_fleet_is_told_of_cuts_alone() -> None:
    gate, fleet, call = Lane(Traffic()), Told(), Still()
    for now in (1.0, 1.2):  # it holds calls of other machines
        limit_elsewhere(gate, 8.0, 8.0, 8.0, busy=True, holds=True, now=now)
    gate.fleet.link = fleet  # type: ignore[assignment]
    assert gate.ask(call, 1.5) == 1.5
    gate.sent(call, call, 1.5)
    gate.landed(call, 1.5, 1.6, well=True, ratio=1.0, usual=0.1)
    assert fleet.cuts == []
    for _ in range(2):
        gate.refused(1.7, 1.8, 1, quick=False)
    assert fleet.cuts == [0.5]
