"""How grpcio's channels come to the running command: by a proxy variable, in the clear and through interception."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.certificates import Authority, make
from support.grpc_peer import OPTIONS, GrpcServer
from support.ports import free_port
from support.process import COMMAND, Redrive

POLICY = """
defaults: {{strategy: {{kind: grpc, backoff: {{base: 20ms, max: 50ms}}}}, dialects: [grpc], attempt_headers: [grpc]}}
upstreams:
  greeter: {{{where}, hosts: [greeter.test, other.test], connect: {connect}}}
"""


@pytest.fixture
def server() -> Iterator[GrpcServer]:
    with GrpcServer() as running:
        yield running


def channel(redrive: Redrive, target: str, *options: tuple[str, Any], roots: bytes | None = None) -> grpc.Channel:
    """One that finds the proxy as by `http_proxy`."""
    options = (*OPTIONS, ("grpc.http_proxy", redrive.url), *options)
    if roots is None:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(roots), options=options)


def echo(channel: grpc.Channel, **metadata: str) -> Any:
    return channel.unary_unary("/acme.Echo/echo").with_call(b"hello", timeout=10, metadata=tuple(metadata.items()))


@pytest.mark.parametrize("connect", ["auto", "intercept"])
async def test_an_insecure_channel(server: GrpcServer, tmp_path: Path, connect: str) -> None:
    where = f'url: "http://127.0.0.1:{server.port}"'
    await own_ca(tmp_path)
    async with Redrive(tmp_path, POLICY.format(where=where, connect=connect)) as redrive:
        with channel(redrive, "greeter.test:50051") as by_proxy:
            reply, call = await asyncio.to_thread(lambda: echo(by_proxy, key="a", fail="2"))
            assert reply == b"hello" and dict(call.initial_metadata())["x-attempt-count"] == "3"
        line = await redrive.call()
        assert (line["method"], line["attempts"]) == ("POST", 3)
        with channel(redrive, "greeter.test:50051", ("grpc.default_authority", "other.test")) as another:
            assert (await asyncio.to_thread(lambda: echo(another)))[0] == b"hello"
        with channel(redrive, "greeter.test:50051", ("grpc.default_authority", "stranger.test")) as stranger:
            with pytest.raises(grpc.RpcError) as caught:
                await asyncio.to_thread(lambda: echo(stranger))
            assert "stranger.test inside a CONNECT" in caught.value.details()


async def test_an_upstream_that_is_not_there_yet(tmp_path: Path) -> None:
    """The CONNECT is answered all the same: the channel goes into no backoff of its own."""
    where = f'url: "http://127.0.0.1:{free_port()}"'
    async with Redrive(tmp_path, POLICY.format(where=where, connect="auto")) as redrive:
        with channel(redrive, "greeter.test:50051") as by_proxy:
            for number in (1, 2):
                with pytest.raises(grpc.RpcError) as caught:
                    await asyncio.to_thread(lambda: echo(by_proxy))
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
                line = await redrive.call(number)
                assert (line["method"], line["attempts"], line["outcome"]) == ("POST", 4, "attempts_exhausted")


async def test_where_the_upstream_has_no_url_it_is_dialled_first(server: GrpcServer, tmp_path: Path) -> None:
    config = POLICY.format(where=f'hosts: ["127.0.0.1:{server.port}"]', connect="auto").replace(
        ", hosts: [greeter.test, other.test]", ""
    )
    async with Redrive(tmp_path, config) as redrive:
        with channel(redrive, f"127.0.0.1:{server.port}") as by_proxy:
            reply, call = await asyncio.to_thread(lambda: echo(by_proxy, key="a", fail="2"))
            assert reply == b"hello" and dict(call.initial_metadata())["x-attempt-count"] == "3"


async def own_ca(folder: Path) -> bytes:
    """A local CA beside the configuration; its certificate."""
    (folder / "redrive.yaml").write_text("listen: 127.0.0.1:0\n")
    process = await asyncio.create_subprocess_exec(*COMMAND, "ca", "init", cwd=folder, stdout=-3, stderr=-3)
    assert await process.wait() == 0
    return (folder / "ca/cert.pem").read_bytes()


async def test_a_secure_channel_through_interception(tmp_path: Path) -> None:
    upstream: Authority = make(tmp_path)
    roots = await own_ca(tmp_path)
    with GrpcServer(certificate=(tmp_path / "server.pem").read_bytes()) as server:
        where = f'url: "https://localhost:{server.port}", verify: "{upstream.ca}"'
        async with Redrive(tmp_path, POLICY.format(where=where, connect="intercept")) as redrive:
            with channel(redrive, "greeter.test:443", roots=roots) as secure:
                reply, call = await asyncio.to_thread(lambda: echo(secure, key="a", fail="2"))
                assert reply == b"hello" and dict(call.initial_metadata())["x-attempt-count"] == "3"
            for other in ("other.test", "another.test"):  # the name that TLS asks for
                with channel(redrive, "greeter.test:443", ("grpc.default_authority", other), roots=roots) as named:
                    assert (await asyncio.to_thread(partial(echo, named)))[0] == b"hello"
