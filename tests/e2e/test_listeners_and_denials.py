"""The running command: defaults by listener, and a deny list that is loaded anew, in one process and in several."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from support.process import Redrive
from support.scripted import Upstream, answer

LISTEN = "listen: ['127.0.0.1:0', '0.0.0.0:0']\nadmin: 127.0.0.1:0\nworkers: {}\n"


async def status(running: Redrive, listener: int, line: str) -> int:
    """The status of a raw request by one of the listeners, reached by 127.0.0.1 each."""
    port = int(running.ready["listen"][listener].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    host = line.split(" ")[1].removeprefix("http://").strip("/")
    writer.write(f"{line} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    found = int((await reader.readuntil(b"\r\n\r\n"))[9:12])
    writer.transport.abort()
    return found


@pytest.mark.parametrize("workers", [1, 2])
async def test_defaults_are_those_of_the_listener_that_a_call_came_in_by(tmp_path: Path, workers: int) -> None:
    async with (
        Upstream(answer(200, b"ok")) as upstream,
        Redrive(tmp_path, "", listen=LISTEN.format(workers)) as running,
    ):
        for _ in range(2 * workers):  # each worker has its turn, most likely
            assert await status(running, 0, f"GET {upstream.url}/") == 200
            assert await status(running, 0, f"CONNECT {upstream.authority}") == 200
            assert await status(running, 1, f"GET {upstream.url}/") == 403
            assert await status(running, 1, f"CONNECT {upstream.authority}") == 403
        running.file.write_text(LISTEN.format(workers) + "unmatched: forward\n")
        await running.line(lambda line: line["event"] == "reload" and line["result"] == "success")
        assert await status(running, 0, f"GET {upstream.url}/") == 200
        assert await status(running, 1, f"GET {upstream.url}/") == 403  # loopback, by a listener off it


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_deny_list_holds_for_calls_that_start_after_it(tmp_path: Path, workers: int) -> None:
    """Steady traffic keeps connections warm; after POST /reload not one more call goes out on them."""
    listen = f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: {workers}\n"
    async with Upstream(answer(200, b"ok")) as upstream, Redrive(tmp_path, "", listen=listen) as running:
        target = f"http://localhost:{upstream.port}/"
        over, reloaded = asyncio.Event(), asyncio.Event()
        seen: dict[bool, list[int]] = {False: [], True: []}  # by whether the call began after the reload

        async def keep_calling() -> None:
            async with aiohttp.ClientSession() as session:
                while not over.is_set():
                    late = reloaded.is_set()
                    async with session.get(target, proxy=running.url) as reply:
                        seen[late].append(reply.status)

        callers = [asyncio.create_task(keep_calling()) for _ in range(8)]
        await upstream.until(200)
        running.file.write_text(listen + "deny_destinations: [127.0.0.0/8, '::1/128']\n")
        async with aiohttp.ClientSession() as session, session.post(f"{running.admin}/reload") as reply:
            assert reply.status == 200
        reloaded.set()
        went_out = len(upstream.requests)
        while len(seen[True]) < 200:
            await asyncio.wait(callers, timeout=0.01)
        over.set()
        await asyncio.gather(*callers)
        assert set(seen[False]) <= {200, 403}  # those in flight at the reload end as they began
        assert set(seen[True]) == {403}
        assert len(upstream.requests) <= went_out + len(callers)
