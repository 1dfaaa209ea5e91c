"""The environment of every call: what the driver lends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.retry.backoff import Chance
from proxy.retry.cooldown import CooldownBegan
from proxy.retry.endpoint_picker import CircuitChanged
from proxy.retry.waiting_room import WaitingRoom


@dataclass(slots=True)
class Env:
    """The chance, the wall's clock, the waiting room and the observers of every call. The wall's clock is
    `now + wall_offset` (seconds since the epoch). `circuit_changed` is called where a call opens a circuit breaker, or
    closes it: upstream, endpoint, whether it is open, and the seconds until a probe may go; `credential_aside` where a
    credential is put aside: upstream, and its number, from 1; `cooldown_began` where an answer begins a cooldown.
    """

    rng: Chance
    wall_offset: float = 0.0
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    circuit_changed: CircuitChanged = lambda upstream, endpoint, is_open, left: None
    credential_aside: Callable[[str, int], None] = lambda upstream, key: None
    cooldown_began: Callable[[CooldownBegan], None] = lambda began: None
