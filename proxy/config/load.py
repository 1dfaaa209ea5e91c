"""A configuration file becomes settings, or a list of everything that is wrong with it.

Law: nothing raises for a user's mistake, and nothing is half loaded: there are settings only where there is no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.config.problem import Problem
from proxy.config.settings import Settings


@dataclass(frozen=True, slots=True)
class LoadResult:
    """`settings` is None where any problem is an error; warnings and notes come beside settings."""

    settings: Settings | None
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that refuse the configuration."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


def load(path: str | None, environ: Mapping[str, str]) -> LoadResult:
    """Read, check and compile a file; None stands for the defaults. See `find` for which file a command takes."""
    raise NotImplementedError


def load_tree(tree: Any, file: str, environ: Mapping[str, str]) -> LoadResult:
    """The same for a configuration that stands inside another file: Python data, or a composed YAML node of `file`,
    which relative paths then start from.
    """
    raise NotImplementedError


def find(path: str | None, environ: Mapping[str, str]) -> str | None:
    """The file a command works on: `-c`, else $REDRIVE_CONFIG, else config/redrive.yaml, else
    /etc/redrive/redrive.yaml, else None for the defaults.
    """
    raise NotImplementedError
