from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance_kit import Proxy, running
from http2_kit import Http2Proxy, Place
from http2_talk import Talk, Talks

TESTS = Path(__file__).parent.parent
# The fuzzer starts from the grammar's tables, and has the bench's connections in memory.
sys.path += [str(TESTS / "wire"), str(TESTS.parent / "bench")]

PLAIN = "defaults: {strategy: none}\n"
RETRYING = """
defaults:
  strategy: {kind: standard, max_attempts: 3, backoff: {base: 1ms, max: 2ms, jitter: none}}
"""


@pytest.fixture(scope="session")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy that forwards to any host and makes one attempt."""
    with running(tmp_path_factory.mktemp("plain"), PLAIN) as started:
        yield started


@pytest.fixture(scope="session")
def retrying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The same with three attempts, a moment apart."""
    with running(tmp_path_factory.mktemp("retrying"), RETRYING) as started:
        yield started


@pytest.fixture
def app(proxy: Talks) -> Iterator[Talk]:
    """An app that speaks HTTP/2 to a module's proxy."""
    talk = proxy.talk()
    with talk.peer:
        yield talk


@pytest.fixture
def place(proxy: Http2Proxy) -> Place:
    """An upstream of a module's proxy, which no other test uses."""
    return proxy.place()
