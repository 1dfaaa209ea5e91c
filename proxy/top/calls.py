"""`redrive requests` and `redrive why`: the last calls of a running redrive in a terminal, and why one ended as it did.

A call is one line; why it ended so is a few lines, with every attempt and what helps.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from proxy.config.problems import did_you_mean
from proxy.retry.call.gates import GATES
from proxy.top.board import duration, status_of
from proxy.top.client import AdminClient, AdminError, AdminPort

#: Characters that are left of a path, if a line has no room for all of it.
_SHORTEST_PATH = 14
#: Columns of the narrowest terminal that long lines are folded for.
_NARROWEST = 40
#: The decisions after an attempt, in words, if the call went on or needed no other attempt; the dashboard has the
#: same in words.js. Every other decision is the reason why there was no further attempt.
DECISIONS = {
    "delivered": "passed to the app",
    "retried": "retried",
    "resumed": "it broke on its way to the app: the rest was asked for",
    "key renewed": "made once more with the key's new value",
    "probed": "a probe of the outage that was not processed: the call was held again",
    "transparent": "sent again at once, for free: the upstream cannot have seen it",
    "cancelled": "cancelled: another attempt ended the call",
    "hedged on": "the next attempt did not wait",
    "fell back": "the call went on at another upstream",
    "client_gone": "the app went away",
    "denied": "not sent: denied",
}
#: The gates that an answer or a failure of the upstream closes.
_BEGUN = ("cooldown", "limit", "outage")
#: Seconds between two looks at a redrive whose calls are followed.
EVERY = 1.0


def requests(port: AdminPort, asked: Mapping[str, str], *, follow: bool, as_json: bool) -> None:
    """Print the last calls that `asked` chooses (the parameters of /requests), the oldest first; with `follow`, print
    new ones as they end, until the user ends the program. Raises AdminError.
    """
    asyncio.run(_requests(port, dict(asked), follow=follow, as_json=as_json))


async def _requests(port: AdminPort, asked: dict[str, str], *, follow: bool, as_json: bool) -> None:
    async with AdminClient(port) as client:
        while True:
            found = await client.requests(asked)
            if not found["requests"] and "since" not in asked:
                await _check_upstream(client, port, asked.get("upstream"))
            for call in reversed(found["requests"]):
                print(json.dumps(call) if as_json else line(call, _columns()), flush=True)
            if not follow:
                if not found["requests"]:
                    none = "remembers no such call" if found["seen"] else "has had no calls yet"
                    print(f"redrive: {port.shown} {none}", file=sys.stderr)
                return
            if found["requests"]:
                asked["since"] = str(found["requests"][0]["number"])
            asked["limit"] = "500"
            await asyncio.sleep(EVERY)  # noqa: TID251  a look at what has ended since the last


async def _check_upstream(client: AdminClient, port: AdminPort, name: str | None) -> None:
    """Raise AdminError if the redrive has no upstream of this name, of which there are no calls; None is any name."""
    if name is None:
        return
    known = [*(each["label"] for each in await client.upstreams()), "unmatched"]
    if name not in known:
        raise AdminError(f"{port.shown} has no upstream {name}{did_you_mean(name, known)}", usage=True)


def why(port: AdminPort, number: int | None, *, as_json: bool) -> None:
    """Print why the call with this number ended as it did, as JSON if `as_json`; None is the last call that was retried
    or refused, or did not succeed. Raises AdminError, also if the call is no longer kept.
    """
    call, cause = asyncio.run(_call(port, number))
    told = [json.dumps(call, indent=2)] if as_json else fold(story(call, cause), _columns())
    print("\n".join(told))


async def _call(port: AdminPort, number: int | None) -> tuple[dict[str, Any], str]:
    """The call, and the beginning of its hold in words ("": nothing held it, or that is forgotten)."""
    async with AdminClient(port) as client:
        if number is not None:
            call = await client.request(number)
        else:
            found = await client.requests({"only": "notable", "limit": "1"})
            if not found["seen"]:
                raise AdminError(f"{port.shown} has had no calls yet")
            if not found["requests"]:
                raise AdminError(f"no call that {port.shown} remembers was retried or refused, and all succeeded")
            call = found["requests"][0]
        try:
            return call, cause_of(call, await client.series(call["upstream"])) if _held(call)[0] else ""
        except AdminError:  # the upstream is no longer in the file
            return call, ""


def _held(call: Mapping[str, Any]) -> tuple[str, float]:
    """The last hold of a call: its gate ("cooldown", "limit", "outage"; "" for none that an upstream began), and its
    end in seconds after the call's beginning.
    """
    told = [call.get("detail") or "", *(str(attempt.get("why", "")) for attempt in call["history"])]
    for gate in _BEGUN:
        if any(GATES[gate] in each for each in told) or call["outcome"] == {"cooldown": "cooling"}.get(gate, gate):
            return gate, call["duration"]
    held = [attempt for attempt in call["history"] if attempt.get("held_by") in _BEGUN]
    return (held[-1]["held_by"], held[-1].get("start", 0.0)) if held else ("", 0.0)


def cause_of(call: Mapping[str, Any], series: Mapping[str, Any]) -> str:
    """The beginning of the cooldown, limit or outage that held a call, in words; "" if none is known. `series`: the
    last ones of the call's upstream, as /series has them.
    """
    holder, until = _held(call)
    end = datetime.fromisoformat(call["time"]).timestamp() + until
    if holder == "cooldown":
        began = [each for each in series["cooldowns"] if each["began"] <= end]
        said = "the {field} of a {status} from {endpoint} asked for {asked}"
        return said.format(asked=duration(began[-1]["seconds"]), **began[-1]) + _at(began[-1]["began"]) if began else ""
    changes = [each for each in series["weather"] if each["event"] == f"{holder}_began" and each["at"] <= end]
    return changes[-1]["says"] + _at(changes[-1]["at"]) if changes else ""


def _at(instant: float) -> str:
    return f", at {datetime.fromtimestamp(instant, UTC):%H:%M:%S} UTC"


def _columns() -> int | None:
    """The width of the terminal that standard output is connected to; None if it is connected to none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def line(call: Mapping[str, Any], width: int | None = None) -> str:
    """A call in one line: its number, its time, the request, how it ended, and who called. In a terminal of `width`
    columns a long path keeps its end, and what there is no room for is left out.
    """
    attempts = call["attempts"]
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    who = call.get("app") or call.get("agent")
    parts = [
        f"{call['number']:>6}",
        call["time"][11:19],
        f"{_where(call):<16}",
        f"{call['method']} {call['path']}",
        status_of(call) or "-",
        str(call["outcome"]),
        f"{times}, {duration(call['duration'])}",
        *([f"by {who}"] if who else []),
    ]
    text = "  ".join(parts)
    if width is None:
        return text
    for part in (3, 7, 6):  # the path is shortened, then the caller is left out, then the times
        if len(text) <= width:
            break
        if part == 3:
            room = max(len(call["path"]) - (len(text) - width), _SHORTEST_PATH)
            parts[3] = f"{call['method']} {_end(call['path'], room)}"
        else:
            del parts[part:]
        text = "  ".join(parts)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _end(path: str, room: int) -> str:
    """The end of a path, in at most `room` characters."""
    return path if len(path) <= room else f"…{path[1 - room :]}"


def story(call: Mapping[str, Any], cause: str = "") -> Iterator[str]:
    """Why a call ended as it did, line by line. `cause`: what began the hold of the call, "" if nothing is known."""
    who = call.get("app") or call.get("agent")
    asked = " ".join(filter(None, (call["method"], call["path"])))  # a CONNECT has no path
    what = f"{asked} to {_where(call)}" if call["method"] else "a request that could not be read"
    yield f"{what}{f', by {who}' if who else ''}, at {call['time']}"
    yield f"{call['outcome']}: the app got {status_of(call) or 'no answer'} after {duration(call['duration'])}"
    for attempt in call["history"]:
        # A call that succeeded at once has its endpoint, but its attempt does not repeat it.
        at = attempt if len(call["history"]) > 1 else {"endpoint": call.get("endpoint"), **attempt}
        yield f"  {attempt['attempt']}. {_attempt(at)}"
    if call.get("detail") and not any(attempt.get("detail") == call["detail"] for attempt in call["history"]):
        yield f"detail: {call['detail']}"
    if cause:
        yield f"what held it: {cause}"
    if call.get("remedy"):
        yield f"what helps: {call['remedy']}"


def fold(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Break lines between words where they are longer than a terminal's `width` (None is any width). The rest of a line
    is indented a little deeper than its beginning.
    """
    for text in lines:
        if width is None or len(text) <= width:
            yield text
            continue
        deeper = " " * (5 if text.startswith(" ") else 2)
        yield from textwrap.wrap(
            *(text, max(width, _NARROWEST)), subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
        )


def _attempt(attempt: Mapping[str, Any]) -> str:
    said = str(attempt.get("fault") or status_of(attempt) or "no answer")
    at = f" from {attempt['endpoint']}" if attempt.get("endpoint") else ""
    took = f" after {duration(attempt['duration'])}" if "duration" in attempt else ""
    gate = attempt.get("held_by", "")
    held = f", held for {duration(attempt['held'])} by {GATES.get(gate, gate)}" if attempt.get("held") else ""
    reasons = [attempt.get("detail") or attempt.get("because"), _pushback(attempt)]
    because = f" ({'; '.join(filter(None, reasons))})" if any(reasons) else ""
    decision = attempt.get("decision", "")
    if decision == "retried":
        return f"{said}{at}{took}{held}{because}: retried after {duration(attempt.get('delay', 0.0))}"
    if decision == "delivered":
        return f"{said}{at}{took}{held}: this answer went to the app"
    if not decision:
        return f"{said}{at}{took}{held}{because}"
    reason = f", since {attempt['why']}" if attempt.get("why") else ""
    return f"{said}{at}{took}{held}{because}: {DECISIONS.get(decision, f'not retried: {decision}')}{reason}"


def _pushback(attempt: Mapping[str, Any]) -> str:
    """The upstream's word on when to retry, and the field that had it, in the words of the dashboard; "" if none."""
    if not attempt.get("pushback"):
        return ""
    delay = attempt.get("pushback_delay")
    return f"the upstream said {attempt['pushback']}{'' if delay is None else f': {duration(delay)}'}"


def _where(call: Mapping[str, Any]) -> str:
    name = str(call["upstream"] or call["host"])
    return f"{name} › {call['route']}" if call.get("route") else name
