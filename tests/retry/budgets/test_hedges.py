"""What hedging looks at: the percentile of what successes took, and the share of calls that hedges are bounded to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.playbook import Playbook, reply, start, wake

from proxy.lab.clock import BEGIN, Clock
from proxy.lab.driver import Driver
from proxy.lab.upstream import Sending
from proxy.retry.budgets.hedges import FEWEST, MOST_TIMES, WINDOW, Hedges, rank
from proxy.retry.call.actions import Cancel, Deliver, Discard, Hold, Launch, WakeAt
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.call.states import Flying
from proxy.retry.facts import Class, NoFields, Outcome, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, RateSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Policy, Strategy
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.strategies.presets import HEDGING

GET = Request("GET", "a.example", "/", plain=True)
POST = Request("POST", "a.example", "/", plain=True)
THROTTLED = Classify(statuses={429: Class.THROTTLING})
P95 = replace(HEDGING, name="p95", hedging_percentile=95.0, extra=0.5)


def policy(strategy: Strategy = P95) -> Policy:
    return Policy("up", "", strategy, None, classify=Classify())


def nearest_rank(times: Sequence[float], percent: float) -> float:
    """The least of the times that at least so many percent are not above, by looking at each."""
    return min(each for each in times if 100 * sum(other <= each for other in times) >= percent * len(times) - 1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 30), st.integers(1, 10_000)), min_size=1, max_size=120),
    st.sampled_from([50.0, 55.0, 57.0, 90.0, 95.0, 99.0, 99.9]),
)
def test_the_percentile_is_that_of_a_sorted_list(steps: list[tuple[float, int]], percent: float) -> None:
    hedges, kept, now = Hedges(), [], 0.0
    for wait, took in steps:
        now += wait
        hedges.answered(took / 1000, now)
        kept.append((now, took / 1000))
        inside = [seconds for at, seconds in kept if now - at < WINDOW]
        expected = nearest_rank(inside, percent) if len(inside) >= FEWEST else None
        assert hedges.delay(percent, now) == expected


@pytest.mark.parametrize("percent", [50, 57, 95, 99, 99.9])
def test_ranks_are_whole_where_the_share_is(percent: float) -> None:
    """0.57 · 100 is 56.99999999999999 in floating point, 0.55 · 100 is 55.00000000000001."""
    for hundreds in (10, 20, 100):
        assert rank(percent, hundreds * 100) == round(percent * hundreds) - 1


def test_as_many_times_are_kept_as_stand_for_a_minute() -> None:
    hedges = Hedges()
    for number in range(MOST_TIMES + 5000):
        hedges.answered(1.0 if number < 5000 else 2.0, number / 1000)
    assert hedges.delay(50, 20.0) == 2.0
    assert hedges.delay(50, 20.0 + WINDOW + 20.0) is None


@given(
    st.lists(st.tuples(st.sampled_from(["call", "hedge", "back"]), st.floats(0, 20)), max_size=200),
    st.sampled_from([0.0, 0.05, 0.29, 0.5, 1.0]),
)
def test_hedges_are_within_their_share_and_no_fewer(steps: list[tuple[str, float]], share: float) -> None:
    hedges, now = Hedges(), 0.0
    calls: list[float] = []
    sent: list[float] = []
    for what, wait in steps:
        now += wait
        began = sum(now - at < WINDOW for at in calls)
        taken = sum(now - at < WINDOW for at in sent)
        if what == "call":
            hedges.began(now)
            calls.append(now)
        elif what == "hedge":
            assert (hedges.take(share, now) is not None) == (taken + 1 <= share * began + 1e-9)
            if taken + 1 <= share * began + 1e-9:
                sent.append(now)
        elif sent:
            hedges.give_back(sent.pop())
            taken = sum(now - at < WINDOW for at in sent)
        assert hedges.counts(now)[0] == sum(now - at < WINDOW for at in sent)


# -- calls ------------------------------------------------------------------------------------------------------------


class Watched(Hedges):
    """Holds every hedge against the bound as it is counted."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.sent = 0
        self.calls: list[float] = []
        self.hedged: list[float] = []

    def began(self, now: float) -> None:
        super().began(now)
        self.calls.append(now)

    def take(self, share: float, now: float) -> float | None:
        taken = super().take(share, now)
        if taken is not None:
            self.hedged.append(now)
            recent = [sum(now - at < WINDOW for at in each) for each in (self.hedged, self.calls)]
            assert recent[0] <= self.share * recent[1] + 1e-9
        return taken


@given(
    st.lists(
        st.tuples(
            st.floats(0, 3),
            st.lists(st.tuples(st.sampled_from([200, 200, 200, 503]), st.floats(0, 5)), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([0.05, 0.1, 0.5, 1.0]),
    st.sampled_from([None, 50.0, 95.0]),
)
def test_no_call_is_hedged_above_the_bound(
    calls: list[tuple[float, list[tuple[int, float]]]], share: float, percentile: float | None
) -> None:
    """Of whole calls, which overlap: attempts sent while another one of their call flies are within the share."""
    made = policy(replace(P95, hedging_delay=0.5, hedging_percentile=percentile, extra=share))
    scope = Registry().scope(made, GET)
    watched = scope.hedges = Watched(share)
    clock, beside = Clock(), []

    class One(Driver):
        def launched(self, attempt: int) -> None:
            if isinstance(self.call.so_far.state, Flying) and min(self.call.so_far.state.flights) < attempt:
                beside.append(self.clock.now)

    def begin(script: list[tuple[int, float]]) -> None:
        def fate(attempt: int, now: float) -> Sending:
            status, after = script[min(attempt, len(script)) - 1]
            return Sending(after, Reply(status, NoFields(), end=True))

        driver = One(clock, fate)
        driver.begin(Call(GET, made, scope, Env(None), driver.set_alarm))  # type: ignore[arg-type]

    at = 0.0
    for wait, script in calls:
        at += wait
        clock.at(at, BEGIN, begin, script)
    clock.run()
    assert beside == watched.hedged


def known(scope: ScopeState, seconds: float, count: int = FEWEST) -> None:
    assert scope.hedges is not None
    for _ in range(count):
        scope.hedges.began(0.0)
        scope.hedges.answered(seconds, 0.0)


def test_below_twenty_successes_there_is_no_hedge() -> None:
    made = policy()
    play = Playbook(made)
    known(play.scope, 0.1, FEWEST - 1)
    assert play >> start(at=0) << Launch(1) >> wake(at=5.0)


def test_the_percentile_is_the_delay() -> None:
    made = policy()
    play = Playbook(made)
    scope = play.scope
    known(scope, 0.1)
    assert (
        play
        >> start(at=1)
        << Launch(1)
        << WakeAt(1.1)
        >> wake(at=1.1)
        << Launch(2)
        << WakeAt(1.2)
        >> reply(2, 200, at=1.15)
        << Cancel(1)
        << Deliver(2, Outcome.SUCCESS)
    )
    # What was waited for is what the hedge was for: not the 50 ms that it took itself.
    assert scope.hedges is not None
    assert scope.hedges.delay(99.9, 1.15) == pytest.approx(0.15)


def test_a_hedge_above_the_bound_is_not_sent_and_a_failure_is_still_retried() -> None:
    made = policy(replace(P95, extra=0.04))
    play = Playbook(made)
    scope = play.scope
    known(scope, 0.1)
    assert play >> start(at=1) << Launch(1) << WakeAt(1.1) >> wake(at=1.1)
    state = play.call.so_far.state
    assert isinstance(state, Flying) and state.planned is None
    assert (
        play
        >> reply(1, 503, at=1.3)
        << Hold(1)
        << Launch(2)
        << WakeAt(1.4)
        >> wake(at=1.4)
        >> reply(2, 200, at=1.5)
        << Discard(1)
        << Deliver(2, Outcome.SUCCESS)
    )
    assert scope.hedges is not None and scope.hedges.counts(1.5) == (0, FEWEST + 1)


def test_a_call_that_is_not_hedged_waits_the_percentile_before_a_retry() -> None:
    made = policy(replace(P95, max_attempts=2))
    scope = Registry().scope(made, POST)
    waits = []
    for enough in (False, True):
        if enough:
            known(scope, 0.25)
        call = Call(POST, replace(made, classify=THROTTLED), scope, Env(None))  # type: ignore[arg-type]
        call.start(0.0)
        actions = call.head(1, Reply(429, NoFields(), end=True), 1.0)
        waits += [action.at - 1.0 for action in actions if isinstance(action, WakeAt)]
    assert waits == [0.5, 0.25]


def test_observing_and_off_learn_nothing() -> None:
    for mode in ("observe", "off"):
        made = replace(policy(), mode=mode)
        scope = Registry().scope(made, GET)
        call = Call(GET, made, scope, Env(None))  # type: ignore[arg-type]
        call.start(0.0)
        call.head(1, Reply(200, NoFields(), end=True), 1.0)
        assert scope.hedges is not None and scope.hedges.counts(1.0) == (0, 0)


def test_a_hedge_that_is_not_sent_after_all_gives_its_place_back() -> None:
    """The app leaves while the rate bucket holds the hedge."""
    made = replace(policy(), rate=BucketRef(RateSpec(0.001, 1.0)))
    scope = Registry().scope(made, GET)
    known(scope, 0.1)
    call = Call(GET, replace(made, timeouts=replace(made.timeouts, total=None)), scope, Env(None))  # type: ignore[arg-type]
    call.start(1.0)
    call.woke(1.1)
    assert scope.hedges is not None and scope.hedges.counts(1.1) == (1, FEWEST + 1)
    call.app_gone(1.2)
    assert scope.hedges.counts(1.2) == (0, FEWEST + 1)


def test_where_all_go_at_once_those_without_room_do_not() -> None:
    made = policy(replace(HEDGING, name="at once", hedging_delay=0.0, extra=0.5))
    assert Playbook(made) >> start(at=0) << Launch(1)
