"""Answers that go on where they broke, on the wire (contract, section 15, "Resume")."""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support import certificates
from support.front import NONE, Answer, CutError, Front, chunked, request, to
from support.scripted import Turn, Upstream, answer

from proxy.retry.facts import FaultKind, Outcome
from proxy.retry.policies.bucket_specs import BucketRef, QuotaSpec
from proxy.retry.policies.policy import Resume

SMALL = bytes(range(256))[:60]
ETAG = 'ETag: "v1"'
QUICK = Resume(wait=30.0)


@dataclass
class Files:
    """An upstream of one file, which breaks each answer off after as many bytes of body as `cuts` says, in order."""

    body: bytes
    cuts: list[int] = field(default_factory=list)
    lines: tuple[str, ...] = (ETAG,)
    asked: list[str | None] = field(default_factory=list)
    rest: Callable[[Turn, int, int], bytes] | None = None  # what answers a Range, if not the rest

    async def __call__(self, turn: Turn) -> None:
        wanted = turn.request.one("range")
        self.asked.append(wanted)
        first, last = 0, len(self.body) - 1
        if wanted is not None:
            match = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", wanted)
            assert match is not None, wanted
            first, last = int(match[1]), int(match[2] or last)
            said = f"Content-Range: bytes {first}-{last}/{len(self.body)}"
            whole = answer(206, self.body[first : last + 1], *self.lines, said)
            if self.rest is not None and turn.request.one("if-range") is not None:
                whole = self.rest(turn, first, last)
        else:
            whole = answer(200, self.body, *self.lines)
        size = len(whole) - whole.index(b"\r\n\r\n") - 4
        if self.cuts:
            cut = self.cuts.pop(0)
            await turn.write(whole[: len(whole) - max(size - cut, 0)])
            turn.close() if cut < size else None
        else:
            await turn.write(whole)


@asynccontextmanager
async def served(files: Files, **more: Any) -> AsyncIterator[tuple[Upstream, Front]]:
    policy = {"resume": QUICK, **more}
    async with Upstream(files) as upstream, Front(to("api", upstream.url, **policy)) as front:
        yield upstream, front


async def got(front: Front, *lines: str, method: str = "GET") -> Answer | CutError:
    async with front.app() as app:
        try:
            return await app.ask(method, "/api/file", *lines)
        except CutError as cut:
            return cut


async def test_a_break_at_every_offset_of_a_file() -> None:
    for cut in range(len(SMALL)):
        files = Files(SMALL, [cut])
        async with served(files) as (upstream, front):
            reply = await got(front)
            assert isinstance(reply, Answer)
            assert (reply.status, reply.body, reply.one("content-length")) == (200, SMALL, str(len(SMALL)))
            assert files.asked == [None, f"bytes={cut}-"]
            assert upstream.requests[1].one("if-range") == '"v1"'
            (call,) = await front.observed.until(1)
            assert (call["outcome"], call["attempts"]) == (Outcome.SUCCESS, 2)
            assert front.observed.resumes == [("done", len(SMALL) - cut)]
            record = call["history"][0]
            assert (record.fault, record.decision) == (FaultKind.RESET, "resumed")
            assert (record.status, record.cls) == (None, None), "it is no success"
            assert call["history"][1].range == f"bytes={cut}-"


async def test_several_breaks_at_random_offsets_of_a_large_file() -> None:
    chance = random.Random(15)
    body = chance.randbytes(3_000_000)
    for _ in range(3):
        cuts = [chance.randrange(1_000_000) for _ in range(4)]
        async with served(Files(body, cuts)) as (_, front):
            reply = await got(front)
            assert isinstance(reply, Answer)
            assert hashlib.sha256(reply.body).digest() == hashlib.sha256(body).digest()
            assert front.observed.outcomes == [Outcome.SUCCESS]


async def test_within_the_apps_own_range_and_without_its_conditions() -> None:
    lines = ("Range: bytes=10-39", 'If-Match: "v1"', "If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT", "X-Own: 1")
    files = Files(SMALL, [7])
    async with served(files) as (upstream, front):
        reply = await got(front, *lines)
        assert isinstance(reply, Answer)
        assert (reply.status, reply.body) == (206, SMALL[10:40])
        assert files.asked == ["bytes=10-39", "bytes=17-39"]
        again = upstream.requests[1]
        assert (again.one("if-match"), again.one("if-modified-since"), again.one("x-own")) == (None, None, "1")
        assert again.one("x-attempt-count") == "2"


def partial(body: bytes, said: str, *lines: str) -> bytes:
    return answer(206, body, *lines, f"Content-Range: bytes {said}")


#: What is not the rest of 60 bytes after the first 20.
OTHERS: dict[str, Callable[[Turn, int, int], bytes]] = {
    "another entity": lambda turn, first, last: partial(SMALL[first:], f"{first}-{last}/60", 'ETag: "v2"'),
    "no entity tag": lambda turn, first, last: partial(SMALL[first:], f"{first}-{last}/60"),
    "another beginning": lambda turn, first, last: partial(SMALL[first - 1 :], f"{first - 1}-{last}/60", ETAG),
    "another length": lambda turn, first, last: partial(SMALL[first:], f"{first}-{last}/61", ETAG),
    "a length that lies": lambda turn, first, last: partial(SMALL[first:-1], f"{first}-{last}/60", ETAG),
    "no range": lambda turn, first, last: answer(206, SMALL[first:], ETAG),
    "another coding": lambda turn, first, last: partial(
        SMALL[first:], f"{first}-{last}/60", ETAG, "Content-Encoding: gzip"
    ),
    "another date": lambda turn, first, last: partial(
        SMALL[first:], f"{first}-{last}/60", ETAG, "Last-Modified: Fri, 02 Jan 2026 00:00:00 GMT"
    ),
    "416": lambda turn, first, last: answer(416, b"", "Content-Range: bytes */10"),
    "404": lambda turn, first, last: answer(404, b"gone"),
    "503": lambda turn, first, last: answer(503, b"busy"),
    "all of another entity": lambda turn, first, last: answer(200, SMALL, 'ETag: "v2"'),
    "all of another length": lambda turn, first, last: answer(200, SMALL + b"x", ETAG),
    "more than there is": lambda turn, first, last: (
        b"HTTP/1.1 206 Partial Content\r\n%b\r\nContent-Range: bytes %d-%d/60\r\nTransfer-Encoding: chunked\r\n\r\n"
        % (ETAG.encode(), first, last)
        + chunked(SMALL[first:] + b"x")
    ),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_whatever_else_is_answered_the_app_gets_a_reset(name: str) -> None:
    dated = (ETAG, "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT")
    files = Files(SMALL, [20], dated, rest=OTHERS[name])
    async with served(files) as (_, front):
        reply = await got(front)
        assert isinstance(reply, CutError)
        assert SMALL.startswith(reply.answer.body)
        (call,) = await front.observed.until(1)
        assert call["outcome"] is Outcome.COMMITTED
        assert len(files.asked) == 2


async def test_a_rest_that_ends_too_soon_is_broken_too() -> None:
    def short(turn: Turn, first: int, last: int) -> bytes:
        head = (
            b"HTTP/1.1 206 Partial Content\r\n%b\r\nContent-Range: bytes %d-%d/60\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        return head % (ETAG.encode(), first, last) + chunked(SMALL[first : first + 10])

    files = Files(SMALL, [20], rest=short)
    async with served(files) as (_, front):
        reply = await got(front)
        assert isinstance(reply, Answer)
        assert reply.body == SMALL
        assert files.asked == [None, *(f"bytes={at}-" for at in (20, 30, 40, 50))]


async def test_all_of_the_same_entity_is_read_over_up_to_a_bound() -> None:
    def again(turn: Turn, first: int, last: int) -> bytes:
        return answer(200, SMALL, ETAG)

    async with served(Files(SMALL, [20], rest=again)) as (_, front):
        reply = await got(front)
        assert isinstance(reply, Answer)
        assert reply.body == SMALL
    async with served(Files(SMALL, [20], rest=again), resume=Resume(discard=19)) as (_, front):
        assert isinstance(await got(front), CutError)


@pytest.mark.parametrize(
    ("lines", "asks", "policy"),
    [
        ((), (), {}),
        (('ETag: W/"v1"',), (), {}),
        ((ETAG,), ("Authorization: Digest username=a",), {}),
        ((ETAG,), ("Authorization: SharedKey a:b",), {}),
        ((ETAG,), ("X-Retry-Disable: true",), {}),
        ((ETAG,), (), {"strategy": NONE}),
        ((ETAG,), (), {"mode": "off"}),
        ((ETAG,), (), {"mode": "observe"}),
        ((ETAG,), (), {"resume": None}),
        ((ETAG,), (), {"bucket": BucketRef(QuotaSpec(initial=0))}),
        ((ETAG,), (), {"resume": Resume(wait=0.0001)}),
    ],
)
async def test_where_it_may_not_the_answer_does_not_go_on(
    lines: tuple[str, ...], asks: tuple[str, ...], policy: dict[str, Any]
) -> None:
    files = Files(SMALL, [20], lines)
    async with served(files, **policy) as (_, front):
        reply = await got(front, *asks)
        assert isinstance(reply, CutError)
        assert reply.answer.body == SMALL[:20]
        assert len(files.asked) == 1
        assert front.observed.outcomes == [Outcome.COMMITTED]
        if policy.get("mode") == "observe":
            assert front.observed.resumes == [("observed", 0)]


def signed(headers: str, age: float = 0.0) -> tuple[str, str]:
    """The lines of a signature that is so many seconds old: made when the test runs, not when it is collected."""
    made = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y%m%dT%H%M%SZ")
    says = f"AWS4-HMAC-SHA256 Credential=a/20260101/eu/s3/aws4_request, SignedHeaders={headers}, Signature=0"
    return f"Authorization: {says}", f"X-Amz-Date: {made}"


@pytest.mark.parametrize(
    ("lines", "goes_on"),
    [
        (lambda: ("Authorization: Basic YTpi",), True),
        (lambda: ("Authorization: Bearer x",), True),
        (lambda: signed("host;x-amz-date"), True),
        (lambda: signed("host;range;x-amz-date"), False),
        (lambda: signed("host;if-none-match;x-amz-date"), False),
        (lambda: signed("host;x-amz-date", 241.0), False),
        (lambda: signed("host;x-amz-date")[:1], False),
    ],
)
async def test_credentials_that_cover_no_range(lines: Callable[[], tuple[str, ...]], goes_on: bool) -> None:
    async with served(Files(SMALL, [20])) as (_, front):
        reply = await got(front, *lines())
        assert isinstance(reply, Answer if goes_on else CutError)


async def test_other_methods_do_not_go_on() -> None:
    async with served(Files(SMALL, [20])) as (_, front):
        assert isinstance(await got(front, method="POST"), CutError)


async def test_resumptions_without_progress_are_bounded() -> None:
    files = Files(SMALL, [10, *[1] * 20])
    async with served(files, resume=Resume(max=3)) as (_, front):
        reply = await got(front)
        assert isinstance(reply, CutError)
        assert reply.answer.body == SMALL[:13]
        assert len(files.asked) == 4
        assert [result for result, _ in front.observed.resumes] == ["broke"] * 3 + ["refused"]


async def test_each_pays_like_a_retry() -> None:
    async with served(Files(SMALL, [10, 10])) as (_, front):
        await got(front)
        (call,) = await front.observed.until(1)
    assert [each.price for each in call["history"]] == [0.0, 5.0, 5.0]


async def test_silence_counts_as_a_break_if_that_is_asked_for() -> None:
    files = Files(SMALL)

    async def silent(turn: Turn) -> None:
        if turn.request.one("range") is None:
            await turn.write(answer(200, SMALL, ETAG)[:-40])
            await turn.gone()
            return
        await files(turn)

    async with (
        Upstream(silent) as upstream,
        Front(to("api", upstream.url, resume=Resume(stall=0.3))) as front,
    ):
        reply = await got(front)
        assert isinstance(reply, Answer)
        assert reply.body == SMALL
        assert files.asked == ["bytes=20-"]


async def test_an_app_that_leaves_ends_it() -> None:
    held = asyncio.Event()

    async def never(turn: Turn) -> None:
        if turn.request.one("range") is None:
            await turn.write(answer(200, SMALL, ETAG)[:-40])
            turn.close()
            return
        held.set()
        await turn.gone()

    async with Upstream(never) as upstream, Front(to("api", upstream.url, resume=QUICK)) as front, front.app() as app:
        app.send(request("GET", "/api/x", host=app.authority))
        await held.wait()
        app.vanish()
        (call,) = await front.observed.until(1)
        assert call["outcome"] is Outcome.CLIENT_GONE


async def test_over_tls_too(tmp_path: Path) -> None:
    ours = certificates.make(tmp_path)
    files = Files(SMALL, [20, 5])
    async with (
        Upstream(files, tls=ours.server) as upstream,
        Front(to("api", upstream.url, resume=QUICK, target={"verify": str(ours.ca)})) as front,
    ):
        reply = await got(front)
        assert isinstance(reply, Answer)
        assert reply.body == SMALL


async def test_an_interim_answer_before_the_rest_is_dropped() -> None:
    """The app has begun to read the body by then, and would take it for a part of that."""

    def hinted(_: Turn, first: int, last: int) -> bytes:
        said = f"Content-Range: bytes {first}-{last}/{len(SMALL)}"
        hint = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"
        return hint + answer(206, SMALL[first : last + 1], ETAG, said)

    async with served(Files(SMALL, [20], rest=hinted)) as (_, front):
        reply = await got(front)
        assert isinstance(reply, Answer)
        assert (reply.status, reply.body) == (200, SMALL)
