"""Buckets between machines, in Redis or Valkey (extra: redis).

Theory. A bucket in Redis is a local bucket topped up by leases: `bucket` is what every kind has in common, `leased`
what those have whose tokens go out on lease (`quota`, `rate`, by `lease`), `levels` the kinds that act on the last
known level (throttle, budget), `places` the places of a cooldown, all of them without I/O; the scripts (*.lua) are
the other side. `store` sends what they have to say, batched, at most one round trip in flight, and knows whether
Redis can be had; `client` is the client library. `factory` makes buckets for `proxy.retry.registry`, and carries
cooldowns to the fleet.

The client library is imported when a configuration first names a bucket in Redis (`proxy.server.fleet`), not before.
"""
