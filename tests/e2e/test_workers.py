"""Several processes on one port: they share what calls share, and one that dies takes nothing with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from clients import with_aiohttp
from prometheus_client.parser import text_string_to_metric_families
from support.forked import forked_workers_of
from support.process import Redrive, redrive
from support.scripted import Upstream, answer, gated, hang

SECONDS = 120.0  # what hangs is told apart from what is slow on a busy machine
LISTEN = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: {}\n"


PATIENT = "    strategy: patient\n"


def patient(attempts: int) -> str:
    return f"strategies: {{patient: {{kind: standard, max_attempts: {attempts}, backoff: {{base: 0s}}}}}}\n"


def config(upstream: Upstream, more: str = "", top: str = "") -> str:
    return f"{top}upstreams:\n  a:\n    url: {upstream.url}\n{more}"


def workers_of(parent: int) -> set[int]:
    """The processes that the parent has begun, and that are no zombies."""
    found = forked_workers_of(parent)
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found.add(int(child))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Ask again until it is so, with a deadline."""
    async with asyncio.timeout(SECONDS):
        while not await reached():  # noqa: ASYNC110 - what other processes do sets no event here
            await asyncio.sleep(0.01)


async def ended(pids: set[int]) -> None:
    async def none_is_left() -> bool:
        return not any(is_alive(pid) for pid in pids)

    await until(none_is_left)


class Counted:
    """Samples of /metrics, added up over the labels that are not asked for."""

    def __init__(self, text: str) -> None:
        self.samples = [each for family in text_string_to_metric_families(text) for each in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        found = [each for each in self.samples if each.name == name and labels.items() <= each.labels.items()]
        return sum(each.value for each in found)


async def metrics(running: Redrive) -> Counted:
    return Counted((await with_aiohttp("GET", f"{running.admin}/metrics")).body.decode())


async def show(running: Redrive, page: str) -> Any:
    return json.loads((await with_aiohttp("GET", f"{running.admin}/{page}")).body)


async def test_calls_are_spread_and_everything_adds_up(tmp_path: Path) -> None:
    """Each call on a connection of its own, so that both workers get some; all retries are paid from one bucket."""
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, config(upstream, PATIENT, patient(3)), listen=LISTEN.format(2)) as running,
    ):
        assert len(workers_of(running.pid)) == 2
        calls = 40
        got = await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/{n}") for n in range(calls)))
        assert {each.status for each in got} == {503}
        (bucket,) = (await show(running, "buckets"))["buckets"]
        assert bucket["level"] == 500 - 5 * 2 * calls
        counted = await metrics(running)
        assert counted("redrive_calls_total", code_class="5xx") == calls
        assert counted("redrive_attempts_total", result="transient") == 3 * calls
        assert counted("redrive_bucket_level", bucket="a/patient") == bucket["level"]
        assert counted("redrive_workers", state="ready") == 2
        requests = await show(running, "requests")
        assert requests["seen"] == calls
        assert sorted(call["path"] for call in requests["requests"]) == sorted(f"/a/{n}" for n in range(calls))
        assert [call["number"] for call in requests["requests"]] == list(range(calls, 0, -1))
        assert all(len(call["history"]) == 3 for call in requests["requests"])
        assert (await show(running, "upstreams"))["upstreams"][0]["calls"] == calls
        logged = [await running.call(number + 1) for number in range(calls)]
        assert sorted(line["path"] for line in logged) == sorted(f"/a/{n}" for n in range(calls))


async def test_a_cooldown_and_an_app_s_own_retry_are_known_to_all(tmp_path: Path) -> None:
    more = "    pushback: {cooldown: reject}\n    strategy: none\n    bucket: {kind: quota}\n"
    slow = answer(429, b"", "Retry-After: 30")
    async with (
        Upstream(answer(200), answer(200), slow, answer(200)) as upstream,
        Redrive(tmp_path, config(upstream, more), listen=LISTEN.format(3)) as running,
    ):
        for _ in range(2):
            async with (
                aiohttp.ClientSession(headers={"Idempotency-Key": "k"}) as session,
                session.get(f"{running.url}/a/x") as got,
            ):
                assert got.status == 200
        assert (await metrics(running))("redrive_app_retries_total") == 1
        assert (await with_aiohttp("GET", f"{running.url}/a/x?card=4242")).status == 429
        event = await running.line(lambda line: line["event"] == "cooldown_began")
        assert (event["upstream"], event["status"], event["field"], event["seconds"]) == ("a", 429, "retry-after", 30.0)
        held = await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/x") for _ in range(20)))
        assert {each.status for each in held} == {429}
        assert len(upstream.requests) == 3
        counted = await metrics(running)
        assert counted("redrive_cooldown_seconds", upstream="a") > 25
        assert counted("redrive_cooldowns_total", upstream="a") == 1
        (row,) = (await show(running, "upstreams"))["upstreams"]
        began = row["cooldown"]
        assert {name: began[name] for name in ("status", "field", "holds", "method", "path", "attempt", "seconds")} == {
            "status": 429,
            "field": "retry-after",
            "holds": "callers without a credential",
            "method": "GET",
            "path": "/a/x?card=***",
            "attempt": 1,
            "seconds": 30.0,
        }
        assert began["worker"] in workers_of(running.pid)
        assert began["endpoint"] == upstream.authority
        assert row["attempts_per_call"] == 1.0  # of the calls that were held nothing was sent
        assert (await show(running, "series?name=a"))["cooldowns"] == [began]


async def test_a_killed_worker_is_replaced_and_nothing_else_is_lost(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, config(upstream, PATIENT, patient(3)), listen=LISTEN.format(2)) as running,
    ):
        for _ in range(10):
            await with_aiohttp("GET", f"{running.url}/a/x")
        before = await metrics(running)
        for restarts in (1, 2, 3):
            victim = min(workers_of(running.pid))
            os.kill(victim, signal.SIGKILL)
            event = await running.line(lambda line: line["event"] == "worker" and line["pid"] == victim)  # noqa: B023
            assert event is not None
            assert event["ended"] == "killed by SIGKILL"
            # Its sockets are accepted on by the other one, or wait for its successor: no call fails.
            got = await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/x") for _ in range(10)))
            assert {each.status for each in got} == {503}

            async def is_whole() -> bool:
                return (await metrics(running))("redrive_workers", state="ready") == 2

            await until(is_whole)
            assert (await metrics(running))("redrive_worker_restarts_total") == restarts
        counted = await metrics(running)
        assert counted("redrive_calls_total", code_class="5xx") >= before("redrive_calls_total", code_class="5xx")
        (bucket,) = (await show(running, "buckets"))["buckets"]
        assert bucket["level"] == 500 - 5 * 2 * 40


async def test_a_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    """Its calls break, new connections are answered, its places in shared memory are free again."""
    one = "    concurrency: {max: 1, queue: 0}\n"
    go = asyncio.Event()
    async with (
        Upstream(gated(go, b"", answer(200)), answer(200)) as upstream,
        Redrive(tmp_path, config(upstream, one), listen=LISTEN.format(2)) as running,
    ):
        flying = asyncio.create_task(ask_once(running))
        await upstream.until(1)
        victims = workers_of(running.pid)
        held = {pid: connections_of(pid) for pid in victims}
        victim = max(held, key=lambda pid: held[pid])
        os.kill(victim, signal.SIGSTOP)
        event = await running.line(lambda line: line["event"] == "worker" and line["pid"] == victim)
        assert event is not None
        assert event["ended"].startswith("hung for ")
        async with asyncio.timeout(SECONDS):
            assert await flying is None
            assert await ask_once(running) == 200
        await whole(running, 2, 1)
        assert (await metrics(running))("redrive_worker_hangs_total") == 1
        assert victims - workers_of(running.pid) == {victim}
        go.set()


def connections_of(pid: int) -> int:
    """How many TCP connections a process has, by its descriptors."""
    established = {
        line.split()[9] for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:] if " 01 " in line
    }
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return sum(f"socket:[{inode}]" in links for inode in established)


async def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    async with Upstream(hang) as upstream, Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running:
        workers = workers_of(running.pid)
        assert len(workers) == 2
        call = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await upstream.until(1)
        running.signal(signal.SIGKILL)
        await ended(workers)
        assert (await call).status == 503


async def test_all_workers_drain(tmp_path: Path) -> None:
    """SIGTERM to the whole group, as a terminal or systemd sends it: calls end, new ones are served, all end well."""
    go = asyncio.Event()
    async with (
        Upstream(gated(go, b"", answer(200, b"whole")), answer(200, b"late")) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running,
    ):
        workers = workers_of(running.pid)
        call = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await upstream.until(1)
        for pid in (running.pid, *workers):
            os.kill(pid, signal.SIGTERM)
        assert await running.line(lambda line: line["event"] == "draining")
        for _ in range(6):
            assert (await with_aiohttp("GET", f"{running.url}/a/x")).body == b"late"
        assert (await with_aiohttp("GET", f"{running.admin}/readyz")).status == 503
        go.set()
        assert (await call).body == b"whole"
        assert await running.ended() == 0
        assert running.lines[-1]["calls_cut"] == 0
        await ended(workers)
        assert len([line for line in running.lines if line["event"] == "call"]) == 7


async def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    async with Upstream(hang) as upstream, Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running:
        workers = workers_of(running.pid)
        calls = [asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x")) for _ in range(4)]
        await upstream.until(4)
        running.signal(signal.SIGTERM)
        assert await running.line(lambda line: line["event"] == "draining")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert running.lines[-1]["calls_cut"] == 4
        await ended(workers)
        assert [each.status for each in await asyncio.gather(*calls)] == [503] * 4


async def test_a_rolling_restart_fails_no_call(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with (
        Upstream(gated(go, b"", answer(200, b"whole")), answer(200)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running,
    ):
        before = workers_of(running.pid)
        flying = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await upstream.until(1)
        rolling = True

        async def load() -> int:
            count = 0
            while rolling:
                assert (await with_aiohttp("GET", f"{running.url}/a/x")).status == 200
                count += 1
            return count

        loads = [asyncio.create_task(load()) for _ in range(2)]
        running.signal(signal.SIGUSR2)

        async def one_is_replaced() -> bool:
            return bool(workers_of(running.pid) - before)

        await until(one_is_replaced)
        go.set()
        assert (await flying).body == b"whole"
        assert await running.line(lambda line: line["event"] == "rolled")
        rolling = False
        calls = sum(await asyncio.gather(*loads)) + 1
        assert not workers_of(running.pid) & before
        assert (await metrics(running))("redrive_calls_total", code_class="2xx") == calls
        assert (await metrics(running))("redrive_worker_restarts_total") == 0


async def test_a_user_s_own_strategy_is_made_in_each_worker(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from proxy.retry import StandardRetryStrategy\n"
        "class Mine(StandardRetryStrategy):\n"
        "    def __init__(self, attempts):\n"
        "        super().__init__(max_attempts=attempts)\n"
        "        self.lock = __import__('threading').Lock()\n"
    )
    more = '    strategy: {kind: "mine:Mine", attempts: 2}\n'
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, config(upstream, more), listen=LISTEN.format(2)) as running,
    ):
        got = await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/x") for _ in range(6)))
        assert {each.headers["x-attempt-count"] for each in got} == {"2"}


async def test_limits_hold_over_all_workers(tmp_path: Path) -> None:
    top = "limits: {connections: 6}\n"
    async with (
        Upstream(hang) as upstream,
        Redrive(tmp_path, config(upstream, top=top), listen=LISTEN.format(3)) as running,
    ):
        calls = [asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x")) for _ in range(6)]
        await upstream.until(6)

        async def all_are_counted() -> bool:
            return (await metrics(running))("redrive_connections", side="app") == 6

        await until(all_are_counted)

        async def one_more_is_refused() -> bool:
            return (await with_aiohttp("GET", f"{running.url}/a/x")).status == 503

        # What the others have open is looked at every 100 ms: until then one more may get through, and hangs.
        async with asyncio.timeout(SECONDS):
            probes = [asyncio.create_task(one_more_is_refused()) for _ in range(8)]
            done, _ = await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)
            assert all(each.result() for each in done)
        assert (await metrics(running))("redrive_limit", of="connections") == 6
        for each in (*calls, *probes):
            each.cancel()
        await asyncio.gather(*calls, *probes, return_exceptions=True)


async def ask_once(running: Redrive) -> int | None:
    """The status of a call on a connection of its own; None where that broke. aiohttp's client would repeat it."""
    reader, writer = await asyncio.open_connection(*running.authority.split(":"))
    try:
        writer.write(f"GET /a/x HTTP/1.1\r\nHost: {running.authority}\r\nConnection: close\r\n\r\n".encode())
        answered = await reader.read()
        return int(answered.split(b" ")[1]) if answered else None
    except OSError:
        return None
    finally:
        writer.close()


async def kill_all(running: Redrive) -> None:
    victims = workers_of(running.pid)
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    await ended(victims)


async def whole(running: Redrive, workers: int, restarts: int = 0) -> None:
    """Wait until so many workers are ready, after so many restarts."""

    async def is_whole() -> bool:
        counted = await metrics(running)
        ready = counted("redrive_workers", state="ready")
        return (ready, counted("redrive_worker_restarts_total")) == (workers, restarts)

    await until(is_whole)


async def held_and_told(running: Redrive, calls: int, room: int) -> tuple[list[int | None], set[asyncio.Task[Any]]]:
    """So many calls at once, of which all but `room` are waited for: what those were told, and the others."""
    asked = [asyncio.create_task(ask_once(running)) for _ in range(calls)]

    async def most_are_told() -> bool:
        return sum(each.done() for each in asked) >= calls - room

    await until(most_are_told)
    return [each.result() for each in asked if each.done()], {each for each in asked if not each.done()}


ROOM = "limits: {waiting: 4}\ndefaults: {timeouts: {total: 'off'}}\n"
SLOW_RATE = "    rate: {kind: rate, rate: 1/h, burst: 1}\n"


async def test_one_upstream_s_held_calls_take_half_of_the_room_of_all_workers(tmp_path: Path) -> None:
    """However many workers hold them; what killed workers' calls had taken is free again, and their successors, begun
    at once, share the room as before.
    """
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream, SLOW_RATE, ROOM), listen=LISTEN.format(3)) as running,
    ):
        assert await ask_once(running) == 200
        for restarts in (3, 6):
            event, waiting = await held_and_told(running, 12, 2)
            assert event == [503] * 10
            await kill_all(running)
            assert await asyncio.gather(*waiting) == [None, None]
            await whole(running, 3, restarts)
        event, waiting = await held_and_told(running, 12, 2)
        assert event == [503] * 10
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_all_workers_are_killed_at_once_and_no_connection_hangs(tmp_path: Path) -> None:
    """What a worker had accepted breaks. What comes while there is none is answered by those that begin."""
    async with (
        Upstream(answer(200)) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(3)) as running,
    ):
        going = True

        async def load() -> set[int | None]:
            came = set()
            while going:
                async with asyncio.timeout(SECONDS):
                    came.add(await ask_once(running))
            return came

        loads = [asyncio.create_task(load()) for _ in range(2)]
        for turn in (1, 2, 3):
            await kill_all(running)
            late = asyncio.gather(*(ask_once(running) for _ in range(12)))
            await whole(running, 3, 3 * turn)
            async with asyncio.timeout(SECONDS):
                assert await late == [200] * 12
                assert await asyncio.gather(*(ask_once(running) for _ in range(12))) == [200] * 12
        going = False
        assert set.union(*await asyncio.gather(*loads)) <= {200, None}

        async def all_are_gone() -> bool:
            return (await metrics(running))("redrive_connections", side="app") == 0

        await until(all_are_gone)


async def test_long_lines_of_two_workers_are_not_mixed(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, config(upstream, PATIENT, patient(14)), listen=LISTEN.format(2)) as running,
    ):
        await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/{n}/{'x' * 1900}") for n in range(6)))
        lines = [await running.call(number + 1) for number in range(6)]  # each was read as JSON
        assert {len(line["history"]) for line in lines} == {14}


async def test_a_worker_that_can_not_begin_ends_the_start(tmp_path: Path) -> None:
    """Nothing is served by halves: the reason is a line, and the exit status says so."""
    (tmp_path / "moody.py").write_text(
        "import sys\n"
        "from proxy.retry import StandardRetryStrategy\n"
        "if 'worker' in sys.argv:\n"
        "    raise ValueError('not here')\n"
        "class Moody(StandardRetryStrategy): pass\n"
    )
    file = tmp_path / "redrive.yaml"
    file.write_text(LISTEN.format(2) + 'upstreams: {a: {url: "http://127.0.0.1:9", strategy: {kind: "moody:Moody"}}}\n')
    status, _, err = await redrive("run", "-c", str(file))
    assert status == 1
    assert "cannot import moody: ValueError: not here" in err
    assert "redrive: a worker ended before it was ready: exit status 70" in err
    assert "Traceback" not in err


async def test_grpc_calls_of_all_workers_are_counted_by_their_status(tmp_path: Path) -> None:
    async with (
        Upstream(answer(200, b"", "Content-Type: application/grpc", "grpc-status: 5")) as upstream,
        Redrive(tmp_path, config(upstream), listen=LISTEN.format(2)) as running,
    ):
        for _ in range(6):
            async with aiohttp.ClientSession(headers={"content-type": "application/grpc"}) as session:
                await (await session.post(f"{running.url}/a/x.Y/z", data=b"x")).read()

        async def all_are_counted() -> bool:
            return (await metrics(running))("redrive_grpc_calls_total", grpc_status="5") == 6

        await until(all_are_counted)
