"""The event loop's table of transports: it refuses what uvloop's own does, and forgets what uvloop's own does."""

from __future__ import annotations

import asyncio
import gc
import socket
from weakref import WeakValueDictionary

import pytest
import uvloop

from proxy.transport import event_loop
from proxy.transport.event_loop import TransportTable, new_event_loop


def table_of(loop: asyncio.AbstractEventLoop) -> WeakValueDictionary[int, object]:
    (table,) = [each for each in gc.get_referents(loop) if isinstance(each, WeakValueDictionary)]
    return table


def test_a_descriptor_of_a_transport_is_not_watched_until_the_transport_is_gone() -> None:
    loop = new_event_loop()
    table = table_of(loop)
    assert type(table) is TransportTable

    async def connect() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            numbers = set()
            for _ in range(5):
                transport, _ = await loop.create_connection(asyncio.Protocol, *server.getsockname())
                number = transport.get_extra_info("socket").fileno()
                numbers.add(number)
                assert table[number] is transport
                with pytest.raises(RuntimeError, match="is used by transport"):
                    loop.add_reader(number, print)
                transport.abort()
                del transport
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                gc.collect()
                assert number not in table
            assert table.data.keys() == numbers
            assert len(numbers) < 5  # the descriptors of connections that are gone are used again
            one, other = socket.socketpair()
            with one, other:
                loop.add_reader(one.fileno(), print)
                loop.remove_reader(one.fileno())

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(connect())


def test_a_uvloop_that_nobody_has_read_keeps_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvloop, "__version__", "0.24.0")
    loop = event_loop.new_event_loop()
    assert type(table_of(loop)) is WeakValueDictionary
    loop.close()
