"""The definitions in the configuration in force: of buckets, strategies and limits, with the names under which their
state is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec
from proxy.retry.policies.policy import Policy, Strategy
from proxy.retry.scopes.factory import Key
from proxy.retry.weather.cooldown import digest

#: Returns every policy of an upstream, in the order of the configuration.
PoliciesOf = Callable[[str], Iterable[Policy]]

#: The letters of the scope value that stands for a header's value.
_DIGEST = len(digest(()).hex())


class Definitions:
    """The definitions of one configuration, as far as they were looked up.

    `policies_of`: returns the policies of an upstream, in the configuration's order; all processes number strategies of
    the same name in that order. None as long as no configuration is known, which says which policies there are.
    `named`: the buckets that the configuration defines under `buckets:`.
    """

    __slots__ = ("_is_known", "_limits", "_named", "_own", "_strategies", "policies_of")

    def __init__(self, policies_of: PoliciesOf | None, named: Mapping[str, BucketRef] | None) -> None:
        self._is_known = policies_of is not None
        self.policies_of: PoliciesOf = policies_of or (lambda upstream: ())
        self._named = named or {}
        self._strategies: dict[str, dict[str, list[Strategy]]] = {}  # by upstream and name
        self._limits: dict[str, dict[str, int]] = {}  # by upstream
        #: The definitions of each upstream's own buckets, and the scopes that they are kept by.
        self._own: dict[str, dict[Key, tuple[BucketSpec, set[str]]]] = {}

    def name_of(self, policy: Policy) -> str:
        """The name under which the state of a policy's strategy is kept: the strategy's name, with a number if several
        definitions of the upstream have that name.

        The number is the place in the file's order, or in the order of first use, and no hash: so an edited definition
        finds its state again.
        """
        defined = self._strategies.setdefault(policy.upstream, {})
        if not defined:
            for each in self.policies_of(policy.upstream):
                _placed(each.strategy, defined)
        name, place = policy.strategy.name, _placed(policy.strategy, defined)
        return f"{name}-{place + 1}" if place else name

    def bucket(self, role: str, key: Key) -> BucketSpec | None:
        """The definition of the bucket with this key; None if there is none. `role`: "bucket" or "rate"."""
        if key[0]:
            return self._own_bucket(role, key)[0]
        named = self._named.get(str(key[1]))
        return None if named is None else named.spec

    def has_bucket(self, role: str, key: Key) -> bool:
        """Whether a call may use the bucket with this key, as far as is known. `role`: "bucket" or "rate"."""
        if not self._is_known:
            return True
        if not key[0]:
            return str(key[1]) in self._named
        return _scope_of(str(key[2])) in self._own_bucket(role, key)[1]

    def has_limiter(self, key: Key) -> bool:
        """Whether a call may use the adaptive limiter with this key, as far as is known."""
        upstream, definition, value = map(str, key)
        policies = [each for each in self.policies_of(upstream) if each.strategy.paced]
        return not self._is_known or any(
            each.scope.by == _scope_of(value) and self.name_of(each) == definition for each in policies
        )

    def _own_bucket(self, role: str, key: Key) -> tuple[BucketSpec | None, set[str]]:
        """The definition of an upstream's own bucket, and the kinds of scope by which it is kept. `role`, `key`: those
        of `bucket`.
        """
        upstream = str(key[0])
        found = self._own.get(upstream)
        if found is None:
            found = self._own[upstream] = {}
            for policy in self.policies_of(upstream):
                refs = [("rate", ref) for ref in policy.rates]
                if policy.bucket is not None:
                    refs.append(("bucket", policy.bucket))
                for which, ref in refs:
                    if ref.name is None:
                        place = (which, *key_of(ref, (upstream, self.name_of(policy), ""))[:2])
                        scopes = found[place][1] if place in found else set()
                        found[place] = ref.spec, {*scopes, policy.scope.by}
        return found.get((role, *key[:2]), (None, set()))

    def limits_of(self, upstream: str) -> dict[str, int]:
        """The concurrency limits of an upstream: the number of places under each limit, by the limit's name
        (`Concurrency.group`).
        """
        limits = self._limits.get(upstream)
        if limits is None:
            found = (policy.concurrency for policy in self.policies_of(upstream) if policy.mode == "enforce")
            limits = self._limits[upstream] = {each.group: each.max for each in found if each is not None}
        return limits


def key_of(ref: BucketRef, own: Key) -> Key:
    """The key of the bucket that `ref` names. `own`: the key of a bucket of the policy's own."""
    if ref.name is not None:
        return ("", ref.name)
    return own if ref.group is None else (own[0], ref.group, own[2])


def _placed(strategy: Strategy, defined: dict[str, list[Strategy]]) -> int:
    """The index of a strategy's definition among those in `defined` that have the same name. A new definition is
    appended.
    """
    alike = defined.setdefault(strategy.name, [])
    for place, each in enumerate(alike):  # comparing two definitions is expensive
        if each is strategy or each == strategy:
            return place
    alike.append(strategy)
    return len(alike) - 1


def _scope_of(value: str) -> str:
    """The kind of scope (`scope.by`) that has values like this one."""
    if not value:
        return "upstream"
    return "header" if len(value) == _DIGEST and not value.strip("0123456789abcdef") else "host"
