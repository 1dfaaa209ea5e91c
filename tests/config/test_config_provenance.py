"""Where each effective value comes from."""

from __future__ import annotations

import os
from pathlib import Path

from configs import settings

TEXT = """\
strategies:
  patient: {kind: legacy, max_attempts: 5}
buckets:
  big: {kind: quota, capacity: 900}
defaults:
  timeouts: {attempt: 3s}
upstreams:
  a:
    url: http://x
    strategy: patient
    bucket: big
    routes:
      - match: {path: /x}
        strategy: {backoff: {base: 2s}}
        timeouts: {total: 9s}
  b:
    url: http://y
"""


def test_file_and_line_or_default_or_variable(tmp_path: Path) -> None:
    file = os.path.join(tmp_path, "redrive.yaml")
    record = settings(tmp_path, TEXT, {"AWS_MAX_ATTEMPTS": "8"}).provenance

    def said(upstream: str, route: str, path: str) -> tuple[str, str]:
        origin = record.origin(upstream, route, path)
        assert origin is not None, [each.path for each in record.of(upstream, route)]
        return origin.value, str(origin.mark)

    assert said("a", "", "strategy.name") == ("patient", f"{file}:10")
    assert said("a", "", "strategy.kind") == ("legacy", f"{file}:2")
    assert said("a", "", "strategy.max_attempts") == ("5", f"{file}:2")
    assert said("a", "", "strategy.backoff.throttling_base") == ("500ms", "default")
    assert said("a", "", "bucket.capacity") == ("900", f"{file}:4")
    assert said("a", "", "bucket.retry_cost") == ("5", "default")
    assert said("a", "", "timeouts.attempt") == ("3s", f"{file}:6")
    assert said("a", "", "timeouts.total") == ("15m", "default")
    assert said("a", "/x", "timeouts.total") == ("9s", f"{file}:15")
    assert said("a", "/x", "timeouts.attempt") == ("3s", f"{file}:6")
    assert said("a", "/x", "strategy.backoff.base") == ("2s", f"{file}:14")
    assert said("a", "/x", "strategy.max_attempts") == ("5", f"{file}:2")
    assert said("b", "", "strategy.max_attempts") == ("8", "AWS_MAX_ATTEMPTS")
    assert said("unmatched", "", "pushback.cooldown") == ("off", "default")


def test_values_of_a_service_config_are_found_in_it(tmp_path: Path) -> None:
    (tmp_path / "sc.json").write_text(
        '{"methodConfig": [{"name": [{}],\n "retryPolicy": {"maxAttempts": 3, "initialBackoff": "1s",\n'
        ' "maxBackoff": "2s", "backoffMultiplier": 2, "retryableStatusCodes": [14]}}]}'
    )
    record = settings(tmp_path, "upstreams:\n  a: {hosts: x, service_config: sc.json}\n").provenance
    origin = record.origin("a", "", "strategy.backoff.max")
    assert origin is not None
    assert (origin.value, str(origin.mark)) == ("2s", f"{tmp_path}/sc.json:3")


def test_the_effective_configuration_keeps_references_to_the_environment(tmp_path: Path) -> None:
    found = settings(tmp_path, TEXT + "admin: {token: '${T}'}\n", {"T": "secret"}).provenance.effective()
    assert found["admin"]["token"] == "${T}"
    assert found["upstreams"]["a"]["timeouts"]["attempt"] == "3s"
    assert found["upstreams"]["a"]["routes"]["/x"]["timeouts"]["total"] == "9s"
    assert found["drain"] == "25s"
