"""Configurations for tests: text in, settings or problem lines out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from proxy.config.load import LoadResult, load
from proxy.config.settings import Settings
from proxy.retry.facts import MappingFields
from proxy.retry.policies.policy import Policy

NO_FIELDS = MappingFields([])


def loaded(folder: Path, text: str, environ: Mapping[str, str] | None = None, name: str = "redrive.yaml") -> LoadResult:
    file = folder / name
    file.write_text(dedent(text))
    return load(str(file), environ or {})


def settings(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> Settings:
    result = loaded(folder, text, environ)
    assert result.settings is not None, lines(folder, result)
    return result.settings


def lines(folder: Path, result: LoadResult, *severities: str) -> list[str]:
    """The problems as they are printed, without the folder."""
    wanted = severities or ("error",)
    return [str(each).replace(f"{folder}/", "") for each in result.problems if each.severity in wanted]


def policy(found: Settings, upstream: str = "a", method: str = "GET", path: str = "/") -> Policy:
    return found.router.by_name[upstream].policy_for(method, path.encode(), NO_FIELDS)
