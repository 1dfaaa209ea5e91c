"""docs/reference/transitions.md and its picture, out of the machine's own table (`proxy.retry.call.states.MOVES`).

python tools/transitions.py            print the page
python tools/transitions.py --write    write page and picture again
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from proxy.retry.call.states import MOVES, Delivering, Done, Flying, New, Next

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "transitions.md"
PICTURE = PAGE.with_suffix(".svg")
_MACHINE = Path(__file__).parent.parent / "proxy" / "retry" / "call" / "machine.py"

_STATES = {
    New: ("new", "the request's head has not come"),
    Next: (
        "waiting",
        "no attempt is in flight, and the next one waits: it was paid for, or its bucket is asked, or a cooldown, a "
        "`rate` bucket or the adaptive limiter holds it; the last answer, if there is one, is held",
    ),
    Flying: (
        "flying",
        "an attempt is in flight (hedged: at least one): its head has not come, or a rule must see the body before "
        "its class can be told",
    ),
    Delivering: (
        "delivering",
        "an answer is going to the app: no other attempt is possible, but for the rest of an answer that breaks",
    ),
    Done: ("done", "the call has ended, with an outcome"),
}
#: Events that end a call whatever it does; the picture leaves them out.
_ENDS = ("app_gone", "cut", "denied", "no_room", "replay_lost")

#: Where the picture has each state, its middle, and each move: its way, and where its events stand.
_PLACES = {
    "new": (75, 170), "waiting": (320, 90), "flying": (320, 250), "delivering": (640, 170), "done": (885, 170),
}  # fmt: skip
_WAYS = {
    ("new", "waiting"): ("M130 160 L262 102", 190, 118, "end"),
    ("new", "flying"): ("M130 180 L262 238", 190, 232, "end"),
    ("new", "done"): ("M75 190 C75 360 885 360 885 194", 480, 334, "middle"),
    ("waiting", "flying"): ("M300 110 V226", 290, 172, "end"),
    ("flying", "waiting"): ("M340 230 V114", 350, 172, "start"),
    ("waiting", "delivering"): ("M375 100 L582 157", 470, 116, "start"),
    ("waiting", "done"): ("M320 70 C320 10 885 10 885 146", 560, 26, "middle"),
    ("flying", "delivering"): ("M375 240 L582 183", 470, 236, "start"),
    ("flying", "done"): ("M320 270 C320 330 840 330 870 194", 560, 294, "middle"),
    ("delivering", "waiting"): ("M612 150 C560 58 440 52 377 80", 500, 62, "middle"),
    ("delivering", "flying"): ("M612 190 C560 282 440 288 377 260", 500, 270, "middle"),
    ("delivering", "done"): ("M695 170 H826", 760, 162, "middle"),
}
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 350" role="img" font-size="13" \
font-family="system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif">
<style>
.ground { fill: #f7f8fa; } .name { fill: #1a2029; font-weight: 600; font-size: 14px; } .event { fill: #3d4653; }
.state { fill: #dbe7fb; stroke: #1f5fd0; }
.way { stroke: #566070; fill: none; marker-end: url(#a); } .arrow { fill: #566070; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #151a21; } .name { fill: #e4e9f0; } .event { fill: #b8c2cf; }
  .state { fill: #1c2e4d; stroke: #74a7ff; } .way { stroke: #a5b0be; } .arrow { fill: #a5b0be; }
}
</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path class="arrow" d="M0 0l8 4-8 4z"/></marker></defs>
<rect class="ground" width="960" height="350" rx="10"/>"""

_HEAD = """# How a call moves

This page is printed by `python tools/transitions.py --write` from the table in `proxy/retry/call/states.py`, and a test
keeps it current. Another test (`tests/retry/call/test_moves.py`) plays thousands of random calls under policies that
open every path, and checks three things:

- The calls make every move that is listed here, and no other.
- An event that is not listed for a state returns no action there, and changes nothing.
- The law of the core holds: in every state something is in flight, or an alarm is set, or the call is done.

A driver reports events to the call. For each, the call returns the actions that its driver must carry out
(`proxy/retry/call/actions.py`). The order of checks decides which *no* ends a call
([classification.md](classification.md#the-order-of-checks)).
"""


def page() -> str:
    """The whole page."""
    shown = f"![The states of a call, and the events that lead from one to another]({PICTURE.name})"
    return "\n".join([_HEAD, *_states(), "", shown, "", *_rows(), ""])


def _states() -> Iterator[str]:
    yield "| state | means |"
    yield "| --- | --- |"
    yield from (f"| {name} | {meaning} |" for name, meaning in _STATES.values())


def picture() -> str:
    """The moves from state to state, without the events that leave every state at once. KeyError: a move that has no
    place in the picture yet.
    """
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for state, moves in MOVES.items():
        for event, to in moves.items():
            for then in to:
                if then is not state and event not in _ENDS:
                    edges[_STATES[state][0], _STATES[then][0]].append(event)
    lines = [_SVG]
    for edge, events in edges.items():
        way, x, y, anchor = _WAYS[edge]
        lines.append(f'<path class="way" d="{way}"/>')
        lines.append(f'<text class="event" x="{x}" y="{y}" text-anchor="{anchor}">{", ".join(events)}</text>')
    for name, (x, y) in _PLACES.items():
        lines.append(f'<rect class="state" x="{x - 55}" y="{y - 20}" width="110" height="40" rx="8"/>')
        lines.append(f'<text class="name" x="{x}" y="{y + 5}" text-anchor="middle">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _docstrings() -> dict[str, str]:
    """The docstrings of the methods of `Call`, by name, from its source: the compiled class has none."""
    tree = ast.parse(_MACHINE.read_text())
    (call,) = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Call"]
    return {each.name: ast.get_docstring(each) or "" for each in call.body if isinstance(each, ast.FunctionDef)}


def _rows() -> Iterator[str]:
    docstrings = _docstrings()
    yield "| in | event | which is | then |"
    yield "| --- | --- | --- | --- |"
    for state, moves in MOVES.items():
        for event, to in moves.items():
            what = docstrings[event].split(".\n")[0].split(". ")[0].removesuffix(".")
            then = ", ".join(_STATES[each][0] for each in to)
            yield f"| {_STATES[state][0]} | `{event}` | {' '.join(what.split())} | {then} |"


def main() -> None:
    """Print the page, or write it."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
        PICTURE.write_text(picture())
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
