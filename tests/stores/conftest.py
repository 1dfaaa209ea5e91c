"""One Redis for the tests of a module that leave it alone; tests that break it start their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from fleet import Sidecar, draw_prefix
from support.redis_server import FOUND, RedisServer


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    if FOUND is None:
        pytest.skip("no redis-server and no valkey-server on PATH (scripts/system-packages installs one)")
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    if FOUND is None:
        pytest.skip("no redis-server and no valkey-server on PATH (scripts/system-packages installs one)")
    server = RedisServer()
    yield server
    server.close()


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
