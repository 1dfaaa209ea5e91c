"""A credential whose value stands in a file: when an attempt is made once more after a 401, and what is put aside."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from proxy.lab.fixed_draws import FixedDraws
from proxy.retry.call.actions import Actions, Launch
from proxy.retry.call.environment import Env
from proxy.retry.call.key_files import RENEWED
from proxy.retry.call.machine import Call
from proxy.retry.facts import Class, Fault, FaultKind, MappingFields, Progress, Reply, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Backoff, Credentials, KeyFile, Policy, Strategy
from proxy.retry.scopes.registry import Registry
from proxy.retry.upstreams.credentials import ASIDE

CLASSIFY = Classify(
    statuses={401: Class.FATAL, 503: Class.TRANSIENT}, faults={FaultKind.CONNECT_FAILURE: Class.TRANSIENT}
)
REFUSED = Reply(401, MappingFields([]), end=True)


@dataclass
class Play:
    """One call with a credential in a file. `content`: what the file has; `reads`: how often it was read."""

    content: str | None = "new"
    reads: int = 0
    fields: tuple[tuple[str, str], ...] = ()
    bucket: BucketRef | None = None
    rate: BucketRef | None = None
    aside: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        file = KeyFile("key", "Bearer {}")
        self.credentials = Credentials("Authorization", ("Bearer old",), files=(file,))
        strategy = Strategy("s", "standard", 3, Backoff(1.0, 1.0))
        policy = Policy("a", "", strategy=strategy, classify=CLASSIFY, bucket=self.bucket, credentials=self.credentials)
        policy = replace(policy, rate=self.rate)
        self.env = Env(FixedDraws(1.0), credential_aside=lambda _, key: self.aside.append(key), read_key_file=self.read)
        self.registry = Registry()
        request = Request("GET", "api.test", "/", MappingFields(self.fields))
        self.call = Call(request, policy, self.registry.scope(policy, request, 0.0), self.env)

    def read(self, path: str) -> str | None:
        self.reads += 1
        return self.content

    def refused(self, attempt: int, now: float) -> Actions:
        return self.call.head(attempt, REFUSED, now)


def launches(actions: Actions) -> list[int]:
    return [each.attempt for each in actions if isinstance(each, Launch)]


def test_a_401_is_followed_by_one_attempt_with_the_new_value() -> None:
    play = Play()
    play.call.start(0.0)
    assert launches(play.refused(1, 1.0)) == [2]
    assert play.credentials.lines == [b"Authorization: Bearer new\r\n"]
    assert [each.decision for each in play.call.so_far.history] == [RENEWED]
    assert not play.aside


def test_the_attempt_with_the_new_value_is_not_outdated_though_it_is_sent_at_that_instant() -> None:
    play = Play()
    play.call.start(0.0)
    play.refused(1, 1.0)
    assert not launches(play.refused(2, 2.0))
    assert play.aside == [1]
    assert play.call.so_far.next_attempt.keys is not None
    roster = play.registry.roster("a")
    assert roster.aside_until(play.credentials.digests[0]) == 2.0 + ASIDE


@pytest.mark.parametrize("content", ["old", None], ids=["the same value", "no value"])
def test_without_a_new_value_no_attempt_follows(content: str | None) -> None:
    play = Play(content)
    play.call.start(0.0)
    assert not launches(play.refused(1, 1.0))
    assert play.reads == 1
    assert play.aside == [1]


def test_the_file_is_not_read_for_another_status() -> None:
    play = Play()
    play.call.start(0.0)
    play.call.head(1, Reply(503, MappingFields([]), end=True), 1.0)
    assert play.reads == 0


QUOTA = BucketRef(QuotaSpec(100, initial=50))
OWN_RETRY = (("x-stainless-retry-count", "1"),)


def level(play: Play) -> float:
    """The level of the quota that the call pays from."""
    bucket = play.call.so_far.next_attempt.bucket
    assert bucket is not None
    return bucket.level(99.0)


def deliver(play: Play, attempt: int) -> None:
    """The attempt succeeds, and its answer reaches the app."""
    play.call.head(attempt, Reply(200, MappingFields([]), end=True), 90.0)
    play.call.ended(attempt, 91.0)


@pytest.mark.parametrize("fields", [(), OWN_RETRY], ids=["a call", "an app's own retry"])
def test_the_attempt_with_the_new_value_is_no_retry_where_a_success_is_refunded(
    fields: tuple[tuple[str, str], ...],
) -> None:
    play = Play(bucket=QUOTA, fields=fields)
    play.call.start(0.0)
    assert level(play) == (45 if fields else 50)
    assert launches(play.refused(1, 1.0)) == [2]
    deliver(play, 2)
    assert level(play) == (50 if fields else 51)


@pytest.mark.parametrize("rate", [None, BucketRef(RateSpec(1.0, 100.0))], ids=["no gate", "a gate"])
def test_a_retry_that_is_made_once_more_with_the_new_value_gets_its_price_back(rate: BucketRef | None) -> None:
    play = Play("old", bucket=QUOTA, rate=rate)
    play.call.start(0.0)
    unsent = Fault(FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT)
    assert launches(play.call.failed(1, unsent, 0.1)) == [1]  # the transparent retry
    play.call.failed(1, unsent, 1.0)
    assert launches(play.call.woke(2.0)) == [2]
    assert level(play) == 45
    play.content = "new"
    assert launches(play.refused(2, 3.0)) == [3]
    deliver(play, 3)
    assert level(play) == 50
