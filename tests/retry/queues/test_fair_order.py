"""Queues of calls of several apps: by priority, by weight, and within an app by arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.apps import RANKS, Apps, NamedApp
from proxy.retry.budgets.buckets import RateBucket
from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.rates import Rates
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.budgets.token_estimate import Estimate
from proxy.retry.policies.bucket_specs import RateSpec
from proxy.retry.policies.policy import Concurrency
from proxy.retry.queues.fair_lines import FairLines
from proxy.retry.queues.fair_order import FairOrder, app_of, leave_first, take_place

WEB = NamedApp("web", 4, RANKS["high"])
JOBS = NamedApp("jobs", 1, RANKS["normal"])
MORE = NamedApp("more", 3, RANKS["normal"])
BATCH = NamedApp("batch", 1, RANKS["low"])
OTHER = NamedApp("other", 1, RANKS["normal"])
NAMED, UNNAMED = NamedApp(who="a"), NamedApp()


class Call:
    """A waiter of an app."""

    def __init__(self, app: NamedApp | None, price: float = 1.0, latest: float = float("inf")) -> None:
        self.app = app
        self.cost = price
        self.estimate = Estimate(price, 0.0)
        self.latest = latest
        self.at: float | None = None

    def retime(self, at: float) -> None:
        self.at = at


def lines_of(calls: Iterable[Call], order: FairOrder | None = None) -> FairLines:
    lines = FairLines()
    lines.order = order or lines.order
    for number, call in enumerate(calls):
        lines.add(call, call.cost, float(number))
    return lines


def order_of(*apps: NamedApp, order: FairOrder | None = None) -> list[str]:
    return [app_of(call).name for call in lines_of([Call(app) for app in apps], order)]  # type: ignore[union-attr]


def test_one_place_in_eight_goes_to_the_lower_ones_by_turns() -> None:
    order = order_of(*[BATCH] * 20, *[JOBS] * 20, *[WEB] * 20)
    assert order[:16] == [*["web"] * 7, "jobs", *["web"] * 7, "batch"]
    assert order.index("batch") < 20 and order[-1] == "batch"


@given(
    st.lists(st.tuples(st.sampled_from([WEB, JOBS, MORE, BATCH]), st.sampled_from([0.0, 1.0, 3.5]))),
    st.lists(st.tuples(st.sampled_from([WEB, JOBS, MORE, BATCH]), st.booleans(), st.booleans()), max_size=20),
)
def test_a_queue_is_arranged_as_its_calls_would_be_chosen_one_by_one(
    waiting: list[tuple[NamedApp, float]], before: list[tuple[NamedApp, bool, bool]]
) -> None:
    order = FairOrder()
    for app, others, comes in before:
        if comes:
            order.came(app)
        order.went(app, 1.0, others=others)
    calls = [(Call(app), app, price) for app, price in waiting]
    ahead, chosen, left = order.copied(), [], list(calls)
    came = {call: float(place) for place, (call, _, _) in enumerate(calls)}
    while left:
        heads: dict[int, dict[str, tuple[NamedApp, float, float]]] = {}
        for call, app, price in left:
            heads.setdefault(app.rank, {}).setdefault(app.name, (app, price, came[call]))
        rank, name = ahead.choose(heads)
        first = next(each for each in left if (each[1].rank, each[1].name) == (rank, name))
        left.remove(first)
        ahead.went(*first[1:], others=len(heads) > 1)
        chosen.append(first[0])
    assert order.arranged(calls) == chosen


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["comes", "comes", "comes", "goes", "leaves", "returns", "comes second"]),
            st.sampled_from([WEB, JOBS, MORE, OTHER, BATCH, NAMED, UNNAMED]),
            st.integers(0, 99),
        ),
        max_size=60,
    )
)
def test_a_call_that_comes_takes_the_place_that_sorting_the_whole_queue_would_give_it(
    steps: list[tuple[str, NamedApp, int]],
) -> None:
    queue: dict[Call, float] = {}
    order, is_sorted = FairOrder(), True
    for step, app, number in steps:
        if step.startswith("comes"):
            kept, last = int(step != "comes" and bool(queue)), next(reversed(queue), None)
            alone = order.copied()
            if not any((each.app.rank, each.app.name) == (app.rank, app.name) for each in queue if each.app):
                alone.came(app)
            queue[Call(app)] = 0.0
            expected = list(queue)
            if last is None or last.app != app or (is_sorted and not kept):
                known = [(call, call.app, 1.0) for call in expected[kept:] if call.app is not None]
                expected[kept:] = alone.arranged(known)  # type: ignore[assignment]
            is_sorted = not kept and (is_sorted or last is None or last.app != app)
            take_place(order, queue, keep_first=bool(kept))
            assert list(queue) == expected
        elif queue:
            call = [*queue][0 if step == "goes" else number % len(queue)]
            is_sorted = is_sorted and step == "goes"
            if step != "goes":
                order.disturb()
            if step == "returns":
                queue = {call: queue.pop(call), **queue}
                continue
            if step == "goes":
                leave_first(order, call, queue)
            del queue[call]


def test_a_copy_of_the_order_arranges_a_queue_as_its_calls_will_go() -> None:
    calls = [Call(app) for app in (*[BATCH] * 3, *[WEB] * 16)]
    waiting = [(call, call.app, 1.0) for call in calls if call.app is not None]
    order = [call.app for call in FairOrder().arranged(waiting) if isinstance(call, Call)]
    assert order == [call.app for call in lines_of(calls) if isinstance(call, Call)]
    assert order[:8] == [*[WEB] * 7, BATCH]


def test_a_queue_that_is_sorted_as_calls_come_gives_lower_priorities_their_turns_over_time() -> None:
    """As those of lanes and dials are: few calls wait at a time, and another comes whenever one goes."""
    queue: dict[Call, float] = {}
    order, served = None, []
    for app in (BATCH, WEB, WEB):
        queue[Call(app)] = 0.0
        order = take_place(order, queue)
    for _ in range(16):
        first = next(iter(queue))
        served.append(first.app)
        leave_first(order, first, queue)
        del queue[first]
        queue[Call(first.app)] = 0.0
        order = take_place(order, queue)
    assert served == [*[WEB] * 7, BATCH] * 2


def test_apps_of_one_priority_share_by_weight() -> None:
    order = order_of(*[JOBS] * 40, *[MORE] * 40)
    assert Counter(order[:40]) == {"more": 30, "jobs": 10}


def test_shares_hold_over_time() -> None:
    lines, served = lines_of([Call(JOBS), Call(MORE), Call(JOBS), Call(MORE)]), Counter[str]()
    for _ in range(400):  # two calls of each wait at any time
        call = lines.first()
        app = app_of(call)  # type: ignore[arg-type]
        assert call is not None and app is not None
        served[app.name] += 1
        lines.went(call, 1.0, 0.0)
        lines.add(Call(app), 1.0, 0.0)
    assert abs(served["more"] - 300) <= 2


def test_a_call_of_a_better_priority_goes_before_those_that_wait_for_tokens() -> None:
    gate = RateBucket(RateSpec(1.0, 1.0)).gate
    assert gate.ask(Call(BATCH), 0.0) == 0.0
    batch = [Call(BATCH) for _ in range(3)]
    assert [gate.ask(call, 0.0) for call in batch] == [1.0, 2.0, 3.0]
    web = Call(WEB)
    assert gate.ask(web, 0.0) == 1.0
    assert [gate.ask(call, 0.5) for call in batch] == [2.0, 3.0, 4.0]
    assert gate.ask(batch[0], 1.0) > 1.0
    assert gate.ask(web, 1.0) == 1.0
    assert batch[0].at == 2.0, "it is the first now"


def test_a_call_that_is_overtaken_asks_at_once_if_it_may_be_too_late_now() -> None:
    gate = RateBucket(RateSpec(1.0, 1.0)).gate
    assert gate.ask(Call(BATCH), 0.0) == 0.0
    batch = [Call(BATCH, latest=latest) for latest in (9.0, 2.5, 3.5)]
    assert [gate.ask(call, 0.0) for call in batch] == [1.0, 2.0, 3.0]
    assert gate.ask(Call(WEB), 0.0) == 1.0
    assert [call.at for call in batch] == [None, 0.0, 0.0]
    assert [gate.ask(call, 0.0) for call in batch[1:]] == [3.0, 4.0]
    gate.leave(batch[1], 0.0)
    assert gate.ask(batch[2], 0.0) == 3.0
    batch[2].at = None
    assert gate.ask(Call(WEB), 0.0) == 2.0
    assert batch[2].at == 0.0, "what it has to spare is counted from when it asked last"


def test_tokens_that_accrue_faster_or_slower_move_all_alarms_in_the_order_of_turns() -> None:
    gate = RateBucket(RateSpec(1.0, 1.0)).gate
    assert gate.ask(Call(BATCH), 0.0) == 0.0
    batch, web = [Call(BATCH), Call(BATCH, latest=2.5)], Call(WEB)
    for call in (*batch, web):
        gate.ask(call, 0.0)
    gate.retime(0.0)
    assert [call.at for call in (web, *batch)] == [1.0, 2.0, 0.0]


def test_a_full_queue_gives_up_the_newest_of_the_lowest_priority() -> None:
    places, rules = Places(1), Concurrency(1, queue=2, wait=30.0)
    assert places.ask(Call(WEB), rules, 0.0) == 0.0
    older, newer, web = Call(BATCH), Call(BATCH), Call(WEB)
    assert places.ask(older, rules, 0.0) > 0
    assert places.ask(newer, rules, 1.0) > 1
    assert places.ask(Call(BATCH), rules, 2.0) == REJECTED
    assert places.ask(web, rules, 2.0) > 2
    assert newer.at == 2.0 and places.ask(newer, rules, 2.0) == REJECTED
    places.give_back(3.0)
    assert web.at == 3.0 and places.ask(web, rules, 3.0) == 3.0
    assert places.ask(Call(WEB), Concurrency(1, queue=0, wait=30.0), 3.0) > 3  # the older one gives its place


def test_without_names_calls_go_as_they_came() -> None:
    gate = RateBucket(RateSpec(1.0, 1.0)).gate
    calls = [Call(None) for _ in range(4)]
    assert [gate.ask(call, 0.0) for call in calls] == [0.0, 1.0, 2.0, 3.0]
    assert gate.lines is None


def test_whose_first_call_costs_less_goes_first_whatever_its_later_calls_cost() -> None:
    other = NamedApp("all", 1, RANKS["normal"])
    waiting = [("jobs 1", JOBS, 1.0), ("jobs 2", JOBS, 100.0), ("all 1", other, 5.0)]
    assert FairOrder().arranged(waiting) == ["jobs 1", "all 1", "jobs 2"]  # type: ignore[arg-type]


def test_equal_apps_go_as_they_came_whatever_their_names_are() -> None:
    other = NamedApp("all", 1, RANKS["normal"])
    assert FairOrder().arranged([("jobs", JOBS, 1.0), ("all", other, 1.0)]) == ["jobs", "all"]  # type: ignore[arg-type]


@given(st.lists(st.sampled_from([WEB, JOBS, MORE, BATCH]), max_size=60))
def test_no_call_is_lost_and_none_overtakes_its_own_app(apps: list[NamedApp]) -> None:
    calls = [Call(app) for app in apps]
    arranged = list(lines_of(calls))
    assert sorted(map(id, arranged)) == sorted(map(id, calls))
    for app in (WEB, JOBS, MORE, BATCH):
        assert [call for call in arranged if call.app is app] == [call for call in calls if call.app is app]  # type: ignore[attr-defined]


@given(st.lists(st.sampled_from([JOBS, MORE, BATCH]), min_size=1, max_size=100))
def test_no_app_waits_for_ever(apps: list[NamedApp]) -> None:
    """A call of the lowest priority goes after at most sixteen of others for each call of its own before it."""
    order = order_of(*[WEB] * 400, *apps)
    assert min(order.index(app.name) for app in set(apps)) <= 16


callers = st.lists(st.tuples(st.sampled_from([WEB, JOBS, MORE, BATCH]), st.sampled_from([1.0, 1.0, 5.0])), max_size=60)


@given(callers, st.lists(st.integers(0, 59), max_size=30))
def test_the_first_is_that_of_the_order_and_the_places_are_estimated_well(
    apps: list[tuple[NamedApp, float]], gone: list[int]
) -> None:
    calls = [Call(app, price) for app, price in apps]
    lines = lines_of(calls)
    for each in gone[: len(calls)]:
        if calls and (leaving := calls[each % len(calls)]) in lines:
            lines.remove(leaving, 0.0)
            calls.remove(leaving)
    while len(lines):
        arranged = list(lines)
        assert lines.first() is arranged[0]
        assert sorted(map(id, arranged)) == sorted(map(id, calls))
        errors = []
        for place, call in enumerate(arranged):
            number, price = lines.before(call)
            assert -1e-9 <= number <= len(calls) - 1 + 1e-9
            assert 0 <= price <= sum(each.cost for each in calls)
            errors.append(abs(number - place))
        assert sum(errors) / len(errors) <= 8, "one turn of each priority, on average"
        lines.went(arranged[0], arranged[0].cost, 0.0)  # type: ignore[attr-defined]
        calls.remove(arranged[0])  # type: ignore[arg-type]


@given(st.lists(st.sampled_from([JOBS, BATCH]), min_size=1, max_size=40))
def test_the_places_of_two_priorities_are_known_exactly(apps: list[NamedApp]) -> None:
    calls = [Call(app) for app in apps]
    lines = lines_of(calls)
    for place, call in enumerate(lines):
        assert lines.before(call) == (place, place)


OTHERS = [Apps().named(name) for name in ("", "a", "b", "sk-1")]


def test_names_that_nobody_lists_take_turns_within_others() -> None:
    none, one, other, _ = OTHERS
    calls = [Call(app) for app in (one, one, one, JOBS, other, none, other)]
    first, second, third, jobs, of_other, unnamed, last = calls
    lines = lines_of(calls)
    assert list(lines) == [first, jobs, of_other, unnamed, second, last, third]
    lines.went(first, 1.0, 0.0)
    lines.went(jobs, 1.0, 0.0)
    late = Call(one)
    lines.add(late, 1.0, 9.0)
    lines.remove(of_other, 9.0)  # it leaves without having had its turn: the name still has one
    assert list(lines) == [last, unnamed, second, third, late]


@given(st.lists(st.sampled_from([*OTHERS, JOBS, WEB]), max_size=60), st.lists(st.integers(0, 59), max_size=20))
def test_a_name_gets_as_many_places_as_any_other_while_both_wait(apps: list[NamedApp], gone: list[int]) -> None:
    calls = [Call(app) for app in apps]
    lines = lines_of(calls)
    for each in gone[: len(calls)]:
        if calls and (leaving := calls[each % len(calls)]) in lines:
            lines.remove(leaving, 0.0)
            calls.remove(leaving)
    queue = dict.fromkeys(calls, 0.0)
    order = None
    for number in range(1, len(calls) + 1):
        known = dict(list(queue.items())[: number - 1])
        known[calls[number - 1]] = 0.0
        order = take_place(order, known)
        queue = {**known, **dict.fromkeys(calls[number:], 0.0)}
    for arranged in (list(lines), list(queue)):
        assert sorted(map(id, arranged)) == sorted(map(id, calls))
        went: Counter[str] = Counter()
        left = Counter(call.app.who for call in calls if call.app is not None and call.app.name == "others")
        for call in arranged:
            assert isinstance(call, Call) and call.app is not None
            if call.app.name == "others":
                assert all(went[call.app.who] <= went[who] for who in left if went[who] < left[who])
                went[call.app.who] += 1
    for place, call in enumerate(lines):
        number, _ = lines.before(call)
        assert 0 <= number <= len(calls) - 1 and (set(apps) & {JOBS, WEB} or number == place)


def test_no_name_is_kept_as_it_came() -> None:
    app = Apps(known={"web": WEB}).named("sk-secret")
    assert (app.name, app.weight, app.rank) == ("others", 1, RANKS["normal"])
    assert "secret" not in repr(app)
    assert app == Apps().named("sk-secret") != Apps().named("sk-other")
    assert app.lowered().who == app.who
    assert Apps(known={"web": WEB}).named("web") is WEB


@given(callers.filter(bool))
def test_calls_of_apps_that_pay_several_rates_never_wait_for_each_other(apps: list[tuple[NamedApp, float]]) -> None:
    """The buckets would serve the apps in different orders: one counts calls, and the other what they cost."""
    requests, tokens = RateBucket(RateSpec(1.0, 1.0)), RateBucket(RateSpec(4.0, 4.0, unit="tokens"))
    both = Rates(((requests.gate, "attempts"), (tokens.gate, "tokens")))
    other = Rates(((tokens.gate, "tokens"), (requests.gate, "attempts")))
    alone = requests.gate
    now, waiting = 0.0, []
    for number, (app, price) in enumerate(apps):
        call, gate = Call(app, price), (both, other, alone)[number % 3]
        if gate.ask(call, now) > now:
            waiting.append((call, gate))
    while waiting:
        now += 1.25 if max(call.cost for call, _ in waiting) > 1 else 1.0  # a call's price is there by then
        before = len(waiting)
        waiting = [(call, gate) for call, gate in waiting if gate.ask(call, now) > now]
        assert len(waiting) < before
