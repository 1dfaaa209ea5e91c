"""The choice of the policy that a call gets (contract, section 3, "Which policy").

Routing is a pure function of authority, method, path and fields, and never touches the bytes that are forwarded. Hosts:
an exact pattern beats a glob, a longer one beats a shorter one, then the file's order decides; a pattern written
without a port matches any port. The result for an authority is remembered, so that the patterns are tried once for each
authority and not for each call. Prefixes: the longest wins, and must be followed by `/`, `?` or the end of the path. A
path whose `..` would climb above the prefix is refused, however its dots are spelled. Routes are matched against a copy
of the path that is percent-decoded and has no dot segments.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from ipaddress import IPv6Address
from typing import Literal
from urllib.parse import unquote_to_bytes

from proxy.hidden_values import HiddenValues
from proxy.retry.facts import Fields
from proxy.retry.policies.globs import host_glob, matches_path, path_glob
from proxy.retry.policies.policy import Policy
from proxy.retry.policies.route_index import RouteIndex

#: The most authorities remembered with their upstreams; beyond that the memory is cleared.
MOST_REMEMBERED = 8192
#: The longest authority that is looked up: a host name has 253 characters at most (RFC 1035, section 2.3.4).
LONGEST_AUTHORITY = 270
#: The most unmatched places that are kept (contract, section 3).
MOST_UNMATCHED = 1000
#: The path of a gRPC call (gRPC over HTTP/2, "Requests"): a service and a method, and nothing else.
_CALLED = re.compile(rb"/([^/?]+)/[^/?]+(?:\?|\Z)")


# -- where an upstream is: data for transport, which policies carry and no decision reads ------------------------------

#: The (verify, client certificate, parent proxy) of a `Target`.
Reach = tuple[bool | str, tuple[str, str] | None, str | None]
ConnectMode = Literal["auto", "tunnel", "intercept", "deny"]
#: The protocol of attempts; "auto": the one that the app used (contract, section 12).
Protocol = Literal["auto", "http/1.1", "http/2"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of an upstream. `host`: a name, or an address without brackets. `path`: the url's path without a
    trailing "/" ("" if the url has none); it is put before the request's path if the app uses a prefix. `unix`: the
    path of a socket, otherwise None. `private`: part of the path came from the environment, so it is not shown.
    """

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str = ""
    unix: str | None = None
    private: bool = field(default=False, compare=False)

    @property
    def authority(self) -> str:
        """The host[:port] as a Host field names it: the scheme's default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"

    @property
    def label(self) -> str:
        """The endpoint's name in records and metrics: host:port, or unix:/path."""
        return f"unix:{self.unix}" if self.unix else f"{self.host}:{self.port}"

    @property
    def shown_path(self) -> str:
        """The url's path as it is shown to people: without the part that came from the environment."""
        return "/***" if self.private else self.path


@dataclass(frozen=True, slots=True)
class Target:
    """The endpoints to which an upstream's attempts go, and how they are reached. `endpoints`: empty if the request's
    own authority names the endpoint. `verify`: whether certificates are verified; a str is the path of a CA file to
    use. `client_cert`: (cert file, key file), None for none. `via_proxy`: "http://host:port" of a parent proxy, None
    for none. `protocol`: the protocol of attempts. `hidden`: what messages about the endpoints may not show, None for
    nothing.
    """

    endpoints: tuple[Endpoint, ...] = ()
    verify: bool | str = True
    client_cert: tuple[str, str] | None = None
    via_proxy: str | None = None
    protocol: Protocol = "auto"
    hidden: HiddenValues | None = field(default=None, compare=False)

    @property
    def reach(self) -> Reach:
        """The settings by which each of the endpoints is connected to: `verify`, client certificate and parent
        proxy.
        """
        return self.verify, self.client_cert, self.via_proxy


# -- which upstream and policy a call gets -----------------------------------------------------------------------------


class ClimbsOut(Exception):  # noqa: N818 - the name states the fact about the path
    """The error for a request path in which a `..` would lead above the prefix with which the path begins."""


@dataclass(frozen=True, slots=True)
class HostPattern:
    """A pattern of hosts. `host`: in lower case, without a trailing dot, IPv6 in brackets; `*` stands for any
    characters. `port`: None for any port.
    """

    host: str
    port: int | None = None

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"

    @property
    def is_glob(self) -> bool:
        """Whether the pattern contains a wildcard, so that it may match more than one host."""
        return "*" in self.host

    def matches(self, host: str, port: int) -> bool:
        """Whether the pattern matches this host and port."""
        if self.port is not None and self.port != port:
            return False
        return host_glob(self.host).fullmatch(host) is not None if self.is_glob else self.host == host


@dataclass(frozen=True, slots=True)
class Match:
    """The conditions of a route; all that are given must hold.

    `methods`: exact tokens. `paths`: globs, all of which must match (`*` within a segment, `**` across segments).
    `headers`: pairs of a lower-case name and a glob, all of which must match; `*` means present, and one matching value
    of a field is enough.
    """

    methods: frozenset[str] | None = None
    paths: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    def holds(self, method: str, path: str, fields: Fields) -> bool:
        """Whether the call fulfils the conditions. `path` is a plain path (see `plain_path`)."""
        if self.methods is not None and method not in self.methods:
            return False
        for glob in self.paths:
            if not matches_path(glob, path):
                return False
        return not self.headers or all(
            any(fnmatchcase(value, glob) for value in fields.get_all(name)) for name, glob in self.headers
        )


@dataclass(frozen=True, slots=True)
class Route:
    """The conditions of a route, and the policy of the calls that fulfil them."""

    match: Match
    policy: Policy


@dataclass(frozen=True, eq=False)
class Upstream:
    """A named destination. `label`: its name in metrics (`unmatched` if it was made for a host that no configured
    upstream names). `policy`: applies if no route does. `prefix`: None if it has none. `connect`: how a CONNECT to its
    hosts is handled. `services`: globs of the gRPC services whose calls lead here if no upstream has the authority.
    """

    name: str
    label: str
    target: Target
    policy: Policy
    connect: ConnectMode = "auto"
    prefix: str | None = None
    hosts: tuple[HostPattern, ...] = ()
    routes: tuple[Route, ...] = ()
    services: tuple[str, ...] = ()

    def policy_for(self, method: str, path: bytes, fields: Fields) -> Policy:
        """The policy of one call: that of the first route that matches or, if none does, the upstream's own. `path`: a
        raw path in origin form, with its query.
        """
        if not self.routes:
            return self.policy
        plain = plain_path(path)
        for number in self._index.candidates(method, plain):
            route = self.routes[number]
            if route.match.holds(method, plain, fields):
                return route.policy
        return self.policy

    @cached_property
    def _index(self) -> RouteIndex:
        return RouteIndex((route.match.methods, route.match.paths) for route in self.routes)

    @cached_property
    def begins(self) -> bytes:
        """The upstream's prefix followed by a slash, as bytes."""
        return (self.prefix or "").rstrip("/").encode() + b"/"

    @cached_property
    def policies(self) -> tuple[Policy, ...]:
        """Every policy that a call to this upstream may get."""
        return (*(route.policy for route in self.routes), self.policy)


@dataclass(frozen=True)
class Router:
    """All upstreams of one generation of the configuration, in file order.

    `fallback`: the model for the upstreams that are made for hosts which no upstream names; its name is `unmatched`.
    """

    upstreams: tuple[Upstream, ...]
    fallback: Upstream
    _known: dict[tuple[str, int], Upstream | None] = field(default_factory=dict, repr=False)
    _unmatched: OrderedDict[str, Upstream] = field(default_factory=OrderedDict, repr=False)

    def by_authority(self, authority: str, default_port: int) -> Upstream | None:
        """The upstream that names this host[:port], or None. `default_port`: the port to use if the authority has none.

        An invalid authority (with a bad port, say) is named by no upstream.
        """
        if len(authority) > LONGEST_AUTHORITY:
            return None
        key = (authority, default_port)
        try:
            return self._known[key]
        except KeyError:
            pass
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        found = self._known[key] = self._look_up(authority, default_port)
        return found

    def by_prefix(self, path: bytes) -> tuple[Upstream, bytes] | None:
        """The upstream with whose prefix this raw path begins, and the rest of the path, which begins with `/`; None if
        there is no such upstream.

        Raises ClimbsOut if a `..` in the rest leads above the prefix.
        """
        for segments, prefixes in self._prefixes:
            begin = segments.match(path)
            found = prefixes.get(begin[0]) if begin is not None else None
            if begin is not None and found is not None:
                rest = path[begin.end() :]
                if climbs(rest):
                    raise ClimbsOut(path.decode("latin-1"))
                return found, rest if rest[:1] == b"/" else b"/" + rest
        return None

    def by_service(self, path: bytes) -> Upstream | None:
        """The upstream that names the gRPC service in this raw path, `/package.Service/Method`, or None. An exact
        service beats a glob, a longer one beats a shorter one, then the file's order decides.
        """
        exact, globs = self._services
        named = _CALLED.match(path) if exact or globs else None
        if named is None:
            return None
        service = named[1].decode("latin-1")
        fits = (upstream for glob, upstream in globs if host_glob(glob).fullmatch(service))
        return exact.get(service) or next(fits, None)

    def path_after_prefix(self, upstream: Upstream, path: bytes) -> bytes | None:
        """The rest of a raw path after this upstream's prefix; None if `by_prefix` does not find this upstream for the
        path, or raises.
        """
        prefix = upstream.begins
        if self._is_flat and path.startswith(prefix) and not climbs(path[len(prefix) :]):
            return path[len(prefix) - 1 :]
        try:
            found = self.by_prefix(path)
        except ClimbsOut:
            return None
        return found[1] if found is not None and found[0] is upstream else None

    def sure_prefix(self, upstream: Upstream) -> bytes | None:
        """The prefix of this upstream with a slash after it, if every path that begins with it leads to this upstream
        for sure. None if the upstream has no prefix, or if another upstream's prefix may begin with it (the prefixes
        differ in their number of segments).
        """
        return upstream.begins if self._is_flat and upstream.prefix is not None else None

    def unmatched(self, authority: str) -> Upstream:
        """An upstream for this authority, with the policy of `defaults`, made because no configured upstream names the
        authority. The 1,000 of these that were used most recently are kept.
        """
        name = authority.lower()
        found = self._unmatched.get(name)
        if found is None:
            base = self.fallback
            found = Upstream(name, base.label, base.target, base.policy, base.connect, None, (), base.routes)
            self._unmatched[name] = found
            if len(self._unmatched) > MOST_UNMATCHED:
                self._unmatched.popitem(last=False)
        else:
            self._unmatched.move_to_end(name)
        return found

    @cached_property
    def by_name(self) -> dict[str, Upstream]:
        """The configured upstreams by their names."""
        return {upstream.name: upstream for upstream in self.upstreams}

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """All prefixes, in file order."""
        return tuple(upstream.prefix for upstream in self.upstreams if upstream.prefix is not None)

    @cached_property
    def named_ports(self) -> frozenset[int]:
        """The ports that any upstream's url or hosts name. CONNECT may use them, whatever `connect_ports` says."""
        ports = {end.port for upstream in self.upstreams for end in upstream.target.endpoints}
        ports |= {host.port for upstream in self.upstreams for host in upstream.hosts if host.port is not None}
        return frozenset(ports)

    # -- tables, computed when first needed ------------------------------------------------------------------------

    def lay_out(self) -> tuple[object, ...]:
        """Compute the look-up tables (hosts, prefixes, services, names, ports) now, and return them. Otherwise the
        first call that needs a table computes it.
        """
        return self._hosts, self._prefixes, self._services, self.by_name, self.named_ports

    def _look_up(self, authority: str, default_port: int) -> Upstream | None:
        place = split_authority(authority, default_port)
        if place is None:
            return None
        exact, globs = self._hosts
        candidates = (*exact.get(place[0], ()), *globs)
        return next((upstream for pattern, upstream in candidates if pattern.matches(*place)), None)

    @cached_property
    def _hosts(self) -> tuple[dict[str, list[tuple[HostPattern, Upstream]]], list[tuple[HostPattern, Upstream]]]:
        """The hosts of upstreams as look-up tables: the exact patterns by their hosts, and the globs. In both, longer
        patterns come first, then the file's order decides (the sort is stable).
        """
        pairs = [(pattern, upstream) for upstream in self.upstreams for pattern in upstream.hosts]
        pairs.sort(key=lambda pair: -len(str(pair[0])))
        exact: dict[str, list[tuple[HostPattern, Upstream]]] = {}
        for pattern, upstream in pairs:
            if not pattern.is_glob:
                exact.setdefault(pattern.host, []).append((pattern, upstream))
        return exact, [pair for pair in pairs if pair[0].is_glob]

    @cached_property
    def _services(self) -> tuple[dict[str, Upstream], list[tuple[str, Upstream]]]:
        """The exact services by name, and the globs of services, the longest first, then in file order (the sort is
        stable).
        """
        named = [(service, upstream) for upstream in self.upstreams for service in upstream.services]
        exact: dict[str, Upstream] = {}
        for service, upstream in named:
            if "*" not in service:
                exact.setdefault(service, upstream)
        globs = [pair for pair in named if "*" in pair[0]]
        return exact, sorted(globs, key=lambda pair: -len(pair[0]))

    @cached_property
    def _is_flat(self) -> bool:
        """Whether all path prefixes of upstreams have the same number of segments, so that none begins with another."""
        return len(self._prefixes) == 1

    @cached_property
    def _prefixes(self) -> list[tuple[re.Pattern[bytes], dict[bytes, Upstream]]]:
        """Tables of prefixes, one for each number of segments in use, the largest number first. Each comes with the
        expression that finds the beginning of a path with as many segments.
        """
        table: dict[int, dict[bytes, Upstream]] = {}
        for upstream in self.upstreams:
            if upstream.prefix is not None:
                raw = b"" if upstream.prefix == "/" else upstream.prefix.encode()
                table.setdefault(raw.count(b"/"), {}).setdefault(raw, upstream)
        return [(re.compile(rb"(?:/[^/?]*){%d}" % depth), table[depth]) for depth in sorted(table, reverse=True)]


def split_authority(authority: str, default_port: int) -> tuple[str, int] | None:
    """The host (in lower case without a trailing dot, IPv6 in its shortest form) and the port that an authority names.
    None if the text is no authority. `default_port`: the port if the authority names none.
    """
    host, colon, port = authority.rpartition(":")
    if not colon or host.count("[") != host.count("]"):  # no port, or a colon inside [IPv6]
        host, port = authority, ""
    if not port:
        number = default_port
    elif port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535:
        number = int(port)
    else:
        return None
    host = host.lower().removesuffix(".")
    if host.startswith("["):
        with suppress(ValueError):
            host = f"[{IPv6Address(host[1:-1])}]"  # as in patterns: `[0:0:0:0:0:0:0:1]` becomes `[::1]`
    return (host, number) if host else None


def climbs(rest: bytes) -> bool:
    """Whether a `..` in `rest`, the part of a path after a prefix, leads above its start, either as it is written or
    when it is percent-decoded.
    """
    if (
        rest.find(b".") < 0 and rest.find(b"%2") < 0
    ):  # a fast test for most paths; `find`, since `in` raises and catches an error inside
        return False
    path = rest.partition(b"?")[0]
    decoded = unquote_to_bytes(path).replace(b"\\", b"/")
    return _climbs(re.sub(rb"%2[eE]", b".", path)) or _climbs(decoded)


def _climbs(path: bytes) -> bool:
    depth = 0
    for segment in path.split(b"/"):
        if segment == b"..":
            depth -= 1
            if depth < 0:
                return True
        elif segment and segment != b".":  # an empty segment adds no depth, since some servers merge slashes
            depth += 1
    return False


def plain_path(path: bytes) -> str:
    """The copy of a raw path that routes are matched against: without query, percent-decoded, without dot segments (RFC
    3986 §5.2.4).

    If the path climbs above the root, the copy stays at the root; what is forwarded is the raw path.
    """
    path = path.partition(b"?")[0]
    if 0x25 in path:  # %; bytes in bytes would make an error, and drop it, each time
        path = unquote_to_bytes(path)
    if path.find(b"/.") >= 0:
        kept: list[bytes] = []
        segments = path.split(b"/")[1:]
        for segment in segments:
            if segment == b"..":
                del kept[-1:]
            elif segment != b".":
                kept.append(segment)
        if segments[-1] in (b".", b".."):
            kept.append(b"")
        path = b"/" + b"/".join(kept)
    return path.decode("utf-8", "surrogateescape")


def shadows(earlier: Match, later: Match) -> bool:
    """Whether `earlier` matches every call that `later` matches, so that a route with the conditions `later`, after one
    with `earlier`, would never apply. If the result is True, this is certain; if it is False, it may still be so.
    """
    if earlier.methods is not None and (later.methods is None or not later.methods <= earlier.methods):
        return False
    if not set(earlier.headers) <= set(later.headers) | {(name, "*") for name, _ in later.headers}:
        return False
    return all(any(_covers(wide, narrow) for narrow in later.paths or ("**",)) for wide in earlier.paths)


#: Two characters that no pattern contains: one that only a wildcard matches, one that only `**` matches.
_WITHIN, _ACROSS = "\x01", "\x02"


def _covers(wide: str, narrow: str) -> bool:
    sample = narrow.replace("**", _ACROSS).replace("*", _WITHIN)
    return path_glob(wide, f"[^/{_ACROSS}]").fullmatch(sample) is not None
