"""grpcio's own retries beside redrive's, under one service config: the same calls succeed, in as many attempts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.grpc_peer import OPTIONS, GrpcServer
from support.process import Redrive

RETRIES = {
    "maxAttempts": 3,
    "initialBackoff": "0.01s",
    "maxBackoff": "0.05s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"],
}
SERVICE = [{"service": "acme.Echo"}]

#: By name: a service config, and the metadata of the calls that are made under it, one after the other.
CASES: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "counts": (
        {"methodConfig": [{"name": SERVICE, "retryPolicy": RETRIES}]},
        [{"fail": str(number)} for number in range(5)],
    ),
    "statuses": (
        {"methodConfig": [{"name": SERVICE, "retryPolicy": RETRIES}]},
        [
            {"fail": fails, "with": status}
            for fails in ("1", "9")
            for status in ("ABORTED", "INTERNAL", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN")
        ],
    ),
    "pushback": (
        {"methodConfig": [{"name": SERVICE, "retryPolicy": RETRIES}]},
        [{"fail": fails, "pushback": pushback} for fails in ("1", "9") for pushback in ("-1", "20", "soon", "-7")],
    ),
    "late": ({"methodConfig": [{"name": SERVICE, "retryPolicy": RETRIES}]}, [{"fail": "1", "late": "1"}]),
    "at most five": (
        {"methodConfig": [{"name": SERVICE, "retryPolicy": RETRIES | {"maxAttempts": 7}}]},
        [{"fail": "4"}, {"fail": "5"}, {"fail": "9"}],
    ),
    "of another method": (
        {"methodConfig": [{"name": [{"service": "acme.Echo", "method": "other"}], "retryPolicy": RETRIES}]},
        [{"fail": "1"}],
    ),
    "of a method, of its service, of all": (
        {
            "methodConfig": [
                {"name": [{}], "retryPolicy": RETRIES | {"maxAttempts": 2}},
                {"name": SERVICE, "retryPolicy": RETRIES | {"maxAttempts": 3}},
                {"name": [{"service": "acme.Echo", "method": "echo"}], "retryPolicy": RETRIES | {"maxAttempts": 4}},
            ]
        },
        [{"fail": "9"}],
    ),
    "throttling": (
        {
            "methodConfig": [{"name": SERVICE, "retryPolicy": RETRIES}],
            "retryThrottling": {"maxTokens": 6, "tokenRatio": 0.5},
        },
        [{"fail": fails} for fails in ("9", "9", "9", "0", "0", "1", "0", "0", "0", "0", "0", "1", "9", "9")],
    ),
}


@pytest.fixture
def server() -> Iterator[GrpcServer]:
    with GrpcServer() as running:
        yield running


def outcomes(channel: Any, server: GrpcServer, calls: list[dict[str, str]], name: str) -> list[tuple[str, int]]:
    """The status of each call, and how often its server saw it."""
    echo, found = channel.unary_unary("/acme.Echo/echo"), []
    for number, steering in enumerate(calls):
        key = f"{name}{number}"
        try:
            echo(b"x", timeout=10, metadata=(("key", key), *steering.items()))
            status = "OK"
        except grpc.RpcError as error:
            status = error.code().name
        found.append((status, len(server.seen(key))))
    return found


@pytest.mark.parametrize("name", CASES)
async def test_the_same_calls_succeed_in_as_many_attempts(server: GrpcServer, tmp_path: Path, name: str) -> None:
    config, calls = CASES[name]
    options = [each for each in OPTIONS if each[0] != "grpc.enable_retries"]
    alone = grpc.insecure_channel(
        f"127.0.0.1:{server.port}", options=[*options, ("grpc.service_config", json.dumps(config))]
    )
    expected = await asyncio.to_thread(lambda: outcomes(alone, server, calls, "alone"))
    await asyncio.to_thread(alone.close)
    policy = (
        f'upstreams: {{greeter: {{url: "http://127.0.0.1:{server.port}", service_config: {json.dumps(config)}}}}}\n'
    )
    policy = policy.replace("url:", "hosts: [greeter.test], url:")
    async with Redrive(tmp_path, policy) as redrive:
        behind = grpc.insecure_channel(
            redrive.authority, options=[*OPTIONS, ("grpc.default_authority", "greeter.test")]
        )
        assert await asyncio.to_thread(lambda: outcomes(behind, server, calls, "behind")) == expected
        await asyncio.to_thread(behind.close)


async def test_hedging(server: GrpcServer, tmp_path: Path) -> None:
    """C-core has none of its own: the first good answer wins, and the others are cancelled."""
    hedging = {"maxAttempts": 3, "hedgingDelay": "1s", "nonFatalStatusCodes": ["UNAVAILABLE"]}
    config = {"methodConfig": [{"name": SERVICE, "hedgingPolicy": hedging}]}
    policy = f'upstreams: {{greeter: {{url: "http://127.0.0.1:{server.port}", hosts: [greeter.test], '
    policy += f"service_config: {json.dumps(config)}}}}}\n"
    async with Redrive(tmp_path, policy) as redrive:
        channel = grpc.insecure_channel(
            redrive.authority, options=[*OPTIONS, ("grpc.default_authority", "greeter.test")]
        )
        calls = [{"fail": "2"}, {"fail": "9"}, {"fail": "9", "with": "INTERNAL"}]
        found = await asyncio.to_thread(lambda: outcomes(channel, server, calls, "hedged"))
        assert found == [("OK", 3), ("UNAVAILABLE", 3), ("INTERNAL", 1)]
        slow = channel.unary_unary("/acme.Echo/wait").future(b"", timeout=120, metadata=(("key", "slow"),))
        await asyncio.to_thread(lambda: server.wait_for("slow", 3))
        slow.cancel()
        ended = await redrive.call(4)
        assert (ended["outcome"], ended["attempts"]) == ("client_gone", 3)
        await asyncio.to_thread(channel.close)
