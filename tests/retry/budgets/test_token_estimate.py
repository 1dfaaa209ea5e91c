"""The price of an attempt in a language model's tokens: expected before it is sent, and settled by its answer."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest
from support.playbook import Playbook, reply, start

from proxy.config.classification import dialects
from proxy.config.problems import Mark, Problems
from proxy.retry.answers.token_usage import KEPT, TokenUsage, UsageReader
from proxy.retry.budgets.token_estimate import Estimate, estimate
from proxy.retry.budgets.token_sizes import FEWEST, MODELS, WINDOW, TokenSizes
from proxy.retry.call.actions import Deliver, Launch
from proxy.retry.facts import MappingFields, Outcome, Reply
from proxy.retry.policies.bucket_specs import BucketRef, RateSpec, TokenRules
from proxy.retry.policies.policy import Backoff, Policy, Strategy
from proxy.retry.scopes.registry import Registry


def rules(pack: str, **more: Any) -> TokenRules:
    problems = Problems()
    (dialect,) = dialects([pack], [Mark("", 0, 0)], (), problems)
    assert dialect.usage is not None and not problems.fatal
    return TokenRules(fields=(dialect.usage,), **{"burst": 10_000, **more})


def expected(pack: str, document: Any, outputs: TokenSizes | None = None, **more: Any) -> Estimate:
    body = json.dumps(document).encode()
    return estimate(rules(pack, **more), (body[:5], body[5:]), len(body), outputs, 0.0)


@pytest.mark.parametrize(
    ("pack", "document", "output"),
    [
        ("openai", {"max_tokens": 100}, 100),
        ("openai", {"max_tokens": 100, "max_completion_tokens": 300}, 300),
        ("openai", {"max_output_tokens": 50}, 50),
        ("openai", {"max_tokens": 100, "n": 3}, 300),
        ("openai", {"max_tokens": 1, "n": 5000}, 128),
        ("openai", {"max_tokens": 0}, 0),
        ("openai", {"max_tokens": 20_000}, 10_000),
        ("openai", {"max_tokens": 20_000, "n": 2}, 20_000),
        ("openai", {"max_tokens": -1}, 1024),
        ("openai", {"max_tokens": 10.5}, 1024),
        ("openai", {"max_tokens": True}, 1024),
        ("openai", {"max_tokens": "100"}, 1024),
        ("openai", {}, 1024),
        ("anthropic", {"max_tokens": 64}, 64),
        ("google", {"generationConfig": {"maxOutputTokens": 10, "candidateCount": 2}}, 20),
        ("google", {"generation_config": {"max_output_tokens": 10, "candidate_count": 2}}, 20),
        ("azure", {"max_completion_tokens": 7}, 7),
    ],
)
def test_the_output_is_the_maximum_that_the_request_names(pack: str, document: Any, output: float) -> None:
    assert expected(pack, document).output == output


def test_the_prompt_is_the_body() -> None:
    body = b'{"model": "m", "max_tokens": 0}'
    assert estimate(rules("openai", bytes=2), (body,), len(body), None, 0.0) == Estimate(len(body) / 2, 0, "m")
    assert Estimate(30.0, 12.0).price == 42.0
    assert estimate(rules("openai"), None, 400, None, 0.0) == Estimate(100, 1024)
    assert estimate(rules("openai"), (b"no json",), 7, None, 0.0) == Estimate(7 / 4, 1024)


@pytest.mark.parametrize(
    ("pack", "content"),
    [
        ("openai", {"image_url": {"url": "https://x.test/a.png"}}),
        ("openai", {"anything": "data:image/png;base64," + "A" * 4000}),
        ("openai", {"input_audio": {"data": "A" * 4000, "format": "wav"}}),
        ("anthropic", {"source": {"type": "base64", "data": "A" * 4000}}),
        ("google", {"inlineData": {"mimeType": "image/png", "data": "A" * 4000}}),
    ],
)
def test_a_medium_costs_the_same_whatever_its_bytes(pack: str, content: Any) -> None:
    price = expected(pack, {"messages": [{"content": [content, {"text": "data"}]}]})
    assert 1000 < price.prompt < 1040


def test_outputs_of_the_model_stand_for_a_maximum_that_is_not_named() -> None:
    outputs = TokenSizes()
    for tokens in range(1, FEWEST):
        outputs.add("m", tokens, 0.0)
    assert expected("openai", {"model": "m"}, outputs).output == 1024
    outputs.add("m", 20, 0.0)
    assert expected("openai", {"model": "m"}, outputs).output == 18
    assert expected("openai", {"model": "other"}, outputs).output == 1024
    assert outputs.expected("m", WINDOW + 1) is None


def test_what_answers_cost_is_what_the_next_attempts_are_expected_to_cost() -> None:
    strategy = Strategy("none", "none", 1, Backoff(0.0, 0.0))
    rate = BucketRef(RateSpec(1000.0, 100_000.0, unit="tokens"))
    policy = Policy("u", "", strategy, None, rate=rate, tokens=rules("openai"))
    registry = Registry()
    for number in range(FEWEST):
        book = Playbook(policy, registry=registry)
        book.call.expects(expected("openai", {"model": "m"}))
        assert book >> start(at=number) << Launch(1) >> reply(1, 200, at=number) << Deliver(1, Outcome.SUCCESS)
        book.call.used(TokenUsage(output=300.0), number)
    outputs = book.scope.token_sizes
    assert outputs is not None
    assert expected("openai", {"model": "m"}, outputs).output == 300


def test_a_hundred_models_are_kept_apart_and_the_rest_together() -> None:
    outputs = TokenSizes()
    for number in range(MODELS):
        outputs.add(f"m{number}", 1.0, 0.0)
    for number in range(FEWEST):
        outputs.add(f"more{number}", 7.0, 1.0)
    assert outputs.expected("more0", 1.0) == outputs.expected("unknown", 1.0) == 7.0
    outputs.add("new", 1.0, WINDOW + 0.5)  # the first hundred are forgotten
    for _ in range(FEWEST):
        outputs.add("new", 2.0, WINDOW + 0.5)
    assert outputs.expected("new", WINDOW + 0.5) == 2.0


def read(pack: str, body: bytes, *fields: tuple[str, str], whole: bool = True, piece: int = 7) -> TokenUsage:
    reader = UsageReader(rules(pack), Reply(200, MappingFields(fields)))
    for begin in range(0, len(body), piece):
        assert reader.feed(body[begin : begin + piece]) == []
    usage = reader.ended(whole=whole)
    assert usage.whole is whole
    return replace(usage, whole=False)


EVENTS = ("Content-Type", "text/event-stream")


def events(*documents: Any) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in documents) + b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("pack", "document", "usage"),
    [
        ("openai", {"usage": {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}}, (5, 6)),
        ("openai", {"usage": {"input_tokens": 5, "output_tokens": 6}}, (5, 6)),
        ("anthropic", {"usage": {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 6}}, (5, 6)),
        ("anthropic", {"usage": {"input_tokens": 5, "cache_creation_input_tokens": 90, "output_tokens": 6}}, (95, 6)),
        (  # a compaction is not within the totals; an advisor's tokens are another model's
            "anthropic",
            {
                "usage": {
                    "input_tokens": 5,
                    "output_tokens": 6,
                    "iterations": [
                        {
                            "type": "compaction",
                            "input_tokens": 40,
                            "cache_creation_input_tokens": 2,
                            "output_tokens": 9,
                        },
                        {"type": "message", "input_tokens": 5, "output_tokens": 6},
                        {"type": "advisor_message", "input_tokens": 800, "output_tokens": 90},
                        "compaction",
                    ],
                }
            },
            (47, 15),
        ),
        (
            "google",
            {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 6, "thoughtsTokenCount": 4}},
            (5, 10),
        ),
        (
            "google",
            {
                "usage": {
                    "total_input_tokens": 5,
                    "total_cached_tokens": 3,
                    "total_tool_use_tokens": 2,
                    "total_output_tokens": 6,
                    "total_thought_tokens": 4,
                    "total_tokens": 17,
                }
            },
            (7, 10),
        ),
        ("azure", {"usage": {"prompt_tokens": 5, "completion_tokens": 6}}, (5, 6)),
        ("openai", {"usage": {"prompt_tokens": -5, "completion_tokens": "6"}}, (None, None)),
        ("openai", {"usage": None}, (None, None)),
    ],
)
def test_a_json_answer_says_what_it_cost(pack: str, document: Any, usage: tuple[float | None, float | None]) -> None:
    found = read(pack, json.dumps(document).encode())
    assert (found.prompt, found.output) == usage
    packed = read(pack, gzip.compress(json.dumps(document).encode()), ("Content-Encoding", "gzip"))
    assert (packed.prompt, packed.output) == usage


def test_the_end_of_a_long_answer_is_enough() -> None:
    document = {
        "choices": [{"message": {"content": "x" * 4 * KEPT}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 9},
    }
    found = read("openai", json.dumps(document).encode(), piece=10_000)
    assert (found.prompt, found.output, found.text) == (3, 9, None)


def test_a_stream_of_geminis_interactions_says_what_it_cost_when_it_completes() -> None:
    stream = events(
        {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "hello"}},
        {"event_type": "step.stop", "index": 0, "usage": {"total_input_tokens": 9, "total_output_tokens": 2}},
        {
            "event_type": "interaction.completed",
            "interaction": {"usage": {"total_input_tokens": 9, "total_output_tokens": 5, "total_thought_tokens": 7}},
        },
    )
    assert read("google", stream, EVENTS) == TokenUsage(9, 12, 5)


def test_the_request_of_geminis_interactions_names_its_maximum_its_model_and_media() -> None:
    image = {"type": "image", "mime_type": "image/png", "data": "x" * 40_000}
    document = {"model": "m", "input": [image], "generation_config": {"max_output_tokens": 70}}
    found = expected("google", document)
    assert (found.output, found.model) == (70, "m")
    assert 1000 < found.prompt < 1100


def test_the_last_event_that_has_numbers_counts() -> None:
    stream = events(
        {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"text": "hello"}},
        {"type": "message_delta", "usage": {"output_tokens": 15}},
        {"type": "message_stop"},
    )
    assert read("anthropic", stream, EVENTS) == TokenUsage(25, 15, 5)
    assert read("anthropic", stream, EVENTS, whole=False) == TokenUsage(25, 15, None)


def test_a_stream_says_what_a_compaction_cost() -> None:
    iterations = [{"type": "compaction", "input_tokens": 40, "output_tokens": 9}, {"type": "message"}]
    stream = events(
        {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}},
        {"type": "message_delta", "usage": {"input_tokens": 25, "output_tokens": 15, "iterations": iterations}},
    )
    assert read("anthropic", stream, EVENTS) == TokenUsage(65, 24, 0)


def test_without_numbers_the_text_is_counted() -> None:
    stream = events(*({"choices": [{"delta": {"content": text}}]} for text in ("Hé", "llo", "")), {"choices": []})
    assert read("openai", stream, EVENTS) == TokenUsage(None, None, 6)
    assert read("openai", b'{"choices": [{"message": {"content": "Hello"}}]}') == TokenUsage(None, None, 5)


def test_reasoning_refusals_and_arguments_are_text_of_the_output_too() -> None:
    deltas: list[dict[str, Any]] = [
        {"reasoning_content": "abc"},
        {"refusal": "no"},
        {"function_call": {"arguments": "{}"}},
        {"tool_calls": [{"function": {"arguments": "{1}"}}]},
    ]
    for pack in ("openai", "azure"):
        assert read(pack, events(*({"choices": [{"delta": each}]} for each in deltas)), EVENTS).text == 10


def test_what_can_not_be_read_says_nothing() -> None:
    assert read("openai", b"<html>") == TokenUsage()
    assert read("openai", b'{"usage": {"prompt_tokens": 1}}', ("Content-Encoding", "br")) == TokenUsage()
    assert read("openai", b'{"id": 1}') == TokenUsage()


def test_prompts_cost_what_others_did_as_a_share_of_their_estimates() -> None:
    outputs = TokenSizes()
    for _ in range(FEWEST - 1):
        outputs.add_prompt(100.0, 80.0)
    assert outputs.prompt_share == 1.0  # too few are known
    outputs.add_prompt(100.0, 80.0)
    assert outputs.prompt_share == pytest.approx(0.8)
    for _ in range(400):
        outputs.add_prompt(100.0, 150.0)
    assert outputs.prompt_share == 1.0  # never more than was paid
    outputs.add_prompt(0.0, 10.0)
