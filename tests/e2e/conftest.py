from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.redis_server import FOUND, RedisServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of this test alone."""
    if FOUND is None:
        pytest.skip("no redis-server and no valkey-server on PATH")
    found = RedisServer()
    yield found
    found.close()
