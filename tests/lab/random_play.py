"""Whole calls by chance: policies, upstreams, calls and events are drawn from a seed, played on a virtual clock, and
watched after every event.

    REDRIVE_PURE=1 python tests/lab/random_play.py --seeds 0:20000

`random_scripts.drawn(seed)` is a `Script`: a configuration of two upstreams, what each of them does when, calls, and
events of the process (a reload, a step of the wall clock, a process that stands still, one that ends). `play` plays it,
and raises `BrokenLawError` if one of these laws does not hold:

- each call ends, once, with one answer, and nothing is sent after an answer has begun;
- a call that is not over has an attempt in flight or an alarm, and no instant has events without end;
- no more attempts are made than the policy allows, and none beyond the deadline;
- no attempt follows one whose answer asked to wait sooner than it asked, to the same endpoint with the same key;
- the governors hold a call for at most `hold` in all;
- a call with a key that no answer refuses is served, whatever befalls other keys (`Script.apart`);
- the places of `concurrency` are as many as attempts are under way, and at the end all that was taken is back: places,
  tokens of rates, seats of the waiting room, turns in the governors' lanes; of a quota is missing what its calls spent.

`reduced` leaves out of a script what is not needed to break the same law.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter
from typing import Any

from random_scripts import MINE, Asked, Event, Script, Weather, drawn, smaller

from proxy.config.load import load_tree
from proxy.config.settings import Settings
from proxy.lab.clock import BEGIN, UPSTREAM, Clock
from proxy.lab.recorder import Recorder
from proxy.lab.request_body import BufferBudget
from proxy.lab.routing import AppRequest, Chosen, choose
from proxy.lab.simulate.limits import RequestLimit, limit_of
from proxy.lab.simulate.reports import reported
from proxy.lab.stage import Stage
from proxy.lab.upstream import FAULTS, Sending, UpstreamStep
from proxy.retry.budgets.buckets import QuotaBucket
from proxy.retry.call import actions as act
from proxy.retry.call.admission import Admission
from proxy.retry.call.key_files import RENEWED
from proxy.retry.call.machine import Call
from proxy.retry.call.states import Done, Next
from proxy.retry.facts import FaultKind, Outcome
from proxy.retry.policies.policy import Policy
from proxy.retry.scopes.scope_state import ScopeState
from proxy.runtime import policies_of

EPS = 1e-6
#: The most events of one instant, for each call of a script and one more (in 900 scripts 2.7 at the most); and of a
#: script in all, likewise.
AT_ONCE, IN_ALL = 8, 3000
#: The gates of the governor, which hold a call for at most `hold`.
GOVERNOR = ("cooldown", "ahead", "limit", "outage")
#: The seconds beyond a delay for which a call with a key that is served may be held, by a slow start.
BEHIND = 5.0
#: The attempts that a busy upstream serves at a time.
CAPACITY = 3


class BrokenLawError(AssertionError):
    """A law that does not hold."""


def law(holds: object, what: str) -> None:
    if not holds:
        raise BrokenLawError(what)


# -- the play ---------------------------------------------------------------------------------------------------------


class Watched(Clock):
    """A virtual clock that counts the events of each instant."""

    __slots__ = ("_at", "_count", "calls", "events")

    def __init__(self) -> None:
        super().__init__()
        self.calls = 1
        self.events = 0
        self._at, self._count = 0.0, 0

    def happens(self) -> None:
        """Count an event of a call that happens now."""
        if self.now > self._at:
            self._at, self._count = self.now, 0
        self._count += 1
        self.events += 1
        law(self._count <= AT_ONCE * (self.calls + 1), f"{self._count} events at {self.now:.6f}: no end of them")
        law(self.events <= IN_ALL * (self.calls + 1), f"{self.events} events: no end of them")


class World:
    """What all calls of a play share."""

    def __init__(self, script: Script, settings: Settings, after: Settings) -> None:
        self.script = script
        self.stage = Stage(settings, random.Random(script.seed), 1e9)
        self.clock = Watched()
        self.stage.clock = self.clock
        self.clock.calls = len(script.calls)
        self.after = after
        self.key = "first"
        self.stage.env.read_key_file = lambda path: self.key
        self.buffers = BufferBudget(settings.buffers.per_request, settings.buffers.total)
        self.room = self.buffers._left
        self.limits: dict[tuple[str, str], RequestLimit] = {}
        self.players: list[Player] = []
        self.scopes: dict[int, ScopeState] = {}
        self.stalled = 0.0
        self.ended = False
        self.once = False
        self.is_reloaded = False

    def befalls(self, event: Event) -> None:
        """Let an event of the process happen."""
        stage, now = self.stage, self.clock.now
        if event.kind == "reload" and self.after is not stage.settings:
            stage.settings, self.is_reloaded = self.after, True
            stage.registry.forget_policies(policies_of(self.after), self.after.buckets, now)
        elif event.kind == "wall":
            stage.env.wall_offset += event.by
        elif event.kind == "stall":
            self.clock.now += event.by
            self.stalled += event.by
        elif event.kind == "swap":
            self.key = "second"
        elif event.kind == "end":
            self.ended = True
            stage.registry.hold_none(now)

    def under_way(self, upstream: str) -> int:
        """How many attempts are under way to the upstream."""
        players = [each for each in self.players if each.call is not None and each.finished is None]
        return sum(len(each._flying) for each in players if each.call.so_far.policy.upstream == upstream)

    def weather(self, upstream: str, keys: tuple[str, ...], now: float) -> Weather:
        """What the upstream does now to an attempt that any of these (its key, its endpoint) names."""
        found = Weather(0.0, "well", 0.05)
        for each in self.script.weather[upstream]:
            if each.at <= now and (not each.only or each.only in keys) and each.kind != "once":
                found = each
        for each in self.script.weather[upstream]:
            if each.kind == "once" and each.at <= now and not self.once:
                self.once = True
                return each
        return found


class Player(Recorder):
    """A call that is watched."""

    def __init__(self, world: World, number: int, asked: Asked) -> None:
        super().__init__(world.clock, self._fate, body_size=asked.size, buffers=world.buffers)
        self.world, self.number, self.script = world, number, asked
        self.asked = () if not asked.size else (b"x" * asked.size,)
        self.calls: list[Call] = []  # one for each upstream
        self.launches: list[tuple[Call, int]] = []
        self.resent: Counter[int] = Counter()
        self.finishes = self.answers = 0
        self.delivering = False
        self.pushed: dict[tuple[str, int | None, str], float] = {}
        self.fates: dict[int, tuple[tuple[str, int | None, str], float | None]] = {}
        self.held_since: float | None = None
        self.held = self.stalled = 0.0
        self.begun_stalls = 0.0
        self.left = False

    # what the upstream does

    def _fate(self, attempt: int, now: float) -> Sending:
        name = self.call.so_far.policy.upstream
        chance = random.Random(f"{self.world.script.seed} {self.number} {attempt} {len(self.launches)}")
        key = self._key
        weather = self.world.weather(name, (self.script.key, str(self.endpoint)), now)
        kind = weather.kind
        if kind == "chance":
            kind = chance.choice(["well", "refused"])
        if kind == "busy":
            kind = "well" if self.world.under_way(name) < CAPACITY else "unavailable"
        if self.key is not None and key == "first" and self.world.key == "second":
            kind = "unauthorized" if self._file is not None else kind
        limit, fields, wait = self.world.script.limits.get(name), [], 0.0
        if limit is not None:
            counted = self.world.limits.setdefault((name, key), limit_of(limit.kind, limit.window, limit.most))
            wait = counted.wait(now, 1, limit.most)
            if self.world.script.apart and self.script.key == MINE:
                wait = 0.0
            if not wait and kind in ("well", "stream"):
                counted.take(now, 1, limit.most)
            fields = reported(
                limit.reports,
                left=counted.left(now, limit.most),
                most=limit.most,
                reset=counted.more_in(now, limit.most, whole=limit.reports != "next"),
                now=now,
                window=limit.window,
                tokens=False,
            ) if limit.reports != "off" else []  # fmt: skip
            if self.world.script.apart and self.script.key == MINE:
                fields = []
        delay = None if weather.delay is None else round(weather.delay, 3)
        if wait and kind in ("well", "stream"):
            kind, delay = "refused", math.ceil(wait * 1000) / 1000 if limit is not None and limit.named else None
        sending = _sending(kind, weather.seconds, delay, fields, self.longest)
        named = delay if sending.reply is not None and sending.reply.status in (429, 503) else None
        self.fates[attempt] = (self._whose, named)
        return sending

    @property
    def _whose(self) -> tuple[str, int | None, str]:
        return self.call.so_far.policy.upstream, self.endpoint, self._key

    @property
    def _file(self) -> Any:
        definition = self.call.so_far.policy.credentials
        return (
            definition.files[self.key] if definition is not None and definition.files and self.key is not None else None
        )

    @property
    def _key(self) -> str:
        definition = self.call.so_far.policy.credentials
        if definition is None or self.key is None:
            return self.script.key
        return str(definition.values[self.key]).removeprefix("Bearer ")

    # what is watched

    def enter_play(self) -> None:
        stage, asked = self.world.stage, self.script
        request = AppRequest(asked.method, f"http://{asked.upstream}.test{asked.path}", asked.headers, asked.size)
        chosen = choose(stage.settings, request)
        assert isinstance(chosen, Chosen)
        self.begun_stalls = self.world.stalled
        stage.enter(self, chosen, request)

    def _call(self, request: Any, policy: Policy, scope: ScopeState, env: Any, elsewhere: Any = None) -> Call:
        call = super()._call(request, policy, scope, env, elsewhere)
        self.calls.append(call)
        self.world.scopes[id(scope)] = scope
        return call

    def go_away(self) -> None:
        if self.call is not None and self.finished is None:
            self.left = True
            super().go_away()

    def be_cut(self) -> None:
        if self.call is not None and self.finished is None:
            self.left = True
            self._carry_out(self.call.cut(self.clock.now))
            law(self.finished is not None, "a call that is cut ends")

    def _arrive(self, attempt: int, number: int) -> None:
        flying = self._flying.get(attempt)
        if flying is not None and flying[0] == number and flying[1].reply is not None:
            whose, delay = self.fates[attempt]
            if delay is not None:
                self.pushed[whose] = max(self.pushed.get(whose, 0.0), self.clock.now + delay)
        super()._arrive(attempt, number)

    def _carry_out(self, actions: act.Actions) -> None:
        self.world.clock.happens()
        outer = self._pending is None
        super()._carry_out(actions)
        if outer:
            self._look()

    def _do(self, action: act.Action) -> None:
        law(self.finished is None, f"{type(action).__name__} after the end")
        if isinstance(action, act.Launch):
            self._sees_launch(action)
        elif isinstance(action, act.WakeAt):
            law(action.at < float("inf"), "an alarm that never rings")
        elif isinstance(action, act.Deliver | act.Answer):
            self.answers += 1
            law(self.answers == 1, "one answer")
        elif isinstance(action, act.Finish):
            self.finishes += 1
            law(self.finishes == 1, "one end")
            law(self.answers == 1 or action.outcome is Outcome.CLIENT_GONE, "an answer, unless the app has left")
        super()._do(action)

    def _sees_launch(self, action: act.Launch) -> None:
        call, now = self.call.so_far, self.clock.now
        law(not self.answers, "nothing is sent after an answer has begun")
        law(not self.left, "nothing is sent for an app that has left")
        made = (self.call, action.attempt)
        if made in self.launches:
            self.resent[id(self.call)] += 1
            law(self.resent[id(self.call)] == 1, "one transparent retry at each upstream")
        else:
            self.launches.append(made)
            allowed = call.policy.strategy.max_attempts if call.policy.mode == "enforce" else 1
            counted = sum(each is self.call for each, _ in self.launches) - call.spared
            law(counted <= allowed, f"attempt {counted} of {allowed}")
            if call.deadline is not None:
                law(
                    now <= call.deadline + EPS + self.world.stalled - self.begun_stalls, "no attempt after the deadline"
                )
            self.key, self.endpoint = action.key, action.endpoint
            until = self.pushed.get(self._whose, 0.0)
            clamp = call.policy.strategy.pushback_clamp
            law(
                now >= until - EPS - (1e9 if clamp is not None else 0.0),
                f"an attempt {until - now:.3f} s before its pushback ends",
            )

    def _look(self) -> None:
        """Look at the call, after an event of its."""
        if self.call is None:
            return
        call, now = self.call.so_far, self.clock.now
        state = call.state
        if self.finished is not None:
            law(type(state) is Done, "an end is one")
        else:
            law(
                self._flying or self._alarm is not None or self.delivered is not None,
                "something flies, or an alarm is set",
            )
        admission = call.next_attempt.admission
        is_held = self.finished is None and type(state) is Next and state.gated and admission is not None
        is_held = is_held and admission.held_by in GOVERNOR and admission._held_since is not None
        if self.held_since is not None:
            self.held += now - self.held_since
        self.held_since = now if is_held else None
        most = max(each.so_far.policy.pushback.hold for each in self.calls)
        law(
            self.held <= most + 0.01 + self.world.stalled - self.begun_stalls,
            f"held for {self.held:.3f} s, hold is {most}",
        )
        places = call.next_attempt.scope.places
        if places is not None:
            law(places.in_use <= places.most or self.world.is_reloaded, "more attempts than places")


def _sending(
    kind: str, seconds: float, delay: float | None, fields: list[tuple[str, str]], longest: float | None
) -> Sending:
    named = [] if delay is None else [("retry-after-ms", f"{delay * 1000:.0f}")]
    steps: dict[str, UpstreamStep] = {
        "well": UpstreamStep(200, after=seconds, headers=tuple(fields)),
        "refused": UpstreamStep(429, after=seconds, headers=tuple(named + fields)),
        "unavailable": UpstreamStep(503, after=seconds, headers=tuple(named)),
        "once": UpstreamStep(503, after=seconds, headers=tuple(named)),
        "failed": UpstreamStep(500, after=seconds),
        "fatal": UpstreamStep(404, after=seconds, headers=tuple(fields)),
        "unauthorized": UpstreamStep(401, after=seconds),
        "connect": UpstreamStep(fail=FaultKind.CONNECT_FAILURE, after=seconds),
        "reset": UpstreamStep(fail=FaultKind.RESET, after=seconds),
        "stream": UpstreamStep(
            200, after=seconds, events=((0.05, b"data: {}\n\n"), (0.1, b"data: [DONE]\n\n")), headers=tuple(fields)
        ),
        "cut": UpstreamStep(200, after=seconds, body=b"x", first_byte=seconds + 0.02, cut=0.05, headers=tuple(fields)),
    }
    if kind == "silent":
        return Sending(1000.0, fault=FAULTS[FaultKind.RESET])
    return steps[kind].sending(longest)


def play(script: Script) -> World:
    """Play a script. Returns what is left of the play; raises `BrokenLawError` if a law does not hold."""
    before, after = loaded(script.config), loaded(script.after)
    if before is after:
        after = before
    world = World(script, before, after)
    clock = world.clock
    for number, asked in enumerate(script.calls):
        player = Player(world, number, asked)
        world.players.append(player)
        clock.at(asked.at, BEGIN, player.enter_play)
        if asked.gone is not None:
            clock.at(asked.at + asked.gone, UPSTREAM, player.go_away)
        if asked.cut is not None:
            clock.at(asked.at + asked.cut, UPSTREAM, player.be_cut)
    for event in script.events:
        clock.at(event.at, UPSTREAM, world.befalls, event)
    clock.run()
    _check_end(world)
    return world


def loaded(config: dict[str, Any]) -> Settings:
    found = load_tree(config, "random.yaml", {})
    assert found.settings is not None, found.errors
    return found.settings


def _check_end(world: World) -> None:
    stage, now = world.stage, world.clock.now
    for player in world.players:
        law(player.finishes == 1, "every call ends")
        if world.script.apart and player.script.key == MINE:
            law(player.outcome is Outcome.SUCCESS, f"call {player.number} of a key that is served: {player.outcome}")
            delay = max((each.delay or 0.0 for each in world.script.weather["a"] if each.kind == "once"), default=0.0)
            law(
                player.held <= delay + BEHIND, f"call {player.number} of a key that is served: held {player.held:.1f} s"
            )
    law(stage.env.waiting.waiting == 0, f"{stage.env.waiting.waiting} seats of the waiting room are taken")
    law(not stage.env.waiting._held and not any(stage.env.waiting._guests.values()), "guests of the waiting room")
    law(world.buffers._left == world.room, "buffers are free")
    for scope in world.scopes.values():
        for state in (scope, *(each for each in (scope.keys.lanes if scope.keys is not None else ()) if each)):
            law(state.rate is None or not _waits_at(state.rate), "nobody waits for a rate")
            law(state.limiter is None or not state.limiter.queue, "nobody waits for the limiter")
            law(state.places is None or state.places.is_idle, "places are free")
    for _, _, governor in stage.registry.governors():
        law(not governor._in, f"{len(governor._in)} calls are in lanes")
        for lane in governor.all_lanes():
            law(not lane.queue, "nobody waits in a lane")
            law(not lane.due.admitted and not lane.due.aside, "nobody is due in a lane")
            law(lane.traffic.flying == 0, f"{lane.traffic.flying} attempts under way")
            law(lane.outage.probe is None, "no probe is under way")
            law(lane._starter.waiter is None, "no starter is waited for")
            holders = [each for each in lane.places.taken if isinstance(each, Admission)]
            law(not holders, "no call has a place")
    _check_tokens(world, now)


def _waits_at(rate: Any) -> bool:
    gates = [gate for gate, _ in rate.gates] if hasattr(rate, "gates") else [rate]
    return any(gate.queue for gate in gates)


def _check_tokens(world: World, now: float) -> None:
    if world.is_reloaded:
        return
    scopes = [*world.scopes.values()]
    scopes += [each for scope in scopes if scope.keys is not None for each in scope.keys.lanes if each is not None]
    rates = {id(each): each for scope in scopes for each in scope.rates}
    quotas = {id(scope.bucket): scope.bucket for scope in scopes if isinstance(scope.bucket, QuotaBucket)}
    for rate in rates.values():
        spec = rate.spec
        if spec.rate * (now + 1) < 0.9 and spec.burst >= 100:
            paid = {each for each in _attempts(world) if rate in _rates_of(each[0])}
            law(
                abs(rate.level(now) - (spec.burst - len(paid))) < 1,
                f"a rate has {rate.level(now)}, {len(paid)} attempts",
            )
    for quota in quotas.values():
        if quota.capacity == 100_000:
            spent = sum(_spent(player, quota) for player in world.players)
            law(quota.level(now) == 50_000 - spent, f"a quota has {quota.level(now)}, {spent} were spent")


def _attempts(world: World) -> list[tuple[Call, int]]:
    return [each for player in world.players for each in player.launches]


def _rates_of(call: Call) -> Any:
    return call.so_far.next_attempt.scope.rates if call.so_far.policy.mode == "enforce" else ()


def _spent(player: Player, quota: Any) -> float:
    """What a finished call has cost the quota, by its records alone."""
    total = 0.0
    for call in player.calls:
        state = call.so_far
        if state.next_attempt.scope.bucket is not quota or state.policy.mode != "enforce":
            continue
        spec = quota.spec
        records = {each.attempt: each for each in state.history if state.earlier + 1 < each.attempt <= state.attempts}
        probed = sum(each.decision in ("probed", RENEWED) for each in state.history)
        if state.spared > probed and records and records[max(records)].fault is FaultKind.CONNECT_FAILURE:
            del records[max(records)]  # a probe that was to be sent again, and was not: what it had paid came back
        prices = {number: each.price for number, each in records.items() if each.decision != "probed"}
        is_last = call is player.calls[-1]
        charge = state.next_attempt.app_paid
        spent = sum(prices.values()) + (charge or 0.0)
        if is_last and player.outcome is Outcome.SUCCESS:
            paid = [prices[number] for number in sorted(prices) if prices[number]]
            if paid:
                spent -= paid[-1]
            else:  # what an app's own retry paid comes back, which is nothing where its app may spend nothing
                spent -= spec.success_refund if charge is None else charge
        total += spent
    return total


# -- finding, and making small ----------------------------------------------------------------------------------------


def broken(script: Script) -> str:
    """The law that the script breaks; "" if none."""
    try:
        play(script)
    except BrokenLawError as error:
        return str(error)
    except RecursionError:
        return "RecursionError"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def reduced(script: Script, what: str) -> Script:
    """The script without what is not needed to break a law of the same kind as `what`."""
    kind = _kind(what)
    while True:
        for less in smaller(script):
            if less != script and _kind(broken_config(less)) == kind:
                script = less
                break
        else:
            return script


def broken_config(script: Script) -> str:
    """As `broken`; "" too if the configuration has an error."""
    try:
        loaded(script.config)
        loaded(script.after)
    except AssertionError:
        return ""
    return broken(script)


def _kind(what: str) -> str:
    return "".join(each for each in what if not (each.isdigit() or each in ".-"))


def main() -> int:
    """Play scripts, and print the first few that break a law."""
    parser = argparse.ArgumentParser(description="play whole calls by chance")
    parser.add_argument("--seeds", default="0:2000", help="the first seed, and the one after the last")
    parser.add_argument("--most", type=int, default=5, help="how many kinds of finds are shown")
    parser.add_argument("--whole", action="store_true", help="print scripts as they were drawn")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    found: dict[str, tuple[int, str]] = {}
    times: Counter[str] = Counter()
    for seed in range(first, last):
        what = broken(drawn(seed))
        if what:
            times[_kind(what)] += 1
            if _kind(what) not in found:
                found[_kind(what)] = seed, what
                print(f"seed {seed}: {what}", flush=True)
                if len(found) >= options.most:
                    break
    for kind, (seed, what) in found.items():
        script = drawn(seed)
        print(f"\n{times[kind]} times, first with seed {seed}: {what}")
        for name, value in vars(script if options.whole else reduced(script, what)).items():
            print(f"  {name}: {value}")
    print(f"{last - first} scripts, {sum(times.values())} broken laws")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
