"""The part that all buckets in Redis have in common: the messages to their scripts, and the calls that wait for
replies.

Law: there is no I/O here, and time is an argument. The figures in a message are sums since the beginning or absolute
values, and each message has a higher number than the one before. So a message may be lost, come twice or come too late,
and a reply may be lost: nothing is counted twice, and nothing is forgotten. After each `message`, `heard` or `unheard`
is called before the next `message`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from proxy.retry.policies.bucket_specs import BucketSpec
from proxy.retry.scopes.factory import Key
from proxy.stores.redis.share import Share

#: Contract, section 3, "Buckets": own unsent changes and the last known level are at most 100 ms old.
FRESH = 0.1
#: Seconds after which changes are sent: half of FRESH, so that what other processes act on is no older than FRESH.
PROMPT = 0.05
#: Seconds between reports for each process of the fleet, and the most: so that Redis can serve thousands of processes,
#: which report less often.
PAUSE_EACH, LONG_PAUSE = 0.005, 0.25
#: Seconds between reports of a process that holds calls: the least in a fleet of some ten processes (such a process
#: sends four messages a second at most, with its reports as a member of the fleet), for each process of a larger one,
#: and the most: a thousand that hold calls take no more than a quarter of Redis's processor, and ten thousand fit.
HOLD_LEAST, HOLD_EACH, HOLD_MOST = 0.27, 0.0005, 1.5
#: Seconds between the messages of two processes that all are told of something at the same time, so that thousands of
#: them do not ask Redis in one instant, and take its late replies for an outage.
IN_TURN = 0.0001
#: The most calls for which one message asks: the others are asked for with the next.
ASKED = 100
#: Milliseconds that Redis keeps a bucket that is not used: long enough for a weekend, short enough for old definitions.
FORGET = 3 * 24 * 3600 * 1000


class Store(Protocol):
    """The interface of the store that a bucket uses."""

    holder: str  # the name of this process among those that share a bucket
    out: bool  # Redis is not available at the moment
    timeout: float  # seconds within which it should reply
    share: Share  # the part of the tokens that this process may spend while it is out
    dead: float  # seconds of silence after which a holder's lease is taken back
    observes: bool  # this process only reads levels, and reports nothing

    def soon(self, bucket: RedisBucket, at: float) -> None:
        """Schedule this bucket's next message for the time `at`, if none is due earlier."""

    def alarm(self, at: float, ring: Callable[[float], None]) -> None:
        """Call `ring(now)` at the time `at`. If a reply has come by then, it is handled first."""

    def draw(self) -> str:
        """Draw a random name, which no other process has."""

    @property
    def crowd(self) -> int:
        """The number of processes of the fleet."""

    @property
    def turn(self) -> float:
        """The seconds that this process waits before it asks Redis about a change of which all processes are notified
        at once. They differ from process to process, so that not all ask at the same time.
        """

    def share_now(self, now: float) -> Share:
        """The part of every bucket's tokens that this process may spend without Redis, from now on."""

    def withholds(self) -> str:
        """The reason why no tokens are granted while Redis is out; "" if some are granted, or if Redis is not out."""

    def withholds_alone(self, now: float) -> str:
        """The reason why `on_outage` grants nothing to a call for which Redis's reply is too late; "" if it may grant
        something.
        """


class Command(NamedTuple):
    """A script to run for a key, with its arguments."""

    script: str
    key: str
    arguments: Sequence[object]


class Link(Store, Protocol):
    """The interface of the store as it is used to share cooldowns, limits, outages and facts about upstreams with the
    fleet.
    """

    returned: list[Callable[[], None]]  # called when Redis is available again

    def add(self, bucket: RedisBucket) -> None:
        """Add a bucket to this store."""

    def send(self, command: Command) -> None:
        """Send a command that belongs to no bucket with the next batch; its reply is ignored."""


class Asking:
    """A retry that waits for Redis to grant its price. `price`: the tokens that the retry costs; `due`: when the retry
    is due; `by`: the time at which the retry is decided without Redis, if no reply has come; `answer`: the function
    that is called with the price and with whether it was granted; `again`: the time at which Redis is asked, or asked
    again; `refused`: how often Redis has replied that it lacks the tokens now, although tokens may come later.
    """

    __slots__ = ("again", "answer", "by", "due", "price", "refused")

    def __init__(self, price: float, due: float, by: float, now: float, answer: Callable[[float, bool], None]) -> None:
        self.price, self.due, self.by, self.again, self.answer = price, due, by, now, answer
        self.refused = 0


#: The version of what Redis keeps: part of every key and channel, so that processes which would not understand each
#: other's keys have keys of their own. It is raised if the scripts of an earlier release could not go on with what the
#: new ones write; a field that is added to a hash, or to the end of a holder's record, does not change it
#: (`docs/guides/upgrading.md`).
SCHEMA = 1
#: The fields of a bucket's definition that its digest contains, by kind: those of schema 1, in this order. A field that
#: was added later is in it only if its value is not the default, so that two releases find the same bucket.
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


def hold_pause(often: float, crowd: int) -> float:
    """Seconds between the reports of a process that holds calls: `often` in a small fleet, longer in a large one.
    `crowd`: the number of the fleet's processes.
    """
    return max(often, min(HOLD_MOST, HOLD_EACH * crowd))


def space(prefix: str) -> str:
    """The text with which every key and channel in Redis begins: the prefix of the configuration, and the schema's
    version.
    """
    return f"{prefix}{SCHEMA}:"


def key_of(prefix: str, key: Key, spec: BucketSpec) -> str:
    """The Redis key of a bucket: the `prefix` of all keys, the bucket's scope in readable form, and a digest of the
    scope and the bucket's definition.

    The braces are a hash tag: whatever is kept for one bucket is in one slot of a cluster.
    """
    text = repr((key, _definition(spec))).encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(text, digest_size=8).hexdigest()
    name = "/".join(str(part) for part in key if part)
    shown = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_./") else "_" for letter in name)
    return f"{space(prefix)}{{{shown[:100]}:{digest}}}"


def _definition(spec: BucketSpec) -> tuple[object, ...]:
    """A bucket's definition as a tuple, which is equal in every release that knows it: numbers are floats, however they
    were written.
    """
    known = _DEFINED[spec.kind]
    values = [(name, getattr(spec, name)) for name in known]
    values += [
        (each.name, value)
        for each in fields(spec)
        if each.name not in (*known, "kind", "store", "apps") and (value := getattr(spec, each.name)) != each.default
    ]
    return spec.kind, *((name, float(value) if isinstance(value, int) else value) for name, value in values)


class RedisBucket:
    """A bucket in Redis, with the methods that its store calls. `due`: the time at which its next message is due;
    infinity if none is due.
    """

    script = "tokens"

    def hold(self, store: Store, key: str, known: float | None) -> None:
        """Set the attributes of a new bucket. `key`: the bucket's key in Redis; `known`: the last known level of the
        bucket that this one replaces because the definition changed; None if it replaces none.
        """
        self.store = store
        self.key = key
        self.due = math.inf
        self.heard_at = self._sent_at = -math.inf
        self._made = ""
        self._sequence = 0
        self._asks: dict[Asking, None] = {}  # in order of arrival
        self._asked: Sequence[Asking] = ()  # those that the last message asks for
        self._silent = ""  # why nothing is granted to calls that Redis has not answered in time
        self._known = known
        self._leaving = False

    def withheld(self) -> str:
        """The reason why this bucket grants no tokens at the moment, whatever its level: Redis is out, or has not
        answered a call in time, and `on_outage` leaves this process no tokens. "" if there is no such reason.
        """
        return self.store.withholds() or self._silent

    # -- for the store ----------------------------------------------------------------------------------------------

    def puts_off(self, at: float, now: float) -> bool:
        """Whether the message that was due at `at` is not to be sent yet. If so, the bucket has scheduled it again."""
        return False

    def message(self, now: float) -> list[object]:
        """Make the next message to Redis. Returns the arguments for the bucket's script."""
        self.due = math.inf
        self._sequence += 1
        self._sent_at = now
        self._asked = tuple(islice(self._asks, ASKED))
        store = self.store
        report = [_text(value) for value in self._report(now)]
        return [store.holder, self._sequence, self._made, *report, store.draw(), store.dead, FORGET]

    def heard(self, reply: list[bytes], now: float) -> None:
        """Take in `reply`, the script's reply to the last message: the making of the key, then the numbers for
        `_learn`. If Redis got a later message of this process first, the reply is only `late`, and the bucket reports
        again.
        """
        if reply[0] == b"late":  # a later message of ours overtook this one: report again
            self.store.soon(self, now)
            return
        self._made = reply[0].decode()
        self.heard_at = self._sent_at
        self._known = None
        self._silent = ""
        self._learn([float(value) for value in reply[1:]], now)
        self._answer(self._asked, now)
        self._plan(now)

    def unheard(self, now: float) -> None:
        """Note that no reply came, so that the next message repeats what the last one reported."""
        self._asked = ()
        self.store.soon(self, now)

    def part(self, now: float) -> None:
        """Prepare to go on without Redis: from now on the bucket decides in this process alone, beginning with this
        process's share (`store.share`) of the level known now.
        """

    def parted(self, now: float) -> None:
        """Let this process's own bucket decide the retries that wait, because Redis is out (`store.out` is set by now).
        A retry to which the bucket grants nothing waits until it is due, since Redis may be back by then.
        """
        self._answer(tuple(self._asks), now)

    def leave(self) -> None:
        """Note that this process ends: the bucket's next message gives back what this process holds of the fleet's
        tokens or places.
        """
        self._leaving = True

    @property
    def waiting(self) -> bool:
        """Whether a retry waits for an answer."""
        return bool(self._asks)

    # -- for calls --------------------------------------------------------------------------------------------------

    def ask(self, price: float, due: float, now: float, answer: Callable[[float, bool], None]) -> None:
        """Ask Redis, in a message that is sent at once, whether a retry that is due at `due` may pay this price
        (tokens); `answer(price, granted)` is called with the decision. If no reply has come when the retry is due and
        `timeout` has passed, the retry is decided as in an outage (`_overdue`). In an outage the retry is decided at
        once.
        """
        store = self.store
        if store.out:
            answer(price, self._pay(price, now))
            return
        asking = Asking(price, due, max(due, now + store.timeout), now, answer)
        self._asks[asking] = None
        store.soon(self, now)
        store.alarm(asking.by, partial(self._overdue, asking))

    def _answer(self, asked: Iterable[Asking], now: float) -> None:
        """Answer these retries, because Redis has replied or is out. A retry that may get tokens later is not answered,
        and continues to wait.
        """
        self._asked = ()
        for asking in asked:
            if asking not in self._asks:
                continue  # decided when it was due
            granted = self._pay(asking.price, now)
            if self.store.out and not granted and now < asking.due:
                continue  # Redis may be back when the retry is due
            asking.again = math.inf if granted or self.store.out else self._asks_again(asking, now)
            if asking.again == math.inf:
                del self._asks[asking]
                asking.answer(asking.price, granted)

    def _overdue(self, asking: Asking, now: float) -> None:
        """Decide a retry for which no reply has come in time: `on_outage` says whether this process's share may pay for
        it. A retry that Redis has refused before is refused. There is one exception: if the fleet has the price, but
        this process's share of the tokens is less than the price, the retry continues to wait until Redis replies or is
        out.
        """
        if asking not in self._asks:
            return
        if self.store.out:
            del self._asks[asking]
            asking.answer(asking.price, self._pay(asking.price, now))
            return
        withheld = self.store.withholds_alone(now)
        granted = False
        if not asking.refused:
            self._silent = withheld
            granted = not withheld and self._pay_alone(asking.price, now)
        if granted or withheld or not self._is_in_pieces(asking.price, now):
            del self._asks[asking]
            asking.answer(asking.price, granted)

    @property
    def _asks_at(self) -> float:
        """The time at which Redis is to be asked for the retries that wait; infinity if no retry waits."""
        return min((each.again for each in self._asks), default=math.inf)

    def _soon(self, at: float) -> None:
        if at < self.due:
            self.store.soon(self, at)

    def _report_soon(self, now: float) -> None:
        """Schedule a message within some milliseconds, so that the other processes learn of a change. (While Redis is
        out, everything is reported once it is back.)
        """
        if not self.store.out:
            self._soon(now + PROMPT)

    # -- for each kind ----------------------------------------------------------------------------------------------

    def _pay(self, price: float, now: float) -> bool:
        """Take the price (tokens) for a call that waited for Redis's answer, and return whether the tokens were
        available.
        """
        return False

    def _pay_alone(self, price: float, now: float) -> bool:
        """Take the price (tokens) from this process's share, for a call that Redis has not answered in time. Returns
        whether the share had the tokens.
        """
        return False

    def _is_in_pieces(self, price: float, now: float) -> bool:
        """Whether the fleet has the price (tokens), but the equal part of the fleet's tokens that this process may use
        is less than the price.
        """
        return False

    def _asks_again(self, asking: Asking, now: float) -> float:
        """The time at which to ask Redis again for a retry that could not pay although Redis has just replied; infinity
        if Redis is not asked again.
        """
        return math.inf

    def _report(self, now: float) -> Iterable[float | str | None]:
        """The values that this kind of bucket reports; None for a value that is not known. They become the script's
        arguments from the fourth on: the first three are the same for all buckets.
        """
        raise NotImplementedError

    def _learn(self, values: list[float], now: float) -> None:
        """Take over the numbers of the script's reply, such as the fleet's level."""
        raise NotImplementedError

    def _plan(self, now: float) -> None:
        """Schedule the bucket's next regular message, for the time at which it is due if no retry and no reply makes a
        message due earlier.
        """
        raise NotImplementedError


def _text(value: float | str | None) -> str:
    """An argument of a script as text: a number with all its digits, a text unchanged, and "" for None."""
    if value is None or isinstance(value, str):
        return value or ""
    return repr(float(value))
