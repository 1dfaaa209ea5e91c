"""Whatever a file holds, it becomes settings or problem lines, and never a traceback."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config import schema
from proxy.config.load import LoadResult, load, load_tree
from proxy.config.schema_language import Anything, Either, Form, ListOf, MapOf, Section

WORDS = st.sampled_from(
    [
        *(
            "5s",
            "0s",
            "off",
            "64KiB",
            "100/s",
            "20%",
            "3",
            "-1",
            "99999999999999999999",
            "1e3",
            "010",
            "12:30",
            "",
            "~",
            "a",
            "standard",
            "auto",
        ),
        *("standard", "quota", "throttle", "rate", "grpc", "hedging", "none", "legacy", "127.0.0.1:0", "http://x.test"),
        *(
            "*.x.test",
            "/p",
            "${X}",
            "${Y:-5s}",
            "${",
            "json:loads",
            "http",
            "aws",
            "UNAVAILABLE",
            "reset",
            "[",
            "\u2028",
        ),
    ]
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
LINE = re.compile(r"[^\n]+:\d+:\d+: [^\n]+|environment: [^\n]+")


def of(form: Form, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values of about the right shape, so that the deeper checks are reached too."""
    if isinstance(form, Either):
        return st.one_of(*(of(each, depth) for each in (form.word, form.list, form.mapping) if each is not None))
    if isinstance(form, ListOf):
        return st.lists(of(form.item, depth + 1), max_size=2)
    if isinstance(form, MapOf):
        return st.dictionaries(st.sampled_from(["a", "b", "patient", "x-h", "error.code"]), of(form.value), max_size=2)
    if isinstance(form, Section):
        keys = {name: st.deferred(lambda key=key: of(key.form, depth + 1)) for name, key in form.keys.items()}
        return st.fixed_dictionaries({}, optional=keys)
    return ANYTHING if isinstance(form, Anything) else WORDS


def told(result: LoadResult) -> None:
    for problem in result.problems:
        assert LINE.fullmatch(str(problem)), repr(str(problem))
    assert (result.settings is None) == bool(result.errors)
    if result.settings is not None:
        for upstream in (*result.settings.router.upstreams, result.settings.router.fallback):
            for policy in upstream.policies:
                assert result.settings.provenance.of(policy.upstream, policy.route)
        result.settings.provenance.effective()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(of(schema.FILE))
def test_likely_files(tmp_path: Path, data: Any) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    told(load(str(file), {"X": "7"}))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(ANYTHING)
def test_unlikely_files(tmp_path: Path, data: Any) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(yaml.safe_dump(data))
    told(load(str(file), {}))
    told(load_tree(data, str(file), {}))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=60) | st.text(alphabet="a:-[]{}&*!|>'\"%@`#,? \n\t${}<~0", max_size=40).map(str.encode))
def test_bytes(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_bytes(content)
    told(load(str(file), {}))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.recursive(
        WORDS | st.none() | st.integers() | st.floats(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        *("methodConfig", "name", "service", "retryPolicy", "hedgingPolicy", "maxAttempts", "timeout"),
                        *("initialBackoff", "retryableStatusCodes", "retryThrottling", "maxTokens", "tokenRatio"),
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_service_configs(tmp_path: Path, data: Any) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(yaml.safe_dump({"upstreams": {"a": {"hosts": "a", "service_config": data}}}))
    told(load(str(file), {}))


#: What hardly any key takes; some take one or the other.
WRONG: tuple[Any, ...] = ("banana!", "-1", "", ["a"], {"zzz": "1"}, "99999999999999999999", "1e400", ".nan", "0")


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all scalars of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    return [path] if items is None else [each for key, value in items for each in leaves(value, (*path, key))]


def test_one_wrong_value_is_told_in_one_line_at_most() -> None:
    """Every key of the whole file, each with one wrong value or another: what follows from it is not told as well."""
    text = (Path(__file__).parents[2] / "config" / "examples" / "reference.yaml").read_text()
    whole, several = yaml.load(text, yaml.BaseLoader), []
    for number, path in enumerate(leaves(whole)):
        around = tree = deepcopy(whole)
        for key in path[:-1]:
            around = around[key]
        around[path[-1]] = WRONG[number % len(WRONG)]
        errors = [str(each) for each in load_tree(tree, "r.yaml", {}).errors]
        unknown = [line for line in errors if ".zzz: unknown key" in line]  # beside what a mapping lacks
        if len(errors) > 1 and not unknown:
            several.append((path, around[path[-1]], errors))
    assert not several
