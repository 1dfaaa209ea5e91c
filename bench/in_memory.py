"""redrive's data path over connections that exist in memory alone: `in_memory.py CONFIG REQUESTS`.

`bench/instructions.py --memory` counts it. There is no socket, no kernel and no other process, so that a count is of
redrive's own code, and the same from run to run. An app's connection and the upstream's are redrive's own classes on
transports that keep what is written; log, metrics and the last calls are on, as `redrive run` has them. REQUESTS is a
JSON file with the requests of each row. Each line of standard input, "ROW CALLS", sends so many of them, one after the
other; "rest SECONDS" sends none for so long. Each is answered with a line that says how many calls failed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import uvloop
from staged_pool import staged
from tenth import answer_to

from proxy import runtime
from proxy.config.load import load
from proxy.freed_memory import settle_in
from proxy.observe.metrics import Metrics
from proxy.observe.sink import LineSink
from proxy.server.connection import AppConnection
from proxy.transport.connection import Connection

#: The answers' Date, which would change once a second: more often, the slower calls are.
DATE = "Mon, 23 Nov 2026 08:00:00 GMT"
#: How many answers with ids of their own take turns.
OWN = 997
#: The name in REQUESTS of the rows whose upstream fails every tenth attempt.
FAILING = "failing"


class Wire(asyncio.Transport):
    """One end of a connection: its protocol's transport. `out`: what was written and not taken yet."""

    def __init__(self, protocol: Any, news: asyncio.Event, descriptor: int) -> None:
        super().__init__()
        self.protocol, self.news, self.descriptor = protocol, news, descriptor
        self.out: list[bytes] = []
        protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self, "sockname": "", "peername": ""}.get(name, default)

    def fileno(self) -> int:
        return self.descriptor

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def setsockopt(self, *_: object) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def write(self, data: Any) -> None:
        self.out.append(data)
        self.news.set()


class Stage:
    """A data path, one app's connection, and the upstream, whose answers are those of `tenth`."""

    def __init__(self, config: str, asked: dict[str, list[str]], out: int) -> None:
        settings = load(config, {}).settings
        assert settings is not None, config
        self.asked = {row: [each.encode("latin-1") for each in every] for row, every in asked.items()}
        self.failing = set(asked[FAILING])
        self.silent, _ = os.pipe()  # a descriptor that nobody writes to
        self.news = asyncio.Event()
        self.answered = 0
        # Made before, by whether they are failures: making one would be a twentieth of a call.
        self.answers = [[answer_to(b"", fails, DATE, "")] for fails in (False, True)]
        self.own_answers = [
            [answer_to(b"/own", fails, DATE, uuid.uuid4().hex) for _ in range(OWN)] for fails in (False, True)
        ]
        self.far: list[Wire] = []
        sink = LineSink(out, asyncio.get_running_loop().call_later)
        with staged(self.connect):
            self.path = runtime.data_path(settings, sink, lambda *_, **facts: None, Metrics())
        self.app = AppConnection(self.path.acceptor)
        self.near = Wire(self.app, self.news, self.silent)

    def connect(self, origin: Any, *, tunnel: bool) -> Connection:
        """A connection to the upstream."""
        connection = Connection(self.path.context.pool, origin, tunnel=tunnel)
        self.far.append(Wire(connection, self.news, self.silent))
        return connection

    async def send(self, row: str, calls: int) -> int:
        """Send so many requests of a row; how many had another status than 200."""
        made, fails, failed = self.asked[row], row in self.failing, 0
        self.has_own = b"/own" in made[0]
        for n in range(calls):
            self.app.data_received(made[n % len(made)])
            while self.app.exchange is not None:
                if not self._answer(fails):
                    self.news.clear()
                    await self.news.wait()
            failed += not self.near.out[0].startswith(b"HTTP/1.1 200")
            self.near.out.clear()
            if n % 16 == 0:
                await asyncio.sleep(0)  # what was put off to the loop's next turn
        return failed

    def _answer(self, fails: bool) -> bool:
        """Answer the attempts that were sent; whether there were any. `fails`: every tenth fails."""
        for wire in self.far:
            if wire.out:
                wire.out.clear()
                self.answered += 1
                failed = fails and self.answered % 10 == 0
                answers = self.own_answers if self.has_own else self.answers
                wire.protocol.data_received(answers[failed][self.answered % len(answers[failed])])
                return True
        return False


async def main(config: str, asked: dict[str, list[str]], out: int) -> None:
    """Answer the lines of standard input. `out`: the descriptor that the log goes to."""
    stage = Stage(config, asked, out)
    await stage.path.start()
    settle_in()  # as `redrive run` does: else a collection of all that lives falls into one row, and none into the next
    while line := sys.stdin.readline():
        row, count = line.split()
        if row == "rest":
            await asyncio.sleep(float(count))
        print(0 if row == "rest" else await stage.send(row, int(count)), flush=True)
    await stage.path.close()


if __name__ == "__main__":
    with Path(os.devnull).open("wb") as log:
        rows = json.loads(Path(sys.argv[2]).read_text())
        asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main(sys.argv[1], rows, log.fileno()))
