"""config/examples/: a policy for each provider, with its tests, as `redrive check` and `redrive test` see them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from proxy.config.classification import built_in_names
from proxy.config.load import load
from proxy.lab.policy_tests import load_suite, run_suite

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "config" / "examples"
PROVIDERS = [name for name in built_in_names() if name != "http"]
#: Not every policy is for a provider.
POLICIES = [*PROVIDERS, "git", "bedrock", "vertex", "vllm", "llm"]


@pytest.mark.parametrize("name", POLICIES)
def test_the_policy_loads_without_a_warning(name: str) -> None:
    result = load(str(EXAMPLES / f"{name}.yaml"), {})
    assert result.settings is not None, [str(problem) for problem in result.problems]
    assert not [str(problem) for problem in result.problems if problem.severity == "warning"]
    dialects = {
        each.name for upstream in result.settings.router.upstreams for each in upstream.policy.classify.dialects
    }
    assert name in dialects or name not in PROVIDERS


@pytest.mark.parametrize("name", POLICIES)
def test_its_policy_tests_hold(name: str) -> None:
    suite, problems = load_suite(EXAMPLES / "tests" / f"{name}.test.yaml", {})
    assert suite is not None, [str(problem) for problem in problems]
    results = run_suite(suite)
    assert len(results) >= 5
    for result in results:
        assert result.ok, (result.test.name, [str(mismatch) for call in result.calls for mismatch in call.mismatches])


def test_a_recipe_of_the_guide_is_the_policy_that_is_tried() -> None:
    """What docs/guides/recipes.md shows of these is what stands in config/examples, and what the SDKs' tests take."""
    recipes = {}
    for text in re.findall(r"(?ms)^```yaml\n(.*?)^```$", (ROOT / "docs/guides/recipes.md").read_text()):
        recipes |= yaml.safe_load(text).get("upstreams", {})
    same = ("openai", "anthropic", "stripe", "git", "bedrock", "vertex", "vllm", "mcp")
    for file, upstream in (
        ("aws", "dynamodb"),
        ("azure", "azure-openai"),
        ("google", "gemini"),
        ("google", "storage"),
        ("llm", "gpt"),
        ("llm", "gpt-azure"),
        *((name, name) for name in same),
    ):
        assert recipes[upstream] == yaml.safe_load((EXAMPLES / f"{file}.yaml").read_text())["upstreams"][upstream]
