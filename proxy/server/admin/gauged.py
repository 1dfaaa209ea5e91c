"""What is so at the moment and no counter: levels, what is in use of the limits, and the limits themselves.

Law: as in `server.admin.showing`: looking changes nothing.
"""

from __future__ import annotations

from proxy.config.settings import Settings
from proxy.observe.exposition import Gauges
from proxy.server.admin import showing
from proxy.server.listener import enough_for
from proxy.server.processors import processes
from proxy.server.serving import Serving


def gauged(settings: Settings, serving: Serving, descriptors: int, now: float) -> Gauges:
    """The gauges of `/metrics`. `descriptors` are the file descriptors that each process may have."""
    commons, named, usage = serving.commons, settings.buckets, serving.usage
    workers = serving.workers()
    redis_up, redis_outages = serving.redis()
    return Gauges(
        levels=showing.levels(commons, named, now),
        capacities=showing.capacities(commons, named, now),
        cooldowns=showing.cooldowns(settings.router, commons, now),
        buffered_bytes=usage.buffered,
        waiting_calls=usage.waiting,
        connections=usage.connections,
        open_files=serving.open_files,
        limits=[
            ("connections", min(settings.limits.connections, enough_for(descriptors))),
            ("waiting_calls", settings.limits.waiting),
            ("buffered_bytes", settings.buffers.total),
            ("open_files", descriptors * (processes(settings.workers) if workers else 1)),
        ],
        workers=workers,
        worker_restarts=serving.restarts,
        redis_up=redis_up,
        redis_outages=redis_outages,
    )
