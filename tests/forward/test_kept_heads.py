"""Calls whose success has begun, with its head kept back (`timeouts.first_byte`, a look into it), when it fails.

A success's head says that the request was carried out. So a DELETE, or a PUT under a condition, is not made again then,
though both are idempotent: the second would be answered 404 or 412. Any other PUT stays retryable (contract,
section 13).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from support.front import AT_ONCE, CLASSIFY, Answer, Front, to
from support.played import Played, Protocol, asked, playing

from proxy.retry.answers.rules import Rule
from proxy.retry.facts import Class, FaultKind, Outcome
from proxy.retry.policies.dialect import Dialect, Repeats
from proxy.retry.policies.policy import Timeouts

SPOKEN: dict[Protocol, dict[str, Any]] = {1: {"protocol": "http/1.1"}, 2: {"protocol": "http/2"}}
BUSY = Rule(Class.TRANSIENT, "rule 1", frozenset({200}), json=((("error", "code"), "server_busy"),))
BODY = b'{"error": {"code": "none"}}'
JSON = ("Content-Type: application/json",)
#: What a policy needs to keep a success's head, and how that success then fails.
KEPT: dict[str, tuple[dict[str, Any], Played, int]] = {
    "silent after its head": (
        {"timeouts": Timeouts(first_byte=30.0), "strategy": AT_ONCE},
        Played(BODY, JSON, come=0, then="stalls"),
        504,
    ),
    "broken in its first byte": (
        {"timeouts": Timeouts(first_byte=60.0)},
        Played(BODY, JSON, come=0, then="breaks"),
        502,
    ),
    "broken in what a rule looks at": (
        {"classify": replace(CLASSIFY, rules=(BUSY,))},
        Played(BODY, JSON, come=9, then="breaks"),
        502,
    ),
}
#: A provider's client that reads the answers to its DELETEs whole, and repeats them where they break.
OWN = Repeats("its client", faults=frozenset(FaultKind), whole_answers=frozenset({"DELETE"}))
upstreams = pytest.mark.parametrize("spoken", [1, 2])
kept = pytest.mark.parametrize("name", KEPT)


async def played(
    spoken: Protocol, name: str, method: str, *fields: str, **changes: Any
) -> tuple[Answer, int, dict[str, Any]]:
    """The app's answer, how many attempts came, and the call."""
    policy, fails, _ = KEPT[name]
    if changes:
        policy = {**policy, "classify": replace(policy.get("classify", CLASSIFY), **changes)}
    async with (
        playing(spoken, fails, Played(b'{"made": true}', JSON)) as upstream,
        Front(to("api", upstream.url, target=SPOKEN[spoken], answers=None, **policy)) as front,
    ):
        body = b"{}" if method in ("PUT", "POST") else b""
        asking = asyncio.create_task(asked(front, 1, method, "/api/x", *fields, body=body))
        if fails.then == "stalls":
            await front.head_kept()
            front.pass_time(30.0)
        reply = await asking
        assert isinstance(reply, Answer)
        (call,) = await front.observed.until(1)
        return reply, len(upstream.requests), call


@upstreams
@kept
@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("DELETE", ()),
        ("PUT", ('If-Match: "a"',)),
        ("PUT", ("If-None-Match: *",)),
        ("PUT", ("If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT",)),
    ],
)
async def test_a_delete_or_a_put_under_a_condition_is_not_made_again(
    spoken: Protocol, name: str, method: str, fields: tuple[str, ...]
) -> None:
    reply, sent, call = await played(spoken, name, method, *fields)
    assert (reply.status, sent, call["outcome"]) == (KEPT[name][2], 1, Outcome.NOT_RETRYABLE)
    assert call["history"][0].why == f"{method} was carried out: the head of its answer had come"
    assert reply.one("x-should-retry") is None


@upstreams
@kept
@pytest.mark.parametrize(
    ("method", "fields", "changes"),
    [
        ("GET", (), {}),
        ("PUT", (), {}),
        ("PUT", ('If-Match: "a"', "Idempotency-Key: k1"), {}),
        ("DELETE", (), {"unsafe_methods": "always"}),
        (
            "DELETE",
            (),
            {"dialects": (Dialect("own", repeats=OWN),), "own_dialects": True, "unsafe_methods": "provider"},
        ),
    ],
    ids=["GET", "PUT", "with a key", "unsafe_methods always", "as its client does"],
)
async def test_what_may_be_repeated_is(
    spoken: Protocol, name: str, method: str, fields: tuple[str, ...], changes: dict[str, Any]
) -> None:
    reply, sent, call = await played(spoken, name, method, *fields, **changes)
    assert (reply.status, reply.body, sent, call["outcome"]) == (200, b'{"made": true}', 2, Outcome.SUCCESS)


@upstreams
async def test_an_error_that_a_rule_finds_inside_is_a_failure_like_any_other(spoken: Protocol) -> None:
    """The rule says that this 200 failed."""
    busy = Played(b'{"error": {"code": "server_busy"}}', JSON)
    async with (
        playing(spoken, busy, Played(b"{}", JSON)) as upstream,
        Front(
            to("api", upstream.url, target=SPOKEN[spoken], classify=replace(CLASSIFY, rules=(BUSY,)), answers=None)
        ) as front,
    ):
        reply = await asked(front, 1, "PUT", "/api/x", body=b"{}")
        assert isinstance(reply, Answer)
        assert (reply.status, len(upstream.requests)) == (200, 2)
