"""A client of smithy-core, as its generated clients are made, whose calls go through our strategies.

Run by an interpreter that has smithy-core (Python 3.12 or later): python smithy_app.py HOST PORT. For each call it
prints what became of it, as JSON. What is smithy-core's is used as it comes; ours are a protocol and a transport, of
which it has none of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from smithy_core import URI
from smithy_core.aio.client import AsyncClient
from smithy_core.aio.interfaces.retries import RetryStrategy
from smithy_core.documents import TypeRegistry
from smithy_core.endpoints import Endpoint
from smithy_core.exceptions import CallError, RetryError, SmithyError
from smithy_core.schemas import APIOperation, Schema
from smithy_core.shapes import ShapeID, ShapeType

from proxy.retry import (
    AdaptiveRetryStrategy,
    ExponentialRetryBackoffStrategy,
    GrpcRetryStrategy,
    HedgingRetryStrategy,
    LegacyRetryStrategy,
    QuotaSpec,
    SmithyRetryStrategy,
    Standard2026RetryStrategy,
    StandardRetryStrategy,
    aio,
)

AT_ONCE = {"backoff_strategy": ExponentialRetryBackoffStrategy(base=0.001, max=0.002)}


@dataclass
class Request:
    destination: URI
    body: bytes = b""


@dataclass
class Response:
    status: int
    body: bytes = b""


class Shape:
    """An input or output without members."""

    def serialize(self, serializer: Any) -> None: ...


class Protocol:
    """As small as one can be: a GET, whose status says how it went."""

    id = ShapeID("redrive.test#Plain")

    def serialize_request(self, *, operation: Any, input: Any, endpoint: Any, context: Any) -> Request:
        return Request(endpoint)

    def set_service_endpoint(self, *, request: Request, endpoint: Any) -> Request:
        return Request(endpoint.uri, request.body)

    async def deserialize_response(
        self, *, operation: Any, request: Request, response: Response, error_registry: Any, context: Any
    ) -> Shape:
        if response.status < 400:
            return Shape()
        throttled = response.status == 429
        raise CallError(
            message=f"HTTP {response.status}",
            fault="server" if response.status >= 500 else "client",
            is_retry_safe=throttled or response.status >= 500,
            is_throttling_error=throttled,
            retry_after=0.01 if throttled else None,
        )


class Transport:
    """One connection a request, over which bytes go as they are."""

    TIMEOUT_EXCEPTIONS = (TimeoutError,)

    async def send(self, request: Request) -> Response:
        reader, writer = await asyncio.open_connection(request.destination.host, request.destination.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return Response(int(head.split(b" ", 2)[1]))


class Resolver:
    def __init__(self, uri: URI) -> None:
        self.uri = uri

    async def resolve_endpoint(self, params: Any) -> Endpoint:
        return Endpoint(uri=self.uri)


class NoAuth:
    def resolve_auth_scheme(self, *, auth_parameters: Any) -> list[Any]:
        return []


@dataclass
class Config:
    """What a generated client's has, and what it hands to each call is a deep copy."""

    retry_strategy: Any
    endpoint_resolver: Resolver
    protocol: Protocol = field(default_factory=Protocol)
    transport: Transport = field(default_factory=Transport)
    interceptors: list[Any] = field(default_factory=list)
    auth_scheme_resolver: NoAuth = field(default_factory=NoAuth)
    auth_schemes: dict[Any, Any] = field(default_factory=dict)


def schema(name: str, kind: ShapeType) -> Schema:
    return Schema(id=ShapeID(f"redrive.test#{name}"), shape_type=kind)


OPERATION = APIOperation(
    input=Shape,
    output=Shape,
    schema=schema("Get", ShapeType.OPERATION),
    input_schema=schema("GetInput", ShapeType.STRUCTURE),
    output_schema=schema("GetOutput", ShapeType.STRUCTURE),
    error_registry=TypeRegistry({}),
    effective_auth_schemes=[],
    error_schemas=[],
)


class Client(AsyncClient):
    """As smithy-python generates them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    async def get(self) -> Shape:
        config = deepcopy(self.config)
        strategy = await self._retry_strategy_resolver.resolve_retry_strategy(retry_strategy=config.retry_strategy)
        pipeline, call = self._build_call(Shape(), OPERATION, config=config, retry_strategy=strategy)
        return await pipeline(call)


async def outcome(client: Client) -> str:
    try:
        await client.get()
    except SmithyError as error:
        return f"{type(error).__name__}: {error}"
    return "ok"


async def main(host: str, port: int) -> None:
    told: dict[str, Any] = {
        "errors": [issubclass(aio.RetryError, each) for each in (RetryError, SmithyError)],
        "outcomes": {},
    }
    for made in (
        StandardRetryStrategy(**AT_ONCE),
        Standard2026RetryStrategy(**AT_ONCE),
        LegacyRetryStrategy(**AT_ONCE),
        AdaptiveRetryStrategy(**AT_ONCE),
        SmithyRetryStrategy(**AT_ONCE),
        GrpcRetryStrategy(**AT_ONCE),
        HedgingRetryStrategy(hedging_delay=0.001),
    ):
        wrapped = aio.wrap(made)
        assert isinstance(wrapped, RetryStrategy)
        client = Client(Config(wrapped, Resolver(URI(host=host, port=port, scheme="http"))))
        told["outcomes"][type(made).__name__] = [await outcome(client) for _ in range(4)]
    poor = StandardRetryStrategy(bucket=QuotaSpec(capacity=10), **AT_ONCE)
    client = Client(Config(aio.wrap(poor), Resolver(URI(host=host, port=port, scheme="http"))))
    told["poor"] = [await outcome(client) for _ in range(3)]
    told["left"] = poor.tokens_left()
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
