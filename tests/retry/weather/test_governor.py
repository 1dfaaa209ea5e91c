"""The governor of a scope: what it remembers of attempts."""

from __future__ import annotations

from support.playbook import Playbook, fault, reply, start

from proxy.retry.answers.limit_fields import ReportedLimit
from proxy.retry.budgets.token_estimate import ONE
from proxy.retry.call.actions import Deliver, Launch
from proxy.retry.facts import MappingFields, Outcome, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.policy import Backoff, Policy, Strategy
from proxy.retry.weather.ahead import Ahead, SentNote
from proxy.retry.weather.caller import Caller, Name
from proxy.retry.weather.cooldown import MOST_GROUPS
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.lane_in_fleet import limit_elsewhere
from proxy.retry.weather.lost_rows import LostRow
from proxy.retry.weather.route_names import names_of
from proxy.retry.weather.usual_times import KNOWN


class Waiting:
    """A call that waits."""

    def retime(self, at: float) -> None:
        """Nothing: the test asks itself."""


def test_an_attempt_that_is_cancelled_is_not_remembered() -> None:
    governor, waiter, attempt = Governor(), Waiting(), object()
    request = Request("GET", "u.example", "/")
    caller = Caller(request, request.fields, "")
    caller.cools = caller.limits = True
    governor.requests_wait(caller, 503, 1.0, sent=0.0, now=0.0, whole=True)
    assert governor.ask(waiter, caller, 1.0) == (1.0, "")
    assert governor.sent(waiter, attempt, 1.0)
    assert attempt in governor
    governor.dropped(attempt, 1.0, 1.5)
    assert attempt not in governor
    assert governor.first.places.in_use() == 0


def test_an_attempt_whose_head_came_before_its_end_frees_one_place_alone() -> None:
    governor = Governor()
    request = Request("GET", "u.example", "/")
    caller = Caller(request, request.fields, "")
    caller.limits = True
    refused = AttemptEnding(False, True, False, True, "", "503")
    governor.first.lasts = True
    governor.traffic.flying = 7
    for number in range(3):
        governor.traffic.failed()
        governor.failed(object(), caller, refused, 0.0, 1.0 + number / 100, again=False, cools=False)
    before = governor.first.places.in_use()
    assert (governor.first.limit.is_on, before) == (True, 4)
    governor.first.limit.set(10.0, 10.0)
    waiter, attempt = Waiting(), object()
    assert governor.ask(waiter, caller, 1.1) == (1.1, "")
    assert governor.sent(waiter, attempt, 1.1)
    governor.freed(attempt, 1.1, 1.2, False)  # its body is looked at
    governor.answered_well(attempt, caller, 1.1, 1.3)
    assert governor.first.places.in_use() == before
    governor.answered_well(object(), caller, 0.5, 1.4)  # one from before the limit
    assert governor.first.places.in_use() == before - 1


def test_the_rate_of_attempts_is_known_once_they_are_not_held() -> None:
    governor = Governor()
    request = Request("GET", "u.example", "/")
    for number in range(400):
        at = number / 20
        governor.traffic.flying += 1
        if governor.traffic.went_well(at):
            governor.answered_undecided("", request, request.fields, at - 0.01, at)
    assert 19.0 < governor.traffic.rate < 21.0


def test_how_long_answers_take_under_a_limit_is_known_for_a_call_that_it_holds() -> None:
    governor, waiter = Governor(), Waiting()
    request = Request("GET", "u.example", "/")
    caller = Caller(request, request.fields, "")
    caller.limits = True
    assert governor.answer_time(waiter, caller.names.timed) == 0.0
    governor.first.lasts = True
    governor.first.limit.begin_elsewhere(1.0, 1.0, 1.0)
    first, attempt = Waiting(), object()
    assert governor.ask(first, caller, 1.0) == (1.0, "")
    governor.sent(first, attempt, 1.0)
    assert governor.ask(Waiting(), caller, 1.1)[1] == governor.ask(waiter, caller, 1.1)[1] == "limit"
    governor.answered_well(attempt, caller, 1.0, 1.4)
    assert abs(governor.answer_time(waiter, caller.names.timed) - 0.4) < 1e-9


def test_a_route_to_which_few_calls_go_is_known_to_answer() -> None:
    governor = Governor()

    def answers(path: str, at: float) -> None:
        request = Request("GET", "u.example", path)
        governor.traffic.flying += 1
        if governor.traffic.went_well(at):
            governor.answered_undecided("", request, request.fields, at - 0.01, at)

    answers("/rare", 0.0)
    for number in range(100):
        answers("/often", 1.0 + number)
    usual, count = governor.usual.of(" GET /rare"), governor.usual.count
    answers("/rare", 1000.0)
    assert governor.usual.last(" GET /rare") == 1000.0
    assert (governor.usual.of(" GET /rare"), governor.usual.count) == (usual, count)  # its time was not measured
    answers("/rare", 1000.05)
    assert governor.usual.last(" GET /rare") == 1000.0  # noted ten times a second at most


def test_an_endpoint_that_is_out_is_probed_by_a_call_that_would_wait_for_long_elsewhere() -> None:
    governor, waiter, attempt = Governor(), Waiting(), object()
    request = Request("GET", "u.example", "/")
    caller = Caller(request, request.fields, "")
    caller.limits = caller.outages = True
    governor.lanes.of_endpoint("out:80").begin_outage(1.0, LostRow(0.9, 5), 0.5)
    assert governor.wait_at(waiter, caller, "out:80", 1.05) >= 1e9  # the first probe waits for 100 ms
    assert governor.wait_at(waiter, caller, "out:80", 1.1) == 0.1
    governor.move(waiter, caller, "out:80", 1.1)
    assert governor.ask(waiter, caller, 1.1) == (1.1, "")
    governor.sent(waiter, attempt, 1.1)
    assert governor.is_probe(attempt)
    assert governor.wait_at(Waiting(), caller, "out:80", 1.2) >= 1e9  # one probe at a time
    assert governor.losses.probe_lost(attempt, governor._in[attempt], governor.first, 1.3)
    assert governor.wait_at(Waiting(), caller, "out:80", 1.4) >= 1e9
    assert governor.wait_at(Waiting(), caller, "out:80", 1.5) == 0.1


def test_the_end_of_one_endpoints_outage_lets_the_others_be_probed_soon() -> None:
    governor, request = Governor(), Request("GET", "u.example", "/")
    lanes = [governor.lanes.of_endpoint(endpoint) for endpoint in ("a:80", "b:80")]
    for lane in lanes:
        lane.begin_outage(1.0, LostRow(0.9, 5), 0.5)
        for number in range(8):
            lane.outage.probes(lane)
            lane.outage.probe_ended(2.0 + number, lost=True)
    caller = Caller(request, request.fields, "")
    caller.limits = caller.outages = True
    caller.endpoint = "a:80"
    governor.answered_well(object(), caller, 9.1, 9.2)
    assert not lanes[0].outage.is_on
    assert lanes[1].outage.is_on
    assert lanes[1].outage.probe_at < 9.4


def test_calls_are_spread_over_endpoints_that_are_out_together() -> None:
    governor, waiters = Governor(), [Waiting() for _ in range(9)]
    request = Request("GET", "u.example", "/")
    for endpoint in ("a:80", "b:80"):
        governor.lanes.of_endpoint(endpoint).begin_outage(1.0, LostRow(0.9, 5), 0.5)
    for waiter in waiters:
        caller = Caller(request, request.fields, "")
        caller.limits = caller.outages = True
        endpoint = min(("a:80", "b:80"), key=lambda each: governor.wait_at(waiter, caller, each, 1.05))
        governor.move(waiter, caller, endpoint, 1.05)
        assert governor.ask(waiter, caller, 1.05)[1] == "outage"
        assert min(("a:80", "b:80"), key=lambda each: governor.wait_at(waiter, caller, each, 1.06)) == endpoint, (
            "a call that waits keeps its place"
        )
    assert [len(governor.lanes.of_endpoint(endpoint).queue) for endpoint in ("a:80", "b:80")] == [5, 4]


def test_a_limit_that_ends_while_another_endpoint_is_chosen_holds_nothing_any_more() -> None:
    governor, waiter = Governor(), Waiting()
    request = Request("GET", "u.example", "/")
    caller = Caller(request, request.fields, "")
    caller.limits = True
    lane = governor.lanes.of_endpoint("a:80")
    lane.lasts = True
    lane.limit.begin_elsewhere(10.0, 10.0, 1.0)
    governor.move(waiter, caller, "a:80", 1.0)
    assert governor.ask(waiter, caller, 1.0) == (1.0, "") and governor.holds(1.0)
    governor.leave(waiter, 1.1)
    assert governor.wait_at(waiter, caller, "a:80", 100.0) == 0.0
    assert not governor.holds(100.0)


def test_an_attempt_that_is_sent_again_after_a_limit_began_keeps_no_place_for_good() -> None:
    policy = Policy("u", "", Strategy("standard", "standard", 3, Backoff(0.1, 20.0)), BucketRef(QuotaSpec()))
    book = Playbook(policy)
    lane = book.scope.governor.first
    assert book >> start() << Launch(1)
    limit_elsewhere(lane, 2.0, float("inf"), 2.0, busy=False, holds=False, now=1.0)
    book.scope.governor.lanes.look((lane,), 1.0)
    assert lane.places.in_use() == 1, "the attempt is one from before the limit"
    assert book >> fault(1, "connect_failure", at=1.1) << Launch(1, fresh=True)
    assert book >> reply(1, 200, at=1.2) << Deliver(1, Outcome.SUCCESS)
    assert lane.places.in_use() == 0


def test_an_endpoint_that_was_never_there_gets_no_limit() -> None:
    """Else its calls would wait for a limit on attempts that can't connect, and be refused after that."""
    request, refused = Request("GET", "u.example", "/"), AttemptEnding(False, True, False, False, "endpoint", "no")
    caller = Caller(request, request.fields, "")
    caller.limits = caller.outages = True

    def fail(governor: Governor, at: float) -> None:
        governor.traffic.failed()
        governor.failed(object(), caller, refused, at - 0.001, at, again=False, cools=False)

    governor = Governor()
    for number in range(30):
        fail(governor, 1000.0 + number / 10)
    assert not governor.holds(1003.0)
    governor.answered_well(object(), caller, 1003.0, 1003.1)
    for number in range(4):
        fail(governor, 1004.0 + number / 100)
    assert governor.first.limit.is_on


class Adopting:
    """A fleet that only remembers which lanes it was told of."""

    def __init__(self) -> None:
        self.names: list[Name] = []

    def adopt(self, name: Name, lane: object) -> None:
        self.names.append(name)


def test_one_lost_attempt_makes_the_lane_of_its_route_only_in_a_fleet_which_is_asked_for_the_weather_of_the_lane() -> (
    None
):
    request, ending = Request("GET", "u.example", "/"), AttemptEnding(False, True, False, True, "route", "503")
    names = names_of("r", request)
    for fleet, made in ((None, False), (Adopting(), True)):
        governor = Governor()
        if fleet is not None:
            governor.lanes.join(fleet)  # type: ignore[arg-type]
        governor.traffic.failed()
        is_noted = governor.failed_freely(object(), names, ending, 0.9, 1.0)
        if not is_noted:
            caller = Caller(request, request.fields, "r")
            caller.limits = caller.outages = True
            governor.failed(object(), caller, ending, 0.9, 1.0, again=False, cools=False)
        assert (is_noted, governor.traffic.is_watched) == (not made, True)
        assert (governor.lanes.lost.lone is None) is made
        assert (governor.lanes.find(("", names.lost)) is not None) is made
        assert fleet is None or ("", names.lost) in fleet.names


def test_a_route_whose_lane_makes_room_for_others_is_no_suspect_any_more() -> None:
    """While there is a suspect, all attempts that go well are reported."""
    request, lost = Request("GET", "u.example", "/"), AttemptEnding(False, True, False, False, "route", "reset")
    caller = Caller(request, request.fields, "r")
    caller.limits = caller.outages = True
    governor = Governor()
    governor.lanes.of(("", b"one that is no suspect"))
    governor.traffic.failed()
    governor.failed(object(), caller, lost, 0.9, 1.0, again=False, cools=False)
    assert ("", caller.names.lost) in governor.lanes.lost.rows
    for number in range(MOST_GROUPS + 1):
        governor.lanes.of(("", b"%d" % number)).start(10.0, 429, 1.0, 1.0)
    assert ("", caller.names.lost) not in governor.lanes.lost.rows


def test_no_call_has_to_ask_any_more_once_the_last_attempt_under_a_limit_is_answered() -> None:
    governor, call, attempt = Governor(), Waiting(), object()
    request = Request("GET", "u.example", "/")
    caller = Caller(request, request.fields, "")
    caller.limits = True
    governor.first.lasts = True
    governor.first.limit.begin_elsewhere(1.0, 1.0, 1.0)
    assert governor.ask(call, caller, 1.0) == (1.0, "")
    governor.sent(call, attempt, 1.0)
    assert governor.holds(4.9)
    governor.answered_well(attempt, caller, 1.0, 5.0)
    assert not governor.first.limit.is_on
    assert not governor.holds(5.0)


def test_the_answer_that_ends_a_limit_is_timed_like_those_under_it() -> None:
    """The limit's end comes after, though no answer that goes well has to be reported from then on."""
    governor, call, attempt = Governor(), Waiting(), object()
    request = Request("GET", "u.example", "/")
    caller = Caller(request, request.fields, "")
    caller.limits = True
    for _ in range(KNOWN):
        governor.usual.learn(caller.names.timed, 0.1, 1.0)
    governor.first.lasts = True
    governor.first.limit.begin_elsewhere(1.0, 1.0, 1.0)
    governor.lanes.look((governor.first,), 1.0)
    assert governor.ask(call, caller, 1.0) == (1.0, "")
    governor.sent(call, attempt, 1.0)
    governor.traffic.went_well(5.0)
    governor.answered_well(attempt, caller, 4.9, 5.0)
    assert not governor.traffic.is_watched
    assert governor.usual.count == KNOWN + 1


def test_a_call_that_is_sent_past_a_limit_that_does_not_hold_it_leaves_no_trace_in_the_queue() -> None:
    """An outage held it, which is over; the limit under which held calls return does not hold `concurrency: off`."""
    governor, probe, unlimited, limited = Governor(), Waiting(), Waiting(), [Waiting(), Waiting()]
    request = Request("GET", "u.example", "/")
    auto, off = (Caller(request, request.fields, route) for route in ("auto", "off"))
    auto.outages = auto.limits = off.outages = True
    governor.first.begin_outage(1.0, LostRow(0.9, 5), 0.5)
    sent = [*((each, auto) for each in limited), (unlimited, off)]
    for waiter, caller in ((probe, auto), *sent):
        assert governor.ask(waiter, caller, 1.05)[1] == "outage"
    assert governor.ask(probe, auto, 1.1) == (1.1, "")
    governor.sent(probe, probe, 1.1)
    governor.answered_well(probe, auto, 1.1, 1.2)
    assert governor.first.holds(1.2) == "limit"
    for waiter, caller in sent:
        assert governor.ask(waiter, caller, 1.2) == (1.2, "")
        governor.sent(waiter, waiter, 1.2)
    assert governor.held() == 0
    for waiter, caller in sent:
        governor.answered_well(waiter, caller, 1.2, 1.3)
    assert governor.first.places.in_use() == 0, "a place is in use by a call that was sent long ago"


def test_a_hedge_leaves_the_queue_of_an_endpoint_also_if_an_attempt_beside_it_ended_at_the_other() -> None:
    governor, hedge, request = Governor(), Waiting(), Request("GET", "u.example", "/")
    caller = Caller(request, request.fields, "")
    caller.limits = caller.outages = True
    lane = governor.lanes.of_endpoint("a:80")
    lane.begin_outage(1.0, LostRow(0.9, 5), 0.5)
    governor.move(hedge, caller, "a:80", 1.05)
    assert governor.ask(hedge, caller, 1.05)[1] == "outage"
    caller.endpoint = "b:80"  # where the attempt ended whose failure is reported
    governor.failed(object(), caller, AttemptEnding(False, False, False, True, "", "500"), 0.9, 1.06, False, False)
    governor.move(hedge, caller, "b:80", 1.06)
    assert not lane.has(hedge)
    assert governor.ask(hedge, caller, 1.06) == (1.06, "")
    governor.sent(hedge, object(), 1.06)
    assert governor.held() == 0


class Held(Waiting):
    """A call with its own view of the governor."""

    def __init__(self) -> None:
        request = Request("GET", "u.example", "/")
        self.caller = Caller(request, request.fields, "")
        self.caller.cools = self.caller.limits = self.caller.ahead = True


def test_calls_that_a_cooldown_held_wait_for_what_is_left_in_their_order_before_newer_ones() -> None:
    """If a newer call asked for what is left first, and then waited in the cooldown's queue, what it was promised would
    be missing to the older calls before it there: each would wait for the other.
    """
    governor = Governor()
    governor.ahead = Ahead(governor.traffic)
    whose = "", Held().caller.credential()

    def says(left: float, sent: float, now: float) -> None:
        ahead = governor.ahead
        assert ahead is not None
        note = SentNote(whose, ahead.account(whose), ONE, sent)
        ahead.heard(note, [ReportedLimit("l", "attempts", left, 10, 30 - now)], sent, True, now)

    for number in range(10):
        says(9 - number, 0, 0)
    older = [Held() for _ in range(3)]
    governor.requests_wait(older[0].caller, 429, 2.0, sent=0.0, now=0.0, whole=True)
    for call in older:
        at, why = governor.ask(call, call.caller, 0.1)
        assert at > 0.1 and why == "cooldown"
    assert governor.ask(older[0], older[0].caller, 2.0)[1] == "ahead", "it is its turn, but nothing is left"
    newer = Held()
    assert governor.ask(newer, newer.caller, 2.1)[1] == "cooldown"
    says(3, 2.2, 2.2)  # three came back, one of them was taken
    went = [governor.ask(call, call.caller, 2.2)[0] == 2.2 for call in (newer, *older)]
    assert went[:2] == [False, True]


def test_a_call_that_no_limit_holds_keeps_its_turn_while_others_wait_for_a_limit() -> None:
    """If it left the calls that wait for what is left because of them, it and the next one would drive each other out
    for ever.
    """
    governor = Governor()
    governor.ahead = Ahead(governor.traffic)
    limited = [Held() for _ in range(2)]
    whose = "", limited[0].caller.credential()
    governor.first.lasts = True
    governor.first.limit.begin_at_half(2, 0.0)
    governor.first.places.limit_began(2)
    for call in limited:
        assert governor.ask(call, call.caller, 0.1)[1] == "limit"
    for left in range(9, -1, -1):
        note = SentNote(whose, governor.ahead.account(whose), ONE, 0.1)
        governor.ahead.heard(note, [ReportedLimit("l", "attempts", left, 10, 30)], 0.1, True, 0.2)
    calls = [Held() for _ in range(2)]
    for call in calls:
        call.caller.limits = False
        assert governor.ask(call, call.caller, 1.0)[1] == "ahead"
    note = SentNote(whose, governor.ahead.account(whose), ONE, 1.9)
    governor.ahead.heard(note, [ReportedLimit("l", "attempts", 1, 10, 28)], 1.9, True, 2.0)
    assert [governor.ask(call, call.caller, 2.0)[0] == 2.0 for call in calls] == [True, False]


class Ringing(Held):
    """A call that asks again as soon as its alarm rings. `rings`: it does."""

    def __init__(self, governor: Governor) -> None:
        super().__init__()
        self.caller.outages, self.governor, self.rings = True, governor, False

    def retime(self, at: float) -> None:
        self.rings = self.rings or at <= 1.0

    def ask(self) -> tuple[float, str]:
        self.rings = False
        return self.governor.ask(self, self.caller, 1.0)


def test_calls_that_a_delay_holds_do_not_pass_an_outages_probe_round_for_ever() -> None:
    """Whose turn it was to be the probe left for the delay's queue, whose first call left for that of the outage."""
    governor = Governor()
    calls = [Ringing(governor) for _ in range(4)]
    governor.first.begin_outage(0.2, LostRow(0.0, 5), 0.0)
    governor.lanes.look((governor.first,), 0.2)
    for call in calls:
        assert governor.ask(call, call.caller, 0.2)[1] == "outage"
    governor.requests_wait(calls[0].caller, 429, 5.0, sent=0.1, now=0.3, whole=False)
    whys: list[str] = []
    for call in calls:
        call.rings = call is calls[0]  # the others' alarms are later
    while asking := [call for call in calls if call.rings]:
        whys += [call.ask()[1] for call in asking]
        assert len(whys) < 50
    assert set(whys) == {"cooldown"}


def test_the_outage_of_a_path_ends_with_its_answer_however_long_ago_its_failures_were() -> None:
    """The rows of failures of paths are forgotten after a minute without one; the outage that they began is not."""
    governor = Governor()
    callers = {path: Caller(Request("GET", "u.example", path), MappingFields([]), "") for path in ("/poll", "/well")}
    for caller in callers.values():
        caller.limits = caller.outages = True

    def answered(path: str, at: float) -> None:
        governor.traffic.flying += 1
        if governor.traffic.went_well(at):
            governor.answered_well(object(), callers[path], at - 0.01, at)

    def fails(at: float) -> None:
        waiter, attempt, ending = Waiting(), object(), AttemptEnding(False, True, False, True, "route", "503")
        assert governor.ask(waiter, callers["/poll"], at) == (at, "")
        governor.sent(waiter, attempt, at)
        governor.failed(attempt, callers["/poll"], ending, at, at, again=False, cools=False)

    for number in range(900):
        answered("/well" if number % 9 else "/poll", 1.0 + number / 100)
    outage = governor.lanes.of(("", callers["/poll"].names.lost_path())).outage
    for number in range(20):
        if not outage.is_on:
            fails(10.0 + number / 10)
        for later in range(1, 10):
            answered("/well", 10.0 + number / 10 + later / 100)
    assert outage.is_on
    for number in range(100):
        answered("/well", 13.0 + number)
        if number % 9 == 8:
            fails(13.5 + number)  # a probe
    assert outage.is_on
    probe, attempt = Waiting(), object()
    assert governor.ask(probe, callers["/poll"], 114.0) == (114.0, "")
    governor.sent(probe, attempt, 114.0)
    governor.answered_well(attempt, callers["/poll"], 114.0, 114.1)
    assert not outage.is_on


def test_an_answer_to_an_attempt_from_before_an_outage_does_not_end_it_but_one_to_a_later_attempt_does() -> None:
    """A long poll's answer comes by a connection that was made before the endpoint went away."""
    governor, request = Governor(), Request("GET", "u.example", "/poll")
    caller, refused = (
        Caller(request, MappingFields([]), ""),
        AttemptEnding(False, True, False, False, "endpoint", "reset"),
    )
    caller.limits = caller.outages = caller.retries = True
    governor.traffic.answered_at = 9.0
    for at in (10.0, 10.1):
        governor.failed(object(), caller, refused, at, at, again=at > 10.0, cools=False)
    outage = governor.first.outage
    assert outage.is_on
    governor.answered_well(object(), caller, 5.0, 11.0)
    assert outage.is_on
    governor.answered_well(object(), caller, 10.5, 11.1)
    assert not outage.is_on


def test_nor_does_it_end_an_outage_that_is_observed_alone() -> None:
    governor, request = Governor(), Request("GET", "u.example", "/poll")
    governor.holds_none = True
    caller = Caller(request, MappingFields([]), "")
    caller.limits = caller.outages = caller.retries = True
    governor.traffic.answered_at = 9.0
    for at in (10.0, 10.1):
        ending = AttemptEnding(False, True, False, False, "endpoint", "reset")
        governor.failed(object(), caller, ending, at, at, again=at > 10.0, cools=False)
    outage = governor.first.outage
    assert governor.answered_freely(caller.names, "", 5.0, 11.0)
    assert outage.is_on
    assert governor.answered_freely(caller.names, "", 10.5, 11.1)
    assert not outage.is_on
