"""Credentials on the wire: each attempt carries one, in the place of what the app sent, and none goes elsewhere."""

from __future__ import annotations

import pytest
from support.front import NONE, Front, policy, to
from support.scripted import Upstream, answer

from proxy.retry.policies.policy import Credentials, Fallback

DATE = "Date: Thu, 01 Jan 2026 00:00:00 GMT"
FINE = answer(200, b"ok", DATE)
THROTTLED = answer(429, b"slow", DATE, "Retry-After: 30")
BEARER = Credentials("Authorization", ("Bearer value-a", "Bearer value-b"))
FIRST = Credentials("x-api-key", ("value-a", "value-b"), "first")


async def test_attempts_take_turns_and_an_incoming_field_is_replaced() -> None:
    async with Upstream(FINE) as upstream, Front(to("api", upstream.url, credentials=BEARER)) as front:
        async with front.app() as app:
            for fields in ((), ("authorization: Bearer mine", "AUTHORIZATION: Basic x", "X-Other: stays"), ()):
                assert (await app.ask("GET", "/api/x", *fields)).status == 200
        carried = [each.all("authorization") for each in upstream.requests]
        assert carried == [["Bearer value-a"], ["Bearer value-b"], ["Bearer value-a"]]
        assert upstream.requests[1].one("x-other") == "stays"


async def test_a_throttled_attempt_goes_on_at_once_with_the_next() -> None:
    async with Upstream(THROTTLED, FINE) as upstream, Front(to("api", upstream.url, credentials=FIRST)) as front:
        async with front.app() as app:
            reply = await app.ask("POST", "/api/x", body=b"twelve bytes")
            assert reply.status == 200
            assert reply.one("x-attempt-count") == "2"
            await app.ask("GET", "/api/y")
        assert [each.one("x-api-key") for each in upstream.requests] == ["value-a", "value-b", "value-b"]
        assert [each.body for each in upstream.requests] == [b"twelve bytes", b"twelve bytes", b""]
        records = await front.observed.until(2)
        assert [each.key for each in records[0]["history"]] == [0, 1]


async def test_what_began_undecided_is_decided_with_the_key_that_it_carries() -> None:
    """A connection rests in the pool, so that the second call is sent at once; then something has to be decided."""
    steps = (FINE, THROTTLED, FINE, FINE, answer(503, b"", DATE), FINE, answer(401, b"", DATE))
    async with Upstream(*steps) as upstream, Front(to("api", upstream.url, credentials=FIRST)) as front:
        async with front.app() as app:
            statuses = [(await app.ask("PUT", "/api/x", body=b"twelve bytes")).status for _ in range(6)]
        assert statuses == [200, 200, 200, 200, 401, 429]
        carried = [each.one("x-api-key") for each in upstream.requests]
        # throttled: on with the other; a 503: the same again; refused: the first cools for longer than a call is held,
        # and is all that is left, so the last call is answered at once
        assert carried == ["value-a", "value-a", "value-b", "value-b", "value-b", "value-b", "value-b"]
        records = await front.observed.until(6)
        assert [[each.key for each in record["history"]] for record in records] == [[0], [0, 1], [1], [1, 1], [1], []]


async def test_a_call_that_was_not_decided_says_which_key_too() -> None:
    async with Upstream(FINE) as upstream, Front(to("api", upstream.url, credentials=BEARER)) as front:
        async with front.app() as app:
            for path in ("/api/x", "/api/x", "/api/y", "/api/y"):
                await app.ask("GET", path, "Authorization: Bearer mine")
        carried = [each.all("authorization") for each in upstream.requests]
        assert carried == [["Bearer value-a"], ["Bearer value-b"]] * 2
        records = await front.observed.until(4)
        assert [each.key for record in records for each in record["history"]] == [0, 1, 0, 1]


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_they_go_in_every_mode(mode: str) -> None:
    async with Upstream(FINE) as upstream, Front(to("api", upstream.url, credentials=FIRST, mode=mode)) as front:
        async with front.app() as app:
            await app.ask("GET", "/api/x")
        assert upstream.requests[0].one("x-api-key") == "value-a"


async def test_a_trace_carries_none_since_it_would_come_back() -> None:
    async with Upstream(FINE) as upstream, Front(to("api", upstream.url, credentials=FIRST)) as front:
        async with front.app() as app:
            await app.ask("TRACE", "/api/x", "X-Api-Key: mine")
        assert upstream.requests[0].all("x-api-key") == []


async def test_another_upstream_gets_none() -> None:
    """The same app connection asks one and the other in turn: nothing that was rendered for one goes to the other."""
    async with Upstream(FINE) as one, Upstream(FINE) as other, Upstream(FINE) as third:
        places = [
            to("one", one.url, credentials=FIRST),
            to("other", other.url),
            to("third", third.url, credentials=Credentials("x-api-key", ("value-c",))),
        ]
        async with Front(*places) as front, front.app() as app:
            for _ in range(3):
                for name in ("one", "other", "third"):
                    assert (await app.ask("GET", f"/{name}/x")).status == 200
        assert [each.one("x-api-key") for each in one.requests] == ["value-a"] * 3
        assert [each.one("x-api-key") for each in other.requests] == [None] * 3
        assert [each.one("x-api-key") for each in third.requests] == ["value-c"] * 3


async def test_a_call_that_goes_on_elsewhere_carries_what_is_due_there() -> None:
    async with Upstream(answer(503, b"", DATE)) as one, Upstream(FINE) as other:
        places = [
            to("one", one.url, credentials=FIRST, strategy=NONE, fallback=(Fallback("other"),)),
            to("other", other.url, credentials=BEARER),
        ]
        async with Front(*places) as front, front.app() as app:
            assert (await app.ask("GET", "/one/x")).status == 200
        assert other.requests[0].all("x-api-key") == []
        assert other.requests[0].one("authorization") == "Bearer value-a"


def test_a_policy_with_credentials_says_none_of_them() -> None:
    text = repr(policy(credentials=BEARER))
    assert "Authorization" in text
    assert "value-a" not in text
