"""A process takes no more idle connections than it can hold."""

from __future__ import annotations

import asyncio
import socket

from proxy.server.idle_handover import ConnectionGiver, ConnectionTaker, pair

ROOM = 2


async def test_connections_that_are_being_taken_count() -> None:
    loop, made, enough = asyncio.get_running_loop(), list[asyncio.Protocol](), asyncio.Event()

    def make() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    def has_room(taken: int) -> bool:
        if len(made) + taken < ROOM:
            return True
        if len(made) == ROOM:
            enough.set()
        return False

    takes, gives = pair()
    giver, apps = ConnectionGiver(gives), [socket.socketpair() for _ in range(4)]
    for _, given in apps:
        assert giver.give(given.fileno())
        given.close()
    taker = ConnectionTaker(loop, takes, make, has_room)
    async with asyncio.timeout(60):
        await enough.wait()
    assert len(made) == ROOM
    assert not taker.is_busy
    giver.close()
    taker.close()
    await asyncio.gather(*taker._accepting.tasks)
    assert len(made) == len(apps)
    for app, _ in apps:
        app.close()
