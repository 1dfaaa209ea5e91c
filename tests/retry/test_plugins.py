"""A user's own strategy that misbehaves loses the retry, never the call (contract, section 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from support.playbook import ANY, Playbook

from proxy.retry import RetryError
from proxy.retry.call.actions import Action, Finish, Launch, WakeAt
from proxy.retry.facts import NO_PUSHBACK, Class, Failure, Outcome, Pushback, Verdict
from proxy.retry.plugins import CustomToken
from proxy.retry.policies.policy import Backoff, Policy, Strategy, Timeouts
from proxy.retry.queues.waiting_room import WaitingRoom

FAILURE = Failure(1, Verdict(Class.TRANSIENT, "transient: 503"), NO_PUSHBACK, status=503)


@dataclass
class Token:
    retry_delay: object
    retry_count: int = 0


class Own:
    """Says what it is told to say; an exception is raised."""

    def __init__(self, first: object, then: object = None) -> None:
        self.first, self.then = first, then

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> object:
        return self._say(self.first)

    def refresh_retry_token_for_retry(self, *, token_to_renew: object, error: Exception) -> object:
        return self._say(self.then)

    def record_success(self, *, token: object) -> None:
        self._say(self.then)

    def _say(self, what: object) -> object:
        if isinstance(what, Exception):
            raise what
        return what


@pytest.mark.parametrize("first", [RuntimeError(), None, object(), Token("soon"), Token(math.inf), Token(math.nan)])
def test_without_a_token_one_attempt_is_made(first: object) -> None:
    token = CustomToken(Own(first, Token(1)), "")
    assert token.initial_delay == 0
    assert token.next_delay(FAILURE) is Outcome.BUCKET_EMPTY


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (Token(2), 2.0),
        (Token(-1), 0.0),
        (RetryError(), Outcome.BUCKET_EMPTY),
        (ValueError(), Outcome.ATTEMPTS_EXHAUSTED),
        (None, Outcome.ATTEMPTS_EXHAUSTED),
        (Token(None), Outcome.ATTEMPTS_EXHAUSTED),
        (Token(math.inf), Outcome.ATTEMPTS_EXHAUSTED),
        (Token(math.nan), Outcome.ATTEMPTS_EXHAUSTED),
    ],
)
def test_what_a_renewal_may_say(then: object, said: float | Outcome) -> None:
    token = CustomToken(Own(Token(0.5), then), "")
    assert token.initial_delay == 0.5
    assert token.next_delay(FAILURE) == said


def test_a_pushback_holds_whatever_the_strategy_says() -> None:
    failure = Failure(1, FAILURE.verdict, Pushback(3.0), status=503)
    assert CustomToken(Own(Token(0), Token(1)), "").next_delay(failure) == 3


@pytest.mark.parametrize("fault", [RuntimeError(), ValueError("no such token"), RetryError()])
def test_a_success_that_the_strategy_fails_to_record_is_one_all_the_same(fault: Exception) -> None:
    token = CustomToken(Own(Token(0), fault), "")
    token.succeeded()
    assert token.next_delay(FAILURE) is Outcome.BUCKET_EMPTY  # the strategy is not asked about this call again


@pytest.mark.parametrize(
    ("total", "then"),
    [(None, [WakeAt(5.0)]), (8.0, [WakeAt(5.0)]), (2.0, [ANY, Finish(Outcome.DEADLINE)])],
)
def test_a_delay_of_the_first_attempt_is_waited_for_unless_it_ends_after_the_deadline(
    total: float | None, then: list[Action]
) -> None:
    own = Strategy("own:Own", "own:Own", 1, Backoff(0, 0), custom=Own(Token(5.0)))
    book = Playbook(Policy("u", "", own, None, timeouts=Timeouts(total=total)))
    assert [*book.call.start(0.0)] == then
    if total != 2.0:
        assert book.call.woke(5.0) == (Launch(1),)


def test_a_delay_of_the_first_attempt_takes_a_place_in_the_waiting_room() -> None:
    own = Strategy("own:Own", "own:Own", 1, Backoff(0, 0), custom=Own(Token(5.0)))
    room = WaitingRoom(1)
    first, second = (Playbook(Policy("u", "", own, None), room=room).call for _ in range(2))
    assert first.start(0.0) == (WakeAt(5.0),)
    assert [*second.start(0.0)] == [ANY, Finish(Outcome.OVERLOADED)]
    assert first.woke(5.0) == (Launch(1),)
    assert room.waiting == 0
