"""The transition table of docs/reference/transitions.md, found by driving `proxy.retry.machine.Call` itself.

Every event that a driver could bring about is put to every state that is reached from the start, under a handful of
policies that between them open every path. What the call answered is the table; nothing is written by hand. While at
it the law is checked in each state: something flies, or an alarm is set, or the call is done.

    python tools/transitions.py            print the page
    python tools/transitions.py --write    write docs/reference/transitions.md anew
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driven_call import COOLED_BY_ANOTHER, Driven, Phase, events, phase_of
from every_path import HEDGED, SEQUENTIAL, Elsewhere

from proxy.retry.actions import Action, Actions, Deliver
from proxy.retry.facts import Outcome, Request
from proxy.retry.machine import Call, Env
from proxy.retry.policy import Policy
from proxy.retry.registry import Registry
from proxy.retry.waiting_room import WaitingRoom

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "transitions.md"

#: Seconds between two events, where the event does not say when it happens.
STEP = 0.01


@dataclass
class Table:
    """(phase, event) -> what was answered, each a tuple of action names and the next phase, with the outcomes seen."""

    rows: dict[tuple[Phase, str], dict[tuple[tuple[str, ...], Phase], set[Outcome]]]


def explore(settings: list[tuple[Policy, int, bool]], *, hedged: bool) -> Table:
    """Put every event to every state that can be reached."""
    table = Table(defaultdict(lambda: defaultdict(set)))
    for policy, room, cooling in settings:
        start = _replay(policy, room, cooling, ())
        assert start.call.hedged is hedged
        seen = {start.key}
        paths: deque[tuple[tuple[str, ...], Driven]] = deque([((), start)])
        while paths:
            path, reached = paths.popleft()
            for step in [f"{number}|{label}" for number, (label, _) in enumerate(events(reached))]:
                driven = _replay(policy, room, cooling, path)
                _put(table, driven, step)
                if driven.key not in seen and not driven.done:
                    seen.add(driven.key)
                    paths.append(((*path, step), driven))
    return table


def _replay(policy: Policy, room: int, cooling: bool, path: tuple[str, ...]) -> Driven:
    """A call that has gone this way. Calls are cheap; copies of their surroundings are not exact."""
    request = Request("GET", "u.test", "/")
    scope = Registry(Elsewhere()).scope(policy, request)
    if cooling:
        scope.cooldown.start(request.fields, 503, 1.0, sent=0.0, now=0.0)
    env = Env(random.Random(0), 0.0, WaitingRoom(room))  # noqa: TID251, S311 - nothing draws from it: no jitter
    driven: Driven | None = None

    def move_alarm(at: float) -> None:
        assert driven is not None
        driven.alarm = at

    driven = Driven(Call(request, policy, scope, env, move_alarm))
    for step in path:
        _happen(driven, step)
    return driven


def _happen(driven: Driven, step: str) -> Actions:
    number, _, label = step.partition("|")
    for index, (known, happen) in enumerate(events(driven)):
        if index == int(number):
            assert known == label
            driven.now += STEP if phase_of(driven.call) is not Phase.NEW else 0.0
            actions = happen(driven)
            driven.carry_out(actions)
            return actions
    raise LookupError(step)


def _put(table: Table, driven: Driven, step: str) -> None:
    before = phase_of(driven.call)
    actions = _happen(driven, step)
    names = tuple(dict.fromkeys(_name(action) for action in actions))
    outcomes = {outcome for action in actions if (outcome := getattr(action, "outcome", None)) is not None}
    label = step.partition("|")[2]
    if label == COOLED_BY_ANOTHER:
        return
    table.rows[before, label][names, phase_of(driven.call)] |= outcomes
    in_flight = driven.flying or driven.peeking or driven.delivering is not None
    assert driven.done or in_flight or driven.alarm is not None, f"nothing will ever happen again: {before} {step}"


def _name(action: Action) -> str:
    if isinstance(action, Deliver):
        return "Deliver" if action.outcome is Outcome.SUCCESS else "Deliver the failure"
    return type(action).__name__


# -- writing ----------------------------------------------------------------------------------------------------------

_HEAD = """# How a call moves

This page is made from the code by `python tools/transitions.py --write`, and a test keeps it current. The generator
drives the object that serves traffic: every event that a driver can bring about is put to every state that can be
reached, under policies that open every path (`tools/every_path.py`). In each of those states it
checks the law of the core: something is in flight, or an alarm is set, or the call is done.

Events are what a driver tells the call; actions are what the call asks of its driver, in this order
(`proxy/retry/actions.py`). `—` means that nothing is asked and the state stays. The outcomes are those that a row was
seen to end with, or to hand an answer on with; which *no* it is follows from the order of checks
([classification.md](classification.md#the-order-of-checks)).

| phase | means |
| --- | --- |
| new | the request's head has not come |
| gated | an attempt is due, and a cooldown, a `rate` bucket or the adaptive limiter holds it |
| flying | sent; no final head yet (hedged: at least one attempt is) |
| peeking | the head is there, and a rule must see the body before the class can be told |
| backoff | a retry was paid for, or its bucket is asked, and it is waited for; its answer, if any, is held |
| delivering | an answer is going to the app: nothing leads back |
| done | there is an outcome |
"""


def page() -> str:
    """The whole page."""
    one, other = explore(SEQUENTIAL, hedged=False), explore(HEDGED, hedged=True)
    return "\n".join(
        [
            _HEAD,
            "## One attempt after another\n",
            *_diagram(one),
            "",
            *_rows(one),
            "",
            "## Hedged\n",
            "Several attempts may be in flight. A call that is not safe to hedge goes by the table above.\n",
            *_rows(other),
            "",
        ]
    )


def _diagram(table: Table) -> Iterator[str]:
    """The moves from phase to phase, without the events that leave everything at once."""
    edges: dict[tuple[Phase, Phase], list[str]] = defaultdict(list)
    for (phase, event), results in table.rows.items():
        for _, after in results:
            name = event.split("`")[1]
            leaves = name in ("app_gone", "cut", "denied", "replay_lost")
            if after is not phase and not leaves and name not in edges[phase, after]:
                edges[phase, after].append(name)
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> new"
    order = list(Phase)
    for (phase, after), names in sorted(edges.items(), key=lambda pair: tuple(map(order.index, pair[0]))):
        if names:
            yield f"    {phase.value} --> {after.value}: {', '.join(names)}"
    yield "    done --> [*]"
    yield "```"


def _rows(table: Table) -> Iterator[str]:
    yield "| in | event | actions | then | outcomes |"
    yield "| --- | --- | --- | --- | --- |"
    order = list(Phase)
    for (phase, event), results in sorted(table.rows.items(), key=lambda row: order.index(row[0][0])):
        ranked = sorted(results.items(), key=lambda result: (order.index(result[0][1]), result[0][0]))
        for (names, after), outcomes in ranked:
            told = ", ".join(f"`{outcome}`" for outcome in Outcome if outcome in outcomes)
            yield f"| {phase.value} | {event} | {', '.join(names) or '—'} | {after.value} | {told} |"


def main() -> None:
    """Print the page, or write it."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
