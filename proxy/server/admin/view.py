"""What the admin port may see of the house: the composition root fills it in.

Law: reading only, but for `reload` and `drain`. Everything handed out here is masked already, or holds no secret.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.observe.recent import Recent


@dataclass(frozen=True, slots=True)
class Live:
    """An upstream's counters, since the process began. `slots` is its histogram of call durations."""

    name: str
    calls: int
    at_once: int
    after_retries: int
    attempts: int
    slots: Sequence[int]
    cooldown: float = 0.0

    def figures(self) -> dict[str, int]:
        """What is counted."""
        return {
            "calls": self.calls,
            "at_once": self.at_once,
            "after_retries": self.after_retries,
            "failed": self.calls - self.at_once - self.after_retries,
            "attempts": self.attempts,
        }


def _no_places(upstream: str, route: str) -> list[dict[str, str]]:
    """There are none."""
    return []


async def _nothing() -> None:
    """Everything is counted in this process."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether calls should be sent here, and what is to be known besides.

    `warnings` are those of the configuration in force, `reload_errors` those of the last file that was refused ([] once
    a good one has been loaded).
    """

    ready: bool
    draining: bool
    config_file: str
    warnings: list[str] = field(default_factory=list)
    reload_errors: list[str] = field(default_factory=list)
    listen: list[str] = field(default_factory=list)
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """Each is asked when its page is.

    `config` is asked in a thread. `upstreams` takes the name of the only one that is asked for, None for all.
    `refresh` brings in what other processes have counted, before a page shows it.
    `live` are the counters of every upstream, `places` the effective values of a policy (upstream and route; "" is the
    top level) with their file and line, `loads` how many configurations were taken since the start.
    `metrics` takes an Accept field and gives (text, content type); `reload` gives error lines, [] where it worked.
    """

    readiness: Callable[[], Readiness]
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    config: Callable[[], Any]
    upstreams: Callable[[str | None], list[dict[str, Any]]]
    buckets: Callable[[], list[dict[str, Any]]]
    recent: Recent
    reload: Callable[[], Awaitable[list[str]]]
    drain: Callable[[], None]
    refresh: Callable[[], Awaitable[None]] = _nothing
    live: Callable[[], list[Live]] = list
    places: Callable[[str, str], list[dict[str, str]]] = _no_places
    loads: Callable[[], int] = int
