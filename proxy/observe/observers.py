"""Everybody who watches, as one observer: metrics, the log, the ring of last calls.

Law: this is the one place where the data path meets observing; what is not wanted costs one comparison.
"""

from __future__ import annotations

from proxy.observe.access_log import AccessLog
from proxy.observe.events import EndedCall, Refusal
from proxy.observe.metrics import Metrics
from proxy.observe.recent import Recent


class Observers:
    """An observer that tells metrics, the ring and the log (None: no log)."""

    def __init__(self, metrics: Metrics, recent: Recent, log: AccessLog | None) -> None:
        self.metrics = metrics
        self.recent = recent
        self.log = log

    def call_ended(self, call: EndedCall) -> None:
        """A call that a policy applied to is over."""
        self.metrics.call_ended(call)
        self.recent.call_ended(call)
        if self.log is not None:
            self.log.call_ended(call)

    def refused(self, refusal: Refusal) -> None:
        """A request was turned away before it became a call under a policy."""
        self.metrics.refused(refusal)
        self.recent.refused(refusal)
        if self.log is not None:
            self.log.refused(refusal)
