"""An application of the admin port or of the probe as a process hosts it, and somebody who asks it.

async with Asking(admin_app(view)) as admin:
    reply = await admin.get("/livez")
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from proxy.admin.connections import AdminRunner
from proxy.config.settings import Address
from proxy.server.inherited import bound
from proxy.server.listeners import bind


class Asking:
    """`host`, `port`: where it listens."""

    host = "127.0.0.1"

    def __init__(self, app: web.Application, patience: float = 1.0) -> None:
        self._runner = AdminRunner(app, patience)

    async def __aenter__(self) -> Self:
        (sock,) = bind(Address(self.host, 0), "admin")
        self.port = bound(sock).port
        await self._runner.open([sock])
        self._session = aiohttp.ClientSession(f"http://{self.host}:{self.port}")
        self.get, self.post, self.head = self._session.get, self._session.post, self._session.head
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self.close()

    async def close(self) -> None:
        """End the application, as the process does."""
        await self._runner.cleanup()

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
