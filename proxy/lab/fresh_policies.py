"""Policies for one run of the lab, without what earlier runs have left in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.lab.played_keys import PlayedKeys
from proxy.retry.policies.policy import Policy


class Fresh:
    """The policies of one run, as if nothing had happened yet. Runs do not touch each other; policies that share a
    strategy in the configuration share one in the run.

    Buckets, limiters and cooldowns are made again with each `Registry`. A user's own strategy keeps the state that its
    calls share in itself, so it is made again here. So are credentials whose values are in files: `keys` are those of
    the run.
    """

    def __init__(self) -> None:
        self._policies: dict[Policy, Policy] = {}
        self._strategies: dict[int, Any] = {}
        self.keys = PlayedKeys()

    def policy(self, made: Policy) -> Policy:
        """The same policy, with a user's own strategy, and credentials whose values are in files, made again for this
        run.
        """
        strategy, credentials = made.strategy, made.credentials
        is_own = strategy.custom is not None and strategy.remake is not None
        has_files = credentials is not None and bool(credentials.files)
        if not is_own and not has_files:
            return made
        known = self._policies.get(made)
        if known is None:
            if strategy.remake is not None and is_own:
                shared = id(strategy.custom)
                if shared not in self._strategies:
                    self._strategies[shared] = strategy.remake()
                strategy = replace(strategy, custom=self._strategies[shared])
            if credentials is not None and has_files:
                credentials = self.keys.of(credentials)
            known = self._policies[made] = replace(made, strategy=strategy, credentials=credentials)
        return known
