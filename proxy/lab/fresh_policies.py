"""Policies for one run of the lab, without what earlier runs have left in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.retry.policies.policy import Policy


class Fresh:
    """The policies of one run, as if nothing had happened yet. Runs do not touch each other; policies that share a
    strategy in the configuration share one in the run.

    Buckets, limiters and cooldowns are made again with each `Registry`. A user's own strategy keeps the state that its
    calls share in itself, so it is made again here.
    """

    def __init__(self) -> None:
        self._policies: dict[Policy, Policy] = {}
        self._strategies: dict[int, Any] = {}

    def policy(self, made: Policy) -> Policy:
        """The same policy, with a user's own strategy made again for this run."""
        strategy = made.strategy
        if strategy.custom is None or strategy.remake is None:
            return made
        known = self._policies.get(made)
        if known is None:
            shared = id(strategy.custom)
            if shared not in self._strategies:
                self._strategies[shared] = strategy.remake()
            custom = replace(strategy, custom=self._strategies[shared])
            known = self._policies[made] = replace(made, strategy=custom)
        return known
