"""Rate buckets that count a language model's tokens, and lists of rate buckets, as files say them."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import lines, loaded, policy, settings

from proxy.retry.policies.bucket_specs import RateSpec

BUCKETS = """
buckets:
  rpm: {kind: rate, rate: 500/m, burst: 500}
  tpm: {kind: rate, rate: 200000/m, burst: 200000, unit: tokens}
  own: {kind: quota}
upstreams:
  a:
    url: http://a.test
"""


def test_the_contracts_example(tmp_path: Path) -> None:
    text = BUCKETS + "    dialects: [http, openai]\n    rate: [rpm, tpm]\n    tokens: {bytes: 3}\n"
    found = policy(settings(tmp_path, text))
    assert [ref.name for ref in found.rates] == ["rpm", "tpm"]
    assert found.tokens is not None
    assert (found.tokens.output, found.tokens.bytes, found.tokens.burst, len(found.tokens.fields)) == (
        1024,
        3,
        200000,
        1,
    )


def test_mappings_in_a_list_are_buckets_of_their_own(tmp_path: Path) -> None:
    text = (
        BUCKETS
        + "    dialects: [anthropic]\n    rate: [{rate: 1/s}, {kind: rate, rate: 60/m, unit: tokens, burst: 9}]\n"
    )
    first, second = policy(settings(tmp_path, text)).rates
    assert first.spec == RateSpec(1.0, 1.0)
    assert second.spec == RateSpec(1.0, 9.0, unit="tokens")
    assert (first.name, second.name) == (None, None) and first.group != second.group


def test_a_route_replaces_the_list(tmp_path: Path) -> None:
    text = (
        BUCKETS
        + "    rate: [rpm]\n    routes: [{match: {path: /x}, rate: {rate: 3/s}}, {match: {path: /y}, rate: off}]\n"
    )
    found = settings(tmp_path, text)
    assert [ref.name for ref in policy(found).rates] == ["rpm"]
    (inline,) = policy(found, path="/x").rates
    assert inline.spec == RateSpec(3.0, 3.0)
    assert policy(found, path="/y").rates == ()
    assert policy(found).tokens is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "rate: tpm",
            "redrive.yaml:9:11: upstreams.a.rate: counts tokens, which no dialect here knows how to read: "
            "add one of anthropic, azure, google, openai to dialects",
        ),
        (
            "rate: [rpm, rpm]",
            "redrive.yaml:9:17: upstreams.a.rate[1]: rpm is in this list already",
        ),
        (
            "rate: [own]",
            "redrive.yaml:9:12: upstreams.a.rate[0]: takes a bucket of kind rate, but own is of kind quota",
        ),
        ("rate: []", "redrive.yaml:9:11: upstreams.a.rate: must not be empty"),
        (
            "bucket: tpm",
            "redrive.yaml:9:13: upstreams.a.bucket: takes a quota, a throttle or a budget, but tpm is of kind rate",
        ),
        (
            "bucket: {kind: quota, unit: tokens}",
            "redrive.yaml:9:27: upstreams.a.bucket.unit: ",
        ),
        ("tokens: {output: 0}", "redrive.yaml:9:22: upstreams.a.tokens.output: "),
    ],
)
def test_what_is_refused(tmp_path: Path, keys: str, message: str) -> None:
    (line,) = lines(tmp_path, loaded(tmp_path, f"{BUCKETS}    {keys}\n"))
    assert line.startswith(message), line


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            "tokens: {output: 5}",
            ["redrive.yaml:9:22: upstreams.a.tokens.output: warning: has no effect: no "],
        ),
        ("tokens: {output: 5}\n    dialects: [http, openai]\n    rate: tpm", []),
        ("dialects: [http, openai]\n    rate: tpm\n  b: {url: https://b.test}\ndefaults: {tokens: {bytes: 3}}", []),
    ],
)
def test_an_estimate_that_nothing_uses(tmp_path: Path, keys: str, told: list[str]) -> None:
    said = lines(tmp_path, loaded(tmp_path, f"{BUCKETS}    {keys}\n"), "warning")
    assert [line[: len(each)] for line, each in zip(said, told, strict=True)] == told
