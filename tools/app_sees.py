"""The transcripts of docs/reference/what-your-app-sees.md: the real process, a scripted upstream, a plain socket.

Nothing in a transcript is written by hand. What differs from run to run (ports, the date, the name in Via, keys made
here) is put in one form, so that a test can tell whether the page is current.

    python tools/app_sees.py            print the page
    python tools/app_sees.py --write    write docs/reference/what-your-app-sees.md again
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.process import Redrive  # noqa: E402
from support.scripted import Step, Turn, Upstream, answer, hang, reset  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "what-your-app-sees.md"

#: Ports as they are shown. They have as many digits as those that the system chooses, so that lengths hold.
PROXY, UPSTREAM, CLOSED = "48080", "49000", "49999"

CONFIG = """\
upstreams:
  a:
    url: http://127.0.0.1:49000
    strategy: {backoff: {base: 0s}}             # three attempts, and no wait of ours
  poor:
    url: http://127.0.0.1:49000
    strategy: {backoff: {base: 0s}}
    bucket: {kind: quota, capacity: 5, retry_cost: 5}
  hurried:
    url: http://127.0.0.1:49000
    timeouts: {total: 10s}
    pushback: {cooldown: off}
  patient:
    url: http://127.0.0.1:49000
    strategy: none
    timeouts: {attempt: 50ms}
  paced:
    url: http://127.0.0.1:49000
    rate: {kind: rate, rate: 1/m, burst: 1, when_empty: reject}
  cool:
    url: http://127.0.0.1:49000
    pushback: {cooldown: reject}
  held:
    url: http://127.0.0.1:49000
    pushback: {cooldown: reject}
  counted:
    url: http://127.0.0.1:49000
    strategy: {backoff: {base: 0s}}
    attempt_headers: [aws, envoy]
    idempotency_key: {inject: true}
  gone:
    url: http://127.0.0.1:49999                 # nobody listens there
    strategy: {backoff: {base: 0s}}
  out:
    url: http://127.0.0.1:49000
    strategy: {max_attempts: 9, backoff: {base: 30ms, max: 30ms, jitter: none}}
    pushback: {hold: 100ms}
buffers: {per_request: 1KiB}
"""


@dataclass(frozen=True)
class Scene:
    """One call. `description` is what stands before the transcript; `script` is what the upstream does to each
    attempt.
    """

    outcome: str
    title: str
    description: str
    steps: tuple[Step, ...]
    request: str
    body: bytes = b""
    shows_upstream: bool = False
    before: tuple[str, ...] = ()  # calls that are made first and not shown
    meanwhile: str = ""  # one that is made while the first attempt is under way, and not shown


async def half(turn: Turn) -> None:
    """Half an answer, then the connection breaks."""
    await turn.read_body()
    await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf ")
    turn.close()


PROBLEM = answer(503, b'{"error": "busy"}', "Content-Type: application/json")
OK = answer(200, b"ok\n", "Content-Type: text/plain")

SCENES = [
    Scene("success", "At once", "Only the count and `Via` are added.", (OK,), "GET /a/x"),
    Scene("success", "After retries", "The upstream answered 503 twice, then 200.", (PROBLEM, PROBLEM, OK), "GET /a/x"),
    Scene(
        "success",
        "What the upstream sees",
        "A POST under `attempt_headers: [aws, envoy]` and `idempotency_key: {inject: true}`: the key is the same on "
        "every attempt. The upstream answered 503, then 200.",
        (PROBLEM, OK),
        "POST /counted/orders",
        b"{}",
        shows_upstream=True,
    ),
    Scene(
        "not_retryable",
        "Nothing names the failure",
        "`Proxy-Status` says why it was not retried, and nothing tells the app not to retry.",
        (answer(404, b"no such thing\n"),),
        "GET /a/x",
    ),
    Scene(
        "not_retryable",
        "A POST that may have been carried out",
        "A 503 could be retried, but repeating this POST is not safe without a key.",
        (PROBLEM,),
        "POST /a/orders",
        b"{}",
    ),
    Scene(
        "attempts_exhausted",
        "The last answer, as it came",
        "The upstream answered 503 to all three.",
        (PROBLEM,),
        "GET /a/x",
    ),
    Scene(
        "attempts_exhausted",
        "No answer at all",
        "The connection broke each time, so the proxy writes its own answer.",
        (reset,),
        "GET /a/x",
    ),
    Scene("attempts_exhausted", "No server listens", "", (OK,), "GET /gone/x"),
    Scene(
        "attempts_exhausted",
        "An attempt that takes too long",
        "`strategy: none` makes one attempt, and one attempt does not count as giving up: no `x-should-retry`.",
        (hang,),
        "GET /patient/x",
    ),
    Scene("bucket_empty", "The bucket cannot pay", "It had enough for one retry.", (PROBLEM,), "GET /poor/x"),
    Scene(
        "pushback_stop",
        "The upstream says no",
        "Its own `x-should-retry: false` is passed on.",
        (answer(503, b"", "x-should-retry: false"),),
        "GET /a/x",
    ),
    Scene(
        "pushback_too_long",
        "The upstream asks for more than `max_delay`",
        "The answer goes to the app at once, with its `Retry-After`.",
        (answer(429, b"later\n", "Retry-After: 3600"),),
        "GET /cool/x",
    ),
    Scene(
        "deadline",
        "No time for the wait",
        "Half a minute is within `max_delay`, but not within the deadline: redrive does not wait past it.",
        (answer(503, b"", "Retry-After: 30"),),
        "GET /hurried/x",
    ),
    Scene(
        "deadline",
        "No answer in time",
        "The app gave it 100ms.",
        (hang,),
        "PUT /hurried/y\nX-Retry-Timeout: 100ms",
    ),
    Scene(
        "committed",
        "The request's body outgrew its buffer",
        "`buffers.per_request` is 1KiB here; the body was longer, so it could be sent only once.",
        (PROBLEM,),
        "PUT /a/big",
        b"x" * 2000,
    ),
    Scene(
        "committed",
        "An answer that broke after its delivery began",
        "The connection is reset, so that the answer never looks complete, not even to an app that checks no length.",
        (half,),
        "GET /a/x",
    ),
    Scene("disabled", "`X-Retry-Disable: true`", "One attempt.", (PROBLEM,), "GET /a/x\nX-Retry-Disable: true"),
    Scene("rate_limited", "A `rate` bucket that rejects", "", (OK,), "GET /paced/x", before=("GET /paced/x",)),
    Scene(
        "cooling",
        "A cooldown that rejects",
        "An earlier call got a 429 with `Retry-After: 3600`; it holds others for at most `max_delay`.",
        (OK,),
        "GET /cool/y",
    ),
    Scene(
        "cooling",
        "A cooldown that began meanwhile",
        "While the first attempt was under way, another call got a 429 with `Retry-After: 3600`. This one got a 503 "
        "with `Retry-After: 0`; there is no second attempt, and its answer is passed on as it came, except for "
        "`Retry-After`: it is never below what is left of the cooldown, so that the app does not run into it again. A "
        "429 or 503 without one gets one.",
        (answer(503, b"busy\n", "Retry-After: 0"), answer(429, b"later\n", "Retry-After: 3600")),
        "GET /held/y",
        meanwhile="GET /held/x",
    ),
    Scene(
        "outage",
        "An upstream that does not answer",
        "The upstream has answered once; since then it has reset every attempt, which is an outage. A call is held "
        "until a probe is answered, but it comes later than `pushback.hold` (here 100ms) after the first failure.",
        (OK, reset),
        "GET /out/x",
        before=("GET /out/x", "GET /out/x"),
    ),
    Scene("denied", "A destination that is not allowed", "", (OK,), "GET http://169.254.169.254/latest/meta-data"),
    Scene("denied", "No upstream has this prefix", "", (OK,), "GET /nobody/x"),
    Scene("bad_request", "A value that cannot be read", "", (OK,), "GET /a/x\nX-Retry-Timeout: soon"),
    Scene(
        "attempts_exhausted",
        "The same for a gRPC call",
        "A trailers-only answer, with the matching status and `grpc-retry-pushback-ms: -1`.",
        (OK,),
        "POST /gone/echo.Echo/Say\nContent-Type: application/grpc\nIdempotency-Key: 7",
    ),
]


async def play() -> list[tuple[Scene, str, list[str]]]:
    """Each scene with the app's transcript and what the upstream received."""
    played = []
    async with Upstream(OK) as upstream:
        with tempfile.TemporaryDirectory() as folder:
            config = CONFIG.replace(UPSTREAM, str(upstream.port)).replace(CLOSED, str(await _closed_port()))
            async with Redrive(Path(folder), config) as redrive:
                port = int(redrive.authority.rpartition(":")[2])
                one_form = _OneForm(port, upstream.port, config)
                for scene in SCENES:
                    upstream.steps, upstream._next = _steps_of(scene, port), 0
                    for request in scene.before:
                        await _call(port, request, b"")
                    upstream.requests.clear()
                    raw = await _call(port, scene.request, scene.body)
                    received = [one_form(request.head.decode("latin-1")) for request in upstream.requests]
                    played.append((scene, one_form(raw), received))
    return played


def _steps_of(scene: Scene, port: int) -> tuple[Step, ...]:
    """What the upstream does; the call that is made meanwhile is made, and answered, before the first step."""
    if not scene.meanwhile:
        return scene.steps
    first, *others = scene.steps
    assert isinstance(first, bytes)

    async def step(turn: Turn) -> None:
        await _call(port, scene.meanwhile, b"")
        await turn.write(first)

    return (step, *others)


async def _closed_port() -> int:
    """A port that nobody listens on any more."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def _call(port: int, request: str, body: bytes) -> str:
    """What came back, as text."""
    line, *fields = request.split("\n")
    fields = [f"Host: 127.0.0.1:{port}", *fields]
    if body:
        fields.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([f"{line} HTTP/1.1", *fields, "", ""]).encode()
    loop = asyncio.get_running_loop()
    got = b""
    with socket.create_connection(("127.0.0.1", port)) as app:
        app.setblocking(False)
        await loop.sock_sendall(app, head + body)
        try:
            while not _is_whole(got):
                data = await loop.sock_recv(app, 65536)
                if not data:
                    got += b"\n(the connection is closed)"
                    break
                got += data
        except ConnectionResetError:  # a stream reader would keep what came before it from us
            got += b"\n(the connection is reset)"
    return got.decode("latin-1")


def _is_whole(answer: bytes) -> bool:
    head, behind, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return bool(behind) and len(body) >= (int(length[1]) if length else 0)


class _OneForm:
    """Puts what differs from run to run in one form."""

    def __init__(self, proxy: int, upstream: int, config: str) -> None:
        closed = re.search(r"gone:\n    url: http://127.0.0.1:(\d+)", config)
        assert closed is not None
        self._ports = {str(proxy): PROXY, str(upstream): UPSTREAM, closed[1]: CLOSED}

    def __call__(self, text: str) -> str:
        text = text.replace("\r\n", "\n")
        for port, shown in self._ports.items():
            text = re.sub(rf"\b{port}\b", shown, text)
        text = re.sub(r"redrive-[0-9a-f]{8}", "redrive-0123abcd", text)
        text = re.sub(r"(?m)^(date): .*$", r"\1: Thu, 01 Jan 2026 00:00:00 GMT", text, flags=re.IGNORECASE)
        text = re.sub(r"(?m)^Retry-After: 5\d$", "Retry-After: 60", text)  # what is left of a minute
        text = re.sub(r"which is in 9\.\d+ s", "which is in 10 s", text)
        return re.sub(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", "3b241101-e2bb-4255-8caf-4136c566a962", text)


_HEAD = """# What your app sees

This page is made by `python tools/app_sees.py --write`, and a test keeps it current: every transcript comes from the
real process in front of a scripted upstream, seen from a plain socket. Ports, dates, the name in `Via`, injected keys
and the rest of a minute are replaced by fixed values.

The app gets the last attempt's answer as it came: status, fields, body byte for byte. redrive adds:

| field | when |
| --- | --- |
| `X-Attempt-Count` | on every answer: the number of attempts made |
| `Via` | on every answer that came from an upstream |
| `Proxy-Status` | more than one attempt, a failure that was not retried, or the proxy's own answer (RFC 9209) |
| `Retry-After` | `cooling`, if the answer named less than is left of the cooldown, or is a 429 or 503 without it |
| `x-should-retry: false` | the sidecar gave up ([which outcomes](pushback.md#an-app-that-retries-by-itself)) |

In `Proxy-Status`, `outcome=` is how the call ended ([troubleshooting](../guides/troubleshooting.md)), and `details=` is
what happened to the last attempts and why there was no other.

The proxy writes an answer of its own, as `application/problem+json`, only if there is no answer to pass on. Its `type`
is a section of [problem types](problems.md), which says what it means and what helps:

| status | when |
| --- | --- |
| 502 | no connection, a broken one, or a malformed answer |
| 504 | `timeouts.connect` or `timeouts.attempt` ran out, or the deadline |
| 503 | `rate_limited`, `overloaded`; with `Retry-After` |
| 429 or 503 | `cooling`, the same as the answer that started the cooldown; with `Retry-After` |
| 403 | the destination is denied |
| 404 | no upstream has this Host or prefix |
| 400, 413, 414, 431 | the request cannot be forwarded |

For an `application/grpc` call it is HTTP 200, trailers-only, with the matching `grpc-status`. Only the log shows
`client_gone`; `overloaded` is a 503.

The transcripts use this configuration:
"""


def render(played: list[tuple[Scene, str, list[str]]]) -> str:
    """The whole page."""
    parts = [_HEAD, f"```yaml\n{CONFIG}```"]
    for outcome in dict.fromkeys(scene.outcome for scene, _, _ in played):
        parts.append(f"\n## {outcome}")
        for scene, text, received in played:
            if scene.outcome == outcome:
                parts += ["", f"### {scene.title}", ""]
                parts += [scene.description, ""] if scene.description else []
                parts.append(_block(scene.request, text))
                if scene.shows_upstream:
                    parts += ["", "The upstream received:", "", _block(*received)]
    return "\n".join(parts) + "\n"


def _block(*texts: str) -> str:
    return "```http\n" + "\n\n".join(text.rstrip("\n") for text in texts) + "\n```"


def page() -> str:
    """Play everything, and render."""
    return render(asyncio.run(play()))


def main() -> None:
    """Print the page, or write it."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
