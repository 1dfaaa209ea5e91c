"""The state that the calls of one policy and one scope value share: bucket, gates, governor, endpoints, credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.app_buckets import make_app_bucket
from proxy.retry.budgets.buckets import Bucket, RateBucket
from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.budgets.hedges import Hedges
from proxy.retry.budgets.rates import Rates
from proxy.retry.budgets.token_bucket import STEP, TokenGate
from proxy.retry.budgets.token_sizes import TokenSizes
from proxy.retry.facts import Fields, Request
from proxy.retry.policies.policy import Mode
from proxy.retry.scopes.seen_keys import SeenKeys
from proxy.retry.upstreams.credentials import KeyRing
from proxy.retry.upstreams.endpoints import EndpointGroup
from proxy.retry.weather.governor import Governor

#: An app that makes no call.
_NO_APP = NamedApp("")
#: The number of each mode: numbers are faster to compare than names.
_MODES: Mapping[str, int] = {"enforce": 0, "observe": 1, "off": 2}


class KeyFields:
    """The fields that identify the caller to a cooldown, if the call carries one of the policy's own credentials. They
    contain only the credential's hash.
    """

    __slots__ = ("_values",)

    def __init__(self, digest: str) -> None:
        self._values = (digest,)

    def get_all(self, name: str) -> Sequence[str]:
        """The values of the field `name`: the credential's hash for Authorization, none for any other field."""
        return self._values if name == "authorization" else ()


class UsedBucket:
    """The latest result of `ScopeState.used_bucket`. `app`: the app for which it was asked last. `bucket`: the bucket
    from which the retries of that app are paid, None for none.
    """

    __slots__ = ("app", "bucket")

    def __init__(self) -> None:
        self.app: NamedApp | None = _NO_APP
        self.bucket: Bucket | None = None


class ScopeState:
    """The state that the calls of one policy and one scope value share.

    `hedges`: the state of hedging with a bound, None if the strategy needs none. `rate` and `limiter`: the gates of the
    policy's rate buckets and of the adaptive strategy. `places`: the limit on attempts under way. `endpoints`: the
    endpoints if the core chooses among them, otherwise None. `ungated`: the scope has none of these gates, so that only
    the governor, or an endpoint's circuit breaker, could hold a call. `shadow`: the bucket that `mode: observe` uses
    instead of the real one. `keys`: the policy's credentials, None if it has none; a call continues with the state of
    the credential that its attempt carries (`KeyRing.lane`), and in that state `who` identifies the caller. `mode`: the
    policy's mode (0 for enforce, 1 for observe, 2 for off). `epoch`: the registry's epoch when it found this state
    last; -1 if the state depends on a header field, which the next request may have with another value
    (`Registry.epoch`). `used`: the latest result of `used_bucket`.
    """

    __slots__ = (
        "_shadow", "bucket", "endpoints", "epoch", "governor", "hedges", "keys", "limiter", "marked", "mode",
        "pacing", "places", "rate", "rates", "seen", "token_sizes", "ungated", "used", "value", "who",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913  a table of what calls share
        self,
        value: str,
        bucket: Bucket | None,
        rates: tuple[RateBucket, ...],
        pacing: CubicLimiter | None,
        governor: Governor,
        seen: SeenKeys,
        hedges: Hedges | None = None,
        places: Places | None = None,
        endpoints: EndpointGroup | None = None,
        keys: KeyRing[ScopeState] | None = None,
        who: Fields | None = None,
        mode: Mode = "enforce",
    ) -> None:
        self.value = value
        self.bucket = bucket
        self.rates = rates
        self.pacing = pacing
        self.governor = governor
        self.seen = seen
        self.hedges = hedges
        self.places = places
        self.endpoints = endpoints
        self.keys = keys
        self.who = who
        self.mode = _MODES[mode]
        self._shadow: Bucket | None = None
        self.used = UsedBucket()
        self.epoch = -1
        self.token_sizes: TokenSizes | None = None  # of the upstream, if a rate bucket counts tokens
        self.marked = True  # a call has used it since `take_mark` (`proxy.retry.scopes.idle_scopes`)
        self.rate: TokenGate | Rates | None = None if not rates else rates[0].gate
        if len(rates) > 1 or (rates and rates[0].spec.unit != "attempts"):
            self.rate = Rates(tuple((each.gate, each.spec.unit) for each in rates))
        self.limiter: TokenGate | None = None if pacing is None else pacing.gate
        self.ungated = self.rate is None and self.limiter is None and places is None and keys is None

    def admits(self, now: float) -> bool:
        """Whether a call may be sent now without asking any gate: the scope has no gate but its governor, which
        holds no call.
        """
        return self.ungated and not self.governor.holds(now)

    def is_ready(self, now: float) -> bool:
        """Whether an attempt of this scope would be sent now, since no gate would hold it."""
        if self.cooling(now) > 0 or (self.rate is not None and self.rate.seconds_left(now) > 0):
            return False
        if self.limiter is not None and self.limiter.seconds_left(now) > 0:
            return False
        return self.places is None or self.places.is_ready(now)

    def cooling(self, now: float) -> float:
        """The seconds for which the calls of this credential are held. Almost zero (STEP) if a limit or an outage holds
        them, whose end is not known; 0 if they are not held.
        """
        governor = self.governor
        if self.who is None or not governor.holds(now) or not governor.holds_caller(self.who, now):
            return 0.0
        return max(governor.left_for_fields(self.who, now)[0], STEP)

    def caller(self, request: Request) -> Fields:
        """The header fields that identify the request's caller, for cooldowns: the request's own fields, or `who` if
        this is the state of one of the policy's credentials.
        """
        return request.fields if self.who is None else self.who

    def used_bucket(self, app: NamedApp | None) -> Bucket | None:
        """The bucket that this app's retries are paid from, as the app sees it if apps have parts of it. In the mode
        `observe` it is the shadow bucket, in the mode `off` None.
        """
        used = self.used
        if app is not used.app:
            bucket = self.bucket
            if self.mode:
                bucket = self.shadow if self.mode == 1 else None
            used.app = app
            used.bucket = bucket if app is None or bucket is None else bucket.of_app(app)
        return used.bucket

    def take_mark(self) -> bool:
        """Whether a call has used this state since this method was last called."""
        marked, self.marked = self.marked, False
        return marked

    def shadow_is_full(self, now: float) -> bool:
        """Whether the shadow bucket, from which the mode `observe` pays in place of the real one, is at the level with
        which it began, or was never made.
        """
        if self._shadow is None:
            return True
        return self._shadow.level(now) == make_app_bucket(self._shadow.spec, now=now).level(now)

    @property
    def shadow(self) -> Bucket | None:
        """The bucket that the mode `observe` uses in place of the real one, made when first asked for; None if there is
        no bucket.
        """
        if self._shadow is None and self.bucket is not None:
            self._shadow = make_app_bucket(self.bucket.spec)
        return self._shadow
