"""The live view of `redrive top`: it is drawn again for each message of the board, and for each key.

However the view ends, the terminal is restored: its modes, its cursor, and its contents.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing, suppress
from dataclasses import replace

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from proxy.top.board import ORDERS, Board, Row, chosen, ordered
from proxy.top.client import AdminClient, AdminError, AdminPort
from proxy.top.keyboard import read_keys, single_keys
from proxy.top.screen import AROUND, Selection, picture, summary

#: Seconds until a port that was lost is asked again, at first and at most.
_AGAIN, _AGAIN_MOST = 0.5, 5.0
#: The most cooldowns that began since the last message for which the port is asked which call began them.
_MOST = 10
#: The newest failures of upstreams in trouble are read again after this many messages of the board.
_READ_AGAIN = 5


class LiveTop:
    """A live view of an admin port's upstreams. `look` is how the view is sorted and filtered at first."""

    def __init__(self, port: AdminPort, client: AdminClient, console: Console, look: Selection) -> None:
        self._port = port
        self._client = client
        self._console = console
        self._look = look
        self._board = Board()
        self._lost = ""
        self._messages = 0
        self._over = asyncio.Event()
        self._screen: Live | None = None
        self._terminal = ExitStack()

    async def run(self) -> None:
        """Show the view until the user ends it. Raises AdminError if the port can't be read at first, or reports later
        that the user named something wrong.
        """
        boards = self._boards()
        async with aclosing(boards):
            await anext(boards)  # what is wrong from the start is told before the screen is taken
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                loop.add_signal_handler(number, self._over.set)
            loop.add_signal_handler(signal.SIGTSTP, self._suspend)
            loop.add_signal_handler(signal.SIGWINCH, self._draw)
            self._open()
            reading = asyncio.create_task(self._read(boards))
            reading.add_done_callback(lambda _: self._over.set())
            try:
                await self._over.wait()
            finally:
                self._close()
                failed = reading.done() and not reading.cancelled() and reading.exception()
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            if failed:
                raise failed

    async def _read(self, boards: AsyncGenerator[None]) -> None:
        async for _ in boards:
            self._draw()

    async def _boards(self) -> AsyncGenerator[None]:
        """Read the admin port, and connect again after a loss; yield after each message that the board has taken, and
        after each loss of the connection.
        """
        wait, loads = _AGAIN, -1
        while True:
            try:
                async with aclosing(self._client.boards()) as messages:
                    async for message in messages:
                        if message["loads"] != loads or self._lost:
                            self._board.describe(await self._client.upstreams())
                            loads = message["loads"]
                        self._board.take(message)
                        for name in self._board.new_cooldowns()[:_MOST]:
                            self._board.describe(await self._client.upstreams(name))
                        await self._read_failures()
                        self._lost, wait = "", _AGAIN
                        yield
                raise AdminError(f"{self._port.shown} ended the stream")
            except AdminError as error:
                if error.usage or loads < 0:
                    raise
                self._lost = str(error)
            yield
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._over.wait()
            wait = min(wait * 2, _AGAIN_MOST)

    async def _read_failures(self) -> None:
        """Read the newest failures of upstreams in trouble. With most messages, only failures that are not known yet
        are read; with every _READ_AGAIN-th message, all are.
        """
        self._messages += 1
        for name in self._board.failing():
            if not self._messages % _READ_AGAIN or not self._board.knows_failure(name):
                self._board.note_failure(name, await self._client.newest_failure(name))

    # -- the terminal ---------------------------------------------------------------------------------------------

    def _open(self) -> None:
        descriptor = self._terminal.enter_context(single_keys())
        self._screen = Live(console=self._console, screen=True, auto_refresh=False, redirect_stderr=False)
        self._terminal.enter_context(self._screen)
        if descriptor is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(descriptor, self._typed, descriptor)
            self._terminal.callback(loop.remove_reader, descriptor)
        self._draw()

    def _close(self) -> None:
        self._screen = None
        self._terminal.close()

    def _suspend(self) -> None:
        """Handle Ctrl-Z: restore the terminal, stop as any program does, and take the terminal again on SIGCONT."""
        self._close()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._open()

    def _draw(self) -> None:
        if self._screen is None:
            return
        self._measure()
        rows, (width, height) = self._board.rows(time.time()), self._console.size  # noqa: TID251 (the user's clock)
        shown = self._shown(rows)
        first = min(self._look.first, max(0, len(shown) - self._room()))
        self._look = replace(self._look, first=first)
        head = summary(self._port.shown, self._board.ready, self._board.window, rows)
        if self._lost:
            head = f"lost, asked again: {self._lost}"
        title = Text(head, "bold red" if self._lost else "bold")
        refused = self._board.reload_errors
        made = picture(rows, shown, title, width, height, self._look, refused=refused)
        self._screen.update(made, refresh=True)

    def _measure(self) -> None:
        """Read the terminal window's present size, which the environment's COLUMNS and LINES don't follow."""
        columns, lines = os.get_terminal_size(self._console.file.fileno())
        if columns and lines:
            self._console.size = ConsoleDimensions(columns, lines)

    def _shown(self, rows: list[Row]) -> list[Row]:
        return ordered(chosen(rows, self._look.filter), self._look.by, turned=self._look.turned)

    def _room(self) -> int:
        return max(1, self._console.size.height - AROUND)

    # -- keys -----------------------------------------------------------------------------------------------------

    def _typed(self, descriptor: int) -> None:
        keys = read_keys(descriptor)
        if keys is None:
            self._over.set()
            return
        for key in keys:
            if self._look.typing:
                self._edit(key)
            else:
                self._command(key)
        self._draw()

    def _edit(self, key: str) -> None:
        """Change the filter by a key that the user pressed while typing it: add a character, delete, or end the
        typing.
        """
        look, text = self._look, self._look.filter
        if key == "enter":
            self._look = replace(look, typing=False)
        elif key == "escape":
            self._look = replace(look, typing=False, filter="")
        elif key in ("backspace", "erase"):
            self._look = replace(look, filter=text[:-1] if key == "backspace" else "")
        elif len(key) == 1:
            self._look = replace(look, filter=text + key, first=0)

    def _command(self, key: str) -> None:
        look, room = self._look, self._room()
        moves = {"up": -1, "down": 1, "page up": -room, "page down": room, "home": -len(self._board)}
        if key == "q":
            self._over.set()
        elif key == "s":
            self._look = replace(look, by=ORDERS[(ORDERS.index(look.by) + 1) % len(ORDERS)], turned=False, first=0)
        elif key == "S":
            self._look = replace(look, turned=not look.turned, first=0)
        elif key == "/":
            self._look = replace(look, typing=True)
        elif key == "escape":
            self._look = replace(look, filter="")
        elif key == "end":
            self._look = replace(look, first=len(self._board))
        elif key in moves:
            self._look = replace(look, first=max(0, look.first + moves[key]))
