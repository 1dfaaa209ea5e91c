"""`/events`: what happens, as it happens, as server-sent events.

A reader costs little, and a slow one costs nobody else anything. Calls are shown as they end; who asks for the board
(`?board`) is told what moved there as well, and at most so many calls a look (`?most`), those that were retried or
failed before those that simply succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiohttp import web

from proxy.observe.recent_calls import NumberedCall
from proxy.server.admin.auth import refusal
from proxy.server.admin.connections import has_said_all
from proxy.server.admin.handlers import is_count, write_in_pieces
from proxy.server.admin.live_board import SAMPLE, LiveBoard
from proxy.server.admin.turns import in_turns, rest
from proxy.server.admin.views import View

#: Set once the application shuts down.
CLOSING = web.AppKey("closing", asyncio.Event)

#: Seconds between looks at what is new, for a reader of calls alone; and between signs of life.
_LOOK = 0.25
_ALIVE = 15.0
#: Calls a look that a reader of the board gets, unless it says otherwise.
_MOST = 50


class Events:
    """The page. `board` is the one that all readers share."""

    def __init__(self, view: View, board: LiveBoard) -> None:
        self._view = view
        self._board = board

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """`/events`. `Last-Event-ID` goes on where a reader left off, as far as the ring of last calls reaches back."""
        await self._view.refresh()
        reader = EventReader(request, self._view, self._board)
        if not reader.asks_well:
            return refusal(400, "most is a whole number.")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if request.version < (1, 1):  # such a stream ends with its connection
            response.force_close()
        await response.prepare(request)
        if request.method != "HEAD":
            await response.write(b"retry: 1000\n\n")
            await self._follow(request, response, reader)
        return response

    async def _follow(self, request: web.Request, response: web.StreamResponse, reader: EventReader) -> None:
        """Write a reader's events until it goes (then a write fails, or this is cancelled) or the application ends."""
        closing, quiet = request.app[CLOSING], 0.0
        while not closing.is_set() and not has_said_all(request):
            news = await reader.news()
            if not news and quiet >= _ALIVE:
                news = ": alive\n\n"
            if news:
                await write_in_pieces(response, news.encode())
            quiet = 0.0 if news else quiet + reader.wait
            await rest(closing, reader.wait)


class EventReader:
    """One reader: what it has had, and what it gets next. `request` says what it asked for."""

    def __init__(self, request: web.Request, view: View, board: LiveBoard) -> None:
        self._view = view
        self._board = board if "board" in request.query else None
        self._most = request.query.get("most", str(_MOST) if self._board is not None else "")
        self._version = 0
        self._skipped = 0
        last = request.headers.get("Last-Event-ID", "")
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
        """Make the events that are due; "" where nothing happened."""
        await self._view.refresh()
        text = "".join(await in_turns(_event("call", call.text, call.number) for call in self._calls()))
        if self._board is not None:
            await self._board.look()
            data, self._version = self._board.since(self._version, skipped=self._skipped)
            text += _event("board", data)
        return text

    def _calls(self) -> Iterator[NumberedCall]:
        recent, at = self._view.recent, self._at
        self._at = recent.seen
        if not self._most:
            return recent.show(recent.choose(at))
        chosen = recent.choose_news(at, int(self._most))
        self._skipped += recent.seen - at - len(chosen)
        return recent.show(chosen)


async def keep_sampling(view: View, board: LiveBoard, closing: asyncio.Event) -> None:
    """Sample the board until the application shuts down."""
    while not closing.is_set():
        await view.refresh()
        await board.sample()
        await rest(closing, SAMPLE)


def _event(name: str, data: str, number: int | None = None) -> str:
    line = f"id: {number}\n" if number is not None else ""
    return f"{line}event: {name}\ndata: {data}\n\n"
