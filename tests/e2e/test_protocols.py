"""`protocol`: what is spoken upstream, and what becomes of a call that the app spoke otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
import httpx
import pytest
from support.certificates import make
from support.grpc_peer import OPTIONS
from support.process import Redrive
from support.scripted import Turn, Upstream, answer

CONFIG = """
defaults: {{strategy: {{kind: standard, backoff: {{base: 10ms}}}}}}
upstreams:
  svc: {{url: "{url}", hosts: [svc.test, 127.0.0.1], protocol: {protocol}, verify: {verify}, strategy: {strategy}}}
"""


@contextlib.asynccontextmanager
async def running(
    folder: Path, url: str, protocol: str, verify: object = "true", strategy: str = "standard"
) -> AsyncIterator[Redrive]:
    folder.mkdir()  # noqa: ASYNC240
    async with Redrive(folder, CONFIG.format(url=url, protocol=protocol, verify=verify, strategy=strategy)) as redrive:
        yield redrive


async def run(*command: str, **options: Any) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, **options)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def echo(turn: Turn) -> None:
    body = await turn.read_body()
    await turn.write(answer(200, body, "Set-Cookie: a=1", "Set-Cookie: b=2"))


async def with_trailers(turn: Turn) -> None:
    await turn.read_body()
    await turn.write(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n"
    )


async def broken(turn: Turn) -> None:
    await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    turn.close()


# -- an app of HTTP/2, an upstream of HTTP/1.1 ------------------------------------------------------------------------


async def test_curl_and_an_upstream_of_http1(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503), answer(503), echo) as upstream,
        running(tmp_path / "one", upstream.url, "http/1.1") as redrive,
    ):
        said = await run(
            *("curl", "-sS", "--http2-prior-knowledge", "-i", "-X", "PUT", "-H", "Host: svc.test"),
            *("-H", "Cookie: a=1", "-H", "Cookie: b=2", "-d", "hello", f"{redrive.url}/x?y"),
        )
        assert said.startswith("HTTP/2 200") and said.endswith("hello") and "x-attempt-count: 3" in said
        assert "set-cookie: a=1\r\nset-cookie: b=2" in said and "connection" not in said
        first, _, last = upstream.requests
        assert first.line == last.line == "PUT /x?y HTTP/1.1"
        assert (last.one("host"), last.one("content-length"), last.all("cookie")) == ("svc.test", "5", ["a=1; b=2"])
        assert str(last.one("via")).startswith("2.0 ")
        assert not last.all("transfer-encoding")


async def test_httpx_streams_to_an_upstream_of_http1(tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 10_000

    async with (
        Upstream(echo) as upstream,
        running(tmp_path / "one", upstream.url, "http/1.1") as redrive,
        httpx.AsyncClient(http1=False, http2=True, headers={"Host": "svc.test"}) as app,
    ):
        reply = await app.post(redrive.url, content=pieces())
        assert (reply.http_version, len(reply.content)) == ("HTTP/2", 500_000)
        assert upstream.requests[0].one("transfer-encoding") == "chunked"
        assert (await app.head(redrive.url)).status_code == 200


NODE = """
const http2 = require('http2');
const client = http2.connect(process.argv[1]);
const request = client.request({':path': '/', ':authority': 'svc.test'});
request.on('response', (head) => console.log(head[':status'], head['x-attempt-count']));
request.on('trailers', (trailers) => console.log('trailers', trailers['x-sum']));
request.on('data', (data) => console.log(String(data)));
request.on('error', (error) => console.log(error.message));
request.on('close', () => client.close());
request.end();
"""


async def test_node_and_trailers(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503), with_trailers, broken) as upstream,
        running(tmp_path / "one", upstream.url, "http/1.1") as redrive,
    ):
        said = await run("node", "-e", NODE, redrive.url)
        assert said.split() == ["200", "2", "ok", "trailers", "7"]
        said = await run("node", "-e", NODE, redrive.url)
        # a GET whose answer breaks is asked for again; the last attempt's answer goes on as it comes
        assert said.splitlines() == ["200 3", "half", "Stream closed with error code NGHTTP2_INTERNAL_ERROR"]


async def test_a_grpc_call_where_the_upstream_speaks_http1(tmp_path: Path) -> None:
    async with Upstream() as upstream, running(tmp_path / "one", upstream.url, "http/1.1") as redrive:
        options = [*OPTIONS, ("grpc.default_authority", "svc.test")]

        def call() -> grpc.RpcError:
            with grpc.insecure_channel(redrive.authority, options=options) as channel:
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary("/acme.Echo/echo")(b"", timeout=10)
                return caught.value

        error = await asyncio.get_running_loop().run_in_executor(None, call)
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED and "`protocol`" in error.details()
        assert not upstream.requests


# -- an app of HTTP/1, an upstream of HTTP/2 --------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def over_http2(folder: Path, *steps: Any) -> AsyncIterator[tuple[Redrive, Upstream]]:
    """A proxy whose upstream is asked by HTTP/2 alone: another proxy, in front of a server of HTTP/1.1."""
    async with (
        Upstream(*steps) as server,
        running(folder / "behind", server.url, "http/1.1", strategy="none") as behind,
        running(folder / "front", behind.url, "http/2") as front,
    ):
        yield front, server


async def test_http1_apps_and_an_upstream_of_http2(tmp_path: Path) -> None:
    async with (
        over_http2(tmp_path, echo, echo, with_trailers) as (front, server),
        httpx.AsyncClient(headers={"Host": "svc.test"}) as app,
    ):
        reply = await app.post(front.url + "/x", content=b"hello", headers={"Connection": "X-Hop", "X-Hop": "1"})
        assert (reply.status_code, reply.content, reply.http_version) == (200, b"hello", "HTTP/1.1")
        assert reply.headers.get_list("set-cookie") == ["a=1", "b=2"] and reply.headers["content-length"] == "5"
        request = server.requests[0]
        assert (request.line, request.one("host"), request.one("content-length")) == (
            "POST /x HTTP/1.1",
            "svc.test",
            "5",
        )
        assert not request.all("x-hop") and [via[:4] for via in request.all("via")] == ["1.1 ", "2.0 "]

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(50):
                yield b"x" * 10_000

        assert len((await app.post(front.url, content=pieces())).content) == 500_000
        assert server.requests[1].one("transfer-encoding") == "chunked"
        said = await run("curl", "-sS", "-i", "--raw", "-H", "Host: svc.test", front.url)
        assert said.endswith("2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n")


async def test_failures_of_an_upstream_of_http2_are_retried_and_told(tmp_path: Path) -> None:
    async with (
        over_http2(tmp_path, answer(503), answer(200, b"ok"), answer(204), broken) as (front, _),
        httpx.AsyncClient(headers={"Host": "svc.test"}) as app,
    ):
        reply = await app.get(front.url)
        assert (reply.content, reply.headers["x-attempt-count"]) == (b"ok", "2")
        assert (await app.get(front.url)).status_code == 204
        with pytest.raises(httpx.TransportError):
            await app.get(front.url)


async def test_an_upstream_that_speaks_no_http2(tmp_path: Path) -> None:
    async with (
        Upstream() as upstream,
        running(tmp_path / "one", upstream.url, "http/2") as redrive,
        httpx.AsyncClient(headers={"Host": "svc.test"}) as app,
    ):
        assert (await app.get(redrive.url)).status_code == 502
        line = await redrive.call()
        assert {each["fault"] for each in line["history"]} == {"connect_failure"}
        said = "it answers in HTTP/1 (protocol: http/1.1 would translate what is not gRPC)"
        assert line["detail"] == f"the upstream does not speak HTTP/2: {said}"


async def test_the_remedy_is_named_where_the_upstream_answers_the_preface_without_a_head(tmp_path: Path) -> None:
    """Python's own server answers a request of HTTP/2 with a page alone, as it would one of HTTP/0.9."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        async with (
            running(tmp_path / "one", f"http://127.0.0.1:{server.server_port}", "http/2") as redrive,
            httpx.AsyncClient(headers={"Host": "svc.test"}) as app,
        ):
            assert (await app.get(redrive.url)).status_code == 502
            detail = (await redrive.call())["detail"]
            assert detail.startswith("the upstream does not speak HTTP/2: ")
            assert detail.endswith(" (protocol: http/1.1 would translate what is not gRPC)")
    finally:
        server.shutdown()
        server.server_close()


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selects", ["http/1.1", None])
async def test_what_alpn_selects_is_spoken(tmp_path: Path, selects: str | None) -> None:
    """An app of HTTP/2, no gRPC call: the upstream may select either."""
    authority = make(tmp_path)
    context: ssl.SSLContext = authority.server
    if selects:
        context.set_alpn_protocols([selects])
    async with (
        Upstream(answer(503), echo, tls=context) as upstream,
        running(tmp_path / "one", f"https://localhost:{upstream.port}", "auto", authority.ca) as redrive,
        httpx.AsyncClient(http1=False, http2=True, headers={"Host": "svc.test"}) as app,
    ):
        replies = await asyncio.gather(*(app.put(redrive.url, content=b"hello") for _ in range(20)))
        assert [reply.content for reply in replies] == [b"hello"] * 20
        count = upstream.connections
        assert (await app.put(redrive.url, content=b"again")).content == b"again"
        assert upstream.connections == count  # one that rested


async def test_h2_is_selected_where_the_upstream_has_it(tmp_path: Path) -> None:
    from support.grpc_peer import GrpcServer

    authority = make(tmp_path)
    with GrpcServer(certificate=(tmp_path / "server.pem").read_bytes()) as server:
        async with (
            running(tmp_path / "one", f"https://localhost:{server.port}", "auto", authority.ca) as redrive,
            httpx.AsyncClient(http1=False, http2=True, headers={"Host": "svc.test"}) as app,
        ):
            reply = await app.post(redrive.url + "/x", content=b"no gRPC")
            assert reply.status_code == 502
            assert "INTERNAL_ERROR" in (await redrive.call())["detail"]  # as C-core resets what is no gRPC call
