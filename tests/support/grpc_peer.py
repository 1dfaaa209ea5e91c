"""A gRPC server of C-core's, with generic handlers of bytes, that says what it saw.

with GrpcServer() as server:
    server.port, server.seen("key")
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent import futures
from types import TracebackType
from typing import Any, Self

import grpc

#: No limit of a message's size, and no retries of the library's own.
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


class GrpcServer(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Methods of the service acme.Echo. Metadata steers them: `fail` (so many calls of `key` fail first, with the
    status `with` and the message `say`), `late` (it fails behind the answer's head), `pushback` (of a failure),
    `silent` (so many get no answer at all). `certificate`: key and chain in PEM, to speak TLS with.
    """

    def __init__(self, *, options: list[tuple[str, Any]] | None = None, certificate: bytes | None = None) -> None:
        self._lock = threading.Condition()
        self._seen: dict[str, list[dict[str, str | bytes]]] = defaultdict(list)
        self.cancelled = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(40), options=OPTIONS + (options or []))
        self._server.add_generic_rpc_handlers((self,))
        if certificate is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            both = grpc.ssl_server_credentials([(certificate, certificate)])
            self.port = self._server.add_secure_port("127.0.0.1:0", both)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait()

    def stop(self, grace: float) -> threading.Event:
        return self._server.stop(grace)  # type: ignore[no-any-return]

    def seen(self, key: str) -> list[dict[str, str | bytes]]:
        """The metadata of each attempt of the calls with this key."""
        with self._lock:
            return list(self._seen[key])

    def wait_for(self, key: str, attempts: int = 1) -> None:
        """Block until so many attempts of the calls with this key have arrived."""
        with self._lock:
            assert self._lock.wait_for(lambda: len(self._seen[key]) >= attempts, 60)

    def service(self, details: Any) -> Any:
        one = grpc.unary_unary_rpc_method_handler
        return {
            "echo": one(self._echo),
            "wait": one(self._wait),
            "count": grpc.unary_stream_rpc_method_handler(self._count),
            "join": grpc.stream_unary_rpc_method_handler(self._join),
            "chat": grpc.stream_stream_rpc_method_handler(self._chat),
        }.get(details.method.rsplit("/", 1)[1])

    def _arrive(self, context: Any) -> dict[str, str | bytes]:
        """Note an attempt; fail it where the metadata says so."""
        metadata = dict(context.invocation_metadata())
        key = metadata.get("key", "")
        with self._lock:
            self._seen[key].append(metadata)
            number = len(self._seen[key])
            self._lock.notify_all()
        if number <= int(metadata.get("silent", 0)):
            gone = threading.Event()
            if context.add_callback(gone.set):
                gone.wait(30)
        elif number <= int(metadata.get("fail", 0)):
            if "pushback" in metadata:
                context.set_trailing_metadata((("grpc-retry-pushback-ms", metadata["pushback"]),))
            if "late" in metadata:
                context.send_initial_metadata((("early", "1"),))
            said = metadata.get("say", f"attempt {number} ∞")
            context.abort(grpc.StatusCode[metadata.get("with", "UNAVAILABLE")], said)
        context.set_trailing_metadata((("seen", str(number)), ("back-bin", b"\x00\xff" + bytes(range(10)))))
        return metadata

    def _echo(self, request: bytes, context: Any) -> bytes:
        self._arrive(context)
        return request

    def _wait(self, request: bytes, context: Any) -> bytes:
        self._arrive(context)
        context.add_callback(self.cancelled.set)
        while context.is_active():
            time.sleep(0.01)
        return request

    def _count(self, request: bytes, context: Any) -> Iterator[bytes]:
        self._arrive(context)
        number, size = map(int, request.split())
        for at in range(number):
            yield b"%d" % at + bytes(size)

    def _join(self, requests: Iterator[bytes], context: Any) -> bytes:
        self._arrive(context)
        return b",".join(requests)

    def _chat(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self._arrive(context)
        for request in requests:
            yield b"<" + request + b">"
