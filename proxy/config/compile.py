"""The compiler of a checked tree into settings: the router with its policies, and all that the process is built from.

Rules between keys are applied here, and their errors reported with a position: references, kinds, defaults that depend
on the listeners. All mistakes are collected, not only the first. `proxy.config.upstreams` compiles the upstreams.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proxy.config.policies import Policies, relative_to
from proxy.config.policy_schema import DEFAULTS
from proxy.config.problems import DEFAULT, Mark, Path, Problems, did_you_mean
from proxy.config.provenance import Provenance
from proxy.config.schema import APP, APPS, FILE
from proxy.config.settings import (
    ALWAYS_DENIED,
    OPEN_PORTS,
    Address,
    Admin,
    Buffers,
    CertificateAuthority,
    Limits,
    Log,
    PoolLimits,
    Redis,
    Settings,
)
from proxy.config.strategies import Kinds
from proxy.config.units import is_off
from proxy.config.upstreams import Upstreams
from proxy.config.yaml_tree import Map, lay, mark_at
from proxy.retry.apps import OTHERS, RANKS, Apps, NamedApp
from proxy.retry.policies.policy import Policy
from proxy.retry.policies.routing import Router

_AWS_MODES = ("legacy", "standard", "adaptive")
_POLICY_SECTIONS = ("defaults", "upstreams", "buckets", "strategies")


def compile_tree(
    tree: Map,
    found: Mapping[str, Any],
    file: str | None,
    files: list[str],
    environ: Mapping[str, str],
    problems: Problems,
    under: Map | None,
) -> tuple[Settings, list[tuple[Policy, Mark, Path]]] | None:
    """Compile a checked tree. Return the settings, and every policy with its position in the file and its path; None if
    the errors leave no valid settings. Parts with an error that was reported already are left out. `found`: the typed
    values of the tree's keys; `file`: the main file, None for the built-in defaults; `environ`: the environment
    variables. The paths of further files that are read here are added to `files`. `under` is a layer of policy that
    applies where the tree sets nothing, above the built-in defaults.
    """
    top = lay(tree.without(*_POLICY_SECTIONS), FILE.defaults.without("defaults"))
    typed = FILE.filled(found)
    refused = {section for section in _POLICY_SECTIONS if tree.is_refused(section)}
    apps = _apps(found.get("apps"))
    shares = () if apps is None else apps.shares
    kinds = Kinds(tree.sub("strategies"), tree.sub("buckets"), problems, refused, shares)
    policies = Policies(kinds, problems, frozenset() if apps is None else apps.never_forwarded)
    policies.defaults = _defaults(tree.sub("defaults"), top, policies, _aws_layers(environ, problems), under)
    upstreams = Upstreams(policies.defaults, policies, problems)
    named = upstreams.named(tree.sub("upstreams"), found.get("upstreams", {}))
    fallback = upstreams.fallback()
    files += [each for each in problems.referred if each not in files]
    written = typed["listen"] if isinstance(typed["listen"], tuple) else (typed["listen"],)
    listen = tuple(_listener(each, mark_at(top, ("listen", number))) for number, each in enumerate(written))
    loopback = all(address.is_loopback for address in listen)
    admin = _admin(typed["admin"], top, problems)
    probe = typed["probe"] and _beside(typed["probe"], mark_at(top, ("probe",)))
    _refuse_shared_addresses(listen, admin, probe, top, problems)
    if fallback is None:
        return None
    in_redis = frozenset(
        upstream.name
        for upstream in named
        for policy in upstream.policies
        for ref in (policy.bucket, *policy.rates)
        if ref is not None and ref.spec.store == "redis"
    )
    limits = dict(typed["limits"])
    ports = limits.pop("connect_ports", None)
    open_ports = None if loopback else OPEN_PORTS
    connect_ports = open_ports if ports is None else None if ports == "any" else frozenset(ports)
    settings = Settings(
        file=file,
        files=tuple(files),
        listen=listen,
        apps=apps,
        admin=admin,
        probe=probe,
        workers=typed["workers"],
        unmatched=typed.get("unmatched", "forward" if loopback else "deny"),
        deny_destinations=(*ALWAYS_DENIED, *typed["deny_destinations"]),
        via_proxy=typed["via_proxy"],
        buffers=Buffers(**typed["buffers"]),
        limits=Limits(**limits, connect_ports=connect_ports, ports_set=ports is not None),
        pool=PoolLimits(**typed["pool"]),
        redis=Redis(**typed["redis"]),
        ca=_ca(typed["ca"], top.sub("ca"), file),
        log=Log(**typed["log"]),
        drain=typed["drain"],
        router=Router(tuple(named), fallback),
        buckets=kinds.buckets,
        provenance=Provenance(top, policies.trees),
        unmatched_set="unmatched" in typed,
        uses_redis=bool(in_redis) or any(ref.spec.store == "redis" for ref in kinds.buckets.values()),
        redis_upstreams=in_redis,
        hidden=problems.hidden,
    )
    return settings, upstreams.placed


def _ca(typed: dict[str, str], tree: Map, file: str | None) -> CertificateAuthority:
    """The paths of the local CA, from the typed values and the tree of the section `ca`. The defaults are relative to
    `file`, the main file, like everything that it contains (None: to the working directory).
    """
    here = DEFAULT if file is None else Mark(file, 1, 1)
    marks = (tree.values_at[key] for key in ("cert", "key"))
    cert, key = (mark if mark.line else here for mark in marks)
    return CertificateAuthority(relative_to(cert, typed["cert"]), relative_to(key, typed["key"]))


def _beside(address: Address, mark: Mark) -> Address:
    """The address, with a unix socket's path made absolute: the path is relative to the file that contains `mark`."""
    return address if address.unix is None else Address(unix=relative_to(mark, address.unix))


def _admin(typed: Any, top: Map, problems: Problems) -> Admin | None:
    if typed is None:
        return None
    address = _beside(typed if isinstance(typed, Address) else typed["listen"], mark_at(top, ("admin", "listen")))
    admin = Admin(address) if isinstance(typed, Address) else Admin(address, typed["token"], typed["hosts"])
    if not admin.listen.is_loopback and not admin.token:
        mark, value = top.values_at["admin"], top["admin"]
        if isinstance(value, Map):
            if any(each.path == "admin.token" for each in problems.errors):
                return admin
            mark = value.values_at["token" if value.values_at["token"].line else "listen"]
        message = f"{admin.listen} can be reached from other machines: admin.token is required there"
        problems.add(mark, "admin.token", message)
    return admin


def _listener(typed: Address | dict[str, Any], mark: Mark) -> Address:
    """The address of a listener, with the name of the app that uses it, if the file gives one. `typed`: the setting as
    read; `mark`: its position in the file, to which a unix socket's path is relative.
    """
    if isinstance(typed, Address):
        return _beside(typed, mark)
    return replace(_beside(typed["address"], mark), app=typed["app"])


def _apps(typed: dict[str, Any] | None) -> Apps | None:
    """Make the apps from the typed section `apps`; None if the file has no such section."""
    if typed is None:
        return None
    full = APPS.filled(typed)
    by = tuple(each if isinstance(each, str) else each["header"].lower() for each in full["by"])
    fields = frozenset(each["header"].lower() for each in full["by"] if not isinstance(each, str))
    known = {name: _app(name, each) for name, each in full["known"].items()}
    return Apps(by, full["required"], known, _app(OTHERS, full.get("others") or {}), fields)


def _app(name: str, typed: dict[str, Any]) -> NamedApp:
    full = APP.filled(typed)
    return NamedApp(name, full["weight"], RANKS[full["priority"]])


def _refuse_shared_addresses(
    listen: tuple[Address, ...], admin: Admin | None, probe: Address | None, top: Map, problems: Problems
) -> None:
    """Report an address that two listeners name (those of `listen`, the admin port, the probe) as an error. `top`: the
    keys of the file, for the error's position.
    """
    taken: dict[Address, str] = {}
    doors = [*(("listen", each) for each in listen), ("admin", admin.listen if admin is not None else None)]
    for key, address in (*doors, ("probe", probe)):
        if address is None or (address.unix is None and address.port == 0):  # off, or a port that the system chooses
            continue
        if address in taken:
            mark = next((top.values_at[name] for name in (key, taken[address]) if top.values_at[name].line), DEFAULT)
            problems.add(mark, key, f"{address} is already taken, by {taken[address]}")
        taken.setdefault(address, key)


def _defaults(written: Map, top: Map, policies: Policies, environment: list[Map], under: Map | None) -> Map:
    """Lay the layers of a policy's defaults over each other, and return the result: the built-in defaults; over these
    the layer `under`, the layers of the `environment` (AWS_RETRY_MODE, say), and the file's section `defaults`
    (`written`). `top`: the file's keys outside the policies, of which `via_proxy` is a default of policies too.
    """
    base = DEFAULTS.defaults if under is None else lay(under, DEFAULTS.defaults)
    via = top.get("via_proxy")
    if not is_off(via) and via != "none":
        base = base.copy()
        base.take("via_proxy", top)
    if not _names_a_strategy(written):
        for layer in environment:
            base = policies.layer(layer, base, ("defaults",))
    return policies.layer(written, base, ("defaults",))


def _names_a_strategy(written: Map) -> bool:
    """Whether the section `defaults` says which strategy it is. A mapping without `kind` says none: it is laid over the
    strategy that is inherited, and the environment may say which one that is.
    """
    strategy = written.get("strategy")
    kindless = isinstance(strategy, Map) and "kind" not in strategy
    return "service_config" in written or (strategy is not None and not kindless)


def _aws_layers(environ: Mapping[str, str], problems: Problems) -> list[Map]:
    """The layers of policy that AWS_RETRY_MODE and AWS_MAX_ATTEMPTS in `environ`, the environment variables, stand for:
    a strategy's name, and keys laid over it.
    """
    layers: list[Map] = []
    mode, attempts = environ.get("AWS_RETRY_MODE", "").strip(), environ.get("AWS_MAX_ATTEMPTS", "").strip()
    if mode.lower() in _AWS_MODES:
        layers.append(Map.of({"strategy": mode.lower()}, Mark("AWS_RETRY_MODE")))
    elif mode:
        message = f"{mode!r} must be one of {', '.join(_AWS_MODES)}{did_you_mean(mode, _AWS_MODES)}"
        problems.add(Mark("environment"), "AWS_RETRY_MODE", message)
    if re.fullmatch(r"[1-9][0-9]{0,8}", attempts):
        layers.append(Map.of({"strategy": {"max_attempts": int(attempts)}}, Mark("AWS_MAX_ATTEMPTS")))
    elif attempts:
        problems.add(Mark("environment"), "AWS_MAX_ATTEMPTS", f"{attempts!r} must be a whole number of 1 or more")
    return layers
