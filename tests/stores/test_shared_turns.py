"""The turns of apps over workers: whose call goes is the same as if all waited in one process, and a worker that is
killed, or hangs, delays nobody for long.
"""

from __future__ import annotations

import heapq
import math
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.retry.apps import RANKS, NamedApp
from proxy.retry.budgets.buckets import RateBucket
from proxy.retry.budgets.concurrency import Places
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.policies.bucket_specs import RateSpec
from proxy.retry.policies.policy import Concurrency
from proxy.retry.weather.lane import Lane
from proxy.stores.shared_memory import fair_lines
from proxy.stores.shared_memory.factory import SharedFactory
from proxy.stores.shared_memory.fair_lines import LOOK, POLL, STALE, SharedLines
from proxy.stores.shared_memory.records import Memory
from proxy.supervisor.rows import Rows

shapes = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120, deadline=None)
RULES = Concurrency(1, queue=1000, wait=1e9)
WEB = NamedApp("web", 4, RANKS["high"])
JOBS = NamedApp("jobs", 1, RANKS["normal"])
MORE = NamedApp("more", 3, RANKS["normal"])
BATCH = NamedApp("batch", 1, RANKS["low"])
APPS = [WEB, JOBS, MORE, BATCH]


class Call:
    was_probe = False

    def __init__(self, app: NamedApp | None) -> None:
        self.app = app
        self.at: float | None = None

    def retime(self, at: float) -> None:
        self.at = at


def keys() -> Iterator[tuple[str, str, str]]:
    for number in count():
        yield "u", "gate", str(number)


KEYS = keys()


def factories(memory: Memory, workers: int) -> list[SharedFactory]:
    rows = Rows(memory)
    return [SharedFactory(memory, row=rows.take()) for _ in range(workers)]


def rates(memory: Memory, spec: RateSpec, workers: int) -> list[RateBucket]:
    key = next(KEYS)
    return [factory.rate(key, spec, None, 1000.0) for factory in factories(memory, workers)]


class Workers:
    """Calls that wait for places in several workers, and the same calls in one process."""

    def __init__(self, memory: Memory, most: int, count: int) -> None:
        key = next(KEYS)
        self.whole, self.parts = Places(most), [each.places(key, most) for each in factories(memory, count)]
        self.waiting: list[tuple[Places, Call, Call]] = []
        self.inside: list[Places] = []
        self.gone: list[str] = []

    def come(self, worker: int, app: NamedApp, now: float) -> None:
        part, caller, double = self.parts[worker], Call(app), Call(app)
        goes = part.ask(caller, RULES, now) <= now
        assert goes == (self.whole.ask(double, RULES, now) <= now)
        if goes:
            self.inside.append(part)
        else:
            self.waiting.append((part, caller, double))

    def back(self, which: int, now: float) -> None:
        self.inside.pop(which % len(self.inside)).give_back(now)
        self.whole.give_back(now)

    def go(self, chance: random.Random, now: float) -> None:
        """Let all ask, in any order, until nobody goes any more: the same ones go as in one process, and in the same
        order.
        """
        before = None
        while before != len(self.waiting):
            before = len(self.waiting)
            for each in chance.sample(self.waiting, before):
                part, caller, double = each
                goes = part.ask(caller, RULES, now) <= now
                assert goes == (self.whole.ask(double, RULES, now) <= now)
                if goes:
                    self.waiting.remove(each)
                    self.inside.append(part)
                    self.gone.append(caller.app.name)  # type: ignore[union-attr]


@shapes
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from([*APPS, BATCH, BATCH, "leave", "back", "back"]), st.integers(0, 99)
        )
    ),
)
def test_four_workers_let_the_same_calls_go_as_one_process(
    own_memory: Memory, most: int, script: list[tuple[int, NamedApp | str, int]]
) -> None:
    workers = Workers(own_memory, most, 4)
    for step, (worker, what, which) in enumerate(script):
        now = 1000.0 + step * STALE / 20
        if isinstance(what, NamedApp):
            workers.come(worker, what, now)
        elif what == "back" and workers.inside:
            workers.back(which, now)
        elif what == "leave" and workers.waiting:
            part, caller, double = workers.waiting.pop(which % len(workers.waiting))
            part.leave(caller, now)
            workers.whole.leave(double, now)
        workers.go(random.Random(which), now)
        assert sum(part.in_use for part in workers.parts) == workers.whole.in_use <= most


def test_an_app_whose_first_call_comes_to_another_worker_keeps_its_tag(own_memory: Memory) -> None:
    """Its two calls before went in the first worker, so that it is the turn of the other app's."""
    workers, chance = Workers(own_memory, 1, 2), random.Random(1)
    for app in (WEB, JOBS, MORE, MORE):
        workers.come(0, app, 1000.0)
    for step in (1, 2):
        workers.back(0, 1000.0 + step / 100)
        workers.go(chance, 1000.0 + step / 100)
    workers.come(1, MORE, 1000.03)
    workers.back(0, 1000.04)
    workers.go(chance, 1000.04)
    assert workers.gone == ["more", "more", "jobs"]


def test_web_calls_go_first_in_whichever_worker_and_the_batch_never_stops(own_memory: Memory) -> None:
    workers, chance = Workers(own_memory, 1, 4), random.Random(1)
    workers.come(0, WEB, 1000.0)
    for number in range(40):
        workers.come(number % 2, BATCH, 1000.0 + number / 1e4)
    for number in range(40):
        workers.come(2 + number % 2, WEB, 1000.01 + number / 1e4)
    for step in range(32):
        workers.back(0, 1000.05 + step * 0.01)
        workers.go(chance, 1000.05 + step * 0.01)
    assert workers.gone == [*["web"] * 7, "batch"] * 4


def test_apps_of_one_priority_share_by_weight_over_workers(own_memory: Memory) -> None:
    workers, chance = Workers(own_memory, 1, 4), random.Random(1)
    workers.come(0, JOBS, 1000.0)
    for number in range(60):
        workers.come(number % 4, (JOBS, MORE)[number // 30], 1000.0 + number / 1e4)
    for step in range(40):
        workers.back(0, 1000.05 + step * 0.01)
        workers.go(chance, 1000.05 + step * 0.01)
    assert Counter(workers.gone) == {"more": 30, "jobs": 10}


@shapes
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([*APPS, BATCH, BATCH]), st.booleans()), max_size=40))
def test_a_rates_tokens_go_to_the_same_calls_as_in_one_process(
    own_memory: Memory, script: list[tuple[int, NamedApp, bool]]
) -> None:
    """Tokens of whole seconds; all calls look each tenth of a second, in any order."""
    spec = RateSpec(1.0, 1.0)
    whole, parts = RateBucket(spec, started=1000.0), rates(own_memory, spec, 4)
    now, chance = 1000.0, random.Random(3)
    waiting: list[tuple[RateBucket, Call, Call]] = []

    def go() -> None:
        for each in chance.sample(waiting, len(waiting)):
            part, caller, double = each
            goes = part.gate.ask(caller, now) <= now
            assert goes == (whole.gate.ask(double, now) <= now)
            if goes:
                waiting.remove(each)

    for worker, app, waits in script:
        part, caller, double = parts[worker], Call(app), Call(app)
        at_once = part.gate.pass_at_once(app, now)
        assert at_once == whole.gate.pass_at_once(app, now)
        if not at_once:
            goes = part.gate.ask(caller, now) <= now
            assert goes == (whole.gate.ask(double, now) <= now)
            if not goes:
                waiting.append((part, caller, double))
        now = round(now + (LOOK if waits else 0.001), 3)  # of calls that come at once, either may be the first
        if waits:
            go()
    while waiting:
        now = round(now + LOOK, 3)
        go()


def test_nobody_passes_at_once_where_others_wait_in_another_worker(own_memory: Memory) -> None:
    one, two = rates(own_memory, RateSpec(1.0, 1.0), 2)
    assert one.gate.pass_at_once(BATCH, 1000.0)
    web = Call(WEB)
    assert one.gate.ask(web, 1000.0) > 1000.0
    assert not two.gate.pass_at_once(BATCH, 1001.0 - STALE / 2)
    assert one.gate.ask(web, 1001.0) == 1001.0
    assert two.gate.pass_at_once(BATCH, 1002.0), "nobody waits any more"


def test_the_wait_is_that_behind_the_calls_of_all_workers(own_memory: Memory) -> None:
    one, two = rates(own_memory, RateSpec(1.0, 1.0), 2)
    assert one.gate.pass_at_once(BATCH, 1000.0)
    for _ in range(5):
        one.gate.ask(Call(BATCH), 1000.0)
    second = [Call(BATCH), Call(BATCH)]
    assert two.gate.ask(second[0], 1000.0) <= 1000.0 + LOOK, "the first of a worker looks"
    assert two.gate.ask(second[1], 1000.0) == 1007.0
    assert two.gate.ask(Call(WEB), 1000.0) <= 1000.0 + LOOK


def test_the_first_looks_even_if_its_tokens_come_late_and_asks_at_once_when_it_is_its_turn(own_memory: Memory) -> None:
    one, two = rates(own_memory, RateSpec(0.01, 1.0), 2)
    assert one.gate.pass_at_once(BATCH, 1000.0)
    batch, web = Call(BATCH), Call(WEB)
    assert one.gate.ask(batch, 1000.0) == 1000.0 + LOOK
    assert two.gate.ask(web, 1000.0) == 1000.0 + LOOK
    one.give_back(1000.05, 1.0)
    assert one.gate.ask(batch, 1000.06) > 1000.06
    assert two.gate.ask(web, 1000.1) == 1000.1


def test_no_call_asks_all_the_time_while_it_is_another_workers_turn(own_memory: Memory) -> None:
    one, two = rates(own_memory, RateSpec(1.0, 5.0), 2)
    assert all(one.gate.pass_at_once(BATCH, 1000.0) for _ in range(5))
    one.gate.ask(Call(BATCH), 1000.0)
    waiting = [Call(BATCH) for _ in range(3)]
    for call in waiting:
        two.gate.ask(call, 1000.0)
    assert one.gate.lines is not None
    one.gate.lines.look(1004.9)
    for call in waiting:
        assert two.gate.ask(call, 1005.0) == 1005.0 + POLL


def test_a_worker_that_does_not_look_any_more_delays_nobody_for_long(own_memory: Memory) -> None:
    one, two = rates(own_memory, RateSpec(1.0, 1.0), 2)
    assert one.gate.pass_at_once(BATCH, 1000.0)
    batch, web = Call(BATCH), Call(WEB)
    one.gate.ask(web, 1000.9)
    assert two.gate.ask(batch, 1000.9) > 1000.9
    assert two.gate.ask(batch, 1001.0) > 1001.0
    assert two.gate.ask(batch, 1000.9 + STALE + 0.01) == 1000.9 + STALE + 0.01


def test_a_new_worker_in_the_row_of_one_that_died_takes_its_entries_away(own_memory: Memory) -> None:
    rows = Rows(own_memory)
    row, other = rows.take(), rows.take()
    spec, key = RateSpec(1.0, 1.0), next(KEYS)
    dead = SharedFactory(own_memory, row=row).rate(key, spec, None, 1000.0)
    assert dead.gate.pass_at_once(BATCH, 1000.0)
    dead.gate.ask(Call(WEB), 1000.0)
    dead.gate.ask(Call(WEB), 1000.0)
    new = SharedFactory(own_memory, row=row).rate(key, spec, None, 1000.0)
    beside = SharedFactory(own_memory, row=other).rate(key, spec, None, 1000.0)
    mine, batch = Call(MORE), Call(BATCH)
    new.gate.ask(mine, 1000.1)
    assert beside.gate.ask(batch, 1000.1) > 1000.1
    assert new.gate.ask(mine, 1001.0) == 1001.0
    assert beside.gate.ask(batch, 1002.0) == 1002.0


def test_more_lines_than_there_are_entries_and_more_apps_than_tags(own_memory: Memory) -> None:
    lines = SharedLines(own_memory, 1, "gate")
    calls = [Call(NamedApp(f"app{number}", 1, number % 3)) for number in range(fair_lines._MOST + 5)]
    for call in calls:
        lines.add(call, 1.0, 1000.0)
    while len(lines):
        first = lines.first()
        assert first is not None and lines.is_next(first, 1000.0)
        lines.went(first, 1.0, 1000.0)
    assert not SharedLines(own_memory, 2, "gate").waits_elsewhere(1000.0)


class Playing:
    """Calls of several apps at workers that share a gate, on a virtual clock. `ask` asks the gate of one worker for a
    call; `done` notes that an attempt has ended there. Alarms ring at random up to `late` seconds late.
    """

    def __init__(
        self, ask: Callable[[int, Call, float], float], done: Callable[[int, float], None], late: float = 0.0
    ) -> None:
        self._ask, self._done = ask, done
        self._late, self._chance = late, random.Random(7)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        self.times: dict[str, list[float]] = {}
        self.ends: Counter[str] = Counter()

    def at(self, when: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._number), what))

    def run(self, rates: dict[NamedApp, float], *, takes: float, seconds: float, workers: int) -> None:
        """Let each app make so many calls a second, at random times and workers. `takes`: seconds of an attempt."""
        for app, rate in rates.items():
            chance, now = random.Random(app.name), 1000.0
            while (now := now + chance.expovariate(rate)) < 1000.0 + seconds:
                self.at(now, partial(self._come, app, chance.randrange(workers), takes))
        while self._events and self._events[0][0] < 1000.0 + seconds:
            now, _, what = heapq.heappop(self._events)
            what(now)

    def _come(self, app: NamedApp, worker: int, takes: float, now: float) -> None:
        call, came, wanted = Call(app), now, [now]

        def ring(at: float) -> None:
            if at != wanted[0]:
                return  # the alarm was moved
            wanted[0] = 0.0
            again = self._ask(worker, call, at)
            if again > at:
                call.retime(again)
                return
            self.times.setdefault(app.name, []).append(at + takes - came)
            self.at(at + takes, partial(self._done, worker))
            self.ends[app.name] += 1

        def retime(at: float) -> None:
            wanted[0] = at = max(at, now) + self._late * self._chance.random()
            self.at(at, ring)

        call.retime = retime  # type: ignore[method-assign]
        ring(now)

    def p99(self, app: NamedApp) -> float:
        times = sorted(self.times[app.name])
        return times[math.ceil(0.99 * len(times)) - 1]


def played(
    memory: Memory,
    spec: RateSpec | int,
    rates_of: dict[NamedApp, float],
    takes: float,
    workers: int = 4,
    seconds: float = 60.0,
    late: float = 0.0,
) -> Playing:
    """Play workers at a rate, or at so many places."""
    made, key = factories(memory, workers), next(KEYS)
    if isinstance(spec, int):
        parts = [each.places(key, spec) for each in made]
        rules = Concurrency(spec, queue=100000, wait=1e9)
        playing = Playing(lambda n, call, now: parts[n].ask(call, rules, now), lambda n, now: parts[n].give_back(now))
    else:
        gates = [each.rate(key, spec, None, 1000.0).gate for each in made]
        playing = Playing(lambda n, call, now: gates[n].ask(call, now), lambda n, now: None, late)
    playing.run(rates_of, takes=takes, seconds=seconds, workers=workers)
    return playing


@pytest.mark.parametrize(("gate", "web"), [(RateSpec(50.0, 50.0), 5.0), (40, 8.0)], ids=["rate", "concurrency"])
def test_the_web_feels_a_batch_of_ten_times_its_calls_over_four_workers_as_little_as_in_one_process(
    own_memory: Memory, gate: RateSpec | int, web: float
) -> None:
    """It waits for the next token or place, and one time in eight for the one after that."""
    alone, both = {WEB: web}, {WEB: web, BATCH: 10 * web}
    beside, in_one = played(own_memory, gate, both, 0.5), played(own_memory, gate, both, 0.5, workers=1)
    assert beside.p99(WEB) <= in_one.p99(WEB) + 3 * POLL
    assert beside.ends["web"] == in_one.ends["web"]
    assert beside.p99(BATCH) > 4 * beside.p99(WEB), "there is not enough for the batch"
    if isinstance(gate, RateSpec):
        assert beside.p99(WEB) <= 1.1 * played(own_memory, gate, alone, 0.5).p99(WEB)


@pytest.mark.parametrize("gate", [RateSpec(20.0, 20.0), 4], ids=["rate", "concurrency"])
def test_apps_of_equal_weight_get_equal_shares_over_four_workers(own_memory: Memory, gate: RateSpec | int) -> None:
    apps = {NamedApp(name): rate for name, rate in {"a": 10.0, "b": 20.0, "c": 40.0, "d": 80.0}.items()}
    served = list(played(own_memory, gate, apps, 0.2).ends.values())
    assert sum(served) ** 2 / len(served) / sum(each**2 for each in served) >= 0.99, "Jain's index"


@pytest.mark.parametrize("workers", [1, 4])
def test_no_token_of_a_rate_without_a_burst_is_lost_while_calls_of_five_apps_wait(
    own_memory: Memory, workers: int
) -> None:
    """The first call of each worker looks at each token, whatever it expects to be before it."""
    apps = {NamedApp(name): rate for name, rate in {"a": 10.0, "b": 20.0, "c": 30.0, "d": 40.0, "e": 50.0}.items()}
    ends = played(own_memory, RateSpec(50.0, 1.0), apps, 0.5, workers, seconds=10.0).ends
    assert 0.99 * 500 <= ends.total() <= 501


@pytest.mark.parametrize("workers", [1, 4])
def test_late_alarms_cost_a_rate_without_a_burst_no_more_than_they_are_late(own_memory: Memory, workers: int) -> None:
    apps = {NamedApp(name): 30.0 for name in "abcde"}
    ends = played(own_memory, RateSpec(50.0, 1.0), apps, 0.5, workers, seconds=10.0, late=0.002).ends
    assert 0.99 * 10 / (0.020 + 0.002) <= ends.total() <= 501


def test_the_first_of_a_worker_looks_when_its_token_is_due_and_less_often_if_none_can_be_lost(
    own_memory: Memory,
) -> None:
    for burst, look in ((1.0, 0.001), (2.0, 0.001), (5.0, 0.004), (1000.0, POLL)):
        one, _ = rates(own_memory, RateSpec(1000.0, burst), 2)
        while one.gate.pass_at_once(BATCH, 1000.0):
            pass
        assert one.gate.ask(Call(BATCH), 1000.0) == pytest.approx(1000.0 + look, abs=1e-5)


def held(lanes: list[Lane], calls: list[tuple[int, Call]], begun: float) -> list[tuple[int, str]]:
    """The workers and apps of calls in the order in which the workers' lane, whose delay of a second began at `begun`,
    lets them go; each is served after 50 ms.
    """
    chance, gone, now = random.Random(1), list[tuple[int, str]](), begun
    waiting, flying = list(calls), list[tuple[Lane, object, float]]()
    while waiting:
        now = round(now + 0.01, 3)
        for each in chance.sample(waiting, len(waiting)):
            lane, call = lanes[each[0]], each[1]
            if lane.ask(call, now) <= now:
                attempt = object()
                lane.sent(call, attempt, now)
                waiting.remove(each)
                flying.append((lane, attempt, now))
                gone.append((each[0], call.app.name))  # type: ignore[union-attr]
        for over in [each for each in flying if each[2] <= now - 0.05]:
            flying.remove(over)
            over[0].landed(*over[1:], now, True)
    return gone


def test_calls_that_a_cooldown_held_go_in_the_order_of_one_process(own_memory: Memory) -> None:
    """By priority, and one in eight of the lower one, in whichever worker they wait."""
    key = next(KEYS)[2]
    shared = [each.governor("u", key).lanes.of_endpoint("") for each in factories(own_memory, 3)]
    orders = []
    for part in ([Lane(Traffic())] * 3, shared):
        part[0].start(1.0, 503, 999.9, 1000.0)
        calls = [(number % 2, Call(BATCH)) for number in range(20)] + [(2, Call(WEB)) for _ in range(10)]
        for number, (worker, call) in enumerate(calls):
            now = 1000.1 + number / 100
            assert part[worker].ask(call, now) > now
        orders.append([app for _, app in held(part, calls, 1000.5)])
    assert orders[0] == orders[1]
    assert orders[1][:7] == ["web"] * 7
    assert "batch" in orders[1][7:9]


def test_held_calls_of_a_worker_that_hangs_delay_nobody_for_long(own_memory: Memory) -> None:
    key = next(KEYS)[2]
    one, two = (each.governor("u", key).lanes.of_endpoint("") for each in factories(own_memory, 2))
    one.start(1.0, 503, 999.9, 1000.0)
    web, batch = Call(WEB), Call(BATCH)
    one.ask(web, 1000.9)
    assert two.ask(batch, 1001.0) > 1001.0, "it is the web's turn"
    assert two.ask(batch, 1000.9 + STALE + 0.01) == 1000.9 + STALE + 0.01


def test_a_held_call_whose_app_has_left_has_no_turn(own_memory: Memory) -> None:
    key = next(KEYS)[2]
    one, two = (each.governor("u", key).lanes.of_endpoint("") for each in factories(own_memory, 2))
    one.start(1.0, 503, 999.9, 1000.0)
    web, batch = Call(WEB), Call(BATCH)
    one.ask(web, 1000.9)
    two.ask(batch, 1000.95)
    one.leave(web, 1000.96)
    assert two.ask(batch, 1001.0) == 1001.0


HOLDS = """
import sys, time
from proxy.retry.apps import NamedApp
from proxy.stores.shared_memory.factory import open_memory
from proxy.stores.shared_memory.fair_lines import SharedLines
class Call:
    app = NamedApp("web", 4, 0)
    def retime(self, at): pass
lines = SharedLines(open_memory(int(sys.argv[1])), 2, "gate")
lines.add(Call(), 1.0, float(sys.argv[2]))
lines._record.open()  # and it dies with the lock in its hands
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_worker_that_is_killed_with_the_lock_delays_nobody_for_long(own_memory: Memory) -> None:
    lines, now, batch = SharedLines(own_memory, 1, "gate"), time.monotonic(), Call(BATCH)
    command = [sys.executable, "-c", HOLDS, str(own_memory.descriptor), str(now)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[own_memory.descriptor]
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        worker.send_signal(signal.SIGKILL)
    lines.add(batch, 1.0, now)
    assert not lines.is_next(batch, now), "nobody has said that it is gone"
    assert lines.is_next(batch, now + STALE + 0.01)
