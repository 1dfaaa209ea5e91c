"""Unmodified apps, forward and reverse, to plain and TLS upstreams: the contract's three lines are enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from clients import APPS, App, proxied
from support.certificates import Authority
from support.process import Redrive
from support.scripted import Upstream, answer

BODY = bytes(range(256)) * 300


def three_lines(upstream: Upstream) -> str:
    """The contract's, for a host that is here."""
    url = upstream.url.replace("127.0.0.1", "localhost")
    return f"upstreams:\n  github:\n    url: {url}\n    dialects: [http, github]\n"


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_both_ways_to_one_upstream(app: App, tls: bool, tmp_path: Path, authority: Authority) -> None:
    ok = answer(200, b"hello", "Content-Type: text/plain")
    async with (
        Upstream(ok, tls=authority.server if tls else None) as upstream,
        Redrive(tmp_path, three_lines(upstream), SSL_CERT_FILE=str(authority.ca)) as redrive,
    ):
        forward = await app("GET", "http://localhost/v1/x?y=1", **proxied(redrive.url))
        reverse = await app("GET", f"{redrive.url}/github/v1/x?y=1")
        posted = await app("POST", f"{redrive.url}/github/v1/y", BODY)
        put = await app("PUT", "http://localhost/v1/y", BODY, **proxied(redrive.url))
    for got in (forward, reverse, posted, put):
        assert (got.status, got.body) == (200, b"hello")
        assert got.headers["x-attempt-count"] == "1"
    assert [request.target for request in upstream.requests] == ["/v1/x?y=1", "/v1/x?y=1", "/v1/y", "/v1/y"]
    assert [request.body for request in upstream.requests[2:]] == [BODY, BODY]
    assert upstream.requests[0].one("host") == "localhost"
    assert upstream.requests[1].one("host") == f"localhost:{upstream.port}"
    assert all(request.one("x-attempt-count") == "1" for request in upstream.requests)


@pytest.mark.parametrize("app", APPS)
async def test_a_failing_upstream_is_ridden_out(app: App, tmp_path: Path) -> None:
    async with (
        Upstream(answer(503), answer(200, b"at last")) as upstream,
        Redrive(tmp_path, three_lines(upstream)) as redrive,
    ):
        got = await app("GET", "http://localhost/", **proxied(redrive.url))
    assert (got.status, got.body, got.headers["x-attempt-count"]) == (200, b"at last", "2")


@pytest.mark.parametrize("app", APPS)
async def test_a_host_that_nothing_names_is_forwarded_under_the_defaults(app: App, tmp_path: Path) -> None:
    async with Upstream(answer(503), answer(200, b"ok")) as upstream, Redrive(tmp_path, "") as redrive:
        got = await app("GET", f"{upstream.url}/x", **proxied(redrive.url))
        line = await redrive.call()
    assert (got.status, got.headers["x-attempt-count"]) == (200, "2")
    assert (line["upstream"], line["host"]) == ("unmatched", upstream.authority)


@pytest.mark.parametrize("app", APPS[:2])
async def test_https_of_an_app_is_tunnelled(app: App, tmp_path: Path, authority: Authority) -> None:
    ca = str(authority.ca)
    async with (
        Upstream(answer(503, b"as it came"), tls=authority.server) as upstream,
        Redrive(tmp_path, three_lines(upstream)) as redrive,
    ):
        env = {"HTTPS_PROXY": redrive.url, "https_proxy": redrive.url, "CURL_CA_BUNDLE": ca, "REQUESTS_CA_BUNDLE": ca}
        got = await app("GET", f"https://localhost:{upstream.port}/x", **env)
        line = await redrive.call()
    assert (got.status, got.body) == (503, b"as it came")
    assert "via" not in got.headers
    assert [request.one("x-attempt-count") for request in upstream.requests] == [None]
    assert (line["method"], line["host"], line["outcome"]) == ("CONNECT", f"localhost:{upstream.port}", "success")


async def test_the_env_verb_is_enough_for_a_shell(tmp_path: Path) -> None:
    import shutil
    import sys

    from support.process import run

    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    async with Upstream(answer(200, b"ok")) as upstream, Redrive(tmp_path, three_lines(upstream)) as redrive:
        known = tmp_path / "known.yaml"
        known.write_text(f"listen: {redrive.authority}\n")
        script = f'eval "$({sys.executable} -m proxy env -c {known})" && curl -sS http://localhost:{upstream.port}/x'
        # NO_PROXY keeps this machine's own services off the proxy; here the upstream is one, so it is lifted.
        status, out, err = await run("sh", "-c", script.replace("&& curl", "&& NO_PROXY= no_proxy= curl"))
    assert (status, out) == (0, "ok"), err
    assert upstream.requests[0].one("via")
