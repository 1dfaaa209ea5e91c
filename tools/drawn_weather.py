"""Weather drawn at random: scenarios of each kind that the contract's section 9 is judged by, for `tools/judge.py`.

A kind is a function that gets a source of chance, and returns a scenario's keys as YAML, without its name and seed.
Rates, delays, times of answers, shares and numbers of sidecars are drawn from what was played by hand in decision 0015,
and from the values between. Further kinds are in `tools/drawn_weather_more.py`. `drawn` makes the scenarios of a seed:
the same seed gives the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from drawn_weather_more import MORE_KINDS

Kind = Callable[[random.Random], str]


def _dip(chance: random.Random, odds: float, what: Callable[[float], str]) -> str:
    """Draw whether the upstream takes less for a while, with these odds. `what`: the key and value, by the part that is
    left.
    """
    if chance.random() >= odds:
        return ""
    return f"outages: [{{at: 40s, lasts: 40s, share: 0%, {what(chance.uniform(0.4, 0.8))}}}]"


def _no_queue(sidecars: int) -> Kind:
    def kind(chance: random.Random) -> str:
        calls = chance.choice([4, 8, 15, 30, 45]) if sidecars < 5 else chance.choice([30, 45, 60])
        takes = calls * chance.uniform(0.8, 1.6)
        dip = _dip(chance, 0.4, lambda part: f"capacity: {takes * part:.1f}/s")
        return f"""
duration: 2m
sidecars: {sidecars}
calls: {calls}/s
upstream:
  latency: {chance.choice([40, 100, 400, 1500])}ms
  capacity: {takes:.1f}/s
  queue: 0s
  overload: {chance.choice([429, 503])}
  retry_after: {chance.choice([0, 1, 2])}s
{dip}
"""

    return kind


def _counted(limit_kind: str) -> Kind:
    def kind(chance: random.Random) -> str:
        sidecars = chance.choice([1, 2, 5, 30])
        calls, window = chance.choice([10, 20, 40]), chance.choice([1, 2, 5])
        limit = round(calls * window * chance.uniform(0.9, 1.5))
        burst = f", burst: {max(1, round(limit * chance.choice([0.2, 1.0, 2.0])))}" if limit_kind == "bucket" else ""
        dip = _dip(chance, 0.6, lambda part: f"limit: {round(limit * part)}")
        return f"""
duration: 2m
sidecars: {sidecars}
calls: {calls}/s
upstream:
  {{latency: {chance.choice([40, 200, 1000])}ms, limit: {limit}, window: {window}s, limit_kind: {limit_kind},
   overload: {chance.choice([429, 503])}{burst}}}
{dip}
"""

    return kind


def _bunched(chance: random.Random) -> str:
    calls = chance.choice([8, 15, 30, 45])
    return f"""
duration: 2m
sidecars: {chance.choice([1, 1, 2, 5])}
calls: {calls}/s
upstream:
  {{latency: 40ms, capacity: {calls * chance.uniform(1.2, 1.6):.1f}/s, queue: 0s, overload: {chance.choice([429, 503])},
   retry_after: {chance.choice([0, 1, 1, 2])}s, transit: {chance.choice([2, 4, 8])}ms}}
"""


def _away(statuses: list[int]) -> Kind:
    def kind(chance: random.Random) -> str:
        lasts = chance.choice([3, 6, 10, 15, 60])
        return f"""
duration: {40 + 2 * lasts + 20}s
sidecars: {chance.choice([1, 2, 5, 20])}
calls: {chance.choice([5, 20, 40])}/s
upstream: {{latency: {chance.choice([40, 200, 1000])}ms}}
outages: [{{at: 30s, lasts: {lasts}s, kinds: {chance.choice(statuses)}, after: {chance.choice([1, 5, 50])}ms}}]
"""

    return kind


def _by_chance(shares: list[int]) -> Kind:
    def kind(chance: random.Random) -> str:
        sidecars = chance.choice([1, 2, 5, 30])
        delay = chance.choice([0, 0, 1, 2, 5])
        return f"""
duration: 2m
sidecars: {sidecars}
calls: {chance.choice([6, 10, 20]) if sidecars < 30 else 60}/s
upstream: {{latency: {chance.choice([50, 500, 2000])}ms}}
outages:
  - {{at: 0s, lasts: 2m, share: {chance.choice(shares)}%, kinds: {chance.choice([429, 503])}, retry_after: {delay}s}}
"""

    return kind


def _restart(chance: random.Random) -> str:
    return f"""
duration: 90s
sidecars: {chance.choice([1, 3, 10])}
calls: {chance.choice([10, 30, 50])}/s
upstream: {{latency: 50ms, capacity: {chance.choice([80, 150])}/s, queue: 1s}}
outages:
  - {{at: 30s, lasts: {chance.choice([3, 8, 14])}s, kinds: {chance.choice(["connect_failure", "reset", "503"])}}}
"""


def _part_of_capacity(sidecars: list[int]) -> Kind:
    def kind(chance: random.Random) -> str:
        calls = chance.choice([30, 45, 60])
        return f"""
duration: 2m
sidecars: {chance.choice(sidecars)}
calls: {calls}/s
upstream: {{latency: 50ms, capacity: {calls * chance.uniform(1.3, 1.6):.0f}/s, queue: {chance.choice([1, 2, 5])}s}}
outages:
  - {{at: 30s, lasts: {chance.choice([20, 30, 40])}s, share: 0%, capacity: {calls * chance.uniform(0.35, 0.7):.0f}/s}}
policy: {{timeouts: {{attempt: {chance.choice([500, 1000])}ms}}}}
"""

    return kind


def _too_much(chance: random.Random) -> str:
    calls = chance.choice([40, 60])
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4, 8])}
calls: {calls}/s
upstream: {{latency: 50ms, capacity: {calls * chance.uniform(0.65, 0.85):.0f}/s, queue: {chance.choice([5, 10])}s}}
policy: {{timeouts: {{attempt: 1s}}}}
"""


def _dipping_limit(chance: random.Random) -> str:
    calls = chance.choice([30, 60])
    return f"""
duration: 150s
sidecars: {chance.choice([1, 4, 10, 40])}
calls: {calls}/s
upstream:
  {{latency: 40ms, capacity: {calls * chance.uniform(1.2, 1.7):.0f}/s, queue: {chance.choice([500, 1000])}ms,
   overload: {chance.choice([429, 503])}, retry_after: {chance.choice([1, 2, 5])}s}}
outages:
  - {{at: 40s, lasts: {chance.choice([20, 45])}s, share: 0%, capacity: {calls * chance.uniform(0.6, 0.85):.0f}/s}}
"""


def _one_endpoint(chance: random.Random) -> str:
    return f"""
duration: 2m
sidecars: {chance.choice([1, 5, 20])}
calls: {chance.choice([20, 40])}/s
upstream: {{latency: 50ms, endpoints: {chance.choice([2, 3])}}}
outages:
  - {{at: 40s, lasts: 40s, kinds: {chance.choice(["429", "503", "connect_failure"])}, endpoint: 1,
     retry_after: {chance.choice([0, 1, 4])}s}}
"""


def _slower(chance: random.Random) -> str:
    return f"""
duration: 2m
sidecars: {chance.choice([1, 5, 20])}
calls: {chance.choice([20, 40])}/s
upstream: {{latency: 50ms, capacity: 400/s, queue: 2s, failing: {chance.choice([0, 1, 5])}%}}
outages: [{{at: 40s, lasts: 40s, share: 0%, latency: {chance.choice([200, 400, 800])}ms}}]
policy: {{timeouts: {{attempt: 4s}}}}
"""


def _routes(chance: random.Random) -> str:
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4])}
calls: {chance.choice([20, 40])}/s
routes:
  - {{path: /items/1}}
  - {{path: /search, share: {chance.choice([10, 30])}%, latency: 2s}}
  - {{path: /poll, share: 10%, latency: {chance.choice([8, 25])}s}}
upstream: {{latency: 50ms, failing: {chance.choice([1, 5, 10])}%}}
policy: {{timeouts: {{attempt: 60s}}}}
"""


def _lasting_outage(chance: random.Random) -> str:
    kinds, delay = chance.choice([("503", 0), ("503", 5), ("connect_failure", 0), ("[503, reset]", 0), ("429", 0)])
    return f"""
duration: 160s
sidecars: {chance.choice([1, 5, 20])}
calls: {chance.choice([5, 20, 40])}/s
upstream: {{latency: 50ms}}
outages: [{{at: 30s, lasts: 90s, kinds: {kinds}, retry_after: {delay}s}}]
"""


def _impatient(chance: random.Random) -> str:
    return f"""
duration: 2m
sidecars: {chance.choice([1, 5])}
calls: {chance.choice([20, 40])}/s
patience: {chance.choice([3, 5, 10])}s
upstream: {{latency: 50ms}}
outages: [{{at: 40s, lasts: {chance.choice([8, 12])}s, kinds: {chance.choice(["connect_failure", "503", "429"])}}}]
"""


def _poll_fails(chance: random.Random) -> str:
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4])}
calls: {chance.choice([20, 40])}/s
routes: [{{path: /items/1}}, {{path: /poll, share: {chance.choice([5, 20])}%}}]
upstream: {{latency: 50ms}}
outages: [{{at: 40s, lasts: 40s, kinds: {chance.choice([429, 500, 503])}, route: 2}}]
"""


def _one_among_many(chance: random.Random) -> str:
    return f"""
duration: 2m
sidecars: 1
calls: {chance.choice([4, 10])}/s
neighbours: {chance.choice([100, 190])}/s
upstream: {{latency: 50ms, capacity: 220/s, queue: 1s, overload: {chance.choice([429, 503])}}}
outages: [{{at: 40s, lasts: 30s, share: 0%, capacity: {chance.choice([90, 160])}/s}}]
policy: {{timeouts: {{attempt: 2s}}}}
"""


def _maintenance(chance: random.Random) -> str:
    return f"""
duration: 3m
sidecars: {chance.choice([1, 5, 20])}
calls: {chance.choice([5, 20, 40])}/s
upstream: {{latency: 50ms}}
outages:
  - {{at: 40s, lasts: {chance.choice([10, 30, 60])}s, kinds: 503, retry_after: {chance.choice([30, 120, 600])}s}}
"""


def _pauses(chance: random.Random) -> str:
    every, slow = chance.choice([4, 8, 15]), chance.choice([400, 800, 2000])
    outages = (f"{{at: {at}s, lasts: 1s, share: 0%, latency: {slow}ms}}" for at in range(20, 100, every))
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4, 20])}
calls: {chance.choice([20, 40])}/s
upstream: {{latency: 50ms, capacity: 150/s, queue: 2s}}
outages: [{", ".join(outages)}]
policy: {{timeouts: {{attempt: {chance.choice([500, 1000])}ms}}}}
"""


def _late_capacity(chance: random.Random) -> str:
    calls = chance.choice([20, 40])
    return f"""
duration: 3m
sidecars: {chance.choice([1, 4, 10])}
calls: {calls}/s
upstream: {{latency: 50ms, capacity: {calls * chance.uniform(1.3, 1.6):.0f}/s, queue: 2s}}
outages:
  - {{at: 40s, lasts: 30s, share: 0%, capacity: {calls * chance.uniform(0.3, 0.7):.0f}/s,
     recovers: {chance.choice([20, 40])}s}}
policy: {{timeouts: {{attempt: {chance.choice([1000, 2000])}ms}}}}
"""


def _flaps(chance: random.Random) -> str:
    every, lasts = chance.choice([6, 10]), chance.choice([2, 3, 4])
    kinds = chance.choice(["connect_failure", "503", "[503, reset]"])
    outages = (f"{{at: {at}s, lasts: {lasts}s, kinds: {kinds}}}" for at in range(20, 70, every))
    return f"""
duration: 2m
sidecars: {chance.choice([1, 2, 6])}
calls: {chance.choice([10, 20, 40])}/s
upstream: {{latency: {chance.choice([50, 100])}ms}}
outages: [{", ".join(outages)}]
"""


def _waves(chance: random.Random) -> str:
    calls, every = chance.choice([20, 40]), chance.choice([8, 12])
    less = calls * chance.uniform(0.3, 0.6)
    outages = (f"{{at: {at}s, lasts: {every // 2}s, share: 0%, capacity: {less:.0f}/s}}" for at in range(20, 70, every))
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4])}
calls: {calls}/s
upstream: {{latency: 50ms, capacity: {calls * chance.uniform(1.7, 2.2):.0f}/s, queue: 1s}}
outages: [{", ".join(outages)}]
policy: {{timeouts: {{attempt: {chance.choice([500, 1000])}ms}}}}
"""


def _slower_and_slower(chance: random.Random) -> str:
    parts, timeout = chance.choice([(0.4, 0.8, 1.2, 0.4), (0.3, 0.6, 0.9, 0.3)]), chance.choice([1000, 2000])
    outages = (
        f"{{at: {30 + 10 * number}s, lasts: 10s, share: 0%, latency: {part * timeout:.0f}ms}}"
        for number, part in enumerate(parts)
    )
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4])}
calls: {chance.choice([10, 30])}/s
upstream: {{latency: {chance.choice([50, 100])}ms}}
outages: [{", ".join(outages)}]
policy: {{timeouts: {{attempt: {timeout}ms}}}}
"""


#: All kinds, by name. Those of limits without a queue, and of chance, are the ones with known faults.
KINDS: dict[str, Kind] = {
    "no_queue_1": _no_queue(1),
    "no_queue_2": _no_queue(2),
    "no_queue_5": _no_queue(5),
    "no_queue_30": _no_queue(30),
    "bucket": _counted("bucket"),
    "fixed": _counted("fixed"),
    "sliding": _counted("sliding"),
    "bunched": _bunched,
    "away_429": _away([429]),
    "away_500": _away([500]),
    "away_503": _away([503]),
    "chance_few": _by_chance([2, 5, 10]),
    "chance_many": _by_chance([20, 30, 40]),
    "chance_half": _by_chance([50]),
    "restart": _restart,
    "third": _part_of_capacity([1, 4]),
    "half": _part_of_capacity([10, 30]),
    "too_much": _too_much,
    "dipping": _dipping_limit,
    "one_endpoint": _one_endpoint,
    "slower": _slower,
    "routes": _routes,
    "lasting": _lasting_outage,
    "impatient": _impatient,
    "poll": _poll_fails,
    "among_many": _one_among_many,
    "maintenance": _maintenance,
    "pauses": _pauses,
    "late_capacity": _late_capacity,
    "flaps": _flaps,
    "waves": _waves,
    "slower_and_slower": _slower_and_slower,
    **MORE_KINDS,
}


def drawn(kinds: list[str], count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield `count` scenarios of each of these kinds, with their names, as the text of a scenario file. A scenario
    depends on the seed, its kind and its number alone, so that a larger count adds scenarios and changes none.
    """
    for kind in kinds:
        for number in range(count):
            chance = random.Random(f"{seed}/{kind}/{number}")
            text = KINDS[kind](chance)
            name = f"{kind}-{number}"
            yield name, f"name: {name}\nseed: {chance.randrange(1_000_000)}\n{text.lstrip()}"
