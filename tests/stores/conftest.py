"""One Redis for the tests of a module that leave it alone; tests that break it start their own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from fleet import Sidecar, draw_prefix
from support.redis_server import FOUND, RedisServer

from proxy.stores.shared_memory import records
from proxy.stores.shared_memory.factory import open_memory
from proxy.stores.shared_memory.records import Memory


def _running() -> Iterator[RedisServer]:
    if FOUND is None:
        pytest.skip("no redis-server and no valkey-server on PATH (scripts/system-packages installs one)")
    server = RedisServer()
    yield server
    server.close()


redis_server = pytest.fixture(_running, scope="module", name="redis_server")
own_redis = pytest.fixture(_running, name="own_redis")


def _mapped() -> Iterator[Memory]:
    """Memory that processes share."""
    descriptor = records.descriptor()
    yield open_memory(descriptor)
    os.close(descriptor)


memory = pytest.fixture(_mapped, scope="module", name="memory")
own_memory = pytest.fixture(_mapped, name="own_memory")


@pytest.fixture
async def sidecars() -> AsyncIterator[Callable[..., Sidecar]]:
    """Makes sidecars of one fleet, and ends them."""
    made: list[Sidecar] = []
    prefix = draw_prefix()

    def make(server: RedisServer | str, **options: Any) -> Sidecar:
        url = server if isinstance(server, str) else server.url
        made.append(Sidecar(url, options.pop("prefix", prefix), **options))
        return made[-1]

    yield make
    for each in made:
        await each.close()
