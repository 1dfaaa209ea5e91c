"""What streams: `streams.py server PORT`, the upstream of events and of WebSockets, and `streams.py client PORT TARGET
SECONDS`, which plays ping-pong over WebSockets. Each event is written by itself; WebSocket messages are echoed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import sys
import time

import uvloop

#: Events of an answer, and the bytes of one: a piece of an answer as a provider of models sends it.
EVENTS = 100
EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
)
LAST = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
#: Seconds between two events of an answer, so that they come one by one.
PAUSE = 0.001
#: RFC 6455 section 1.3.
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY = base64.b64encode(bytes(16))
#: A masked message of 100 bytes, as a client sends it, and the same as a server does.
PING = b"\x82\xe4\0\0\0\0" + b"x" * 100
CONNECTIONS = 32


def chunk(data: bytes) -> bytes:
    """A chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with events, or echo what comes after an upgrade."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            key = re.search(rb"(?i)sec-websocket-key: (\S+)", head)
            if key is not None:
                accept = base64.b64encode(hashlib.sha1(key[1] + GUID).digest())
                lines = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + accept
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\n" + lines + b"\r\n\r\n")
                while data := await reader.read(65536):
                    writer.write(data)
                break
            writer.write(HEAD)
            for _ in range(EVENTS):
                await asyncio.sleep(PAUSE)
                writer.write(chunk(EVENT))
            writer.write(chunk(LAST) + b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


async def play(port: int, target: str, seconds: float) -> None:
    """Send a message and wait for its echo, again and again; prints counts and times as JSON."""
    times: list[float] = []
    begun = time.perf_counter()

    async def player() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY
        writer.write(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%b\r\n\r\n" % (target.encode(), port, lines))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head
        while (at := time.perf_counter()) - begun < seconds:
            writer.write(PING)
            await reader.readexactly(len(PING))
            times.append(time.perf_counter() - at)
        writer.close()

    await asyncio.gather(*(player() for _ in range(CONNECTIONS)))
    elapsed = time.perf_counter() - begun
    times.sort()
    middle, last = times[len(times) // 2], times[len(times) * 99 // 100]
    print(json.dumps({"requests": len(times), "seconds": elapsed, "p50": middle, "p99": last, "failed": 0}))


async def listen(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "server":
        uvloop.run(listen(int(sys.argv[2])))
    else:
        uvloop.run(play(int(sys.argv[2]), sys.argv[3], float(sys.argv[4])))
