"""grpcio, on both ends of a proxy: `grpc_calls.py server PORT`, and `grpc_calls.py client PORT METHOD SECONDS`. A method
that ends in Stream answers with a hundred messages, any other with one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator

import grpc

#: The messages of an answer that streams.
MESSAGES = 100


class Echo(grpc.GenericRpcHandler):
    """Every method answers what it was sent, once or MESSAGES times."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        async def echo(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            return request

        async def stream(request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
            for _ in range(MESSAGES):
                yield request

        if handler_call_details.method.endswith("Stream"):
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(echo)


async def serve(port: int) -> None:
    """Until it is killed."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


async def call(port: int, method: str, seconds: float) -> None:
    """32 calls at a time over four channels of their own connections; prints counts and times as JSON."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(4)]
    times: list[float] = []
    failed = 0
    begun = time.perf_counter()

    async def caller(channel: grpc.aio.Channel) -> None:
        nonlocal failed
        say, hear = channel.unary_unary(method), channel.unary_stream(method)
        while (at := time.perf_counter()) - begun < seconds:
            try:
                if method.endswith("Stream"):
                    async for _ in hear(b"hello, world", timeout=5):
                        pass
                else:
                    await say(b"hello, world", timeout=5)
                times.append(time.perf_counter() - at)
            except grpc.RpcError:
                failed += 1

    await asyncio.gather(*(caller(channels[n % 4]) for n in range(32)))
    elapsed = time.perf_counter() - begun
    times.sort()
    middle, last = times[len(times) // 2], times[len(times) * 99 // 100]
    print(json.dumps({"requests": len(times), "seconds": elapsed, "p50": middle, "p99": last, "failed": failed}))


if __name__ == "__main__":
    if sys.argv[1] == "server":
        asyncio.run(serve(int(sys.argv[2])))
    else:
        asyncio.run(call(int(sys.argv[2]), sys.argv[3], float(sys.argv[4])))
