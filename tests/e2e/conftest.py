from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.certificates import Authority, make
from support.redis_server import FOUND, RedisServer


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of this test alone."""
    if FOUND is None:
        pytest.skip("no redis-server and no valkey-server on PATH")
    found = RedisServer()
    yield found
    found.close()
