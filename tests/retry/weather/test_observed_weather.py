"""`mode: observe` tells when a limit or an outage would have begun, and holds no call (contract, section 14)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.playbook import Event, FixedDraws, fault, reply

from proxy.observe.weather import weather
from proxy.retry.call.actions import Launch
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.facts import Class, FaultKind, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import AutoLimit, Policy, PushbackPolicy
from proxy.retry.scopes.idle_scopes import IDLE, IdleScopes
from proxy.retry.scopes.registry import Registry
from proxy.retry.strategies.presets import STANDARD
from proxy.retry.upstreams.credentials import Credentials
from proxy.retry.weather.weather_changes import WeatherChanged

REQUEST = Request("GET", "u.test", "/")
POLICY = Policy(
    "u",
    "",
    STANDARD,
    BucketRef(QuotaSpec()),
    classify=Classify(
        statuses={503: Class.TRANSIENT, 429: Class.THROTTLING},
        faults={FaultKind.CONNECT_FAILURE: Class.TRANSIENT, FaultKind.RESET: Class.TRANSIENT},
    ),
    mode="observe",
    limit=AutoLimit(),
    outage="hold",
    pushback=PushbackPolicy(),
)


class Observed:
    """Calls of one policy, one after another, and the changes that were reported."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.policy = policy
        self.changes: list[WeatherChanged] = []
        self.registry = Registry()
        self.registry.weather_changed = self.changes.append

    def call(self, at: float, *events: Event) -> None:
        """One call that begins at this time: it is always sent at once, in one attempt."""
        call = Call(REQUEST, self.policy, self.registry.scope(self.policy, REQUEST, at), Env(FixedDraws(1.0)))
        assert call.start(at) == (Launch(1),)
        for event in events:
            event.happen(call, event.at)

    def good(self, count: int, at: float = 0.0) -> None:
        for number in range(count):
            self.call(at + number * 0.1, reply(1, 200, at=at + number * 0.1 + 0.01))

    def told(self) -> list[tuple[str, str, bool]]:
        return [(change.event, change.why, change.observed) for change in self.changes]


def test_an_outage_that_would_have_begun_is_told_and_every_call_is_sent() -> None:
    observed = Observed()
    observed.good(20)
    for number in range(40):
        at = 3.0 + number * 0.05
        observed.call(at, fault(1, FaultKind.RESET, at=at + 0.001))
    assert observed.told() == [("outage_began", "lost", True)]
    assert (observed.changes[0].of, observed.changes[0].ended) == (5, (("reset", 5),))
    (lane,) = weather(observed.registry.governors(), 5.0)
    assert (lane.upstream, lane.is_out, lane.by, lane.held, lane.observed) == ("u", True, "", 0, True)
    observed.good(1, 6.0)
    assert observed.told()[1:] == [("outage_over", "answered", True)]  # and no limit: no held call returns


def test_a_limit_that_would_have_begun_is_told() -> None:
    observed = Observed()
    observed.good(30)
    for number in range(3):
        observed.call(4.0 + number * 0.01, reply(1, 503, at=4.005 + number * 0.01))
    assert observed.told() == [("limit_began", "refused", True)]
    observed.call(4.1, reply(1, 503, at=4.101))


def test_a_named_delay_is_a_cooldowns_and_no_sign_of_a_limit() -> None:
    for policy in (POLICY, replace(POLICY, mode="enforce")):
        observed = Observed(policy)
        observed.good(30)
        call = Call(REQUEST, policy, observed.registry.scope(policy, REQUEST, 4.0), Env(FixedDraws(1.0)))
        call.start(4.0)
        reply(1, 429, at=4.01, headers={"retry-after": "5"}).happen(call, 4.01)
        assert observed.told() == []


@pytest.mark.parametrize("changes", [{"limit": None}, {"mode": "off"}])
def test_what_is_off_is_not_told(changes: dict[str, object]) -> None:
    observed = Observed(replace(POLICY, outage="fail", **changes))
    observed.good(30)
    for number in range(9):
        observed.call(4.0 + number * 0.1, reply(1, 503, at=4.005 + number * 0.1))
    assert observed.told() == []


def test_what_is_observed_does_not_touch_a_route_that_enforces() -> None:
    observed = Observed()
    enforced = replace(POLICY, mode="enforce", route="r")
    observed.good(20)
    for number in range(10):
        at = 3.0 + number * 0.05
        observed.call(at, fault(1, FaultKind.RESET, at=at + 0.001))
    assert observed.told() == [("outage_began", "lost", True)]
    assert observed.registry.scope(enforced, REQUEST, 3.5).admits(3.5)


def test_its_governor_is_kept_for_as_long_as_its_scope() -> None:
    observed = Observed()
    observed.good(1)
    sweeper = IdleScopes(observed.registry)
    for _ in range(3):
        while sweeper.sweep(1.0):
            pass
    assert len(observed.registry._places) == 2
    for now in (1.0, 2.0 + IDLE, 3.0 + 2 * IDLE):
        for _ in range(3):
            while sweeper.sweep(now):
                pass
    assert not observed.registry._places


def test_calls_of_a_policy_with_credentials_are_observed_by_the_governor_that_their_attempts_tell() -> None:
    """What decides a call at once reports to the scope of the policy, a call's attempt to that of its credential."""
    registry = Registry()
    keys = Credentials("x-key", ("one", "two"))
    scope = registry.scope(replace(POLICY, credentials=keys), REQUEST, 0.0)
    assert scope.keys is not None
    assert scope.governor is scope.keys.lane(0).governor
    assert scope.governor is registry.scope(POLICY, REQUEST, 0.0).governor
