"""Everybody who watches, as one observer: metrics, the log, the ring of last calls.

Law: this is the one place where the data path meets observing; what is not wanted costs one comparison. Calls are
gathered and told on in batches: what watches them then runs some hundred times a second instead of tens of thousands
of times, each out of a cold cache. Nobody sees that: who reads metrics or the ring, closes the log, or tells of a
refusal, has all that was gathered told first, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import cast

from proxy.observe.access_log import AccessLog
from proxy.observe.events import EndedCall, KeptCall, Plain, Refusal, copied
from proxy.observe.metrics import Metrics
from proxy.observe.recent_calls import RecentCalls
from proxy.retry.policy import Policy

#: So many calls are told on at once, and none later than after so many seconds.
BATCH, GATHER = 64, 0.02
#: After so many likely retries of apps under one policy it is told of: one may be chance.
REPEATS = 3


class Observers:
    """An observer that tells metrics, the ring and the log (None: no log).

    `later(seconds, function)` is the event loop's `call_later`; without it nothing is gathered. `tell(event, lines,
    **facts)` takes notices (`proxy.observe.notices`).
    """

    def __init__(
        self,
        metrics: Metrics,
        recent: RecentCalls,
        log: AccessLog | None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        tell: Callable[..., None] | None = None,
    ) -> None:
        self.metrics = metrics
        self.recent = recent
        self.log = log
        self._later = later
        self._tell = tell
        self._set = False
        self._gathered: list[Plain | KeptCall] = []
        metrics.catch_up = recent.catch_up = self.catch_up
        if log is not None:
            log.catch_up = self.catch_up

    def call_ended(self, call: EndedCall) -> None:
        """A call that a policy applied to is over."""
        self.succeeded(copied(call))

    def succeeded(self, call: Plain | KeptCall) -> None:
        """A call succeeded at once, and is over; or it is a copy of one that came to something else."""
        gathered = self._gathered
        gathered.append(call)
        if len(gathered) >= BATCH or self._later is None:
            self.catch_up()
        elif not self._set:
            self._set = True
            self._later(GATHER, self._in_time)

    def app_repeated(self, policy: Policy) -> None:
        """An app seems to repeat what was given up; who does so again and again is told of once."""
        series = self.metrics.series(policy)
        series.likely_app_retries += 1
        if series.likely_app_retries == REPEATS and self._tell is not None:
            line = f"{policy.upstream}: an app seems to repeat calls that redrive gave up: switch its own retries off"
            self._tell("app_retries", [line], upstream=policy.upstream, route=policy.route)

    def refused(self, refusal: Refusal) -> None:
        """A request was turned away before it became a call under a policy."""
        self.catch_up()
        self.metrics.refused(refusal)
        self.recent.refused(refusal)
        if self.log is not None:
            self.log.refused(refusal)

    def catch_up(self) -> None:
        """Tell of what was gathered."""
        if not self._gathered:
            return
        calls, self._gathered = self._gathered, []
        for sort, some in groupby(calls, type):
            if sort is tuple:
                self._tell_of_successes(cast(list[Plain], list(some)))
            else:
                for call in cast(Iterator[KeptCall], some):
                    self._tell_of(call)

    def _tell_of_successes(self, calls: list[Plain]) -> None:
        self.metrics.succeeded(calls)
        self.recent.succeeded(calls)
        if self.log is not None:
            self.log.succeeded(calls)

    def _tell_of(self, call: KeptCall) -> None:
        self.metrics.call_ended(call)
        self.recent.call_ended(call)
        if self.log is not None:
            self.log.call_ended(call)

    def _in_time(self) -> None:
        self._set = False
        self.catch_up()
