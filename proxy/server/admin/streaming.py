"""/events: what happens, as it happens, as server-sent events.

Law: a reader costs little, and a slow one costs nobody else anything. Calls are shown as they end; who asks for the
board (`?board`) is told what moved there as well, and at most so many calls a look (`most`), those that were retried
or failed before those that simply succeeded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from proxy.server.admin.asked import Asked, Reply, text
from proxy.server.admin.board import SAMPLE, Board
from proxy.server.admin.view import View

#: Seconds between looks at what is new, for a reader of calls alone; and between signs of life.
_LOOK = 0.25
_ALIVE = 15.0
#: Calls a look that a reader of the board gets, unless it says otherwise.
_MOST = 50


class Reader:
    """One reader: what it has had, and what it gets next."""

    def __init__(self, asked: Asked, view: View, board: Board) -> None:
        self._view = view
        self._board = board if "board" in asked.query else None
        self._most = asked.query.get("most", str(_MOST) if self._board is not None else "")
        self._version = 0
        self._skipped = 0
        last = asked.field("last-event-id")
        self._at = view.recent.seen
        if is_count(last):  # a number beyond all seen is from before a restart
            self._at = int(last) if int(last) <= view.recent.seen else 0

    @property
    def asks_well(self) -> bool:
        """Whether what it asked for can be read."""
        return not self._most or is_count(self._most)

    @property
    def wait(self) -> float:
        """Seconds until the next look."""
        return _LOOK if self._board is None else self._board.wait

    async def news(self) -> str:
        """The events that are due; "" where nothing happened."""
        await self._view.refresh()
        text = "".join(_event("call", json.dumps(call), call["number"]) for call in self._calls())
        if self._board is not None:
            self._board.look()
            data, self._version = self._board.since(self._version, skipped=self._skipped)
            text += _event("board", data)
        return text

    def _calls(self) -> list[dict[str, Any]]:
        recent, at = self._view.recent, self._at
        self._at = recent.seen
        if not self._most:
            return recent.since(at)
        calls = recent.news(at, int(self._most))
        self._skipped += recent.seen - at - len(calls)
        return calls


def stream(reader: Reader, closing: asyncio.Event) -> Reply:
    """A reader's events, until it goes or the process does."""
    if not reader.asks_well:
        return text("most is a whole number.", 400)
    return Reply(kind="text/event-stream", parts=_events(reader, closing))


async def _events(reader: Reader, closing: asyncio.Event) -> AsyncGenerator[bytes, None]:
    yield b"retry: 1000\n\n"
    quiet = 0.0
    while not closing.is_set():
        news = (await reader.news()).encode()
        if not news and quiet >= _ALIVE:
            news = b": alive\n\n"
        quiet = 0.0 if news else quiet + reader.wait
        yield news
        await _rest(closing, reader.wait)


async def keep_sampling(view: View, board: Board, closing: asyncio.Event) -> None:
    """Sample the board until the process ends."""
    while not closing.is_set():
        await view.refresh()
        board.sample()
        await _rest(closing, SAMPLE)


def is_count(text: str) -> bool:
    """Whether a text is a whole number that is no attack on whoever computes with it."""
    return text.isascii() and text.isdigit() and len(text) < 19


async def _rest(closing: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(closing.wait(), seconds)
    except TimeoutError:
        return


def _event(name: str, data: str, number: int | None = None) -> str:
    line = f"id: {number}\n" if number is not None else ""
    return f"{line}event: {name}\ndata: {data}\n\n"
