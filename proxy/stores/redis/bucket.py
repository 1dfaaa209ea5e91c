"""What every bucket in Redis has in common: its messages to its script, and who waits for the answer.

Law: no I/O, and time is an argument. What a bucket reports is cumulative or absolute and carries a number that grows,
so that a message may be lost, come twice or too late, and a reply may be lost: nothing is counted twice, nothing
forgotten. Each `message` is answered by `heard` or by `unheard`, always one of them before the next `message`.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Protocol

from proxy.retry.policy import BucketSpec
from proxy.retry.registry import Key

#: Contract, section 3, "Buckets": own unsent changes and the last known level are at most 100 ms old.
FRESH = 0.1
#: Seconds after which changes are sent: half of that, so that what others act on is no older either.
PROMPT = 0.05
#: Milliseconds that Redis keeps a bucket that is not used: long enough for a weekend, short enough for old definitions.
FORGET = 3 * 24 * 3600 * 1000

#: Said in the place of figures, which decide nothing then.
WITHHELD = "Redis does not answer, and redis.on_outage is deny"


class Store(Protocol):
    """What a bucket needs of its store."""

    holder: str  # this process among those that share a bucket
    out: bool  # Redis is not available at the moment,
    denies: bool  # and then nothing is granted; else a bucket of one's own carries on
    dead: float  # seconds after which a silent holder's lease comes back
    observes: bool  # this process only looks at levels: it reports nothing

    def soon(self, bucket: RedisBucket, at: float) -> None:
        """Have this bucket say what it has to say, at that time or before."""

    def draw(self) -> str:
        """A random name, which no other process has."""


#: The form of what is kept: part of every key and channel, so that processes which would not understand each other's
#: keys have keys of their own. It goes up where an earlier release's scripts could not go on with what the new ones
#: leave; a field that is added to a hash, or to the end of a holder's record, does not change it (`docs/guides/
#: upgrading.md`).
SCHEMA = 1
#: The fields of a bucket's definition that its digest has, by kind: those of schema 1, in this order. A field that came
#: later is in it only where it is not the default, so that two releases find the same bucket.
_DEFINED = {
    "quota": (
        "capacity",
        "retry_cost",
        "timeout_cost",
        "throttling_cost",
        "success_refund",
        "flat_refund",
        "initial",
        "refill",
    ),
    "throttle": ("max_tokens", "token_ratio", "initial"),
    "budget": ("percent", "min_per_second", "window"),
    "rate": ("rate", "burst", "when_empty", "initial"),
}


def space(prefix: str) -> str:
    """What every key and channel begins with: the prefix of the configuration, and the schema."""
    return f"{prefix}{SCHEMA}:"


def key_of(prefix: str, key: Key, spec: BucketSpec) -> str:
    """The Redis key of a bucket: where it belongs, and a digest of that and of its definition.

    The braces are a hash tag: whatever is kept for one bucket is in one slot of a cluster.
    """
    text = repr((key, _definition(spec))).encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(text, digest_size=8).hexdigest()
    name = "/".join(str(part) for part in key if part)
    shown = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_./") else "_" for letter in name)
    return f"{space(prefix)}{{{shown[:100]}:{digest}}}"


def _definition(spec: BucketSpec) -> tuple[object, ...]:
    """A bucket's definition, the same in every release that knows it: numbers as floats, whatever way they were
    written.
    """
    known = _DEFINED[spec.kind]
    values = [(name, getattr(spec, name)) for name in known]
    values += [
        (each.name, value)
        for each in fields(spec)
        if each.name not in (*known, "kind", "store") and (value := getattr(spec, each.name)) != each.default
    ]
    return spec.kind, *((name, float(value) if isinstance(value, int) else value) for name, value in values)


class RedisBucket:
    """A bucket as its store sees it. `due`: when it wants to say something; inf: not at all."""

    script = "tokens"

    def hold(self, store: Store, key: str, known: float | None) -> None:
        """Begin. `known`: a level that is known from before, under another definition."""
        self.store = store
        self.key = key
        self.due = math.inf
        self.heard_at = self._sent_at = -math.inf
        self._made = ""
        self._sequence = 0
        self._asks: deque[tuple[float, Callable[[float, bool], None]]] = deque()
        self._asked = 0  # how many of them the message that is out knows
        self._known = known
        self._leaving = False

    def withheld(self) -> str:
        """Why nothing is granted at the moment, whatever the level: Redis is gone, and says `on_outage: deny`."""
        return WITHHELD if self.store.out and self.store.denies else ""

    # -- for the store ----------------------------------------------------------------------------------------------

    def message(self, now: float) -> list[object]:
        """What the script is told."""
        self.due = math.inf
        self._sequence += 1
        self._sent_at = now
        self._asked = len(self._asks)
        store = self.store
        report = ["" if number is None else repr(float(number)) for number in self._report(now)]
        return [store.holder, self._sequence, self._made, *report, store.draw(), store.dead, FORGET]

    def heard(self, reply: list[bytes], now: float) -> None:
        """The script's reply to the last message."""
        if reply[0] == b"late":  # a later message of ours has been there before it: say it again
            self.store.soon(self, now)
            return
        self._made = reply[0].decode()
        self.heard_at = self._sent_at
        self._known = None
        self._learn([float(value) for value in reply[1:]], now)
        self._answer(self._asked, now)
        self._plan(now)

    def unheard(self, now: float) -> None:
        """No reply came: the next message repeats what this one said."""
        self._asked = 0
        self.store.soon(self, now)

    def part(self, now: float) -> None:
        """Redis is not available any more: what is known now is what an own bucket carries on from."""

    def parted(self, now: float) -> None:
        """Redis is not available (`store.out` says so now): waiting callers are answered from what is here."""
        self._answer(len(self._asks), now)

    def leave(self) -> None:
        """This process ends: the next message gives everything back."""
        self._leaving = True

    @property
    def waiting(self) -> bool:
        """Whether a retry waits for an answer."""
        return bool(self._asks)

    # -- for calls --------------------------------------------------------------------------------------------------

    def ask(self, price: float, now: float, answer: Callable[[float, bool], None]) -> None:
        """A retry waits for an answer: it is asked for at once, in the next message."""
        self._asks.append((price, answer))
        if self.store.out:
            self._answer(len(self._asks), now)
        else:
            self.store.soon(self, now)

    def _answer(self, count: int, now: float) -> None:
        self._asked = 0
        for _ in range(min(count, len(self._asks))):
            price, answer = self._asks.popleft()
            answer(price, self._pay(price, now))

    def _soon(self, at: float) -> None:
        if at < self.due:
            self.store.soon(self, at)

    def _report_soon(self, now: float) -> None:
        """Something has changed: others act on it in time. (While Redis is out, all is told when it is back.)"""
        if not self.store.out:
            self._soon(now + PROMPT)

    # -- for each kind ----------------------------------------------------------------------------------------------

    def _pay(self, price: float, now: float) -> bool:
        """Take what was asked for, if it is there."""
        return False

    def _report(self, now: float) -> Iterable[float | None]:
        """The numbers that the script takes from its fourth argument on; None for what is not known."""
        raise NotImplementedError

    def _learn(self, values: list[float], now: float) -> None:
        """Take the numbers of the script's answer."""
        raise NotImplementedError

    def _plan(self, now: float) -> None:
        """Plan the next message, if nothing happens before."""
        raise NotImplementedError
