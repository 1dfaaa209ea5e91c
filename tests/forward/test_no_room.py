"""Calls for which this process can open no connection: the upstream has no part in it."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest
from support.front import Front, to
from support.scripted import Upstream, answer, hang

from proxy.retry.facts import MappingFields, Outcome, Request
from proxy.retry.policies.policy import AutoLimit
from proxy.retry.scopes.scope_state import ScopeState

HELD: dict[str, Any] = {"limit": AutoLimit(), "outage": "hold"}


def scope(front: Front, upstream: Upstream) -> ScopeState:
    policy = front.settings.router.upstreams[0].policy
    return front.path.registry.scope(policy, Request("GET", upstream.authority, "/", MappingFields([])))


async def test_at_the_limit_of_connections_a_call_is_told_so_and_nothing_is_learnt_of_the_upstream() -> None:
    async with (
        Upstream(hang) as upstream,
        Front(to("api", upstream.url, **HELD)) as front,
        front.app() as one,
        front.app() as two,
    ):
        waits = asyncio.get_running_loop().create_task(one.ask("GET", "/api/x"))
        await upstream.until(1)
        front.path.context.pool.most = 1
        for _ in range(8):
            reply = await two.ask("GET", "/api/x")
            assert (reply.status, reply.one("x-attempt-count")) == (503, "0")
            assert "error=connection_limit_reached" in (reply.one("proxy-status") or "")
            assert b'"outcome": "overloaded"' in reply.body
        state = scope(front, upstream)
        assert state.bucket is not None and state.bucket.level(0.0) == 500
        assert not state.governor.holds(asyncio.get_running_loop().time())
        assert not state.governor.lanes.lost.is_suspected("")
        assert upstream.connections == 1
        one.vanish()
        await asyncio.gather(waits, return_exceptions=True)
        await front.observed.until(9)


@pytest.mark.parametrize("directly", [True, False], ids=["directly", "by a task"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_out_of_descriptors_is_no_failure_of_the_upstream(
    monkeypatch: pytest.MonkeyPatch, number: int, directly: bool
) -> None:
    async with (
        Upstream(answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, **HELD)) as front,
        front.app() as app,
    ):
        pool = front.path.context.pool

        def fails(*endpoint: object, **more: object) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patched:
            patched.setattr(pool.dialer, "connecting", fails)
            if not directly:
                patched.setattr(pool.dialer, "only_address", lambda *_: "")
            reply = await app.ask("POST", "/api/x", body=b"x")
            assert (reply.status, reply.one("retry-after")) == (503, "1")
        assert front.observed.outcomes == [Outcome.OVERLOADED]
        (origin,) = pool._origins.values()
        assert not origin.penalty.until  # the endpoint is not passed over
        assert (await app.ask("GET", "/api/x")).body == b"ok"
