"""The upstreams of a file: their endpoints, credentials, routes and fallbacks, as the router has them.

The first route that matches wins, so routes keep the file's order: a user's routes, then the methods of a gRPC service
config, which are routes too, then the upstream's own policy.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from proxy.config import addresses
from proxy.config.policies import Policies, PolicyOwner, relative_to
from proxy.config.policy_schema import CREDENTIALS
from proxy.config.problems import DEFAULT, Mark, Path, Problems, did_you_mean, printable
from proxy.config.schema_language import SecretFile
from proxy.config.value_files import read_key_file
from proxy.config.yaml_tree import Map, Seq, Text, lay
from proxy.retry.policies.policy import Credentials, EndpointShare, KeyFile, Policy, Scope
from proxy.retry.policies.routing import ConnectMode, Endpoint, HostPattern, Match, Route, Target, Upstream

if TYPE_CHECKING:
    from proxy.config.service_config import MethodPolicy

#: The last value of each credential that stands in a file, by the file's name: a file that can't be read later, such as
#: one that is being replaced, takes no key out of use (contract, section 16).
_LAST_VALUES: dict[str, str] = {}
#: The label of upstreams that no configuration names.
UNMATCHED = "unmatched"
#: A credential's format that may be shown: {} with at most a scheme's name before it.
_PLAIN_FORMAT = re.compile(r"([A-Za-z][A-Za-z-]{0,15} )?\{\}")
#: The text that replaces a format that may not be shown.
MASK = "***"


class Upstreams:
    """A maker of a file's upstreams. `placed` has each policy with the position where it was written."""

    def __init__(self, defaults: Map, policies: Policies, problems: Problems) -> None:
        self._defaults = defaults
        self._policies = policies
        self._problems = problems
        self._services: dict[int, tuple[Any, list[MethodPolicy] | None]] = {}
        self._reachable: dict[str, bool] = {}  # by upstream: whether it has a url, even a wrong one
        self._refused: Container[str] = ()  # the names of upstreams that could not be read, which was reported
        self._falls: dict[str, dict[str, tuple[Mark, Path]]] = {}  # by upstream: its fallbacks, with their positions
        self.placed: list[tuple[Policy, Mark, Path]] = []

    def named(self, trees: Map, typed: Mapping[str, Any]) -> list[Upstream]:
        """Make every named upstream, in file order. `trees` has the tree of each upstream by name, `typed` the typed
        values of its keys.
        """
        found: list[Upstream] = []
        prefixes: dict[str, str] = {}
        self._reachable = {name: "url" in keys or "url" in trees[name].keys_at for name, keys in typed.items()}
        self._refused = trees.keys_at.keys() - trees.keys()
        for name, tree in trees.items():
            if name == UNMATCHED:
                message = f"{UNMATCHED} is the label of hosts that no upstream names"
                self._problems.add(trees.keys_at[name], ("upstreams", name), message)
                continue
            upstream = self._upstream(name, tree, typed[name], trees.keys_at[name])
            if upstream is None:
                continue
            if upstream.prefix is not None:
                taken = prefixes.setdefault(upstream.prefix, name)
                if taken != name:
                    mark = tree.values_at.get("prefix", trees.keys_at[name])
                    message = f"{upstream.prefix} is already the prefix of {taken}"
                    self._problems.add(mark, ("upstreams", name, "prefix"), message)
            found.append(upstream)
        self._refuse_circles()
        return found

    def _upstream(self, name: str, tree: Map, typed: Mapping[str, Any], at: Mark) -> Upstream | None:
        path: Path = ("upstreams", name)
        merged = self._policies.layer(tree, self._defaults, path)
        merged.mark = at
        placed = [each if isinstance(each, dict) else {"url": each} for each in _several(typed, "url")]
        endpoints = tuple(  # a socket's path is relative to the file that names it
            end if end.unix is None else replace(end, unix=relative_to(tree.values_at["url"], end.unix))
            for end in (each["url"] for each in placed)
        )
        shares = tuple(
            EndpointShare(label, each.get("weight", 1), each.get("priority", 0))
            for label, each in zip(_endpoint_labels(endpoints), placed, strict=True)
        )
        credentials = self._credentials(merged, typed.get("credentials"), endpoints, path)
        made = self._routed(merged, name, endpoints, path, at, shares, credentials)
        prefix = typed.get("prefix", f"/{name}") if endpoints else None  # a prefix names no host to send a call to
        services = _several(typed, "services")
        if services and not endpoints and not tree.is_refused("url"):
            message = "needs a url: a call by its service has nowhere to go without one"
            self._problems.add(tree.keys_at["services"], (*path, "services"), message)
        if made is None:
            return None
        base, routes = made
        hosts = _several(typed, "hosts") if "hosts" in typed else _hosts(endpoints)
        connect = cast(ConnectMode, str(merged["connect"]))
        return Upstream(name, name, cast(Target, base.target), base, connect, prefix, hosts, routes, services)

    def _credentials(self, merged: Map, typed: Any, endpoints: tuple[Endpoint, ...], path: Path) -> Credentials | None:
        """An upstream's credentials, from their `typed` section; None if it has none. In the tree `merged`, which pages
        and commands show, each credential is replaced by its number. `endpoints`: the upstream's; `path`: the
        upstream's path in the file, for problems.
        """
        if not isinstance(typed, dict):
            return None
        full = CREDENTIALS.filled(typed)
        read = [self._secret(each, full["format"], path, number) for number, each in enumerate(full["values"])]
        values = tuple(full["format"].replace("{}", value) for value, _ in read)
        files = tuple(file for _, file in read)
        tree = merged["credentials"].copy()
        written, hidden = tree["values"], Seq(tree["values"].mark)
        for number, mark in enumerate(written.marks, 1):
            hidden.put(Text.make(f"key {number}"), mark)
        tree.put("values", hidden, tree.keys_at["values"], tree.values_at["values"])
        if "format" in tree and not _PLAIN_FORMAT.fullmatch(full["format"]):  # it may contain a secret
            tree.put("format", Text.make(MASK), tree.keys_at["format"], tree.values_at["format"])
        merged["credentials"] = tree
        if not endpoints and not merged.is_refused("url"):
            message = "needs a url: where requests choose the host, keys would go to any host they name"
            self._problems.add(merged.keys_at["credentials"], (*path, "credentials"), message)
        if len(set(values)) < len(values) and any(files):
            at = merged.keys_at["credentials"]
            self._problems.add(
                at, (*path, "credentials", "values"), "two of them have the same value: list each only once"
            )
        return Credentials(full["header"], values, full["pick"], files if any(files) else ())

    def _secret(self, value: str | SecretFile, format: str, path: Path, number: int) -> tuple[str, KeyFile | None]:
        """Return the value of the upstream's credential with this number (from 1), and the file that it stands in, None
        for none. A file that can't be read keeps the value that it had before in this process. `format`: of the field's
        value; `path`: the upstream's, for errors.
        """
        if not isinstance(value, SecretFile):
            return value, None
        file = relative_to(value.mark, value.name)
        self._problems.refer(file)
        where: Path = (*path, "credentials", "values", number, "file")
        try:
            _LAST_VALUES[file] = read_key_file(file)
        except ValueError as why:
            if file in _LAST_VALUES:
                self._problems.warn(value.mark, where, f"{why}: the value that was read before stays in use")
            else:
                remedy = (
                    ""
                    if str(why).endswith((": name the file in it", ": name a file"))
                    else ": write the key into it, and nothing else"
                )
                self._problems.add(value.mark, where, f"{why}{remedy}")
            return _LAST_VALUES.get(file, ""), KeyFile(file, format, is_stale=True)
        return _LAST_VALUES[file], KeyFile(file, format)

    def fallback(self) -> Upstream | None:
        """Compile the upstream after which upstreams are made for hosts that the configuration does not name. Its
        cooldown is off unless `defaults` sets it. None if its policy is wrong.
        """
        tree = lay(Map.of({"fallback": []}), self._defaults)  # no other upstream may answer a call for any host
        if not tree.sub("pushback").values_at["cooldown"].line:
            tree = lay(Map.of({"pushback": {"cooldown": "off"}}), tree)
        for key, off in (("concurrency", "off"), ("outage", "fail")):
            if not tree.values_at[key].line:
                tree = lay(Map.of({key: off}), tree)
        made = self._routed(tree, UNMATCHED, (), ("defaults",), tree.mark)
        if made is None:
            return None
        base, routes = _per_host(made[0]), tuple(replace(each, policy=_per_host(each.policy)) for each in made[1])
        connect: ConnectMode = "deny" if tree["connect"] == "deny" else "tunnel"
        return Upstream(UNMATCHED, UNMATCHED, cast(Target, base.target), base, connect, None, (), routes)

    def _routed(
        self,
        merged: Map,
        name: str,
        endpoints: tuple[Endpoint, ...],
        path: Path,
        at: Mark,
        shares: tuple[EndpointShare, ...] = (),
        credentials: Credentials | None = None,
    ) -> tuple[Policy, tuple[Route, ...]] | None:
        """The policy of the upstream `name` and those of its routes, from the upstream's tree `merged`, which stands at
        `at` in the file; None if one of these policies is wrong. `path`: the path of the tree, for problems; `shares`:
        the weights and priorities of the upstream's endpoints; `credentials`: the upstream's, None for none.
        """
        labels: dict[str, int] = {}
        under = merged.without("routes")
        start = PolicyOwner(name, "", endpoints, path, at, shares=shares, credentials=credentials)
        base = self._routes(under, Match(), start, labels)
        routes: list[Route | None] = []
        for number, tree in enumerate(merged.get("routes") or ()):
            where: Path = (*path, "routes", number)
            laid = self._policies.layer(tree.without("match"), under, where)
            written = tree.sub("match")
            match = self._match(written, where)
            label = _unique(_label(match, written.get("path"), number), labels)
            own = frozenset(tree) & {"bucket", "rate", "concurrency"}
            owner = PolicyOwner(name, label, endpoints, where, tree.mark, own, shares, credentials)
            routes += self._routes(laid, match, owner, labels)
        *methods, rest = base
        fine = tuple(route for route in (*routes, *methods) if route is not None)
        return (rest.policy, fine) if rest is not None and len(fine) == len(routes) + len(methods) else None

    def _routes(self, tree: Map, match: Match, owner: PolicyOwner, labels: dict[str, int]) -> list[Route | None]:
        """Make the routes of a policy for the calls that `match` describes: one route or, under a gRPC service config,
        one for each of its methods, and last one for all other calls. A route whose policy is wrong, which was
        reported, is None. `labels` counts the labels given so far, so that each is unique.
        """
        found: list[Route | None] = []
        self._look_at_fallbacks(tree, owner)
        for method in self._methods(tree, owner.path):
            joined, at = match, owner
            if method is not None and method.glob is not None:
                joined = replace(match, paths=(*match.paths, method.glob))
                label = f"{owner.route} {method.glob}" if owner.route else method.glob
                at = replace(owner, route=_unique(label, labels))
            policy = self._policies.make(tree, at, method)
            if policy is not None:
                self.placed.append((policy, at.at, at.path))
            found.append(None if policy is None else Route(joined, policy))
        return found

    def _look_at_fallbacks(self, tree: Map, owner: PolicyOwner) -> None:
        """Report every entry of the `fallback` list in `tree` that cannot be used. Record which upstreams the usable
        entries name, so that `_refuse_circles` can find entries that lead a call back to an upstream where it was
        already.
        """
        entries = tree["fallback"]
        for number, entry in enumerate(entries):
            path: Path = (*owner.path, "fallback", number)
            at = entries.marks[number]
            if isinstance(entry, Map):
                path, at = (*path, "to"), entry.values_at["to"]
            name = str(entry["to"] if isinstance(entry, Map) else entry)
            if name in self._refused:
                continue
            if name not in self._reachable:
                hint = did_you_mean(name, self._reachable)
                self._problems.add(at, path, f"there is no upstream called {name!r}{hint}")
            elif not self._reachable[name]:
                self._problems.add(
                    at, path, f"{name} has no url: a call that falls back to it would have nowhere to go"
                )
            else:
                self._falls.setdefault(owner.upstream, {}).setdefault(name, (at, path))

    def _refuse_circles(self) -> None:
        """Report every circle of `fallback` entries, by which a call would come back to an upstream where it was
        already: once, at the entry that closes the circle.
        """
        done: set[str] = set()
        for first in self._falls:
            way = {first: iter(self._falls[first].items())}  # the path so far, and what is left of each list
            while way:
                name, left = next(reversed(way.items()))
                to, (at, path) = next(left, ("", (DEFAULT, ())))
                if not to:
                    done.add(name)
                    del way[name]
                elif to in way:
                    names = list(way)
                    circle = " -> ".join((*names[names.index(to) :], to))
                    self._problems.add(at, path, f"a circle, {circle}: remove one of the entries")
                elif to not in done:
                    way[to] = iter(self._falls.get(to, {}).items())

    def _methods(self, tree: Map, path: Path) -> list[MethodPolicy] | list[None]:
        """The policies of the methods in the gRPC service config that `tree` names. If it names none, or the config is
        wrong, the list has one item, None, which stands for the upstream's policy itself.
        """
        value = tree.get("service_config")
        if value is None:
            return [None]
        known = self._services.get(id(value))
        if known is None:
            from proxy.config import service_config  # imported late: few files name one

            mark = tree.values_at["service_config"]
            if isinstance(value, str):
                self._problems.refer(relative_to(mark, value))
            found = service_config.read(value, mark, (*path, "service_config"), self._problems)
            known = self._services[id(value)] = value, found
        return known[1] or [None]

    def _match(self, tree: Map, path: Path) -> Match:
        """The conditions of a route, read from `tree`, its key `match`. `path`: the route's, for problems."""
        methods = tree.get("methods")
        for method, mark in zip(methods, methods.marks, strict=True) if isinstance(methods, Seq) else ():
            if not method.isupper():
                message = f"methods are case-sensitive (did you mean {method.upper()}?)"
                self._problems.warn(mark, (*path, "match", "methods"), message)
        return Match(
            frozenset(map(str, methods)) if isinstance(methods, Seq) else None,
            (str(tree["path"]),) if "path" in tree else (),
            tuple((name.lower(), str(glob)) for name, glob in tree.sub("headers").items()),
        )


def _several(typed: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    """The typed values of a key of an upstream that takes one value or a list of them (such as `url` or `hosts`), as a
    tuple; empty if the key is absent.
    """
    found = typed.get(key, ())
    return found if isinstance(found, tuple) else (found,)


def _hosts(endpoints: tuple[Endpoint, ...]) -> tuple[HostPattern, ...]:
    """The host patterns of an upstream's urls, each for the url's own port, for 80, and for 443 if the url is https: by
    default, a call that the app makes as https never leaves in the clear (contract, section 3).
    """
    found: dict[HostPattern, None] = {}
    for end in endpoints:
        for port in (end.port, 80, 443 if end.scheme == "https" else 80) if end.unix is None else ():
            found[HostPattern(addresses.pattern_host(end.host), port)] = None
    return tuple(found)


def _label(match: Match, path: Any, number: int) -> str:
    """A route's name in metrics and logs, made of what it matches: its methods and its path, as written before ${NAME}
    was replaced. A route that matches header fields alone is named by them and its position among the routes (`number`,
    from 0), since the fields' values may be secrets.
    """
    parts = [",".join(sorted(match.methods))] if match.methods else []
    parts += [str(getattr(path, "raw", path))] if path is not None else []
    if match.headers and not parts:
        return f"header {', '.join(dict.fromkeys(name for name, _ in match.headers))} #{number + 1}"
    return printable(" ".join(parts)) or f"route {number + 1}"


def _endpoint_labels(endpoints: Sequence[Endpoint]) -> list[str]:
    """The name of each endpoint's circuit breaker: host:port, followed by the path if several endpoints share that."""
    labels, taken = [end.label for end in endpoints], dict[str, int]()
    return [
        _unique(label if labels.count(label) == 1 else label + end.shown_path, taken)
        for label, end in zip(labels, endpoints, strict=True)
    ]


def _unique(label: str, taken: dict[str, int]) -> str:
    """The label itself or, if another route or endpoint has it already, the label with the first number that makes it
    different. `taken` has the labels in use and how often each was asked for; the new label is added.
    """
    number = taken.get(label, 0) + 1
    found = label if number == 1 else f"{label} #{number}"
    while found in taken:
        number += 1
        found = f"{label} #{number}"
    taken[label] = number
    taken.setdefault(found, 1)
    return found


def _per_host(policy: Policy) -> Policy:
    """The policy for hosts that no upstream names. Each such host is an upstream of its own, so state that a policy
    keeps by upstream (such as its buckets) is kept by host there.
    """
    return replace(policy, scope=Scope("host")) if policy.scope.by == "upstream" else policy
