"""The settings: a whole compiled configuration, from which a process is built.

Settings are frozen, and contain no YAML. Durations are seconds, sizes bytes, paths absolute. A new file makes new
settings; calls that began under the old ones keep those.
"""

from __future__ import annotations

import io
import ipaddress
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from proxy.config.provenance import Provenance, uncollected
from proxy.hidden_values import HiddenValues
from proxy.retry.apps import Apps
from proxy.retry.policies.bucket_specs import BucketRef
from proxy.retry.policies.routing import Router

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Networks that no call reaches unless an upstream's url names the address: cloud metadata (contract, section 3).
ALWAYS_DENIED: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "168.63.129.16/32", "100.100.100.200/32")
)
#: The default of `connect_ports` for listeners that other machines can reach (contract, section 3).
OPEN_PORTS = frozenset({80, 443})
#: The most bytes of a unix socket's path (unix(7): 108, including the zero at its end).
LONGEST_SOCKET = 107
#: The most worker processes: half of those that the shared memory has rows for
#: (`proxy.stores.shared_memory.records.WORKERS`), so that each can be replaced while the one before it drains.
MOST_WORKERS = 127


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on: host (without brackets) and port, or a unix socket's path. Port 0 lets the system
    choose. `app`: the name of the app that the file gives this listener to, "" if any app may use it.
    """

    host: str = ""
    port: int = 0
    unix: str | None = None
    app: str = field(default="", compare=False)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.unix is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def nearby(self) -> Address:
        """The address under which a program on this machine reaches the listener: for a wildcard address, that of
        loopback.
        """
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return Address(host, self.port, self.unix)

    def __str__(self) -> str:
        if self.unix is not None:
            return f"unix:{self.unix}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin listener. `token` is "" if none is needed; `hosts` are further names it answers to."""

    listen: Address
    token: str = field(default="", repr=False)
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffers:
    """Limits of the replay buffers, in bytes: for one call, and for all."""

    per_request: int
    total: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on calls and connections.

    `header_bytes` and `headers` bound the size and the number of fields of a message's head, `waiting` the number of
    calls that are held. `connect_ports` are the ports that a CONNECT may name, None for any; if the file does not set
    them (`ports_set`), they are those of the strictest listener (see `Settings.connect_ports_on`). For an HTTP/2
    connection of an app, `streams` bounds the streams in flight, and `resets` the frames a second that carry nothing
    for a call (resets of streams, PING, SETTINGS, empty DATA), against floods.
    """

    header_bytes: int
    headers: int
    connections: int
    waiting: int
    connect_ports: frozenset[int] | None
    ports_set: bool = field(default=True, compare=False)
    streams: int = 1000
    resets: float = 1000.0


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of idle upstream connections: for how long and how many are kept for each origin. `dns_ttl`: how long a
    resolved address is used; `http2_idle`: how long an HTTP/2 connection without streams is kept; `max_age`: how old a
    connection is that an attempt takes, at most (None: any).
    """

    idle: float
    max_idle: int
    dns_ttl: float
    http2_idle: float = 60.0
    max_age: float | None = None


@dataclass(frozen=True, slots=True)
class Redis:
    """The connection to Redis. `url` may contain a password: mask it wherever it is shown."""

    url: str = field(repr=False)
    prefix: str
    timeout: float
    on_outage: Literal["share", "local", "deny"]


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """The local CA for interception; absolute paths. The files may not exist yet (`redrive ca init`)."""

    cert: str
    key: str


@dataclass(frozen=True, slots=True)
class Log:
    """The access log's form and the lowest level that is written."""

    format: Literal["auto", "json", "console"]
    level: Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True)
class Settings:
    """Every top-level key of the file.

    `workers`: None is one for each core (`auto`). `deny_destinations` includes the built-in ones. `buckets` are the
    named ones. `files` are all files that were read, which a watcher has to watch. `uses_redis`: whether any bucket is
    in Redis; `redis_upstreams` are the upstreams that use one: the fleet shares their cooldowns too. `unmatched` is the
    rule for hosts that no upstream names, if the file does not set it (`unmatched_set`) that of the strictest listener;
    `unmatched_on` gives it for each. `apps`: the apps by name, None if the file has no such section. `hidden`: the
    contents of files that went into addresses and other values that are shown, None if there are none.
    """

    file: str | None
    files: tuple[str, ...]
    listen: tuple[Address, ...]
    admin: Admin | None
    probe: Address | None
    workers: int | None
    unmatched: Literal["forward", "deny"]
    deny_destinations: tuple[Network, ...]
    via_proxy: str | None
    buffers: Buffers
    limits: Limits
    pool: PoolLimits
    redis: Redis
    ca: CertificateAuthority
    log: Log
    drain: float
    router: Router
    buckets: Mapping[str, BucketRef]
    provenance: Provenance
    unmatched_set: bool = True
    uses_redis: bool = False
    redis_upstreams: frozenset[str] = frozenset()
    apps: Apps | None = None
    hidden: HiddenValues | None = None

    def unmatched_on(self, *, loopback: bool) -> Literal["forward", "deny"]:
        """The rule for calls on a listener whose host no upstream names. If the file does not set it, a loopback
        listener (`loopback`) forwards them, and another denies them.
        """
        return self.unmatched if self.unmatched_set else "forward" if loopback else "deny"

    def connect_ports_on(self, *, loopback: bool) -> frozenset[int] | None:
        """The ports that a CONNECT on a listener may name, None for any. If the file does not set them, they are any on
        a loopback listener (`loopback`), and 80 and 443 on others.
        """
        if self.limits.ports_set:
            return self.limits.connect_ports
        return None if loopback else OPEN_PORTS


# -- settings as bytes, from the parent to its workers: both ends are this program -------------------------------------
#
# Pickling and unpickling run Python code for every dataclass, so that a thread that does it releases the interpreter to
# calls in between. The trees of `Provenance` are not sent; a worker makes users' own strategies again.


def pack(settings: Settings) -> bytes:
    """The settings as bytes, from which `unpack` restores them in another process. The provenance of the policies is
    left out; that of the top level is included.
    """
    router = settings.router
    policies = (policy for upstream in (*router.upstreams, router.fallback) for policy in upstream.policies)
    remakes = {id(each.custom): each.remake for each in (policy.strategy for policy in policies) if each.remake}
    out = io.BytesIO()
    _Pickler(out, remakes).dump(replace(settings, provenance=Provenance(settings.provenance.top)))
    return out.getvalue()


def unpack(packed: bytes) -> Settings:
    """Restore the settings from the bytes that `pack` made, and lay them out for calls. Raises whatever the constructor
    of a user's own strategy raises.
    """
    with uncollected():
        settings: Settings = pickle.loads(packed)  # noqa: S301  bytes that our parent made
        settings.router.lay_out()
    return settings


class _Pickler(pickle.Pickler):
    """A pickler that stores a user's own strategy as the function that makes it again. `remakes` has these functions,
    by the strategy's id.
    """

    def __init__(self, out: io.BytesIO, remakes: dict[int, Callable[[], Any]]) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._remakes = remakes

    def reducer_override(self, part: Any) -> Any:
        remake = self._remakes.get(id(part))
        return NotImplemented if remake is None else (remake, ())
