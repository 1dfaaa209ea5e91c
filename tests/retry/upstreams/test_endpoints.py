"""Where attempts are sent, where the core chooses that: turns by weight, priorities, what refuses, what is open."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.playbook import ANY, Event, FixedDraws, Playbook, app_gone, ended, fault, reply, start, wake

from proxy.retry.budgets.concurrency import UNLIMITED, Places
from proxy.retry.call.actions import Actions, Answer, Cancel, Deliver, Discard, Finish, Hold, Launch, WakeAt
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.facts import Class, Fault, FaultKind, MappingFields, Outcome, Progress, Request
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Backoff, BreakerSpec, EndpointShare, Policy, Resume, Strategy
from proxy.retry.scopes.registry import Registry
from proxy.retry.upstreams.circuit_breaker import CircuitBreaker
from proxy.retry.upstreams.endpoints import Endpoints
from proxy.retry.weather.caller import Caller

BREAKER = BreakerSpec(0.5, 2, 30.0, 10.0)
POLICY = Policy(
    "u",
    "",
    Strategy("standard", "standard", 3, Backoff(0.1, 20.0, 1.0, "none")),
    BucketRef(QuotaSpec()),
    classify=Classify(
        statuses={503: Class.TRANSIENT, 429: Class.THROTTLING, 504: Class.TIMEOUT},
        grpc={14: Class.TRANSIENT},
        faults={FaultKind.CONNECT_FAILURE: Class.TRANSIENT, FaultKind.RESET: Class.TRANSIENT},
    ),
)
REQUEST = Request("GET", "u.test", "/")
HEDGED = Strategy("hedging", "hedging", 3, Backoff(0, 0), hedging_delay=1.0, non_fatal=frozenset({503}))


def shares(*weighed: tuple[int, int]) -> tuple[EndpointShare, ...]:
    """Endpoints e0, e1, … of these weights and priorities."""
    return tuple(EndpointShare(f"e{n}:80", *each) for n, each in enumerate(weighed))


def policy(*weighed: tuple[int, int], breaker: BreakerSpec | None = None, **more: object) -> Policy:
    return replace(POLICY, circuit_breaker=breaker, endpoints=shares(*weighed), **more)


def next_of(endpoints: Endpoints, now: float = 0.0, avoid: tuple[int, ...] = ()) -> int | None:
    choice = endpoints.choose(avoid, now)
    if choice is None:
        return None
    endpoints.took(choice)
    return choice.index


def open_up(breaker: CircuitBreaker, now: float = 0.0) -> None:
    for _ in range(breaker.spec.minimum_attempts):
        breaker.ended(True, now, 0, now)


# -- turns ------------------------------------------------------------------------------------------------------------


def test_three_to_one_goes_a_a_b_a() -> None:
    endpoints = Endpoints(shares((3, 0), (1, 0)))
    assert [next_of(endpoints) for _ in range(8)] == [0, 0, 1, 0] * 2


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6))
def test_each_has_its_weight_of_every_round_of_turns(weights: list[int]) -> None:
    endpoints = Endpoints(shares(*((weight, 0) for weight in weights)))
    for _ in range(2):
        counted = Counter(next_of(endpoints) for _ in range(sum(weights)))
        assert counted == dict(enumerate(weights))


def test_a_retry_takes_no_turn() -> None:
    endpoints = Endpoints(shares((1, 0), (1, 0)))
    assert [next_of(endpoints), next_of(endpoints, avoid=(0,)), next_of(endpoints)] == [0, 1, 1]


def test_the_retries_of_a_call_that_failed_everywhere_go_round_all_endpoints() -> None:
    endpoints = Endpoints(shares((1, 0), (1, 0), (1, 0), (1, 1)))
    failed: tuple[int, ...] = ()
    for _ in range(9):
        index = next_of(endpoints, avoid=failed)
        assert index is not None
        failed = (*failed, index)
    assert [sorted(failed[at : at + 3]) for at in (0, 3, 6)] == [[0, 1, 2]] * 3


def test_endpoints_take_turns_while_calls_with_another_credential_are_held() -> None:
    registry, made = Registry(), policy((3, 0), (1, 0))
    governor = Playbook(made, registry=registry).scope.governor
    held = Caller(Request("GET", "u.test", "/"), MappingFields([("authorization", "other")]), "")
    governor.requests_wait(held, 429, 60.0, sent=0.0, now=0.0, whole=True)
    for index in (0, 0, 1, 0) * 2:
        assert governor.holds(1.0)
        assert Playbook(made, registry=registry) >> start(at=1.0) << Launch(1, endpoint=index)


def happens(call: Call, event: Event) -> Actions:
    return event.happen(call, event.at)


def loaded(*counts: int, weights: tuple[int, ...] = ()) -> Endpoints:
    """Endpoints with so many attempts under way."""
    endpoints = Endpoints(shares(*((weight, 0) for weight in weights or (1,) * len(counts))))
    endpoints.loads = [Places(UNLIMITED) for _ in counts]
    for load, count in zip(endpoints.loads, counts, strict=True):
        for _ in range(count):
            load.enter(0.0)
    return endpoints


@pytest.mark.parametrize(
    ("counts", "weights", "index"),
    [((2, 1, 3), (1, 1, 1), 1), ((4, 2), (3, 1), 0), ((5, 2), (3, 1), 0), ((7, 2), (3, 1), 1)],
)
def test_least_takes_the_endpoint_with_the_fewest_under_way_for_its_weight(
    counts: tuple[int, ...], weights: tuple[int, ...], index: int
) -> None:
    choice = loaded(*counts, weights=weights).choose((), 0.0, least=True)
    assert choice is not None and choice.index == index


def test_least_lets_those_with_equally_few_take_turns() -> None:
    endpoints, taken = loaded(0, 5, 0), []
    for _ in range(4):
        choice = endpoints.choose((), 0.0, least=True)
        assert choice is not None
        endpoints.took(choice)
        taken.append(choice.index)
    assert taken == [0, 2, 0, 2]


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 50)), min_size=2, max_size=6), st.data())
def test_least_is_never_beaten(known: list[tuple[int, int]], data: st.DataObject) -> None:
    """Law: of the endpoints that are left, none has fewer attempts under way for its weight than the one taken."""
    endpoints = loaded(*(count for _, count in known), weights=tuple(weight for weight, _ in known))
    avoid = data.draw(st.lists(st.integers(0, len(known) - 1), max_size=len(known)))
    choice = endpoints.choose(avoid, 0.0, least=True)
    assert choice is not None
    left = [index for index in range(len(known)) if index not in avoid] or range(len(known))
    assert choice.index in left
    ratios = [known[index][1] / known[index][0] for index in left]
    assert known[choice.index][1] / known[choice.index][0] == min(ratios)


def test_attempts_are_counted_until_they_end_however_they_end() -> None:
    counted = policy((1, 0), (1, 0), balance="least")
    registry = Registry()
    scope = registry.scope(counted, REQUEST)
    assert scope.endpoints is not None
    loads = scope.endpoints.of("").loads

    def under_way() -> list[int]:
        return [load.total(0.0)[0] for load in loads if load is not None]

    one, two, three = (Call(REQUEST, counted, scope, Env(FixedDraws(1.0))) for _ in range(3))
    assert one.start(0.0) == (Launch(1, endpoint=0),)
    assert two.start(0.0) == (Launch(1, endpoint=1),)
    assert three.start(0.0) == (Launch(1, endpoint=1),)
    assert under_way() == [1, 2]
    happens(one, reply(1, 200, at=1.0))
    assert under_way() == [1, 2]  # the answer's body is still coming
    happens(one, ended(1, at=2.0))
    assert under_way() == [0, 2]
    happens(two, reply(1, 503, at=2.0))
    assert under_way() == [0, 1]  # it has failed, and its call waits
    assert happens(two, wake(2.2))[-1] == Launch(2, endpoint=0)  # where it has not failed
    assert under_way() == [1, 1]
    happens(two, app_gone(2.3))
    happens(three, fault(1, FaultKind.CONNECT_FAILURE, at=2.4))  # sent again at once, elsewhere
    assert under_way() == [1, 0]
    happens(three, app_gone(2.5))
    assert under_way() == [0, 0]


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_least_holds_in_the_other_modes_too(mode: str) -> None:
    scope = Registry().scope(counted := policy((1, 0), (1, 0), balance="least", mode=mode), REQUEST)
    one, two, three = (Call(REQUEST, counted, scope, Env(FixedDraws(1.0))) for _ in range(3))
    assert [*one.start(0.0), *two.start(0.0)] == [Launch(1, endpoint=0), Launch(1, endpoint=1)]
    happens(two, app_gone(0.1))
    assert three.start(0.2) == (Launch(1, endpoint=1),)


def test_an_attempt_that_could_not_connect_is_sent_again_where_no_circuit_is_open() -> None:
    book = Playbook(policy((1, 0), (1, 0), (1, 0), breaker=BREAKER))
    endpoints = book.scope.endpoints
    assert endpoints is not None
    _, second, _ = endpoints.of("").breakers
    assert second is not None
    open_up(second)
    assert book >> start() << Launch(1, endpoint=0)
    assert book >> fault(1, "connect_failure", at=0.1) << Launch(1, fresh=True, endpoint=2)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_in_the_other_modes_it_is_sent_again_elsewhere_whatever_the_circuits_are(mode: str) -> None:
    book = Playbook(policy((1, 0), (1, 0), breaker=BREAKER, mode=mode))
    endpoints = book.scope.endpoints
    assert endpoints is not None
    assert book >> start() << Launch(1, endpoint=0)
    _, second = endpoints.of("").breakers
    assert second is not None
    open_up(second)
    assert book >> fault(1, "connect_failure", at=0.1) << Launch(1, fresh=True, endpoint=1)


def test_a_higher_priority_only_while_all_of_the_lower_are_passed_over() -> None:
    endpoints = Endpoints(shares((1, 1), (1, 0), (1, 0)))
    assert [next_of(endpoints), next_of(endpoints)] == [1, 2]
    endpoints.refused(1, 0.0)
    assert [next_of(endpoints, 1.0), next_of(endpoints, 1.0)] == [2, 2]
    endpoints.refused(2, 1.0)
    assert next_of(endpoints, 2.0) == 0
    endpoints.refused(0, 2.0)  # all of them: the lowest priority again, as without any of this
    assert next_of(endpoints, 3.0) in (1, 2)
    assert next_of(endpoints, 5.5) == 1  # its 5 s are over
    endpoints.reached(2)
    assert next_of(endpoints, 5.6, avoid=(1,)) == 2


def test_that_a_call_failed_there_does_not_pass_an_endpoint_over() -> None:
    endpoints = Endpoints(shares((1, 0), (1, 0), (1, 1)))
    assert next_of(endpoints, avoid=(0,)) == 1
    assert next_of(endpoints, avoid=(0, 1)) in (0, 1)


def test_the_penalty_doubles_up_to_a_minute() -> None:
    endpoints, now, waits = Endpoints(shares((1, 0), (1, 0))), 0.0, []
    for _ in range(6):
        endpoints.refused(0, now)
        endpoints.refused(0, now)  # attempts that fail together count once
        waits.append(endpoints._penalties[0].until - now)
        now = endpoints._penalties[0].until
    assert waits == [5, 10, 20, 40, 60, 60]


@given(st.data())
def test_what_is_open_is_never_chosen_and_probes_go_one_at_a_time(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    endpoints = Endpoints(shares(*((1, data.draw(st.integers(0, 2))) for _ in range(count))))
    breakers = [CircuitBreaker(BREAKER) for _ in range(count)]
    endpoints.breakers = list(breakers)
    now, probing = 0.0, {}
    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from([0.0, 1.0, 9.0]))
        ill = data.draw(st.sampled_from([None, *range(count)]))
        if ill is not None:
            breakers[ill].ended(True, now, 0, now)
            breakers[ill].ended(True, now, 0, now)
        before = [(each.is_open, each.passes(now)) for each in breakers]
        choice = endpoints.choose((), now)
        if choice is None:
            assert not any(passes for _, passes in before)
            assert endpoints.seconds_left(now) > 0
            continue
        was_open, passed = before[choice.index]
        assert passed
        assert bool(choice.probe) == was_open
        lower = [
            n for n, share in enumerate(endpoints.shares) if share.priority < endpoints.shares[choice.index].priority
        ]
        assert not any(before[n][1] for n in lower)
        if choice.probe:
            assert now >= probing.get(choice.index, 0.0), "two probes at once"
            probing[choice.index] = breakers[choice.index].until
        what = data.draw(st.sampled_from(["well", "ill", "gone", "nothing"]))
        if what == "gone":
            choice.undecided(now)
        elif what != "nothing":
            choice.ended(what == "ill", now, now)
        if what != "nothing":
            probing.pop(choice.index, None)


# -- calls ------------------------------------------------------------------------------------------------------------


def test_a_retry_goes_elsewhere_within_its_priority() -> None:
    book = Playbook(policy((1, 0), (1, 0), (1, 1)))
    assert (
        book
        >> start()
        << Launch(1, endpoint=0)
        >> reply(1, 503, at=0.0)
        << Hold(1)
        << WakeAt(0.1)
        >> wake(0.1)
        << Discard(1)
        << Launch(2, endpoint=1)
        >> reply(2, 503, at=0.2)
        << Hold(2)
        << WakeAt(ANY)
        >> wake(0.3)
        << Discard(2)
        << Launch(3, endpoint=1)  # both have failed, and it is their turn
        >> reply(3, 200, at=0.4)
        << Deliver(3, Outcome.SUCCESS)
        >> ended(3, at=0.4)
        << Finish(Outcome.SUCCESS)
    )


def test_the_transparent_retry_of_a_refused_connection_goes_to_the_next_priority() -> None:
    book = Playbook(policy((1, 0), (1, 1)))
    assert (
        book
        >> start()
        << Launch(1, endpoint=0)
        >> fault(1, "connect_failure", at=0.0)
        << Launch(1, fresh=True, endpoint=1)
        >> reply(1, 200, at=0.1)
        << Deliver(1, Outcome.SUCCESS)
        >> ended(1, at=0.1)
        << Finish(Outcome.SUCCESS)
    )


def breakers_of(book: Playbook) -> list[CircuitBreaker]:
    assert book.scope.endpoints is not None
    found = [each for each in book.scope.endpoints.of("u").breakers if each is not None]
    assert found
    return found


def test_where_every_breaker_is_open_calls_are_answered_at_once() -> None:
    book = Playbook(policy((1, 0), breaker=BREAKER))
    open_up(breakers_of(book)[0])
    detail = "the circuit breaker of every endpoint is open; the next call may go in 7.5 s"
    answer = Answer(503, "Circuit open", detail, Outcome.CIRCUIT_OPEN, 7.5, "destination_unavailable", 14)
    assert book >> start(at=2.5) << answer << Finish(Outcome.CIRCUIT_OPEN)
    assert book.call.so_far.attempts == 0


def test_on_a_retry_the_price_comes_back_and_the_last_answer_goes_to_the_app() -> None:
    book = Playbook(policy((1, 0), breaker=replace(BREAKER, minimum_attempts=1)))
    assert (
        book
        >> start()
        << Launch(1, endpoint=0)
        >> reply(1, 503, at=0.0)
        << Hold(1)
        << WakeAt(0.1)
        >> wake(0.1)
        << Deliver(1, Outcome.CIRCUIT_OPEN)
        >> ended(1, at=0.1)
        << Finish(Outcome.CIRCUIT_OPEN)
    )
    assert book.scope.bucket is not None
    assert book.scope.bucket.level(0.1) == 500
    assert book.call.so_far.history[0].decision == "circuit_open"
    assert "circuit breaker" in book.call.so_far.history[0].why


@pytest.mark.parametrize(("status", "is_open"), [(503, True), (504, True), (429, False), (404, False), (200, False)])
def test_what_is_a_sign_of_illness(status: int, is_open: bool) -> None:
    registry, made = Registry(), policy((1, 0), breaker=BREAKER)
    for _ in range(2):
        book = Playbook(replace(made, strategy=replace(POLICY.strategy, max_attempts=1)), registry=registry)
        outcome = {200: Outcome.SUCCESS, 404: Outcome.NOT_RETRYABLE}.get(status, Outcome.ATTEMPTS_EXHAUSTED)
        assert book >> start() << Launch(1, endpoint=0) >> reply(1, status, at=0.0) << Deliver(1, outcome)
    assert breakers_of(book)[0].is_open == is_open


def test_a_probe_whose_app_left_decides_nothing_and_the_next_goes() -> None:
    registry, made = Registry(), policy((1, 0), breaker=BREAKER)
    first = Playbook(made, registry=registry)
    breaker = breakers_of(first)[0]
    open_up(breaker)
    assert first >> start(at=10.0) << Launch(1, endpoint=0)
    other = Playbook(made, registry=registry)
    assert other >> start(at=10.5) << Answer(503, ANY, ANY, ANY, 9.5, ANY, 14) << Finish(Outcome.CIRCUIT_OPEN)
    assert first >> app_gone(at=11.0) << Cancel(1) << Finish(Outcome.CLIENT_GONE)
    assert breaker.is_open
    third = Playbook(made, registry=registry)
    assert third >> start(at=11.0) << Launch(1, endpoint=0) >> reply(1, 200, at=11.1) << Deliver(1, Outcome.SUCCESS)
    assert not breaker.is_open


def test_a_probe_that_can_not_connect_has_failed_once_its_transparent_retry_has() -> None:
    book = Playbook(replace(policy((1, 0), breaker=BREAKER), strategy=replace(POLICY.strategy, max_attempts=1)))
    breaker = breakers_of(book)[0]
    open_up(breaker)
    assert (
        book
        >> start(at=10.0)
        << Launch(1, endpoint=0)
        >> fault(1, "connect_failure", at=10.0)
        << Launch(1, fresh=True, endpoint=0)
        >> fault(1, "connect_failure", at=10.0)
        << Answer(ANY, ANY, ANY, ANY, ANY, ANY, ANY)
        << Finish(Outcome.ATTEMPTS_EXHAUSTED)
    )
    assert breaker.until == 30.0


def test_a_probe_that_can_not_connect_has_failed_where_another_endpoint_serves_the_call() -> None:
    book = Playbook(policy((1, 0), (1, 0), breaker=BREAKER))
    one, other = breakers_of(book)
    open_up(one)
    assert (
        book
        >> start(at=10.0)
        << Launch(1, endpoint=0)
        >> fault(1, "connect_failure", at=10.0)
        << Launch(1, fresh=True, endpoint=1)
        >> reply(1, 200, at=10.1)
        << Deliver(1, Outcome.SUCCESS)
    )
    assert (one.until, other.is_open) == (30.0, False)


def test_a_call_goes_as_the_probe_while_the_others_serve() -> None:
    registry, made = Registry(), policy((1, 0), (1, 0), breaker=BREAKER)
    one, _ = breakers_of(Playbook(made, registry=registry))
    open_up(one)
    for at, endpoint in ((5.0, 1), (6.0, 1), (10.0, 0), (10.1, 1)):
        assert Playbook(made, registry=registry) >> start(at=at) << Launch(1, endpoint=endpoint)


def test_hedges_go_to_distinct_endpoints_and_the_losers_count_not_at_all() -> None:
    book = Playbook(policy((1, 0), (1, 0), breaker=BREAKER, strategy=HEDGED))
    one, _ = breakers_of(book)
    open_up(one)
    assert (
        book
        >> start(at=10.0)
        << Launch(1, endpoint=0)  # the probe
        << WakeAt(11.0)
        >> wake(11.0)
        << Launch(2, endpoint=1)
        << WakeAt(12.0)
        >> reply(2, 200, at=11.5)
        << Cancel(1)
        << Deliver(2, Outcome.SUCCESS)
    )
    assert one.is_open
    assert one.passes(11.5)


def test_a_hedge_that_no_breaker_lets_pass_ends_hedging() -> None:
    book = Playbook(policy((1, 0), breaker=replace(BREAKER, minimum_attempts=5), strategy=HEDGED))
    (breaker,) = breakers_of(book)
    assert book >> start() << Launch(1, endpoint=0) << WakeAt(1.0)
    open_up(breaker, 0.5)
    assert book >> wake(1.0) >> reply(1, 503, at=2.0) << Hold(1) << Deliver(1, Outcome.CIRCUIT_OPEN)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_in_other_modes_no_breaker_holds_or_learns(mode: str) -> None:
    registry = Registry()
    enforced = policy((1, 0), (1, 1), breaker=BREAKER)
    one, other = breakers_of(Playbook(enforced, registry=registry))
    open_up(one)
    until = one.until
    made = replace(enforced, mode=mode)
    for _ in range(3):
        book = Playbook(made, registry=registry)
        assert book >> start(at=1.0) << Launch(1, endpoint=0) >> reply(1, 503, at=1.0) << Deliver(1, Outcome.DISABLED)
    assert (one.until, other.is_open) == (until, False)


def test_a_status_behind_the_messages_counts() -> None:
    registry, made = Registry(), policy((1, 0), breaker=replace(BREAKER, minimum_attempts=1))
    (breaker,) = breakers_of(Playbook(made, registry=registry))
    book = Playbook(made, registry=registry)
    assert book >> start() << Launch(1, endpoint=0) >> reply(1, 200, at=0.0, end=False) << Deliver(1, Outcome.SUCCESS)
    assert not breaker.is_open
    assert book >> ended(1, at=1.0, trailers={"grpc-status": "14"}) << Finish(Outcome.COMMITTED)
    assert breaker.is_open


def test_the_policies_of_an_upstream_share_its_endpoints_and_a_place_that_is_asked_for_has_its_own() -> None:
    registry = Registry()
    named, route = policy((1, 0), breaker=BREAKER), policy((1, 0), breaker=BREAKER, route="/x")
    scopes = [registry.scope(each, Request("GET", host, "/")) for each in (named, route) for host in ("a", "b")]
    assert len({id(scope.endpoints.of("a").breakers[0]) for scope in scopes if scope.endpoints is not None}) == 1
    open_place = replace(POLICY, upstream="unmatched", circuit_breaker=BREAKER)
    groups = [registry.scope(open_place, Request("GET", host, "/")).endpoints for host in ("a", "b", "a")]
    breakers = [group.of(host).breakers[0] for group, host in zip(groups, ("a", "b", "a"), strict=True) if group]
    assert breakers[0] is breakers[2] is not breakers[1]


def test_after_a_reload_what_did_not_change_is_as_it_was() -> None:
    registry = Registry()
    before = policy((1, 0), breaker=BREAKER)
    open_up(breakers_of(Playbook(before, registry=registry))[0])
    registry.forget_policies()
    assert breakers_of(Playbook(replace(before), registry=registry))[0].is_open
    changed = replace(before, circuit_breaker=replace(BREAKER, window=5.0))
    assert not breakers_of(Playbook(changed, registry=registry))[0].is_open


def test_a_tunnel_to_a_place_of_its_own_is_held_by_no_endpoints_breaker() -> None:
    registry, made = Registry(), policy((1, 0), breaker=BREAKER)
    open_up(breakers_of(Playbook(made, registry=registry))[0])
    request = Request("CONNECT", "a:443", "")
    call = Call(request, made, registry.scope(made, request), Env(None))  # type: ignore[arg-type]  # nothing is drawn
    call.goes_elsewhere()
    assert call.start(1.0) == (Launch(1),)


def test_an_attempt_for_the_rest_of_an_answer_that_fails_is_reported_to_its_endpoint() -> None:
    book = Playbook(policy((1, 0), breaker=replace(BREAKER, minimum_attempts=1), resume=Resume()))
    lost = Fault(FaultKind.RESET, Progress.UNKNOWN)
    assert book >> start() << Launch(1, endpoint=0) >> reply(1, 200, at=0.1) << Deliver(1, Outcome.SUCCESS)
    (alarm,) = book.call.broke(1, lost, 1 << 20, 0.2, 0.2)
    assert isinstance(alarm, WakeAt)
    assert [type(action) for action in book.call.woke(alarm.at)] == [Launch]
    assert book.scope.endpoints is not None
    (breaker,) = book.scope.endpoints.of(book.request.authority).breakers
    assert breaker is not None and not breaker.is_open
    book.call.failed(2, lost, alarm.at + 0.1)
    assert breaker.is_open
