"""The context of all exchanges of one worker: the objects that they share."""

from __future__ import annotations

import asyncio

from proxy.forward.app_repeats import AppRepeats
from proxy.forward.timers import Watch
from proxy.observe.call_record import Observer
from proxy.retry.call.environment import Env
from proxy.retry.call.key_files import KeysInUse
from proxy.retry.policies.routing import Router
from proxy.retry.scopes.registry import Registry
from proxy.transport.pool import Pool
from proxy.transport.replay_buffer import ReplayStore


class Context:
    """The objects that the exchanges of one worker share. `via`: the name in the Via lines that the proxy adds.
    `generation`: the number of configurations loaded so far. `router`: the router of the configuration in force, set by
    the acceptor. `keys`: the credentials of all configurations that calls still use. `draining`: the process ends, so
    connections are closed after their answers; `refusing`: the process ends, and new calls are refused.
    """

    __slots__ = (
        "app_repeats", "draining", "env", "generation", "keys", "loop", "observer", "pool", "refusing", "registry",
        "router", "store", "via", "watch",
    )  # fmt: skip

    router: Router

    def __init__(  # noqa: PLR0913  a table of what all calls of a process use
        self,
        loop: asyncio.AbstractEventLoop,
        pool: Pool,
        store: ReplayStore,
        registry: Registry,
        env: Env,
        observer: Observer,
        via: str,
        watch: Watch,
    ) -> None:
        self.loop = loop
        self.pool = pool
        self.store = store
        self.registry = registry
        self.env = env
        self.observer = observer
        self.via = via
        self.watch = watch
        self.app_repeats = AppRepeats(observer)
        self.keys = KeysInUse()
        self.generation = 0
        self.draining = self.refusing = False
