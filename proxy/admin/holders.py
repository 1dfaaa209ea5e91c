"""The states that hold the calls of each upstream now: cooldowns, limits of attempts, circuit breakers, credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.admin.turns import gradually, in_turns
from proxy.retry.policies.routing import Router, Upstream
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import KeyFields
from proxy.retry.weather.cooldown import credential_of
from proxy.retry.weather.governor import Governor


@dataclass(frozen=True, slots=True)
class Circuit:
    """An endpoint's circuit breaker. `left` is the number of seconds until a call may go there."""

    endpoint: str
    is_open: bool = False
    left: float = 0.0


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential of an upstream, by its number, from 1. `left` is the number of seconds for which it is still put
    aside, 0 if it is not; `cooling`, the seconds for which callers with it are still asked to wait. `file`: whether
    the file that its value is from could be read when it last changed; None if the value is from no file.
    """

    key: int
    left: float = 0.0
    cooling: float = 0.0
    file: bool | None = None

    def as_data(self) -> dict[str, Any]:
        """The credential for JSON."""
        return {
            "key": self.key,
            "usable": not self.left,
            "seconds_left": round(self.left, 3),
            "cooldown_seconds": round(self.cooling, 3),
            "file_readable": self.file,
        }


async def cooldowns(router: Router, registry: Registry, now: float) -> dict[str, float]:
    """Each upstream's longest cooldown in force, in seconds; 0 for named upstreams without one."""
    longest = {upstream.label: 0.0 for upstream in router.upstreams}
    for upstream, _, left in await in_turns(registry.cooldowns(now)):
        longest[upstream] = max(left, longest.get(upstream, 0.0))
    return longest


async def circuits(router: Router, registry: Registry, now: float) -> dict[str, list[Circuit]]:
    """The circuit breakers of each upstream that has any, by label: those of all its endpoints or, if requests name the
    endpoint, only those that are open.
    """
    every = {upstream.label: upstream for upstream in (*router.upstreams, router.fallback)}
    found: dict[str, dict[str, Circuit]] = {
        label: {share.label: Circuit(share.label) for share in upstream.policy.endpoints}
        for label, upstream in every.items()
        if upstream.policy.circuit_breaker is not None
    }
    async for label, endpoint, breaker in gradually(registry.breakers()):
        ours = found.get(label)
        if ours is None or breaker.spec != every[label].policy.circuit_breaker:
            continue  # a breaker of another configuration
        is_open = breaker.is_open
        if endpoint in ours or (is_open and not every[label].policy.endpoints):
            ours[endpoint] = Circuit(endpoint, is_open, breaker.seconds_left(now) if is_open else 0.0)
    return {label: list(ours.values()) for label, ours in found.items()}


def open_circuits(found: Mapping[str, Sequence[Circuit]], router: Router) -> list[tuple[tuple[str, str], float]]:
    """The samples of a gauge, by upstream and endpoint: 1 for an open circuit. `found`: the circuit breakers of each
    upstream, by its label. Endpoints that requests name are not used as labels: such an upstream has one sample, the
    number of its open circuits.
    """
    samples: list[tuple[tuple[str, str], float]] = []
    for label, broken in found.items():
        upstream = router.by_name.get(label, router.fallback)
        if upstream.policy.endpoints:
            samples += (((label, each.endpoint), float(each.is_open)) for each in broken)
        else:
            samples.append(((label, ""), float(len(broken))))
    return samples


async def credentials(router: Router, registry: Registry, now: float) -> dict[str, list[Credential]]:
    """The credentials of each upstream that has any, by label."""
    found: dict[str, list[Credential]] = {}
    held: dict[str, list[Governor]] = {}
    async for label, governor in gradually(registry.cooling(now)):
        held.setdefault(label, []).append(governor)
    async for upstream in gradually(iter(router.upstreams)):
        if upstream.policy.credentials is not None:
            found[upstream.label] = _credentials(upstream, registry, now, held.get(upstream.label, ()))
    return found


def _credentials(upstream: Upstream, registry: Registry, now: float, held: Sequence[Governor] = ()) -> list[Credential]:
    """An upstream's credentials. `held`: the governors of its scopes that have a cooldown in force; without them,
    `cooling` is 0 for all.
    """
    definition, roster = upstream.policy.credentials, registry.roster(upstream.label)
    digests = () if definition is None else definition.digests
    files = (definition.files if definition is not None else ()) or (None,) * len(digests)
    groups = [credential_of(KeyFields(digest)) if held else b"" for digest in digests]
    endpoints = [share.label for share in upstream.policy.endpoints] if len(upstream.policy.endpoints) > 1 else []
    return [
        Credential(
            key,
            max(0.0, roster.aside_until(digest) - now),
            max((governor.lanes.left_of(group, endpoints, now) for governor in held), default=0.0),
            None if file is None else not file.is_stale,
        )
        for key, (digest, group, file) in enumerate(zip(digests, groups, files, strict=True), 1)
    ]


def credentials_aside(router: Router, registry: Registry, now: float) -> list[dict[str, Any]]:
    """The credentials that are put aside, for /readyz."""
    return [
        {"upstream": upstream.name, "key": each.key, "seconds_left": round(each.left, 3)}
        for upstream in router.upstreams
        if upstream.policy.credentials is not None
        for each in _credentials(upstream, registry, now)
        if each.left
    ]


def usable_credentials(found: Mapping[str, Sequence[Credential]]) -> list[tuple[tuple[str, str], float]]:
    """The samples of a gauge, by upstream and the credential's number: 0 for a credential that is put aside, 1 for one
    that is not. `found`: the credentials of each upstream, by its label.
    """
    return [((label, str(each.key)), float(not each.left)) for label, keys in found.items() for each in keys]


def readable_files(found: Mapping[str, Sequence[Credential]]) -> list[tuple[tuple[str, str], float]]:
    """The samples of a gauge, by upstream and the credential's number, for credentials from files: 0 for one whose file
    can't be read. `found`: the credentials of each upstream, by its label.
    """
    every = ((label, each) for label, keys in found.items() for each in keys)
    return [((label, str(each.key)), float(each.file)) for label, each in every if each.file is not None]


async def under_way(router: Router, registry: Registry, now: float) -> dict[str, tuple[int, int]]:
    """The number of attempts under way, and of calls that wait for a place, of each upstream that limits them; summed
    over all scopes.
    """
    upstreams = (*router.upstreams, router.fallback)
    found = {each.label: (0, 0) for each in upstreams if any(one.concurrency is not None for one in each.policies)}
    for (upstream, *_), (used, waiting) in await in_turns(
        (key, places.total(now)) for key, places in registry.under_way()
    ):
        if upstream in found or used or waiting:
            before = found.get(str(upstream), (0, 0))
            found[str(upstream)] = before[0] + used, before[1] + waiting
    return found
