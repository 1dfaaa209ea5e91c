"""A bucket that is kept elsewhere, as a call sees it: what is here can pay, or it has to be asked."""

from __future__ import annotations

from collections.abc import Callable

from proxy.retry.budgets.buckets import ASK, Affords, Bucket, QuotaBucket
from proxy.retry.policies.bucket_specs import BucketSpec, QuotaSpec
from proxy.retry.scopes.factory import Factory, Key


class Elsewhere(QuotaBucket):
    """Its level is what is here. `known_empty`: there is no need to ask."""

    known_empty = False

    def __init__(self, spec: QuotaSpec) -> None:
        super().__init__(spec)
        self.asked: list[tuple[float, Callable[[float, bool], None]]] = []

    def affords(self, price: float, now: float) -> Affords:
        return price <= self._level or (not self.known_empty and ASK)

    def ask(self, price: float, due: float, now: float, answer: Callable[[float, bool], None]) -> None:
        self.asked.append((price, answer))

    def comes(self, tokens: float) -> None:
        """Tokens that are here now."""
        self._level += tokens


class ElsewhereFactory(Factory):
    """Makes such buckets where the definition says so."""

    def bucket(self, key: Key, spec: BucketSpec, before: Bucket | None, now: float) -> Bucket:
        if isinstance(spec, QuotaSpec) and spec.store == "redis":
            return before if before is not None else Elsewhere(spec)
        return super().bucket(key, spec, before, now)
