"""Two small models of the contract's formulas, written from its text alone: they share no code with `proxy`.

`Sequence` plays one call after the other through a strategy with backoff and a bucket; `Cubic` is the client-side rate
limiter of the AWS SDKs. Policies and scripts are drawn at random, so that what the vectors say is played with other
numbers too.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

Step = dict[str, Any]
Result = dict[str, Any]

#: The built-in kinds (contract, section 3): attempts, base, throttling base, multiplier, and prices of their own quota.
KINDS: dict[str, dict[str, Any]] = {
    "standard": {"attempts": 3, "base": 0.1, "throttling": 0.1, "max": 20.0, "times": 2.0, "prices": (5, 5, 5)},
    "standard-2026": {"attempts": 3, "base": 0.05, "throttling": 1.0, "max": 20.0, "times": 2.0, "prices": (14, 14, 5)},
    "legacy": {"attempts": 4, "base": 0.1, "throttling": 0.5, "max": 20.0, "times": 2.0, "prices": (5, 5, 0)},
    "smithy": {"attempts": 6, "base": 1.0, "throttling": 1.0, "max": 20.0, "times": 2.0, "prices": (5, 10, 5)},
    "grpc": {"attempts": 4, "base": 1.0, "throttling": 1.0, "max": 5.0, "times": 3.0, "prices": None},
}
CLASSES = {429: "throttling", 408: "timeout", 504: "timeout"} | dict.fromkeys((425, 500, 502, 503), "transient")
UNPROCESSED = ("connect_failure", "refused_stream")
LIMIT = 0.3  # timeouts.attempt of every policy here


def milliseconds(seconds: float) -> str:
    """A duration as a policy test writes it."""
    return f"{round(seconds * 1000, 6):g}ms"


def seconds(step: Step) -> float:
    """How long the attempt takes that a script's entry describes."""
    return float(step["after"].removesuffix("ms")) / 1000 if "after" in step else LIMIT if "fail" in step else 0.0


def class_of(step: Step) -> str | None:
    """The class of an attempt's end by the default lists; None if no list names it."""
    if "fail" in step:
        return "timeout" if step["fail"] == "attempt_timeout" else "transient"
    return CLASSES.get(step["status"])


@dataclass
class Level:
    """A bucket of one kind: `spec` as a configuration writes it, or None where nothing is counted."""

    spec: dict[str, Any] | None
    level: float | None = None
    calls: list[float] = field(default_factory=list)
    retries: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.kind == "quota":
            self.level = min(self.of("initial", self.of("capacity", 500)), self.of("capacity", 500))
        elif self.kind == "throttle":
            self.level = min(self.of("initial", self.of("max_tokens", 10)), self.of("max_tokens", 10))

    @property
    def kind(self) -> str:
        return "" if self.spec is None else self.spec["kind"]

    def of(self, key: str, default: float) -> float:
        assert self.spec is not None
        return float(self.spec.get(key, default))

    def price(self, why: str | None) -> float:
        """What a retry after a failure of the class `why` costs."""
        if self.kind != "quota":
            return 0.0
        cost = self.of("retry_cost", 5)
        return self.of(f"{why}_cost", cost) if why in ("timeout", "throttling") else cost

    def seen(self, now: float) -> float | None:
        """The level as a policy test reports it."""
        if self.kind != "budget":
            return self.level
        window = self.of("window", 10)
        recent = [sum(1 for at in self.calls if now - at < window - 1e-9)]
        recent += [sum(1 for at in self.retries if now - at < span - 1e-9) for span in (window, 1.0)]
        share = math.ceil(self.of("percent", 20) / 100 * recent[0] - 1e-9) - recent[1]
        return max(share, math.ceil(self.of("min_per_second", 10)) - recent[2], 0)

    def grants(self, price: float, now: float) -> bool:
        """Whether a retry of this price is granted now."""
        if self.kind == "throttle":
            return self._known() > self.of("max_tokens", 10) / 2
        return self.kind == "" or (self.seen(now) or 0) >= (price if self.kind == "quota" else 1) - 1e-9

    def take(self, price: float, now: float) -> None:
        """Take the price of a retry that was granted."""
        self.retries.append(now)
        if self.kind == "quota":
            self.level = self._known() - price

    def failed(self) -> None:
        """Count a failed attempt, which costs a throttle's token."""
        if self.kind == "throttle":
            self.level = max(0.0, round(self._known() - 1, 6))

    def succeeded(self, paid: float | None) -> None:
        """Count a success. `paid`: what the last retry paid, None if the first attempt succeeded."""
        if self.kind == "quota":
            assert self.spec is not None
            refund = self.of("success_refund", 1)
            back = refund if paid is None or self.spec.get("refund") == "flat" else paid
            self.level = min(self.of("capacity", 500), self._known() + back)
        elif self.kind == "throttle":
            ratio = math.floor(self.of("token_ratio", 0.1) * 1000 + 1e-9) / 1000
            self.level = min(self.of("max_tokens", 10), round(self._known() + ratio, 6))

    def _known(self) -> float:
        assert self.level is not None
        return self.level


def told(step: Step) -> tuple[bool, bool, float | None]:
    """What the fields of an answer say: stop, retry, and the longest delay."""
    fields = step.get("headers", {})
    grpc = fields.get("grpc-retry-pushback-ms")
    delays = [float(fields["retry-after"])] if "retry-after" in fields else []
    if fields.get("retry-after-ms") in ("150", "1234.5"):
        delays.append(float(fields["retry-after-ms"]) / 1000)
    if grpc is not None and grpc.isdigit():
        delays.append(int(grpc) / 1000)
    word = fields.get("x-should-retry", "").lower()
    return word == "false" or (grpc is not None and not grpc.isdigit()), word == "true", max(delays, default=None)


@dataclass
class Sequence:
    """Calls that follow one another, none before the one before it has ended."""

    upstream: dict[str, Any]
    draw: float

    def __post_init__(self) -> None:
        strategy = self.upstream["strategy"]
        self.kind = strategy["kind"]
        known, written = KINDS[self.kind], strategy.get("backoff", {})
        own = {key: float(written[key].removesuffix("ms")) / 1000 for key in ("base", "max") if key in written}
        self.attempts = strategy.get("max_attempts", known["attempts"])
        self.base = own.get("base", known["base"])
        same = known["throttling"] == known["base"]
        self.throttling = self.base if same else known["throttling"]
        if "throttling_base" in written:
            self.throttling = float(written["throttling_base"].removesuffix("ms")) / 1000
        self.longest = own.get("max", known["max"])
        self.times = written.get("multiplier", known["times"])
        self.jitter = written.get("jitter", "full")
        self.bucket = Level(self._spec(known["prices"]))
        total = self.upstream["timeouts"].get("total", "900000ms")
        self.total = float(total.removesuffix("ms")) / 1000
        limit = self.upstream["pushback"].get("max_delay", "60000ms")
        self.max_delay = float(limit.removesuffix("ms")) / 1000

    def _spec(self, prices: tuple[int, int, int] | None) -> dict[str, Any] | None:
        written = self.upstream.get("bucket")
        if written is not None:
            return None if written == "off" else written
        if prices is None:
            return None
        spec = dict(zip(("retry_cost", "timeout_cost", "throttling_cost"), prices, strict=True))
        return {"kind": "quota", **spec, **({"refund": "flat"} if self.kind == "smithy" else {})}

    def backoff(self, retry: int, base: float, previous: float | None) -> float:
        """The backoff before the retry with this number."""
        cap, draw = min(self.longest, base * self.times ** (retry - 1)), self.draw
        if self.jitter == "decorrelated":
            return min(self.longest, base + draw * (3 * (base if previous is None else previous) - base))
        low, high = {"none": (1, 0), "full": (0, 1), "equal": (0.5, 0.5), "proportional": (0.8, 0.4)}[self.jitter]
        return (low + high * draw) * cap

    def waits(self, backoff: float, delay: float | None) -> float:
        """How long a retry waits: its backoff, or what the upstream said."""
        if delay is None:
            return backoff
        if self.kind == "standard-2026":
            return min(max(delay, backoff), backoff + 5)
        return delay if self.kind == "grpc" else max(delay, backoff)

    def safe(self, call: dict[str, Any], step: Step) -> bool:
        """Whether section 4 lets the call be repeated after this end of an attempt."""
        request, unsafe = call["request"], self.upstream["classify"]["unsafe_methods"]
        if request["method"] in ("GET", "PUT", "DELETE") or "idempotency-key" in request["headers"]:
            return True
        unprocessed = step.get("status") in (425, 429) or step.get("fail") in UNPROCESSED
        never_left = step.get("fail") == "connect_failure"
        return unsafe == "always" or never_left or (unsafe != "never" and unprocessed)

    def refusal(self, play: Playing, step: Step, words: tuple[bool, str | None, float | None]) -> str:
        """The *no* of the first check that fails, in section 4's order; "" if a retry is granted."""
        stop, why, delay = words
        checks = (
            ("pushback_stop", stop),
            ("not_retryable", why is None or not self.safe(play.call, step)),
            ("attempts_exhausted", len(play.starts) >= self.attempts),
            ("bucket_empty", not self.bucket.grants(self.bucket.price(why), play.now)),
            ("pushback_too_long", delay is not None and delay > self.max_delay + 1e-9),
        )
        return next((name for name, holds in checks if holds), "")


class Playing:
    """One call of a sequence, while it is played."""

    def __init__(self, sequence: Sequence, call: dict[str, Any], at: float) -> None:
        self.rules, self.call, self.at, self.now = sequence, call, at, at
        self.deadline = at + sequence.total
        self.steps = iter([*call["attempts"], *([call["attempts"][-1]] * 20)])
        self.delays: list[float] = []
        self.starts: list[float] = []
        self.levels: list[float | None] = []
        self.transparent = self.processed = False
        self.previous: float | None = None
        self.paid: float | None = None
        self.restart = 0
        self.outcome = ""
        sequence.bucket.calls.append(at)

    def play(self) -> Result:
        """Play the call to its end."""
        bucket = self.rules.bucket
        while not self.outcome:
            self.starts.append(self.now - self.at)
            step = self._sent()
            if not self.outcome:
                self._judge(step)
            self.levels.append(bucket.seen(self.now))
            if not self.outcome:
                self.now += self.delays[-1]
        return {
            "attempts": len(self.starts),
            "delays": self.delays,
            "starts": self.starts,
            "outcome": self.outcome,
            "tokens_after_each": self.levels,
            "tokens": bucket.seen(self.now),
            "elapsed": self.now - self.at,
        }

    def _sent(self) -> Step:
        """Send an attempt, and again at once where section 4 has its transparent retry. Returns how it ended."""
        step = next(self.steps)
        ended = self.now + seconds(step)
        refused = step.get("fail") in UNPROCESSED and not self.transparent and ended <= self.deadline + 1e-9
        if refused and (step["fail"] == "connect_failure" or not self.processed):
            self.transparent, step = True, next(self.steps)
            ended += seconds(step)
        self.processed = self.processed or step.get("fail") not in UNPROCESSED
        if ended > self.deadline + 1e-9:
            self.outcome, ended = "deadline", self.deadline
        self.now = ended
        return step

    def _judge(self, step: Step) -> None:
        """Decide what follows the end of an attempt."""
        if "status" in step and step["status"] < 400:
            self.rules.bucket.succeeded(self.paid)
            self.outcome = "success"
            return
        stop, wanted, delay = told(step) if "status" in step else (False, False, None)
        why = class_of(step) or ("transient" if wanted and not stop else None)
        delay = delay if why else None
        if why or stop:
            self.rules.bucket.failed()
        self.outcome = self.rules.refusal(self, step, (stop, why, delay))
        if not self.outcome:
            self._wait(why, delay)

    def _wait(self, why: str | None, delay: float | None) -> None:
        """Grant a retry, unless its wait would end past the deadline."""
        rules = self.rules
        base = rules.throttling if why == "throttling" else rules.base
        backoff = rules.backoff(len(self.starts) - self.restart, base, self.previous)
        wait = rules.waits(backoff, delay)
        if self.now + wait > self.deadline + 1e-9:
            self.outcome = "deadline"
            return
        self.paid = rules.bucket.price(why)
        rules.bucket.take(self.paid, self.now)
        self.delays.append(wait)
        if rules.kind == "grpc" and delay is not None:
            self.restart = len(self.starts)  # after a pushback the backoff begins again
        else:
            self.previous = backoff


class Cubic:
    """The client-side rate limiter of the AWS SDKs, driven by one caller at a time."""

    def __init__(self) -> None:
        self.fill = self.capacity = self.level = self.measured = self.most = 0.0
        self.filled: float | None = None
        self.enabled = False
        self.half, self.answers, self.throttled = 0.0, 0, 0.0

    def acquire(self, now: float) -> float:
        """When an attempt that is due now may be sent."""
        if not self.enabled:
            return now
        self._refill(now)
        if self.level < 1:
            now += (1 - self.level) / self.fill
            self._refill(now)
            self.level = max(self.level, 1.0)
        self.level -= 1
        return now

    def learn(self, now: float, throttled: bool) -> None:
        """Learn from the end of an attempt."""
        self._measure(now)
        if throttled:
            self.most = min(self.measured, self.fill) if self.enabled else self.measured
            self.throttled, self.enabled, rate = now, True, self.most * 0.7
        else:
            window = (self.most * 0.3 / 0.4) ** (1 / 3)
            rate = 0.4 * (now - self.throttled - window) ** 3 + self.most
        rate = min(rate, 2 * self.measured)
        self._refill(now)
        self.fill, self.capacity = max(rate, 0.5), max(rate, 1.0)
        self.level = min(self.level, self.capacity)

    def _measure(self, now: float) -> None:
        half = math.floor(now * 2 + 1e-9) / 2
        self.answers += 1
        if half > self.half:
            self.measured = self.answers / (half - self.half) * 0.8 + self.measured * 0.2
            self.answers, self.half = 0, half

    def _refill(self, now: float) -> None:
        if self.filled is not None:
            self.level = min(self.capacity, self.level + (now - self.filled) * self.fill)
        self.filled = now


def drawn_upstream(rng: random.Random) -> dict[str, Any]:
    """A policy with other numbers than the published ones."""
    strategy: dict[str, Any] = {"kind": rng.choice(list(KINDS))}
    if rng.random() < 0.5:
        strategy["max_attempts"] = rng.choice([1, 2, 4, 7])
    choices: dict[str, list[Any]] = {
        "base": ["0ms", "13ms", "200ms", "1500ms"],
        "throttling_base": ["0ms", "300ms", "2000ms"],
        "max": ["0ms", "50ms", "700ms", "3000ms"],
        "multiplier": [1, 1.5, 3, 10],
        "jitter": ["none", "full", "equal", "proportional", "decorrelated"],
    }
    backoff = {key: rng.choice(values) for key, values in choices.items() if rng.random() < 0.35}
    if backoff:
        strategy["backoff"] = backoff
    timeouts = {"attempt": milliseconds(LIMIT)}
    pushback = {"cooldown": "off"}
    if rng.random() < 0.3:
        timeouts["total"] = rng.choice(["500ms", "2003ms", "6010ms"])
    if rng.random() < 0.3:
        pushback["max_delay"] = rng.choice(["1000ms", "3000ms", "7000ms"])
    unsafe = rng.choice(["never", "unprocessed", "provider", "always"])
    upstream = {"hosts": ["u.test"], "strategy": strategy, "timeouts": timeouts, "pushback": pushback}
    return upstream | {"classify": {"unsafe_methods": unsafe}} | drawn_bucket(rng)


def drawn_bucket(rng: random.Random) -> dict[str, Any]:
    """The key `bucket` of a policy, or none."""
    which = rng.choice(["own", "off", "quota", "throttle", "budget"])
    choices: dict[str, dict[str, list[Any]]] = {
        "quota": {
            "capacity": [5, 12, 20, 33],
            "retry_cost": [0, 1, 4, 7],
            "timeout_cost": [0, 3, 11],
            "throttling_cost": [0, 2, 9],
            "success_refund": [0, 2, 6],
            "refund": ["flat"],
            "initial": [0, 3, 5],
        },
        "throttle": {"max_tokens": [1, 2, 3, 5], "token_ratio": [0.5, 0.1239, 1, 2], "initial": [0, 1]},
        "budget": {"percent": [0, 10, 35, 100, 150], "min_per_second": [0, 1, 2]},
    }
    if which not in choices:
        return {} if which == "own" else {"bucket": "off"}
    drawn = {key: rng.choice(values) for key, values in choices[which].items() if rng.random() < 0.5}
    return {"bucket": {"kind": which, **drawn}}


def drawn_step(rng: random.Random) -> Step:
    """What the upstream does to one attempt."""
    which = rng.random()
    if which < 0.2:
        step: Step = {"status": rng.choice([200, 200, 204, 301, 404, 400, 501])}
    elif which < 0.8:
        step = {"status": rng.choice([500, 502, 503, 429, 408, 504, 425, 429])}
    else:
        step = {"fail": rng.choice([*UNPROCESSED, "reset", "attempt_timeout"])}
    if rng.random() < 0.7 and step.get("fail") != "attempt_timeout":
        step["after"] = milliseconds(rng.choice([0.001, 0.007, 0.05, 0.213]))
    elif "fail" in step and step["fail"] != "attempt_timeout":
        step["after"] = "0ms"
    if "status" in step and rng.random() < 0.3:
        fields = [("retry-after", "0 1 2 5 100"), ("retry-after-ms", "150 1234.5 -5 x")]
        fields += [("x-should-retry", "true false maybe TRUE"), ("grpc-retry-pushback-ms", "250 -1 0 junk")]
        name, values = rng.choice(fields)
        step["headers"] = {name: rng.choice(values.split())}
    return step


def drawn_calls(rng: random.Random) -> list[dict[str, Any]]:
    """Calls with gaps that outlast them, as a rule."""
    calls: list[dict[str, Any]] = []
    at = 0.0
    for number in range(rng.randint(1, 7)):
        method = rng.choice(["GET", "GET", "PUT", "POST", "PATCH", "DELETE"])
        keyed = method in ("POST", "PATCH") and rng.random() < 0.3
        request = {
            "method": method,
            "url": "http://u.test/x",
            "headers": {"idempotency-key": f"k{number}"} if keyed else {},
        }
        steps = [drawn_step(rng) for _ in range(rng.randint(1, 6))]
        calls.append({"at": milliseconds(at), "request": request, "attempts": steps})
        at += rng.choice([1.7, 4.11, 30.3, 120.5, 700.7])
    return calls
