"""The providers' official SDKs, unmodified, as an app has them: straight at a provider, or as our recipes say.

An `Sdk` names its package, the recipe (a file of config/examples and an upstream in it) and the calls that are tried.
`connect` makes a client; `retries` tells whether the SDK's own are on, by its defaults, or off in the way that the
recipe names. Nothing of the developer's own keys, profiles and proxies reaches a client, and no client waits between
its tries: `alone()` sees to both.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol
from unittest import mock

from support.late import Late
from support.scripted import answer

anthropic, boto3, openai, stripe = Late("anthropic"), Late("boto3"), Late("openai"), Late("stripe")
azure, policies, rest = Late("azure.core"), Late("azure.core.pipeline.policies"), Late("azure.core.rest")
botocore = Late("botocore.config")
JSON = "Content-Type: application/json"
#: Held by the thread that has changed the environment.
_ENVIRONMENT = threading.Lock()


@dataclass(frozen=True)
class Place:
    """Where a client is to go: the provider itself, or, with `proxy`, what the app is told of redrive.

    `prefix` is the base URL in reverse use (`http://127.0.0.1:8080/openai`), `proxy` goes into HTTP_PROXY.
    """

    upstream: str
    prefix: str = ""
    proxy: str = ""

    @property
    def base(self) -> str:
        return self.prefix or self.upstream


class Connect(Protocol):
    """Makes a client. `timeout` is how long it waits for an answer, in seconds; None: its own default."""

    def __call__(self, place: Place, *, retries: bool, timeout: float | None) -> Any: ...


@dataclass(frozen=True)
class Call:
    """One call of an SDK: what it is called, the method that it sends, how it is made and what the provider answers."""

    name: str
    method: str
    make: Callable[[Any], Any]
    ok: bytes


@dataclass(frozen=True)
class Sdk:
    """`package` as it is installed, `off` how a user takes its retries away, `named_errors` what its
    calls raise, as `pkgutil.resolve_name` finds it.

    `by_proxy`: the app comes by HTTP_PROXY, since it signs the host; else by a base URL. `stops`: it heeds redrive's
    last word. `answers`: failures that only its provider answers with, by what the page calls them. `host`: the name of
    its provider's host, if what is repeated depends on that, with `{}` for an upstream's name; a parent proxy leads
    there. `error`: the body of an error and the line of its type.
    """

    name: str
    package: str
    recipe: str
    upstream: str
    off: str
    connect: Connect
    calls: tuple[Call, ...]
    named_errors: tuple[str, ...]
    by_proxy: bool = False
    stops: bool = True
    answers: dict[str, bytes] = field(default_factory=dict)
    host: str = ""
    error: tuple[bytes, str] = (b'{"error": {"message": "no"}}', JSON)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return tuple(map(pkgutil.resolve_name, self.named_errors))


@contextlib.contextmanager
def alone(slept: Callable[[], None] = lambda: None, **env: str) -> Iterator[None]:
    """No waits in this process, `slept` is called in their place; and nothing of the developer's in the environment."""
    # The last two say which redrive begins beside it, and where its bytecode is.
    names = ("PATH", "LANG", "TMPDIR", "REDRIVE_PURE", "PYTHONPYCACHEPREFIX")
    kept = {name: value for name, value in os.environ.items() if name in names}
    nothing = {"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "HOME": "/nonexistent"}
    nothing["SSL_CERT_DIR"] = "/nonexistent"  # each client would read all certificates; here none meets TLS
    with (
        mock.patch.dict(os.environ, {**kept, **nothing, **env}, clear=True),
        mock.patch("time.sleep", lambda seconds: slept()),
    ):
        yield


def _boto3(service: str) -> Connect:
    def connect(place: Place, *, retries: bool, timeout: float | None) -> Any:
        more: dict[str, Any] = {} if timeout is None else {"read_timeout": timeout}
        if place.proxy:
            more["proxies"] = {"http": place.proxy}
        with _ENVIRONMENT, mock.patch.dict(os.environ, {} if retries else {"AWS_MAX_ATTEMPTS": "1"}):
            return boto3.client(
                service,
                endpoint_url=place.upstream,
                region_name="eu-central-1",
                aws_access_key_id="AKIDEXAMPLE",
                aws_secret_access_key="secret",
                config=botocore.Config(s3={"addressing_style": "path"}, **more),
            )

    return connect


def _openai(place: Place, *, retries: bool, timeout: float | None) -> Any:
    more: dict[str, Any] = {} if retries else {"max_retries": 0}
    return openai.OpenAI(api_key="sk-test", base_url=f"{place.base}/v1", timeout=timeout or openai.NOT_GIVEN, **more)


def _anthropic(place: Place, *, retries: bool, timeout: float | None) -> Any:
    more: dict[str, Any] = {} if retries else {"max_retries": 0}
    return anthropic.Anthropic(api_key="sk-test", base_url=place.base, timeout=timeout or anthropic.NOT_GIVEN, **more)


def _stripe(place: Place, *, retries: bool, timeout: float | None) -> Any:
    """A StripeClient retries nothing unless it is told to; the library's global setting is two retries."""
    return stripe.StripeClient(
        "sk_test_x",
        base_addresses={"api": place.base},
        http_client=stripe.RequestsClient(**({} if timeout is None else {"timeout": timeout})),
        max_network_retries=stripe.max_network_retries if retries else 0,
    )


def _azure(place: Place, *, retries: bool, timeout: float | None) -> Any:
    """A client of azure-core as the service libraries make them; the retry policy is the one that they share."""
    used: list[Any] = [policies.RetryPolicy(**({} if retries else {"retry_total": 0}))]
    if place.proxy:
        used.insert(0, policies.ProxyPolicy({"http": place.proxy}))
    return azure.PipelineClient(place.upstream, policies=used, **({} if timeout is None else {"read_timeout": timeout}))


def _asked(method: str) -> Callable[[Any], Any]:
    def make(client: Any) -> Any:
        body = None if method in ("GET", "DELETE") else {"block": "x" * _LARGE}
        response = client.send_request(rest.HttpRequest(method, client.format_url("/things/1"), json=body))
        response.raise_for_status()
        return response

    return make


def _json(value: object) -> bytes:
    return answer(200, json.dumps(value).encode(), JSON)


_COMPLETION = {
    "id": "c-1",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
}
_MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
#: More than the default of buffers.per_request, as an image in a prompt or a part of an upload is.
_LARGE = 1_500_000
_HELLO: list[Any] = [{"role": "user", "content": "hello" * (_LARGE // 5)}]
_AMZ_JSON, _XML = "Content-Type: application/x-amz-json-1.0", "Content-Type: application/xml"
_DYNAMODB = answer(200, b"{}", _AMZ_JSON)
_ROLE = "arn:aws:iam::123456789012:role/app"


def _assumed(action: str) -> bytes:
    given = (
        "<Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
        "<Expiration>2030-01-01T00:00:00Z</Expiration></Credentials>"
    )
    text = f"<{action}Response><{action}Result>{given}</{action}Result></{action}Response>"
    return answer(200, text.encode(), "Content-Type: text/xml")


SDKS = (
    Sdk(
        "boto3 (DynamoDB)",
        "botocore",
        "aws.yaml",
        "dynamodb",
        "`AWS_MAX_ATTEMPTS=1`",
        _boto3("dynamodb"),
        (
            Call(
                "PutItem",
                "POST",
                lambda client: client.put_item(TableName="orders", Item={"id": {"S": "7"}}),
                _DYNAMODB,
            ),
            Call(
                "GetItem",
                "POST",
                lambda client: client.get_item(TableName="orders", Key={"id": {"S": "7"}}),
                _DYNAMODB,
            ),
        ),
        ("botocore.exceptions:BotoCoreError", "botocore.exceptions:ClientError"),
        by_proxy=True,
        stops=False,
        answers={
            f"400 `{code}`": answer(
                400, b'{"__type": "com.amazonaws.dynamodb.v20120810#%b"}' % code.encode(), _AMZ_JSON
            )
            for code in ("ThrottlingException", "RequestTimeoutException")
        },
    ),
    Sdk(
        "boto3 (S3)",
        "botocore",
        "aws.yaml",
        "s3",
        "`AWS_MAX_ATTEMPTS=1`",
        _boto3("s3"),
        (
            Call(
                "PutObject",
                "PUT",
                lambda client: client.put_object(Bucket="bucket", Key="key", Body=bytes(_LARGE)),
                answer(200, b"", 'ETag: "0123"'),
            ),
            Call(
                "GetObject",
                "GET",
                lambda client: client.get_object(Bucket="bucket", Key="key")["Body"].read(),
                answer(200, b"body", 'ETag: "0123"'),
            ),
            Call(
                "CreateMultipartUpload",
                "POST",
                lambda client: client.create_multipart_upload(Bucket="bucket", Key="key"),
                answer(
                    200,
                    b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>",
                    _XML,
                ),
            ),
        ),
        ("botocore.exceptions:BotoCoreError", "botocore.exceptions:ClientError"),
        by_proxy=True,
        stops=False,
        answers={
            f"{status} `{code}`": answer(status, b"<Error><Code>%b</Code></Error>" % code.encode(), _XML)
            for status, code in ((503, "SlowDown"), (400, "RequestTimeout"))
        },
    ),
    Sdk(
        "boto3 (S3, copies and the end of uploads)",
        "botocore",
        "aws.yaml",
        "s3",
        "`AWS_MAX_ATTEMPTS=1`",
        _boto3("s3"),
        (
            Call(
                "CopyObject",
                "PUT",
                lambda client: client.copy_object(Bucket="bucket", Key="key", CopySource="bucket/other"),
                answer(200, b"<CopyObjectResult><ETag>0123</ETag></CopyObjectResult>", _XML),
            ),
            Call(
                "CompleteMultipartUpload",
                "POST",
                lambda client: client.complete_multipart_upload(
                    Bucket="bucket",
                    Key="key",
                    UploadId="1",
                    MultipartUpload={"Parts": [{"ETag": "0123", "PartNumber": 1}]},
                ),
                answer(
                    200,
                    b"<CompleteMultipartUploadResult><ETag>0123</ETag></CompleteMultipartUploadResult>",
                    _XML,
                ),
            ),
        ),
        ("botocore.exceptions:BotoCoreError", "botocore.exceptions:ClientError"),
        by_proxy=True,
        stops=False,
        answers={
            f"200 with `{code}` in it": answer(200, b"<Error><Code>%b</Code></Error>" % code.encode(), _XML)
            for code in ("InternalError", "SlowDown")
        },
    ),
    Sdk(
        "boto3 (STS)",
        "botocore",
        "aws.yaml",
        "sts",
        "`AWS_MAX_ATTEMPTS=1`",
        _boto3("sts"),
        (
            Call(
                "AssumeRoleWithWebIdentity",
                "POST",
                lambda client: client.assume_role_with_web_identity(
                    RoleArn=_ROLE, RoleSessionName="app", WebIdentityToken="token"
                ),
                _assumed("AssumeRoleWithWebIdentity"),
            ),
            Call(
                "AssumeRole",
                "POST",
                lambda client: client.assume_role(RoleArn=_ROLE, RoleSessionName="app"),
                _assumed("AssumeRole"),
            ),
        ),
        (
            "botocore.exceptions:BotoCoreError",
            "botocore.exceptions:ClientError",
            "botocore.parsers:ResponseParserError",
        ),
        by_proxy=True,
        stops=False,
        answers={
            "400 `Throttling`": answer(
                400, b"<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>", "Content-Type: text/xml"
            )
        },
        host="sts.{}.test",
        error=(b"<ErrorResponse><Error><Code>No</Code></Error></ErrorResponse>", "Content-Type: text/xml"),
    ),
    Sdk(
        "openai",
        "openai",
        "openai.yaml",
        "openai",
        "`max_retries=0`",
        _openai,
        (
            Call(
                "chat.completions.create",
                "POST",
                lambda client: client.chat.completions.create(model="m", messages=_HELLO),
                _json(_COMPLETION),
            ),
            Call("models.list", "GET", lambda client: client.models.list(), _json({"object": "list", "data": []})),
        ),
        ("openai:OpenAIError",),
        answers={"400 with `x-should-retry: true`": answer(400, b"{}", JSON, "x-should-retry: true")},
    ),
    Sdk(
        "anthropic",
        "anthropic",
        "anthropic.yaml",
        "anthropic",
        "`max_retries=0`",
        _anthropic,
        (
            Call(
                "messages.create",
                "POST",
                lambda client: client.messages.create(model="m", max_tokens=1, messages=_HELLO),
                _json(_MESSAGE),
            ),
            Call("models.list", "GET", lambda client: client.models.list(), _json({"data": [], "has_more": False})),
        ),
        ("anthropic:AnthropicError",),
        answers={"400 with `x-should-retry: true`": answer(400, b"{}", JSON, "x-should-retry: true")},
    ),
    Sdk(
        "stripe",
        "stripe",
        "stripe.yaml",
        "stripe",
        "`max_network_retries=0`",
        _stripe,
        (
            Call(
                "customers.create",
                "POST",
                lambda client: client.v1.customers.create({}),
                _json({"id": "cus_1", "object": "customer"}),
            ),
            Call(
                "customers.retrieve",
                "GET",
                lambda client: client.v1.customers.retrieve("cus_1"),
                _json({"id": "cus_1", "object": "customer"}),
            ),
            Call(
                "customers.delete",
                "DELETE",
                lambda client: client.v1.customers.delete("cus_1"),
                _json({"id": "cus_1", "object": "customer", "deleted": True}),
            ),
        ),
        ("stripe:StripeError",),
        answers={"400 with `Stripe-Should-Retry: true`": answer(400, b"{}", JSON, "Stripe-Should-Retry: true")},
    ),
    Sdk(
        "azure-core",
        "azure-core",
        "azure.yaml",
        "storage",
        "`retry_total=0`",
        _azure,
        tuple(Call(method, method, _asked(method), _json({})) for method in ("GET", "PUT", "DELETE", "POST", "PATCH")),
        ("azure.core.exceptions:AzureError",),
        by_proxy=True,
        stops=False,
        answers={"409 with `Retry-After: 0`": answer(409, b"{}", JSON, "Retry-After: 0")},
    ),
)
