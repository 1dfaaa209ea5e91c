"""Policies for one run on the virtual clock, as if nothing had happened yet.

Law: runs do not touch each other. Buckets, limiters and cooldowns are made anew with each `Registry`; a user's own
strategy keeps what its calls share in itself, so it is made anew here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.retry.policy import Policy


class Fresh:
    """One run's policies: what shares a strategy in the configuration shares one here."""

    __slots__ = ("_policies", "_strategies")

    def __init__(self) -> None:
        self._policies: dict[Policy, Policy] = {}
        self._strategies: dict[int, Any] = {}

    def policy(self, made: Policy) -> Policy:
        """This policy, with a strategy of this run's own where it is a user's."""
        strategy = made.strategy
        if strategy.custom is None or strategy.remake is None:
            return made
        known = self._policies.get(made)
        if known is None:
            custom = self._strategies.get(id(strategy.custom))
            if custom is None:
                custom = self._strategies[id(strategy.custom)] = strategy.remake()
            known = self._policies[made] = replace(made, strategy=replace(strategy, custom=custom))
        return known
