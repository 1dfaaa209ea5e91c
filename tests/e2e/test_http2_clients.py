"""Unmodified clients of HTTP/2 by prior knowledge: curl, httpx, Node. Each has a 503 retried, and a body sent again."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h2.config
import h2.connection
import h2.events
import httpx
import pytest
from support.process import Redrive, run

POLICY = """
defaults:
  strategy: {{kind: standard, max_attempts: 4, backoff: {{base: 1ms, max: 5ms}}}}
  concurrency: "off"  # fifty calls that all fail at first would find a limit, and wait for it
upstreams:
  echo: {{url: "http://127.0.0.1:{port}", prefix: /}}
"""
BODY = bytes(range(256)) * 1200
NODE = """
const http2 = require('http2');
const client = http2.connect(process.argv[2]);
const call = client.request({':method': 'PUT', ':path': '/node?fail=2', 'x-a': 'b'});
let status, trailers; const parts = [];
call.on('response', (head) => { status = head[':status']; });
call.on('trailers', (fields) => { trailers = fields['x-whole']; });
call.on('data', (part) => parts.push(part));
call.on('end', () => {
  console.log(JSON.stringify({status, trailers, size: Buffer.concat(parts).length}));
  client.close();
});
call.end(Buffer.alloc(300000, 'x'));
"""


class EchoServer:
    """Answers 503 to the first `fail` requests of a path, then what it was sent, with a trailer. h2's own frames."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.seen: dict[str, int] = defaultdict(int)
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        for each in self._sockets:
            each.shutdown(socket.SHUT_RDWR) if each.fileno() >= 0 else None
        for thread in self._threads:
            thread.join()
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        sock.sendall(connection.data_to_send())
        paths: dict[int, str] = {}
        bodies: dict[int, bytes] = defaultdict(bytes)
        left: dict[int, bytes] = {}
        while data := sock.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    paths[event.stream_id] = dict(event.headers)[":path"]
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                    connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    path = paths[event.stream_id]
                    self.seen[path] += 1
                    if self.seen[path] <= int(path.rpartition("fail=")[2] or 0):
                        connection.send_headers(event.stream_id, [(":status", "503")], end_stream=True)
                    else:
                        connection.send_headers(event.stream_id, [(":status", "200")])
                        left[event.stream_id] = bodies[event.stream_id]
            for stream in list(left):
                self._go_on(connection, stream, left)
            sock.sendall(connection.data_to_send())
        sock.close()

    def _go_on(self, connection: Any, stream: int, left: dict[int, bytes]) -> None:
        while left[stream]:
            size = min(connection.local_flow_control_window(stream), connection.max_outbound_frame_size)
            if not size:
                return
            connection.send_data(stream, left[stream][:size])
            left[stream] = left[stream][size:]
        del left[stream]
        connection.send_headers(stream, [("x-whole", "yes")], end_stream=True)


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with EchoServer() as running:
        yield running


async def test_httpx(server: EchoServer, tmp_path: Path) -> None:
    async with (
        Redrive(tmp_path, POLICY.format(port=server.port)) as redrive,
        httpx.AsyncClient(http1=False, http2=True) as client,
    ):
        answer = await client.put(f"{redrive.url}/httpx?fail=2", content=BODY)
        assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
        assert answer.content == BODY
        assert (answer.headers["x-attempt-count"], server.seen["/httpx?fail=2"]) == ("3", 3)
        answers = await asyncio.gather(*(client.get(f"{redrive.url}/{number}?fail=1") for number in range(50)))
        assert [each.status_code for each in answers] == [200] * 50
        assert (await client.get(f"{redrive.url}/never?fail=9")).status_code == 503
        assert server.seen["/never?fail=9"] == 4


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_curl(server: EchoServer, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(BODY)
    async with Redrive(tmp_path, POLICY.format(port=server.port)) as redrive:
        status, out, errors = await run(
            *("curl", "-sS", "--http2-prior-knowledge", "-T", str(tmp_path / "body"), "-o", str(tmp_path / "back")),
            *("-w", "%{http_version} %{http_code}", f"{redrive.url}/curl?fail=2"),
        )
        assert (status, out) == (0, "2 200"), errors
        assert (tmp_path / "back").read_bytes() == BODY
        assert server.seen["/curl?fail=2"] == 3


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
async def test_node(server: EchoServer, tmp_path: Path) -> None:
    (tmp_path / "call.js").write_text(NODE)
    async with Redrive(tmp_path, POLICY.format(port=server.port)) as redrive:
        status, out, errors = await run("node", str(tmp_path / "call.js"), redrive.url)
        assert status == 0, errors
        assert json.loads(out) == {"status": 200, "trailers": "yes", "size": 300000}
        assert server.seen["/node?fail=2"] == 3
