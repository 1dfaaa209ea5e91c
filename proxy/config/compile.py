"""A checked tree becomes settings: the router with its policies, and everything else that the process is built from.

Law: what one key's value means for another is said here, with its place: references, kinds, defaults that depend on
the listeners. Nothing stops at the first mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from proxy.config import places, service_config
from proxy.config.environment import aws_layer
from proxy.config.kinds import Kinds
from proxy.config.layers import lay
from proxy.config.model import FILE
from proxy.config.nodes import Map, Seq, adopt
from proxy.config.policies import Policies, relative_to
from proxy.config.problem import DEFAULT, Mark, Path, Problems
from proxy.config.provenance import Provenance
from proxy.config.service_config import MethodPolicy
from proxy.config.settings import (
    ALWAYS_DENIED,
    Address,
    Admin,
    Buffers,
    CertificateAuthority,
    Limits,
    Log,
    Pool,
    Redis,
    Settings,
)
from proxy.config.units import is_off
from proxy.retry.policy import Policy, Scope
from proxy.retry.router import HostPattern, Match, Route, Router, Upstream
from proxy.retry.target import ConnectMode, Endpoint, Target

_POLICY_SECTIONS = ("defaults", "upstreams", "buckets", "strategies")
#: The label of upstreams that no configuration names.
UNMATCHED = "unmatched"


@dataclass(frozen=True, slots=True)
class Compiled:
    """Settings, and what advice.py looks at: every policy with its place."""

    settings: Settings
    places: list[tuple[Policy, Mark, Path]]


def compile_tree(
    tree: Map, file: str | None, files: Iterable[str], environ: Mapping[str, str], problems: Problems
) -> Compiled | None:
    """A checked tree, compiled; None where something is wrong, which was told."""
    top = Map(tree.mark)
    for key in tree:
        if key not in _POLICY_SECTIONS:
            top.take(key, tree)
    builtin = _builtin()
    top = lay(top, builtin)
    top.drop("defaults")
    typed: dict[str, Any] = FILE.read(top, tree.mark, (), problems.add)
    kinds = Kinds(_map(tree, "strategies"), _map(tree, "buckets"), problems)
    policies = Policies(kinds, problems)
    compiler = _Compiler(tree, top, policies, problems)
    defaults = compiler.defaults(_map(builtin, "defaults"), environ)
    upstreams = compiler.upstreams(defaults)
    fallback = compiler.fallback(defaults)
    listen = typed["listen"] if isinstance(typed["listen"], tuple) else (typed["listen"],)
    loopback = all(address.is_loopback for address in listen)
    admin = _admin(typed["admin"], top, problems)
    if fallback is None or problems.fatal:
        return None
    ports = typed["limits"].pop("connect_ports", "any" if loopback else (80, 443))
    settings = Settings(
        file=file,
        files=tuple(dict.fromkeys([*files, *compiler.files])),
        listen=listen,
        admin=admin,
        probe=typed["probe"],
        workers=typed["workers"],
        unmatched=typed.get("unmatched", "forward" if loopback else "deny"),
        deny_destinations=(*ALWAYS_DENIED, *typed["deny_destinations"]),
        via_proxy=typed["via_proxy"],
        buffers=Buffers(**typed["buffers"]),
        limits=Limits(**typed["limits"], connect_ports=None if ports == "any" else frozenset(ports)),
        pool=Pool(**typed["pool"]),
        redis=Redis(**typed["redis"]),
        ca=_ca(typed["ca"], _map(top, "ca"), file),
        log=Log(**typed["log"]),
        drain=typed["drain"],
        router=Router(tuple(upstreams), fallback),
        buckets=kinds.buckets,
        provenance=Provenance(top, policies.trees),
    )
    return Compiled(settings, compiler.placed)


def _builtin() -> Map:
    tree = adopt(FILE.defaults())
    assert isinstance(tree, Map)
    return tree


def _map(tree: Map, key: str) -> Map:
    found = tree.get(key)
    return found if isinstance(found, Map) else Map(tree.mark)


def _ca(typed: dict[str, str], tree: Map, file: str | None) -> CertificateAuthority:
    """The defaults are relative to the main file, like everything it says."""
    here = DEFAULT if file is None else Mark(file, 1, 1)
    marks = (tree.values_at[key] for key in ("cert", "key"))
    cert, key = (mark if mark.line else here for mark in marks)
    return CertificateAuthority(relative_to(cert, typed["cert"]), relative_to(key, typed["key"]))


def _admin(typed: Any, top: Map, problems: Problems) -> Admin | None:
    if typed is None:
        return None
    admin = Admin(typed) if isinstance(typed, Address) else Admin(typed["listen"], typed["token"], typed["hosts"])
    if not admin.listen.is_loopback and not admin.token:
        mark = top.values_at["admin"]
        value = top["admin"]
        if isinstance(value, Map):
            mark = value.values_at["token" if value.values_at["token"].line else "listen"]
        message = f"{admin.listen} can be reached from other machines: admin.token is required there"
        problems.add(mark, "admin.token", message)
    return admin


class _Compiler:
    """The upstreams of one file."""

    def __init__(self, tree: Map, top: Map, policies: Policies, problems: Problems) -> None:
        self._tree = tree
        self._top = top
        self._policies = policies
        self._problems = problems
        self._services: dict[int, tuple[Any, list[MethodPolicy] | None]] = {}
        self.files: list[str] = []
        self.placed: list[tuple[Policy, Mark, Path]] = []

    def defaults(self, builtin: Map, environ: Mapping[str, str]) -> Map:
        """The built-in defaults, the environment's word on the strategy, the file's `defaults`."""
        written = _map(self._tree, "defaults")
        base = builtin
        if not is_off(self._top.get("via_proxy")) and self._top.get("via_proxy") != "none":
            base = base.copy()
            base.take("via_proxy", self._top)
        said = aws_layer(environ, self._problems)
        if "strategy" not in written and "service_config" not in written:
            base = self._with_aws(base, said)
        return self._policies.layer(written, base, ("defaults",))

    def _with_aws(self, base: Map, said: Map) -> Map:
        over = Map(said.mark)
        if "mode" in said:
            over.put("strategy", said["mode"], said.values_at["mode"], said.values_at["mode"])
            base = self._policies.layer(over, base, ("defaults",))
        if "max_attempts" in said:
            attempts, at = Map(said.values_at["max_attempts"]), said.values_at["max_attempts"]
            attempts.take("max_attempts", said)
            over = Map(said.mark)
            over.put("strategy", attempts, at, at)
            base = self._policies.layer(over, base, ("defaults",))
        return base

    def upstreams(self, defaults: Map) -> list[Upstream]:
        """Every named upstream, in file order."""
        named = _map(self._tree, "upstreams")
        found: list[Upstream] = []
        prefixes: dict[str, str] = {}
        for name, tree in named.items():
            if name == UNMATCHED:
                message = f"{UNMATCHED} is the label of hosts that no upstream names"
                self._problems.add(named.keys_at[name], ("upstreams", name), message)
                continue
            upstream = self._upstream(name, tree, defaults, named.keys_at[name])
            if upstream is None:
                continue
            if upstream.prefix is not None:
                taken = prefixes.setdefault(upstream.prefix, name)
                if taken != name:
                    mark = tree.values_at.get("prefix", named.keys_at[name])
                    message = f"{upstream.prefix} is the prefix of {taken} already"
                    self._problems.add(mark, ("upstreams", name, "prefix"), message)
            found.append(upstream)
        return found

    def _upstream(self, name: str, tree: Map, defaults: Map, at: Mark) -> Upstream | None:
        path: Path = ("upstreams", name)
        merged = self._policies.layer(tree, defaults, path)
        merged.mark = at
        endpoints = [end for end in self._each(tree, "url", places.endpoint, path) if isinstance(end, Endpoint)]
        hosts = self._hosts(tree, endpoints, path)
        made = self._routed(merged, name, endpoints, path, at)
        prefix = self._prefix(name, tree, path)
        if not endpoints:  # by prefix there would be nowhere to go
            prefix = None
        if made is None:
            return None
        base, routes = made
        connect = cast(ConnectMode, str(merged["connect"]))
        return Upstream(name, name, cast(Target, base.target), base, connect, prefix, hosts, tuple(routes))

    def fallback(self, defaults: Map) -> Upstream | None:
        """The pattern of upstreams for hosts that none names. Their cooldown is off unless `defaults` sets it."""
        tree = defaults
        if not _map(defaults, "pushback").values_at["cooldown"].line:
            off = Map()
            pushback = Map()
            pushback.put("cooldown", adopt("off"), DEFAULT, DEFAULT)
            off.put("pushback", pushback, DEFAULT, DEFAULT)
            tree = lay(off, tree)
        made = self._routed(tree, UNMATCHED, (), ("defaults",), tree.mark)
        if made is None:
            return None
        base, routes = _per_host(made[0]), [replace(route, policy=_per_host(route.policy)) for route in made[1]]
        connect: ConnectMode = "deny" if tree["connect"] == "deny" else "tunnel"
        return Upstream(UNMATCHED, UNMATCHED, cast(Target, base.target), base, connect, None, (), tuple(routes))

    # -- places ----------------------------------------------------------------------------------------------------

    def _each(self, tree: Map, key: str, reader: Any, path: Path) -> list[Any]:
        """A word or a list of words, each read by `reader`."""
        value = tree.get(key)
        if value is None:
            return []
        items = zip(value, value.marks, strict=True) if isinstance(value, Seq) else [(value, tree.values_at[key])]
        found = []
        for number, (item, mark) in enumerate(items):
            try:
                found.append(reader(item))
            except ValueError as error:
                where = (*path, key, number) if isinstance(value, Seq) else (*path, key)
                self._problems.add(mark, where, str(error))
        if isinstance(value, Seq) and not value:
            self._problems.add(tree.values_at[key], (*path, key), "must not be empty")
        return found

    def _hosts(self, tree: Map, endpoints: list[Endpoint], path: Path) -> tuple[HostPattern, ...]:
        """As written, or the hosts of url, each for the url's own port and for 80 and 443."""
        if "hosts" in tree:
            return tuple(self._each(tree, "hosts", places.host_pattern, path))
        named = [end for end in endpoints if end.unix is None]
        ports = [(end.host, port) for end in named for port in (end.port, 80, 443)]
        return tuple(HostPattern(places.pattern_host(host), port) for host, port in dict.fromkeys(ports))

    def _prefix(self, name: str, tree: Map, path: Path) -> str | None:
        value = tree.get("prefix")
        if value is None:
            return f"/{name}"
        if is_off(value):
            return None
        try:
            return places.prefix(value)
        except ValueError as error:
            self._problems.add(tree.values_at["prefix"], (*path, "prefix"), str(error))
            return None

    # -- routes ----------------------------------------------------------------------------------------------------

    def _routed(
        self, merged: Map, name: str, endpoints: Iterable[Endpoint], path: Path, at: Mark
    ) -> tuple[Policy, list[Route]] | None:
        """The policy of an upstream and of each of its routes; a service config's methods are routes too."""
        ends = tuple(endpoints)
        labels: set[str] = set()
        routes: list[Route] = []
        fine = True
        written = merged.get("routes")
        under = merged.copy()
        under.drop("routes")
        for number, tree in enumerate(written if isinstance(written, Seq) else ()):
            where: Path = (*path, "routes", number)
            over = tree.copy()
            over.drop("match")
            laid = self._policies.layer(over, under, where)
            match = self._match(_map(tree, "match"))
            label = _unique(_label(match, number), labels)
            own = label if "bucket" in tree or "rate" in tree else None
            for each, glob in self._methods(laid, where):
                joined = match if glob is None else replace(match, paths=(*match.paths, glob))
                title = label if glob is None else _unique(f"{label} {each.label if each else ''}", labels)
                policy = self._make(laid, name, title, ends, where, tree.mark, each, own)
                if policy is None:
                    fine = False
                else:
                    routes.append(Route(joined, policy))
        base: Policy | None = None
        for each, glob in self._methods(under, path):
            title = "" if glob is None or each is None else _unique(each.label, labels)
            policy = self._make(under, name, title, ends, path, at, each, None)
            if policy is None:
                fine = False
            elif glob is None:
                base = policy
            else:
                routes.append(Route(Match(paths=(glob,)), policy))
        return (base, routes) if base is not None and fine else None

    def _make(
        self,
        tree: Map,
        name: str,
        label: str,
        endpoints: tuple[Endpoint, ...],
        path: Path,
        at: Mark,
        method: MethodPolicy | None,
        group: str | None,
    ) -> Policy | None:
        if method is not None:
            layer = method.layer
            if "bucket" in tree:  # named above the service config, so it is meant to replace its throttling
                layer = self._policies.layer(_only(tree, "bucket"), layer, path)
            else:
                group = "service_config"
            tree = self._policies.layer(layer, tree, path)
        policy = self._policies.make(tree, name, label, endpoints, path, method, group)
        if policy is not None:
            self.placed.append((policy, at, path))
        return policy

    def _methods(self, tree: Map, path: Path) -> list[tuple[MethodPolicy | None, str | None]]:
        """The service config's methods, the one for all the rest at the end; without one, just the policy itself."""
        value = tree.get("service_config")
        if value is None:
            return [(None, None)]
        known = self._services.get(id(value))
        if known is None:
            mark = tree.values_at["service_config"]
            found = service_config.read(value, mark, (*path, "service_config"), self._problems)
            if isinstance(value, str):
                self.files.append(relative_to(mark, value))
            known = self._services[id(value)] = value, found
        return [(each, each.glob) for each in known[1] or ()] or [(None, None)]

    def _match(self, tree: Map) -> Match:
        methods = tree.get("methods")
        marked = zip(methods, methods.marks, strict=True) if isinstance(methods, Seq) else ()
        for method, mark in marked:
            if not method.isupper():
                message = f"methods are told apart by case (did you mean {method.upper()}?)"
                self._problems.warn(mark, "match.methods", message)
        return Match(
            frozenset(str(method) for method in methods) if isinstance(methods, Seq) else None,
            (str(tree["path"]),) if "path" in tree else (),
            tuple((name.lower(), str(glob)) for name, glob in _map(tree, "headers").items()),
        )


def _only(tree: Map, key: str) -> Map:
    """A tree of one key."""
    result = Map(tree.mark)
    result.take(key, tree)
    return result


def _label(match: Match, number: int) -> str:
    """A route's name in metrics and logs, made of what it asks for."""
    parts = [",".join(sorted(match.methods))] if match.methods else []
    parts += match.paths
    parts += [f"{name}: {glob}" for name, glob in match.headers] if not parts else []
    return " ".join(parts) or f"route {number + 1}"


def _unique(label: str, taken: set[str]) -> str:
    found, number = label, 2
    while found in taken:
        found, number = f"{label} #{number}", number + 1
    taken.add(found)
    return found


def _per_host(policy: Policy) -> Policy:
    """An unmatched place is an upstream of its own: what is kept by upstream is kept by host there."""
    return replace(policy, scope=Scope("host")) if policy.scope.by == "upstream" else policy
