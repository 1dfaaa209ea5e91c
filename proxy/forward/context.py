"""What the exchanges of one worker have in common."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from proxy.forward.app_repeats import AppRepeats
from proxy.forward.timers import Watch
from proxy.observe.call_record import Observer
from proxy.retry.machine import Env
from proxy.retry.registry import Registry
from proxy.transport.pool import Pool
from proxy.transport.replay_buffer import ReplayStore


@dataclass(slots=True)
class Context:
    """`via` is the name in our Via lines."""

    loop: asyncio.AbstractEventLoop
    pool: Pool
    store: ReplayStore
    registry: Registry
    env: Env
    observer: Observer
    via: str
    watch: Watch
    app_repeats: AppRepeats = field(default_factory=AppRepeats)
