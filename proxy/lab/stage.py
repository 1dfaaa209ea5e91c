"""The stage for calls of the lab: a virtual clock, fresh buckets, and the configuration's upstreams."""

from __future__ import annotations

from proxy.config.settings import Settings
from proxy.lab.clock import Clock
from proxy.lab.fallback import ConfiguredUpstreams
from proxy.lab.fresh_policies import Fresh
from proxy.lab.recorder import Recorder
from proxy.lab.routing import AppRequest, Chosen
from proxy.retry.call.environment import Env
from proxy.retry.facts import Request
from proxy.retry.policies.policy import Policy
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.strategies.backoff import Chance


class Stage:
    """The stage on which calls of the lab are played, with all that the calls of one play share: a virtual clock and
    fresh buckets. `chance` is the source of jitter, `wall` the time of day at which the play begins, in seconds since
    the epoch.
    """

    def __init__(self, settings: Settings, chance: Chance, wall: float = 0.0) -> None:
        self.settings = settings
        self.clock = Clock()
        self.registry = Registry()
        self.fresh = Fresh()
        self.env = Env(chance, wall, WaitingRoom(settings.limits.waiting), read_key_file=self.fresh.keys.read)

    def scope(self, policy: Policy, request: Request) -> ScopeState:
        """The state, such as buckets and cooldowns, that a call of this policy shares with others."""
        return self.registry.scope(policy, request)

    def enter(self, player: Recorder, chosen: Chosen, asked: AppRequest, *, has_body: bool | None = None) -> None:
        """Begin a player's call, at the upstream that was chosen for the app's request `asked`. `has_body` says whether
        the request has a body if `asked` does not describe one; None: by the method, POST, PUT and PATCH have one.
        """
        policy, request, others = self.fresh.policy(chosen.policy), chosen.request, None
        if policy.fallback:
            if has_body is None:
                has_body = request.method in ("POST", "PUT", "PATCH")
            others = ConfiguredUpstreams(self.settings, self.registry, self.fresh, asked, chosen, has_body=has_body)
        player.enter(request, policy, self.scope(policy, request), self.env, others)
