"""The settings of the upgrade guide that give back the behaviour before weather was looked at, on the wire.

`behaviour_before/transcripts.json` has what an upstream got and what an app was answered, byte for byte, in bad weather
of each kind, from redrive at commit e57708a7, the last one without a governor, with `pushback: {cooldown: off}`. It was
written by `python tests/e2e/test_bytes_before.py TREE`, where TREE is a checkout of that commit.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent.parent)]

import pytest
from support.capacity import CapacityServer
from support.process import Redrive
from support.scripted import Step, Turn, Upstream, answer, hang, reset

GUIDE = Path(__file__).parent.parent.parent / "docs/guides/upgrading.md"
TRANSCRIPTS = Path(__file__).parent / "behaviour_before/transcripts.json"
OLD = "defaults:\n  pushback: {cooldown: off}\n"
POLICY = """strategies:
  at-once: {{kind: standard, max_attempts: 3, backoff: {{base: 0s}}}}
upstreams:
  a:
    url: http://127.0.0.1:{port}
    strategy: at-once
    timeouts: {{attempt: 300ms}}
  gone:
    url: http://127.0.0.1:{refusing}
    strategy: at-once
"""

WELL = answer(200, b"served")
#: The weather, by the path that each call has: what its attempts get, in order. Each call asks in the way that its
#: request says.
WEATHER: dict[str, tuple[Step, ...]] = {
    "/well": (WELL,),
    "/503-503-200": (answer(503, b"no"), answer(503, b"no"), WELL),
    "/503-for-good": (answer(503, b"no", "X-From: upstream"),),
    "/503-retry-after": (answer(503, b"", "Retry-After: 0"), WELL),
    "/503-too-long": (answer(503, b"", "Retry-After: 300"),),
    "/429-retry-after": (answer(429, b"slow", "Retry-After: 0"), WELL),
    "/429-for-good": (answer(429, b"slow"),),
    "/429-too-long": (answer(429, b"slow", "Retry-After: 61"),),
    "/429-reset-field": (answer(429, b"", "RateLimit-Reset: 0", "RateLimit-Remaining: 0"), WELL),
    "/no-more": (answer(503, b"", "X-Should-Retry: false"),),
    "/504-502-500": (answer(504), answer(502), answer(500)),
    "/reset-200": (reset, WELL),
    "/reset-for-good": (reset,),
    "/silent-200": (hang, WELL),
    "/silent-for-good": (hang,),
    "/404": (answer(404, b"none"),),
}
METHODS = ("GET", "POST", "PUT", "HEAD")
#: What differs from one run to the next.
VOLATILE = [
    (rb"127\.0\.0\.1:\d+", b"127.0.0.1:PORT"),
    (rb"redrive-[0-9a-f]{8}", b"redrive-NAME"),
    (rb"(?i)\r\ndate: [^\r]*", b"\r\nDate: DATE"),
]
#: Fields of the log that differ from one run to the next, and those of words, which have become clearer.
LEFT_OUT = {"time", "duration", "client", "bytes_out", "detail"}


def keys_of_the_guide() -> str:
    """The `defaults` that the guide says to set."""
    found = re.search(r"```yaml\n(defaults:\n(?:  .*\n)+?)```", GUIDE.read_text())
    assert found is not None
    assert {"outage: fail", "concurrency: off", "pushback: {cooldown: off, of: upstream}"} <= {
        line.strip() for line in found[1].splitlines()
    }
    return found[1]


def request(method: str, target: str, authority: str) -> bytes:
    """A request as an app sends it; one with a body has it in chunks if it is a PUT."""
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {authority}",
        "x-Mixed: one",
        "X-Mixed: two",
        "Authorization: Bearer k",
    ]
    body = b""
    if method == "POST":
        lines.append("Content-Length: 4")
        body = b"body"
    elif method == "PUT":
        lines.append("Transfer-Encoding: chunked")
        body = b"4\r\nbody\r\n0\r\n\r\n"
    return "\r\n".join([*lines, "", ""]).encode() + body


def plain(data: bytes) -> str:
    """These bytes without what differs from one run to the next; the words of our own errors are left out."""
    for found, instead in VOLATILE:
        data = re.sub(found, instead, data)
    head, _, body = data.partition(b"\r\n\r\n")
    if b"application/problem+json" in head:
        said = json.loads(body) if body else {}
        body = json.dumps({key: said[key] for key in sorted(said) if key in ("status", "outcome", "attempts")}).encode()
        head = re.sub(rb"(?i)\r\ncontent-length: \d+", b"\r\nContent-Length: LENGTH", head)
        head = re.sub(rb'details="[^"]*"', b'details="WORDS"', head)
    return (head + b"\r\n\r\n" + body).decode("latin-1")


async def exchange(authority: str, method: str, target: str) -> bytes:
    """Send a request on a connection of its own, and read the answer until it is whole."""
    reader, writer = await asyncio.open_connection(*authority.split(":"))
    writer.write(request(method, target, authority))
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    body = b"" if method == "HEAD" or length is None else await reader.readexactly(int(length[1]))
    writer.close()
    return head + body


class Recorder:
    """An upstream whose weather is the call's path. `got`: the requests as they came, in order."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self._made: dict[str, int] = {}

    async def __call__(self, turn: Turn) -> None:
        """Answer one request by the next step of its path's weather."""
        body = await turn.reader.readuntil(b"0\r\n\r\n") if turn.request.method == "PUT" else await turn.read_body()
        self.got.append(plain(turn.request.head.rstrip(b"\r\n") + b"\r\n\r\n" + body))
        key = turn.request.method + turn.request.target
        steps = WEATHER[turn.request.target]
        number = self._made[key] = self._made.get(key, -1) + 1
        step = steps[min(number, len(steps) - 1)]
        if isinstance(step, bytes):
            if turn.request.method == "HEAD":
                step = step.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
            await turn.write(step.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            turn.close()
        elif step is reset:
            turn.reset()
        else:
            await turn.gone()


async def play(folder: Path, defaults: str, **how: Any) -> tuple[dict[str, Any], str, list[Mapping[str, Any]]]:
    """All calls in all weather, one after the other. Returns what the upstream got and the app was answered by the
    call, with its line in the log; the metrics; and all lines of the log.
    """
    recorder, played = Recorder(), {}
    refusing = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = refusing.sockets[0].getsockname()[1]
    refusing.close()
    await refusing.wait_closed()
    async with Upstream(recorder) as upstream:
        text = defaults + POLICY.format(port=upstream.port, refusing=port)
        async with Redrive(folder, text, **how) as running:
            calls = [(method, f"/a{path}") for path in WEATHER for method in METHODS]
            calls += [(method, "/gone/x") for method in METHODS for _ in range(3)]
            for number, (method, target) in enumerate(calls, 1):
                recorder.got.clear()
                answered = plain(await exchange(running.authority, method, target))
                line = await running.call(number)
                kept = {key: value for key, value in line.items() if key not in LEFT_OUT}
                logged = json.loads(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", json.dumps(kept)))
                played[f"{number} {method} {target}"] = {
                    "upstream": [*recorder.got],
                    "app": answered,
                    "log": {key: value for key, value in logged.items() if not isinstance(value, (list, dict))},
                }
            reader, writer = await asyncio.open_connection(*running.admin.removeprefix("http://").split(":"))
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            metrics = (await reader.read()).decode()
            writer.close()
            return played, metrics, [*running.lines]


async def test_in_all_weather_upstream_and_app_get_the_bytes_of_before_and_nothing_tells_of_a_governor(
    tmp_path: Path,
) -> None:
    before = json.loads(TRANSCRIPTS.read_text())
    played, metrics, lines = await play(tmp_path, keys_of_the_guide())
    assert list(played) == list(before)
    for call, was in before.items():
        now = played[call]
        assert now["upstream"] == was["upstream"], call
        assert now["app"] == was["app"], call
        assert {key: now["log"].get(key) for key in was["log"]} == was["log"], call
    told = {line["event"] for line in lines}
    assert not told & {"limit_began", "limit_over", "outage_began", "outage_over", "cooldown_began"}
    assert not [line for line in lines if "held" in line or "held_by" in line]
    for name, quiet in (("concurrency_limit", "+Inf"), ("held_calls", "0.0"), ("outage", "0.0")):
        values = re.findall(rf"^redrive_{name}{{[^}}]*}} (\S+)$", metrics, re.MULTILINE)
        assert set(values) <= {quiet}, name


ONCE = "  strategy: {kind: standard, max_attempts: 1}\n  timeouts: {attempt: 100ms}\n"


async def all_are_sent(running: Redrive, upstream: Upstream) -> None:
    """Twenty calls come, and are sent while none of them is answered."""
    upstream.steps = (hang,)
    before = len(upstream.requests)
    calls = [asyncio.create_task(exchange(running.authority, "GET", "/a/x")) for _ in range(20)]
    async with asyncio.timeout(60.0):
        await upstream.until(before + 20)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def all_fail(running: Redrive) -> None:
    """At least twenty calls fail, five at a time, in more than a tenth of a second: enough for a limit or an outage."""
    clock = asyncio.get_running_loop().time
    begun, rounds = clock(), 0
    while rounds < 4 or clock() < begun + 0.15:
        rounds += 1
        failed = await asyncio.gather(*[exchange(running.authority, "GET", "/a/x") for _ in range(5)])
        assert not [each for each in failed if b" 200 OK" in each]


@pytest.mark.parametrize(
    "weather",
    [answer(429, b"", "Retry-After: 50"), answer(503, b"", "Retry-After: 50"), answer(503), answer(429), reset, hang],
    ids=["429 with a delay", "503 with a delay", "503", "429", "reset", "silent"],
)
async def test_calls_in_bad_weather_wait_for_nothing(tmp_path: Path, weather: Step) -> None:
    async with Upstream(WELL) as upstream:
        text = f"{keys_of_the_guide()}{ONCE}upstreams:\n  a:\n    url: {upstream.url}\n"
        async with Redrive(tmp_path, text) as running:
            assert b" 200 OK" in await exchange(running.authority, "GET", "/a/x")
            upstream.steps = (weather,)
            await all_fail(running)
            await all_are_sent(running, upstream)


async def test_calls_after_refused_connections_wait_for_nothing(tmp_path: Path) -> None:
    async with CapacityServer(places=100, seconds=0.0) as before:
        text = f"{keys_of_the_guide()}{ONCE}upstreams:\n  a:\n    url: {before.url}\n"
        async with Redrive(tmp_path, text) as running:
            assert b" 200 OK" in await exchange(running.authority, "GET", "/a/x")
            await before.stop()
            await all_fail(running)
            async with Upstream(hang, sock=before.take_port()) as upstream:
                await all_are_sent(running, upstream)


if __name__ == "__main__":
    command = (sys.executable, "-P", "-m", "proxy")
    with tempfile.TemporaryDirectory() as temporary:
        playing = play(Path(temporary), OLD, command=command, PYTHONPATH=sys.argv[1])
        transcripts, _, _ = asyncio.run(playing)
    TRANSCRIPTS.write_text(json.dumps(transcripts, indent=1, sort_keys=False) + "\n")
