"""The limit of what Python on uvloop can do: bytes copied between two sockets, nothing read, nothing decided."""

import asyncio
import sys

import uvloop


class End(asyncio.Protocol):
    def __init__(self, upstream: int | None) -> None:
        self.upstream = upstream
        self.other: End | None = None
        self.transport: asyncio.Transport | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        if self.upstream is not None:
            self.task = asyncio.get_running_loop().create_task(self.reach())

    async def reach(self) -> None:
        other = End(None)
        other.other = self
        await asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", self.upstream)
        self.other = other
        for data in self.early:
            other.transport.write(data)  # type: ignore[union-attr]

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def main(port: int, upstream: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: End(upstream), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
