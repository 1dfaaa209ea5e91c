"""Buckets that machines share, in Redis or Valkey (extra: redis).

Theory. A bucket in Redis is a local bucket topped up by leases: `bucket` is what every kind has in common, `lease` has
the kinds whose tokens are leased (quota, rate), `levels` the kinds that act on the last known level (throttle, budget),
`cooldown` a process's part of a cooldown; the scripts (*.lua) are the part that Redis runs. `store` sends their
messages in batches, with at most one round trip in flight, and knows whether Redis is available; `client` is the client
library. `factory` makes buckets for `proxy.retry.scopes.registry`.

The client library is imported when a configuration first names a bucket in Redis (`proxy.server.fleet`), not before.
"""
