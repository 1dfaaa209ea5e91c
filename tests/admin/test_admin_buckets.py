"""The rows of `/buckets`."""

from __future__ import annotations

import asyncio

from proxy.admin.bucket_view import buckets
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec
from proxy.retry.scopes.registry import Registry


def test_a_rate_says_what_it_counts() -> None:
    """Two rates of one upstream, of requests and of tokens, have levels that nobody could tell apart."""
    named = {
        "rpm": BucketRef(RateSpec(rate=1.0, burst=60.0), "rpm"),
        "tpm": BucketRef(RateSpec(rate=1000.0, burst=60000.0, unit="tokens"), "tpm"),
        "retries": BucketRef(QuotaSpec(), "retries"),
    }
    rows = {row["bucket"]: row for row in asyncio.run(buckets(Registry(), named, 0.0))}
    assert {name: row.get("unit") for name, row in rows.items()} == {
        "rpm": "attempts",
        "tpm": "tokens",
        "retries": None,
    }
