"""The lane of calls that wait for what is left of limits, and the limits of a scope that are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.playbook import ANY, Playbook, reply, start, wake

from proxy.retry.answers.limit_fields import ReportedLimit
from proxy.retry.budgets.token_estimate import ONE, Price
from proxy.retry.call.actions import Deliver, Hold, Launch, WakeAt
from proxy.retry.capacity.report_trust import ReportTrust
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.facts import Class, NoFields, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Backoff, Policy, PushbackPolicy, Strategy, Timeouts
from proxy.retry.scopes.registry import Registry
from proxy.retry.weather.ahead import MOST_LIMITS, SEVERAL, Ahead, AheadLane, SentNote
from proxy.retry.weather.caller import Caller

NEVER = float("inf")


class Call:
    """A waiter; `rang`: the last time that it was retimed to."""

    def __init__(self, price: Price = ONE) -> None:
        self.price = price
        self.rang: float | None = None

    def retime(self, at: float) -> None:
        self.rang = at


def whose(number: int = 0) -> tuple[str, bytes]:
    return "", b"key %d" % number


def said(remaining: float, reset: float = 10, name: str = "l", limit: float = 10) -> ReportedLimit:
    return ReportedLimit(name, "attempts", remaining, limit, reset)


def note(ahead: Ahead, number: int = 0, now: float = 0.0) -> SentNote:
    return SentNote(whose(number), ahead.account(whose(number)), ONE, now)


def used_up(ahead: Ahead, number: int = 0) -> Ahead:
    """Nine attempts were sent, so that ten are used with the next one."""
    for _ in range(9):
        note(ahead, number)
    return ahead


def heard(
    ahead: Ahead,
    *reports: ReportedLimit,
    of: SentNote | None = None,
    at: float = 0.0,
    since: float | None = None,
    well: bool = True,
) -> None:
    """Take in an answer to an attempt that was sent at `since`; at once, if that is not said."""
    since = at if since is None else since
    ahead.heard(of or note(ahead, now=since), reports, since, well, at)


def lane_of(ahead: Ahead) -> AheadLane:
    (lane,) = ahead.lanes()
    return lane


def sent(lane: AheadLane, ahead: Ahead, call: Call, now: float) -> SentNote:
    """The call's attempt is sent; it answers with no word of the limit yet."""
    assert call in lane.due
    lane.sent(call, call, now)
    return note(ahead, now=now)


def test_a_call_that_fits_is_sent_at_once_and_others_wait_for_the_reset() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, said(1))
    lane, first, second = lane_of(ahead), Call(), Call()
    assert lane.holds(0) == ""
    assert lane.ask(first, 1) == 1
    note(ahead, now=1)
    assert lane.ask(second, 1) == 10
    assert lane.holds(1) == "ahead"
    assert lane.ask(Call(), 1) == NEVER  # it is retimed when it is the first
    assert lane.left(1) == (("l", 0.0),)


def test_a_call_that_may_be_sent_counts_until_it_is() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, said(0))
    lane, calls = lane_of(ahead), [Call() for _ in range(3)]
    for call in calls:
        lane.ask(call, 1)
    heard(ahead, said(2, 8), at=2)
    assert [call in lane.due for call in calls] == [True, True, False]
    assert calls[0].rang == 2
    assert lane.ask(calls[0], 2) == 2
    assert lane.wait_of(calls[2], 2) == 8  # both that are left are promised


def test_a_call_that_may_be_sent_waits_for_none_of_those_behind_it() -> None:
    """Else a cooldown that still holds it would take it for the last of them, and refuse it beyond `hold`."""
    ahead = Ahead(Traffic())
    heard(ahead, said(0))
    lane, calls = lane_of(ahead), [Call() for _ in range(30)]
    for call in calls:
        lane.ask(call, 1)
    heard(ahead, said(1, 8), at=2)
    assert calls[0] in lane.due
    assert (lane.wait_of(calls[0], 2), lane.wait_of(calls[1], 2)) == (0.0, 8)


def test_every_reset_of_a_limit_without_a_size_begins_the_slow_start_anew() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, replace(said(0), limit=None))
    lane, calls = lane_of(ahead), [Call() for _ in range(9)]
    for call in calls:
        lane.ask(call, 1)
    lane.release(10)
    assert [call in lane.due for call in calls].count(True) == 1


def test_the_wait_of_a_call_ends_when_the_slow_start_comes_to_it() -> None:
    """Answers take two seconds: after the reset one call is sent, then two, then four."""
    ahead = Ahead(Traffic())
    heard(ahead, replace(said(0), limit=None), at=2, since=0)
    lane, calls = lane_of(ahead), [Call() for _ in range(8)]
    for call in calls:
        lane.ask(call, 2)
    assert [round(lane.wait_of(call, 2), 3) for call in calls] == [10, 12, 13.17, 14, 14.644, 15.17, 15.615, 16]
    lane.release(12)
    sent(lane, ahead, calls[0], 12)
    lane.landed(calls[0], 12, 14, True)
    assert [call in lane.due for call in calls] == [False, True, True, *[False] * 5]
    for call in calls[1:3]:
        sent(lane, ahead, call, 14)
    assert [round(lane.wait_of(call, 14), 3) for call in calls[3:]] == [2, 2.644, 3.17, 3.615, 4]


def test_the_wait_of_a_call_for_a_limit_whose_window_is_known_has_no_slow_start() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, replace(said(0), window=10))
    lane, calls = lane_of(ahead), [Call() for _ in range(8)]
    for call in calls:
        lane.ask(call, 0)
    assert [round(lane.wait_of(call, 0), 3) for call in calls[:3]] == [1, 2, 3]


def test_after_the_reset_of_a_window_all_calls_that_fit_are_sent() -> None:
    ahead = Ahead(Traffic())
    for number in range(10):
        heard(ahead, said(9 - number, 10 - number / 4), at=number / 4)
    lane, calls = lane_of(ahead), [Call() for _ in range(12)]
    for call in calls:
        lane.ask(call, 3)
    lane.release(10.001)
    assert [call in lane.due for call in calls].count(True) == 1, "the time of a reset may be rounded"
    lane.release(10.02)
    assert [call in lane.due for call in calls].count(True) == 10


def test_before_the_reset_the_slow_start_goes_on() -> None:
    ahead = used_up(Ahead(Traffic()))
    heard(ahead, said(0))
    lane, calls = lane_of(ahead), [Call() for _ in range(9)]
    for call in calls:
        lane.ask(call, 1)
    lane.release(10)
    first = sent(lane, ahead, calls[0], 10)
    heard(ahead, said(2), of=first, at=11, since=10)
    lane.landed(calls[0], 10, 11, True)
    notes = [sent(lane, ahead, call, 11) for call in calls[1:3]]
    for call in calls[1:3]:
        lane.landed(call, 11, 12, True)
    lane.release(13)
    heard(ahead, said(5), of=notes[1], at=14, since=11)
    assert [call in lane.due for call in calls].count(True) > 1


def test_a_report_that_is_put_aside_lets_one_call_go_as_a_test() -> None:
    ahead = Ahead(Traffic())
    for number in range(3):
        heard(ahead, said(0, 1, limit=1), at=2 * number)
    lane = lane_of(ahead)
    calls = [Call() for _ in range(3)]
    for call in calls:
        lane.ask(call, 4)
    heard(ahead, said(0, 1, limit=1), at=6)
    assert [call in lane.due for call in calls] == [True, False, False]


def unexplained(ahead: Ahead) -> AheadLane:
    """Nothing is left for the second time, though only two attempts were sent; the answers came at 0 and at 12."""
    heard(ahead, said(0))
    heard(ahead, said(0), at=12)
    return lane_of(ahead)


def test_one_call_tests_a_report_that_this_process_has_not_used_the_limit_up_for() -> None:
    """If it succeeds, the report was wrong; what was sent before says nothing of it."""
    ahead = Ahead(Traffic())
    heard(ahead, said(0))
    lane, calls = lane_of(ahead), [Call() for _ in range(3)]
    assert lane.ask(calls[0], 1) == 10, "the first time it is waited for"
    lane.leave(calls[0], 1)
    before = note(ahead, now=11)
    heard(ahead, said(0), at=12)
    assert lane.ask(calls[0], 12) == 12
    tests = note(ahead, now=12)
    assert lane.ask(calls[1], 12) == 22
    heard(ahead, said(0), of=before, at=12.5, since=11)
    assert calls[1] not in lane.due
    heard(ahead, said(0, 9), of=tests, at=13, since=12)
    assert calls[1] in lane.due
    assert ahead.wait(whose(), calls[2], 13) == 0, "it is not believed any more"


def test_the_answers_of_attempts_from_before_a_test_begin_no_other() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, said(0))
    one, two = note(ahead, now=11), note(ahead, now=11)
    heard(ahead, said(0), of=one, at=12, since=11)
    lane = lane_of(ahead)
    assert lane.ask(Call(), 12) == 12
    note(ahead, now=12)
    heard(ahead, said(0), of=two, at=12.5, since=11)
    assert lane.ask(Call(), 12.5) == 22


def test_a_report_whose_test_is_refused_is_believed() -> None:
    ahead = Ahead(Traffic())
    lane = unexplained(ahead)
    assert lane.ask(Call(), 12) == 12
    note(ahead, now=12)
    ahead.forget(whose(), 12, 13)
    heard(ahead, said(0), at=14)
    assert lane.ask(Call(), 14) > 14


def shown(ahead: Ahead) -> Ahead:
    """A refusal has shown, long ago, that nothing was left as reported."""
    heard(ahead, said(0), at=-700)
    ahead.refused(whose(), -699, -699)
    return ahead


def several(ahead: Ahead, now: float) -> list[Call]:
    """Several calls that come one after the other and wait."""
    calls = [Call() for _ in range(SEVERAL)]
    for call in calls:
        assert not ahead.test(whose(), 9, 20, now)
        lane_of(ahead).ask(call, now)
    return calls


def test_if_several_calls_wait_for_what_others_used_one_tests_it_the_first_time_too() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, said(0))
    lane, calls = lane_of(ahead), several(ahead, 1)
    assert not ahead.test(whose(), 0.4, 20, 1), "it is not worth it"
    assert ahead.test(whose(), 9, 20, 1)
    assert not ahead.test(whose(), 9, 20, 1)
    assert lane.ask(calls[0], 1) == 1
    tests = sent(lane, ahead, calls[0], 1)
    assert lane.ask(calls[1], 1) == 10
    heard(ahead, said(0, 9), of=tests, at=2, since=1)
    assert ahead.wait(whose(), calls[2], 2) == 9, "it may be that one came back"
    lane.ask(Call(), 2)
    assert ahead.test(whose(), 9, 20, 2), "but the test was served, so that another may follow"
    assert lane.ask(calls[1], 2) == 2


def test_if_several_calls_wait_for_what_this_process_used_one_tests_it_unless_a_refusal_has_shown_it() -> None:
    """The limit may be larger than reported, and nobody who keeps to it finds out."""
    ahead = used_up(Ahead(Traffic()))
    heard(ahead, said(0))
    lane, calls = lane_of(ahead), several(ahead, 1)
    assert not ahead.test(whose(), 0.4, 20, 1), "it is not worth it"
    assert ahead.test(whose(), 9, 20, 1)
    assert lane.ask(calls[0], 1) == 1
    sent(lane, ahead, calls[0], 1)
    ahead.refused(whose(), 1, 2)
    for now in (20, 1000):
        heard(ahead, said(0), at=now)
        for _ in range(SEVERAL):
            lane.ask(Call(), now)
        used_up(ahead)
        heard(ahead, said(0), at=now)
        assert not ahead.test(whose(), 9, 20, now), "one refused attempt is enough"


def test_one_of_several_calls_tests_a_reset_that_is_too_far_away_to_be_waited_for() -> None:
    ahead = used_up(shown(Ahead(Traffic())))
    heard(ahead, said(0, 50))
    lane, calls = lane_of(ahead), several(ahead, 1)
    assert not ahead.test(whose(), 49, 120, 1)
    assert ahead.test(whose(), 49, 80, 1)
    assert lane.ask(calls[0], 1) == 1
    tests = sent(lane, ahead, calls[0], 1)
    assert lane.ask(calls[1], 1) == 50
    heard(ahead, said(9, 50), of=tests, at=2, since=1)
    assert lane.left(2) == (), "all is back: the reset was wrong"


def test_one_of_so_many_calls_that_they_would_wait_for_several_windows_tests_what_this_process_has_used_up() -> None:
    """The limit may be larger than reported."""
    ahead = used_up(shown(Ahead(Traffic())))
    heard(ahead, said(0))
    several(ahead, 1)
    assert not ahead.test(whose(), 9, 18, 1), "all fit after the reset"
    for _ in range(SEVERAL):
        lane_of(ahead).ask(Call(), 1)
    assert not ahead.test(whose(), 9, 18, 1)
    lane_of(ahead).ask(Call(), 1)
    assert ahead.test(whose(), 9, 18, 1), "the eleventh would wait for the next reset"


@pytest.mark.parametrize("delay", [5.0, None])
def test_after_a_refused_test_there_is_no_other_whether_the_refusal_names_a_delay_or_not(delay: float | None) -> None:
    ahead = used_up(Ahead(Traffic()))
    heard(ahead, said(0, 50))
    lane, calls = lane_of(ahead), several(ahead, 1)
    assert ahead.test(whose(), 49, 40, 1)
    assert lane.ask(calls[0], 1) == 1
    sent(lane, ahead, calls[0], 1)
    if delay is None:
        ahead.refused(whose(), 1, 2)
    else:
        ahead.forget(whose(), 1, 2, delay)
    heard(ahead, said(0, 50), at=70)
    for _ in range(SEVERAL):
        lane.ask(Call(), 70)
    assert len(lane.queue) >= SEVERAL
    assert not ahead.test(whose(), 49, 40, 70)


def test_what_was_sent_before_a_refused_attempt_says_nothing_of_the_limit() -> None:
    ahead = used_up(Ahead(Traffic()))
    first = note(ahead, now=1)
    heard(ahead, said(1), at=1.5)
    ahead.forget(whose(), 2, 2.5)
    heard(ahead, said(0), of=first, at=3, since=1)
    assert lane_of(ahead).left(3) == ()
    heard(ahead, said(4, 7.5), at=4)
    assert lane_of(ahead).left(4) == (("l", 4.0),)


def test_of_a_credential_that_never_succeeded_nothing_is_kept() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, said(0), well=False)
    assert ahead.lanes() == []
    heard(ahead, said(0), well=True)
    heard(ahead, said(3), well=False)
    assert lane_of(ahead).left(0) == (("l", 3.0),)


def test_a_429_with_a_delay_of_its_own_ends_what_is_known_and_wakes_the_first_that_waits() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, said(0))
    lane, call = lane_of(ahead), Call()
    lane.ask(call, 1)
    ahead.forget(whose(1), 1, 1)
    assert call not in lane.due
    ahead.forget(whose(), 1, 1)
    assert call in lane.due
    assert lane.left(1) == ()


def test_an_answer_that_does_not_name_the_limit_any_more_ends_what_is_assumed() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, said(0))
    lane = lane_of(ahead)
    assert lane.left(10) == (("l", 10.0),)
    failed = note(ahead, now=10)
    heard(ahead, of=failed, at=11, well=False)
    assert lane.left(11) == (("l", 9.0),)
    heard(ahead, of=failed, at=11)
    assert lane.left(11) == ()


def test_answers_to_earlier_requests_say_nothing() -> None:
    ahead = Ahead(Traffic())
    first, second = note(ahead), note(ahead)
    heard(ahead, said(5), of=second)
    heard(ahead, said(0), of=first)
    assert lane_of(ahead).left(0) == (("l", 5.0),)


def test_the_longest_unused_of_many_limits_goes() -> None:
    ahead = Ahead(Traffic())
    for number in range(MOST_LIMITS):
        heard(ahead, said(1, name=f"l{number}"))
    heard(ahead, said(1, name="l0"))
    heard(ahead, said(1, name="new"))
    names = {name for name, _ in lane_of(ahead).left(0)}
    assert len(names) == MOST_LIMITS
    assert {"l0", "l2", "new"} <= names and "l1" not in names


def test_accounts_without_a_limit_make_room_for_others() -> None:
    ahead = Ahead(Traffic())
    with_limit, silent = note(ahead, 0), note(ahead, 1)
    heard(ahead, said(1), of=with_limit)
    for number in range(2, 65):
        ahead.account(whose(number))
    assert ahead.account(whose(0)) is with_limit.account
    assert ahead.account(whose(1)) is not silent.account  # 64 are kept
    heard(ahead, said(1), of=silent)  # its account is another one by now
    assert len(ahead.lanes()) == 1


def test_another_endpoints_or_credentials_lane_is_left() -> None:
    ahead = Ahead(Traffic())
    heard(ahead, said(0))
    lane, call = lane_of(ahead), Call()
    lane.ask(call, 1)
    caller = Caller(Request("GET", "a", "/"), NoFields(), "")
    caller.ahead = True
    assert ahead.line(call, caller, (lane,), 1, cools=False) is None  # of no credential nothing is known
    assert not lane.has(call)
    own = caller.endpoint, caller.credential()
    ahead.heard(SentNote(own, ahead.account(own), ONE, 1), [said(0)], 1, True, 1)
    line = ahead.line(call, caller, (), 1, cools=False)
    assert line is not None and line.name == own
    assert ahead.line(call, caller, (), 1, cools=True) is None
    caller.ahead = False
    assert ahead.line(call, caller, (), 1, cools=False) is None
    assert ahead.wait(own, call, 1) == 10
    assert ahead.wait(whose(7), call, 1) == 0


USED_UP = {"ratelimit": "limit=10, remaining=0, reset=10"}
POLICY = Policy(
    "u",
    "",
    Strategy("standard", "standard", 2, Backoff(0.0, 0.0)),
    BucketRef(QuotaSpec()),
    pushback=PushbackPolicy(ahead=True),
    classify=Classify(statuses={429: Class.THROTTLING}),
)


def kept(book: Playbook) -> bool:
    """Whether a limit is known that an answer has reported."""
    ahead = book.scope.governor.ahead
    assert ahead is not None
    return bool(ahead.lanes())


@pytest.mark.parametrize(("status", "is_kept"), [(200, True), (304, True), (400, False)])
def test_a_failed_request_proves_no_credential(status: int, is_kept: bool) -> None:
    book = Playbook(POLICY)
    assert book >> start() << Launch(1) >> reply(1, status, at=0.1, headers=USED_UP) << Deliver(1, ANY)
    assert kept(book) == is_kept


def test_what_is_left_after_an_attempt_that_was_sent_before_a_refused_one_is_not_believed() -> None:
    registry = Registry()
    first, second = Playbook(POLICY, registry=registry), Playbook(POLICY, registry=registry)
    assert first >> start() << Launch(1)
    assert second >> start(at=1.0) << Launch(1)
    assert second >> reply(1, 429, at=1.5, headers={"retry-after": "5"}) << Hold(1) << WakeAt(6.5)
    assert first >> reply(1, 200, at=2.0, headers=USED_UP) << Deliver(1, ANY)
    assert not kept(first)


def use_up(registry: Registry, policy: Policy, reset: int, took: float = 0.0) -> None:
    """This process itself uses up a limit, which is whole again `reset` seconds after the answers."""
    books = [Playbook(policy, registry=registry) for _ in range(10)]
    for book in books:
        assert book >> start(at=100.0) << Launch(1)
    for left, book in zip(range(9, -1, -1), books, strict=True):
        said = f"limit=10, remaining={left}, reset={reset}"
        assert book >> reply(1, 200, at=100.0 + took, headers={"ratelimit": said}) << Deliver(1, ANY)


def test_no_call_waits_for_a_limit_in_a_process_that_ends() -> None:
    registry = Registry()
    use_up(registry, POLICY, 10)
    held, late = (Playbook(POLICY, registry=registry) for _ in range(2))
    assert held >> start(at=101.0) << WakeAt(110.0)
    registry.hold_none(102.0)
    assert held >> wake(102.0) << Launch(1)
    assert late >> start(at=103.0) << Launch(1)


@pytest.mark.parametrize(("reset", "is_tested"), [(9, False), (11, True)])
def test_one_of_several_calls_tests_a_reset_that_is_later_than_half_of_the_hold(reset: int, is_tested: bool) -> None:
    """The rest of it is for a pushback. Calls are held for twenty seconds at most. Answers take too long for a test
    that is made only since the limit may be larger.
    """
    registry, policy = Registry(), replace(POLICY, timeouts=Timeouts(total=None))
    use_up(registry, policy, reset, took=2.0)
    waiting = [Playbook(policy, registry=registry).call for _ in range(SEVERAL)]
    happened = [*(call.start(102.0) for call in waiting), *(call.woke(102.0) for call in waiting)]
    assert sum(isinstance(action, Launch) for actions in happened for action in actions) == is_tested


def test_what_grows_by_what_is_sent_holds_nobody_from_the_third_report_on() -> None:
    """A server that reports what is used: long before five seconds have passed, and the first ten go at once."""
    ahead = Ahead(Traffic())
    notes = [note(ahead, now=0.1 * number) for number in range(8)]
    heard(ahead, said(1), of=notes[0], at=0.8, since=0.7)
    lane, calls = lane_of(ahead), [Call() for _ in range(3)]
    for call in calls:
        assert lane.ask(call, 1) > 1
    heard(ahead, said(2), of=notes[1], at=1.1, since=1.0)
    assert not any(call in lane.due for call in calls)
    heard(ahead, said(3), of=notes[2], at=1.2, since=1.1)
    assert all(call in lane.due for call in calls)
    newcomer = Call()
    assert lane.ask(newcomer, 1.3) == 1.3
    heard(ahead, said(1), of=note(ahead, now=11), at=12, since=11)  # at its reset it begins again
    assert ahead.wait(whose(), newcomer, 12) == 0 < ahead.wait(whose(), Call((2.0, 0.0, 0.0, 0.0)), 12)


def test_if_a_limit_holds_no_call_any_more_those_that_wait_are_not_all_sent_at_once() -> None:
    ahead = Ahead(Traffic())
    notes = [note(ahead, now=0.1 * number) for number in range(8)]
    heard(ahead, said(1), of=notes[0], at=0.8, since=0.7)
    lane, calls = lane_of(ahead), [Call() for _ in range(40)]
    for call in calls:
        lane.ask(call, 1)
    heard(ahead, said(2), of=notes[1], at=1.1, since=1.0)
    heard(ahead, said(3), of=notes[2], at=1.2, since=1.1)
    assert [call in lane.due for call in calls].count(True) == 10
    for call in calls[:10]:
        lane.sent(call, call, 1.2)
    for call in calls[:10]:
        lane.landed(call, 1.2, 1.5, True)
    assert [call in lane.due for call in calls].count(True) == 20, "the others follow as answers come"


def test_what_has_fallen_by_what_was_sent_is_believed_when_it_grows() -> None:
    """As a sliding window's does, parts of which come back while calls are sent."""
    ahead = Ahead(Traffic())
    notes = [note(ahead, now=0.1 * number) for number in range(8)]
    for number, remaining in enumerate((4, 3, 4, 5, 6)):
        heard(ahead, said(remaining), of=notes[number], at=1 + 0.1 * number, since=0.9 + 0.1 * number)
    three, four = (Call((price, 0.0, 0.0, 0.0)) for price in (3.0, 4.0))  # three of six are on their way
    assert ahead.wait(whose(), three, 1.5) == 0 < ahead.wait(whose(), four, 1.5)


def cool_with_nothing_left(registry: Registry, policy: Policy, delay: int, **headers: str) -> Playbook:
    """A call that a 503 asks to wait at 100.5 s. What is left of a limit, nothing, came with other answers to the same
    key: it is whole again at 125 s.
    """
    first = Playbook(policy, registry=registry, headers=headers)
    assert first >> start(at=100.0) << Launch(1)
    for left in range(9, -1, -1):
        book, said = Playbook(policy, registry=registry, headers=headers), f"limit=10, remaining={left}, reset=25"
        assert book >> start(at=100.0) << Launch(1)
        assert book >> reply(1, 200, at=100.0, headers={"ratelimit": said}) << Deliver(1, ANY)
    delayed = reply(1, 503, at=100.5, headers={"retry-after": str(delay)})
    assert first >> delayed << Hold(1) << WakeAt(100.5 + delay)
    return first


COOLED = replace(POLICY, classify=Classify(statuses={503: Class.TRANSIENT}), timeouts=Timeouts(total=None))


def test_a_call_that_would_miss_its_deadline_by_a_limit_goes_when_its_turn_in_a_cooldown_comes() -> None:
    """It does not wait behind those that came later, though they wait for the limit."""
    registry = Registry()
    first = cool_with_nothing_left(registry, COOLED, 10)
    short = Playbook(replace(COOLED, timeouts=Timeouts(total=12.0)), registry=registry)
    assert short >> start(at=101.0) << WakeAt(110.5)
    later = [Playbook(COOLED, registry=registry) for _ in range(2)]
    for book in later:
        assert book >> start(at=102.0) << WakeAt(122.0)
    assert first >> wake(110.5) << WakeAt(125.0)
    assert short >> wake(110.5) << WakeAt(110.6) >> wake(110.6) << Launch(1)


def test_calls_with_another_key_go_on_while_one_whose_turn_came_in_a_cooldown_waits_for_its_limit() -> None:
    registry = Registry()
    first = cool_with_nothing_left(registry, COOLED, 10, authorization="a")
    other = Playbook(COOLED, registry=registry, headers={"authorization": "b"})
    assert other >> start(at=101.0) << WakeAt(110.5)
    assert first >> wake(110.5) << WakeAt(125.0)
    assert other >> wake(110.5) << WakeAt(110.6) >> wake(110.6) << Launch(1)


def hears(ahead: Ahead, remaining: float, at: float, *, reset: float = 10, limit: float | None = 10) -> None:
    """An attempt that is sent at once succeeds, and its answer says what is left."""
    heard(ahead, ReportedLimit("l", "attempts", remaining, limit, reset), at=at)


@pytest.mark.parametrize("left", [1, 4])
def test_a_remainder_that_is_the_same_after_two_more_successes_before_its_reset_is_wrong(left: float) -> None:
    """Each takes one of it, and nothing comes back before a reset that answers have named for two seconds."""
    ahead, large = Ahead(Traffic()), Call((9.0, 0.0, 0.0, 0.0))
    hears(ahead, 5, 0.0)
    hears(ahead, left, 2.0, reset=8)
    hears(ahead, left, 2.1, reset=8)
    assert ahead.wait(whose(), large, 2.1) > 0
    hears(ahead, left, 2.2, reset=8)
    assert ahead.wait(whose(), large, 2.2) == 0


@pytest.mark.parametrize("limit", [10.0, None])
def test_a_remainder_that_is_the_same_for_two_seconds_and_five_successes_is_wrong_though_its_reset_moves(
    limit: float | None,
) -> None:
    ahead, large = Ahead(Traffic()), Call((9.0, 0.0, 0.0, 0.0))
    for number in range(6):
        assert number == 0 or ahead.wait(whose(), large, 0.5 * number) > 0
        hears(ahead, 1, 0.5 * number, limit=limit)
    assert ahead.wait(whose(), large, 2.5) == 0


@pytest.mark.parametrize(("left", "doubted"), [(0, False), (3000, False), (3001, True)])
def test_tokens_that_are_rounded_to_the_thousand_may_be_the_same_again_and_again(left: float, doubted: bool) -> None:
    """Calls use a few of them at a time, and some come back in between."""
    trust = ReportTrust()
    for number in range(12):
        reported, at = ReportedLimit("t", "tokens", left, 8000, 0.1 if not left else 40), 0.5 * number
        trust.takes(reported, 60.0 * number, at - 0.1, at, order=number)
    assert trust.doubts("t", 5.5) is doubted


def test_of_much_that_is_left_the_same_remainder_may_come_back_with_each_answer() -> None:
    """It may be what a request at a time leaves of a limit that fills up in between."""
    ahead = Ahead(Traffic())
    for number in range(8):
        hears(ahead, 9, float(number), reset=1)
    hears(ahead, 0, 8.0)
    assert ahead.wait(whose(), Call(), 8.0) > 0


def test_a_limit_whose_size_changes_and_changes_back_is_not_one_limit() -> None:
    """Each model has limits of its own, for which a provider has one name."""
    ahead = Ahead(Traffic())
    hears(ahead, 90, 0.0, limit=100)
    hears(ahead, 0, 0.5, limit=10)
    assert ahead.wait(whose(), Call(), 0.5) == 0 < ahead.wait(whose(), Call(), 1.6), "a second later it counts"
    hears(ahead, 80, 2.0, limit=100)
    hears(ahead, 0, 40.0, limit=100)
    assert ahead.wait(whose(), Call(), 40.0) == 0, "and for ten minutes no longer"


def test_a_limit_that_gets_another_size_for_good_is_believed() -> None:
    ahead = Ahead(Traffic())
    for at, limit in ((0.0, 100), (60.0, 75), (120.0, 100)):
        hears(ahead, 50, at, limit=limit)
    hears(ahead, 0, 122.0, limit=100)
    assert ahead.wait(whose(), Call(), 122.0) > 0
