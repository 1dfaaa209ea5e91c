"""What is known of one call while it lasts, and what is told of it when it is over.

Law: defaults live on the class, so that a call sets what it needs and nothing more. The properties at the end are
`proxy.observe.events.EndedCall`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

from proxy.forward.alarm import Alarm
from proxy.forward.attempt import Attempt
from proxy.forward.means import Means
from proxy.forward.streams import AppStream
from proxy.retry.actions import Actions, Answer
from proxy.retry.call import Call
from proxy.retry.facts import Fault, Outcome, Request
from proxy.retry.policy import Policy
from proxy.retry.records import AttemptRecord
from proxy.transport.origins import Destination, Origin
from proxy.transport.replay import Replay
from proxy.wire.head import RequestHead

NEVER = float("inf")
_NO_LABELS: dict[int, str] = {}


class Life:
    """See the module. `rest` is the path behind the prefix in prefix use, else None."""

    call: Call
    outcome: Outcome
    started: float
    ended: float
    moved: float  # when last anything came or went
    replay: Replay | None = None
    due: float = NEVER
    status: int = 0
    over: bool = False
    detail: str = ""
    endpoint: str = ""
    client: str = ""
    wall_started: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    tunnelling: bool = False

    _attempt: ClassVar[type[Attempt]]
    _verdict: Outcome | None = None  # where the app itself is at fault, in the place of the call's own
    _half: int = 0  # which directions of a tunnel have ended
    _alarm: Alarm | None = None
    _failed: list[Origin] | None = None
    _labels: dict[int, str] = _NO_LABELS
    _overfull: bool = False

    def __init__(
        self,
        means: Means,
        app: AppStream,
        head: RequestHead,
        request: Request,
        policy: Policy,
        destination: Destination,
        rest: bytes | None = None,
    ) -> None:
        self.means = means
        self.app = app
        self.head = head
        self.request = request
        self.policy = policy
        self.destination = destination
        self.rest = rest
        self.flights: dict[int, Attempt] = {}
        self.attempt_timeout = policy.timeouts.attempt

    # -- what the rooms above fill in -----------------------------------------------------------------------------

    def tell(self, now: float, event: Callable[..., Actions], *facts: object) -> None:
        """Tell the call what happened, and carry out what it asks for."""
        raise NotImplementedError

    def failed(self, attempt: Attempt, fault: Fault) -> None:
        """An attempt ended without a whole answer."""
        raise NotImplementedError

    def due_by(self, at: float) -> None:
        """Something is due at this time, perhaps before anything else."""
        raise NotImplementedError

    def _answer(self, action: Answer) -> None:
        raise NotImplementedError

    # -- where attempts go and went -------------------------------------------------------------------------------

    def _part_with(self, attempt: Attempt) -> None:
        """An attempt is over before the call is."""
        self.flights.pop(attempt.number, None)
        self._label(attempt.number, attempt.origin)
        attempt.drop()

    def _avoid(self, origin: Origin) -> None:
        if len(self.destination.origins) > 1:
            if self._failed is None:
                self._failed = []
            self._failed.append(origin)

    def _avoided(self) -> Collection[Origin]:
        """Origins that failed this call, or are trying it now."""
        if self._failed is None and not self.flights:
            return ()
        return [*(self._failed or ()), *(attempt.origin for attempt in self.flights.values())]

    def _label(self, number: int, origin: Origin) -> None:
        if self._labels is _NO_LABELS:
            self._labels = {}
        self._labels[number] = origin.label

    def _label_records(self) -> None:
        """Say in the records where each sending went."""
        for number, attempt in self.flights.items():
            self._label(number, attempt.origin)
        for record in self.call.history:
            if not record.endpoint:
                record.endpoint = self._labels.get(record.attempt, "")

    # -- proxy.observe.events.EndedCall -----------------------------------------------------------------------------

    @property
    def attempts(self) -> int:
        """Attempts made."""
        return self.call.attempts

    @property
    def history(self) -> Sequence[AttemptRecord]:
        """Every sending in order."""
        return self.call.history

    @property
    def app_retry(self) -> bool:
        """Whether the app itself was retrying."""
        return self.call.app_retry
