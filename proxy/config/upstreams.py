"""The upstreams of a configuration, and what stands for all the hosts that none of them names.

A place is read once and for all here: urls become endpoints, hosts patterns, prefixes plain paths, each mistake
with its own line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from proxy.config import addresses
from proxy.config.merge import lay, submap
from proxy.config.policies import Policies, relative_to
from proxy.config.problems import DEFAULT, Mark, Path, Problems
from proxy.config.routes import Routes
from proxy.config.schema import UPSTREAM
from proxy.config.schema_language import told_already
from proxy.config.yaml_tree import Map, adopt
from proxy.retry.policy import Policy, Scope
from proxy.retry.routing import ConnectMode, Endpoint, HostPattern, Target, Upstream

#: The label of upstreams that no configuration names.
UNMATCHED = "unmatched"


class Upstreams:
    """Makes the upstreams of one file's tree."""

    def __init__(self, tree: Map, policies: Policies, routes: Routes, problems: Problems) -> None:
        self._tree = tree
        self._policies = policies
        self._routes = routes
        self._problems = problems

    def named(self, defaults: Map) -> list[Upstream]:
        """Every named upstream, in file order."""
        named = submap(self._tree, "upstreams")
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
        endpoints = self._endpoints(tree)
        hosts = self._hosts(tree, endpoints)
        made = self._routes.routed(merged, name, endpoints, path, at)
        prefix = None  # without an endpoint there would be nowhere to go
        if endpoints:
            prefix = addresses.prefix_or_off(tree["prefix"]) if "prefix" in tree else f"/{name}"
        services = _several(tree, "services")
        if services and not endpoints:
            message = "needs a url: a call by its service has nowhere to go without one"
            self._problems.add(tree.keys_at["services"], (*path, "services"), message)
        if made is None:
            return None
        base, routes = made
        connect = cast(ConnectMode, str(merged["connect"]))
        return Upstream(name, name, cast(Target, base.target), base, connect, prefix, hosts, tuple(routes), services)

    def fallback(self, defaults: Map) -> Upstream | None:
        """The pattern of upstreams for hosts that none names. Their cooldown is off unless `defaults` sets it."""
        tree = defaults
        if not submap(defaults, "pushback").values_at["cooldown"].line:
            off = Map()
            pushback = Map()
            pushback.put("cooldown", adopt("off"), DEFAULT, DEFAULT)
            off.put("pushback", pushback, DEFAULT, DEFAULT)
            tree = lay(off, tree)
        made = self._routes.routed(tree, UNMATCHED, (), ("defaults",), tree.mark)
        if made is None:
            return None
        base, routes = _per_host(made[0]), [replace(route, policy=_per_host(route.policy)) for route in made[1]]
        connect: ConnectMode = "deny" if tree["connect"] == "deny" else "tunnel"
        return Upstream(UNMATCHED, UNMATCHED, cast(Target, base.target), base, connect, None, (), tuple(routes))

    def _endpoints(self, tree: Map) -> list[Endpoint]:
        """The places of url. A socket's path is relative to the file that names it."""
        return [
            end if end.unix is None else replace(end, unix=relative_to(tree.values_at["url"], end.unix))
            for end in _several(tree, "url")
        ]

    def _hosts(self, tree: Map, endpoints: list[Endpoint]) -> tuple[HostPattern, ...]:
        """As written, or the hosts of url, each for the url's own port, for 80, and for 443 where the url is https:
        what an app asks for as https never leaves in the clear by default (contract, section 3).
        """
        if "hosts" in tree:
            return tuple(_several(tree, "hosts"))
        named = [end for end in endpoints if end.unix is None]
        ports = [
            (end.host, port) for end in named for port in (end.port, 80, *((443,) if end.scheme == "https" else ()))
        ]
        return tuple(HostPattern(addresses.pattern_host(host), port) for host, port in dict.fromkeys(ports))


def _several(tree: Map, key: str) -> tuple[Any, ...]:
    """What a word or a list of words of an upstream reads as."""
    if key not in tree:
        return ()
    found = UPSTREAM.keys[key].form.read(tree[key], tree.values_at[key], (key,), told_already)
    return found if isinstance(found, tuple) else (found,)


def _per_host(policy: Policy) -> Policy:
    """An unmatched place is an upstream of its own: what is kept by upstream is kept by host there."""
    return replace(policy, scope=Scope("host")) if policy.scope.by == "upstream" else policy
