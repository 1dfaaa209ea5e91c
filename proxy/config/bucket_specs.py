"""A bucket's whole mapping becomes the definition that buckets are made of.

Law: what one key's value asks of another's is checked here, and told where it is written; each value by itself has been
read before (`policy_keys.BUCKET`).
"""

from __future__ import annotations

from typing import Any

from proxy.config.policy_keys import BUCKET
from proxy.config.problems import Mark, Path, Problems
from proxy.config.yaml_tree import Map
from proxy.retry.policy import BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec


def bucket_spec(tree: Map, mark: Mark, path: Path, problems: Problems) -> BucketSpec | None:
    """A whole mapping as a spec."""
    typed: dict[str, Any] = BUCKET.read(tree, mark, path, told_already)
    kind = typed.pop("kind")
    if kind == "quota":
        typed["flat_refund"] = typed.pop("refund", "last") == "flat"
        for key in ("timeout_cost", "throttling_cost"):
            typed.setdefault(key, typed["retry_cost"])
        return _started(QuotaSpec(**typed), typed["capacity"], tree, path, problems)
    if kind == "throttle":
        # gRPC A6: decimals of token_ratio beyond the third are dropped, and so they are for max_tokens.
        for key in ("max_tokens", "token_ratio"):
            typed[key] = int(typed[key] * 1000 + 1e-6) / 1000
            if typed[key] <= 0:
                at = tree.values_at[key]
                problems.add(at, (*path, key), "must be at least 0.001: it is counted in thousandths")
                return None
        return _started(ThrottleSpec(**typed), typed["max_tokens"], tree, path, problems)
    if kind == "budget":
        return BudgetSpec(**typed)
    if "rate" not in typed:
        problems.add(tree.mark if tree.mark.line else mark, (*path, "rate"), "is missing, as 100/s")
        return None
    if typed.get("burst", 1.0) < 1:
        problems.add(tree.values_at["burst"], (*path, "burst"), "must be at least 1: an attempt takes one")
        return None
    typed.setdefault("burst", max(1.0, typed["rate"]))  # one second's worth, and one attempt at the least
    return _started(RateSpec(**typed), typed["burst"], tree, path, problems)


def _started(spec: BucketSpec, most: float, tree: Map, path: Path, problems: Problems) -> BucketSpec | None:
    initial = getattr(spec, "initial", None)
    if initial is not None and initial > most:
        message = f"must not be above what the bucket holds, {most:g}"
        problems.add(tree.values_at["initial"], (*path, "initial"), message)
        return None
    return spec


def told_already(mark: Mark, path: Path, message: str) -> None:
    """What was read once already has nothing more to tell."""
