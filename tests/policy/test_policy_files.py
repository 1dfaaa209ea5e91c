"""The contract's sentences as policy tests: each file names its section."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.lab.policy_tests import load_suite, run_suite

FILES = sorted(Path(__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_contract_says_so(path: Path) -> None:
    suite, problems = load_suite(path, {})
    assert suite is not None, "\n".join(map(str, problems))
    failed = [
        f"{result.test.name} call {number}: {mismatch}"
        for result in run_suite(suite)
        for number, call in enumerate(result.calls, start=1)
        for mismatch in call.mismatches
    ]
    assert failed == []
