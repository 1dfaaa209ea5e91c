"""Errors in the XML of a success, and forms without a signature, on the wire (contract, section 15)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.front import CLASSIFY, Front, chunked, request, to
from support.scripted import Turn, Upstream, answer, reset

from proxy.config.classification import dialects
from proxy.config.problems import Mark, Problems
from proxy.retry.facts import Outcome
from proxy.retry.policies.dialect import Classify

(AWS,) = dialects(["aws"], [Mark("", 0, 0)], (), Problems())
assert AWS.inside is not None


def classified(awake: float = 20.0, *, hosts: tuple[str, ...] = ()) -> Classify:
    assert AWS.inside is not None
    pack = replace(AWS, inside=replace(AWS.inside, awake=awake))
    lists = CLASSIFY.statuses, {}, CLASSIFY.faults
    return Classify(*lists, (), (pack,), unsafe_methods="provider", own_dialects=True, hosts=hosts)


XML = "Content-Type: application/xml"
OPEN = answer(200, b"", XML, "Transfer-Encoding: chunked", length=False)
DECLARED = b'<?xml version="1.0" encoding="UTF-8"?>\n'
FAILED = DECLARED + b" \n <Error><Code>InternalError</Code></Error>"
DONE = DECLARED + b" \n <CopyObjectResult><ETag>x</ETag></CopyObjectResult>"
COPY = "X-Amz-Copy-Source: /b/k"
SDK = ("Authorization: AWS4-HMAC-SHA256 Credential=x", "amz-sdk-invocation-id: a")


@pytest.mark.parametrize("pieces", [1, 7, 1000])
@pytest.mark.parametrize("sized", [True, False])
async def test_a_copy_that_failed_inside_its_200_is_made_again(pieces: int, sized: bool) -> None:
    async def failed(turn: Turn) -> None:
        await turn.read_body()
        if sized:
            await turn.write(answer(200, FAILED, XML)[: -len(FAILED)])
        else:
            await turn.write(OPEN)
        for at in range(0, len(FAILED), pieces):
            piece = FAILED[at : at + pieces]
            await turn.write(piece if sized else chunked(piece)[:-5])
            await asyncio.sleep(0)
        if not sized:
            await turn.write(b"0\r\n\r\n")

    async with (
        Upstream(failed, answer(200, DONE, XML)) as upstream,
        Front(to("api", upstream.url, classify=classified())) as front,
        front.app() as app,
    ):
        reply = await app.ask("PUT", "/api/b/k", COPY)
        assert (reply.status, reply.body, reply.one("x-attempt-count")) == (200, DONE, "2")
        (call,) = await front.observed.until(1)
    assert call["history"][0].because == "transient: 500, inside a 200"


async def test_the_end_of_an_upload_too_and_one_that_went_well_is_not_repeated() -> None:
    async with (
        Upstream(answer(200, FAILED, XML), answer(200, DONE, XML)) as upstream,
        Front(to("api", upstream.url, classify=classified())) as front,
        front.app() as app,
    ):
        for _ in range(2):
            assert (await app.ask("POST", "/api/b/k?uploadId=1", *SDK, body=b"<x/>")).body == DONE
        assert [each.body for each in upstream.requests] == [b"<x/>"] * 3
        assert (await app.ask("POST", "/api/b/k?uploadId=1", body=b"<x/>")).body == DONE
    assert front.observed.outcomes == [Outcome.SUCCESS] * 3


async def test_white_space_goes_on_once_it_has_come_for_long_enough() -> None:
    go_on = asyncio.Event()

    async def works(turn: Turn) -> None:
        await turn.read_body()
        await turn.write(OPEN + chunked(DECLARED)[:-5])
        await go_on.wait()
        await turn.write(chunked(FAILED[len(DECLARED) :]))

    async with (
        Upstream(works) as upstream,
        Front(to("api", upstream.url, classify=classified(0.02))) as front,
        front.app() as app,
    ):
        app.send(request("PUT", "/api/b/k", COPY, host=app.authority))
        assert (await app.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert DECLARED in await app.reader.readexactly(len(DECLARED) + 6)
        go_on.set()
        await front.observed.until(1)
        assert front.observed.outcomes == [Outcome.SUCCESS]
        assert len(upstream.requests) == 1


FORM = b"Action=AssumeRoleWithWebIdentity&Version=2011-06-15&WebIdentityToken=x"


@pytest.mark.parametrize(
    ("body", "lines", "hosts", "repeated"),
    [
        (FORM, ("amz-sdk-invocation-id: a",), ("sts.amazonaws.com",), True),
        (FORM, ("amz-sdk-invocation-id: a",), ("s3.amazonaws.com",), False),
        (FORM, (), ("sts.amazonaws.com",), False),
        (b"Action=AssumeRole", ("amz-sdk-invocation-id: a",), ("sts.amazonaws.com",), False),
    ],
)
async def test_a_form_to_sts_needs_no_signature(
    body: bytes, lines: tuple[str, ...], hosts: tuple[str, ...], repeated: bool
) -> None:
    async with (
        Upstream(reset, answer(200, b"ok")) as upstream,
        Front(to("api", upstream.url, classify=classified(hosts=hosts))) as front,
        front.app() as app,
    ):
        reply = await app.ask("POST", "/api/", *lines, body=body)
        assert (reply.status, len(upstream.requests)) == ((200, 2) if repeated else (502, 1))


async def test_our_own_answer_to_a_form_of_an_aws_sdk_without_a_signature_is_xml() -> None:
    form = "Content-Type: application/x-www-form-urlencoded; charset=utf-8"
    async with (
        Upstream(reset) as upstream,
        Front(to("api", upstream.url, classify=classified(hosts=("sts.amazonaws.com",)))) as front,
        front.app() as app,
    ):
        reply = await app.ask("POST", "/api/", "amz-sdk-invocation-id: a", form, body=b"Action=GetCallerIdentity")
        assert (reply.status, reply.one("content-type")) == (502, "application/xml")
        assert b"<ErrorResponse><Error><Code>BadGateway</Code>" in reply.body
        reply = await app.ask("POST", "/api/", form, body=b"Action=GetCallerIdentity")
        assert reply.one("content-type") == "application/problem+json"
