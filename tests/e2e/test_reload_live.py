"""A running process takes new configurations without a scratch, however they come."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from clients import with_aiohttp
from support.forked import forked_workers_of
from support.process import Redrive
from support.scripted import Turn, Upstream, answer, gated

LISTEN = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"


def config(url: str, attempts: int, capacity: int = 500) -> str:
    return (
        f"buckets: {{shared: {{kind: quota, capacity: {capacity}, success_refund: 0}}}}\n"
        f"strategies: {{patient: {{kind: standard, max_attempts: {attempts}, backoff: {{base: 0s}}}}}}\n"
        f"upstreams: {{a: {{url: '{url}', strategy: patient, bucket: shared}}}}\n"
    )


async def reloads(running: Redrive, number: int, result: str = "success") -> None:
    """Wait for the n-th reload with this result."""
    at = 0
    for _ in range(number):
        line = await running.line(lambda line: line["event"] == "reload" and line["result"] == result, at)
        assert line is not None
        at = running.lines.index(line) + 1


async def attempts(running: Redrive) -> int:
    return int((await with_aiohttp("GET", f"{running.url}/a/fail")).headers["x-attempt-count"])


async def fails_or_not(turn: Turn) -> None:
    turn.writer.write(answer(503 if turn.request.target.endswith("fail") else 200))


# -- how a change comes ----------


async def test_an_editor_renames_a_mount_rewrites_and_a_signal_asks(tmp_path: Path) -> None:
    async with Upstream(fails_or_not) as upstream, Redrive(tmp_path, config(upstream.url, 1), listen=LISTEN) as running:
        assert await attempts(running) == 1
        new = tmp_path / ".redrive.yaml.swp"
        new.write_text(LISTEN + config(upstream.url, 2))
        new.rename(running.file)
        await reloads(running, 1)
        assert await attempts(running) == 2
        running.file.write_text(LISTEN + config(upstream.url, 3))  # in place, as `kubectl cp` does
        await reloads(running, 2)
        assert await attempts(running) == 3
        running.signal(signal.SIGHUP)  # nothing changed: it is loaded all the same
        await reloads(running, 3)
        assert await attempts(running) == 3


async def test_a_configmap_is_swapped_twice_in_a_row(tmp_path: Path) -> None:
    """Kubernetes: file -> ..data/file, ..data -> a folder with a time in its name; ..data is what is swapped."""
    async with Upstream(fails_or_not) as upstream:
        mount = tmp_path / "mount"
        mount.mkdir()

        def swap(version: int) -> None:
            folder = mount / f"..2026_01_0{version}"
            folder.mkdir()
            (folder / "redrive.yaml").write_text(LISTEN + config(upstream.url, version))
            (mount / "..data_tmp").symlink_to(folder.name)
            (mount / "..data_tmp").rename(mount / "..data")
            old = mount / f"..2026_01_0{version - 1}"
            if old.exists():
                (old / "redrive.yaml").unlink()
                old.rmdir()

        swap(1)
        running = Redrive(tmp_path, "")
        running.file = mount / "redrive.yaml"
        running.file.symlink_to("..data/redrive.yaml")
        async with running:
            for version in (2, 3, 4):
                swap(version)
                await reloads(running, version - 1)
                assert await attempts(running) == version
            swap(5)
            swap(6)  # before the first was looked at, or after: the last one counts
            while await attempts(running) != 6:
                await running.line(lambda line: line["event"] == "reload", len(running.lines))


async def test_a_bad_file_changes_nothing_and_says_so_where_an_operator_looks(tmp_path: Path) -> None:
    async with Upstream(fails_or_not) as upstream, Redrive(tmp_path, config(upstream.url, 2), listen=LISTEN) as running:
        running.file.write_text(LISTEN + config(upstream.url, 3) + "nonsense: 1\n")
        await reloads(running, 1, "failure")
        assert await attempts(running) == 2
        verbose = json.loads((await with_aiohttp("GET", f"{running.admin}/readyz?verbose")).body)
        (error,) = verbose["reload_errors"]
        assert error.startswith(f"{running.file}:6:1: nonsense: ")
        assert (
            b'redrive_config_reloads_total{result="failure"} 1.0'
            in (await with_aiohttp("GET", f"{running.admin}/metrics")).body
        )


# -- listeners ----------


async def listening(running: Redrive) -> list[str]:
    found = json.loads((await with_aiohttp("GET", f"{running.admin}/readyz?verbose")).body)["listen"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("workers", [1, 2])
async def test_changed_listeners_open_before_old_ones_close(workers: int, tmp_path: Path) -> None:
    top = f"workers: {workers}\nadmin: 127.0.0.1:0\nlisten: "
    go = asyncio.Event()
    steps = (gated(go, b"", answer(200, b"whole")), answer(200))
    async with Upstream(*steps) as upstream:
        rest = "\n" + config(upstream.url, 1)
        async with Redrive(tmp_path, rest, listen=f"{top}127.0.0.1:0") as running, aiohttp.ClientSession() as session:
            flying = asyncio.create_task(session.get(f"{running.url}/a/x"))
            await upstream.until(1)
            running.file.write_text(f"{top}[127.0.0.2:0, 'unix:{tmp_path}/s']{rest}")
            assert (await with_aiohttp("POST", f"{running.admin}/reload")).status == 200
            new, unix = await listening(running)
            assert new.startswith("127.0.0.2:")
            assert unix == f"unix:{tmp_path}/s"
            assert (await with_aiohttp("GET", f"http://{new}/a/x")).status == 200
            async with asyncio.timeout(120):
                with pytest.raises(aiohttp.ClientConnectorError):
                    while True:  # the old one is closed beside; until then it serves
                        assert (await with_aiohttp("GET", f"{running.url}/a/x")).status == 200
            go.set()
            async with await flying as got:  # its listener is closed, the connection is not
                assert await got.read() == b"whole"
            # The same place, spelt out: both are bound at one time.
            port = new.rpartition(":")[2]
            running.file.write_text(f"{top}127.0.0.2:{port}{rest}")
            assert (await with_aiohttp("POST", f"{running.admin}/reload")).status == 200
            assert await listening(running) == [f"127.0.0.2:{port}"]
            assert (await with_aiohttp("GET", f"http://127.0.0.2:{port}/a/x")).status == 200


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_address_that_can_not_be_had_refuses_the_whole_file(workers: int, tmp_path: Path) -> None:
    top = f"workers: {workers}\nadmin: 127.0.0.1:0\nlisten: "
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with Upstream(fails_or_not) as upstream:
            rest = "\n" + config(upstream.url, 1)
            async with Redrive(tmp_path, rest, listen=f"{top}127.0.0.1:0") as running:
                running.file.write_text(f"{top}[127.0.0.3:0, '{address}']\n{config(upstream.url, 2)}")
                refused = await with_aiohttp("POST", f"{running.admin}/reload")
                assert refused.status == 422
                (error,) = json.loads(refused.body)["errors"]
                assert error.startswith(f"{running.file}:3:")
                assert address in error
                assert "in use" in error
                assert await attempts(running) == 1
                assert await listening(running) == [running.authority]


async def test_admin_and_probe_move_too(tmp_path: Path) -> None:
    async with Redrive(tmp_path, "", listen=LISTEN) as running:
        running.file.write_text("listen: 127.0.0.1:0\nadmin: 127.0.0.2:0\nprobe: 127.0.0.1:0\n")
        assert (await with_aiohttp("POST", f"{running.admin}/reload")).status == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await with_aiohttp("GET", f"{running.admin}/livez")
        running.file.write_text("listen: 127.0.0.1:0\nadmin: off\n")
        running.signal(signal.SIGHUP)
        await reloads(running, 2)
        assert (await with_aiohttp("GET", f"{running.url}/x")).status == 404
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0


# -- a large file ----------

MANY = "".join(f"  u{n}: {{url: 'http://u{n}.test'}}\n" for n in range(1000))
WAITS = """
import os
from pathlib import Path
from proxy.retry import StandardRetryStrategy
waits = Path(__file__).with_name("waits")
class Own(StandardRetryStrategy):
    def __init__(self):
        super().__init__()
        if waits.exists():
            waits.write_text(str(os.getpid()))
            waits.read_text()
"""


def large(url: str, attempts: int, more: str = "") -> str:
    return (
        f"strategies: {{patient: {{kind: standard, max_attempts: {attempts}, backoff: {{base: 0s}}}}}}\n"
        f"upstreams:\n  a: {{url: '{url}', strategy: patient{more}}}\n{MANY}"
    )


async def fails_once_let_go(turn: Turn, go: asyncio.Event) -> None:
    if turn.request.target.endswith("hold"):
        await go.wait()
    turn.writer.write(answer(503))


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_large_file_is_taken_like_a_small_one(workers: int, tmp_path: Path) -> None:
    """It is loaded by a process of its own: in force once that is answered, what is under way keeps its policy."""
    listen, go = f"{LISTEN}workers: {workers}\n", asyncio.Event()
    async with (
        Upstream(lambda turn: fails_once_let_go(turn, go)) as upstream,
        Redrive(tmp_path, large(upstream.url, 2), listen=listen) as running,
    ):

        async def reload(config: str) -> Any:
            running.file.write_text(listen + config)
            return await with_aiohttp("POST", f"{running.admin}/reload")

        async def attempts_of(calls: int = 12) -> set[str]:
            got = await asyncio.gather(*(with_aiohttp("GET", f"{running.url}/a/fail") for _ in range(calls)))
            return {each.headers["x-attempt-count"] for each in got}

        async def level() -> float:
            shown = json.loads((await with_aiohttp("GET", f"{running.admin}/buckets")).body)["buckets"]
            return float(shown[0]["level"])

        assert await attempts_of() == {"2"}
        held = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/hold"))
        await upstream.until(12 * 2 + 1)
        assert (await reload(large(upstream.url, 3))).status == 200
        assert await attempts_of() == {"3"}
        assert await level() == 500 - 5 * 12 * (1 + 2)
        refused = await reload(large(upstream.url, 4, ", bucket: none_such"))
        assert refused.status == 422
        assert "there is no bucket called 'none_such'" in refused.body.decode()
        assert await attempts_of() == {"3"}
        go.set()
        assert (await held).headers["x-attempt-count"] == "2"
        shown = json.loads((await with_aiohttp("GET", f"{running.admin}/config")).body)
        assert len(shown["upstreams"]) == 1002
        assert (await reload(config(upstream.url, 2))).status == 200  # a small one after it
        assert await attempts_of() == {"2"}
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_end_does_not_wait_for_a_load(workers: int, tmp_path: Path) -> None:
    """The thread that loads stands still, in what a user's own strategy does as it is made."""
    (tmp_path / "own_waits.py").write_text(WAITS)
    async with Upstream(fails_or_not) as upstream:
        file = large(upstream.url, 2) + f"  own: {{url: '{upstream.url}', strategy: {{kind: 'own_waits:Own'}}}}\n"
        async with Redrive(tmp_path, file, listen=f"{LISTEN}workers: {workers}\n") as running:
            os.mkfifo(tmp_path / "waits")
            running.signal(signal.SIGHUP)
            pid = int(await asyncio.to_thread((tmp_path / "waits").read_text))
            process, over = os.pidfd_open(pid), asyncio.Event()
            asyncio.get_running_loop().add_reader(process, over.set)
            running.signal(signal.SIGTERM)
            assert await running.ended() == 0
            await over.wait()
            asyncio.get_running_loop().remove_reader(process)
            os.close(process)


# -- under load ----------


def children_of(pid: int) -> set[int]:
    return {*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()), *forked_workers_of(pid)}


def open_files(pid: int) -> int:
    return sum(sum(1 for _ in Path(f"/proc/{each}/fd").iterdir()) for each in (pid, *children_of(pid)))


def resident(pid: int) -> int:
    """MiB, of all processes."""
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in (pid, *children_of(pid)))
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


@pytest.mark.parametrize("workers", [1, 2])
async def test_fifty_reloads_under_load(workers: int, tmp_path: Path) -> None:
    """No failed call, no refilled bucket, no leak; definitions go back and forth meanwhile."""
    listen = f"{LISTEN}workers: {workers}\n"
    async with (
        Upstream(fails_or_not) as upstream,
        Redrive(tmp_path, config(upstream.url, 2, 500), listen=listen) as running,
        aiohttp.ClientSession() as admin,
    ):
        for _ in range(40):
            assert await attempts(running) == 2
        over = False

        async def load() -> int:
            count = 0
            async with aiohttp.ClientSession() as session:
                while not over:
                    async with session.get(f"{running.url}/a/x") as got:
                        assert (got.status, got.headers["x-attempt-count"]) == (200, "1")
                    count += 1
            return count

        async def bucket() -> dict[str, Any]:
            async with admin.get(f"{running.admin}/buckets") as got:
                (shown,) = (await got.json())["buckets"]
            return dict(shown)

        loads = [asyncio.create_task(load()) for _ in range(4)]
        files = memory = 0
        share = 300 / 500
        for turn in range(50):
            capacity = (500, 1000, 500, 250)[turn % 4]
            running.file.write_text(listen + config(upstream.url, 2, capacity))
            async with admin.post(f"{running.admin}/reload") as reloaded:
                assert reloaded.status == 200
            before = sum(each.target.endswith("/x") for each in upstream.requests)
            # Four may have been on their way under the old policy; the fifth began after the answer, under the new one.
            await upstream.until(len(upstream.requests) + 5)
            assert before < len(upstream.requests)
            shown = await bucket()
            assert shown["level"] == pytest.approx(share * capacity)
            if turn % 10 == 0:  # and what is paid is paid
                assert await attempts(running) == 2
                share -= 5 / capacity
                assert (await bucket())["level"] == pytest.approx(share * capacity)
            if turn == 10:
                files, memory = open_files(running.pid), resident(running.pid)
        assert abs(open_files(running.pid) - files) <= 4
        assert resident(running.pid) - memory < 16
        over = True
        assert sum(await asyncio.gather(*loads)) > 50
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        errors = [
            line
            for line in running.lines
            if line["event"] == "call" and line["outcome"] not in ("success", "attempts_exhausted")
        ]
        assert errors == []


@pytest.mark.parametrize("workers", [1, 2])
async def test_buckets_shows_what_is_in_force_before_a_call_comes(tmp_path: Path, workers: int) -> None:
    """Named ones, a policy's own, and rates; what stands in each keeps its share."""

    def sized(url: str, capacity: int) -> str:
        bucket = f"{{kind: quota, capacity: {capacity}, success_refund: 0}}"
        return (
            f"{LISTEN}workers: {workers}\nbuckets: {{shared: {bucket}}}\nupstreams:\n"
            f"  a: {{url: '{url}', bucket: shared}}\n"
            f"  b: {{url: '{url}', bucket: {bucket}, rate: {{kind: rate, rate: 1/h, burst: {capacity}}}}}\n"
        )

    async def shown(running: Redrive) -> dict[tuple[str, str], tuple[float, float]]:
        page = json.loads((await with_aiohttp("GET", f"{running.admin}/buckets")).body)["buckets"]
        return {(each["bucket"], each["kind"]): (each["capacity"], each["level"]) for each in page}

    async with Upstream(fails_or_not) as upstream, Redrive(tmp_path, sized(upstream.url, 100), listen="") as running:
        for place in ("a", "b"):
            await with_aiohttp("GET", f"{running.url}/{place}/fail")
        before = await shown(running)
        assert {key[1]: value for key, value in before.items()}["quota"] == (100, 90)
        running.file.write_text(sized(upstream.url, 50))
        assert (await with_aiohttp("POST", f"{running.admin}/reload")).status == 200
        after = await shown(running)
        assert set(after) == set(before)
        for (_, kind), (capacity, level) in after.items():
            assert (capacity, level) == (50, 45) if kind == "quota" else (capacity == 50 and 48 <= level <= 49)
        levels = (await with_aiohttp("GET", f"{running.admin}/metrics")).body.decode()
        assert 'redrive_bucket_capacity{bucket="shared"} 50.0' in levels
        await with_aiohttp("GET", f"{running.url}/a/fail")
        assert (await shown(running))["shared", "quota"] == (50, 35)
