"""Secrets that pass through or stand in the configuration, and every place where they could be read afterwards."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from support.ports import free_port
from support.process import Redrive, redrive, verb
from support.scripted import Turn, Upstream, answer, close

#: Every secret begins so; what follows tells where it was planted.
S = "zq9secret"


def planted(where: str) -> str:
    return f"{S}-{where}"


#: What a request brings along.
HEADERS = {
    "Authorization": f"Bearer {planted('authorization')}",
    "Proxy-Authorization": f"Basic {planted('proxy-authorization')}",
    "Cookie": f"session={planted('cookie')}",
    "X-Api-Key": planted("x-api-key"),
    "X-Amz-Security-Token": planted("security-token"),
    "Idempotency-Key": planted("idempotency-key"),
    "X-Tenant": planted("scope-header"),
    "Referer": f"http://x.example/?t={planted('referer')}",
}
#: What an upstream says with its failures.
ANSWERED = (
    f"Set-Cookie: id={planted('set-cookie')}",
    f"Location: http://x.example/?token={planted('location')}",
    f"X-Amzn-Errortype: {planted('errortype')}",
    f"X-Error: {planted('answer-header')}",
)


async def nonsense(turn: Turn) -> None:
    """No HTTP, with a secret in it."""
    await turn.read_body()
    await turn.write(f"{planted('nonsense')}\r\n\r\n".encode())
    turn.close()


CONFIG = """
admin: {{listen: "127.0.0.1:0", token: "{token}"}}
strategies: {{own: {{kind: "asking:Asking", vault: "{argument}-named", attempts: 2}}}}
redis: {{url: "redis://user:{redis}@127.0.0.1:1/0"}}
defaults: {{timeouts: {{connect: 1s}}, strategy: {{kind: standard, backoff: {{base: 1ms, max: 2ms}}}}}}
upstreams:
  api:
    url: {url}
    scope: {{header: X-Tenant}}
    headers:
      request: {{set: {{x-api-key: "{header}", x-from-env: "${{PLANTED}}"}}}}
      response: {{set: {{x-answer: "{response}"}}}}
    dialects: [http, aws]
    routes:
      - match: {{path: /v2/**, headers: {{authorization: "{match}"}}}}
        strategy: none
      - match: {{headers: {{authorization: "{held}", x-tenant: "*"}}}}
      - match: {{headers: {{x-plan: "{match}-2"}}}}
        strategy: {{kind: "asking:Asking", vault: "{argument}", deep: {{more: ["{argument}-2"]}}, attempts: 2}}
      - match: {{path: "/hooks/${{PLANTED}}/**"}}
        classify: {{rules: [{{status: 418, header: {{x-why: "{rule}*"}}, as: transient}}]}}
  hook: {{url: "{url}/services/${{PLANTED}}", strategy: own}}
  through: {{url: "http://through.example", via_proxy: "http://user:{via}@127.0.0.1:1"}}
"""


def config(url: str) -> str:
    names = ("token", "redis", "header", "response", "match", "argument", "rule", "via")
    return CONFIG.format(url=url, held=HEADERS["Authorization"], **{name: planted(f"config-{name}") for name in names})


async def send_everything(running: Redrive, upstream: Upstream) -> list[str]:
    """Calls that succeed, are retried, fail, are refused and never parse; what the proxy itself said to each."""
    said = []
    body = planted("body").encode() * 10
    async with aiohttp.ClientSession() as session:
        for path in (
            f"/api/x?api_key={planted('query')}&b={planted('query2')}",
            f"/api/x?{planted('bare-query')}",
            f"/api/x;jsessionid={planted('path')};{planted('path2')}/y%3Bk={planted('path3')}",
            f"/hook/x?k={planted('query8')}",
            f"/through/x?k={planted('query3')}",
            f"/nowhere;k={planted('path4')}?k={planted('query4')}",
            f"/api/../../x?k={planted('query5')}",
        ):
            for method in ("GET", "POST"):
                async with session.request(method, running.url + path, headers=HEADERS, data=body) as reply:
                    said += [str(reply.headers.get("Proxy-Status")), str(reply.headers.get("Via"))]
                    if reply.content_type == "application/problem+json":
                        said.append(await reply.text())
    for raw in (
        f"GET http://u:{planted('user-info')}@{upstream.authority}/x?k={planted('query6')} HTTP/1.1\r\nHost: a\r\n\r\n",
        f"GET http://127.0.0.1:{free_port()}/x?k={planted('query7')} HTTP/1.1\r\nHost: a\r\n\r\n",
        f"CONNECT user:{planted('connect')}@127.0.0.1:1 HTTP/1.1\r\nHost: a\r\nProxy-Authorization: {S}\r\n\r\n",
        f"GET /api/x?k={planted('version')} HTTP/9.9\r\nHost: a\r\n\r\n",
        f"GET /api/x HTTP/1.1\r\nHost: a\r\nAuthorization {planted('no-colon')}\r\n\r\n",
        f"GET /api/x HTTP/1.1\r\nHost: {planted('host')}@x\r\n\r\n",
        f"GET /api/x HTTP/1.1\r\nHost: a\r\nContent-Length: {planted('length')}\r\n\r\n",
        f"GET /api/x HTTP/1.1\r\nHost: a\r\nX-Retry-Timeout: {planted('timeout')}\r\n\r\n",
        f"{planted('line')}\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(running.authority.rpartition(":")[2]))
        try:
            writer.write(raw.encode())
            writer.write_eof()
            async with asyncio.timeout(20):
                answered = await reader.read(-1)
            if b"problem+json" in answered or b"Proxy-Status" in answered:
                said.append(answered.decode("latin-1"))
        finally:
            writer.transport.abort()
    return said


PAGES = ("/config", "/upstreams", "/buckets", "/requests", "/requests?only=notable", "/metrics", "/readyz?verbose", "/")
PLACES = ("", "?upstream=api", "?upstream=hook", "?upstream=through")


async def read_everything(running: Redrive, events: asyncio.Task[bytes]) -> dict[str, str]:
    found = {}
    token = {"Authorization": f"Bearer {planted('config-token')}"}
    async with aiohttp.ClientSession(headers=token) as session:

        async def read(path: str) -> str:
            async with session.get(running.admin + path) as reply:
                assert reply.status == 200, path
                return await reply.text()

        for path in PAGES:
            found[path] = await read(path)
        routes = [r["route"] for u in json.loads(found["/upstreams"])["upstreams"] for r in u["routes"]]
        assert routes[1:3] == ["header authorization, x-tenant #2", "header x-plan #3"]
        for query in (*PLACES, *(f"?upstream=api&route={quote(route, safe='')}" for route in routes)):
            found[f"places {query}"] = await read("/config/places" + query)
        async with session.get(
            f"{running.admin}/config", headers={"Authorization": f"Bearer {planted('wrong')}"}
        ) as no:
            found["a wrong token"] = await no.text()
        async with session.get(f"{running.admin}/?k={S}", headers={"Host": "evil.example"}) as no:
            found["a wrong host"] = await no.text()
    host, _, port = running.admin.removeprefix("http://").rpartition(":")
    for raw in (
        f"GET /config HTTP/1.1\r\nHost: {host}\r\nAuthorization {planted('admin-no-colon')}\r\n\r\n",
        f"GET /config HTTP/1.1\r\nHost: {host}\r\nHost: {planted('admin-host')}\r\n\r\n",
        f"{planted('admin-line')}\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(raw.encode())
        async with asyncio.timeout(20):
            assert b" 400 " in await reader.readline()
        writer.transport.abort()
    found["/events"] = (await events).decode()
    return found


async def follow(running: Redrive, until: bytes) -> bytes:
    """The events of the board and of calls, until some text has come."""
    text = b""
    token = {"Authorization": f"Bearer {planted('config-token')}"}
    async with (
        aiohttp.ClientSession(headers=token) as session,
        session.get(f"{running.admin}/events?board&most=1000") as stream,
    ):
        async for chunk in stream.content.iter_any():
            text += chunk
            if until in text:
                return text
    return text


@pytest.mark.parametrize("form", ["json", "console"])
async def test_no_secret_can_be_read_anywhere(tmp_path: Path, form: str) -> None:
    failing = answer(503, planted("answer-body").encode(), *ANSWERED)
    steps = (failing, answer(400, planted("answer-body").encode(), *ANSWERED), close, nonsense, failing)
    text = config("{url}")
    (tmp_path / "asking.py").write_text(ASKING)
    async with Upstream(*steps) as upstream:
        running = Redrive(tmp_path, f"log: {{format: {form}, level: debug}}\n{text}".replace("{url}", upstream.url),
                          listen="listen: 127.0.0.1:0\n", PLANTED=planted("environment"))  # fmt: skip
        if form == "console":
            out = await console(tmp_path, running, upstream)
            assert S not in out, seen(out)
            return
        async with running:
            events = asyncio.create_task(follow(running, b"the-last-one"))
            said = await send_everything(running, upstream)
            async with aiohttp.ClientSession() as session, session.get(f"{running.url}/api/the-last-one") as reply:
                await reply.read()
            found = await read_everything(running, events)
            good = running.file.read_text()
            for name, arguments in ASKED.items():
                status, out, err = await redrive(*arguments, "-c", str(running.file), PLANTED=planted("environment"))
                assert status == 0, err
                found[name] = out + err
            (tmp_path / "telling.py").write_text(TELLING)
            for number, bad in enumerate(BROKEN):
                running.file.write_text(good + bad)
                before = len(running.lines)
                running.signal(signal.SIGHUP)
                told = await running.line(lambda line: line["event"] == "reload", before)
                assert told is not None
                assert told["result"] == "failure", bad
                found[f"reload {number}"] = json.dumps(told)
                status, out, err = await redrive("check", "-c", str(running.file), PLANTED=planted("environment"))
                assert status == 2
                found[f"check {number}"] = out + err
            running.signal(signal.SIGTERM)
            await running.ended()
        found["log"] = "\n".join(map(json.dumps, running.lines))
        found["standard error"] = running.errors
        found |= {f"answer {number}": text for number, text in enumerate(said)}
        assert "the-last-one" in found["/events"]
        assert "the-last-one" in found["/requests"]
        assert "***" in found["/config"]
        assert len(said) > 10
        leaks = {where: seen(text) for where, text in found.items() if S in text}
        assert leaks == {}


def seen(text: str) -> list[str]:
    """Where secrets show, with what stands around them."""
    at = [place for place in range(len(text)) if text.startswith(S, place)]
    return [text[max(place - 60, 0) : place + 40] for place in at[:5]]


async def console(folder: Path, running: Redrive, upstream: Upstream) -> str:
    """Standard output and error of a process that logs for people."""
    port = free_port()
    running.file.write_text(running.file.read_text().replace("listen: 127.0.0.1:0", f"listen: 127.0.0.1:{port}"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "run", "-c", str(running.file)),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=running.env,
    )  # fmt: skip
    assert process.stdout is not None
    text = b""
    while b"listening on" not in text:
        more = await process.stdout.readline()
        assert more, text
        text += more
    running.url, running.authority = f"http://127.0.0.1:{port}", f"127.0.0.1:{port}"
    reader = asyncio.create_task(process.stdout.read())
    await send_everything(running, upstream)
    process.terminate()
    text += await reader
    await process.wait()
    assert b"bucket_empty" in text or b"attempts_exhausted" in text
    return text.decode()


#: Mistakes with a secret in or beside them, put at the end of a good file.
BROKEN = [
    f"  bad: {{url: 'http://user:{planted('broken-url')}@x.example:99999/'}}\n",
    f"  bad: {{url: 'ftp://user:{planted('broken-scheme')}@x.example/'}}\n",
    f"  bad: {{url: 'http://x.example', via_proxy: 'ftp://user:{planted('broken-via')}@x.example'}}\n",
    f"  bad: {{headers: {{request: {{set: {{x-api-key: ['{planted('broken-header')}']}}}}}}}}\n",
    f"  bad: {{headers: {{request: {{set: {{'x api key': '{planted('broken-name')}'}}}}}}}}\n",
    f'  bad: {{headers: {{request: {{set: {{x-api-key: "{planted("broken-value")}\\r\\n"}}}}}}}}\n',
    f"  bad: {{headers: {{request: {{set: {planted('broken-set')}}}}}}}\n",
    f"redis: {{url: 'http://user:{planted('broken-redis')}@x.example/zero'}}\n",
    "  bad: {url: 'http://x.example', timeouts: {attempt: '${PLANTED}'}}\n",
    "  bad: {url: 'ftp://u:${PLANTED}@x.example'}\n",
    f"  bad: {{url: 'user:{planted('no-scheme')}@x.example'}}\n",
    f"  bad: {{url: 'x.example?key={planted('no-scheme-query')}'}}\n",
    f"  bad: {{url: 'http://x.example/?key={planted('url-query')}'}}\n",
    f"  bad: {{url: 'http://x.example', strategy: {{kind: 'telling:Telling', api_key: {planted('argument')}}}}}\n",
]

#: What is asked of the good file on the command line.
ASKED = {
    "check": ("check",),
    "explain": ("explain", "GET", "/api/x"),
    "explain a route": ("explain", "GET", "/api/x", "-H", "X-Plan: " + planted("config-match-2")),
    "explain hook": ("explain", "GET", "/hook/x", "--status", "503"),
}

#: A user's strategy that is given secrets.
ASKING = """
class Token:
    retry_delay = 0.0

class Asking:
    def __init__(self, vault, attempts, deep=None):
        self.max_attempts = attempts

    def acquire_initial_retry_token(self, *, token_scope=None):
        return Token()

    def refresh_retry_token_for_retry(self, *, token_to_renew, error):
        return token_to_renew

    def record_success(self, *, token):
        pass
"""

#: A user's strategy that repeats what it was given.
TELLING = """
class Telling:
    def __init__(self, api_key=""):
        raise ValueError(f"nothing is known of {api_key}")
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("GET", "http://x.example/", "-H", f"Authorization {planted('field')}"),
        ("GET", f"nonsense://u:{planted('url')}@x.example/;k={planted('url')}?k={planted('url')}"),
        ("GET", f"http://u:{planted('url')}@x.example/;k={planted('url')}?k={planted('url')}", "--status", "503"),
        ("GET", "http://x.example/", "-H", f"X-Retry-Timeout: {planted('field')}"),
    ],
)
def test_explain_repeats_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    (tmp_path / "redrive.yaml").write_text("upstreams: {x: {url: 'http://x.example'}}\n")
    status, out, err = verb(capsys, "explain", "-c", str(tmp_path / "redrive.yaml"), *arguments)
    assert status in (0, 2)
    assert out + err
    assert S not in out + err
