"""Policy tests: a user's unit tests for a policy, on a virtual clock (contract, section 8).

`run_files` is the command; `load_suite` and `run_suite` are the same in steps, for tests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from proxy.config.problems import Problem
from proxy.lab.policy_tests.report import as_json, print_table
from proxy.lab.policy_tests.runner import run_suite
from proxy.lab.policy_tests.script import Suite, load_suite

__all__ = ["Suite", "load_suite", "run_files", "run_suite"]


def run_files(paths: Sequence[str], as_json_array: bool = False, environ: Mapping[str, str] | None = None) -> int:
    """`redrive test FILE... [--json]`: run the policy tests in the files at `paths`, and print their results, as an
    array of JSON if `as_json_array`. `environ`: the environment variables, None for those of this process. Exit status:
    0 all hold, 1 one does not, 2 bad input.
    """
    suites: list[Suite] = []
    problems: list[Problem] = []
    for path in paths:
        suite, found = load_suite(Path(path), os.environ if environ is None else environ)
        problems += found
        if suite is not None:
            suites.append(suite)
    if problems:
        for problem in problems:
            print(problem, file=sys.stderr)
        return 2
    results = [result for suite in suites for result in run_suite(suite)]
    if as_json_array:
        print(as_json(results))
    else:
        print_table(results, Console(highlight=False, width=None if sys.stdout.isatty() else 120))
    return 0 if all(result.ok for result in results) else 1
