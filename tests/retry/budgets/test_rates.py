"""Several rate buckets that an attempt pays together, and buckets that count a language model's tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.budgets.buckets import RateBucket
from proxy.retry.budgets.rates import Rates
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.budgets.token_estimate import Estimate
from proxy.retry.call.payment import Payment
from proxy.retry.policies.bucket_specs import RateSpec
from proxy.retry.queues.waiting_room import WaitingRoom


class Call:
    """A waiter with a price."""

    def __init__(self, tokens: float, output: float = 0.0) -> None:
        self.estimate = Estimate(tokens, output)
        self.at: float | None = None

    def retime(self, at: float) -> None:
        self.at = at


def made(*specs: RateSpec) -> tuple[Rates, list[RateBucket]]:
    buckets = [RateBucket(spec) for spec in specs]
    return Rates(tuple((each.gate, each.spec.unit) for each in buckets)), buckets


def test_all_are_paid_or_none() -> None:
    rates, (requests, tokens) = made(RateSpec(1.0, 2.0), RateSpec(10.0, 100.0, unit="tokens"))
    assert rates.ask(Call(80.0), 0.0) == 0.0
    assert (requests.level(0.0), tokens.level(0.0)) == (1.0, 20.0)
    waits = Call(50.0)
    assert rates.ask(waits, 0.0) == 3.0
    assert (requests.level(0.0), tokens.level(0.0)) == (1.0, 20.0)
    assert rates.ask(waits, 3.0) == 3.0
    assert (requests.level(3.0), tokens.level(3.0)) == (1.0, 0.0)


def test_an_attempt_that_is_not_sent_gets_its_tokens_back_at_every_bucket() -> None:
    rates, (requests, tokens) = made(RateSpec(1.0, 2.0), RateSpec(10.0, 100.0, unit="tokens"))
    payment = Payment(None, WaitingRoom(10), "u")
    assert payment.pass_gate(rates, Call(80.0), 0.0) == 0.0
    payment.give_back(0.0)
    assert (requests.level(0.0), tokens.level(0.0)) == (2.0, 100.0)


def test_the_first_to_come_is_the_first_at_every_bucket() -> None:
    rates, (_, tokens) = made(RateSpec(1.0, 1.0), RateSpec(10.0, 100.0, unit="tokens"))
    assert rates.ask(Call(95.0), 0.0) == 0.0
    large, small = Call(100.0), Call(1.0)
    assert rates.ask(large, 0.0) == 9.5
    assert rates.ask(small, 0.0) > 9.5  # the small one would fit, and does not overtake
    assert rates.ask(small, 1.0) > 1.0
    assert rates.ask(large, 9.5) == 9.5
    assert tokens.level(9.5) == 0.0
    rates.leave(small, 9.5)
    assert rates.seconds_left(9.5) > 0


def test_a_call_behind_one_that_another_gate_holds_asks_ever_less_often() -> None:
    """That one's tokens are due, and its alarm is the other gate's: asking each microsecond would busy a processor."""
    gate = RateBucket(RateSpec(1.0, 4.0)).gate
    held, behind = Call(1.0), Call(1.0)
    gate.stand(held, 1.0, 0.0)
    now, waits = 0.0, []
    for _ in range(12):
        waits.append(round(1e6 * (gate.ask(behind, now) - now)))
        now += waits[-1] / 1e6
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]
    assert gate.ask(held, now) == now
    assert gate.ask(behind, now) == now
    gate.stand(held, 1.0, now)
    assert round(1e6 * (gate.ask(Call(1.0), now) - now)) == 1, "from the beginning"


def test_a_price_above_the_burst_needs_a_full_bucket_and_leaves_a_debt() -> None:
    rates, (tokens,) = made(RateSpec(10.0, 100.0, unit="tokens"))
    large = Call(250.0)
    assert rates.ask(large, 0.0) == 0.0
    after = Call(10.0)
    assert rates.ask(after, 0.0) == 16.0  # 150 of debt, and its own ten
    assert tokens.level(15.0) == 0.0
    assert rates.ask(after, 16.0) == 16.0


class Taken(RateBucket):
    """A bucket whose tokens another process takes between the look at them and the taking."""

    def take(self, now: float, price: float = 1.0) -> bool:
        return False


def test_what_another_process_takes_first_is_not_paid_elsewhere() -> None:
    requests, tokens = RateBucket(RateSpec(1.0, 2.0)), Taken(RateSpec(10.0, 100.0, unit="tokens"))
    rates = Rates(((requests.gate, "attempts"), (tokens.gate, "tokens")))
    call = Call(50.0)
    assert rates.ask(call, 0.0) > 0.0
    assert requests.level(0.0) == 2.0
    assert call in requests.gate.queue and call in tokens.gate.queue


def test_a_bucket_that_rejects_rejects_only_what_it_can_not_pay() -> None:
    rates, _ = made(RateSpec(1.0, 1.0), RateSpec(10.0, 100.0, when_empty="reject", unit="tokens"))
    assert rates.ask(Call(60.0), 0.0) == 0.0
    waits = Call(40.0)
    assert rates.ask(waits, 0.0) == 1.0  # for the bucket of requests, which lets calls wait
    rejected = Call(90.0)
    assert rates.ask(rejected, 0.0) == REJECTED
    assert rates.ask(waits, 1.0) == 1.0


def test_a_call_that_one_bucket_rejects_waits_at_no_other() -> None:
    rates, buckets = made(RateSpec(1.0, 1.0), RateSpec(10.0, 100.0, when_empty="reject", unit="tokens"))
    assert rates.ask(Call(60.0), 0.0) == 0.0
    assert rates.ask(Call(90.0), 0.0) == REJECTED
    assert [len(each.gate.queue) for each in buckets] == [0, 0]


def test_the_wait_of_an_attempt_is_the_longest_of_its_prices() -> None:
    rates, _ = made(RateSpec(1.0, 5.0), RateSpec(10.0, 150.0, unit="tokens"), RateSpec(5.0, 100.0, unit="output"))
    assert rates.ask(Call(60.0, 40.0), 0.0) == 0.0
    assert rates.seconds_left(0.0) == 0.0
    assert rates.seconds_left(0.0, Estimate(40.0, 10.0)) == 0.0
    assert rates.seconds_left(0.0, Estimate(60.0, 40.0)) == 5.0
    assert rates.seconds_left(0.0, Estimate(0.0, 80.0)) == 4.0
    assert rates.seconds_left(0.0, Estimate(500.0, 0.0)) == 10.0, "it begins with a full bucket"


def test_a_shortage_of_tokens_is_said_in_words() -> None:
    rates, _ = made(RateSpec(1.0, 1.0), RateSpec(10.0, 150.0, unit="tokens"))
    assert rates.ask(Call(60.0, 40.0), 0.0) == 0.0
    assert rates.shortage(0.0, Estimate(20.0, 20.0)) == rates.shortage(0.0, None) == ""
    said = "it is estimated at 101 tokens, and the upstream's rate bucket has 50 left"
    assert rates.shortage(0.0, Estimate(60.25, 40.0)) == said
    assert rates.ask(Call(200.0), 60.0) == 60.0, "a full bucket pays for more than it has"
    assert "has 0 left" in rates.shortage(60.0, Estimate(1.0, 0.0))


def test_what_is_not_used_comes_back_and_what_was_used_beyond_is_taken() -> None:
    rates, (requests, tokens) = made(RateSpec(0.001, 5.0), RateSpec(0.001, 100.0, unit="tokens"))
    assert rates.ask(Call(60.0), 0.0) == 0.0
    rates.settle(0.0, Estimate(20.0, 0.0), True)
    assert (requests.level(0.0), tokens.level(0.0)) == (4.0, 60.0)
    rates.settle(0.0, Estimate(-80.0, 0.0), True)
    assert tokens.level(0.0) == 0.0
    assert rates.ask(Call(1.0), 0.0) > 1000  # the debt has no floor


def test_each_bucket_counts_the_tokens_of_its_own() -> None:
    specs = [RateSpec(0.001, 1000.0, unit=unit) for unit in ("attempts", "tokens", "requested", "prompt", "output")]
    rates, buckets = made(*specs)
    call = Call(100.0)
    call.estimate = Estimate(100.0, 200.0)
    assert rates.ask(call, 0.0) == 0.0
    assert [each.level(0.0) for each in buckets] == [999.0, 700.0, 700.0, 900.0, 800.0]
    rates.settle(0.0, Estimate(30.0, 150.0), True)  # a provider that counts what is asked for gives nothing back
    assert [each.level(0.0) for each in buckets] == [999.0, 880.0, 730.0, 930.0, 950.0]


def test_of_an_attempt_that_failed_the_output_comes_back_to_a_bucket_of_requested_tokens_too() -> None:
    rates, (requested,) = made(RateSpec(0.001, 1000.0, unit="requested"))
    call = Call(100.0)
    call.estimate = Estimate(100.0, 200.0)
    assert rates.ask(call, 0.0) == 0.0
    rates.settle(0.0, Estimate(0.0, 200.0), False)
    assert requested.level(0.0) == 900.0


def test_settling_moves_the_alarms_of_those_that_wait() -> None:
    rates, _ = made(RateSpec(10.0, 100.0, unit="tokens"))
    assert rates.ask(Call(100.0), 0.0) == 0.0
    waits = Call(50.0)
    assert rates.ask(waits, 0.0) == 5.0
    rates.settle(0.0, Estimate(40.0, 0.0), True)
    assert waits.at == 1.0


@given(st.lists(st.tuples(st.floats(0, 200), st.floats(-100, 200), st.floats(0, 3)), max_size=30))
def test_tokens_are_conserved(calls: list[tuple[float, float, float]]) -> None:
    """Never more is granted than was there and accrued, apart from the debt of the last call."""
    rate, burst = 10.0, 100.0
    rates, _ = made(RateSpec(rate, burst, unit="tokens"))
    now = used = 0.0
    for price, unused, pause in calls:
        call = Call(price)
        at = rates.ask(call, now)
        while at > now:
            now = at
            at = rates.ask(call, now)
        assert used + min(price, burst) <= burst + rate * now + 1e-3
        used += price
        rates.settle(now, Estimate(min(unused, price), 0.0), True)
        used -= min(unused, price)
        used = max(used, rate * now)  # what would overflow the bucket is lost
        now += pause


def test_who_leaves_makes_room_at_every_bucket() -> None:
    rates, (requests, tokens) = made(RateSpec(1.0, 1.0), RateSpec(10.0, 100.0, unit="tokens"))
    assert rates.ask(Call(95.0), 0.0) == 0.0
    first, second = Call(100.0), Call(1.0)
    rates.ask(first, 0.0)
    rates.ask(second, 0.0)
    assert [*requests.gate.queue] == [*tokens.gate.queue] == [first, second]
    rates.leave(first, 1.0)
    assert [*requests.gate.queue] == [*tokens.gate.queue] == [second]
    assert rates.ask(second, 1.0) == 1.0


class Waiting:
    """A waiter that counts how often its alarm was moved."""

    def __init__(self) -> None:
        self.at: float | None = None
        self.moved = 0

    def retime(self, at: float) -> None:
        self.at = at
        self.moved += 1


def test_a_call_that_leaves_a_long_queue_moves_no_alarm_but_the_first_ones() -> None:
    gate = RateBucket(RateSpec(1.0, 1.0)).gate
    assert gate.ask(Waiting(), 0.0) == 0.0
    calls = [Waiting() for _ in range(1000)]
    due = [gate.ask(call, 0.0) for call in calls]
    assert due == [float(number + 1) for number in range(1000)]
    for call in calls[1:500]:
        gate.leave(call, 0.0)
    assert not any(call.moved for call in calls)
    gate.leave(calls[0], 0.5)
    assert sum(call.moved for call in calls) == 1
    assert calls[500].at == 1.0
    assert gate.ask(calls[500], 1.0) == 1.0
    assert (calls[501].at, calls[501].moved) == (2.0, 1)  # each that becomes the first, from then on
    assert gate.seconds_left(1.0) == 500


def test_a_token_that_is_given_back_is_taken_by_the_next_call_at_once() -> None:
    gate = RateBucket(RateSpec(0.1, 1.0)).gate
    assert gate.ask(Waiting(), 0.0) == 0.0
    second, third = Waiting(), Waiting()
    assert (gate.ask(second, 0.0), gate.ask(third, 0.0)) == (10.0, 20.0)
    gate.give_back(1.0)
    assert second.at == 1.0
    assert gate.ask(second, 1.0) == 1.0
    assert third.at == 11.0


@given(
    st.lists(st.tuples(st.sampled_from(["come", "leave", "first", "wait"]), st.integers(0, 20)), max_size=60),
)
def test_whoever_leaves_calls_go_when_their_tokens_are_due(script: list[tuple[str, int]]) -> None:
    """As if the alarms of all others were moved each time: whenever the first one's alarm rings, it goes."""
    gate, now, waiting = RateBucket(RateSpec(2.0, 1.0)).gate, 0.0, list[Waiting]()

    def ring() -> None:
        while waiting and waiting[0].at is not None and waiting[0].at <= now:
            at = gate.ask(waiting[0], waiting[0].at)
            if at > waiting[0].at:
                waiting[0].at = at
                return
            waiting.pop(0)

    for what, number in script:
        if what == "come":
            call = Waiting()
            call.at = gate.ask(call, now)
            if call.at > now:
                waiting.append(call)
        elif what == "wait":
            now += number / 4
            ring()
        elif waiting:
            gate.leave(waiting.pop(0 if what == "first" else number % len(waiting)), now)
        assert [*gate.queue] == waiting
        if waiting:
            assert waiting[0].at is not None and waiting[0].at <= now + gate.bucket.wait(now, 1.0) + 1e-6
            assert abs(gate.seconds_left(now) - gate.bucket.wait(now, len(waiting) + 1.0)) < 1e-9
