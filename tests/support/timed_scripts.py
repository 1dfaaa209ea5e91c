"""The scripts that Redis runs for buckets, made to take the time from their last two arguments (seconds, microseconds),
and to tell in their reply whom they call.
"""

from __future__ import annotations

from pathlib import Path

import proxy.stores.redis

TIME = "redis.call('TIME')"
PUBLISH = "redis.call('PUBLISH', channel .. each, 'part ' .. key)"


def timed(name: str) -> str:
    """The text of the script of this name."""
    text = Path(proxy.stores.redis.__path__[0], f"{name}.lua").read_text()
    assert text.count(TIME) == 1
    text = text.replace(TIME, "{ARGV[#ARGV - 1], ARGV[#ARGV]}")
    return text.replace(PUBLISH, "reply[#reply + 1] = 'call ' .. each")
