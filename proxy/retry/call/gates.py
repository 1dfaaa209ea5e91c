"""The names, in words for people, of the gates that can hold an attempt before it is sent. The log, `redrive top` and
`explain` use these words, and the dashboard has a copy of them.
"""

from __future__ import annotations

#: The gates in words, by their names in records.
GATES = {
    "cooldown": "the upstream's cooldown",
    "ahead": "what the upstream said is left of its limits",
    "limit": "the limit that redrive found for an upstream in trouble",
    "outage": "the upstream's outage",
    "rate": "the upstream's rate bucket",
    "limiter": "the adaptive limiter",
    "concurrency": "the upstream's concurrency limit",
}
#: The words for what holds the calls that a cooldown has held, once the cooldown is over.
SLOW_START = f"the slow start after {GATES['cooldown']}"
