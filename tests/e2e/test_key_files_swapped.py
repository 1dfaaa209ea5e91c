"""A key in a file, swapped as Kubernetes swaps a secret, while calls run: no app sees a 401 (contract, section 16)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from support.process import Redrive
from support.scripted import Turn, Upstream, answer


class Mount:
    """A secret as the kubelet mounts it: key -> ..data/key, ..data -> a folder, which is what is swapped."""

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
        (self._folder / "..data_tmp").symlink_to(folder.name)
        (self._folder / "..data_tmp").rename(self._folder / "..data")


@pytest.mark.parametrize(("http2", "workers"), [(False, 1), (True, 1), (False, 2)])
async def test_no_app_sees_a_401_while_keys_are_swapped(http2: bool, workers: int, tmp_path: Path) -> None:
    accepted, seen = {"key-0"}, list[str]()

    async def step(turn: Turn) -> None:
        await turn.read_body()
        key = turn.request.one("authorization").removeprefix("Bearer ")
        seen.append(key)
        await turn.write(answer(200 if key in accepted else 401, b"ok"))

    mount = Mount(tmp_path / "secret")
    async with Upstream(step) as upstream:
        credentials = f'{{header: authorization, format: "Bearer {{}}", values: [{{file: "{mount.file}"}}]}}'
        config = (
            f"workers: {workers}\n"
            f'upstreams: {{api: {{url: "{upstream.url}", protocol: http/1.1, credentials: {credentials}}}}}\n'
        )
        statuses, stop = list[int](), asyncio.Event()
        async with Redrive(tmp_path, config) as redrive:

            async def app(method: str) -> None:
                # each app has connections of its own, which several workers accept
                async with httpx.AsyncClient(http1=not http2, http2=http2) as client:
                    while not stop.is_set():
                        got = await client.request(method, f"{redrive.url}/api/x", content=b"{}")
                        statuses.append(got.status_code)

            apps = [asyncio.create_task(app(method)) for method in ("GET", "POST", "POST", "PUT") * 2]
            for version in range(1, 4):
                mount.swap(f"key-{version}")  # the file is new before the old key is refused
                accepted.clear()
                accepted.add(f"key-{version}")
                while f"key-{version}" not in seen:
                    await upstream.until(len(upstream.requests) + 1)
                until = time.monotonic() + 1.1  # a file is read again after a 401 at most once a second
                while seen.count(f"key-{version}") < 20 or time.monotonic() < until:
                    await upstream.until(len(upstream.requests) + 1)
            stop.set()
            await asyncio.gather(*apps)
    assert set(statuses) == {200}
    assert "key-3" in seen
