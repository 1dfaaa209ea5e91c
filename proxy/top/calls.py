"""`redrive requests` and `redrive why`: the last calls of a running redrive in a terminal, and why one ended as it did.

A call is one line; why it ended so is a few lines, with every attempt and what helps.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.top.client import AdminClient, AdminPort

#: Seconds between two looks at a redrive whose calls are followed.
EVERY = 1.0


def requests(port: AdminPort, asked: Mapping[str, str], *, follow: bool, as_json: bool) -> None:
    """Print the last calls that `asked` chooses (the parameters of /requests), the oldest first; with `follow`, print
    new ones as they end, until the user ends it. Raises AdminError.
    """
    asyncio.run(_requests(port, dict(asked), follow=follow, as_json=as_json))


async def _requests(port: AdminPort, asked: dict[str, str], *, follow: bool, as_json: bool) -> None:
    async with AdminClient(port) as client:
        while True:
            found = await client.requests(asked)
            for call in reversed(found["requests"]):
                print(json.dumps(call) if as_json else line(call), flush=True)
            if not follow:
                return
            if found["requests"]:
                asked["since"] = str(found["requests"][0]["number"])
            asked["limit"] = "500"
            await asyncio.sleep(EVERY)  # noqa: TID251  a look at what has ended since the last


def why(port: AdminPort, number: int, *, as_json: bool) -> None:
    """Print why a call ended as it did. Raises AdminError, also if the call is no longer kept."""
    call = asyncio.run(_call(port, number))
    print(json.dumps(call, indent=2) if as_json else "\n".join(story(call)))


async def _call(port: AdminPort, number: int) -> dict[str, Any]:
    async with AdminClient(port) as client:
        return await client.request(number)


def line(call: Mapping[str, Any]) -> str:
    """A call in one line: its number, its time, the request, how it ended, and what helps."""
    attempts = call["attempts"]
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    who = call.get("app") or call.get("agent")
    parts = [
        f"{call['number']:>6}",
        call["time"][11:19],
        f"{_where(call):<16}",
        f"{call['method']} {call['path']}",
        f"{call['status'] or '-'}",
        str(call["outcome"]),
        f"{times}, {_seconds(call['duration'])}",
        *([f"by {who}"] if who else []),
    ]
    return "  ".join(parts)


def story(call: Mapping[str, Any]) -> Iterator[str]:
    """Why a call ended as it did, line by line."""
    who = call.get("app") or call.get("agent")
    yield f"{call['method']} {call['path']} to {_where(call)}{f', by {who}' if who else ''}, at {call['time']}"
    yield f"{call['outcome']}: the app got {call['status'] or 'no answer'} after {_seconds(call['duration'])}"
    for attempt in call["history"]:
        yield f"  {attempt['attempt']}. {_attempt(attempt)}"
    if call.get("detail"):
        yield f"detail: {call['detail']}"
    if call.get("remedy"):
        yield f"what helps: {call['remedy']}"


def _attempt(attempt: Mapping[str, Any]) -> str:
    said = str(attempt.get("fault") or attempt.get("status") or "no answer")
    at = f" from {attempt['endpoint']}" if attempt.get("endpoint") else ""
    took = f" after {_seconds(attempt['duration'])}" if "duration" in attempt else ""
    held = f", held for {_seconds(attempt['held'])} by {attempt.get('held_by', '')}" if attempt.get("held") else ""
    because = attempt.get("detail") or attempt.get("because")
    because = f" ({because})" if because else ""
    decision = attempt.get("decision", "")
    if decision == "retried":
        return f"{said}{at}{took}{held}{because}: retried after {_seconds(attempt.get('delay', 0.0))}"
    if decision == "delivered":
        return f"{said}{at}{took}{held}: this answer went to the app"
    reason = f", since {attempt['why']}" if attempt.get("why") else ""
    return f"{said}{at}{took}{held}{because}: {decision}{reason}"


def _where(call: Mapping[str, Any]) -> str:
    name = str(call["upstream"] or call["host"])
    return f"{name} › {call['route']}" if call.get("route") else name


def _seconds(amount: float) -> str:
    return f"{amount * 1000:.0f} ms" if amount < 1 else f"{amount:.2f} s"
