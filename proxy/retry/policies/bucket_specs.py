"""The definitions of buckets, as the configuration compiles to them: what retries cost, and how often attempts may
begin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from proxy.retry.apps import Shares

#: A call that begins puts quiet off by so many seconds, so that it comes while fewer than one call a second begins.
QUIET_PER_CALL = 1.0
#: Calls put quiet off by so many seconds at most.
QUIET_MEMORY = 10.0
#: A retry that is paid puts quiet off by so many seconds: longer than the calls of the next second could. So nothing is
#: lost if a process learns only within that second that another one has lowered the level.
QUIET_PER_RETRY = 11.0
#: The share of the capacity that a strategy's own quota regains in each second of quiet.
QUIET_REFILL = 0.01
#: The share of the capacity up to which it does so, unless one call's retries may cost more.
QUIET_UP_TO = 0.1


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """AWS's retry quota. Costs, refunds and levels are tokens. A success gives back what the call's last retry cost, or
    `success_refund` if the call was not retried. With `flat_refund` (as in the Smithy specification's example) every
    success gives back `success_refund`.

    `initial`: the level at first, None for a full bucket. `refill`: tokens added a second. `apps`: the apps for which a
    part of the quota is reserved, empty for none. `quiet_up_to`: in each second of quiet (few calls begin, and no retry
    is paid) the quota regains QUIET_REFILL of its capacity, up to this level; 0 if it does not. A quota has either
    `refill` or `quiet_up_to`.
    """

    capacity: float = 500
    retry_cost: float = 5
    timeout_cost: float = 5
    throttling_cost: float = 5
    success_refund: float = 1
    flat_refund: bool = False
    initial: float | None = None
    refill: float = 0.0
    store: Literal["memory", "redis"] = "memory"
    kind: Literal["quota"] = "quota"
    apps: Shares = ()
    quiet_up_to: float = 0.0

    @property
    def dearest(self) -> float:
        """The tokens that the dearest retry costs."""
        return max(self.retry_cost, self.timeout_cost, self.throttling_cost)

    def refilled_in_quiet(self, max_attempts: int) -> QuotaSpec:
        """A copy of this quota that also refills while few calls are made; a strategy uses it for policies that name no
        bucket. The refill ends at a tenth of the capacity, or at what the retries of one call with `max_attempts`
        attempts may cost, whichever is more.
        """
        most = max(QUIET_UP_TO * self.capacity, (max_attempts - 1) * self.dearest)
        return replace(self, quiet_up_to=min(most, self.capacity))


@dataclass(frozen=True, slots=True)
class ThrottleSpec:
    """gRPC A6's retry throttling. `token_ratio` is in thousandths: further decimals are dropped."""

    max_tokens: float = 10
    token_ratio: float = 0.1
    initial: float | None = None
    store: Literal["memory", "redis"] = "memory"
    kind: Literal["throttle"] = "throttle"


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """The retry budget of Finagle, Linkerd and Envoy: retries may be `percent` of the calls within `window` seconds, or
    `min_per_second`, whichever is more. `apps`: the apps whose own calls have a budget as well, empty for none.
    """

    percent: float = 20
    min_per_second: float = 10
    window: float = 10
    store: Literal["memory", "redis"] = "memory"
    kind: Literal["budget"] = "budget"
    apps: Shares = ()


#: The unit of a rate bucket, which says what a token is: an attempt; or a language model's token, of those that
#: attempts use in all, of the prompt's, of the output's, or of those that requests ask for (the prompt's, and the
#: maximum of the output's).
RateUnit = Literal["attempts", "tokens", "requested", "prompt", "output"]
#: The units of which an attempt's cost depends on the maximum of its output.
COUNTS_OUTPUT = frozenset({"tokens", "requested", "output"})


@dataclass(frozen=True, slots=True)
class RateSpec:
    """A classic token bucket from which every attempt takes tokens, first attempts too. `rate`: tokens added a second.
    `burst`: the most tokens that the bucket holds. `when_empty`: whether calls wait or are refused. `initial`: the
    tokens at first, None for `burst`. `unit`: what a token is (contract, section 16).
    """

    rate: float
    burst: float
    when_empty: Literal["wait", "reject"] = "wait"
    initial: float | None = None
    store: Literal["memory", "redis"] = "memory"
    unit: RateUnit = "attempts"
    kind: Literal["rate"] = "rate"


BucketSpec = QuotaSpec | ThrottleSpec | BudgetSpec | RateSpec


#: A path into a JSON document: names of members, "*" for each item of a list, and "*[name=value]" for each item of a
#: list that is an object with this member.
JsonPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UsageFields:
    """The places where a provider's requests and answers say how many of a language model's tokens they cost. All but
    `media` are JSON paths.

    In a request: `maximum`, the most output tokens; `choices`, how many outputs it asks for; `model`, the model's name;
    `media`, the names of members whose strings are media (images, sounds), at any depth, where `a.b` means the member
    `b` of an object that is itself the member `a`. In an answer, or in an event of a stream: `prompt` and `output`,
    numbers of tokens that are added up; `prompt_free`, tokens within `prompt` that the provider does not count (cached
    input); `text`, the output's text.
    """

    maximum: tuple[JsonPath, ...] = ()
    choices: tuple[JsonPath, ...] = ()
    model: tuple[JsonPath, ...] = ()
    media: frozenset[str] = frozenset()
    prompt: tuple[JsonPath, ...] = ()
    prompt_free: tuple[JsonPath, ...] = ()
    output: tuple[JsonPath, ...] = ()
    text: tuple[JsonPath, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenRules:
    """How an attempt's price in a language model's tokens is estimated (contract, section 16). `output`: the output
    tokens to assume if the request names no maximum. `bytes`: the bytes of text for each token. `burst`: the most
    tokens that a bucket holds; a larger maximum in a request counts as this. `fields`: where requests and answers state
    such figures, for each dialect pack (rules for one provider) of the policy.
    """

    output: float = 1024
    bytes: float = 4
    burst: float = 1.0
    fields: tuple[UsageFields, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketRef:
    """A policy's reference to a bucket. `spec`: the bucket's definition. `name`: the name of a bucket that `buckets:`
    defines, and that all policies which name it share. Without a name, each pair of strategy definition and scope value
    within an upstream has a bucket of its own.

    `group`, unless None, replaces the strategy definition in that pair: a bucket written as a mapping is shared by all
    strategies that inherit it, and the throttling of a gRPC service config by all its methods.
    """

    spec: BucketSpec
    name: str | None = None
    group: str | None = None
