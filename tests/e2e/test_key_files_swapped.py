"""A key in a file, swapped as Kubernetes swaps a secret, while calls run: no app sees a 401 (contract, section 16)."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import time
from pathlib import Path

import httpx
import pytest
from support.process import LISTEN, Redrive
from support.scripted import Turn, Upstream, answer
from test_workers import workers_of
from test_workers_weather import owner_of


class Mount:
    """A secret as the kubelet mounts it: key -> ..data/key, ..data -> a folder, which is what is swapped. The folder
    before is removed at once (kubernetes/pkg/volume/util/atomic_writer.go).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._version = 0
        self.swap("key-0")
        (folder / "key").symlink_to("..data/key")

    @property
    def file(self) -> Path:
        return self._folder / "key"

    def swap(self, key: str) -> None:
        self._version += 1
        folder = self._folder / f"..2026_01_{self._version:02}"
        folder.mkdir()
        (folder / "key").write_text(f"{key}\n")
        data = self._folder / "..data"
        before = data.resolve() if data.exists() else None
        (self._folder / "..data_tmp").symlink_to(folder.name)
        (self._folder / "..data_tmp").rename(data)
        if before is not None:
            shutil.rmtree(before)


@pytest.mark.parametrize(
    ("http2", "workers", "reloads"), [(False, 1, False), (True, 1, False), (False, 2, False), (False, 2, True)]
)
async def test_no_app_sees_a_401_while_keys_are_swapped(
    http2: bool, workers: int, reloads: bool, tmp_path: Path
) -> None:
    """The old key is refused from the moment of the swap on, also for calls that are on their way with it. With
    `reloads`, another part of the configuration changes, and is loaded, before each swap and after it.
    """
    accepted, seen, refused = {"key-0"}, list[str](), 0

    async def step(turn: Turn) -> None:
        nonlocal refused
        await turn.read_body()
        key = turn.request.one("authorization").removeprefix("Bearer ")
        await asyncio.sleep(0.01)  # calls are under way at each swap
        seen.append(key)
        refused += key not in accepted
        await turn.write(answer(200 if key in accepted else 401, b"ok"))

    mount = Mount(tmp_path / "secret")
    async with Upstream(step) as upstream:
        credentials = f'{{header: authorization, format: "Bearer {{}}", values: [{{file: "{mount.file}"}}]}}'
        config = (
            f"workers: {workers}\n"
            f"upstreams:\n  api:\n    url: {upstream.url}\n    protocol: http/1.1\n    credentials: {credentials}\n"
        )
        statuses, stop = list[int](), asyncio.Event()
        async with Redrive(tmp_path, config) as redrive:

            async def app(method: str) -> None:
                # each app has connections of its own, which several workers accept
                async with httpx.AsyncClient(http1=not http2, http2=http2, timeout=60) as client:
                    while not stop.is_set():
                        got = await client.request(method, f"{redrive.url}/api/x", content=b"{}")
                        statuses.append(got.status_code)

            # so many that the kernel gives some to each worker
            apps = [asyncio.create_task(app(method)) for method in ("GET", "POST", "POST", "PUT") * 5]

            def reload(total: int) -> None:
                if reloads:
                    new = redrive.file.with_suffix(".new")
                    new.write_text(f"{LISTEN}{config}    timeouts: {{total: {total}s}}\n")
                    new.rename(redrive.file)
                    redrive.signal(signal.SIGHUP)

            for version in (1, 2):
                reload(100 + version)
                mount.swap(f"key-{version}")  # the file is new before the old key is refused
                accepted.clear()
                accepted.add(f"key-{version}")
                reload(200 + version)
                while f"key-{version}" not in seen:
                    await upstream.until(len(upstream.requests) + 1)
                until = time.monotonic() + 1.1  # a file is read again after a 401 at most once a second
                while seen.count(f"key-{version}") < 20 or time.monotonic() < until:
                    await upstream.until(len(upstream.requests) + 1)
            ports = [writer.get_extra_info("peername")[1] for writer in upstream.open]
            processes = workers_of(redrive.pid) or {redrive.pid}
            served_by = set()
            for port in ports:
                with contextlib.suppress(ValueError, AssertionError):  # it was closed meanwhile
                    served_by.add(owner_of(port, upstream.port, processes))
            stop.set()
            await asyncio.gather(*apps)
            loaded = [line for line in redrive.lines if line["event"] == "reload" and line["result"] == "success"]
    assert set(statuses) == {200}
    assert "key-2" in seen
    assert refused, "calls were under way with a key that the upstream no longer took"
    assert len(served_by) == workers, "each worker made calls, and none saw a 401"
    assert len(loaded) >= 2
