"""A file of policy tests and the configuration it names, made ready to be played.

Law: whatever is wrong with either is told before anything runs, with the line that has to be put right; an error in
an inline configuration points into the test file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from proxy.config.load import LoadResult, load, load_tree
from proxy.config.problems import Mark, Problem, Problems
from proxy.config.read import is_file, read_text
from proxy.config.settings import Settings
from proxy.lab.policy_tests.choosing import Chosen, choose
from proxy.lab.policy_tests.reading import is_null
from proxy.lab.policy_tests.script import PolicyTest, Script, read_script
from proxy.retry.facts import FaultKind


@dataclass(frozen=True, slots=True)
class Suite:
    """One file, ready to be played."""

    script: Script
    settings: Settings


def load_suite(path: Path, environ: Mapping[str, str]) -> tuple[Suite | None, list[Problem]]:
    """Read a file and compile its configuration. With an error there is no suite."""
    script, problems = read_script(path)
    if script is None:
        return None, problems
    result = _configuration(script, path, environ)
    if result.settings is None:
        return None, [problem for problem in result.problems if problem.severity == "error"]
    suite = Suite(script, result.settings)
    problems = [problem for test in script.tests for problem in _timeouts_without_end(suite, test)]
    return (None if problems else suite), problems


def _configuration(script: Script, path: Path, environ: Mapping[str, str]) -> LoadResult:
    node = script.config
    if node is None or is_null(node):
        return load(None, environ)
    if isinstance(node, yaml.ScalarNode):
        file, problems = path.parent / node.value, Problems()
        mark = Mark(script.file, node.start_mark.line + 1, node.start_mark.column + 1)
        if not is_file(str(file)) and read_text(str(file), problems, named_at=mark, path="config") is None:
            return LoadResult(None, tuple(problems.sorted()))
        return load(str(file), environ)
    return load_tree(node, str(path), environ)


def _timeouts_without_end(suite: Suite, test: PolicyTest) -> list[Problem]:
    """`attempt_timeout` without `after` lasts as long as `timeouts.attempt`, which must be set then."""
    found: list[Problem] = []
    for number, call in enumerate(test.calls):
        if not any(step.fail is FaultKind.ATTEMPT_TIMEOUT and step.after is None for step in call.steps):
            continue
        chosen = choose(suite.settings, call.ask)
        if isinstance(chosen, Chosen) and chosen.policy.timeouts.attempt is None:
            message = f"in {test.name!r}: attempt_timeout without `after` needs timeouts.attempt, which is off"
            column = call.node.start_mark.column + 1 if call.node is not None else 1
            found.append(Problem(suite.script.file, call.line, column, f"calls[{number}].attempts", message))
    return found
