"""The contract's sentences as policy tests: each file names its section."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.policy_suites import failures, suite_of

FILES = sorted(Path(__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_contract_says_so(path: Path) -> None:
    assert failures(suite_of(path)) == []
