"""config/examples/: a policy for each provider, with its tests, as `redrive check` and `redrive test` see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.classes import built_in_names
from proxy.config.load import load
from proxy.lab.policy_tests import load_suite, run_suite

EXAMPLES = Path(__file__).parent.parent.parent / "config" / "examples"
PROVIDERS = [name for name in built_in_names() if name != "http"]


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_policy_loads_without_a_warning(name: str) -> None:
    result = load(str(EXAMPLES / f"{name}.yaml"), {})
    assert result.settings is not None, [str(problem) for problem in result.problems]
    assert not [str(problem) for problem in result.problems if problem.severity == "warning"]
    dialects = {
        each.name for upstream in result.settings.router.upstreams for each in upstream.policy.classify.dialects
    }
    assert name in dialects


@pytest.mark.parametrize("name", PROVIDERS)
def test_its_policy_tests_hold(name: str) -> None:
    suite, problems = load_suite(EXAMPLES / "tests" / f"{name}.test.yaml", {})
    assert suite is not None, [str(problem) for problem in problems]
    results = run_suite(suite)
    assert len(results) >= 5
    for result in results:
        assert result.ok, (result.test.name, [str(mismatch) for call in result.calls for mismatch in call.mismatches])
