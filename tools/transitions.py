"""The page docs/reference/transitions.md, printed from the machine's own table (`proxy.retry.states.MOVES`).

python tools/transitions.py            print the page
python tools/transitions.py --write    write docs/reference/transitions.md again
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from proxy.retry.machine import Call
from proxy.retry.plans import Next
from proxy.retry.states import MOVES, Delivering, Done, Flying, New

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "transitions.md"

_STATES = {
    New: ("new", "the request's head has not come"),
    Next: (
        "waiting",
        "nothing flies, and the attempt that comes next is waited for: it was paid for, or its bucket is asked, or a "
        "cooldown, a `rate` bucket or the adaptive limiter holds it; the last answer, if there is one, is held",
    ),
    Flying: (
        "flying",
        "an attempt is in flight (hedged: at least one): its head has not come, or a rule must see the body before "
        "its class can be told",
    ),
    Delivering: ("delivering", "an answer is going to the app: nothing leads back"),
    Done: ("done", "there is an outcome"),
}
#: Events that end a call whatever it does; the picture leaves them out.
_ENDS = ("app_gone", "cut", "denied", "replay_lost")

_HEAD = """# How a call moves

This page is printed by `python tools/transitions.py --write` from the table in `proxy/retry/states.py`, and a test
keeps it current. Another test (`tests/retry/test_moves.py`) plays thousands of random calls under policies that open
every path, and checks three things: they make every move that is listed here and no other; an event that is not listed
for a state returns nothing there and changes nothing; and the law of the core: in every state something is in
flight, or an alarm is set, or the call is done.

Events are what a driver tells the call; for each, the call returns the actions that its driver must carry out
(`proxy/retry/actions.py`). The order of checks decides which *no* ends a call
([classification.md](classification.md#the-order-of-checks)).
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_states(), "", *_picture(), "", *_rows(), ""])


def _states() -> Iterator[str]:
    yield "| state | means |"
    yield "| --- | --- |"
    yield from (f"| {name} | {meaning} |" for name, meaning in _STATES.values())


def _picture() -> Iterator[str]:
    """The moves from state to state, without the events that leave every state at once."""
    edges: dict[tuple[type, type], list[str]] = defaultdict(list)
    for state, moves in MOVES.items():
        for event, to in moves.items():
            for then in to:
                if then is not state and event not in _ENDS:
                    edges[state, then].append(event)
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> new"
    for (state, then), events in edges.items():
        yield f"    {_STATES[state][0]} --> {_STATES[then][0]}: {', '.join(events)}"
    yield "    done --> [*]"
    yield "```"


def _rows() -> Iterator[str]:
    yield "| in | event | which is | then |"
    yield "| --- | --- | --- | --- |"
    for state, moves in MOVES.items():
        for event, to in moves.items():
            what = (getattr(Call, event).__doc__ or "").split(".\n")[0].split(". ")[0].removesuffix(".")
            then = ", ".join(_STATES[each][0] for each in to)
            yield f"| {_STATES[state][0]} | `{event}` | {' '.join(what.split())} | {then} |"


def main() -> None:
    """Print the page, or write it."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
