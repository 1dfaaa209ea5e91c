"""What the fleet shares, put together: nothing of Redis where nobody names it, one word for all workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.retry.budgets.buckets import QuotaBucket
from proxy.retry.facts import Request
from proxy.retry.scopes.factory import Factory
from proxy.retry.scopes.registry import Registry
from proxy.server import fleet
from proxy.server.fleet import Fleet, Outages

SHARED = """
buckets:
  fleet: {kind: quota, store: redis}
  pace: {kind: rate, rate: 10/s, store: redis}
upstreams:
  a: {url: "http://a.test", bucket: fleet}
  b: {url: "http://b.test"}
  c: {url: "http://c.test", routes: [{match: {methods: [POST]}, rate: pace}]}
"""


def settings_of(folder: Path, text: str) -> Settings:
    file = folder / "redrive.yaml"
    file.write_text(text)
    settings = load(str(file), {}).settings
    assert settings is not None
    return settings


def test_upstreams_that_share_their_cooldowns(tmp_path: Path) -> None:
    assert settings_of(tmp_path, SHARED).redis_upstreams == {"a", "c"}


async def test_without_the_client_library_buckets_are_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "is_installed", lambda extra: False)
    settings = settings_of(tmp_path, SHARED)
    made = Fleet(Factory(), settings, lambda *_, **__: None)
    await made.open()
    policy = settings.router.by_name["a"].policy
    bucket = Registry(made).scope(policy, Request("GET", "a.test", "/")).bucket
    assert type(bucket) is QuotaBucket
    assert (made.is_up, made.outages) == (None, 0)
    await made.refresh()
    await made.close()


def test_the_client_library_is_not_loaded_where_nobody_names_redis() -> None:
    loaded = "sorted(name for name in sys.modules if name.startswith('redis'))"
    code = f"import proxy.main, proxy.supervisor.worker, sys; print({loaded})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_workers_notices_become_one() -> None:
    outages = Outages()
    told: list[Any] = [
        outages.is_news(1, "out"),
        outages.is_news(2, "out"),
        outages.is_news(1, "back"),
        outages.is_out,
        outages.is_news(2, "back"),
        outages.is_out,
    ]
    assert told == [True, False, False, True, True, False]
    assert outages.is_news(1, "out")
    outages.ended(1)
    assert (outages.is_out, outages.count) == (False, 2)
