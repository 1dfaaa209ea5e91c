"""An answer that breaks off upstream ends with a RST at the app, however either is framed: who checks no length must
not take what came for the whole. And what came before does reach it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack

import pytest
from support.front import Front, request, to
from support.scripted import Step, Turn, Upstream, answer

from proxy.retry.facts import Outcome
from proxy.retry.policies.policy import Timeouts

PART = b"half of an answer"
FRAMED = {
    "a length": b"Content-Length: 1000000\r\n\r\n" + PART,
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n11\r\n" + PART + b"\r\n",
    "chunks without the last": b"Transfer-Encoding: chunked\r\n\r\n11\r\n" + PART + b"\r\n0\r\n",
    "its connection": b"\r\n" + PART,
}


def breaks(how: str, framed: bytes, seen: asyncio.Event) -> Step:
    """An answer that begins, and once the app has seen it breaks off: by a FIN, a RST, or not another word."""

    async def step(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\n" + framed)
        await seen.wait()
        if how == "fin":
            turn.close()
        elif how == "rst":
            turn.reset()
        else:
            await turn.gone()
            turn.closed = True

    return step


async def until_reset(app: socket.socket, seen: asyncio.Event, got: bytes = b"") -> bytes:
    """All that comes before a RST; an end that is none is an error."""
    loop = asyncio.get_running_loop()
    try:
        while True:
            data = await loop.sock_recv(app, 65536)
            assert data, f"a FIN behind {got!r}"
            got += data
            if PART in got:
                seen.set()
    except ConnectionResetError:
        return got


#: A FIN is the proper end of what only its connection ends.
WAYS = [
    (how, framed)
    for how in ("fin", "rst", "silence")
    for framed in FRAMED
    if how != "fin" or framed != "its connection"
]


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("before", [0, 1], ids=["the first call", "one that went at once"])
@pytest.mark.parametrize(("how", "framed"), WAYS)
async def test_it_ends_with_a_reset(how: str, framed: str, before: int, version: str) -> None:
    seen = asyncio.Event()
    steps = [answer(200, b"ok")] * before + [breaks(how, FRAMED[framed], seen)]
    limits = Timeouts(idle=0.3) if how == "silence" else Timeouts()
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url, timeouts=limits)) as front:
        app = socket.create_connection(("127.0.0.1", front.port))
        app.setblocking(False)
        loop = asyncio.get_running_loop()
        for _ in range(before):
            await loop.sock_sendall(app, request("GET", "/api/", host="127.0.0.1"))
            while not (await loop.sock_recv(app, 65536)).endswith(b"ok"):
                pass
        await loop.sock_sendall(app, request("GET", "/api/", host="127.0.0.1", version=version))
        got = await until_reset(app, seen)
        assert PART in got
        assert not got.endswith(b"\r\n0\r\n\r\n")
        assert (await front.observed.until(before + 1))[-1]["outcome"] is Outcome.COMMITTED
        app.close()


async def test_an_app_that_closes_its_own_direction_sees_the_reset_too() -> None:
    seen = asyncio.Event()
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(Upstream(breaks("rst", FRAMED["a length"], seen)))
        front = await stack.enter_async_context(Front(to("api", upstream.url)))
        app = stack.enter_context(socket.create_connection(("127.0.0.1", front.port)))
        app.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(app, request("GET", "/api/", host="127.0.0.1"))
        app.shutdown(socket.SHUT_WR)
        assert PART in await until_reset(app, seen)


async def test_what_came_before_reaches_a_slow_app() -> None:
    """It is in our own buffers, and those of two kernels, when the answer breaks off."""
    size = 300_000
    sent = asyncio.Event()

    async def step(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * size)
        turn.close()
        sent.set()

    loop = asyncio.get_running_loop()
    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front:
        app = socket.socket()
        app.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        app.connect(("127.0.0.1", front.port))
        app.setblocking(False)
        await loop.sock_sendall(app, request("GET", "/api/", host="127.0.0.1"))
        await sent.wait()
        got = await until_reset(app, asyncio.Event())
        assert got.count(b"x") == size
        app.close()


async def test_an_sdk_does_not_take_half_an_item_for_the_whole() -> None:
    """botocore checks no length of what DynamoDB answers, once its connection ends in order."""
    botocore = pytest.importorskip("botocore.session")
    config = pytest.importorskip("botocore.config")
    errors = pytest.importorskip("botocore.exceptions")
    whole = json.dumps({"Item": {"id": {"S": "1"}, "text": {"S": "x" * 5000}}}).encode()
    fields = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n" % len(whole)

    async def step(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(fields + whole[: len(whole) // 2])
        turn.reset()

    def ask(port: int) -> object:
        client = botocore.get_session().create_client(
            "dynamodb",
            region_name="us-east-1",
            endpoint_url=f"http://127.0.0.1:{port}/api",
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=config.Config(retries={"total_max_attempts": 1}, inject_host_prefix=False),
        )
        return client.get_item(TableName="t", Key={"id": {"S": "1"}})

    async with Upstream(step) as upstream, Front(to("api", upstream.url)) as front:
        with pytest.raises((errors.HTTPClientError, errors.BotoCoreError)):
            await asyncio.to_thread(ask, front.port)
        assert len(front.observed.calls) == 1
