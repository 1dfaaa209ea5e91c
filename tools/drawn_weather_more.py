"""More weather drawn at random, for `tools/drawn_weather.py`: what upstreams do that decision 0015 was not made with.

Deployments, cold caches, one key of several, instances that hang, long polls beside an outage, windows of a minute,
apps that leave after a second, large fleets, short deadlines, and no attempt timeout.
"""

from __future__ import annotations

import random
from collections.abc import Callable


def _ramp_after_deploy(chance: random.Random) -> str:
    calls, after = chance.choice([20, 40]), chance.choice([2, 5])
    first = calls * chance.uniform(0.2, 0.5)
    kinds = chance.choice(["connect_failure", "502", "503"])
    return f"""
duration: 2m
sidecars: {chance.choice([1, 5, 20])}
calls: {calls}/s
upstream: {{latency: 50ms, capacity: {calls * chance.uniform(1.3, 2.0):.0f}/s, queue: {chance.choice([1, 3])}s}}
outages:
  - {{at: 30s, lasts: {after}s, kinds: {kinds}, capacity: {first:.0f}/s, recovers: {chance.choice([15, 40])}s}}
policy: {{timeouts: {{attempt: {chance.choice([1000, 2000])}ms}}}}
"""


def _cold_caches(chance: random.Random) -> str:
    calls, lasts = chance.choice([20, 40]), chance.choice([10, 20])
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4, 10])}
calls: {calls}/s
upstream: {{latency: 40ms, capacity: {calls * chance.uniform(1.5, 2.5):.0f}/s, queue: 2s, overload: 503}}
outages:
  - {{at: 30s, lasts: {lasts}s, share: 0%, latency: {chance.choice([300, 600])}ms,
     capacity: {calls * chance.uniform(0.3, 0.7):.0f}/s}}
policy: {{timeouts: {{attempt: {chance.choice([1000, 2000])}ms}}}}
"""


def _one_key(chance: random.Random) -> str:
    calls, keys, window = chance.choice([20, 40]), chance.choice([2, 3, 4]), chance.choice([5, 10])
    limit = round(calls * window / keys * chance.uniform(1.3, 2.0))
    return f"""
duration: 2m
sidecars: {chance.choice([1, 2, 5])}
calls: {calls}/s
upstream: {{latency: 60ms, keys: {keys}, limit: {limit}, window: {window}s, overload: 429}}
outages:
  - {{at: 40s, lasts: 30s, share: 0%, key: 1,
     limit: {max(1, round(calls * window / keys * chance.uniform(0.4, 0.8)))}}}
"""


def _stopped_now_and_then(chance: random.Random) -> str:
    every, lasts = chance.choice([8, 15]), chance.choice([300, 700, 1500])
    outages = (f"{{at: {at}s, lasts: {lasts}ms, kinds: attempt_timeout}}" for at in range(20, 100, every))
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4, 20])}
calls: {chance.choice([20, 40])}/s
upstream: {{latency: 50ms}}
outages: [{", ".join(outages)}]
policy: {{timeouts: {{attempt: {chance.choice([500, 1000])}ms}}}}
"""


def _routes_and_less(chance: random.Random) -> str:
    calls = chance.choice([20, 40])
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4, 10])}
calls: {calls}/s
routes:
  - {{path: /items/1}}
  - {{path: /search, share: {chance.choice([20, 50])}%, latency: 800ms}}
upstream: {{latency: 50ms, capacity: {calls * chance.uniform(1.3, 1.8):.0f}/s, queue: {chance.choice([1, 3])}s}}
outages:
  - {{at: 40s, lasts: {chance.choice([20, 30])}s, share: 0%, capacity: {calls * chance.uniform(0.5, 0.8):.0f}/s}}
policy: {{timeouts: {{attempt: {chance.choice([2, 4])}s}}}}
"""


def _each_minute(chance: random.Random) -> str:
    calls = chance.choice([5, 10, 20])
    pauses = ", ".join(f"{{at: {at}s, lasts: 40s}}" for at in range(20, 220, 60))
    return f"""
duration: 4m
sidecars: {chance.choice([1, 3])}
calls: {calls}/s
pauses: [{pauses}]
upstream: {{latency: 200ms, limit: {round(20 * calls * chance.uniform(0.8, 1.2))}, window: 1m, overload: 429}}
"""


def _polls_in_outage(chance: random.Random) -> str:
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4])}
calls: {chance.choice([10, 20])}/s
routes:
  - {{path: /items/1}}
  - {{path: /poll, share: 30%, latency: {chance.choice([10, 25])}s}}
upstream: {{latency: 50ms}}
outages:
  - {{at: 40s, lasts: {chance.choice([4, 10])}s, kinds: {chance.choice(["connect_failure", "503", "reset"])}}}
policy: {{timeouts: {{attempt: 60s}}}}
"""


def _gone_after_a_second(chance: random.Random) -> str:
    calls = chance.choice([20, 40])
    outage = chance.choice(
        [
            f"lasts: {chance.choice([3, 8])}s, kinds: {chance.choice(['connect_failure', '503'])}",
            f"lasts: 30s, share: 0%, capacity: {calls * chance.uniform(0.5, 0.8):.0f}/s",
        ]
    )
    return f"""
duration: 2m
sidecars: {chance.choice([1, 5])}
calls: {calls}/s
patience: 1s
upstream: {{latency: 50ms, capacity: {calls * chance.uniform(1.3, 2.0):.0f}/s, queue: {chance.choice([1, 3])}s}}
outages: [{{at: 40s, {outage}}}]
policy: {{timeouts: {{attempt: {chance.choice([500, 1000])}ms}}}}
"""


def _one_of_some_instances(chance: random.Random) -> str:
    share, kinds = chance.choice([33, 50]), chance.choice(["connect_failure", "502", "503", "reset", "attempt_timeout"])
    return f"""
duration: 2m
sidecars: {chance.choice([1, 5, 20])}
calls: {chance.choice([20, 40])}/s
upstream: {{latency: 50ms}}
outages: [{{at: 40s, lasts: {chance.choice([10, 30])}s, share: {share}%, kinds: {kinds}}}]
policy: {{timeouts: {{attempt: 1s}}}}
"""


def _silent(chance: random.Random) -> str:
    return f"""
duration: 2m
sidecars: {chance.choice([1, 5, 20])}
calls: {chance.choice([10, 40])}/s
upstream: {{latency: 50ms}}
outages: [{{at: 40s, lasts: {chance.choice([3, 8, 14])}s, kinds: attempt_timeout}}]
policy: {{timeouts: {{attempt: {chance.choice([500, 1000, 3000])}ms}}}}
"""


def _from_the_start(chance: random.Random) -> str:
    calls = chance.choice([20, 40])
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4, 10])}
calls: {calls}/s
upstream: {{latency: 50ms, capacity: {calls * chance.uniform(1.3, 1.8):.0f}/s, queue: {chance.choice([1, 3])}s}}
outages: [{{at: 0s, lasts: {chance.choice([20, 40])}s, share: 0%, capacity: {calls * chance.uniform(0.4, 0.8):.0f}/s}}]
policy: {{timeouts: {{attempt: {chance.choice([500, 1000, 2000])}ms}}}}
"""


def _short_deadlines(chance: random.Random) -> str:
    calls = chance.choice([20, 40])
    outage = chance.choice(
        [
            f"lasts: {chance.choice([3, 8])}s, kinds: {chance.choice(['connect_failure', '503'])}",
            f"lasts: 30s, share: 0%, capacity: {calls * chance.uniform(0.5, 0.8):.0f}/s",
        ]
    )
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4, 10])}
calls: {calls}/s
upstream: {{latency: 50ms, capacity: {calls * chance.uniform(1.3, 1.8):.0f}/s, queue: {chance.choice([1, 3])}s}}
outages: [{{at: 40s, {outage}}}]
policy: {{timeouts: {{attempt: 500ms, total: {chance.choice([2, 4])}s}}}}
"""


def _large_fleet(chance: random.Random) -> str:
    outage = chance.choice(
        [
            f"lasts: {chance.choice([4, 10])}s, kinds: {chance.choice(['connect_failure', '503', '[503, reset]'])}",
            f"lasts: 30s, share: 0%, capacity: {chance.choice([30, 45, 60])}/s",
        ]
    )
    overload, delay = chance.choice([("429", 0), ("429", 2), ("503", 0)])
    return f"""
duration: 2m
sidecars: 100
calls: 70/s
upstream:
  {{latency: 50ms, capacity: 100/s, queue: {chance.choice([1, 2])}s, overload: {overload}, retry_after: {delay}s}}
outages: [{{at: 40s, {outage}}}]
policy: {{timeouts: {{attempt: {chance.choice([500, 2000])}ms}}}}
"""


def _slow_queue(chance: random.Random) -> str:
    calls = chance.choice([20, 40])
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4, 10])}
calls: {calls}/s
upstream: {{latency: 1s, capacity: {calls * chance.uniform(1.3, 1.8):.0f}/s, queue: {chance.choice([2, 5])}s}}
outages: [{{at: 40s, lasts: 30s, share: 0%, capacity: {calls * chance.uniform(0.5, 0.8):.0f}/s}}]
policy: {{timeouts: {{attempt: {chance.choice([3, 5])}s}}}}
"""


def _no_timeout(chance: random.Random) -> str:
    calls = chance.choice([20, 40])
    return f"""
duration: 2m
sidecars: {chance.choice([1, 4, 10])}
calls: {calls}/s
upstream:
  {{latency: 50ms, capacity: {calls * chance.uniform(1.3, 1.8):.0f}/s, queue: {chance.choice([1, 5])}s,
   overload: {chance.choice([429, 503])}}}
outages: [{{at: 40s, lasts: 30s, share: 0%, capacity: {calls * chance.uniform(0.5, 0.9):.0f}/s}}]
"""


def _one_instance_hangs(chance: random.Random) -> str:
    return f"""
duration: 2m
sidecars: {chance.choice([1, 5, 20])}
calls: {chance.choice([20, 40])}/s
upstream: {{latency: 50ms}}
outages: [{{at: 40s, lasts: 40s, share: {chance.choice([10, 25, 33, 50])}%, kinds: attempt_timeout}}]
policy: {{timeouts: {{attempt: {chance.choice([500, 1000, 2000])}ms}}}}
"""


#: These kinds, by name.
MORE_KINDS: dict[str, Callable[[random.Random], str]] = {
    "ramp": _ramp_after_deploy,
    "cold": _cold_caches,
    "one_key": _one_key,
    "stopped": _stopped_now_and_then,
    "routes_less": _routes_and_less,
    "each_minute": _each_minute,
    "polls_outage": _polls_in_outage,
    "gone_1s": _gone_after_a_second,
    "instances": _one_of_some_instances,
    "silent": _silent,
    "hangs": _one_instance_hangs,
    "from_start": _from_the_start,
    "deadlines": _short_deadlines,
    "fleet": _large_fleet,
    "slow_queue": _slow_queue,
    "no_timeout": _no_timeout,
}
