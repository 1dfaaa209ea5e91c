"""HTTPS apps that nobody changed: under what `redrive env` prints, their calls are retried inside CONNECT."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from intercepted_apps import APPS, BOTO3, CURL
from support.certificates import Authority
from support.process import Redrive, redrive, run
from support.scripted import Upstream, answer

NAME = "api.payments.example"
AT_ONCE = "{kind: standard, backoff: {base: 0s, jitter: none}}"


def configuration(upstream: Upstream, authority: Authority, hosts: str = NAME) -> str:
    return f"""
upstreams:
  payments:
    url: https://localhost:{upstream.port}
    hosts: ["{hosts}"]
    connect: intercept
    verify: {authority.ca}
    strategy: {AT_ONCE}
"""


async def surroundings(proxy: Redrive) -> dict[str, str]:
    """What a shell has after eval "$(redrive env)", for the port that the system chose."""
    fixed = proxy.file.with_name("fixed.yaml")
    fixed.write_text(proxy.file.read_text().replace("127.0.0.1:0", proxy.authority, 1))
    status, out, err = await redrive("env", "-c", str(fixed))
    assert status == 0, err
    return dict(re.findall(r"^export (\w+)=(\S+)$", out, re.MULTILINE))


async def make_ca(folder: Path, config: str, authority: Authority, *arguments: str) -> None:
    """The upstream's root is one of this machine's, for once, so that blind tunnels can be shown too."""
    file = folder / "redrive.yaml"
    file.write_text(config)
    status, _, err = await redrive("ca", "init", *arguments, "-c", str(file), SSL_CERT_FILE=str(authority.ca))
    assert status == 0, err


FAILING_TWICE = (answer(503), answer(503), answer(200, b"at last"))


@pytest.mark.parametrize("app", APPS)
async def test_an_app_that_nobody_changed(app: Sequence[str], tmp_path: Path, authority: Authority) -> None:
    async with Upstream(*FAILING_TWICE, tls=authority.server) as upstream:
        config = configuration(upstream, authority)
        await make_ca(tmp_path, config, authority, "--for", NAME)
        async with Redrive(tmp_path, config) as proxy:
            env = await surroundings(proxy)
            assert await run(*app, f"https://{NAME}/v1/a%2Fb?y=1", **env) == (0, "200 at last\n", "")
            line = await proxy.call()
    assert [r.one("x-attempt-count") for r in upstream.requests] == ["1", "2", "3"]
    assert {(r.target, r.one("host")) for r in upstream.requests} == {("/v1/a%2Fb?y=1", NAME)}
    assert (line["upstream"], line["host"], line["status"], line["outcome"]) == ("payments", NAME, 200, "success")
    assert not [line for line in proxy.lines if line["event"] == "handshake"]


async def test_calls_inside_carry_the_upstream_s_credentials(tmp_path: Path, authority: Authority) -> None:
    steps = (answer(429, b"", "Retry-After: 30"), answer(200, b"at last"))
    async with Upstream(*steps, tls=authority.server) as upstream:
        config = configuration(upstream, authority)
        config += "    credentials: {header: X-Api-Key, values: [value-a, value-b]}\n"
        await make_ca(tmp_path, config, authority, "--for", NAME)
        async with Redrive(tmp_path, config) as proxy:
            env = await surroundings(proxy)
            assert await run("sh", "-c", CURL, f"https://{NAME}/v1/a", **env) == (0, "200 at last\n", "")
        assert [each.one("x-api-key") for each in upstream.requests] == ["value-a", "value-b"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_git(tmp_path: Path, authority: Authority) -> None:
    """It tells its libcurl where the roots are; what libcurl finds by itself depends on how it was built."""
    refs = answer(200, b"0123456789012345678901234567890123456789\trefs/heads/main\n", "Content-Type: text/plain")
    async with Upstream(answer(503), answer(503), refs, tls=authority.server) as upstream:
        config = configuration(upstream, authority)
        await make_ca(tmp_path, config, authority, "--for", NAME)
        async with Redrive(tmp_path, config) as proxy:
            env = {**await surroundings(proxy), "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
            status, out, err = await run("git", "ls-remote", f"https://{NAME}/repo", **env)
    assert (status, out.split()) == (0, ["0" + "123456789" + "0123456789" * 3, "refs/heads/main"]), err
    assert [r.one("x-attempt-count") for r in upstream.requests][:3] == ["1", "2", "3"]


JAVA = """
class Ask {
    public static void main(String[] arguments) throws Exception {
        var request = java.net.http.HttpRequest.newBuilder(java.net.URI.create(arguments[0])).build();
        var read = java.net.http.HttpResponse.BodyHandlers.ofString();
        System.out.println(java.net.http.HttpClient.newHttpClient().send(request, read).body());
    }
}
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK is installed")
async def test_java_with_the_trust_store_that_is_exported(tmp_path: Path, authority: Authority) -> None:
    """What deploy/kubernetes/https and the chart give to Java."""
    (tmp_path / "Ask.java").write_text(JAVA)
    async with Upstream(*FAILING_TWICE, tls=authority.server) as upstream:
        config = configuration(upstream, authority)
        await make_ca(tmp_path, config, authority, "--for", NAME)
        exported = await redrive("ca", "export", "--to", str(tmp_path / "trust"), "-c", str(tmp_path / "redrive.yaml"))
        assert exported[0] == 0, exported
        async with Redrive(tmp_path, config) as proxy:
            host, port = proxy.authority.split(":")
            store = f"-Djavax.net.ssl.trustStore={tmp_path}/trust/truststore.p12"
            kind = "-Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit"
            env = {"JAVA_TOOL_OPTIONS": f"-Dhttps.proxyHost={host} -Dhttps.proxyPort={port} {store} {kind}"}
            status, out, err = await run("java", str(tmp_path / "Ask.java"), f"https://{NAME}/v1", **env)
    assert (status, out) == (0, "at last\n"), err
    assert [r.one("x-attempt-count") for r in upstream.requests] == ["1", "2", "3"]


async def test_boto3(tmp_path: Path, authority: Authority) -> None:
    """Its own retries see the one answer: there is nothing for them to do."""
    names = b"".join(b"<Bucket><Name>%b</Name></Bucket>" % name for name in (b"a", b"b"))
    buckets = b"<ListAllMyBucketsResult><Buckets>%b</Buckets></ListAllMyBucketsResult>" % names
    listed = answer(200, buckets, "Content-Type: application/xml")
    async with Upstream(answer(503), answer(503), listed, tls=authority.server) as upstream:
        config = configuration(upstream, authority, "*.amazonaws.com")
        await make_ca(tmp_path, config, authority, "--for", "amazonaws.com")
        async with Redrive(tmp_path, config) as proxy:
            env = await surroundings(proxy)
            keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
            nothing = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), str(tmp_path / "none"))
            assert await run(sys.executable, "-c", BOTO3, **env, **keys, **nothing) == (0, "200 a,b\n", "")
    assert [r.one("x-attempt-count") for r in upstream.requests] == ["1", "2", "3"]
    assert {r.one("host") for r in upstream.requests} == {"s3.eu-central-1.amazonaws.com"}
    signed = {r.one("authorization") for r in upstream.requests}
    assert len(signed) == 1  # the very same request, signature and all
    assert {r.one("amz-sdk-request") for r in upstream.requests} == {"attempt=1; max=3"}
    assert upstream.requests[0].method == "GET"


@pytest.mark.parametrize("app", APPS[:1])
async def test_what_is_not_intercepted_is_between_the_app_and_its_server(
    app: Sequence[str], tmp_path: Path, authority: Authority
) -> None:
    """Under the same variables: the bundle has the machine's roots, and the tunnel is blind."""
    async with Upstream(answer(200, b"ok"), tls=authority.server) as upstream:
        config = configuration(upstream, authority)
        await make_ca(tmp_path, config, authority)
        other = f"localhost:{upstream.port}"
        config = config.replace(f"https://{other}", f"https://127.0.0.1:{upstream.port}")
        async with Redrive(tmp_path, config) as proxy:
            env = {**await surroundings(proxy), "NO_PROXY": "", "no_proxy": ""}
            assert await run(*app, f"https://{other}/", **env) == (0, "200 ok\n", "")
            line = await proxy.call()
            assert (line["method"], line["host"], line["upstream"]) == ("CONNECT", other, "unmatched")
    assert upstream.requests[0].one("x-attempt-count") is None


async def test_an_app_that_was_not_told(tmp_path: Path, authority: Authority) -> None:
    """It knows of the proxy and not of the CA: its TLS fails, and the log says what to do, once."""
    async with Upstream(answer(200, b"ok"), tls=authority.server) as upstream:
        config = configuration(upstream, authority)
        await make_ca(tmp_path, config, authority)
        async with Redrive(tmp_path, config) as proxy:
            env = {"https_proxy": proxy.url}
            told = await surroundings(proxy)
            for _ in range(2):
                assert (await run("sh", "-c", CURL, f"https://{NAME}/", **env))[1:] != ("", "")
            assert (await run("sh", "-c", CURL, f"https://{NAME}/", **told))[1] == "200 ok\n"
            line = await proxy.line(lambda line: line["event"] == "handshake")
            assert line is not None
            assert line["authority"] == f"{NAME}:443"
            assert "does not trust the local CA" in line["detail"]
            assert "redrive env" in line["detail"]
            assert len([line for line in proxy.lines if line["event"] == "handshake"]) == 1
    assert len(upstream.requests) == 1


async def test_before_there_is_a_ca(tmp_path: Path, authority: Authority) -> None:
    """The file is good but for that: everything else is served, and the log and the CONNECT say what to do."""
    async with (
        Upstream(answer(200, b"ok"), tls=authority.server) as upstream,
        Redrive(tmp_path, configuration(upstream, authority)) as proxy,
    ):
        line = await proxy.line(lambda line: line["event"] == "interception")
        assert line is not None
        assert "redrive ca init" in line["error"]
        assert "redrive ca init" in proxy.errors
        assert (await run("sh", "-c", CURL, f"{proxy.url}/payments/x"))[1] == "200 ok\n"
        _, _, err = await run("sh", "-c", CURL, f"https://{NAME}/", https_proxy=proxy.url)
        assert "500" in err
