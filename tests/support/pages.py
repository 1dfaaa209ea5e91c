"""The admin port, or the probe, of this process on a port of its own, and somebody who asks it.

async with Asking(admin_port(view)) as admin:
    reply = await admin.get("/livez")
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import aiohttp

from proxy.config.settings import Address
from proxy.server.admin.port import Port
from proxy.server.binding import bind, bound


class Asking:
    """`host`, `port`: where it listens."""

    host = "127.0.0.1"

    def __init__(self, pages: Port) -> None:
        self.pages = pages

    async def __aenter__(self) -> Self:
        (sock,) = bind(Address(self.host, 0), "admin")
        self.port = bound(sock).port
        await self.pages.open(sock)
        self._session = aiohttp.ClientSession(f"http://{self.host}:{self.port}")
        self.get, self.post, self.head = self._session.get, self._session.post, self._session.head
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self.pages.close(1.0)

    async def raw(self, *sent: bytes) -> bytes:
        """What comes, until the port closes, for these bytes and the end of ours."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        for data in sent:
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        said = await reader.read()
        writer.close()
        return said
