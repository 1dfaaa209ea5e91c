"""The client library, as the store uses it: it runs scripts, returns their replies, and holds one subscription.

Nothing is tried again here, and nothing waits longer than its caller allows: the caller knows what the answer is worth.
A client that failed is closed, and another is made. One connection carries everything (`line`), if the server knows
RESP3 (Redis 6 and newer, Valkey); else the subscription has a second one. A cluster has one for each node in use, and
one for the subscription.

Forms of `redis.url` (TLS with `rediss`, `valkey` and `valkeys` mean the same):

    redis://[user:password@]host[:port][/db][?option=…]
    unix:///path[?db=…]
    redis+sentinel://[user:password@]host:port,host:port/service[/db][?sentinel_username=…&sentinel_password=…]
    redis+cluster://[user:password@]host:port,host:port
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis.asyncio as client_library
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from proxy.stores.redis.bucket import Command
from proxy.stores.redis.line import Line

#: Seconds of silence on the subscription after which a PING is sent.
LISTENING = 5.0


#: The scripts of this package by name, and the digests that EVALSHA takes.
SCRIPTS = {
    name: files(__package__).joinpath(f"{name}.lua").read_text()
    for name in ("tokens", "rate", "budget", "cooldown", "places", "weather", "concurrency", "news", "members")
}
SHAS = {name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for name, text in SCRIPTS.items()}


class BadUrlError(ValueError):
    """`redis.url` has no form that the client library could use; the text says why."""


class RedisClient:
    """Connections to one Redis, Sentinel or Cluster. `connecting`: seconds that a new connection may take."""

    def __init__(self, url: str, *, connecting: float) -> None:
        form, plain, places, rest = _read(url)
        try:
            options: dict[str, Any] = dict(parse_url(plain))
        except ValueError as error:
            raise BadUrlError(str(error)) from None
        options.update(socket_connect_timeout=connecting, socket_timeout=None, retry=Retry(NoBackoff(), 0), protocol=3)
        self._connecting = connecting
        self._closing: list[Any] = []
        self._cluster = form == "cluster"
        self._options, self._places, self._rest, self._sentinel = options, places, rest, form == "sentinel"
        self._line: Line | None = None
        #: Called once, when the connection has ended, unless it was closed; never for a cluster.
        self.ended: Callable[[], None] = lambda: None
        if self._cluster:
            # The library follows keys to another node (MOVED, ASK); it tries nothing else again.
            options["protocol"] = 2
            named = ("host", "port", "db", "connection_class")
            kept = {name: value for name, value in options.items() if name not in named}
            if options.get("connection_class") is SSLConnection:
                kept["ssl"] = True
            nodes = [ClusterNode(host, port) for host, port in places]
            self._client: Any = RedisCluster(startup_nodes=nodes, **kept)
        else:
            self._client = self._library(3)

    def _library(self, protocol: int) -> Any:
        """The library's client for one server, which speaks this version of RESP; it makes connections."""
        options = {**self._options, "protocol": protocol}
        if self._sentinel:
            return self._master_of(self._places, self._rest, options)
        return client_library.Redis.from_pool(client_library.ConnectionPool(**options))

    def _master_of(self, places: list[tuple[str, int]], rest: str, options: dict[str, Any]) -> Any:
        service, _, db = rest.partition("/")
        own = [name for name in options if name.startswith("sentinel_")]
        to_sentinels = {name.removeprefix("sentinel_"): options.pop(name) for name in own}
        del options["host"], options["port"]
        if options.pop("connection_class", None) is SSLConnection:
            options["ssl"] = True
        if db:
            options["db"] = int(db)
        common = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl"))}
        common["retry"], common["protocol"] = options["retry"], 2
        to_sentinels = {**common, **to_sentinels}
        sentinel = Sentinel(places, sentinel_kwargs=to_sentinels, **options)  # type: ignore[no-untyped-call]
        self._closing += sentinel.sentinels
        return sentinel.master_for(service)

    async def connect(self) -> None:
        """Connect to Redis. Raises OSError, or a RedisError of the client library, if Redis can't be reached or
        refuses.
        """
        if self._cluster:
            await self._client.initialize()
            await self._client.ping()
            return
        try:
            await self._connect(3)
        except ResponseError as error:
            if "HELLO" not in str(error).upper() and not isinstance(error, NoPermissionError):
                raise
            if self._line is not None:
                await self._line.close()
            await self._client.aclose()
            self._client = self._library(2)  # an older server, or a user that may not choose the protocol
            await self._connect(2)

    async def _connect(self, protocol: int) -> None:
        line = self._line = Line(self._client.connection_pool.make_connection(), protocol)
        line.ended = lambda: self.ended()
        await line.open()
        (pong,) = await line.ask([("PING",)])
        if isinstance(pong, Exception):
            raise pong

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended. Always False for a cluster."""
        return self._line is not None and self._line.lost is not None

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        """Run these commands. Returns for each its reply, or the error that Redis answered. Raises if there is no
        answer.
        """
        replies = await self._evaluate(commands, known=True)
        unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            again = await self._evaluate([commands[index] for index in unknown], known=False)
            for index, reply in zip(unknown, again, strict=True):
                replies[index] = reply
        return replies

    async def _evaluate(self, commands: Sequence[Command], *, known: bool) -> list[Any]:
        spelled = [_spelled(command, known) for command in commands]
        if self._cluster:
            waiting = [self._client.execute_command(*each) for each in spelled]
            return list(await asyncio.gather(*waiting, return_exceptions=True))
        assert self._line is not None
        return await self._line.ask(spelled)

    async def fields(self, key: str) -> tuple[float, dict[bytes, bytes]]:
        """Read a hash. Returns the server's time in seconds, and the hash's fields."""
        if self._cluster:
            time = await self._client.execute_command("TIME", target_nodes=self._client.get_node_from_key(key))
            if isinstance(time, dict):
                (time,) = time.values()
            return time[0] + time[1] / 1e6, await self._client.hgetall(key)
        assert self._line is not None
        time, found = await self._line.ask([("TIME",), ("HGETALL", key)])
        for each in (time, found):
            if isinstance(each, Exception):
                raise each
        if not isinstance(found, dict):  # RESP2
            found = dict(zip(found[::2], found[1::2], strict=True))
        return int(time[0]) + int(time[1]) / 1e6, found

    async def listen(self, *channels: str) -> AsyncGenerator[tuple[str, bytes] | None]:
        """Yield the messages of these channels, each with its channel. Yields None once, when the subscription to all
        channels has begun. Raises when the subscription is lost.
        """
        if self._line is not None and self._line.subscribes:
            async with contextlib.aclosing(self._line.hear(channels)) as messages:
                async for each in messages:
                    yield each
            return
        client = self._subscriber()
        try:
            async with client.pubsub() as heard:
                async with asyncio.timeout(self._connecting):
                    await heard.subscribe(*channels)
                silent, missing = False, set(channels)
                while True:
                    message = await heard.get_message(timeout=LISTENING)
                    if message is None and silent:
                        raise ConnectionError("the subscription is silent")
                    silent = message is None
                    if message is None:
                        await heard.ping()
                    elif message["type"] == "subscribe":
                        missing.discard(message["channel"].decode())
                        if not missing:
                            yield None
                    elif message["type"] == "message":
                        yield message["channel"].decode(), bytes(message["data"])
        finally:
            if client is not self._client:
                await client.aclose()

    def _subscriber(self) -> Any:
        """The library's client for a subscription with a connection of its own. For a cluster it connects to any one
        node, because each node delivers what is published on any other.
        """
        if not self._cluster:
            return self._client
        node = self._client.get_random_node()
        options = {name: value for name, value in self._options.items() if name not in ("host", "port")}
        return client_library.Redis.from_pool(client_library.ConnectionPool(host=node.host, port=node.port, **options))

    async def close(self) -> None:
        """Close the connections."""
        if self._line is not None:
            await self._line.close()
        for client in (self._client, *self._closing):
            with contextlib.suppress(Exception):
                await client.aclose()


def _spelled(command: Command, known: bool) -> list[object]:
    start = ("EVALSHA", SHAS[command.script]) if known else ("EVAL", SCRIPTS[command.script])
    return [*start, 1, command.key, *command.arguments]


def _read(url: str) -> tuple[str, str, list[tuple[str, int]], str]:
    """Split a `redis.url`. Returns its form ("" for a single server, "sentinel" or "cluster"), a plain URL from which
    the library reads its options, the servers as host and port, and the path after them (for Sentinel, the service's
    name). For a single server, the list of servers and the path are empty: the URL has them.
    """
    parts = urlsplit(url)
    kind, _, form = parts.scheme.partition("+")
    kind = {"valkey": "redis", "valkeys": "rediss"}.get(kind, kind)
    if kind not in ("redis", "rediss", "unix") or form not in ("", "sentinel", "cluster"):
        raise BadUrlError(f"{parts.scheme or url!r} is not a scheme of redis.url")
    if not form:
        return "", parts._replace(scheme=kind).geturl(), [], ""
    user, at, hosts = parts.netloc.rpartition("@")
    servers = [_host_and_port(text, 26379 if form == "sentinel" else 6379) for text in hosts.split(",") if text]
    rest = parts.path.strip("/")
    if not servers or (form == "sentinel" and not rest):
        raise BadUrlError("a Sentinel's URL is redis+sentinel://host:port,host:port/service")
    query = urlencode(parse_qsl(parts.query))
    host, port = servers[0]
    host = f"[{host}]" if ":" in host else host
    return form, f"{kind}://{user}{at}{host}:{port}" + (f"?{query}" if query else ""), servers, rest


def _host_and_port(text: str, port: int) -> tuple[str, int]:
    with contextlib.suppress(ValueError):
        parts = urlsplit(f"//{text}")
        if parts.hostname is not None:
            return parts.hostname, parts.port or port
    raise BadUrlError(f"{text!r} is not host:port")
