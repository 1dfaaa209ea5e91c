"""The environment that a driver gives to each call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.retry.backoff import Chance
from proxy.retry.cooldown import CooldownBegan
from proxy.retry.endpoint_picker import CircuitChanged
from proxy.retry.policy import Policy
from proxy.retry.waiting_room import WaitingRoom


@dataclass(slots=True)
class Env:
    """The random source, the wall clock, the waiting room and the observers of every call.

    The wall clock is `now + wall_offset` (seconds since the epoch). `circuit_changed` is called when a call opens or
    closes a circuit breaker, with the upstream, the endpoint, whether the breaker is open, and the seconds until a
    probe may be sent; `credential_aside` when a credential is put aside, with the upstream and the credential's number,
    from 1; `cooldown_began` when an answer begins a cooldown; `read_key_file` reads the value of a
    credential from a file, None if it has none; `tokens_used` is called when a call is settled that was
    paid in a language model's tokens, with its policy, the tokens of its prompt and of its output, and the tokens that
    were expected in all.
    """

    rng: Chance
    wall_offset: float = 0.0
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    circuit_changed: CircuitChanged = lambda upstream, endpoint, is_open, left: None
    credential_aside: Callable[[str, int], None] = lambda upstream, key: None
    cooldown_began: Callable[[CooldownBegan], None] = lambda began: None
    read_key_file: Callable[[str], str | None] = lambda path: None
    tokens_used: Callable[[Policy, float, float, float], None] = lambda policy, prompt, output, expected: None
