"""The clients that people really have in front of a sidecar: boto3, openai, stripe, each against a scripted provider.

What is shown: failures that the client would see are ridden out; a client that is told to stop does not retry on top;
one that retries all the same is recognised, charged and counted; idempotency keys are one for each call, and an app's
own is never touched. gRPC's client (grpcio) speaks HTTP/2 alone: see test_grpc.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from support.late import Late
from support.process import Redrive
from support.scripted import Step, Turn, Upstream, answer, hang

T = TypeVar("T")

boto3, openai, stripe = Late("boto3"), Late("openai"), Late("stripe")
botocore_config, botocore_errors = Late("botocore.config"), Late("botocore.exceptions")

#: No wait of ours but what an upstream asks for.
AT_ONCE = "backoff: {base: 0s, jitter: none}"


@pytest.fixture(autouse=True)
def clients_do_not_wait(monkeypatch: pytest.MonkeyPatch, no_surroundings: None) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)


async def ask(call: Callable[[], T]) -> T:
    """A client's blocking call, beside the loop that plays the provider."""
    return await asyncio.to_thread(call)


async def levels(redrive: Redrive) -> list[float]:
    async with aiohttp.ClientSession() as session, session.get(f"{redrive.admin}/buckets") as got:
        return [bucket["level"] for bucket in json.loads(await got.text())["buckets"]]


async def app_retries(redrive: Redrive) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"{redrive.admin}/metrics") as got:
        lines = [line for line in (await got.text()).splitlines() if line.startswith("redrive_app_retries_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


# -- boto3 ------------------------------------------------------------------------------------------------------------


def dynamodb(upstream: Upstream, redrive: Redrive, attempts: int) -> Any:
    """As config/examples/aws.yaml says: the service's own name, through HTTP_PROXY."""
    config = botocore_config.Config(
        proxies={"http": redrive.url}, retries={"total_max_attempts": attempts, "mode": "standard"}
    )
    return boto3.client(
        "dynamodb",
        endpoint_url=upstream.url,
        region_name="eu-central-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=config,
    )


def aws(upstream: Upstream, strategy: str) -> str:
    return f"upstreams:\n  aws:\n    url: {upstream.url}\n    dialects: [http, aws]\n    strategy: {strategy}\n"


THROTTLED = answer(
    400,
    b'{"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "slow"}',
    "Content-Type: application/x-amz-json-1.0",
)
TABLES = answer(200, b'{"TableNames": ["orders"]}', "Content-Type: application/x-amz-json-1.0")


async def test_boto3_never_sees_a_throttling_that_is_ridden_out(tmp_path: Path) -> None:
    more = f"{{kind: standard, {AT_ONCE}}}"
    async with (
        Upstream(THROTTLED, answer(500), TABLES) as upstream,
        Redrive(tmp_path, aws(upstream, more)) as redrive,
    ):
        client = dynamodb(upstream, redrive, attempts=1)
        got = await ask(client.list_tables)
    assert got["TableNames"] == ["orders"]
    assert got["ResponseMetadata"]["HTTPHeaders"]["x-attempt-count"] == "3"
    assert got["ResponseMetadata"]["RetryAttempts"] == 0
    assert [request.one("x-attempt-count") for request in upstream.requests] == ["1", "2", "3"]
    # what the SDK has signed, and may have signed, is the same on every attempt
    for name in ("authorization", "host", "x-amz-date", "x-amz-target", "amz-sdk-request", "amz-sdk-invocation-id"):
        assert len({request.one(name) for request in upstream.requests}) == 1, name
    assert upstream.requests[0].one("amz-sdk-request") == "attempt=1; max=1"
    assert len({request.body for request in upstream.requests}) == 1


async def test_boto3_that_retries_by_itself_is_charged_and_counted(tmp_path: Path) -> None:
    async with (
        Upstream(THROTTLED) as upstream,
        Redrive(tmp_path, aws(upstream, "{kind: standard, max_attempts: 1}")) as redrive,
    ):
        client = dynamodb(upstream, redrive, attempts=3)
        with pytest.raises(botocore_errors.ClientError, match="ProvisionedThroughputExceeded"):
            await ask(client.list_tables)
        assert await levels(redrive) == [490]  # its second and third try, 5 each
        assert await app_retries(redrive) == 2
    marks = [request.one("amz-sdk-request") for request in upstream.requests]
    assert [str(mark).partition("attempt=")[2] for mark in marks] == ["1; max=3", "2; max=3", "3; max=3"]
    assert len({request.one("amz-sdk-invocation-id") for request in upstream.requests}) == 1


def continued(then: bytes) -> Step:
    """S3 as it is: the body is asked for, where the client waits for that."""

    async def step(turn: Turn) -> None:
        if turn.request.one("expect") is not None:
            await turn.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await turn.read_body()
        await turn.write(then)

    return step


async def test_boto3_puts_an_object_once_and_its_body_is_sent_twice(tmp_path: Path) -> None:
    slow_down = answer(503, b"<Error><Code>SlowDown</Code></Error>", "Content-Type: application/xml")
    stored = answer(200, b"", 'ETag: "0123"')
    body = bytes(range(256)) * 400
    async with (
        Upstream(continued(slow_down), continued(stored)) as upstream,
        Redrive(tmp_path, aws(upstream, f"{{kind: standard, {AT_ONCE}}}")) as redrive,
    ):
        config = botocore_config.Config(
            proxies={"http": redrive.url}, retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}
        )
        client = boto3.client(
            "s3",
            endpoint_url=upstream.url,
            region_name="eu-central-1",
            aws_access_key_id="AKIDEXAMPLE",
            aws_secret_access_key="secret",
            config=config,
        )
        got = await ask(lambda: client.put_object(Bucket="bucket", Key="key", Body=body))
        line = await redrive.call()
    assert got["ETag"] == '"0123"'
    assert [request.one("expect") for request in upstream.requests] == ["100-continue"] * 2
    assert [request.target for request in upstream.requests] == ["/bucket/key"] * 2
    assert [body in request.body for request in upstream.requests] == [True, True]
    assert upstream.requests[0].body == upstream.requests[1].body
    assert line["history"][0]["because"] == "dialect aws: SlowDown"


# -- openai -----------------------------------------------------------------------------------------------------------


def openai_client(redrive: Redrive, retries: int) -> Any:
    return openai.OpenAI(api_key="sk-test", base_url=f"{redrive.url}/openai/v1", max_retries=retries)


def complete(client: Any) -> Callable[[], Any]:
    return lambda: client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])


COMPLETION = answer(
    200,
    json.dumps(
        {
            "id": "c-1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
        }
    ).encode(),
    "Content-Type: application/json",
)
#: A delay of a millisecond, so that a client which retries does not make the test wait.
FAILED = answer(500, b'{"error": {"message": "no"}}', "Content-Type: application/json", "Retry-After-Ms: 1")


def openai_config(upstream: Upstream, more: str = "", dialect: str = "openai") -> str:
    lines = ["upstreams:", "  openai:", f"    url: {upstream.url}", f"    dialects: [http, {dialect}]", more]
    return "\n".join(lines) + "\n"


TWICE = f"    strategy: {{kind: standard, max_attempts: 2, {AT_ONCE}}}"  # POSTs too, as the client itself does


async def test_openai_never_sees_a_failure_that_is_ridden_out(tmp_path: Path) -> None:
    async with (
        Upstream(FAILED, COMPLETION) as upstream,
        Redrive(tmp_path, openai_config(upstream, TWICE)) as redrive,
    ):
        got = await ask(complete(openai_client(redrive, retries=0)))
    assert got.choices[0].message.content == "hi"
    assert [request.target for request in upstream.requests] == ["/v1/chat/completions"] * 2


async def test_openai_stops_where_the_sidecar_has_given_up(tmp_path: Path) -> None:
    async with (
        Upstream(FAILED) as upstream,
        Redrive(tmp_path, openai_config(upstream, TWICE)) as redrive,
    ):
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(complete(openai_client(redrive, retries=5)))
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.response.headers["x-attempt-count"] == "2"
    assert "outcome=attempts_exhausted" in caught.value.response.headers["proxy-status"]
    assert len(upstream.requests) == 2  # and not 2 x 6


async def test_openai_may_go_on_where_nothing_was_retried_here_and_is_charged_for_it(tmp_path: Path) -> None:
    never = "    classify: {unsafe_methods: unprocessed}"  # a POST, and a 500 proves nothing: not retried here
    async with (
        Upstream(FAILED) as upstream,
        Redrive(tmp_path, openai_config(upstream, never)) as redrive,
    ):
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(complete(openai_client(redrive, retries=2)))
        assert await levels(redrive) == [490]
        assert await app_retries(redrive) == 2
    assert "x-should-retry" not in caught.value.response.headers
    assert [request.one("x-stainless-retry-count") for request in upstream.requests] == ["0", "1", "2"]


@pytest.mark.parametrize(("dialect", "coding"), [("openai", ""), ("openai", "gzip"), ("azure", "")])
async def test_a_limit_of_tokens_is_waited_for_whatever_remains_of_it(
    tmp_path: Path, dialect: str, coding: str
) -> None:
    """Nobody waits here: 9.816 s are above one `max_delay` and within the other, and then beyond the app's deadline."""
    told = b'{"error": {"message": "Limit 10000, Used 8554", "type": "tokens", "code": "rate_limit_exceeded"}}'
    limited = answer(
        429,
        gzip.compress(told) if coding else told,
        "Content-Type: application/json",
        *(f"Content-Encoding: {each}" for each in (coding,) if each),
        "x-ratelimit-remaining-requests: 59",
        "x-ratelimit-reset-requests: 1s",
        "x-ratelimit-remaining-tokens: 1446",
        "x-ratelimit-reset-tokens: 9.816s",
    )
    outcomes = []
    for longest, deadline in (("9815ms", "60s"), ("9816ms", "9.8s")):
        async with (
            Upstream(limited) as upstream,
            Redrive(tmp_path, openai_config(upstream, f"    pushback: {{max_delay: {longest}}}", dialect)) as redrive,
        ):
            client = openai_client(redrive, retries=0).with_options(default_headers={"x-retry-timeout": deadline})
            with pytest.raises(openai.RateLimitError):
                await ask(complete(client))
            outcomes.append((await redrive.call())["outcome"])
        assert len(upstream.requests) == 1
    assert outcomes == ["pushback_too_long", "deadline"]


async def test_an_injected_key_is_one_for_each_call(tmp_path: Path) -> None:
    inject = f"    idempotency_key: {{inject: true}}\n    strategy: {{kind: standard, {AT_ONCE}}}"
    async with (
        Upstream(FAILED, FAILED, COMPLETION, FAILED, COMPLETION) as upstream,
        Redrive(tmp_path, openai_config(upstream, inject)) as redrive,
    ):
        client = openai_client(redrive, retries=0)
        await ask(complete(client))
        await ask(complete(client))
    keys = [request.one("idempotency-key") for request in upstream.requests]
    assert all(keys)
    assert len(set(keys[:3])) == 1
    assert len(set(keys[3:])) == 1
    assert keys[0] != keys[3]


async def test_an_injected_key_is_the_same_on_every_hedge(tmp_path: Path) -> None:
    inject = "    idempotency_key: {inject: true}\n    strategy: {kind: hedging, hedging_delay: 0s}"
    async with (
        Upstream(hang, hang, COMPLETION) as upstream,
        Redrive(tmp_path, openai_config(upstream, inject)) as redrive,
    ):
        got = await ask(complete(openai_client(redrive, retries=0)))
    assert got.choices[0].message.content == "hi"
    assert len(upstream.requests) == 3
    keys = {request.one("idempotency-key") for request in upstream.requests}
    assert len(keys) == 1 and keys != {None}


# -- stripe -----------------------------------------------------------------------------------------------------------


def stripe_client(redrive: Redrive, retries: int) -> Any:
    """The library's own client, without its waits."""
    http = stripe.RequestsClient()
    http._sleep_time_seconds = lambda num_retries, response=None: 0.0
    return stripe.StripeClient(
        "sk_test_x",
        base_addresses={"api": f"{redrive.url}/stripe"},
        max_network_retries=retries,
        http_client=http,
    )


def stripe_config(upstream: Upstream, more: str = "") -> str:
    lines = ["upstreams:", "  stripe:", f"    url: {upstream.url}", "    dialects: [http, stripe]", more]
    return "\n".join(lines) + "\n"


LOCKED = answer(409, b'{"error": {"code": "lock_timeout", "message": "busy"}}', "Content-Type: application/json")
CUSTOMER = answer(200, b'{"id": "cus_1", "object": "customer"}', "Content-Type: application/json")
DOWN = answer(503, b'{"error": {"message": "down"}}', "Content-Type: application/json")


async def test_stripe_keeps_its_own_key_and_never_sees_a_lock(tmp_path: Path) -> None:
    more = f"    idempotency_key: {{inject: true}}\n    strategy: {{kind: standard, {AT_ONCE}}}"
    async with (
        Upstream(LOCKED, DOWN, CUSTOMER) as upstream,
        Redrive(tmp_path, stripe_config(upstream, more)) as redrive,
    ):
        client = stripe_client(redrive, retries=0)
        got = await ask(lambda: client.v1.customers.create({}, {"idempotency_key": "order-7"}))
    assert got.id == "cus_1"
    assert [request.one("idempotency-key") for request in upstream.requests] == ["order-7"] * 3
    assert [request.target for request in upstream.requests] == ["/v1/customers"] * 3


async def test_stripe_that_retries_by_itself_is_recognised_by_its_key(tmp_path: Path) -> None:
    async with (
        Upstream(DOWN) as upstream,
        Redrive(tmp_path, stripe_config(upstream, "    strategy: {kind: standard, max_attempts: 1}")) as redrive,
    ):
        client = stripe_client(redrive, retries=2)
        with pytest.raises(stripe.APIError):
            await ask(lambda: client.v1.customers.create({}))
        assert await levels(redrive) == [490]
        assert await app_retries(redrive) == 2
    keys = {request.one("idempotency-key") for request in upstream.requests}
    assert len(upstream.requests) == 3
    assert len(keys) == 1 and keys != {None}


async def test_stripe_does_not_retry_on_top_where_the_sidecar_gave_up(tmp_path: Path) -> None:
    """The provider says nothing, and Stripe's library reads no x-should-retry."""
    async with (
        Upstream(DOWN) as upstream,
        Redrive(tmp_path, stripe_config(upstream, f"    strategy: {{kind: standard, {AT_ONCE}}}")) as redrive,
    ):
        client = stripe_client(redrive, retries=3)
        with pytest.raises(stripe.APIError):
            await ask(lambda: client.v1.customers.create({}))
    assert len(upstream.requests) == 3


@pytest.mark.parametrize(
    ("said", "attempts", "outcome"), [("true", 3, "attempts_exhausted"), ("false", 1, "pushback_stop")]
)
async def test_stripes_own_word_on_another_try(tmp_path: Path, said: str, attempts: int, outcome: str) -> None:
    """Its wish for one ends where the sidecar gave up, and its stop reaches both."""
    body = b'{"error": {"message": "no"}}'
    fails = answer(500, body, "Content-Type: application/json", f"Stripe-Should-Retry: {said}")
    async with (
        Upstream(fails) as upstream,
        Redrive(tmp_path, stripe_config(upstream, f"    strategy: {{kind: standard, {AT_ONCE}}}")) as redrive,
    ):
        client = stripe_client(redrive, retries=3)
        with pytest.raises(stripe.APIError):
            await ask(lambda: client.v1.customers.create({}))
        line = await redrive.call()
    assert len(upstream.requests) == attempts
    assert line["outcome"] == outcome
