"""The record of a call that is driven to its end: when its attempts began, and the levels of the bucket that paid."""

from __future__ import annotations

from typing import Protocol

from proxy.forward.headers import gave_up
from proxy.lab.driver import Driver
from proxy.lab.request_body import KnownBody
from proxy.retry.answers.first_byte import first_byte_of
from proxy.retry.budgets.buckets import Bucket
from proxy.retry.budgets.token_estimate import estimate
from proxy.retry.call.environment import Env
from proxy.retry.call.fallback import Elsewhere
from proxy.retry.call.machine import Call
from proxy.retry.facts import Request
from proxy.retry.policies.policy import Fallback, Policy
from proxy.retry.scopes.scope_state import ScopeState


class OtherUpstreams(Protocol):
    """The upstreams that may take a call over as its fallbacks (`proxy.lab.fallback`)."""

    def why_not(self, entry: Fallback) -> str:
        """The reason why the upstream of a fallback entry can't take the call over, in a clause; "" if it can."""

    def call_of(self, entry: Fallback, now: float) -> tuple[Request, Policy, ScopeState]:
        """The call as the upstream of a fallback entry gets it, at `now` (seconds): its request, the policy that
        applies to it there, and the state of its scope.
        """


class Recorder(Driver):
    """A call that is driven to its end. `starts` are seconds from the call's beginning; `levels` are the bucket's
    levels after the end of each attempt.
    """

    scope: ScopeState

    @property
    def longest(self) -> float | None:
        """The seconds after which an attempt without an answer is given up; None if nothing bounds it."""
        bounds = (self.timeouts.attempt, first_byte_of(self.call.so_far.policy, self.call.so_far.request, self.asked))
        return min((bound for bound in bounds if bound is not None), default=None)

    def enter(
        self, request: Request, policy: Policy, scope: ScopeState, env: Env, others: OtherUpstreams | None = None
    ) -> None:
        """Begin the call of the app's request. `scope`: what the call shares with others, such as its bucket; `env`:
        the random source and the observers of the run. `others` are the upstreams that may take the call over; without
        them none does.
        """
        self.starts: list[float] = []
        self.levels: list[float | None] = []
        self._scopes: dict[int, ScopeState] = {}  # in which each attempt was sent
        self._others = others
        elsewhere = None if others is None else others.why_not
        self.begin(self._call(request, policy, scope, env, elsewhere))

    def call_elsewhere(self, entry: Fallback) -> Call:
        """The call as the upstream of a fallback entry gets it."""
        assert self._others is not None  # they were asked
        return self._call(*self._others.call_of(entry, self.clock.now), self.call.so_far.next_attempt.env)

    def _call(
        self, request: Request, policy: Policy, scope: ScopeState, env: Env, elsewhere: Elsewhere | None = None
    ) -> Call:
        self.scope = scope
        request.body = KnownBody(self.asked)
        self.timeouts = policy.timeouts
        call = Call(request, policy, scope, env, self.set_alarm, elsewhere)
        if policy.tokens is not None:
            size = max(self.body.size, sum(map(len, self.asked)))
            call.expects(estimate(policy.tokens, self.asked or None, size, scope.token_sizes, self.clock.now))
        return call

    def launched(self, attempt: int) -> float:
        """Record when the attempt was sent. A transparent retry keeps the number and the start of its attempt."""
        self._scopes[attempt] = self.scope
        if attempt > len(self.starts):
            self.starts.append(self.clock.now - self.began)
        return 0.0

    def ended(self, attempt: int) -> None:
        """Record the bucket's level after the call has dealt with an attempt's end, once for each attempt."""
        latest = next((record for record in reversed(self.call.so_far.history) if record.attempt == attempt), None)
        if latest is None or latest.decision != "transparent" or self.outcome is not None:
            now_in, self.scope = self.scope, self._scopes.get(attempt, self.scope)
            self.levels.append(self.level)
            self.scope = now_in

    @property
    def bucket(self) -> Bucket | None:
        """The bucket that pays for the call's retries, whose level is recorded; None without one."""
        return self.scope.bucket

    @property
    def level(self) -> float | None:
        """The bucket's level now; None without a bucket."""
        return None if self.bucket is None else self.bucket.level(self.clock.now)

    @property
    def elapsed(self) -> float:
        """The seconds from the call's beginning until its answer goes to the app, or to the call's end if it breaks; 0
        before the end.
        """
        until = self.finished if self.sent_on is None or self.sent_on.handed_on is None else self.sent_on.handed_on
        return 0.0 if until is None else until - self.began

    @property
    def is_replaced(self) -> bool:
        """Whether a gRPC call that was given up got trailers in place of the upstream's HTTP error (contract, section
        12, "What the app gets").
        """
        call, reply = self.call.so_far, None if self.sent_on is None else self.sent_on.reply
        if reply is None or self.outcome is None or not call.request.is_grpc or reply.fields.get_all("grpc-status"):
            return False
        return gave_up(call.policy, self.outcome, call.attempts, no_place=call.found_no_place)

    @property
    def status(self) -> int | None:
        """The status of the answer that the app got; None if it got none."""
        if self.answer is None:
            reply = None if self.sent_on is None else self.sent_on.reply
            return 200 if self.is_replaced else None if reply is None else reply.status
        return 200 if self.call.so_far.request.is_grpc else self.answer.status
