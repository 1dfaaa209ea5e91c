"""All observers behind one interface: the metrics, the log, the last calls. This is the only place at which the data
path reports to observers.

Records of calls are gathered and passed on in batches: the observers run at each check of all calls (every 50 ms), or
for 64 records at once, instead of tens of thousands of times a second with a cold cache. Batching is not visible:
before the metrics or the last calls are read, or the log is closed, everything gathered is passed on, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from proxy.observe.access_log import AccessLog
from proxy.observe.call_record import CallRecord, Observer
from proxy.observe.metrics import Metrics
from proxy.observe.recent_calls import RecentCalls
from proxy.retry.policies.policy import Policy

#: The number of calls that are passed on at once, and the seconds after which they are passed on in any case, by a
#: timer of the observers' own.
BATCH, GATHER = 64, 0.02
#: Errors in streams that are reported within a second.
MOST = 100
#: The number of likely retries of apps under one policy after which they are reported: one may be chance.
REPEATS = 3


class Observers(Observer):
    """An observer that passes calls on to the metrics, the last calls and the log (None: no log).

    `later(seconds, function)` is the event loop's `call_later`; without it each record of a call is passed on at once,
    not in a batch. `notify(event, lines, **facts)` takes notices (`proxy.observe.notices`). `soon(function)` calls the
    function within less than a second; None if records are not passed on in batches. `soon` sets a timer of its own,
    unless it is replaced by a function that uses a timer which runs anyway.
    """

    def __init__(
        self,
        metrics: Metrics,
        recent: RecentCalls,
        log: AccessLog | None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        notify: Callable[..., None] | None = None,
    ) -> None:
        self.metrics = metrics
        self.recent = recent
        self.log = log
        self._later = later
        self.soon: Callable[[Callable[[], None]], object] | None = None if later is None else partial(later, GATHER)
        self._notify = notify
        self._set = False
        self._reported = 0
        self._gathered: list[CallRecord] = []
        metrics.catch_up = recent.catch_up = self.catch_up
        if log is not None:
            log.catch_up = self.catch_up

    def call_ended(self, call: CallRecord) -> None:
        gathered = self._gathered
        gathered.append(call)
        if len(gathered) >= BATCH or self.soon is None:
            self._pass_on(False)
        elif not self._set:
            self._set = True
            self.soon(self._in_time)

    def app_repeated(self, policy: Policy) -> None:
        """Count a call in which an app seems to repeat a call that redrive gave up; after REPEATS such calls of an
        upstream and route, give one notice.
        """
        series = self.metrics.series(policy)
        series.likely_app_retries += 1
        if series.likely_app_retries == REPEATS and self._notify is not None:
            line = (
                f"{policy.upstream}: an app may be repeating calls that redrive gave up: if it has retries of its own, "
                "they multiply with redrive's, and are better off"
            )
            self._notify("app_retries", [line], upstream=policy.upstream, route=policy.route)

    def last_calls(self) -> list[CallRecord]:
        return self.recent.last_calls()

    def stream_failed(self, policy: Policy, error: str) -> None:
        """Count an error inside a stream that went to the app, and give notice of it, at most MOST times a second."""
        series = self.metrics.series(policy)
        series.stream_errors += 1
        what = f"an error came in a stream that had already begun to go to the app: {error}"
        self._notify_of_stream("stream_error", policy, what, error=error)

    def stream_unfinished(self, policy: Policy) -> None:
        """Count a stream that ended without its last event, and give notice of it, at most MOST times a second."""
        series = self.metrics.series(policy)
        series.streams_unfinished += 1
        what = "a stream of events ended without its last event; what had come had gone to the app"
        self._notify_of_stream("stream_unfinished", policy, what)

    def _notify_of_stream(self, event: str, policy: Policy, what: str, **more: str) -> None:
        """Log a notice, named `event`, about a stream that went to the app. `what`: what happened in the stream, in
        words; `more`: further facts for machines. If MOST notices were logged within this second, nothing is logged.
        """
        if self._notify is None or (self._later is not None and not self._may_notify()):
            return
        where = f"{policy.upstream}{'/' + policy.route if policy.route else ''}"
        self._notify(event, [f"{where}: {what}"], upstream=policy.upstream, route=policy.route, **more)

    def resumed(self, policy: Policy, result: str, size: int) -> None:
        """Count the `result` of a resumption of an answer that broke, and its `size`, the bytes that it brought."""
        series = self.metrics.series(policy)
        series.resumes[result] += 1
        series.resumed_bytes += size

    def tokens_used(self, policy: Policy, prompt: float, output: float, expected: float) -> None:
        series = self.metrics.series(policy)
        series.tokens["prompt"] += round(prompt)
        series.tokens["output"] += round(output)
        if expected > 0:
            series.add_estimate((prompt + output) / expected)

    def _may_notify(self) -> bool:
        """Whether fewer than MOST notices were logged within this second. Events without a notice are still counted."""
        if self._reported == 0 and self._later is not None:
            self._later(1.0, self._notify_again)
        self._reported += 1
        return self._reported <= MOST

    def _notify_again(self) -> None:
        self._reported = 0

    def catch_up(self) -> None:
        """Pass on the records that were gathered, and have the log write their lines at once: the next check would find
        no gathered records, and so would not write these lines.
        """
        self._pass_on(True)

    def _pass_on(self, at_once: bool) -> None:
        """Pass on the records that were gathered. `at_once`: the log writes their lines now, without gathering them."""
        calls, self._gathered = self._gathered, []
        if not calls:
            return
        self.metrics.add(calls)
        self.recent.add(calls)
        if self.log is not None:
            self.log.add(calls, at_once)

    def _in_time(self) -> None:
        self._set = False
        self._pass_on(True)
