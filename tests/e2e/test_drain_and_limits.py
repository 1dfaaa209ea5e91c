"""The end of a process, and its limits: what is promised is kept to the last, and the admin port answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest
from clients import with_aiohttp
from support.process import Redrive
from support.scripted import Turn, Upstream, answer, gated, hang

LISTEN = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: {}\n"


#: What makes the moment longer for which a process that ends waits for one more call.
LONG_MOMENT = """
from proxy.server.late_client import import_aiohttp
import_aiohttp()
from proxy import main
assert main._QUIET < 5.0
main._QUIET = 5.0
"""
SHUT_DOWN = "the proxy shut down, and no longer waited for it"
CUT_SHORT = "the proxy shut down, and no longer waited for its answer: it may have been carried out"


def both(**upstreams: Upstream) -> str:
    lines = [f'  {name}: {{url: "{upstream.url}"}}\n' for name, upstream in upstreams.items()]
    return "upstreams:\n" + "".join(lines)


def config(upstream: Upstream, more: str = "") -> str:
    return f"{more}upstreams:\n  a:\n    url: {upstream.url}\n"


async def stream(turn: Turn) -> None:
    """An answer that begins and does not end."""
    turn.writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
    await turn.reader.read()


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_app_that_shuts_down_itself_still_calls_out(workers: int, tmp_path: Path) -> None:
    """Nothing is in flight at SIGTERM; the app's last calls come one after the other, and are served. Each has to come
    within a moment, which is longer here than a machine stands still.
    """
    (tmp_path / "sitecustomize.py").write_text(LONG_MOMENT)
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(workers), PYTHONPATH=str(tmp_path)) as running,
    ):
        running.signal(signal.SIGTERM)
        assert await running.line(lambda line: line["event"] == "draining")
        for _ in range(5):
            got = await with_aiohttp("GET", f"{running.url}/a/x")
            assert (got.status, got.headers["connection"]) == (200, "close")
        assert await running.ended() == 0
        assert running.lines[-1]["calls_cut"] == 0


@pytest.mark.parametrize("workers", [1, 2])
async def test_streams_and_tunnels_are_cut_when_drain_has_run_out(workers: int, tmp_path: Path) -> None:
    async with (
        Upstream(stream) as upstream,
        Redrive(tmp_path, config(upstream, "drain: 300ms\n"), listen=LISTEN.format(workers)) as running,
        aiohttp.ClientSession() as session,
        session.get(f"{running.url}/a/x") as got,
    ):
        assert await got.content.readany() == b"first"
        host, port = running.authority.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"CONNECT {upstream.authority} HTTP/1.1\r\nHost: {upstream.authority}\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        with pytest.raises(aiohttp.ClientError):
            await got.content.read()
        rest = b""
        with contextlib.suppress(ConnectionResetError):
            rest = await reader.read()
        assert b"HTTP/1.1" not in rest
        writer.close()
        assert (running.lines[-1]["event"], running.lines[-1]["calls_cut"]) == ("ended", 2)
        calls = [line for line in running.lines if line["event"] == "call"]
        assert {(line["method"], line["status"], line["outcome"]) for line in calls} == {
            ("GET", 200, "committed"),
            ("CONNECT", 200, "committed"),
        }
        assert {line["detail"] for line in calls} == {SHUT_DOWN}
        assert {line["history"][-1]["decision"] for line in calls} == {"committed"}


@pytest.mark.parametrize("workers", [1, 2])
async def test_calls_without_an_answer_are_told_when_drain_has_run_out(workers: int, tmp_path: Path) -> None:
    """One flies, one flies while its body is still coming, and one waits for a retry of a 503 that is kept for it."""
    more = "drain: 300ms\ndefaults: {strategy: {kind: standard, backoff: {base: 5m, max: 5m, jitter: none}}}\n"
    async with (
        Upstream(hang) as silent,
        Upstream(answer(503, b"busy")) as busy,
        Redrive(tmp_path, more + both(silent=silent, busy=busy), listen=LISTEN.format(workers)) as running,
    ):
        calls = {
            "silent": asyncio.create_task(with_aiohttp("GET", f"{running.url}/silent/x")),
            "upload": asyncio.create_task(with_aiohttp("POST", f"{running.url}/silent/x", b"x" * 2_000_000)),
            "busy": asyncio.create_task(with_aiohttp("GET", f"{running.url}/busy/x")),
        }
        await silent.until(2)
        async with asyncio.timeout(20):
            while await sample(running, "redrive_waiting_calls") != 1:
                pass
        running.signal(signal.SIGTERM)
        got = {name: await call for name, call in calls.items()}
        assert await running.ended() == 0
        for name, status, detail, later in (("silent", 503, SHUT_DOWN, "1"), ("upload", 502, CUT_SHORT, None)):
            told = json.loads(got[name].body)
            assert (got[name].status, told["outcome"], told["detail"]) == (status, "overloaded", detail)
            assert (got[name].headers.get("retry-after"), got[name].headers["connection"]) == (later, "close")
        assert (got["busy"].status, got["busy"].body) == (503, b"busy")
        lines = [line for line in running.lines if line["event"] == "call"]
        assert sorted((line["status"], line["outcome"]) for line in lines) == [
            (502, "overloaded"),
            *[(503, "overloaded")] * 2,
        ]
        assert {line["history"][-1]["decision"] for line in lines} == {"overloaded"}
        assert running.lines[-1]["calls_cut"] == 3


@pytest.mark.parametrize("before", [0, 1], ids=["the first call", "one that went at once"])
@pytest.mark.parametrize(
    ("policy", "fields", "repeatable"),
    [
        ("", "", False),
        ("dialects: [http, stripe]", "", False),
        ("idempotency_key: {inject: true}", "", False),
        ("dialects: [http, stripe]\n    idempotency_key: {inject: true}", "", False),
        ("classify: {unsafe_methods: never}", "", False),
        ("mode: off", "", False),
        ("strategy: none", "", False),
        ("", "Idempotency-Key: k\r\n", True),
        ("classify: {unsafe_methods: always}", "", True),
        ("dialects: [http, openai]", "", True),
    ],
)
async def test_no_app_is_asked_to_repeat_what_may_have_been_carried_out(
    policy: str, fields: str, repeatable: bool, before: int, tmp_path: Path
) -> None:
    """A POST is in flight when `drain` has run out. Clients repeat any request by a Retry-After, and some by a 503."""
    async with (
        Upstream(*[answer(200)] * before, hang) as upstream,
        Redrive(tmp_path, config(upstream, "drain: 100ms\n") + f"    {policy}\n") as running,
    ):
        for _ in range(before):
            await with_aiohttp("POST", f"{running.url}/a/x", b"abc")
        host, port = running.authority.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"POST /a/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\n{fields}\r\nabc".encode())
        await upstream.until(before + 1)
        running.signal(signal.SIGTERM)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert await running.ended() == 0
        line, *rest = head.decode().lower().split("\r\n")
        told = dict(each.split(": ", 1) for each in rest)
        assert "error=connection_terminated" in told["proxy-status"]
        assert f'"{SHUT_DOWN if repeatable else CUT_SHORT}"'.encode() in body
        asked = told.get("retry-after"), told.get("x-should-retry"), told.get("stripe-should-retry")
        if repeatable:
            assert (line.split()[1], *asked) == ("503", "1", None, None)
        else:
            assert (line.split()[1], *asked) == ("502", None, "false", "false" if "stripe" in policy else None)
        assert len(upstream.requests) == before + 1


# -- limits ----------


async def settled(running: Redrive, calls: int) -> None:
    async with asyncio.timeout(20):
        while json.loads((await with_aiohttp("GET", f"{running.admin}/readyz?verbose")).body)["in_flight"] != calls:
            pass


async def sample(running: Redrive, name: str) -> float:
    text = (await with_aiohttp("GET", f"{running.admin}/metrics")).body.decode()
    (line,) = (line for line in text.splitlines() if line.startswith(f"{name} "))
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize("workers", [1, 2])
async def test_few_file_descriptors(workers: int, tmp_path: Path) -> None:
    """A hundred and sixty open files, and a thousand connections: those that there is room for are served, others are
    told or closed, the process stays up, and the admin port answers.
    """
    few = ("sh", "-c", 'ulimit -n 160; exec "$@"', "sh", sys.executable, "-m", "proxy")
    async with (
        Upstream(hang) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(workers), command=few) as running,
    ):
        told = await running.line(lambda line: line["event"] == "limits")
        assert told is not None
        enough = told["connections"]
        assert told["open_files"] == 160
        calls = [asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x")) for _ in range(enough)]
        await upstream.until(enough // 2)
        host, port = running.authority.split(":")
        idle = []
        for _ in range(1000):
            sock = socket.socket()
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect((host, int(port)))
            idle.append(sock)
        for _ in range(5):
            assert (await with_aiohttp("GET", f"{running.admin}/readyz")).status == 200
        assert await sample(running, 'redrive_limit{of="connections"}') == enough
        assert await sample(running, 'redrive_limit{of="open_files"}') == 160 * workers
        assert await sample(running, "redrive_open_files") > enough
        for sock in idle:
            sock.close()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await settled(running, 0)
        upstream.steps = [answer(200)]

        async def served() -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                return (await with_aiohttp("GET", f"{running.url}/a/x")).status == 200
            return False

        async with asyncio.timeout(20):
            while not await served():
                pass


async def test_admin_and_probe_take_no_descriptors_of_calls(tmp_path: Path) -> None:
    few = ("sh", "-c", 'ulimit -n 160; exec "$@"', "sh", sys.executable, "-m", "proxy")
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream, "probe: 127.0.0.1:0\n"), command=few) as running,
    ):
        idle = []
        for authority in (running.ready["admin"][0], running.ready["probe"][0]):
            host, port = authority.split(":")
            for _ in range(500):
                sock = socket.socket()
                sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    sock.connect((host, int(port)))
                idle.append(sock)
            assert (await with_aiohttp("GET", f"{running.admin}/readyz")).status == 200
            assert (await with_aiohttp("GET", f"{running.url}/a/x")).status == 200
        assert await sample(running, "redrive_open_files") < 64
        for sock in idle:
            sock.close()


async def test_too_many_connections_are_told(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with (
        Upstream(gated(go, b"", answer(200))) as upstream,
        Redrive(tmp_path, config(upstream, "limits: {connections: 2}\n")) as running,
    ):
        calls = [asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x")) for _ in range(2)]
        await upstream.until(2)
        refused = await with_aiohttp("GET", f"{running.url}/a/x")
        assert (refused.status, refused.headers["connection"]) == (503, "close")
        body = json.loads(refused.body)
        assert (body["outcome"], body["detail"]) == ("overloaded", "too many connections are open")
        assert await sample(running, 'redrive_connections{protocol="http/1.1",side="app"}') == 2
        go.set()
        assert [each.status for each in await asyncio.gather(*calls)] == [200, 200]


async def test_no_room_to_wait(tmp_path: Path) -> None:
    more = (
        "limits: {waiting: 1}\n"
        "defaults: {strategy: {kind: standard, backoff: {base: 1h, max: 1h, jitter: none}}, timeouts: {total: off}}\n"
    )
    async with Upstream(answer(503)) as upstream, Redrive(tmp_path, config(upstream, more)) as running:
        first = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await upstream.until(1)
        async with asyncio.timeout(20):
            while await sample(running, "redrive_waiting_calls") != 1:
                pass
        refused = await with_aiohttp("GET", f"{running.url}/a/x")
        assert refused.status == 503
        assert (await running.call())["outcome"] == "overloaded"
        assert await sample(running, 'redrive_limit{of="waiting_calls"}') == 1
        assert (await with_aiohttp("GET", f"{running.admin}/readyz")).status == 200
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_no_room_to_keep_a_body_streams_it(tmp_path: Path) -> None:
    """Contract, section 4: never a 507. The call goes on in one attempt."""
    more = "buffers: {per_request: 64KiB, total: 64KiB}\n"
    async with Upstream(answer(503)) as upstream, Redrive(tmp_path, config(upstream, more)) as running:
        got = await with_aiohttp("PUT", f"{running.url}/a/x", b"x" * 100_000)
        assert (got.status, got.headers["x-attempt-count"]) == (503, "1")
        assert await sample(running, "redrive_buffered_bytes") == 0
        assert await sample(running, 'redrive_limit{of="buffered_bytes"}') == 65536


@pytest.mark.parametrize("workers", [1, 2])
async def test_each_call_within_the_limit_gets_a_descriptor_for_its_upstream(workers: int, tmp_path: Path) -> None:
    """Three hundred at once. Each call that is let in is served, since a descriptor is kept for its upstream connection
    while those that are too many are refused.
    """
    few = ("sh", "-c", 'ulimit -n 160; exec "$@"', "sh", sys.executable, "-m", "proxy")
    go = asyncio.Event()
    async with (
        Upstream(gated(go, b"", answer(200))) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(workers), command=few) as running,
    ):
        told = await running.line(lambda line: line["event"] == "limits")
        assert told is not None
        host, port = running.authority.split(":")
        request = f"GET /a/x HTTP/1.1\r\nHost: {running.authority}\r\nConnection: close\r\n\r\n".encode()

        refused, refused_all = itertools.count(told["connections"] * workers + 1), asyncio.Event()

        async def call() -> bytes:
            answered = await exchange()
            if not answered.endswith(b"200") and next(refused) == 300:
                refused_all.set()
            return answered

        async def exchange() -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(request)
                return await reader.read(12)
            except ConnectionResetError:
                return b"closed"
            finally:
                writer.close()

        calls = [asyncio.create_task(call()) for _ in range(300)]
        await refused_all.wait()
        go.set()
        answers = [await each for each in calls]
        assert answers.count(b"HTTP/1.1 200") == told["connections"] * workers
