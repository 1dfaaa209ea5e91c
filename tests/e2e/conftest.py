from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.llm_clients import SURROUNDINGS
from support.redis_server import FOUND, RedisServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of this test alone."""
    if FOUND is None:
        pytest.skip("no redis-server and no valkey-server on PATH")
    found = RedisServer()
    yield found
    found.close()


@pytest.fixture
def no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the developer's own proxies, keys and profiles, which providers' clients look for."""
    for name in SURROUNDINGS:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
