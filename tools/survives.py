"""What survives what: the table of docs/guides/what-survives-what.md, played with the real process and plain sockets.

A scripted upstream fails once in one way, and then answers well; a call of each kind is made through redrive. Nothing
in the table is written by hand.

    python tools/survives.py            print the page
    python tools/survives.py --write    write docs/guides/what-survives-what.md again
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.front import App, CutError, chunked  # noqa: E402
from support.process import Redrive  # noqa: E402
from support.scripted import Step, Turn, Upstream, answer, hang, reset, then_close, then_stall  # noqa: E402

PAGE = ROOT / "docs" / "guides" / "what-survives-what.md"
CONFIG = """\
defaults: {{strategy: {{backoff: {{base: 0s}}}}, timeouts: {{attempt: 1s, idle: 1s}}, bucket: off}}
upstreams:
  api: {{url: "{url}"}}
  model:
    url: "{url}"
    dialects: [http, openai]
    timeouts: {{first_byte: 1s}}
    streams: {{unfinished: event}}
  files: {{url: "{url}", resume: {{}}}}
"""


@dataclass(frozen=True)
class Kind:
    """A kind of call, by what the page calls it. `body`: the answer's; `lines`, `asks`: the request's fields and body;
    `fields`: the answer's.
    """

    name: str
    upstream: str
    method: str
    body: bytes
    lines: tuple[str, ...] = ()
    asks: bytes = b""
    fields: tuple[str, ...] = ("Content-Type: application/octet-stream",)


def _event(data: object) -> bytes:
    return b"data: %b\n\n" % (data if isinstance(data, bytes) else json.dumps(data).encode())


_NOISE = random.Random(15).randbytes  # noqa: TID251, S311 - a body that no shorter one could pass for
_CHUNK = {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "word"}, "finish_reason": None}]}
_STREAM = tuple(_event(each) for each in [*[_CHUNK] * 20, b"[DONE]"])
_JSON = "Content-Type: application/json"
STREAM = Kind(
    "a model's stream",
    "model",
    "POST",
    b"".join(_STREAM),
    (_JSON,),
    b'{"stream": true}',
    ("Content-Type: text/event-stream",),
)
KINDS = (
    Kind("GET", "api", "GET", _NOISE(3000)),
    Kind("PUT, DELETE", "api", "PUT", _NOISE(3000), asks=b"{}"),
    Kind("POST", "api", "POST", _NOISE(3000), asks=b"{}"),
    Kind("POST with the app's key", "api", "POST", _NOISE(3000), ("Idempotency-Key: a",), b"{}"),
    Kind("POST as its SDK repeats it", "model", "POST", _NOISE(3000), (_JSON,), b"{}"),
    STREAM,
    Kind("a download with `resume`", "files", "GET", _NOISE(300_000), fields=('ETag: "v1"',)),
)


def _whole(kind: Kind) -> bytes:
    return answer(200, kind.body, *kind.fields)


def _cut(kind: Kind, come: int) -> Step:
    data = _whole(kind)
    return then_close(data[: len(data) - len(kind.body) + come])


def _chunked(kind: Kind, *pieces: bytes, end: bool) -> bytes:
    head = answer(200, b"", *kind.fields, "Transfer-Encoding: chunked", length=False)
    return head + (chunked(*pieces) if end or not pieces else chunked(*pieces)[:-5])


def _zipped(kind: Kind) -> Step:
    body = gzip.compress(kind.body, mtime=0)
    data = answer(200, body, *kind.fields, "Content-Encoding: gzip")
    return then_close(data[:-3])


def _changed(kind: Kind) -> tuple[Step, ...]:
    """The file changes after its answer broke, so that what comes instead is another file's."""
    other = answer(200, kind.body[::-1], 'ETag: "v2"')
    return _cut(kind, len(kind.body) // 2), other


def _failing(kind: Kind) -> dict[str, tuple[Step, ...]]:
    """What the upstream does, failure by failure; where nothing of that kind exists, the failure is left out."""
    body, sse = kind.body, kind is STREAM
    done: dict[str, tuple[Step, ...]] = {
        "it says 429: not carried out": (answer(429),),
        "it says 503": (answer(503),),
        "the connection breaks before an answer": (reset,),
        "no answer within `timeouts.attempt`": (hang,),
        "the answer breaks after its head": (_cut(kind, 0),),
        "the answer breaks in its first byte": (_cut(kind, 1),),
        "the answer breaks before its last byte": (_cut(kind, len(body) - 1),),
        "the answer breaks in a chunk": (then_close(_chunked(kind, body, end=False)[:-20]),),
        "the answer breaks in its gzip trailer": (_zipped(kind),),
        "the answer falls silent after its head (`timeouts.idle`)": (
            then_stall(_chunked(kind, end=False).removesuffix(b"0\r\n\r\n")),
        ),
    }
    if sse:
        error = _event({"error": {"type": "server_error", "message": "no", "code": None, "param": None}})
        done["a 200 that begins with an error event"] = (_chunked(kind, error, end=True),)
        done["a stream that ends well, with nothing in it"] = (_chunked(kind, end=True),)
        done["a stream that ends well, without its last event"] = (_chunked(kind, *_STREAM[:10], end=True),)
    else:
        done["the answer breaks after 100 KiB of 300"] = (_cut(_large(kind), 100_000),)
    if kind.upstream == "files":
        done["the same, and the file changes meanwhile"] = _changed(kind)
    return done


def _large(kind: Kind) -> Kind:
    body = kind.body if len(kind.body) > 100_000 else kind.body * 100
    return Kind(kind.name, kind.upstream, kind.method, body, kind.lines, kind.asks, kind.fields)


class Files:
    """The upstream: it fails as it is told, and then answers well, ranges too."""

    def __init__(self) -> None:
        self.kind = KINDS[0]
        self.steps: list[Step] = []

    async def __call__(self, turn: Turn) -> None:
        """Answer one request."""
        if self.steps:
            step = self.steps.pop(0)
            if isinstance(step, bytes):
                await turn.read_body()
                await turn.write(step)
            else:
                await step(turn)
            return
        await turn.read_body()
        wanted, body = turn.request.one("range"), self.kind.body
        if wanted is None:
            await turn.write(_whole(self.kind))
            return
        first = int(wanted.removeprefix("bytes=").partition("-")[0])
        said = f"Content-Range: bytes {first}-{len(body) - 1}/{len(body)}"
        await turn.write(answer(206, body[first:], *self.kind.fields, said))


#: What the app gets, in the words of the page.
WHOLE, BROKEN, HALF, TOLD = "**whole**", "a reset", "half, as if whole", "an error event"


async def _made(kind: Kind, redrive: Redrive) -> str:
    host, _, port = redrive.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    app = App(reader, writer, f"{host}:{port}")
    try:
        async with asyncio.timeout(30):
            reply = await app.ask(kind.method, f"/{kind.upstream}/x", *kind.lines, body=kind.asks)
    except CutError:
        return BROKEN
    finally:
        writer.transport.abort()
    if reply.status >= 400:
        return f"{'our ' if 'problem+json' in (reply.one('content-type') or '') else ''}{reply.status}"
    if reply.body == kind.body:
        return WHOLE
    return TOLD if reply.body.rpartition(b"data: ")[2].startswith(b'{"error"') else HALF


async def play() -> dict[tuple[str, str], str]:
    """What the app gets, by failure and kind of call."""
    found: dict[tuple[str, str], str] = {}
    files = Files()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Upstream(files) as upstream,
            Redrive(Path(folder), CONFIG.format(url=upstream.url)) as redrive,
        ):
            for kind in KINDS:
                for failure, steps in _failing(kind).items():
                    large = "300" in failure
                    files.kind = _large(kind) if large else kind
                    files.steps = list(steps)
                    found[failure, kind.name] = await _made(files.kind, redrive)
    return found


_HEAD = """# What survives what

An upstream fails once, and then answers well. This is what the app gets through redrive, with no key set but those that
the columns name. The table is made by `python tools/survives.py --write` with the real process and plain sockets, and a
test keeps it current.

"""
_NOTES = """
**whole**: the app gets one whole answer, and sees of the failure nothing but `X-Attempt-Count`. A *reset*: the app's
connection or stream is broken off, so that half an answer never passes for a whole one. *Our 502* and *our 504* are
[redrive's own](errors.md). An *error event*: the stream's last event is the provider's own for an error of its server.

## Why

- **PUT and DELETE** are repeated if no answer came, as RFC 9110 permits. If the answer broke, they were carried out,
  and a second DELETE would say 404. So they are [not asked for again](../reference/whole-answers.md#which-calls),
  unless the provider's client does that.
- **POST** is repeated if the upstream has not carried it out. Otherwise it needs a key of the app's own, or a
  [dialect](../reference/dialects.md) whose official client repeats it ([what SDKs
  repeat](../reference/sdk-repeats.md)).
- **The first 64 KiB** of an answer are [kept until it is whole](../reference/whole-answers.md), for at most
  `answers.wait` of silence, or `answers.pause` if it names no length. What breaks later has begun to go to the app.
- **A download** goes on where it broke under [`resume`](../reference/resume.md), if its `ETag` is strong. The
  tests break downloads of curl, wget, requests, boto3, pip, apt and git LFS: these get the same bytes, or an error.
- **A model's stream** is asked for again until something that counts has come ([streams](streams.md)). Here it has
  `streams: {unfinished: event}` and `timeouts.first_byte`. A stream of events is never kept.

Connections that are refused, and requests that were never sent, are [repeated for every
method](../reference/classification.md#safety). When the upstream is away for longer, [calls wait for
it](../reference/weather.md). When all attempts fail, the app gets the last answer, or one of
[redrive's own](errors.md).

To see it for one request, ask [`redrive explain`](../reference/commands/explain.md): it has a line *if it breaks*.
[Policy tests](../reference/commands/test.md#what-the-upstream-does) play such answers with `cut`.
"""


def render(found: dict[tuple[str, str], str]) -> str:
    """The whole page."""
    rows = list(dict.fromkeys(failure for failure, _ in found))
    lines = [
        f"| the upstream | {' | '.join(kind.name for kind in KINDS)} |",
        "| --- |" + " --- |" * len(KINDS),
    ]
    for row in sorted(rows, key=_place):
        lines.append(f"| {row} | {' | '.join(found.get((row, kind.name), '') for kind in KINDS)} |")
    return _HEAD + "\n".join(lines) + "\n" + _NOTES


def _place(row: str) -> int:
    order = [failure for kind in (KINDS[0], KINDS[-1], STREAM) for failure in _failing(kind)]
    return order.index(row)


def main() -> int:
    """Print the page, or write it; the exit status."""
    page = render(asyncio.run(play()))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(re.sub(r"[ \t]+\n", "\n", page))
    else:
        sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
