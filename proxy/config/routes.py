"""The policies of an upstream and its routes; the methods of a gRPC service config are routes too.

The first match wins, so the order is the file's: a user's routes before the service config's methods, those before
the policy of all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from proxy.config.merge import submap
from proxy.config.policies import Policies, PolicyPlace, relative_to
from proxy.config.problems import Mark, Path, Problems, printable
from proxy.config.yaml_tree import Map, Seq
from proxy.retry.policy import Policy
from proxy.retry.routing import Endpoint, Match, Route

if TYPE_CHECKING:
    from proxy.config.service_config import MethodPolicy


class Routes:
    """Makes the policies of one configuration. `placed` says where each was written, `files` what else was read."""

    def __init__(self, policies: Policies, problems: Problems) -> None:
        self._policies = policies
        self._problems = problems
        self._services: dict[int, tuple[Any, list[MethodPolicy] | None]] = {}
        self.files: list[str] = []
        self.placed: list[tuple[Policy, Mark, Path]] = []

    def routed(
        self, merged: Map, name: str, endpoints: Iterable[Endpoint], path: Path, at: Mark
    ) -> tuple[Policy, list[Route]] | None:
        """The policy of an upstream and of each of its routes; a service config's methods are routes too."""
        ends, labels = tuple(endpoints), dict[str, int]()
        under = merged.copy()
        under.drop("routes")
        base = self._rest(under, PolicyPlace(name, "", ends, path, at), labels)
        written = merged.get("routes")
        routes: list[Route | None] = []
        for number, tree in enumerate(written if isinstance(written, Seq) else ()):
            where: Path = (*path, "routes", number)
            over = tree.copy()
            over.drop("match")
            laid = self._policies.layer(over, under, where)
            match = self._match(submap(tree, "match"))
            label = _unique(_label(match, submap(tree, "match").get("path"), number), labels)
            place = PolicyPlace(name, label, ends, where, tree.mark, frozenset(tree) & {"bucket", "rate"})
            routes += self._route(laid, match, place, labels)
        routes += base[:-1]
        fine = [route for route in routes if route is not None]
        rest = base[-1]
        return (rest.policy, fine) if rest is not None and len(fine) == len(routes) else None

    def _route(self, tree: Map, match: Match, place: PolicyPlace, labels: dict[str, int]) -> list[Route | None]:
        """A user's route; under a service config, one for each of its methods besides."""
        found: list[Route | None] = []
        for method, glob in self._methods(tree, place.path):
            joined, at = match, place
            if glob is not None and method is not None:
                joined = replace(match, paths=(*match.paths, glob))
                at = replace(place, route=_unique(f"{place.route} {method.label}", labels))
            policy = self._make(tree, at, method)
            found.append(None if policy is None else Route(joined, policy))
        return found

    def _rest(self, tree: Map, place: PolicyPlace, labels: dict[str, int]) -> list[Route | None]:
        """The service config's methods, and the policy of all the rest as a last route that matches everything."""
        found: list[Route | None] = []
        for method, glob in self._methods(tree, place.path):
            at = place if glob is None or method is None else replace(place, route=_unique(method.label, labels))
            policy = self._make(tree, at, method)
            found.append(None if policy is None else Route(Match(paths=() if glob is None else (glob,)), policy))
        return found

    def _make(self, tree: Map, place: PolicyPlace, method: MethodPolicy | None) -> Policy | None:
        """One policy; a method of a service config lays its layer over the tree first."""
        groups: dict[str, str | None] = dict.fromkeys(place.own, place.route)
        if method is not None:
            layer = method.layer
            if "bucket" in tree:  # named above the service config, so it is meant to replace its throttling
                layer = self._policies.layer(_only(tree, "bucket"), layer, place.path)
            else:
                groups["bucket"] = "service_config"
            tree = self._policies.layer(layer, tree, place.path)
        policy = self._policies.make(tree, place, groups, method)
        if policy is not None:
            self.placed.append((policy, place.at, place.path))
        return policy

    def _methods(self, tree: Map, path: Path) -> list[tuple[MethodPolicy | None, str | None]]:
        """The service config's methods, the one for all the rest at the end; without one, just the policy itself."""
        value = tree.get("service_config")
        if value is None:
            return [(None, None)]
        known = self._services.get(id(value))
        if known is None:
            from proxy.config import service_config  # few files name one

            mark = tree.values_at["service_config"]
            found = service_config.read(value, mark, (*path, "service_config"), self._problems)
            if isinstance(value, str):
                self.files.append(relative_to(mark, value))
            known = self._services[id(value)] = value, found
        return [(each, each.glob) for each in known[1] or ()] or [(None, None)]

    def _match(self, tree: Map) -> Match:
        methods = tree.get("methods")
        if isinstance(methods, Seq) and not methods:
            self._problems.add(tree.values_at["methods"], "match.methods", "must not be empty: nothing would match")
        marked = zip(methods, methods.marks, strict=True) if isinstance(methods, Seq) else ()
        for method, mark in marked:
            if not method.isupper():
                message = f"methods are told apart by case (did you mean {method.upper()}?)"
                self._problems.warn(mark, "match.methods", message)
        return Match(
            frozenset(str(method) for method in methods) if isinstance(methods, Seq) else None,
            (str(tree["path"]),) if "path" in tree else (),
            tuple((name.lower(), str(glob)) for name, glob in submap(tree, "headers").items()),
        )


def _only(tree: Map, key: str) -> Map:
    """A tree of one key."""
    result = Map(tree.mark)
    result.take(key, tree)
    return result


def _label(match: Match, path: Any, number: int) -> str:
    """A route's name in metrics and logs, made of what it asks for, as it was written before ${NAME} was replaced.

    One that asks for header fields alone is named by them and its place in the file: their values may be secrets.
    """
    parts = [",".join(sorted(match.methods))] if match.methods else []
    parts += [str(getattr(path, "raw", path))] if path is not None else []
    if match.headers and not parts:
        return f"header {', '.join(dict.fromkeys(name for name, _ in match.headers))} #{number + 1}"
    return printable(" ".join(parts)) or f"route {number + 1}"


def _unique(label: str, taken: dict[str, int]) -> str:
    """The label, or the label with the first number that is free; `taken` counts those given so far."""
    number = taken.get(label, 0) + 1
    found = label if number == 1 else f"{label} #{number}"
    while found in taken:
        number += 1
        found = f"{label} #{number}"
    taken[label] = number
    taken.setdefault(found, 1)
    return found
