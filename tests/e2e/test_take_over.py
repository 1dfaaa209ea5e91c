"""A successor takes over the listeners of the redrive that serves, or of a service manager, and no call fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from clients import with_aiohttp
from support.grpc_peer import GrpcServer
from support.ports import free_port
from support.process import Redrive, redrive
from support.scripted import Upstream, answer, gated
from test_grpc import POLICY as GRPC
from test_workers import LISTEN, config, workers_of

from proxy.config.load import load
from proxy.take_over import Predecessor, names, predecessor

CALLERS, CALLS = 16, 2000
#: Seconds that two thousand calls may take. They need some twelve seconds of processor time: three minutes, if two
#: processors have thirty processes.
SECONDS_FOR_ALL = 900.0
TAKE_OVER = ("--take-over",)

pytestmark = pytest.mark.timeout(SECONDS_FOR_ALL)


@contextlib.asynccontextmanager
async def successor(before: Redrive, folder: Path, text: str, listen: str, *more: str) -> AsyncIterator[Redrive]:
    """The process that has taken over from `before`, whose end it waits for."""
    async with Redrive(folder, text, listen=listen, arguments=more or TAKE_OVER) as after:
        line = await after.line(lambda line: line["event"] == "took_over")
        assert line is not None
        assert line["predecessor"] == before.pid
        yield after


async def event(running: Redrive, name: str) -> dict[str, Any]:
    line = await running.line(lambda line: line["event"] == name)
    assert line is not None, running.errors
    return line


async def calls_of(call: Callable[[int, int], Awaitable[Any]], begun: asyncio.Event) -> Counter[Any]:
    """The results of so many calls by so many callers: `call` is given the caller and the call. The event is set when a
    fifth of them is over.
    """
    left, results = iter(range(CALLS)), Counter[Any]()

    async def caller(who: int) -> None:
        for number in left:
            results[await call(who, number)] += 1
            if results.total() >= CALLS // 5:
                begun.set()

    await asyncio.gather(*map(caller, range(CALLERS)))
    return results


@pytest.mark.parametrize("workers", [1, 2])
async def test_no_call_of_two_thousand_fails(tmp_path: Path, workers: int) -> None:
    """HTTP/1 on connections that are kept, by a client that repeats nothing by itself."""
    listen, begun = LISTEN.format(workers), asyncio.Event()
    async with (
        Upstream(answer(200, b"whole")) as upstream,
        httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=CALLERS)) as client,
        Redrive(tmp_path, config(upstream), listen=listen) as before,
    ):

        async def call(_: int, number: int) -> Any:
            try:
                return (await client.get(f"{before.url}/a/{number}")).status_code
            except httpx.HTTPError as error:
                return repr(error)

        calls = asyncio.create_task(calls_of(call, begun))
        await begun.wait()
        async with successor(before, tmp_path, config(upstream), listen) as after:
            assert await before.ended() == 0
            assert await calls == {200: CALLS}
            assert after.ready["listen"] == before.ready["listen"]
            assert after.ready["admin"] == before.ready["admin"]
            assert (await with_aiohttp("GET", f"{after.url}/a/x")).status == 200
            assert (await with_aiohttp("GET", f"{after.admin}/readyz")).status == 200
            assert len(workers_of(after.pid)) == (workers if workers > 1 else 0)
            assert (await event(before, "ended"))["calls_cut"] == 0


@pytest.mark.parametrize("workers", [1, 2])
async def test_no_call_of_two_thousand_fails_on_http2(tmp_path: Path, workers: int) -> None:
    """HTTP/2, as gRPC's own client speaks it. By default it sends again what had not left it when GOAWAY came."""
    listen, begun = LISTEN.format(workers), asyncio.Event()
    with GrpcServer() as server, ThreadPoolExecutor(CALLERS) as threads:
        text = GRPC.format(port=server.port)
        async with Redrive(tmp_path, text, listen=listen) as before:
            options = [("grpc.default_authority", "greeter.test"), ("grpc.use_local_subchannel_pool", 1)]
            channels = [grpc.insecure_channel(before.authority, options) for _ in range(CALLERS // 2)]
            echoes = [channel.unary_unary("/acme.Echo/echo") for channel in channels]  # two callers a connection

            def echo(who: int, number: int) -> Any:
                try:
                    return echoes[who % len(echoes)](b"hello", timeout=60, metadata=(("key", f"{number}"),))
                except grpc.RpcError as error:
                    return str(error)

            async def call(who: int, number: int) -> Any:
                return await asyncio.get_running_loop().run_in_executor(threads, echo, who, number)

            calls = asyncio.create_task(calls_of(call, begun))
            await begun.wait()
            async with successor(before, tmp_path, text, listen):
                assert await before.ended() == 0
                assert await calls == {b"hello": CALLS}
                assert (await event(before, "ended"))["calls_cut"] == 0
            for channel in channels:
                channel.close()


@pytest.mark.parametrize(("first", "then"), [(1, 3), (3, 1), (2, 3)])
async def test_the_number_of_workers_may_change(tmp_path: Path, first: int, then: int) -> None:
    """Twice in a row, since what was taken over is passed on too; every socket is accepted on."""
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(first)) as one,
        successor(one, tmp_path, config(upstream), LISTEN.format(then)) as two,
        successor(two, tmp_path, config(upstream), LISTEN.format(first)) as three,
    ):
        assert (await one.ended(), await two.ended()) == (0, 0)
        got = await asyncio.gather(*(with_aiohttp("GET", f"{one.url}/a/x") for _ in range(40)))
        assert {each.status for each in got} == {200}
        assert three.url == one.url


async def test_calls_in_flight_end_where_they_began(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with (
        Upstream(gated(go, b"", answer(200, b"late"))) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(1)) as before,
    ):
        call = asyncio.create_task(with_aiohttp("GET", f"{before.url}/a/x"))
        await upstream.until(1)
        async with successor(before, tmp_path, config(upstream), LISTEN.format(1)):
            await event(before, "draining")
            go.set()
            assert (await call).body == b"late"
            assert await before.ended() == 0
            assert (await event(before, "ended"))["calls_cut"] == 0


async def test_every_listener_goes_over(tmp_path: Path) -> None:
    """The probe and unix sockets too; an address that the new configuration names elsewhere is bound anew."""
    old, new = tmp_path / "old.sock", tmp_path / "new.sock"
    listen = "listen: [127.0.0.1:0, 'unix:{0}']\nadmin: 'unix:{1}'\nprobe: 127.0.0.1:0\n"
    admin, further = tmp_path / "admin.sock", free_port()
    changed = f"listen: [127.0.0.1:0, 'unix:{new}', 127.0.0.1:{further}]\nadmin: 'unix:{admin}'\nprobe: 127.0.0.1:0\n"

    async def status(path: Path, page: str) -> int:
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path))) as client:
            return (await client.get(f"http://localhost{page}")).status_code

    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream), listen=listen.format(old, admin)) as before,
    ):
        inode = admin.stat().st_ino
        async with successor(before, tmp_path, config(upstream), changed) as after:
            assert await before.ended() == 0
            assert after.ready["listen"][0] == before.ready["listen"][0]
            assert after.ready["probe"] == before.ready["probe"]
            assert admin.stat().st_ino == inode
            assert await status(admin, "/livez") == 200
            assert await status(new, "/a/x") == 200
            assert (await with_aiohttp("GET", f"http://127.0.0.1:{further}/a/x")).status == 200
            with pytest.raises(httpx.ConnectError):
                await status(old, "/a/x")


async def test_a_successor_that_can_not_serve_changes_nothing(tmp_path: Path) -> None:
    """Its configuration is refused, or it can't listen; the process before it serves on, and may be replaced later."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"
        async with Upstream(answer(200)) as upstream, Redrive(tmp_path, config(upstream), listen=listen) as before:
            good = before.file.read_text()
            bad = tmp_path / "bad.yaml"
            bad.write_text(good + "nonsense: 1\n")
            at = f"{before.file}"
            assert (await redrive("run", "--take-over", "-c", str(bad)))[0] == 2
            before.file.write_text(f"{good}probe: 127.0.0.1:{taken.getsockname()[1]}\n")
            status, _, errors = await redrive("run", "--take-over", "-c", at)
            assert (status, "the port is in use" in errors) == (2, True)
            assert (await event(before, "kept"))["event"] == "kept"
            assert (await with_aiohttp("GET", f"{before.url}/a/x")).status == 200
            assert (await with_aiohttp("GET", f"{before.admin}/readyz")).status == 200
            async with successor(before, tmp_path, config(upstream), listen):
                assert await before.ended() == 0


async def test_a_successor_that_dies_half_way_changes_nothing(tmp_path: Path) -> None:
    listen = LISTEN.format(2)
    async with Upstream(answer(200)) as upstream, Redrive(tmp_path, config(upstream), listen=listen) as before:
        asked = await asyncio.to_thread(offered_by, before)
        assert [each.what for each in asked.sockets] == ["listen", "listen", "admin"]
        # Meanwhile a second successor is refused.
        status, _, errors = await redrive("run", "--take-over", "-c", str(before.file))
        assert (status, "another process is taking over" in errors) == (1, True)
        drop(asked)
        await event(before, "kept")
        got = await asyncio.gather(*(with_aiohttp("GET", f"{before.url}/a/x") for _ in range(20)))
        assert {each.status for each in got} == {200}
        async with successor(before, tmp_path, config(upstream), listen):
            assert await before.ended() == 0


def offered_by(running: Redrive) -> Predecessor:
    """The listeners of a running redrive, as a successor asks for them."""
    settings = load(str(running.file), {}).settings
    assert settings is not None
    found = predecessor(names("", str(running.file), settings))
    assert found is not None
    assert found.pid == running.pid
    return found


def drop(asked: Predecessor) -> None:
    """End the conversation, as a process that dies does."""
    for each in asked.sockets:
        each.sock.close()
    asked._peer.sock.close()


async def test_a_process_that_drains_gives_nothing(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with (
        Upstream(gated(go, b"", answer(200))) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(1)) as before,
    ):
        call = asyncio.create_task(with_aiohttp("GET", f"{before.url}/a/x"))
        await upstream.until(1)
        assert (await with_aiohttp("POST", f"{before.admin}/drain")).status == 202
        status, _, errors = await redrive("run", "--take-over", "-c", str(before.file))
        assert (status, "refuses: it is draining" in errors) == (1, True)
        go.set()
        assert (await call).status == 200


async def test_the_first_one_starts_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "handover.sock"
    arguments = ("--take-over", str(path))
    async with Upstream(answer(200)) as upstream:
        async with Redrive(tmp_path, config(upstream), arguments=arguments) as before:
            assert (await with_aiohttp("GET", f"{before.url}/a/x")).status == 200
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            listen = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"
            async with successor(before, tmp_path, config(upstream), listen, *arguments) as after:
                assert await before.ended() == 0
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                async with successor(after, tmp_path, config(upstream), listen, *arguments):
                    assert await after.ended() == 0
        # The file of a dead process is replaced.
        async with Redrive(tmp_path, config(upstream), arguments=arguments) as again:
            assert (await with_aiohttp("GET", f"{again.url}/a/x")).status == 200
            assert not any(line["event"] == "took_over" for line in again.lines)


#: A successor of another user, who may not read where Python and redrive are: all is imported before.
AS_ANOTHER_USER = """
import os, sys
from proxy.take_over import predecessor
os.setgroups([])
os.setresgid(65532, 65532, 65532)
os.setresuid(65532, 65532, 65532)
predecessor([sys.argv[1]])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_another_user_gets_nothing(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # which the other user can be let into
        os.chmod(folder, 0o711)
        path = f"{folder}/handover.sock"
        async with (
            Upstream(answer(200)) as upstream,
            Redrive(tmp_path, config(upstream), arguments=("--take-over", path)) as before,
        ):
            os.chmod(path, 0o666)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", AS_ANOTHER_USER, path, stderr=asyncio.subprocess.PIPE
            )
            _, errors = await process.communicate()
            assert b"belongs to user 0" in errors, errors
            assert (await with_aiohttp("GET", f"{before.url}/a/x")).status == 200


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="needs systemd-socket-activate")
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_service_manager_s_sockets_are_served(tmp_path: Path, workers: int) -> None:
    """The manager listens before the process starts, so that no connection is refused."""
    port, unused, admin = free_port(), free_port(), free_port()
    listen = f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\nworkers: {workers}\n"
    command = ["systemd-socket-activate", f"--listen=127.0.0.1:{port}", f"--listen=127.0.0.1:{unused}"]
    async with (
        Upstream(answer(200)) as upstream,
        activated(tmp_path, config(upstream), listen, command, port) as running,
    ):
        got = await asyncio.gather(*(with_aiohttp("GET", f"http://127.0.0.1:{port}/a/x") for _ in range(20)))
        assert {each.status for each in got} == {200}
        assert (await event(running, "inherited"))["unused"] == [f"127.0.0.1:{unused}"]
        assert (await with_aiohttp("GET", f"http://127.0.0.1:{admin}/readyz")).status == 200
        assert len(workers_of(running.ready["pid"])) == (workers if workers > 1 else 0)


@contextlib.asynccontextmanager
async def activated(folder: Path, text: str, listen: str, command: Sequence[str], port: int) -> AsyncIterator[Redrive]:
    """A redrive that a service manager starts when the first connection comes."""
    running = Redrive(folder, text, listen=listen, command=(*command, sys.executable, "-m", "proxy"))

    async def knock() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.01)

    knocking = asyncio.create_task(knock())
    async with running:
        await knocking
        yield running
