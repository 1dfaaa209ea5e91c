"""Calls, in weather that is drawn by chance, and the governors that they ask: the same attempts can be reported to two
governors, to the one by the short way of a failure and of an answer, to the other by the long way.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

from proxy.retry.capacity.traffic import Traffic
from proxy.retry.facts import Request
from proxy.retry.weather.caller import Caller
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.limit import Limit
from proxy.retry.weather.weather_changes import WeatherChanged, WeatherWatch
from proxy.stores.shared_memory.lane import SHARED
from proxy.stores.shared_memory.numbers import Numbers

LIMIT = Numbers(Limit(Traffic()), SHARED)
#: Endings by name: well, refused, throttled, quick, lost, how.
ENDINGS = {
    "503": AttemptEnding(False, True, False, True, "route", "503"),
    "503 of its own": AttemptEnding(False, True, False, True, "", "503"),
    "502": AttemptEnding(False, False, False, True, "route", "502"),
    "500": AttemptEnding(False, False, False, True, "", "500"),
    "429": AttemptEnding(False, True, True, True, "", "429"),
    "404": AttemptEnding(True, False, False, True, "", "404"),
    "timeout": AttemptEnding(False, True, False, False, "route", "attempt_timeout"),
    "reset": AttemptEnding(False, False, False, False, "route", "reset"),
    "no connection": AttemptEnding(False, True, False, False, "endpoint", "connect_failure"),
}
PATHS = ("/poll/x", "/users/7", "/orders/1?q=2")


class Call:
    """A call that asks the governor again when its alarm rings."""

    def __init__(self, path: str) -> None:
        self.request = Request("GET", "u.example", path)
        self.caller = Caller(self.request, self.request.fields, "r")
        self.caller.cools = self.caller.limits = self.caller.outages = True
        self.at = math.inf
        self.was_held = False

    def retime(self, at: float) -> None:
        """Move the alarm."""
        self.at = at


class Side:
    """A governor, with the calls that wait and the attempts under way. `short`: whether the short way is tried first,
    as `proxy.retry.call.feedback` does.
    """

    def __init__(self, governor: Governor, short: bool) -> None:
        self.short = short
        self.governor = governor
        self.changes: list[WeatherChanged] = []
        self.governor.lanes.watch = WeatherWatch("u", "scope", self.changes.append)
        self.noted = 0  # failures that went the short way
        self.waiting: dict[int, Call] = {}
        self.flying: dict[int, tuple[Call, object, float]] = {}

    def comes(self, number: int, path: str, now: float) -> None:
        """A call comes, and is sent or waits."""
        call = self.waiting[number] = Call(path)
        self.asks(number, call, now)

    def asks(self, number: int, call: Call, now: float) -> None:
        """The call asks whether it may be sent, as it does while the governor holds calls or has held it."""
        governor = self.governor
        if call.was_held or governor.holds(now):
            call.was_held = True
            at, _ = governor.ask(call, call.caller, now)
            if at > now:
                call.at = at
                return
        del self.waiting[number]
        attempt = object()
        governor.sent(call, attempt, now)
        governor.traffic.flying += 1
        self.flying[number] = call, attempt, now

    def rings(self, now: float) -> None:
        """The calls whose alarm has rung ask again."""
        for number, call in list(self.waiting.items()):
            if call.at <= now:
                self.asks(number, call, now)

    def ends(self, number: int, how: str, now: float) -> None:
        """An attempt ends."""
        call, attempt, sent = self.flying.pop(number)
        governor, caller = self.governor, call.caller
        if how == "well":
            if not (governor.traffic.went_well(now) or call.was_held or governor.holds(now)):
                return
            if self.short and not call.was_held and governor.answered_freely(caller.names, "", sent, now):
                return
            governor.answered_well(attempt, caller, sent, now)
            return
        ending = ENDINGS[how]
        governor.traffic.failed()
        if self.short and not call.was_held and governor.failed_freely(attempt, caller.names, ending, sent, now):
            self.noted += 1
            return
        governor.failed(attempt, caller, ending, sent, now, again=False, cools=False)

    def catches_up(self, now: float) -> None:
        """The worker learns what others have published, as any operation of its own on a lane would let it."""
        lanes = self.governor.all_lanes()
        for lane in lanes:
            lane.holds(now)
        self.governor.lanes.look(lanes, now)

    def seen(self, now: float) -> object:
        """Everything by which the governor decides, and what it has reported."""
        governor = self.governor
        first, lanes = governor.first, governor.lanes
        evidence = first.limit.evidence
        on = {
            name: (lane.outage.since, lane.limit.most, lane.outage.in_vain)
            for name, lane in lanes.by_name.items()
            if lane.outage.is_on or lane.limit.is_on
        }
        return (
            (governor.holds(now), lanes.quiet_from, lanes.traffic.is_watched),
            LIMIT.take(first.limit),
            (evidence.share(), evidence.pace, evidence.latest_share(evidence.ended)),
            (governor.usual.count, [governor.usual.of(f"r GET {path}") for path in PATHS]),
            on,
            {number: call.at for number, call in self.waiting.items()},
            sorted(self.flying),
            self.changes,
        )


def weather(chance: random.Random) -> Iterator[tuple[str, ...]]:
    """Ways for attempts to end, in spells of one mood: all well, some of one path, all of a kind."""
    while True:
        mood = chance.choice((*("few",) * 8, "well", "mixed", "one path", "down"))
        how, path = chance.choice([*ENDINGS]), chance.choice(PATHS)
        kinds = [*ENDINGS] if mood == "mixed" else ["503", "503", *ENDINGS]
        for _ in range(chance.randint(3, 60)):
            share = {"well": 0.0, "few": 0.06, "mixed": 0.3, "one path": 0.0, "down": 0.97}[mood]
            if mood in ("few", "mixed"):
                how = chance.choice(kinds)
            yield how if chance.random() < share else "well", path if mood == "one path" else "", how


def play(short: Sequence[Side], long: Sequence[Side], seed: int, steps: int) -> None:
    """Let the same calls come to both, and compare them after each step. `short`, `long`: the workers of each, which
    share their lanes if they are several.
    """
    chance = random.Random(seed)
    now, number = 1000.0, 0
    moods = weather(chance)
    for _ in range(steps):
        now += chance.choice((0.0, 0.001, 0.01, 0.05, 0.05, 0.3)) if chance.random() < 0.98 else 25.0
        worker = chance.randrange(len(short))
        sides = short[worker], long[worker]
        for side in (*short, *long):
            side.rings(now)
        flying = sides[0].flying
        if len(flying) + len(sides[0].waiting) < chance.randint(1, 8):
            number += 1
            path = chance.choice(PATHS)
            for side in sides:
                side.comes(number, path, now)
        elif flying:
            ended = chance.choice(sorted(flying))
            how, bad_path, kind = next(moods)
            if bad_path and flying[ended][0].request.path == bad_path:
                how = kind
            for side in sides:
                side.ends(ended, how, now)
        if len(short) > 1:
            for side in (*short, *long):
                side.catches_up(now)
        assert [side.seen(now) for side in short] == [side.seen(now) for side in long]
