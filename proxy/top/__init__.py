"""`redrive top`: the upstreams of a running redrive as a table in a terminal, live or printed once.

Start here: `client` reads the admin port, `board` makes rows from what the port reports, `screen` makes a picture of
the rows, and `live` shows the picture, with `keyboard`, until the user ends it. The verb reads what the dashboard
reads, and so costs as little.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing

from rich.console import Console
from rich.text import Text

from proxy.admin.upstream_state import is_drained
from proxy.admin.weather_view import holding
from proxy.top.board import Board, chosen, ordered, tokens, total_as_data
from proxy.top.client import AdminClient, AdminError, AdminPort, admin_port, named_port
from proxy.top.live import LiveTop
from proxy.top.screen import Selection, picture, summary

__all__ = ["AdminError", "AdminPort", "Selection", "admin_port", "holding_now", "named_port", "top"]

#: Columns of what is written where there is no terminal: more than any table has: nothing is to be cut there.
_NO_TERMINAL = 10_000


def top(port: AdminPort, look: Selection, *, once: bool, as_json: bool) -> None:
    """Show the upstreams until the user ends the view. With `once`, or if standard output is no terminal or can't be
    drawn on, print them and return. `look` says how the upstreams are sorted and which are shown. Raises AdminError.
    """
    console = Console(highlight=False)
    drawn = console.is_terminal and not console.is_dumb_terminal
    if drawn and not once and not as_json:
        asyncio.run(_live(port, look, console))
        return
    board = asyncio.run(_read(port))
    rows = board.rows(time.time())  # noqa: TID251 (the user's clock)
    shown = ordered(chosen(rows, look.filter), look.by, turned=look.turned)
    if as_json:
        answer = {
            "admin": port.shown,
            "ready": board.ready["ready"],
            "reload_errors": board.reload_errors,
            "window": board.window,
            "upstreams": [row.as_data() for row in shown],
            "total": total_as_data(shown, board.window),
        }
        print(json.dumps(answer, indent=2))
        return
    head = Text(summary(port.shown, board.ready, board.window, rows))
    if console.is_terminal:
        console.print(picture(rows, shown, head, console.width, refused=board.reload_errors))
        return
    lines = Console(width=_NO_TERMINAL, highlight=False, color_system=None)
    with lines.capture() as written:
        lines.print(picture(rows, shown, head, None, refused=board.reload_errors))
    print("\n".join(line.rstrip() for line in written.get().splitlines()))


async def _live(port: AdminPort, look: Selection, console: Console) -> None:
    async with AdminClient(port) as client:
        await LiveTop(port, client, console, look).run()


async def _read(port: AdminPort) -> Board:
    """The board, filled with what the admin port reports first: /upstreams and all rows."""
    board = Board()
    async with AdminClient(port) as client:
        board.describe(await client.upstreams())
        async with aclosing(client.boards()) as messages:
            async for message in messages:
                board.take(message)
                for name in board.failing():
                    board.note_failure(name, await client.newest_failure(name))
                return board
    raise AdminError(f"the admin port at {port.shown} said nothing")


def holding_now(port: AdminPort, upstream: str) -> list[str]:
    """The reasons for which calls of an upstream are held now, and its buckets that are too empty to pay for retries,
    in sentences, as the redrive behind this admin port reports them. Raises AdminError, also if that redrive has no
    such upstream.
    """
    return asyncio.run(_holding(port, upstream))


async def _holding(port: AdminPort, upstream: str) -> list[str]:
    async with AdminClient(port) as client:
        rows = await client.upstreams(upstream)
        if not rows:
            raise AdminError(f"the redrive at {port.shown} has no upstream {upstream}, or none was called yet")
        drained = [each for each in await client.buckets() if is_drained(each)]
    used = {policy["bucket"] for row in rows for policy in (row, *row["routes"])}
    said = [sentence for row in rows for sentence in holding(row)]
    return said + [
        f"hardly any failure is retried: the bucket {each['bucket']} has {tokens(each['level'])} of "
        f"{tokens(each['capacity'])} tokens left"
        for each in drained
        if each["bucket"] in used
    ]
