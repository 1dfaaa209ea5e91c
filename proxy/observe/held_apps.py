"""The calls that are held now, by upstream, app and cause (contract, section 17: the label `app` of
redrive_held_calls).

Without workers, the counts are read from the state of this process. With workers, each worker sends its own counts, and
the parent adds them up. Reading changes nothing. If apps have no names, nothing is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from proxy.observe.weather import causes
from proxy.retry.budgets.concurrency import Places
from proxy.retry.queues.fair_order import app_of
from proxy.retry.queues.waiter import Waiter
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.factory import Key
from proxy.retry.weather.governor import Governor

#: Numbers of held calls by upstream, app and cause.
HeldByApp = Counter[tuple[str, str, str]]


def held_by_app(
    room: WaitingRoom,
    governors: Iterable[tuple[str, str, Governor]],
    places: Iterable[tuple[Key, Places]],
    now: float,
) -> HeldByApp:
    """Count the calls that are held in this process, by upstream, app and cause. `room` knows all of them. Calls in a
    lane of one of the `governors` count for the lane's cause, those in a queue for `places` for the concurrency limit,
    and all others for the rate buckets and the adaptive limiter.
    """
    found: HeldByApp = Counter()
    every = room.held_by_app()
    if not every:
        return found

    def count(upstream: str, by: str, queue: Iterable[Waiter]) -> None:
        for waiter in queue:
            app = app_of(waiter)
            if app is not None and every[upstream, app.name]:
                every[upstream, app.name] -= 1
                found[upstream, app.name, by] += 1

    for upstream, by, lane in causes(governors, now):
        count(upstream, by, lane.queue)
    for key, each in places:
        count(str(key[0]), "concurrency", each.queue)
    for (upstream, app), rest in every.items():
        if rest:
            found[upstream, app, "rate"] += rest
    return found
