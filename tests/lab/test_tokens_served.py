"""Fifty apps that each make one call after the other to an upstream that counts tokens, on a virtual clock: with
`pushback.ahead` hardly a call is refused, and in each minute as many tokens are served as to clients without redrive.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from support.scenarios import scenario

from proxy.lab.clock import BEGIN, Clock
from proxy.lab.driver import Driver
from proxy.lab.fixed_draws import FixedDraws
from proxy.lab.simulate.columns import columns
from proxy.lab.simulate.limits import LimitKind, limit_of
from proxy.lab.upstream import Sending
from proxy.retry.answers.token_usage import TokenUsage
from proxy.retry.budgets.token_estimate import Estimate
from proxy.retry.call.environment import Env
from proxy.retry.call.machine import Call
from proxy.retry.facts import MappingFields, NoFields, Outcome, Reply, Request
from proxy.retry.policies.bucket_specs import TokenRules
from proxy.retry.policies.policy import Policy
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry

APPS, MINUTES = 50, 3
LIMIT, PROMPT, MOST, TAKES = 60_000, 100, 200, 0.2
POLICIES = """\
request: {prompt: 30%, max_tokens: 200}
upstream: {limit: 60000, tokens: 300, window: 60s, reports: right}
policy: {dialects: [http, openai], pushback: {ahead: on, hold: 2m}, timeouts: {total: 10m}}
"""


class Play:
    """The apps, and the upstream. `served`: the tokens that it let through in each minute; `refused`: its 429s;
    `failed`: calls that did not succeed.
    """

    def __init__(self, policy: Policy | None, kind: LimitKind) -> None:
        self.clock, self.policy, self.chance = Clock(), policy, random.Random(7)
        self.limit = limit_of(kind, 60.0, LIMIT)
        self.registry, self.env = Registry(), Env(FixedDraws(0.5), 0.0, WaitingRoom(1000))
        self.served, self.refused, self.failed = [0] * (MINUTES + 10), 0, 0
        for _ in range(APPS):
            self.clock.at(0.0, BEGIN, self.next)
        self.clock.run()

    def next(self) -> None:
        """Begin an app's next call, unless the play is over."""
        if self.clock.now >= 60.0 * MINUTES:
            return
        if self.policy is None:
            self.alone(PROMPT + self.chance.randint(20, MOST), 0)
            return
        driver, request = App(self), Request("POST", "llm.test", "/", NoFields())
        scope = self.registry.scope(self.policy, request)
        call = Call(request, self.policy, scope, self.env, driver.set_alarm)
        call.expects(Estimate(PROMPT, MOST))
        driver.begin(call)

    def alone(self, size: int, retries: int) -> None:
        """An attempt of a client without redrive: it waits as long as it is told, and gives up after two retries, as
        the official clients do.
        """
        sending = self.answer(self.clock.now, size)
        assert sending.reply is not None
        if sending.reply.status == 200:
            self.clock.at(self.clock.now + TAKES, BEGIN, self.next)
        elif retries < 2:
            (told,) = sending.reply.fields.get_all("retry-after")
            self.clock.at(self.clock.now + float(told), BEGIN, self.alone, size, retries + 1)
        else:
            self.failed += 1
            self.clock.at(self.clock.now + 1, BEGIN, self.next)

    def answer(self, now: float, size: int) -> Sending:
        """What the upstream answers to a request that comes now and takes so many tokens."""
        wait = self.limit.wait(now, size, LIMIT)
        if not wait:
            self.limit.take(now, size, LIMIT)
            self.served[int(now // 60)] += size
        left, whole_in = self.limit.left(now, LIMIT), self.limit.more_in(now, LIMIT, whole=True)
        said = {"limit": str(LIMIT), "remaining": str(math.floor(left)), "reset": f"{whole_in:.3f}s"}
        fields = [(f"x-ratelimit-{part}-tokens", value) for part, value in said.items()]
        if not wait:
            return Sending(TAKES, Reply(200, MappingFields(fields)))
        self.refused += 1
        fields.append(("retry-after", str(math.ceil(wait))))
        return Sending(0.01, Reply(429, MappingFields(fields), end=True))


class App(Driver):
    """One call of an app, which makes the next one when this one is over."""

    def __init__(self, play: Play) -> None:
        super().__init__(play.clock, self.fate)
        self.play, self.output = play, play.chance.randint(20, MOST)

    def fate(self, attempt: int, now: float) -> Sending:
        return self.play.answer(now, PROMPT + self.output)

    def usage(self, rules: TokenRules, sending: Sending, *, whole: bool = True) -> TokenUsage:
        return TokenUsage(PROMPT, self.output)

    def over(self) -> None:
        failed = self.outcome is not Outcome.SUCCESS
        self.play.failed += failed
        self.clock.at(self.clock.now + failed, BEGIN, self.play.next)  # an app that failed pauses for a second


@pytest.mark.parametrize("kind", ["fixed", "bucket"])
def test_as_many_tokens_a_minute_are_served_with_hardly_a_refusal(kind: LimitKind, tmp_path: Path) -> None:
    ahead, alone = Play(columns(None, scenario(tmp_path, POLICIES), {})[0][0].policy, kind), Play(None, kind)
    assert ahead.failed <= alone.failed
    assert ahead.refused <= 0.05 * alone.refused
    assert sum(ahead.served[1:MINUTES]) >= 0.99 * sum(alone.served[1:MINUTES])
