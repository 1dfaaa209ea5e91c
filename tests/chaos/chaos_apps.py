"""Apps that do what apps do: they keep connections alive, pipeline, stream bodies, leave half way, ask for less.

Each call has a name of its own as the last segment of its path, by which it is found again in every book.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from support.front import Answer, App, CutError, chunked, request

#: Seconds that an app waits for an answer: nobody is left without one.
PATIENCE = 30.0
#: Larger than what a call's buffer keeps.
LARGE = b"x" * 100_000
SMALL = b"some words\n"
WAYS = {
    "get": 30,
    "post": 8,
    "put": 8,
    "stream": 5,
    "outgrow": 2,
    "pipeline": 5,
    "expect": 2,
    "close": 4,
    "head": 2,
    "once": 3,
    "hurry": 2,
    "leave": 4,
    "leave_in_answer": 3,
    "leave_in_body": 3,
    "half_close": 3,
    "fetch_all": 2,
}


@dataclass
class ReceivedAnswer:
    """What an app was told of a call, and when (the loop's time). `whole`: the answer was."""

    status: int
    attempts: str | None
    at: float
    whole: bool


@dataclass
class Crowd:
    """Apps that call `upstreams` until `over`. `begun`: when each call's first byte was written; `answers` by call."""

    port: int
    upstreams: tuple[str, ...]
    seed: int
    begun: dict[str, float] = field(default_factory=dict)
    answers: dict[str, ReceivedAnswer] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    over: bool = False
    rounds: int = 0

    async def call(self, apps: int, during: Callable[[], object]) -> None:
        """So many apps make calls while `during()` (a coroutine) runs, and end what they have begun then."""
        self.over, self.rounds = False, self.rounds + 1
        tasks = [asyncio.create_task(One(self, f"r{self.rounds}a{number}").live()) for number in range(apps)]
        try:
            await during()  # type: ignore[misc]
        finally:
            self.over = True
        await asyncio.gather(*tasks)


class One:
    """One app."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self.crowd = crowd
        self.name = name
        self.random = Random(f"{crowd.seed}/{name}")
        self.count = 0
        self.waiting: list[str] = []  # calls whose answers are to come, in order

    async def live(self) -> None:
        while not self.crowd.over:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.crowd.port)
            except OSError:  # it is told of by what is not balanced, if it should not be
                await asyncio.sleep(0)
                continue
            self.waiting = []
            try:
                async with asyncio.timeout(PATIENCE):
                    await self.talk(App(reader, writer, f"127.0.0.1:{self.crowd.port}"))
            except TimeoutError:
                self.crowd.unanswered += self.waiting
            except (CutError, OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.transport.abort()

    async def talk(self, app: App) -> None:
        for _ in range(self.random.randrange(1, 30)):
            if self.crowd.over:
                return
            way = self.random.choices(list(WAYS), list(WAYS.values()))[0]
            if not await getattr(self, way)(app):
                return

    def make(self, method: str = "GET", *fields: str, body: bytes = b"") -> bytes:
        """A call's request."""
        self.count += 1
        call = f"{self.name}c{self.count}"
        self.crowd.begun[call] = asyncio.get_running_loop().time()
        self.waiting.append(call)
        upstream = self.random.choice(self.crowd.upstreams)
        return request(method, f"/{upstream}/{call}", *fields, body=body, host=f"127.0.0.1:{self.crowd.port}")

    async def answer(self, app: App, method: str = "GET") -> bool:
        """Read the next answer; whether the connection stays."""
        call = self.waiting[0]
        whole = True
        try:
            got = await app.read(method)
        except CutError as cut:
            got, whole = cut.answer, False
            if not got.head.endswith(b"\r\n\r\n"):
                raise
        self.waiting.pop(0)
        self.tell(call, got, whole=whole)
        return whole and "close" not in got.all("connection")

    def tell(self, call: str, got: Answer, *, whole: bool) -> None:
        crowd = self.crowd
        if call in crowd.answers:
            crowd.twice.append(call)
        crowd.answers[call] = ReceivedAnswer(
            got.status, got.one("x-attempt-count"), asyncio.get_running_loop().time(), whole
        )

    # -- ways of calling ------------------------------------------------------------------------------------------

    async def get(self, app: App) -> bool:
        app.send(self.make())
        return await self.answer(app)

    async def post(self, app: App) -> bool:
        app.send(self.make("POST", body=SMALL))
        return await self.answer(app)

    async def put(self, app: App) -> bool:
        app.send(self.make("PUT", body=SMALL * 100))
        return await self.answer(app)

    async def head(self, app: App) -> bool:
        app.send(self.make("HEAD"))
        return await self.answer(app, "HEAD")

    async def close(self, app: App) -> bool:
        app.send(self.make("GET", "Connection: close"))
        return await self.answer(app)

    async def once(self, app: App) -> bool:
        app.send(self.make("GET", "X-Retry-Disable: true"))
        return await self.answer(app)

    async def hurry(self, app: App) -> bool:
        app.send(self.make("PUT", "X-Retry-Timeout: 60ms", body=SMALL))
        return await self.answer(app)

    async def stream(self, app: App) -> bool:
        """A chunked body, a piece at a time."""
        app.send(self.make("PUT", "Transfer-Encoding: chunked"))
        for _ in range(4):
            app.send(chunked(SMALL)[:-5])
            await asyncio.sleep(0)
        app.send(b"0\r\n\r\n")
        return await self.answer(app)

    async def outgrow(self, app: App) -> bool:
        app.send(self.make("PUT", f"Content-Length: {len(LARGE)}") + LARGE[:1000])
        await asyncio.sleep(0)
        app.send(LARGE[1000:])
        return await self.answer(app)

    async def expect(self, app: App) -> bool:
        app.send(self.make("PUT", f"Content-Length: {len(SMALL)}", "Expect: 100-continue"))
        app.send(SMALL)
        return await self.answer(app)

    async def pipeline(self, app: App) -> bool:
        app.send(b"".join(self.make() for _ in range(3)))
        for _ in range(3):
            if not await self.answer(app):
                return False
        return True

    async def half_close(self, app: App) -> bool:
        app.send(self.make())
        app.end()
        await self.answer(app)
        return False

    async def fetch_all(self, app: App) -> bool:
        """By HTTP/1.0: the connection ends with the answer."""
        app.send(self.make().replace(b"HTTP/1.1", b"HTTP/1.0"))
        await self.answer(app)
        return False

    async def leave(self, app: App) -> bool:
        app.send(self.make(self.random.choice(("GET", "POST")), "Content-Length: 0"))
        for _ in range(self.random.randrange(20)):
            await asyncio.sleep(0)
        return False

    async def leave_in_answer(self, app: App) -> bool:
        app.send(self.make())
        with contextlib.suppress(asyncio.IncompleteReadError):
            await app.reader.readexactly(12)
        return False

    async def leave_in_body(self, app: App) -> bool:
        app.send(self.make("PUT", "Content-Length: 5000") + b"x" * self.random.randrange(2000))
        await asyncio.sleep(0)
        return False
