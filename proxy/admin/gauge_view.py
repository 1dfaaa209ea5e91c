"""The values for `/metrics` that are not counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.admin import weather_view
from proxy.admin.bucket_view import all_buckets
from proxy.admin.holders import (
    circuits,
    cooldowns,
    credentials,
    open_circuits,
    readable_files,
    under_way,
    usable_credentials,
)
from proxy.admin.turns import in_turns
from proxy.admin.upstream_view import provisions
from proxy.config.settings import Settings
from proxy.hidden_values import HiddenValues
from proxy.observe.exposition import Gauges
from proxy.observe.held_apps import HeldByApp
from proxy.observe.metrics import Metrics
from proxy.observe.weather_log import WeatherLog
from proxy.resources import Usage, enough_for, processes
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry


async def copied(metrics: Metrics) -> Metrics:
    """Copy the metrics, so that a thread can read the copy while calls go on counting in the original."""
    copy = Metrics()
    for series in await in_turns(series.copy() for series in metrics.all()):
        copy.put(series)
    copy.reloads, copy.lines_lost = metrics.reloads.copy(), metrics.lines_lost
    return copy


async def gauges(  # noqa: PLR0913  a record of all gauges is built
    settings: Settings,
    registry: Registry,
    usage: Usage,
    now: float,
    *,
    room: WaitingRoom,
    weather: WeatherLog,
    by_app: HeldByApp | None,
    begun: Mapping[str, int],
    descriptors: int,
    workers: list[tuple[str, float]],
    **of_process: Any,
) -> Gauges:
    """The values for `/metrics` that are not counters: levels, how much of each limit is used (`usage`), and the limits
    themselves. `room` is where held calls wait, `weather` the log of limits and outages, `by_app` the held calls by app
    if the configuration names apps, `begun` the number of cooldowns that each upstream began, `descriptors` the number
    of file descriptors that each process may have, `workers` the processes by state, `of_process` gauges that the
    caller already has.
    """
    capacities: dict[str, float] = {}
    levels: dict[str, float] = {}  # the lowest of each label
    found = ((label, b.capacity, b.level(now)) for label, b in all_buckets(registry, settings.buckets, now))
    for label, capacity, level in await in_turns(found):
        capacities[label] = capacity
        levels[label] = min(level, levels.get(label, level))
    provided = await provisions(settings.router, registry)
    keys = await credentials(settings.router, registry, now)
    limited = await under_way(settings.router, registry, now)
    left = await cooldowns(settings.router, registry, now)
    lanes = weather_view.by_upstream(weather.lanes())
    held = {
        label: weather_view.held(
            lanes.get(label, ()), waiting=limited.get(label, (0, 0))[1], every=room.held_for(label)
        )
        for label in left
    }
    return Gauges(
        levels=list(levels.items()),
        capacities=list(capacities.items()),
        paid_by=[((bucket, label), 1.0) for label, each in provided.items() for bucket in each.buckets],
        cooldowns=list(left.items()),
        begun=[(label, begun.get(label, 0)) for label in {**left, **begun}],
        held=[((label, by), count) for label, of in held.items() for by, count in of.items()],
        held_by_app=by_app,
        places=_of_endpoints(weather_view.limits(lanes, settings.router), settings.hidden),
        outages=_of_endpoints(weather_view.outages(lanes, settings.router), settings.hidden),
        remaining=weather_view.remaining(lanes),
        circuits=_of_endpoints(
            open_circuits(await circuits(settings.router, registry, now), settings.router), settings.hidden
        ),
        credentials=usable_credentials(keys),
        key_files=readable_files(keys),
        under_way=[(label, used) for label, (used, _) in limited.items()],
        waiting_for_place=[(label, waiting) for label, (_, waiting) in limited.items()],
        buffered_bytes=usage.buffered,
        waiting_calls=usage.waiting,
        limits=[
            ("connections", min(settings.limits.connections, enough_for(descriptors))),
            ("waiting_calls", settings.limits.waiting),
            ("buffered_bytes", settings.buffers.total),
            ("open_files", descriptors * (processes(settings.workers) if workers else 1)),
        ],
        workers=workers,
        **of_process,
    )


def _of_endpoints(found: weather_view.Samples, hidden: HiddenValues | None) -> weather_view.Samples:
    """Samples by upstream and endpoint, with the endpoints' names as they may be shown, each once."""
    if hidden is None:
        return found
    return list({(label, hidden.text(endpoint)): value for (label, endpoint), value in found}.items())
