"""An outage over several processes: one meets it, all hold their calls, and one of them probes at a time, even if the
one that did is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest
from clients import with_aiohttp
from support.capacity import CapacityServer
from support.process import Redrive
from support.scripted import Turn, Upstream, answer, reset
from test_workers import LISTEN, PATIENT, SECONDS, config, ended, metrics, patient, until, workers_of

POLICY = "upstreams:\n  a:\n    url: {}\n    pushback: {{hold: 60s}}\n"


async def ask(running: Redrive) -> tuple[int, int]:
    """The status of a call on a connection of its own, and how many attempts it took; (0, 0) if it broke."""
    try:
        got = await with_aiohttp("GET", f"{running.url}/a/x")
    except (OSError, asyncio.IncompleteReadError):
        return 0, 0
    except Exception as broken:
        if type(broken).__module__.startswith("aiohttp"):
            return 0, 0
        raise
    return got.status, int(got.headers["x-attempt-count"])


async def hold(running: Redrive, calls: int) -> None:
    """Wait until that many calls are held by an outage."""

    async def are_held() -> bool:
        return (await metrics(running))("redrive_held_calls", upstream="a", by="outage") == calls

    await until(are_held)


def owner_of(port: int, to: int, pids: set[int]) -> int:
    """The process whose connection comes from this local port and goes to that one."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = f":{port:04X}", f":{to:04X}"
    (inode,) = {row[9] for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1])} - {"0"}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # a descriptor may be closed between the list and the look
                if os.readlink(descriptor) == f"socket:[{inode}]":
                    return pid
    raise AssertionError("no worker has this connection")


async def test_an_outage_that_one_worker_meets_is_one_of_all(tmp_path: Path) -> None:
    async with (
        CapacityServer(places=100, seconds=0.0) as upstream,
        Redrive(tmp_path, POLICY.format(upstream.url), listen=LISTEN.format(4)) as running,
    ):
        assert await asyncio.gather(*(ask(running) for _ in range(60))) == [(200, 1)] * 60
        await upstream.stop()
        first = asyncio.create_task(ask(running))
        await hold(running, 1)
        others = [asyncio.create_task(ask(running)) for _ in range(40)]
        await hold(running, 41)
        await upstream.start()
        async with asyncio.timeout(SECONDS):
            told = await asyncio.gather(first, *others)
        assert [status for status, _ in told] == [200] * 41
        assert sum(attempts > 1 for _, attempts in told) <= 5  # the first one's, and whoever probed in each worker
        counted = await metrics(running)
        assert counted("redrive_calls_total", code_class="2xx") == 101


async def test_another_worker_probes_when_the_one_that_does_is_killed(tmp_path: Path) -> None:
    async with (
        CapacityServer(places=100, seconds=0.0) as upstream,
        Redrive(tmp_path, POLICY.format(upstream.url), listen=LISTEN.format(3)) as running,
    ):
        assert await asyncio.gather(*(ask(running) for _ in range(60))) == [(200, 1)] * 60
        await upstream.stop()
        calls = [asyncio.create_task(ask(running))]
        await hold(running, 1)
        calls += [asyncio.create_task(ask(running)) for _ in range(40)]
        await hold(running, 41)
        came: asyncio.Queue[int] = asyncio.Queue()
        silent = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await reader.readuntil(b"\r\n\r\n")
            came.put_nowait(writer.get_extra_info("peername")[1])
            await silent.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            writer.close()

        server = await asyncio.start_server(hang, sock=upstream.take_port())
        async with asyncio.timeout(SECONDS):
            victim = owner_of(await came.get(), upstream.port, workers_of(running.pid))
            assert came.empty()
            os.kill(victim, signal.SIGKILL)
            await ended({victim})
            assert owner_of(await came.get(), upstream.port, workers_of(running.pid)) != victim
        silent.set()  # the upstream is well from now on: a refused connection could be the last attempt of a call
        async with asyncio.timeout(SECONDS):
            told = await asyncio.gather(*calls)
        server.close()
        others = [line for line in running.lines if line["event"] == "call" and line["status"] != 200]
        assert {status for status, _ in told} <= {0, 200}, others  # those of the killed one have broken
        assert sum(status == 200 for status, _ in told) >= 10


@pytest.mark.parametrize("workers", [1, 4])
async def test_five_attempts_without_an_answer_begin_an_outage_whichever_workers_made_them(
    tmp_path: Path, workers: int
) -> None:
    """One call was served, by one worker. The next ones are reset, each on a connection of its own, 30 ms after it."""

    async def resets(turn: Turn) -> None:
        await turn.read_body()
        await asyncio.sleep(0.03)  # five take more than a tenth of a second
        turn.reset()

    well = answer(200, b"ok", "Connection: close")  # what breaks on a connection of before is sent again at once
    async with Upstream(well) as upstream:
        text = config(upstream, PATIENT, patient(1))
        async with Redrive(tmp_path, text, listen=LISTEN.format(workers)) as running:
            assert await ask(running) == (200, 1)
            upstream.steps = (resets,)
            for _ in range(5):
                assert await ask(running) == (502, 1)
            began = await running.line(lambda line: line.get("event") == "outage_began")
            assert (began["why"], began["ended"], began["of"]) == ("lost", {"reset": 5}, 5)
            assert len(upstream.requests) == 6
            upstream.steps = (well,)
            assert await ask(running) == (200, 1)  # it was held, and was the probe
            event = await running.line(lambda line: line.get("event") == "outage_over")
            assert event["why"] == "answered"
            assert len([line for line in running.lines if line.get("event") == "outage_began"]) == 1


async def test_an_outage_that_would_have_begun_is_logged_once_and_shown(tmp_path: Path) -> None:
    """Under `mode: observe`: both workers meet it, and no call is held."""
    async with Upstream(answer(200, b"ok")) as upstream:
        text = config(upstream, "    mode: observe\n")
        async with Redrive(tmp_path, text, listen=LISTEN.format(2)) as running:
            assert [(await ask(running))[0] for _ in range(6)] == [200] * 6
            upstream.steps = (reset,)
            told = asyncio.create_task(running.line(lambda line: line.get("event") == "outage_began"))
            statuses: set[int] = set()
            async with asyncio.timeout(SECONDS):
                while not told.done():
                    statuses.add((await ask(running))[0])
            began = await told
            assert began is not None
            assert (began["observed"], began["why"], began["upstream"]) == (True, "lost", "a")
            assert statuses == {502}

            async def shown() -> bool:
                counted = await metrics(running)
                return counted("redrive_outage", upstream="a") == 1 and counted("redrive_held_calls", upstream="a") == 0

            await until(shown)


async def test_places_of_a_killed_worker_come_back(tmp_path: Path) -> None:
    """Calls return from an outage by a limit. The worker that has its place is killed: the others' calls go on."""
    async with (
        CapacityServer(places=100, seconds=0.0) as upstream,
        Redrive(tmp_path, POLICY.format(upstream.url), listen=LISTEN.format(3)) as running,
    ):
        assert await asyncio.gather(*(ask(running) for _ in range(60))) == [(200, 1)] * 60
        await upstream.stop()
        calls = [asyncio.create_task(ask(running))]
        await hold(running, 1)
        calls += [asyncio.create_task(ask(running)) for _ in range(40)]
        await hold(running, 41)
        came: asyncio.Queue[int] = asyncio.Queue()
        ends = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            is_probe = came.empty()
            came.put_nowait(writer.get_extra_info("peername")[1])
            if not is_probe:
                await ends.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            writer.close()

        server = await asyncio.start_server(serve, sock=upstream.take_port())
        async with asyncio.timeout(SECONDS):
            while came.qsize() < 2:  # noqa: ASYNC110 - what other processes do sets no event here
                await asyncio.sleep(0.01)
            came.get_nowait()
            victim = owner_of(came.get_nowait(), upstream.port, workers_of(running.pid))
            limited = (await metrics(running))("redrive_concurrency_limit", upstream="a")
            assert limited < float("inf")
            os.kill(victim, signal.SIGKILL)
            await ended({victim})
            before = came.qsize()
            while came.qsize() == before:  # noqa: ASYNC110 - another worker is given the place
                await asyncio.sleep(0.01)
        server.close()
        ends.set()
        await upstream.start()
        async with asyncio.timeout(SECONDS):
            told = await asyncio.gather(*calls)
        others = [line for line in running.lines if line["event"] == "call" and line["status"] != 200]
        assert {status for status, _ in told} <= {0, 200}, others  # those of the killed one have broken
        assert sum(status == 200 for status, _ in told) >= 10
        await hold(running, 0)
        async with asyncio.timeout(SECONDS):
            assert (await ask(running))[0] == 200


@pytest.mark.parametrize("workers", [1, 4])
async def test_three_refusals_begin_a_limit_whichever_workers_met_them(tmp_path: Path, workers: int) -> None:
    """All is well; then each call is refused, with no delay. As many reach the upstream as with one worker."""
    well, refused = answer(200, b"ok"), answer(503)
    async with Upstream(well) as upstream:
        text = config(upstream, PATIENT, patient(1))
        async with Redrive(tmp_path, text, listen=LISTEN.format(workers)) as running:
            assert [await ask(running) for _ in range(20)] == [(200, 1)] * 20
            upstream.steps = (refused,)
            assert [await ask(running) for _ in range(3)] == [(503, 1)] * 3
            began = await running.line(lambda line: line.get("event") == "limit_began")
            assert (began["why"], began["ended"], began["of"]) == ("refused", {"503": 3}, 10)
            assert len(upstream.requests) == 23
