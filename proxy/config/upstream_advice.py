"""Advice about upstreams, their routes, and what several upstreams claim."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.config.addresses import as_glob
from proxy.config.plain_keys import keys_in_the_clear
from proxy.config.policy_advice import MOST_EARLIER, methods_of, names_grpc, tree_of
from proxy.config.problems import Mark
from proxy.config.problems import Path as KeyPath
from proxy.config.settings import Settings
from proxy.config.tls_files import fault_of_files
from proxy.config.units import is_flag, is_off
from proxy.config.yaml_tree import Map, Seq, is_file, mark_at
from proxy.extras import is_installed, remedy
from proxy.retry.policies.policy import Policy
from proxy.retry.policies.routing import HostPattern, Target, Upstream, shadows

#: Characters that are usual in regular expressions and rare in paths.
_REGEX = re.compile(r"^\^|\$$|\.[*+]|\\[A-Za-z.\/]|[()|]|\[[^\[\]]*\][*+]?|\w\+$")
#: A percent-encoded octet.
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")

#: Warnings about positions in a file: position, path and message.
_Placed = Iterator[tuple[Mark, KeyPath, str]]


class UpstreamAdvice:
    """The advice about the upstreams of one configuration. Each method for one subject yields the warnings and notes to
    report, each with its position; `on` and `on_all` call these methods.
    """

    def __init__(self, settings: Settings, placed: list[tuple[Policy, Mark, KeyPath]], tree: Map) -> None:
        self._settings = settings
        self._upstreams = settings.router.upstreams
        self._placed = placed
        self._tree = tree
        policies = (policy for upstream in self._upstreams for policy in upstream.policies)
        self._fallen_back_to = {entry.to for policy in policies for entry in policy.fallback}
        self._file_faults: dict[tuple[str, ...], str] = {}
        self._routes_at = {policy: (at, path) for policy, at, path in placed if "routes" in path}

    def on(self, upstream: Upstream) -> _Placed:
        """All advice about this upstream."""
        for advice in (
            self._routes,
            self._paths,
            self._reach,
            self._keys_in_tunnels,
            self._in_the_clear,
            self._without_tls,
            self._certificates,
            self._grpc,
            self._plain_keys,
        ):
            yield from advice(upstream)

    def on_all(self) -> _Placed:
        """All advice about the upstreams together, such as about a host that two of them claim."""
        for advice in (self._hosts, self._taken_hosts, self._services, self._redis, self._reads, self._default_files):
            yield from advice()

    def _routes(self, upstream: Upstream) -> _Placed:
        """Warn of a route that is never reached, because an earlier one takes all its calls. Routes that a gRPC service
        config gives are not examined, since the compiler puts them in the right order.
        """
        for number, route in enumerate(upstream.routes):
            before = upstream.routes[: min(number, MOST_EARLIER)]
            earlier = next((each for each in before if shadows(each.match, route.match)), None)
            if route.policy in self._routes_at and earlier is not None:
                other = self._routes_at.get(earlier.policy)
                line = f" on line {other[0].line}" if other is not None and other[0].line else ""
                message = f"is never reached: the route {earlier.policy.route}{line} takes all its calls"
                yield *self._routes_at[route.policy], message

    def _paths(self, upstream: Upstream) -> _Placed:
        """Warn of a route's path that is written as a regular expression, with a query, or percent-encoded: a path is a
        glob, and is compared with the decoded path of a request.
        """
        for route in upstream.routes:
            for path in route.match.paths if route.policy in self._routes_at else ():
                if sign := _REGEX.search(path):
                    glob = as_glob(path)
                    hint = f" (did you mean {glob}?)" if glob else ""
                    message = (
                        f"{sign[0]} reads like a regular expression; here * is any text within a segment, ** across"
                    )
                    message += hint
                elif "?" in path:
                    message = "a path is compared without its query: remove the ? and what follows it"
                elif _ENCODED.search(path):
                    message = "a path is compared percent-decoded: write the characters themselves"
                else:
                    continue
                at, where = self._routes_at[route.policy]
                where = (*where, "match", "path")
                mark = mark_at(self._tree, where)
                near = mark.file == at.file and mark.line >= at.line  # else the route is inherited from defaults
                yield mark if near else at, where, message

    def _reach(self, upstream: Upstream) -> _Placed:
        tree, path = self._written(upstream)
        at = self._tree["upstreams"].keys_at[upstream.name]
        if not upstream.target.endpoints:
            if not upstream.hosts:
                yield at, path, "is never reached: it has neither url nor hosts"
            elif "prefix" in tree and not is_off(tree["prefix"]):
                message = "has no effect: without url, a call by prefix has nowhere to go"
                yield tree.values_at["prefix"], (*path, "prefix"), message
        elif not (upstream.hosts or upstream.prefix or upstream.services or upstream.name in self._fallen_back_to):
            yield at, path, "is never reached: it has no hosts, no prefix and no services, and no fallback names it"
        if upstream.connect == "intercept":
            mark, path, ca = tree.values_at.get("connect", at), (*path, "connect"), self._settings.ca
            if not is_installed("intercept"):
                yield mark, path, f"needs the package cryptography: {remedy('intercept')}"
            if not (is_file(ca.cert) and is_file(ca.key)):
                yield mark, path, f"needs the local CA, {ca.cert}: redrive ca init makes it"
            elif fault := self._fault_of((ca.cert, ca.key)):
                yield mark, path, f"needs the local CA, and {fault}; redrive ca init makes one where there is none"
            elif is_installed("intercept"):
                yield from self._ca_limits(upstream, mark, path)

    def _ca_limits(self, upstream: Upstream, mark: Mark, path: KeyPath) -> _Placed:
        """Warn of hosts whose calls are intercepted, and that the local CA is not for."""
        from proxy.config.ca_limits import not_covered

        cert = self._settings.ca.cert
        try:
            missing = not_covered(cert, dict.fromkeys(pattern.host for pattern in upstream.hosts))
        except (OSError, ValueError):
            message = f"needs the local CA, and {cert} has no certificate that can be read"
            yield mark, path, f"{message}; redrive ca init makes one where there is none"
            return
        if missing:
            message = f"the local CA, {cert}, is not for {', '.join(missing)}, so that TLS to it fails"
            yield mark, path, f"{message}: move it and its key away, and make another with redrive ca init --for HOST"

    def _keys_in_tunnels(self, upstream: Upstream) -> _Placed:
        """Warn of credentials that no call gets, since nothing in a blind tunnel can be read or changed."""
        if upstream.policy.credentials is not None and upstream.connect == "tunnel":
            tree, path = self._written(upstream)
            message = "carries no credentials: nothing in a blind tunnel can be read; make it intercept"
            mark = tree.values_at.get("connect") or tree.keys_at["credentials"]
            yield mark, (*path, "connect"), message

    def _in_the_clear(self, upstream: Upstream) -> _Placed:
        """Warn of a host pattern for https (port 443) if a url of its upstream is http, since calls for https would
        then leave in the clear.
        """
        if not all(end.scheme == "https" or end.unix for end in upstream.target.endpoints):
            for mark, where, host in self._written_hosts(upstream):
                if host.port == 443:
                    message = f"an https request for {host} would leave in the clear: url is http; make it https"
                    yield mark, where, message

    def _without_tls(self, upstream: Upstream) -> _Placed:
        """Warn of TLS settings of an upstream whose urls are all without TLS."""
        endpoints, (tree, path) = upstream.target.endpoints, self._written(upstream)
        if not endpoints or any(end.scheme == "https" for end in endpoints):
            return
        for key in ("client_cert", "verify"):
            if key in tree and not (key == "verify" and is_flag(tree[key])):
                yield tree.keys_at[key], (*path, key), "has no effect: no url of it is https"

    def _certificates(self, upstream: Upstream) -> _Placed:
        """Warn of certificate files that TLS can't use, so that no connection to the upstream can be made, or none for
        the calls of a route.
        """
        target, (tree, path) = upstream.target, self._written(upstream)
        if not any(end.scheme == "https" for end in target.endpoints):
            return
        own = _files_of(target)
        for key, files in own:
            if fault := self._fault_of(files):
                mark = tree.values_at.get(key) or self._tree["upstreams"].keys_at[upstream.name]
                yield mark, (*path, key), f"{fault}; no connection can be made with it"
        for route in upstream.routes:
            if route.policy in self._routes_at and route.policy.target is not None:
                at, where = self._routes_at[route.policy]
                for key, files in _files_of(route.policy.target):
                    if (key, files) not in own and (fault := self._fault_of(files)):
                        yield at, (*where, key), f"{fault}; no connection can be made with it"

    def _default_files(self) -> _Placed:
        """Warn of certificate files in `defaults` that TLS can't use, unless that was said of an upstream: calls to
        hosts that no upstream names use them, too.
        """
        defaults, target = self._tree.sub("defaults"), self._settings.router.fallback.target
        for key, files in _files_of(target):
            if key in defaults and files not in self._file_faults and (fault := self._fault_of(files)):
                yield defaults.values_at[key], ("defaults", key), f"{fault}; no connection can be made with it"

    def _grpc(self, upstream: Upstream) -> _Placed:
        """Warn of an upstream of gRPC services that no gRPC call can reach, or for which no gRPC status is retried."""
        if not upstream.services:
            return
        tree, path = self._written(upstream)
        mark = tree.values_at["services"]
        if upstream.target.protocol == "http/1.1":
            message = "protocol is http/1.1: every gRPC call on HTTP/2 is answered UNIMPLEMENTED"
            yield tree.values_at.get("protocol", mark), (*path, "protocol"), message
        elif not any(names_grpc(policy) for policy in upstream.policies):
            message = (
                "no grpc-status is retried: add the dialect, `dialects: [http, grpc]`, or list statuses in classify"
            )
            yield mark, (*path, "services"), message

    def _plain_keys(self, upstream: Upstream) -> _Placed:
        yield from keys_in_the_clear(*self._written(upstream))

    def _hosts(self) -> _Placed:
        """Warn of a host that two upstreams have, of which the earlier gets the calls. Later upstreams whose urls'
        hosts all belong to the same earlier ones are reported together.
        """
        first: dict[HostPattern, str] = {}
        by_prefix: dict[tuple[str, ...], list[tuple[Mark, KeyPath, str, str]]] = {}
        for upstream in self._upstreams:
            lost = [host for host in upstream.hosts if host in first]
            taken = sorted({first[host] for host in lost})
            for host in upstream.hosts:
                first.setdefault(host, upstream.name)
            if not lost:
                continue
            tree, path = self._written(upstream)
            key, all_lost = "hosts" if "hosts" in tree else "url", len(lost) == len(upstream.hosts)
            mark, path = tree.values_at[key], (*path, key)
            have = "has" if len(taken) == 1 else "have"
            message = f"{' and '.join(taken)} already {have} {', '.join(dict.fromkeys(map(str, lost)))}"
            if key == "url" and upstream.prefix and all_lost:
                by_prefix.setdefault(tuple(taken), []).append((mark, path, message, upstream.name))
            elif all_lost:
                still = f"{upstream.name} is reached only by its prefix" if upstream.prefix else "it comes first"
                yield mark, path, f"{message}: {still}"
            elif key == "hosts":
                yield mark, path, message
        for shared in by_prefix.values():
            mark, path, message, name = shared[0]
            names = ", ".join(each[3] for each in shared[:3]) + (f" and {len(shared) - 3} more" if shared[3:] else "")
            alone = (
                f"{name} is reached only by its prefix"
                if len(shared) == 1
                else f"{names} are reached only by their prefixes"
            )
            yield mark, path, f"{message}: {alone}"

    def _taken_hosts(self) -> _Placed:
        """Warn of a host pattern written without a port (any port) if another upstream's url implies the same host with
        a port: the pattern with a port is longer and wins, so the other upstream gets those calls.
        """
        implied: dict[str, list[tuple[Upstream, HostPattern]]] = {}
        for upstream in self._upstreams:
            for host in upstream.hosts if "hosts" not in self._written(upstream)[0] else ():
                implied.setdefault(host.host, []).append((upstream, host))
        for upstream in self._upstreams:
            for mark, where, host in self._written_hosts(upstream) if implied else ():
                taken = implied.get(host.host, []) if host.port is None else []
                if taken:
                    names = ", ".join(dict.fromkeys(each.name for each, _ in taken))
                    patterns = ", ".join(dict.fromkeys(str(pattern) for _, pattern in taken))
                    yield mark, where, f"{names} takes {patterns} first, the hosts of its url; give it hosts of its own"

    def _services(self) -> _Placed:
        """Warn of a gRPC service that an earlier upstream has already."""
        first: dict[str, str] = {}
        for upstream in self._upstreams:
            taken = {service: first[service] for service in upstream.services if service in first}
            for service in upstream.services:
                first.setdefault(service, upstream.name)
            if taken:
                owners, names = " and ".join(sorted(set(taken.values()))), ", ".join(taken)
                tree, path = self._written(upstream)
                yield tree.values_at["services"], (*path, "services"), f"{owners} already has {names}: it comes first"

    def _redis(self) -> _Placed:
        """Warn of buckets in Redis if no Redis client is installed."""
        if not self._settings.uses_redis or is_installed("redis"):
            return
        stores: Iterator[tuple[Mark, KeyPath]] = (
            (tree.values_at["store"], ("buckets", name, "store"))
            for name, tree in self._tree.sub("buckets").items()
            if tree.get("store") == "redis"
        )
        at = next(stores, (self._tree.mark, ("buckets",)))
        yield *at, f"needs the package redis, or the bucket is this process's own: {remedy('redis')}"

    def _reads(self) -> _Placed:
        """Warn of a dialect that can recognise calls that only read, if that has no effect under any of the policies
        that list the dialect.
        """
        listed: dict[Mark, tuple[KeyPath, list[str]]] = {}
        for policy, at, path in self._placed:
            if policy.classify.reads:
                mark = mark_at(tree_of(self._settings, policy), ("dialects",))
                listed.setdefault(mark if mark.line else at, ((*path, "dialects"), []))[1].append(
                    self._why_no_read_helps(policy)
                )
        for mark, (path, whys) in listed.items():
            if mark.line and all(whys):
                yield mark, path, whys[0]

    def _why_no_read_helps(self, policy: Policy) -> str:
        """The reason why a dialect's ability to recognise calls that only read has no effect under this policy; "" if
        the policy retries more calls because of it.
        """
        pack, methods = policy.classify.reads[0][0], methods_of(self._settings, policy)
        if methods is not None and "POST" not in methods:
            return f"{pack} has no effect: its reads are POSTs, and this route takes none"
        if policy.strategy.max_attempts < 2:
            return f"{pack} has no effect: the strategy {policy.strategy.name} never retries"
        if policy.classify.unsafe_methods == "always":
            return f"{pack} has no effect: unsafe_methods: always repeats every POST, and not its reads alone"
        if policy.idempotency_key.inject:
            return f"{pack} has no effect: idempotency_key.inject lets every POST be repeated, and not its reads alone"
        return ""

    def _fault_of(self, files: tuple[str, ...]) -> str:
        """Return what is wrong with certificate files, which are read once for all upstreams; "" for nothing."""
        if files not in self._file_faults:
            self._file_faults[files] = fault_of_files(files)
        return self._file_faults[files]

    def _written(self, upstream: Upstream) -> tuple[Map, KeyPath]:
        return self._tree["upstreams"][upstream.name], ("upstreams", upstream.name)

    def _written_hosts(self, upstream: Upstream) -> list[tuple[Mark, KeyPath, HostPattern]]:
        """The entries of a written `hosts`, each with its position; none if `hosts` is the default."""
        tree, path = self._written(upstream)
        written, path = tree.get("hosts"), (*path, "hosts")
        if not isinstance(written, Seq):
            return [(tree.values_at["hosts"], path, host) for host in upstream.hosts] if written is not None else []
        marked = zip(written.marks, upstream.hosts, strict=True)
        return [(mark, (*path, number), host) for number, (mark, host) in enumerate(marked)]


def _files_of(target: Target) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the keys of a target that name certificate files, each with the files; no files if TLS reads none."""
    roots = (target.verify,) if isinstance(target.verify, str) else ()
    return ("verify", roots), ("client_cert", target.client_cert or ())
