"""A checked tree becomes settings: the router with its policies, and everything else that the process is built from.

What one key's value means for another is said here, with its place: references, kinds, defaults that depend on
the listeners. Nothing stops at the first mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from proxy.config.policies import Policies, relative_to
from proxy.config.problems import DEFAULT, Mark, Path, Problems, did_you_mean
from proxy.config.provenance import Provenance
from proxy.config.schema import DEFAULTS, FILE
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
from proxy.config.yaml_tree import Map, lay, place
from proxy.retry.policy import Policy
from proxy.retry.routing import Router

_AWS_MODES = ("legacy", "standard", "adaptive")
_POLICY_SECTIONS = ("defaults", "upstreams", "buckets", "strategies")


def compile_tree(
    tree: Map,
    found: Mapping[str, Any],
    file: str | None,
    files: list[str],
    environ: Mapping[str, str],
    problems: Problems,
) -> tuple[Settings, list[tuple[Policy, Mark, Path]]] | None:
    """A checked tree, compiled, but for what is wrong, which was told, and every policy with its place; None where
    nothing holds without what is wrong. `found` is what its keys read as; `files` gets what else was read.
    """
    top = lay(tree.without(*_POLICY_SECTIONS), FILE.defaults.without("defaults"))
    typed = FILE.filled(found)
    kinds = Kinds(tree.sub("strategies"), tree.sub("buckets"), problems)
    policies = Policies(kinds, problems)
    policies.defaults = _defaults(tree.sub("defaults"), top, policies, _aws_layers(environ, problems))
    upstreams = Upstreams(policies.defaults, policies, problems)
    named = upstreams.named(tree.sub("upstreams"), found.get("upstreams", {}))
    fallback = upstreams.fallback()
    files += [each for each in upstreams.files if each not in files]
    written = typed["listen"] if isinstance(typed["listen"], tuple) else (typed["listen"],)
    listen = tuple(_beside(each, place(top, ("listen", number))) for number, each in enumerate(written))
    loopback = all(address.is_loopback for address in listen)
    admin = _admin(typed["admin"], top, problems)
    probe = typed["probe"] and _beside(typed["probe"], place(top, ("probe",)))
    _one_door_each(listen, admin, probe, top, problems)
    if fallback is None:
        return None
    in_redis = frozenset(upstream.name for upstream in named if any(map(_uses_redis, upstream.policies)))
    limits = dict(typed["limits"])
    ports = limits.pop("connect_ports", None)
    open_ports = None if loopback else OPEN_PORTS
    connect_ports = open_ports if ports is None else None if ports == "any" else frozenset(ports)
    settings = Settings(
        file=file,
        files=tuple(files),
        listen=listen,
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
    )
    return settings, upstreams.placed


def _uses_redis(policy: Policy) -> bool:
    return any(ref is not None and ref.spec.store == "redis" for ref in (policy.bucket, policy.rate))


def _ca(typed: dict[str, str], tree: Map, file: str | None) -> CertificateAuthority:
    """The defaults are relative to the main file, like everything it says."""
    here = DEFAULT if file is None else Mark(file, 1, 1)
    marks = (tree.values_at[key] for key in ("cert", "key"))
    cert, key = (mark if mark.line else here for mark in marks)
    return CertificateAuthority(relative_to(cert, typed["cert"]), relative_to(key, typed["key"]))


def _beside(address: Address, mark: Mark) -> Address:
    """A socket's path is relative to the file that names it."""
    return address if address.unix is None else Address(unix=relative_to(mark, address.unix))


def _admin(typed: Any, top: Map, problems: Problems) -> Admin | None:
    if typed is None:
        return None
    address = _beside(typed if isinstance(typed, Address) else typed["listen"], place(top, ("admin", "listen")))
    admin = Admin(address) if isinstance(typed, Address) else Admin(address, typed["token"], typed["hosts"])
    if not admin.listen.is_loopback and not admin.token:
        mark, value = top.values_at["admin"], top["admin"]
        if isinstance(value, Map):
            mark = value.values_at["token" if value.values_at["token"].line else "listen"]
        message = f"{admin.listen} can be reached from other machines: admin.token is required there"
        problems.add(mark, "admin.token", message)
    return admin


def _one_door_each(
    listen: tuple[Address, ...], admin: Admin | None, probe: Address | None, top: Map, problems: Problems
) -> None:
    """Refuse an address that is named twice."""
    taken: dict[Address, str] = {}
    doors = [*(("listen", each) for each in listen), ("admin", admin.listen if admin is not None else None)]
    for key, address in (*doors, ("probe", probe)):
        if address is None or (address.unix is None and address.port == 0):  # off, or whichever port is free
            continue
        if address in taken:
            mark = next((top.values_at[name] for name in (key, taken[address]) if top.values_at[name].line), DEFAULT)
            problems.add(mark, key, f"{address} is taken already, by {taken[address]}")
        taken.setdefault(address, key)


def _defaults(written: Map, top: Map, policies: Policies, environment: list[Map]) -> Map:
    """The built-in defaults, the environment's word on the strategy, the file's `defaults`."""
    base = DEFAULTS.defaults
    via = top.get("via_proxy")
    if not is_off(via) and via != "none":
        base = base.copy()
        base.take("via_proxy", top)
    if "strategy" not in written and "service_config" not in written:
        for layer in environment:
            base = policies.layer(layer, base, ("defaults",))
    return policies.layer(written, base, ("defaults",))


def _aws_layers(environ: Mapping[str, str], problems: Problems) -> list[Map]:
    """What AWS_RETRY_MODE and AWS_MAX_ATTEMPTS say of a policy: a strategy's name, and what is laid over it."""
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
