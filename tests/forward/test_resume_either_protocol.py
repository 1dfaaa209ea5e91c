"""Resumed answers on HTTP/1 and HTTP/2, on either side, plain and TLS, condition by condition (contract, section 15,
"Resume").
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import certificates
from support.front import STANDARD, Answer, CutError, Front, to
from support.played import Played, Protocol, asked, playing
from support.scripted import Received

from proxy.retry.facts import FaultKind, Outcome
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec, RateSpec
from proxy.retry.policies.policy import Backoff, BreakerSpec, Concurrency, Credentials, EndpointShare, Resume, Timeouts

SMALL = bytes(range(256))[:60]
TAG, DATE = 'ETag: "v1"', "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT"
SPOKEN: dict[Protocol, dict[str, Any]] = {1: {"protocol": "http/1.1"}, 2: {"protocol": "http/2"}}
either = pytest.mark.parametrize("app", [1, 2])
upstreams = pytest.mark.parametrize("spoken", [1, 2])


def policy(spoken: Protocol, **changes: Any) -> dict[str, Any]:
    return {"resume": Resume(wait=30.0), "target": SPOKEN[spoken], **changes}


def rest(
    body: bytes = SMALL, *lines: str, come: int | None = None, end: int | None = None, sized: bool = True
) -> Callable[[Received], Played]:
    """The range that is asked for, up to `end` at most, of which `come` bytes come."""

    def answers(request: Received) -> Played:
        first, _, last = (request.one("range") or "").removeprefix("bytes=").partition("-")
        until = min(int(last or len(body) - 1) + 1, len(body) if end is None else end)
        part = body[int(first) : until]
        said = f"Content-Range: bytes {first}-{until - 1}/{len(body)}"
        then = "ends" if come is None else "breaks"
        return Played(part, (*(lines or (TAG,)), said), 206, sized=sized, come=come, then=then)  # type: ignore[arg-type]

    return answers


def begun(*lines: str, come: int = 20, body: bytes = SMALL) -> Played:
    return Played(body, lines or (TAG,), come=come, then="breaks")


@either
@upstreams
async def test_it_goes_on_where_it_broke(app: Protocol, spoken: Protocol) -> None:
    async with (
        playing(spoken, begun(), rest(come=5), rest()) as upstream,
        Front(to("api", upstream.url, **policy(spoken))) as front,
    ):
        reply = await asked(front, app, "GET", "/api/file", "X-Own: 1", 'If-None-Match: "v0"')
        assert isinstance(reply, Answer)
        assert (reply.status, reply.body, reply.one("content-length")) == (200, SMALL, "60")
        sent = [(each.one("range"), each.one("if-range"), each.one("if-none-match")) for each in upstream.requests]
        assert sent == [(None, None, '"v0"'), ("bytes=20-", '"v1"', None), ("bytes=25-", '"v1"', None)]
        assert [(each.one("x-attempt-count"), each.one("x-own")) for each in upstream.requests] == [
            ("1", "1"),
            ("2", "1"),
            ("3", "1"),
        ]
        (call,) = await front.observed.until(1)
        assert (call["outcome"], call["attempts"]) == (Outcome.SUCCESS, 3)
        assert [each.range for each in call["history"]] == ["", "bytes=20-", "bytes=25-"]
        assert front.observed.resumes == [("broke", 5), ("done", 35)]


@either
@upstreams
async def test_the_last_byte_is_asked_for_alone(app: Protocol, spoken: Protocol) -> None:
    async with (
        playing(spoken, begun(come=len(SMALL) - 1), rest()) as upstream,
        Front(to("api", upstream.url, **policy(spoken))) as front,
    ):
        reply = await asked(front, app, "GET", "/api/file")
        assert isinstance(reply, Answer)
        assert (reply.body, [each.one("range") for each in upstream.requests]) == (SMALL, [None, "bytes=59-"])
        assert front.observed.resumes == [("done", 1)]


@either
@upstreams
async def test_silence_is_a_break_if_that_is_asked_for(app: Protocol, spoken: Protocol) -> None:
    """It is noticed within `wait`, also where the first bytes came after the head."""
    stalling = Played(SMALL, (TAG,), come=20, then="stalls")
    async with (
        playing(spoken, stalling, stalling, rest()) as upstream,
        Front(to("api", upstream.url, **policy(spoken, resume=Resume(stall=1.5, wait=2.9), answers=None))) as front,
    ):
        upstream.plays[1] = lambda request: replace(rest(come=5)(request), then="stalls")
        reply = await asked(front, app, "GET", "/api/file")
        assert isinstance(reply, Answer)
        assert reply.body == SMALL
        assert [each.one("range") for each in upstream.requests] == [None, "bytes=20-", "bytes=25-"]
        assert front.observed.resumes == [("broke", 5), ("done", 35)]


@upstreams
@pytest.mark.parametrize(("wait", "goes_on"), [(0.2, False), (60.0, True)])
async def test_the_silence_before_idle_ran_out_counts_for_wait(spoken: Protocol, wait: float, goes_on: bool) -> None:
    """The app sees that silence too: where it alone was longer than `wait`, the answer is broken off."""
    stalling = Played(SMALL, (TAG,), come=20, then="stalls")
    changes = policy(spoken, resume=Resume(wait=wait), timeouts=Timeouts(idle=0.4), answers=None)
    async with playing(spoken, stalling, rest()) as upstream, Front(to("api", upstream.url, **changes)) as front:
        reply = await asked(front, 1, "GET", "/api/file")
        assert isinstance(reply, Answer if goes_on else CutError)
        assert [result for result, _ in front.observed.resumes] == ["done" if goes_on else "refused"]


@upstreams
@pytest.mark.parametrize(("named", "goes_on"), [("Retry-After-Ms: 2000", True), ("Retry-After: 30", False)])
async def test_a_cooldown_holds_it(spoken: Protocol, named: str, goes_on: bool) -> None:
    once = replace(STANDARD, max_attempts=1)
    waiting = Played(SMALL, (TAG,), come=20, then="waits")
    changes = policy(spoken, strategy=once, answers=None, resume=Resume(wait=10.0))
    async with (
        playing(spoken, waiting, Played(b"slow", (named,), 429), rest()) as upstream,
        Front(to("api", upstream.url, **changes)) as front,
    ):
        breaking = asyncio.create_task(asked(front, 1, "GET", "/api/file"))
        await upstream.stalled.wait()
        other = await asked(front, 1, "GET", "/api/other")
        assert isinstance(other, Answer)
        upstream.broken.set()
        reply = await breaking
        assert isinstance(reply, Answer if goes_on else CutError)
        assert [each.one("range") for each in upstream.requests] == [None, None, *["bytes=20-"] * goes_on]
        _, call = await front.observed.until(2)
        assert (call["outcome"], [each.held_by for each in call["history"][1:]]) == (
            (Outcome.SUCCESS, ["cooldown"]) if goes_on else (Outcome.COMMITTED, [])
        )


@upstreams
async def test_a_place_holds_it(spoken: Protocol) -> None:
    """The place that the broken answer had goes to the call that waited for it first."""
    waiting = Played(SMALL, (TAG,), come=20, then="waits")
    at_once = replace(STANDARD, backoff=Backoff(0.0, 0.0, jitter="none"))
    changes = policy(spoken, concurrency=Concurrency(1, 10, 30.0), strategy=at_once, answers=None)
    async with (
        playing(spoken, waiting, Played(b"other"), rest()) as upstream,
        Front(to("api", upstream.url, **changes)) as front,
    ):
        breaking = asyncio.create_task(asked(front, 1, "GET", "/api/file"))
        await upstream.stalled.wait()
        second = asyncio.create_task(asked(front, 1, "GET", "/api/other"))
        while front.path.waiting != 1:  # noqa: ASYNC110  what is waited for sets no event
            await asyncio.sleep(0)
        upstream.broken.set()
        reply, other = await breaking, await second
        assert isinstance(reply, Answer) and isinstance(other, Answer)
        assert (reply.body, other.body) == (SMALL, b"other")
        assert [each.one("range") for each in upstream.requests] == [None, None, "bytes=20-"]
        (held,) = (each for call in await front.observed.until(2) for each in call["history"] if each.range)
        assert held.held_by == "concurrency"


@upstreams
async def test_over_tls_too(spoken: Protocol, tmp_path: Path) -> None:
    ours = certificates.make(tmp_path)
    target = {**SPOKEN[spoken], "verify": str(ours.ca)}
    async with (
        playing(spoken, begun(), rest(), tls=ours.server) as upstream,
        Front(to("api", upstream.url, **policy(spoken, target=target))) as front,
    ):
        reply = await asked(front, 1, "GET", "/api/file")
        assert isinstance(reply, Answer)
        assert reply.body == SMALL


@either
@upstreams
async def test_within_the_apps_own_range(app: Protocol, spoken: Protocol) -> None:
    own = Played(SMALL[10:40], (TAG, "Content-Range: bytes 10-39/60"), 206, come=7, then="breaks")
    async with (
        playing(spoken, own, rest()) as upstream,
        Front(to("api", upstream.url, **policy(spoken, answers=None))) as front,
    ):
        reply = await asked(front, app, "GET", "/api/file", "Range: bytes=10-39", 'If-Range: "v1"')
        assert isinstance(reply, Answer)
        assert (reply.status, reply.body) == (206, SMALL[10:40])
        assert [each.one("range") for each in upstream.requests] == ["bytes=10-39", "bytes=17-39"]


RESTS: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "a 206 that ends sooner is gone on with": ((TAG,), (rest(end=30), rest(end=30 + 1), rest())),
    "a 206 without a length": ((TAG,), (rest(sized=False),)),
    "a 206 with the date": ((TAG, DATE), (rest(SMALL, TAG, DATE),)),
    "a 206 without the date": ((TAG, DATE), (rest(SMALL, TAG),)),
    "a 206 with the coding": (
        (TAG, "Content-Encoding: gzip"),
        (rest(SMALL, TAG, "Content-Encoding: gzip"),),
    ),
    "a 200 with the same tag": ((TAG,), (Played(SMALL, (TAG,)),)),
    "a 200 without a length": ((TAG,), (Played(SMALL, (TAG,), sized=False),)),
    "a 200 that breaks": ((TAG,), (begun(TAG, come=40), rest())),
    "a 200 that breaks before the place": ((TAG,), (begun(TAG, come=10), rest())),
}


@upstreams
@pytest.mark.parametrize("name", RESTS)
async def test_what_is_accepted(spoken: Protocol, name: str) -> None:
    lines, plays = RESTS[name]
    async with (
        playing(spoken, begun(*lines), *plays) as upstream,
        Front(to("api", upstream.url, **policy(spoken))) as front,
    ):
        reply = await asked(front, 1, "GET", "/api/file")
        assert isinstance(reply, Answer)
        assert reply.body == SMALL
        assert len(upstream.requests) == 1 + len(plays)
        assert [result for result, _ in front.observed.resumes] == ["broke"] * (len(plays) - 1) + ["done"]


def partly(said: str, body: bytes = SMALL[20:], *lines: str, status: int = 206, **more: Any) -> Played:
    return Played(body, (*(lines or (TAG,)), f"Content-Range: {said}"), status, **more)


OTHERS: dict[str, Played] = {
    "another tag": partly("bytes 20-59/60", SMALL[20:], 'ETag: "v2"'),
    "a weak tag": partly("bytes 20-59/60", SMALL[20:], 'ETag: W/"v1"'),
    "no tag": partly("bytes 20-59/60", SMALL[20:], "X-Own: 1"),
    "another date": partly("bytes 20-59/60", SMALL[20:], TAG, "Last-Modified: Fri, 02 Jan 2026 00:00:00 GMT"),
    "a coding": partly("bytes 20-59/60", SMALL[20:], TAG, "Content-Encoding: gzip"),
    "an earlier beginning": partly("bytes 19-59/60", SMALL[19:]),
    "a later beginning": partly("bytes 21-59/60", SMALL[21:]),
    "another total": partly("bytes 20-59/61"),
    "an unknown total": partly("bytes 20-59/*"),
    "a range beyond": partly("bytes 20-60/60", SMALL[20:] + b"x"),
    "another length": partly("bytes 20-59/60", SMALL[20:-1]),
    "no Content-Range": Played(SMALL[20:], (TAG,), 206),
    "several ranges": Played(SMALL[20:], (TAG, "Content-Type: multipart/byteranges; boundary=x"), 206),
    "a range that is none": partly("20-59/60"),
    "more than it says": partly("bytes 20-59/60", SMALL[20:] + b"x", sized=False),
    "200 of another tag": Played(SMALL, ('ETag: "v2"',)),
    "200 without a tag": Played(SMALL),
    "200 of another length": Played(SMALL + b"x", (TAG,)),
    "200 that is longer": Played(SMALL + b"x", (TAG,), sized=False),
    "200 of another coding": Played(SMALL, (TAG, "Content-Encoding: gzip")),
    "304": Played(b"", (TAG,), 304),
    "401": Played(b"no", (), 401),
    "404": Played(b"gone", (), 404),
    "412": Played(b"no", (), 412),
    "416": Played(b"", ("Content-Range: bytes */10",), 416),
    "429": Played(b"slow", ("Retry-After: 0",), 429),
    "503": Played(b"busy", (), 503),
}


@upstreams
@pytest.mark.parametrize("name", OTHERS)
async def test_anything_else_ends_the_answer_with_a_reset(spoken: Protocol, name: str) -> None:
    async with (
        playing(spoken, begun(TAG, DATE), OTHERS[name]) as upstream,
        Front(to("api", upstream.url, **policy(spoken))) as front,
    ):
        reply = await asked(front, 1, "GET", "/api/file")
        assert isinstance(reply, CutError)
        assert reply.reset
        assert SMALL.startswith(reply.answer.body)
        (call,) = await front.observed.until(1)
        assert call["outcome"] is Outcome.COMMITTED
        results = [result for result, _ in front.observed.resumes]
        assert (len(upstream.requests), results) in ((2, ["rejected"]), (2, ["refused"]), (2, [])), results


def signed(headers: str, age: float = 0.0, scheme: str = "AWS4-HMAC-SHA256") -> tuple[str, str]:
    made = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y%m%dT%H%M%SZ")
    says = f"{scheme} Credential=a/20260101/eu/s3/aws4_request, SignedHeaders={headers}, Signature=0"
    return f"Authorization: {says}", f"X-Amz-Date: {made}"


@pytest.mark.parametrize(
    ("lines", "path", "goes_on"),
    [
        ((), "", True),
        (("Authorization: Basic YTpi",), "", True),
        (("Authorization: bearer x",), "", True),
        (("Authorization: Digest username=a",), "", False),
        (("Authorization: Hawk id=a",), "", False),
        (("Authorization: Basic a", "Authorization: Basic b"), "", False),
        (partial(signed, "host;x-amz-content-sha256;x-amz-date"), "", True),
        (partial(signed, "host;x-amz-date", 230.0), "", True),
        (partial(signed, "host;x-amz-date", 241.0), "", False),
        (partial(signed, "host;x-amz-date", scheme="AWS4-ECDSA-P256-SHA256"), "", False),
        (partial(signed, "host;range;x-amz-date"), "", False),
        (partial(signed, "host;if-match;x-amz-date"), "", False),
        (partial(signed, "host;if-range;x-amz-date"), "", False),
        (partial(signed, "host;if-modified-since;x-amz-date"), "", False),
        ((), "?X-Amz-Signature=a&X-Amz-SignedHeaders=host", True),
        ((), "?X-Amz-SignedHeaders=host%3Brange&X-Amz-Signature=a", False),
    ],
)
async def test_the_kinds_of_authorization(
    lines: tuple[str, ...] | Callable[[], tuple[str, ...]], path: str, goes_on: bool
) -> None:
    async with playing(1, begun(), rest()) as upstream, Front(to("api", upstream.url, **policy(1))) as front:
        given = lines() if callable(lines) else lines  # signatures of now, not of when the tests were collected
        reply = await asked(front, 1, "GET", f"/api/file{path}", *given)
        assert isinstance(reply, Answer if goes_on else CutError)
        assert len(upstream.requests) == 1 + goes_on


async def test_a_signature_that_has_become_too_old_is_not_sent_again() -> None:
    """At the second break, though not at the first."""
    front: Front

    def later(request: Received) -> Played:
        front.path.env.wall_offset += 200.0
        return rest(come=5)(request)

    async with playing(1, begun(), later, rest()) as upstream, Front(to("api", upstream.url, **policy(1))) as front:
        reply = await asked(front, 1, "GET", "/api/file", *signed("host;x-amz-date", 60.0))
        assert isinstance(reply, CutError)
        assert len(upstream.requests) == 2
        assert front.observed.resumes == [("broke", 5), ("refused", 0)]


@pytest.mark.parametrize("first", [Played(SMALL, (), come=20, then="breaks"), begun('ETag: W/"v1"'), begun("ETag: v1")])
async def test_only_with_a_strong_tag(first: Played) -> None:
    async with playing(1, first) as upstream, Front(to("api", upstream.url, **policy(1))) as front:
        assert isinstance(await asked(front, 1, "GET", "/api/file"), CutError)
        assert len(upstream.requests) == 1


async def test_only_with_a_length() -> None:
    unsized = Played(SMALL, (TAG,), sized=False, come=20, then="breaks")
    async with playing(1, unsized) as upstream, Front(to("api", upstream.url, **policy(1, answers=None))) as front:
        assert isinstance(await asked(front, 1, "GET", "/api/file"), CutError)
        assert len(upstream.requests) == 1


async def test_without_progress_max_resumptions_are_made_and_progress_counts_anew() -> None:
    body = bytes(200_000)
    plays = [begun(come=10, body=body), rest(body, come=65536), *[rest(body, come=1)] * 9]
    async with (
        playing(1, *plays) as upstream,
        Front(to("api", upstream.url, **policy(1, resume=Resume(max=3), answers=None))) as front,
    ):
        reply = await asked(front, 1, "GET", "/api/file")
        assert isinstance(reply, CutError)
        assert len(upstream.requests) == 1 + 1 + 3
        assert [result for result, _ in front.observed.resumes] == ["broke"] * 4 + ["refused"]


async def test_a_hundred_are_made_in_all() -> None:
    body = bytes(120 * 65536)
    rich = BucketRef(QuotaSpec(capacity=10_000))
    async with (
        playing(1, begun(come=10, body=body), rest(body, come=65536)) as upstream,
        Front(to("api", upstream.url, **policy(1, bucket=rich, answers=None))) as front,
    ):
        reply = await asked(front, 1, "GET", "/api/file")
        assert isinstance(reply, CutError)
        assert len(upstream.requests) == 1 + 100
        assert [result for result, _ in front.observed.resumes] == ["broke"] * 100 + ["refused"]


@upstreams
async def test_the_silence_that_the_app_sees_is_bounded_though_an_attempt_is_in_flight(spoken: Protocol) -> None:
    async with (
        playing(spoken, begun(), Played(then="silent")) as upstream,
        Front(to("api", upstream.url, **policy(spoken, resume=Resume(wait=60.0)))) as front,
    ):
        asking = asyncio.create_task(asked(front, 1, "GET", "/api/file"))
        while len(upstream.requests) < 2:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0)
        front.pass_time(60.0)
        assert isinstance(await asking, CutError)
        (call,) = await front.observed.until(1)
        assert (call["outcome"], call["attempts"]) == (Outcome.COMMITTED, 2)
        assert [result for result, _ in front.observed.resumes] == ["broke"]


@upstreams
async def test_a_backoff_that_would_outlast_it_is_not_begun(spoken: Protocol) -> None:
    slow = replace(STANDARD, backoff=Backoff(1.0, 1.0, jitter="none"))
    async with (
        playing(spoken, begun()) as upstream,
        Front(to("api", upstream.url, **policy(spoken, resume=Resume(wait=0.5), strategy=slow))) as front,
    ):
        assert isinstance(await asked(front, 1, "GET", "/api/file"), CutError)
        assert (len(upstream.requests), front.observed.resumes) == (1, [("refused", 0)])


async def test_the_record_of_what_broke_has_the_backoff_that_followed() -> None:
    slow = replace(STANDARD, backoff=Backoff(0.05, 0.05, jitter="none"))
    async with (
        playing(1, begun(), rest(come=5), rest()) as upstream,
        Front(to("api", upstream.url, **policy(1, strategy=slow))) as front,
    ):
        assert isinstance(await asked(front, 1, "GET", "/api/file"), Answer)
        (call,) = await front.observed.until(1)
        broken = call["history"][:2]
        assert [(each.decision, each.fault) for each in broken] == [("resumed", FaultKind.RESET)] * 2
        assert [each.delay for each in broken] == [pytest.approx(0.05), pytest.approx(0.05)]


async def test_it_passes_the_gates_like_a_retry() -> None:
    """A rate whose next token comes too late for `wait` ends the answer; one that comes in time holds it."""
    for rate, goes_on in ((100.0, True), (0.1, False)):
        paced = BucketRef(RateSpec(rate, 1.0))
        async with (
            playing(1, begun(), rest()) as upstream,
            Front(to("api", upstream.url, **policy(1, rate=paced, resume=Resume(wait=2.0)))) as front,
        ):
            reply = await asked(front, 1, "GET", "/api/file")
            assert isinstance(reply, Answer if goes_on else CutError)
            assert len(upstream.requests) == 1 + goes_on
            assert [result for result, _ in front.observed.resumes] == ["done" if goes_on else "refused"]


async def test_it_carries_the_same_credential() -> None:
    keys = Credentials("x-api-key", ("one", "two"), pick="next")
    async with (
        playing(1, begun(), rest()) as upstream,
        Front(to("api", upstream.url, **policy(1, credentials=keys))) as front,
    ):
        reply = await asked(front, 1, "GET", "/api/file")
        assert isinstance(reply, Answer)
        assert [each.one("x-api-key") for each in upstream.requests] == ["one", "one"]


async def test_it_waits_for_its_own_credential_though_another_could_be_used() -> None:
    """Another key's account may have another file under this name."""
    keys = Credentials("x-api-key", ("one", "two"), pick="first")
    waiting = Played(SMALL, (TAG,), come=20, then="waits")
    slow = Played(b"slow", ("Retry-After-Ms: 300",), 429)
    async with (
        playing(1, waiting, slow, Played(b"other"), rest()) as upstream,
        Front(to("api", upstream.url, **policy(1, credentials=keys, answers=None))) as front,
    ):
        breaking = asyncio.create_task(asked(front, 1, "GET", "/api/file"))
        await upstream.stalled.wait()
        other = await asked(front, 1, "GET", "/api/other")
        assert isinstance(other, Answer) and other.status == 200
        upstream.broken.set()
        reply = await breaking
        assert isinstance(reply, Answer)
        assert reply.body == SMALL
        assert [each.one("x-api-key") for each in upstream.requests] == ["one", "one", "two", "one"]


@pytest.mark.parametrize("balance", ["turns", "least"])
async def test_it_goes_to_the_same_endpoint_and_is_counted_there(balance: str) -> None:
    loads: list[dict[Any, int]] = []
    front: Front

    def counted(request: Received) -> Played:
        loads.append({label: load.in_use for (_, label), load in front.path.registry._loads.items()})
        return rest()(request)

    async with playing(1, begun(), counted) as one, playing(1, Played(b"other")) as other:
        places = [each.url.removeprefix("http://") for each in (one, other)]
        shares = tuple(map(EndpointShare, places))
        changes = policy(1, balance=balance, endpoints=shares)
        async with Front(to("api", one.url, other.url, **changes)) as front:
            reply = await asked(front, 1, "GET", "/api/file")
            assert isinstance(reply, Answer)
            assert (reply.body, len(one.requests), len(other.requests)) == (SMALL, 2, 0)
            (call,) = await front.observed.until(1)
            assert [each.endpoint for each in call["history"]] == places[:1] * 2
            assert loads == [{places[0]: 1, places[1]: 0} if balance == "least" else {}]


async def test_an_endpoint_whose_circuit_breaker_is_open_is_not_asked() -> None:
    """Nor is another endpoint asked in its place."""
    breaker = BreakerSpec(0.5, 1, 20.0, 10.0)
    async with playing(1, begun(), Played(status=500), begun(), rest()) as one, playing(1, Played(b"other")) as other:
        shares = tuple(EndpointShare(each.url.removeprefix("http://")) for each in (one, other))
        once = replace(STANDARD, max_attempts=1)
        changes = policy(1, endpoints=shares, circuit_breaker=breaker, strategy=once, answers=None)
        slow = Played(SMALL, (TAG,), come=20, then="stalls")
        one.plays[:] = [slow, Played(status=500)]
        async with Front(to("api", one.url, other.url, **changes, timeouts=Timeouts(idle=60.0))) as front:
            breaking = asyncio.create_task(asked(front, 1, "GET", "/api/file"))
            await one.stalled.wait()
            for _ in range(2):
                await asked(front, 1, "GET", "/api/other")  # one of the two goes where 500 opens the breaker
            front.pass_time(60.0)
            assert isinstance(await breaking, CutError)
            assert [each.one("range") for each in (*one.requests, *other.requests)] == [None] * 3


async def test_a_head_that_breaks_before_it_is_there_is_another_resumption() -> None:
    cut = Played(SMALL, (TAG,), come=0, then="breaks")
    async with (
        playing(2, begun(), cut, rest()) as upstream,
        Front(to("api", upstream.url, **policy(2))) as front,
    ):
        reply = await asked(front, 1, "GET", "/api/file")
        assert isinstance(reply, Answer)
        assert reply.body == SMALL
        (call,) = await front.observed.until(1)
        assert [each.fault for each in call["history"]][:2] == [FaultKind.RESET, FaultKind.RESET]
        assert [result for result, _ in front.observed.resumes] == ["broke", "done"]


@upstreams
async def test_under_observe_it_is_only_counted(spoken: Protocol) -> None:
    async with (
        playing(spoken, begun()) as upstream,
        Front(to("api", upstream.url, **policy(spoken, mode="observe"))) as front,
    ):
        assert isinstance(await asked(front, 1, "GET", "/api/file"), CutError)
        assert (len(upstream.requests), front.observed.resumes) == (1, [("observed", 0)])
