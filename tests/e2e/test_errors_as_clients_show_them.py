"""What an official SDK, curl and git show of an answer that is redrive's own: the reason, in one line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.late import Late
from support.ports import free_port
from support.process import Redrive
from support.scripted import Turn, Upstream, answer

boto3, openai, anthropic, stripe = Late("boto3"), Late("openai"), Late("anthropic"), Late("stripe")
botocore_config, botocore_errors = Late("botocore.config"), Late("botocore.exceptions")
azure_core, azure_errors, azure_rest = Late("azure.core"), Late("azure.core.exceptions"), Late("azure.core.rest")
genai, genai_types, genai_errors = Late("google.genai"), Late("google.genai.types"), Late("google.genai.errors")

PACKS = Path(__file__).parents[2] / "proxy/config/dialects"
ONCE = "strategy: {max_attempts: 2, backoff: {base: 0s, jitter: none}}"


pytestmark = pytest.mark.usefixtures("no_surroundings")


def upstream(dialect: str, url: str, more: str = "") -> str:
    return f"upstreams:\n  api:\n    url: {url}\n    dialects: [http, {dialect}]\n    {ONCE}\n    {more}\n"


async def raised(call: Callable[[], Any], kind: Callable[[], type[Exception]]) -> Exception:
    def ask() -> Exception:
        with pytest.raises(kind()) as caught:
            call()
        return caught.value

    return await asyncio.to_thread(ask)


def openai_error() -> type[Exception]:
    kind: type[Exception] = openai.APIStatusError
    return kind


async def stalls(turn: Turn) -> None:
    """The head of a stream of events, and then nothing."""
    await turn.read_body()
    await turn.write(answer(200, b"", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", length=False))
    await turn.gone()


async def run(*command: str) -> str:
    """All that a command prints."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return out.decode()


@pytest.mark.parametrize("client", ["openai", "anthropic"])
async def test_openai_and_anthropic_say_what_a_silent_stream_was_waited_for(tmp_path: Path, client: str) -> None:
    timeouts = "timeouts: {first_byte: 2s}"  # the head, and with it that events are waited for, has to come by then
    async with Upstream(stalls) as silent, Redrive(tmp_path, upstream(client, silent.url, timeouts)) as redrive:
        said = (
            f"redrive: no event within 2s (timeouts.first_byte) from 127.0.0.1:{silent.port} "
            "(2 attempts, attempts_exhausted)"
        )
        if client == "openai":
            chat = openai.OpenAI(api_key="k", base_url=f"{redrive.url}/api", max_retries=0).chat.completions
            error: Any = await raised(lambda: chat.create(model="m", messages=[], stream=True), openai_error)
            assert (error.status_code, error.code, error.type) == (504, "attempts_exhausted", "server_error")
            assert str(error) == f"Error code: 504 - {said}"
        else:
            made = anthropic.Anthropic(api_key="k", base_url=f"{redrive.url}/api", max_retries=0).messages
            error = await raised(
                lambda: made.create(model="m", messages=[], max_tokens=1, stream=True), lambda: anthropic.APIStatusError
            )
            assert error.body["error"]["type"] == "timeout_error"
        assert said in str(error)


async def test_openai_says_the_reason_without_its_dialect(tmp_path: Path) -> None:
    gone = free_port()
    async with Redrive(tmp_path, upstream("http", f"http://127.0.0.1:{gone}")) as redrive:
        chat = openai.OpenAI(api_key="k", base_url=f"{redrive.url}/api", max_retries=0).chat.completions
        error: Any = await raised(lambda: chat.create(model="m", messages=[]), openai_error)
    said = f"redrive: the connection was refused by 127.0.0.1:{gone} (2 attempts, attempts_exhausted)"
    assert str(error) == f"Error code: 502 - {said}"


def service(name: str, redrive: Redrive) -> Any:
    return boto3.client(
        name,
        endpoint_url=f"{redrive.url}/api",
        region_name="eu-central-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=botocore_config.Config(retries={"total_max_attempts": 1}),
    )


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("dynamodb", lambda client: client.list_tables()),
        ("lambda", lambda client: client.list_functions()),
        ("s3", lambda client: client.list_objects_v2(Bucket="b")),
        ("sts", lambda client: client.get_caller_identity()),
        ("ec2", lambda client: client.describe_regions()),
        ("route53", lambda client: client.list_hosted_zones()),
    ],
)
async def test_boto3_reads_it_in_every_protocol(tmp_path: Path, name: str, call: Callable[[Any], Any]) -> None:
    gone = free_port()
    async with Redrive(tmp_path, upstream("aws", f"http://127.0.0.1:{gone}")) as redrive:
        error: Any = await raised(lambda: call(service(name, redrive)), lambda: botocore_errors.ClientError)
    assert error.response["Error"]["Code"] == "BadGateway"
    said = f"redrive: the connection was refused by 127.0.0.1:{gone} (2 attempts, attempts_exhausted)"
    assert error.response["Error"]["Message"] == said
    assert str(error).endswith(said)


async def test_azure_core_and_stripe_show_it(tmp_path: Path) -> None:
    gone = free_port()
    said = f"redrive: the connection was refused by 127.0.0.1:{gone} (2 attempts, attempts_exhausted)"
    async with Redrive(tmp_path, upstream("azure", f"http://127.0.0.1:{gone}")) as redrive:
        client = azure_core.PipelineClient(f"{redrive.url}/api", policies=[])
        request = azure_rest.HttpRequest("GET", f"{redrive.url}/api/x")
        error: Any = await raised(
            lambda: client.send_request(request).raise_for_status(), lambda: azure_errors.HttpResponseError
        )
    assert said in str(error)
    assert error.error.code == "BadGateway"
    async with Redrive(tmp_path, upstream("stripe", f"http://127.0.0.1:{gone}")) as redrive:
        made = stripe.StripeClient("sk_test_x", base_addresses={"api": f"{redrive.url}/api"}, max_network_retries=0)
        error = await raised(lambda: made.v1.balance.retrieve(), lambda: stripe.StripeError)
    assert str(error) == said
    assert error.http_status == 502


async def test_google_genai_shows_it(tmp_path: Path) -> None:
    gone = free_port()
    async with Redrive(tmp_path, upstream("google", f"http://127.0.0.1:{gone}")) as redrive:
        options = genai_types.HttpOptions(
            base_url=f"{redrive.url}/api", retry_options=genai_types.HttpRetryOptions(attempts=1)
        )
        client = genai.Client(api_key="k", http_options=options)
        error: Any = await raised(
            lambda: client.models.generate_content(model="m", contents="x"), lambda: genai_errors.APIError
        )
    said = f"redrive: the connection was refused by 127.0.0.1:{gone} (2 attempts, attempts_exhausted)"
    assert said in str(error)
    assert (error.code, error.message) == (502, said)
    # The library takes `status` from the top of the body, where problem+json has the number, before Google's own place.
    assert (error.status, error.details["error"]["status"]) == (502, "UNAVAILABLE")


async def test_githubs_answers_have_its_members(tmp_path: Path) -> None:
    """PyGithub, which is not installed here, shows `message`: its GithubException prints it (tried with 2.10)."""
    gone = free_port()
    async with Redrive(tmp_path, upstream("github", f"http://127.0.0.1:{gone}")) as redrive:
        body = json.loads(await run("curl", "-sS", f"{redrive.url}/api/x"))
    assert (
        body["message"] == f"redrive: the connection was refused by 127.0.0.1:{gone} (2 attempts, attempts_exhausted)"
    )
    # The members of problem+json stay beside it.
    assert (body["status"], body["upstream"], body["attempts"]) == (502, "api", 2)
    assert body["detail"] == f"the connection was refused by 127.0.0.1:{gone}"


def test_every_pack_whose_provider_words_errors_is_tried_here() -> None:
    worded = {pack.stem for pack in PACKS.glob("*.yaml") if "\nerrors:\n" in pack.read_text()}
    assert worded == {"anthropic", "aws", "azure", "github", "google", "openai", "stripe"}


async def test_curl_and_git_print_it(tmp_path: Path) -> None:
    gone = free_port()
    async with Redrive(tmp_path, upstream("github", f"http://127.0.0.1:{gone}")) as redrive:
        printed = await run("curl", "-sSi", f"{redrive.url}/api/x")
        cloned = await run("git", "clone", f"{redrive.url}/api/one/two.git", str(tmp_path / "two"))
    assert "application/problem+json" in printed
    assert f"the connection was refused by 127.0.0.1:{gone}" in printed
    said = f"redrive: the connection was refused by 127.0.0.1:{gone} (2 attempts, attempts_exhausted)"
    assert f"remote: {said}" in cloned
