"""What the providers' SDKs repeat, and what redrive repeats in their place: docs/reference/sdk-repeats.md.

Every SDK is the installed one, unmodified, and every recipe the file of config/examples: the upstream's url and the
waits are what changes. A scripted upstream fails once in one way and then answers 200, or goes on failing. Each call
is made three ways: by the SDK with its own retries, straight; with them switched off, through redrive; with them on,
through redrive.

    python tools/sdk_repeats.py            print the page
    python tools/sdk_repeats.py --write    write it
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gzip
import socket
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import aiohttp
import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.process import Redrive  # noqa: E402
from support.scripted import Step, Turn, Upstream, answer, hang, reset  # noqa: E402
from support.sdks import SDKS, Call, Place, Sdk, alone  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "sdk-repeats.md"
EXAMPLES = ROOT / "config" / "examples"

#: How an attempt fails, in the words of the page.
CUTS = ("cut after the head", "cut in the first byte", "cut before the last byte", "cut in the gzip trailer")
FAILURES = ("408", "409", "429", "500", "502", "503", "504", "529", "reset", *CUTS, "timeout", "refused")
#: What nobody should repeat after: tried too, so that nothing is repeated that the SDK would not.
OTHERS = ("400", "404", "501", "507")
#: With these an upstream goes on failing.
LASTING = ("429", "500", "503", "reset")

#: What takes its time: nobody answers, nobody listens.
SLOW = ("timeout", "refused")
#: How long a client alone waits for an answer in the row `timeout`, in seconds, and redrive for an attempt; and how
#: long redrive waits before it dials again where nobody listened, so that it can be seen to wait. A busy machine does
#: what it has to within them; all calls of an SDK that wait so do it at the same time.
CLIENT_TIMEOUT, ATTEMPT_TIMEOUT, REDIAL = 2, "3s", "3s"

Way = Literal["sdk", "redrive", "both"]
WAYS: tuple[Way, ...] = ("sdk", "redrive", "both")
Cell = tuple[Call, str, Way]


@dataclass(frozen=True)
class _Wait:
    """A client's wait before its next try: `begun` in the client's thread, `over` when the upstream is ready for it."""

    begun: asyncio.Event
    over: threading.Event


#: The wait that the client of this context is to make.
_wait: contextvars.ContextVar[_Wait | None] = contextvars.ContextVar("_wait", default=None)


@dataclass(frozen=True)
class Seen:
    """What came of one call: whether it succeeded, and how often the upstream got it."""

    succeeded: bool
    sent: int


@dataclass
class Results:
    """An SDK's results, by call, failure and way: the upstream failed once, or went on failing."""

    sdk: Sdk
    once: dict[Cell, Seen] = field(default_factory=dict)
    lasting: dict[Cell, Seen] = field(default_factory=dict)


def failures(sdk: Sdk) -> tuple[str, ...]:
    """The failures that an SDK is shown: those of all, and its provider's own. botocore undoes no content coding, and
    asks for none.
    """
    coded = sdk.package != "botocore"
    return (*(each for each in FAILURES if coded or each != CUTS[-1]), *sdk.answers)


async def play(sdk: Sdk) -> Results:
    """Make every call of an SDK under every failure, three ways."""
    results = Results(sdk)
    async with _Stage.set(sdk) as stage:
        cells = [(call, failure, way) for call in sdk.calls for way in WAYS for failure in (*failures(sdk), *OTHERS)]
        await stage.connect([cell for cell in cells if cell[1] in SLOW])
        hanging = [cell for cell in cells if cell[1] == "timeout"]
        results.once.update(zip(hanging, await asyncio.gather(*map(stage.once, hanging)), strict=True))
        results.once.update(await stage.refused([cell for cell in cells if cell[1] == "refused" and cell[2] != "sdk"]))
        for cell in cells:
            if cell not in results.once:
                results.once[cell] = await stage.once(cell)
        for cell in [(call, failure, way) for call in sdk.calls for way in WAYS for failure in LASTING]:
            results.lasting[cell] = await stage.lasting(cell)
    return results


def recipe(sdk: Sdk, urls: dict[str, str]) -> str:
    """The recipe's policy for each of these upstreams, without waits of its own.

    `adaptive` is a limiter, whose waits are its purpose: what it repeats is what `standard` repeats. The bucket is so
    large that no call here pays for another.
    """
    whole = yaml.safe_load((EXAMPLES / sdk.recipe).read_text())
    policy = whole["upstreams"][sdk.upstream]
    strategy = policy.get("strategy", "standard")
    strategy = {"kind": strategy} if isinstance(strategy, str) else strategy
    if strategy["kind"] == "adaptive":
        strategy["kind"] = "standard"
    upstreams = {}
    for name, url in urls.items():
        wait = REDIAL if name.startswith("refused-") else "0s"
        attempt = {"attempt": ATTEMPT_TIMEOUT} if name.startswith("timeout-") else {}
        place = {"url": f"http://{sdk.host.format(name)}", "via_proxy": url} if sdk.host else {"url": url}
        upstreams[name] = policy | {
            **place,
            "strategy": strategy | {"backoff": {"base": wait, "throttling_base": wait, "jitter": "none"}},
            "timeouts": policy["timeouts"] | attempt,
            "bucket": {"kind": "quota", "capacity": 1_000_000},
            "outage": "fail",  # what fails for longer than 100 ms is held else, and is not repeated meanwhile
            "concurrency": "off",
        }
    return yaml.safe_dump(whole | {"upstreams": upstreams})


class _Stage:
    """One SDK's upstreams and the redrive before them, which has the recipe.

    Failures that take their time (`SLOW`) have an upstream for each cell of the table, so that they go on at once.
    """

    def __init__(self, sdk: Sdk, upstream: Upstream, slow: dict[Cell, socket.socket], threads: Executor) -> None:
        self._sdk, self._upstream, self._slow, self._threads = sdk, upstream, slow, threads
        self._clients: dict[tuple[str, Way, str], Any] = {}
        self._loop = asyncio.get_running_loop()
        self.redrive: Redrive

    @classmethod
    @contextlib.asynccontextmanager
    async def set(cls, sdk: Sdk) -> AsyncIterator[_Stage]:
        cells: list[Cell] = [(call, failure, way) for call in sdk.calls for failure in SLOW for way in WAYS]
        async with contextlib.AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(Upstream())
            slow = {cell: stack.enter_context(_bound()) for cell in cells}
            threads = stack.enter_context(ThreadPoolExecutor(len(cells)))
            stage = cls(sdk, upstream, slow, threads)
            stack.enter_context(alone(stage.slept))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            urls = {sdk.upstream: upstream.url} | {stage.name(cell): _url(sock) for cell, sock in slow.items()}
            stage.redrive = await stack.enter_async_context(Redrive(folder, recipe(sdk, urls)))
            yield stage

    def name(self, cell: Cell) -> str:
        """What the upstream of a slow cell is called in redrive's configuration."""
        call, failure, way = cell
        return f"{failure}-{way}-{self._sdk.calls.index(call)}"

    def slept(self) -> None:
        """The SDK would wait now, in a thread of its own."""
        wait = _wait.get()
        if wait is not None:
            self._loop.call_soon_threadsafe(wait.begun.set)
            wait.over.wait(30)

    async def connect(self, cells: list[Cell]) -> None:
        """Make the clients of slow cells, which takes some of them longer than a call is to wait for its answer."""
        for cell in cells:
            connecting = self._in_thread(self._client, cell[0], cell[2], self.name(cell), _url(self._slow[cell]))
            await asyncio.wait_for(connecting, 60)

    async def once(self, cell: Cell) -> Seen:
        """A call whose first attempt fails; if it is refused, a call of the SDK alone."""
        call, failure, way = cell
        ok = _asking_for_the_body(call.ok)
        if failure == "refused":
            return await self._refused(cell, ok)
        if failure == "timeout":
            async with Upstream(hang, ok, sock=self._slow[cell]) as upstream:
                succeeded = await self._asked(call, way, self.name(cell), upstream.url)
                return Seen(succeeded, len(upstream.requests))
        first = _cut(call.ok, failure) if failure in CUTS else self._failing(failure)
        return await self._made(call, way, first, ok)

    async def refused(self, cells: list[Cell]) -> dict[Cell, Seen]:
        """Calls through redrive to places where nobody listens until redrive waits before it dials again. All are made
        at once: redrive says how many calls wait, not which.
        """
        asking = {
            cell: asyncio.create_task(self._asked(cell[0], cell[2], self.name(cell), _url(self._slow[cell])))
            for cell in cells
        }
        await self._until_redrive_waits(list(asking.values()))
        async with contextlib.AsyncExitStack() as stack:
            upstreams = {}
            for cell in cells:
                upstream = Upstream(_asking_for_the_body(cell[0].ok), sock=self._slow[cell])
                upstreams[cell] = await stack.enter_async_context(upstream)
            await asyncio.gather(*asking.values())
            return {cell: Seen(each.result(), len(upstreams[cell].requests)) for cell, each in asking.items()}

    async def lasting(self, cell: Cell) -> Seen:
        """A call of which every attempt fails."""
        call, failure, way = cell
        return await self._made(call, way, self._failing(failure))

    def _failing(self, failure: str) -> Step:
        if failure == "reset":
            return _asking_for_the_body(reset)
        own = self._sdk.answers.get(failure)
        return _asking_for_the_body(own or answer(int(failure), *self._sdk.error))

    async def _made(self, call: Call, way: Way, *steps: Step) -> Seen:
        upstream = self._upstream
        upstream.steps, upstream._next = steps, 0
        upstream.requests.clear()
        succeeded = await self._asked(call, way, self._sdk.upstream, upstream.url)
        return Seen(succeeded, len(upstream.requests))

    async def _refused(self, cell: Cell, ok: Step) -> Seen:
        """Nobody listens, until the SDK waits before its next try."""
        sock, wait = self._slow[cell], _Wait(asyncio.Event(), threading.Event())
        _wait.set(wait)
        asking = asyncio.create_task(self._asked(cell[0], cell[2], self.name(cell), _url(sock)))
        waiting = asyncio.create_task(wait.begun.wait())
        try:
            await asyncio.wait((asking, waiting), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return Seen(asking.result(), 0)
            async with Upstream(ok, sock=sock) as upstream:
                wait.over.set()
                return Seen(await asking, len(upstream.requests))
        finally:
            wait.over.set()
            waiting.cancel()

    async def _until_redrive_waits(self, asking: list[asyncio.Task[bool]]) -> None:
        """Wait until redrive does, with all of these calls that have not ended."""
        async with aiohttp.ClientSession() as session:
            while left := sum(not each.done() for each in asking):
                async with session.get(f"{self.redrive.admin}/metrics") as got:
                    waiting = (await got.text()).partition("\nredrive_waiting_calls ")[2]
                    if float(waiting.partition("\n")[0]) == left:
                        return

    async def _asked(self, call: Call, way: Way, name: str, url: str) -> bool:
        """Make the call, with one client for each call, way and upstream; whether it succeeded."""

        def ask() -> bool:
            client = self._client(call, way, name, url)
            try:
                call.make(client)
            except self._sdk.errors:
                return False
            return True

        return bool(await asyncio.wait_for(self._in_thread(ask), 60))

    def _client(self, call: Call, way: Way, name: str, url: str) -> Any:
        """The client for a call, a way and an upstream. Only one that meets silence alone has a timeout of its own."""
        key = call.name, way, name
        if key not in self._clients:
            if self._sdk.host:
                place = Place(f"http://{self._sdk.host.format(name)}", proxy=url if way == "sdk" else self.redrive.url)
            elif way == "sdk":
                place = Place(url)
            elif self._sdk.by_proxy:
                place = Place(url, proxy=self.redrive.url)
            else:
                place = Place(url, prefix=f"{self.redrive.url}/{name}")
            timeout = CLIENT_TIMEOUT if name.startswith("timeout-sdk-") else None
            self._clients[key] = self._sdk.connect(place, retries=way != "redrive", timeout=timeout)
        return self._clients[key]

    def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call a function in a thread of the stage, in the context of the caller."""
        return self._loop.run_in_executor(self._threads, contextvars.copy_context().run, function, *arguments)


def _bound() -> socket.socket:
    """A port of the system's on which nobody listens yet: who dials it is refused."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock


def _url(sock: socket.socket) -> str:
    return f"http://127.0.0.1:{sock.getsockname()[1]}"


def _asking_for_the_body(then: Step) -> Step:
    """As a provider does it to whom a client says that it waits before it sends the body (S3).

    No connection is used twice: one that was, and then breaks, is repeated at once and counts as no failure.
    """

    async def step(turn: Turn) -> None:
        if turn.request.one("expect") is not None:
            await turn.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if isinstance(then, bytes):
            await turn.read_body()
            await turn.write(then.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            turn.close()
        else:
            await then(turn)

    return step


def _cut(ok: bytes, where: str) -> Step:
    """The answer `ok`, whose connection breaks before all of it has come."""
    head, _, body = ok.partition(b"\r\n\r\n")
    if where == "cut in the gzip trailer":
        body = gzip.compress(body, mtime=0)
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length:")]
        head = b"\r\n".join([*lines, b"Content-Encoding: gzip", b"Content-Length: %d" % len(body)])
        come = body[:-3]
    else:
        come = {CUTS[0]: b"", CUTS[1]: body[:1]}.get(where, body[:-1])
    return _asking_for_the_body(head + b"\r\n\r\n" + come)


_HEAD = """# What SDKs repeat

If you switch an SDK's own retries off and let redrive retry, you should not be worse off. So a [dialect](dialects.md)
knows what its provider's official client repeats, and `unsafe_methods: provider`, the default, repeats it too
([classification](classification.md#safety)).

This page is made by `python tools/sdk_repeats.py --write`, and a test keeps it current: the official SDKs, unmodified,
and an upstream on this machine that fails once and then answers 200. Each call is made by the SDK alone, with its own
retries on, and through redrive with the SDK's retries off, under the policy of
[config/examples](../../config/examples) without its waits. This is which of the two survived the failure:

| | |
| --- | --- |
| **both** | the SDK's own retries, and redrive |
| **redrive** | only redrive: the failure shows that nothing was carried out, or the call is idempotent |
| **SDK** | only the SDK: this does not occur |
| neither | the failure goes to the app |

*reset* is a connection broken before the answer, *cut* is an answer whose connection breaks before all of it has come
([whole answers](whole-answers.md)), *timeout* is no answer in time, *refused* is a port on which no server listens for
a moment. Each second table shows how many attempts an upstream gets that keeps failing: from the SDK alone, through the
recipe, and if both retry.
"""
_NOTES = """
## What it takes

- **A time for an attempt.** redrive has none by itself: it is `timeouts.attempt`, which every recipe sets. The app's
  own timeout must outlast all attempts together.
- **One layer.** Switch the SDK's own retries off. openai, anthropic and stripe stop if redrive says that it has given
  up. boto3 and azure-core do not read that field, so if both layers retry, their attempts multiply. boto3's retries are
  [recognised and paid for](pushback.md#an-app-that-retries-by-itself), and POSTs that may have been carried out are
  then repeated only by boto3.
- **As many attempts.** `max_attempts` in a recipe is what the SDK makes by default, or more.
- **A buffer for the body.** A body that is larger than `buffers.per_request` is sent once, and no `timeouts.attempt`
  ends that attempt. The recipes make the buffer large enough for prompts and for the parts of uploads (here 1.5 MB,
  above the default).
- **A bucket that can pay.** openai, anthropic, stripe and azure-core retry whatever the share of failures. Here the
  [bucket](buckets.md) ends that in an outage, so that it is not made worse; `redrive check` says from which share on.
- **Delays within `max_delay`.** A `Retry-After` above it ends the call; azure-core waits for any, openai for up to two
  minutes.
- botocore repeats a call whose answer is broken off by a reset. It does not enforce the length of an answer, so what a
  closed connection cuts off is taken for whole, and fails only if it can't be parsed. Through redrive it is repeated.
- **A rule for what one AWS service calls retryable.** botocore reads that from the service's model (DynamoDB's
  `ReplicatedWriteConflictException`, a few more); the dialect `aws` knows the codes that all services share.
- Google's clients repeat nothing by default that may have been carried out, so the dialect `google` does not either.
"""


def render(results: list[Results], versions: dict[str, str]) -> str:
    """The whole page. `versions` are the packages', as they are to be shown."""
    return _HEAD + "".join(section(each, versions[each.sdk.package]) for each in results) + _NOTES


def section(results: Results, installed: str) -> str:
    """One SDK's part of the page."""
    sdk = results.sdk
    heads = [call.name if call.name == call.method else f"`{call.name}` ({call.method})" for call in sdk.calls]
    lines = [
        "",
        f"## {sdk.name}",
        "",
        f"{sdk.package} {installed}, its retries off by {sdk.off}; "
        f"[{sdk.recipe}](../../config/examples/{sdk.recipe}), upstream `{sdk.upstream}`.",
        "",
        f"| it fails once with | {' | '.join(heads)} |",
        "| --- |" + " --- |" * len(heads),
    ]
    for failure in failures(sdk):
        lines.append(f"| {failure} | {' | '.join(_rider(results, call, failure) for call in sdk.calls)} |")
    lines += [
        "",
        f"| attempts if it keeps failing with | {' | '.join(heads)} |",
        "| --- |" + " --- |" * len(heads),
    ]
    for failure in LASTING:
        counts = [", ".join(str(results.lasting[call, failure, way].sent) for way in WAYS) for call in sdk.calls]
        lines.append(f"| {failure} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def _rider(results: Results, call: Call, failure: str) -> str:
    alone = results.once[call, failure, "sdk"].succeeded
    ours = results.once[call, failure, "redrive"].succeeded
    return {(True, True): "**both**", (False, True): "**redrive**", (True, False): "**SDK**"}.get(
        (alone, ours), "neither"
    )


def installed_versions() -> dict[str, str]:
    """The SDKs' versions, as they are installed."""
    return {sdk.package: version(sdk.package) for sdk in SDKS}


def pinned_versions() -> dict[str, str]:
    """The SDKs' versions, as constraints.txt has them."""
    pinned = dict[str, str](line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    return {sdk.package: pinned[sdk.package] for sdk in SDKS}


def page() -> str:
    """Play everything, and render."""

    async def played() -> list[Results]:
        return [await play(sdk) for sdk in SDKS]

    return render(asyncio.run(played()), installed_versions())


def main() -> int:
    """Print the page, or write it; the exit status."""
    if "--write" not in sys.argv[1:]:
        sys.stdout.write(page())
    elif installed_versions() != pinned_versions():
        print("the SDKs that are installed are not those of constraints.txt: make dev", file=sys.stderr)
        return 2
    else:
        PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
