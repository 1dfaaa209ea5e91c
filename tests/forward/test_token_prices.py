"""Calls that are paid in a language model's tokens: the price waits for the body, and is settled by the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.front import AT_ONCE, App, CutError, Front, request, to
from support.scripted import Turn, Upstream, answer, then_close

from proxy.config.classification import dialects
from proxy.config.problems import Mark, Problems
from proxy.config.settings import Buffers
from proxy.retry.facts import Class, Outcome
from proxy.retry.policies.bucket_specs import BucketRef, RateSpec, TokenRules
from proxy.retry.policies.dialect import Classify
from proxy.retry.policies.policy import Concurrency, Fallback, Timeouts

DATE = "Date: Thu, 01 Jan 2026 00:00:00 GMT"
(OPENAI,) = dialects(["openai"], [Mark("", 0, 0)], (), Problems())
assert OPENAI.usage is not None
RULES = TokenRules(output=100, burst=1000, fields=(OPENAI.usage,))
RATE = BucketRef(RateSpec(1e-6, 1000.0, unit="tokens"), "tpm")
PAID: dict[str, Any] = {
    "rate": RATE,
    "tokens": RULES,
    "classify": Classify(statuses={429: Class.THROTTLING}, dialects=(OPENAI,)),
}


def says(prompt: int, output: int) -> bytes:
    return json.dumps({"usage": {"prompt_tokens": prompt, "completion_tokens": output}}).encode()


def asks(maximum: int, size: int = 400) -> bytes:
    body = json.dumps({"model": "m", "max_tokens": maximum, "prompt": ""}).encode()
    return body[:-2] + b"x" * (size - len(body)) + body[-2:]


def level(front: Front) -> float:
    (bucket,) = [each for key, each in front.path.registry._rates.items() if key[1] == "tpm"]
    return round(bucket.level(0.0), 1)


@asynccontextmanager
async def paying(*steps: bytes, **changes: Any) -> AsyncIterator[tuple[Upstream, Front, App]]:
    """An upstream that is paid in tokens, and an app that calls it."""
    async with (
        Upstream(*steps) as upstream,
        Front(to("llm", upstream.url, **{**PAID, **changes})) as front,
        front.app() as app,
    ):
        yield upstream, front, app


async def test_the_answer_settles_what_was_paid() -> None:
    async with paying(answer(200, says(30, 7), DATE, "Content-Type: application/json")) as (_upstream, front, app):
        assert (await app.ask("POST", "/llm/x", body=asks(500))).status == 200
        await front.observed.until(1)
        assert level(front) == 1000 - 37
        assert (await app.ask("GET", "/llm/models")).status == 200  # a request without a body has a price, too
        await front.observed.until(2)
        assert level(front) == 1000 - 74


async def test_a_body_that_trickles_in_is_priced_when_it_is_whole() -> None:
    async with paying(answer(200, b"no json", DATE)) as (upstream, front, app):
        body = asks(500)
        head = request("POST", "/llm/x", f"Content-Length: {len(body)}", host=app.authority)
        app.send(head + body[:100])
        for start in range(100, len(body), 100):
            assert not upstream.requests
            app.send(body[start : start + 100])
        assert (await app.read("POST")).status == 200
        assert upstream.requests[0].body == body
        await front.observed.until(1)
        assert level(front) == 1000 - 600  # nothing says what it cost: what was paid stays


async def test_a_small_buffer_has_room_for_a_body_that_is_awaited() -> None:
    body = asks(500)
    async with (
        Upstream(answer(200, b"no json", DATE)) as upstream,
        Front(to("llm", upstream.url, **PAID), buffers=Buffers(4096, 1 << 20)) as front,
        front.app() as app,
    ):
        app.send(request("POST", "/llm/x", f"Content-Length: {len(body)}", host=app.authority) + body[:100])
        while not any(call.upload and call.upload.size for call in front.calls):  # noqa: ASYNC110  a state
            await asyncio.sleep(0)
        app.send(body[100:])
        assert (await app.read("POST")).status == 200
        await front.observed.until(1)
        assert level(front) == 1000 - 600


async def test_a_stream_is_settled_by_its_last_event() -> None:
    events = b"".join(
        b"data: %s\n\n" % json.dumps(each).encode()
        for each in (
            {"choices": [{"delta": {"content": "hi"}}]},
            {"usage": {"prompt_tokens": 1, "completion_tokens": 2}},
        )
    )
    async with paying(answer(200, events, DATE, "Content-Type: text/event-stream")) as (_upstream, front, app):
        assert (await app.ask("POST", "/llm/x", body=asks(500))).body == events
        await front.observed.until(1)
        assert level(front) == 1000 - 3


async def test_what_fails_gives_back_what_it_can_not_have_used() -> None:
    steps = (
        answer(429, b"", DATE, "Retry-After: 0"),  # all of it comes back
        answer(200, says(100, 100), DATE),
        answer(400, b"{}", DATE),  # the output comes back
        answer(401, b"{}", DATE),  # all of it
    )
    async with paying(*steps) as (_upstream, front, app):
        assert (await app.ask("POST", "/llm/x", body=asks(500))).one("x-attempt-count") == "2"
        await front.observed.until(1)
        assert level(front) == 1000 - 200
        assert (await app.ask("POST", "/llm/x", body=asks(500))).status == 400
        assert (await app.ask("POST", "/llm/x", body=asks(500))).status == 401
        await front.observed.until(3)
        assert level(front) == 1000 - 200 - 100


async def test_an_error_that_says_what_it_cost_is_settled_by_that() -> None:
    """A gateway that fails after its model has answered says so; more may have been used than was expected."""
    json_type = "Content-Type: application/json"
    steps = answer(500, says(30, 7), DATE, json_type), answer(400, says(150, 600), DATE, json_type)
    async with paying(*steps) as (_upstream, front, app):
        assert (await app.ask("POST", "/llm/x", body=asks(500))).status == 500
        await front.observed.until(1)
        assert level(front) == 1000 - 37
        assert (await app.ask("POST", "/llm/x", body=asks(500))).status == 400
        await front.observed.until(2)
        assert level(front) == 1000 - 37 - 750


@pytest.mark.parametrize("counts", [False, True])
async def test_an_error_is_settled_at_its_own_upstream_though_the_call_went_on_to_another(counts: bool) -> None:
    """The other upstream has no place before the deadline, so that the app gets the first one's answer. `counts`: the
    other one's policy counts tokens, too.
    """

    async def hangs(turn: Turn) -> None:
        await asyncio.Event().wait()

    error = answer(500, says(30, 7), DATE, "Content-Type: application/json")
    classify = Classify(statuses={500: Class.TRANSIENT}, dialects=(OPENAI,))
    mine = {**PAID, "classify": classify, "fallback": (Fallback("other"),), "timeouts": Timeouts(total=0.3)}
    theirs: dict[str, Any] = {"tokens": RULES} if counts else {}
    async with Upstream(error) as one, Upstream(hangs) as two:
        first = to("llm", one.url, **mine, strategy=replace(AT_ONCE, max_attempts=1))
        async with (
            Front(first, to("other", two.url, concurrency=Concurrency(1, queue=1), **theirs)) as front,
            front.app() as app,
            front.app() as other,
        ):
            settled = list[tuple[str, float, float]]()
            front.path.env.tokens_used = lambda policy, prompt, output, _: settled.append(
                (policy.upstream, prompt, output)
            )
            other.send(request("GET", "/other/x", host="127.0.0.1"))
            await two.until(1)
            assert (await app.ask("GET", "/llm/x")).status == 500
            (call,) = await front.observed.until(1)
            assert [(each.to, each.skipped) for each in call["fallbacks"]] == [("other", "")]
            assert (level(front), settled) == (1000 - 37, [("llm", 30, 7)])


async def test_an_error_that_breaks_off_gives_nothing_back() -> None:
    """Whether it would have said what it cost is not known."""
    whole = answer(500, says(30, 7), DATE, "Content-Type: application/json")
    async with paying(then_close(whole[:-4])) as (_upstream, front, app):
        with pytest.raises(CutError) as broken:
            await app.ask("POST", "/llm/x", body=asks(500))
        assert broken.value.answer.status == 500
        await front.observed.until(1)
        assert level(front) == 1000 - 600


async def test_an_error_that_is_followed_by_a_retry_gives_the_output_back_at_once() -> None:
    """The retry pays anew, and need not wait for what the failed attempt did not use."""
    steps = answer(503, says(30, 7), DATE), answer(200, says(100, 100), DATE)
    classify = Classify(statuses={503: Class.TRANSIENT}, dialects=(OPENAI,))
    async with paying(*steps, classify=classify) as (_upstream, front, app):
        answered = await app.ask("POST", "/llm/x", "Idempotency-Key: k", body=asks(500))
        assert (answered.status, answered.one("x-attempt-count")) == (200, "2")
        await front.observed.until(1)
        assert level(front) == 1000 - 100 - 200


async def test_a_call_that_does_not_fit_is_refused_where_the_bucket_rejects() -> None:
    rejects = BucketRef(RateSpec(1e-6, 1000.0, when_empty="reject", unit="tokens"), "tpm")
    async with paying(answer(200, b"", DATE), rate=rejects) as (upstream, _front, app):
        assert (await app.ask("POST", "/llm/x", body=asks(800))).status == 200
        refused = await app.ask("POST", "/llm/x", body=asks(800))
        said = refused.one("proxy-status") or ""
        assert refused.status == 503 and "rate_limited" in said
        assert "it is estimated at 900 tokens, and the upstream's rate bucket has 100 left" in said
        assert int(refused.one("retry-after") or 0) == pytest.approx(800e6, rel=1e-3), "800 tokens more, one in 11 days"
        assert len(upstream.requests) == 1


async def test_all_buckets_of_a_list_are_paid() -> None:
    requests = BucketRef(RateSpec(1e-6, 2.0, when_empty="reject"), "rpm")
    async with paying(answer(200, says(10, 10), DATE), rate=requests, more_rates=(RATE,)) as (_upstream, front, app):
        statuses = [(await app.ask("POST", "/llm/x", body=asks(100))).status for _ in range(3)]
        assert statuses == [200, 200, 503]
        await front.observed.until(3)
        levels = {key[1]: round(each.level(0.0)) for key, each in front.path.registry._rates.items()}
        assert levels == {"rpm": 0, "tpm": 960}


async def test_an_app_that_waits_for_100_continue_is_not_kept_waiting() -> None:
    async with paying(answer(200, says(1, 1), DATE)) as (upstream, _front, app):
        app.send(request("POST", "/llm/x", "Expect: 100-continue", "Content-Length: 4", host=app.authority))
        await upstream.until(1)
        app.send(b"body")
        assert (await app.read("POST")).status == 200


@pytest.mark.parametrize(
    ("timeouts", "lines"),
    [(Timeouts(total=0.05), ()), (Timeouts(), ("X-Retry-Timeout: 50ms",)), (Timeouts(), ("X-Retry-Timeout: 0.05",))],
)
async def test_a_body_that_does_not_come_is_awaited_until_the_deadline(
    timeouts: Timeouts, lines: tuple[str, ...]
) -> None:
    async with paying(answer(200, says(1, 1), DATE), timeouts=timeouts) as (upstream, front, app):
        app.send(request("POST", "/llm/x", *lines, "Content-Length: 4", host=app.authority) + b"bo")
        reply = await app.read("POST")
        assert (reply.status, reply.one("x-attempt-count")) == (504, "0")
        (call,) = await front.observed.until(1)
        assert (call["outcome"], upstream.requests) == (Outcome.DEADLINE, [])
        assert level(front) == 1000
