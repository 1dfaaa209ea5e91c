"""A sidecar's store in a simulation: the messages of its buckets, at most one round trip in flight, to a Redis that is
played. `proxy.stores.redis.store` is the counterpart that has sockets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from proxy.lab.clock import ALARM, UPSTREAM
from proxy.lab.fleet.played_redis import PlayedRedis
from proxy.retry.strategies.backoff import Chance
from proxy.stores.redis.absence import OnOutage
from proxy.stores.redis.batches import Batches
from proxy.stores.redis.bucket import Command, RedisBucket
from proxy.stores.redis.rate import RedisRate

#: Seconds after `patience` in which a reply counts that has come, but was not read yet.
_READ = 0.002
#: Seconds that a new connection may take while Redis is out.
_CONNECTING = 2.0
#: Seconds over which the sidecars begin, so that they do not report in step.
_BEGIN = 0.25


class PlayedStore(Batches):
    """The store of the sidecar `number`. `timeout` and `on_outage` are as in the configuration."""

    def __init__(self, redis: PlayedRedis, number: int, rng: Chance, *, timeout: float, on_outage: OnOutage) -> None:
        super().__init__(
            timeout=timeout,
            on_outage=on_outage,
            notify=lambda event, lines, **facts: None,
            draw=rng.random,
            draw_name=lambda: f"{int(rng.random() * 2**48):012x}",
        )
        self.rates: dict[str, RedisRate] = {}
        #: Called with each message of a channel, and with its channel.
        self.hear: Callable[[str, bytes], None] = lambda channel, message: None
        self._beside: list[Command] = []
        self._redis = redis
        self._clock = redis.clock
        self._number = number
        self._in_flight = False
        self._running = self._connected = False
        redis.connect(self.holder, self)
        self._clock.at(self._clock.now + rng.random() * _BEGIN, UPSTREAM, self._begin)

    @property
    def hears(self) -> bool:
        """Whether messages of Redis reach the sidecar now."""
        return self._running and self._redis.outage(self._number, self._clock.now) is None

    def send(self, command: Command) -> None:
        """Send a command that belongs to no bucket with the next batch."""
        self._beside.append(command)
        self._plan()

    def end(self) -> None:
        """Send nothing more, since the simulation is over."""
        self._running = False

    def _begin(self) -> None:
        self._running = True
        self._plan()

    def alarm(self, at: float, ring: Callable[[float], None]) -> None:
        """Call `ring(now)` at this time; a reply that comes then is taken in before."""
        self._clock.at(at, ALARM, lambda: ring(self._clock.now))

    def _plan(self) -> None:
        if not self._running or self._in_flight:
            return
        at = self._clock.now if self._beside and not self.out else self._next
        if at < self._timer_at:
            self._timer_at = at
            self._clock.at(at, ALARM, self._ring, at)

    def _ring(self, at: float) -> None:
        if at != self._timer_at:
            return  # replaced by an earlier one
        self._timer_at = math.inf
        if self._running and not self._in_flight:
            self._send()
            self._plan()

    def _send(self) -> None:
        """Send the messages that are due, and schedule the reply, or the time at which it is given up."""
        now = self._clock.now
        buckets, beside, self._beside = self._take_due(now), self._beside, []
        if not buckets and not beside and self._connected and not self.out:
            return
        self._in_flight = True
        outage = self._redis.outage(self._number, now)
        if outage is None:
            self._exchange(buckets, beside)
        elif outage.kind == "gone":
            self._clock.at(now + self._redis.latency, UPSTREAM, self._give_up, buckets)
        else:
            patience = _CONNECTING if self.out else self.patience + _READ
            if outage.until < now + patience:
                self._clock.at(outage.until, UPSTREAM, self._exchange, buckets, beside)
            else:
                self._clock.at(now + patience, UPSTREAM, self._give_up, buckets)

    def _exchange(self, buckets: Sequence[RedisBucket], beside: Sequence[Command]) -> None:
        """Have Redis run the scripts of these buckets and the commands `beside` now, and schedule the reply."""
        now = self._clock.now
        self.round_trips += 1
        replies = [self._redis.run(each.script, each.key, each.message(now)) for each in buckets]
        for command in beside:
            self._redis.publish(command)
        self._clock.at(now + self._redis.latency, UPSTREAM, self._receive, buckets, replies)

    def _receive(self, buckets: Sequence[RedisBucket], replies: Sequence[Any]) -> None:
        now = self._clock.now
        outage = self._redis.outage(self._number, now)
        if outage is not None and outage.kind == "gone":
            self._give_up(buckets)
            return
        self._connected, self._in_flight = True, False
        self._replied(buckets, replies, now)
        self._plan()

    def _give_up(self, buckets: Sequence[RedisBucket]) -> None:
        self._connected = self._in_flight = False
        self._failed(buckets, self._clock.now, "played")
        self._plan()

    def cut(self) -> None:
        """Connect again soon, since the connection has ended: so an outage is noticed before the next message."""
        if self._running and not self._in_flight and not self.out:
            self._connected = False
            self._absence.cut(self._clock.now, self.crowd)
            self._plan()

    def called(self, key: str) -> None:
        """Report on the rate of this key soon, because another sidecar needs some of this one's part."""
        rate = self.rates.get(key)
        if rate is not None and self.hears:
            rate.called(self._clock.now)

    def heard(self, channel: str, message: bytes) -> None:
        """Take in a message of a channel."""
        if self.hears:
            self.hear(channel, message)
