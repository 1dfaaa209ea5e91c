"""The dial of an attempt, whose end its owner learns as long as the attempt is not dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.forward.attempt import Attempt, AttemptOwner
from proxy.forward.sending import AttemptDial
from proxy.retry.facts import Fault
from proxy.retry.policies.routing import Endpoint
from proxy.transport.origins import Origin, Way
from proxy.transport.pool import Pool


class Owner(AttemptOwner):
    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def failed(self, attempt: Attempt, fault: Fault) -> None:
        self.faults.append(fault)


class Stream:
    """An upstream stream that notes whether it was given up."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize("dropped", [False, True])
def test_a_dropped_attempts_dial_ends_without_a_word_to_its_owner(dropped: bool) -> None:
    """The owner may have begun another call: a hedge may be dropped as its time to connect ends."""
    owner, nothing = Owner(), None
    origin = Origin(Endpoint("http", "127.0.0.1", 80), Way())
    attempt = Attempt(owner, 2, origin)
    loop: Any = nothing
    dialer: Any = SimpleNamespace(resolver=None)
    pool = Pool(loop, dialer, idle=4.0, max_idle=1)
    sent: list[Any] = []
    dial = AttemptDial(pool, attempt, lambda attempt, stream, now: sent.append(stream))
    if dropped:
        attempt.drop()
    stream: Any = Stream()
    dial.failed(TimeoutError())
    dial.opened(stream)
    assert [fault.kind.value for fault in owner.faults] == ([] if dropped else ["connect_failure"])
    assert sent == ([] if dropped else [stream])
    assert stream.cancelled is dropped
