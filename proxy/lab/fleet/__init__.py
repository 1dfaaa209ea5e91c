"""A fleet's buckets in Redis, in simulated time: each sidecar has the leases and shares of `proxy.stores.redis`, and
reports to a Redis that is played (`played_redis`), with outages.

The classes that spend leases are those that serve traffic. What Redis runs is written here once more, in Python, since
simulations need no Redis: `tests/lab/test_played_scripts.py` compares each script's replies and state with those of a
real one.
"""
