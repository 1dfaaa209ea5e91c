"""The environment that a driver (the code that carries out what a call decides) gives to each call."""

from __future__ import annotations

from collections.abc import Callable

from proxy.retry.call.endpoint_picker import CircuitChanged
from proxy.retry.policies.policy import Policy
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.strategies.backoff import Chance
from proxy.retry.weather.cooldown import CooldownBegan


class Env:
    """The random source, the wall clock, the waiting room and the observers of every call.

    The wall clock is `now + wall_offset` (seconds since the epoch). `rng`: the random source. `waiting`: the waiting
    room. `circuit_changed`: called when a call opens or closes a circuit breaker, with the upstream, the endpoint,
    whether the breaker is open, and the seconds until a probe may be sent. `credential_aside`: called when a credential
    is put aside, with the upstream and the credential's number, from 1. `cooldown_began`: called when an answer begins
    a cooldown. `read_key_file`: reads the value of a credential from a file; returns None if the file has none.
    `tokens_used`: called when a call that was paid in a language model's tokens is settled, with its policy, the tokens
    of its prompt and of its output, and the tokens that were expected in all.
    """

    __slots__ = (
        "circuit_changed", "cooldown_began", "credential_aside", "read_key_file", "rng", "tokens_used", "waiting",
        "wall_offset",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913  a table of what all calls of a process use
        self,
        rng: Chance,
        wall_offset: float = 0.0,
        waiting: WaitingRoom | None = None,
        circuit_changed: CircuitChanged = lambda upstream, endpoint, is_open, left: None,
        credential_aside: Callable[[str, int], None] = lambda upstream, key: None,
        cooldown_began: Callable[[CooldownBegan], None] = lambda began: None,
        read_key_file: Callable[[str], str | None] = lambda path: None,
        tokens_used: Callable[[Policy, float, float, float], None] = lambda policy, prompt, output, expected: None,
    ) -> None:
        self.rng = rng
        self.wall_offset = wall_offset
        self.waiting = WaitingRoom() if waiting is None else waiting
        self.circuit_changed = circuit_changed
        self.credential_aside = credential_aside
        self.cooldown_began = cooldown_began
        self.read_key_file = read_key_file
        self.tokens_used = tokens_used
