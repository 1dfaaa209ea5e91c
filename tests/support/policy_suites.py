"""Files of policy tests that a test plays in its own process."""

from __future__ import annotations

from pathlib import Path

from proxy.lab.policy_tests import Suite, load_suite, run_suite


def suite_of(path: Path, environ: dict[str, str] | None = None) -> Suite:
    """The suite in this file, which has to be free of errors."""
    suite, problems = load_suite(path, environ or {})
    assert suite is not None, "\n".join(map(str, problems))
    return suite


def failures(suite: Suite) -> list[str]:
    """What differs from what the suite expects: a line for each difference, with the name of its test."""
    return [
        f"{result.test.name} call {number}: {mismatch}"
        for result in run_suite(suite)
        for number, call in enumerate(result.calls, start=1)
        for mismatch in call.mismatches
    ]
