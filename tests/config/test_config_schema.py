"""The JSON Schema, the reference and the examples say what the loader says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from configs import lines

from proxy.config import schema
from proxy.config.load import load
from proxy.config.schema_language import Anything, Either, Form, ListOf, MapOf, Section

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "config" / "examples" / "reference.yaml"
OURS = [*sorted((ROOT / "config").glob("*.yaml")), *sorted((ROOT / "config" / "examples").glob("*.yaml"))]
PACKS = sorted((ROOT / "proxy" / "config" / "dialects").glob("*.yaml"))
VECTORS = sorted((ROOT / "tests" / "vectors").glob("*.yaml"))


@cache
def checker(part: str | None = None) -> jsonschema.Draft202012Validator:
    whole = schema.schema()
    jsonschema.Draft202012Validator.check_schema(whole)
    return jsonschema.Draft202012Validator(
        whole if part is None else {"$ref": f"#/$defs/{part}", "$defs": whole["$defs"]}
    )


def test_the_file_in_the_repository_is_current() -> None:
    kept = json.loads((ROOT / "config" / "redrive.schema.json").read_text())
    assert kept == schema.schema(), "make schema"


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.name)
def test_our_files_are_fine(file: Path) -> None:
    result = load(str(file), {})
    assert lines(ROOT, result, "error", "warning") == []
    assert list(checker().iter_errors(yaml.safe_load(file.read_text()))) == []
    assert file.read_text().startswith("# yaml-language-server: $schema=")


@pytest.mark.parametrize("file", PACKS, ids=lambda file: file.name)
def test_packs_fit_their_schema(file: Path) -> None:
    assert list(checker("pack").iter_errors(yaml.safe_load(file.read_text()))) == []
    assert file.read_text().startswith("# yaml-language-server: $schema=")


def test_peers_configurations_fit_the_schema() -> None:
    check = checker()
    for file in VECTORS:
        assert list(check.iter_errors(yaml.safe_load(file.read_text())["config"])) == [], file.name


@pytest.mark.parametrize(
    "text",
    [
        "listen: [127.0.0.1:1, 'unix:/x']",
        "admin: off",
        "admin: 'off'",
        "workers: auto",
        "drain: ${DRAIN:-5s}",
        "upstreams: {a: {url: [http://x], timeouts: {total: off}, bucket: off, scope: {header: X-Tenant}}}",
        "strategies: {own: {kind: 'm:C', anything: [1]}}",
        "buckets: {b: {kind: budget, percent: 20%}, c: {kind: budget, percent: 20}}",
    ],
)
def test_the_schema_takes(text: str) -> None:
    assert list(checker().iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "upstrems: {}",
        "drain: 5",
        "drain: 5sec",
        "upstreams: {a: {timeouts: {connect: off}}}",
        "upstreams: {a: {mode: enforced}}",
        "buckets: {b: {kind: quotas}}",
        "upstreams: {a: {routes: [{strategy: none}]}}",
        "limits: {headers: many}",
    ],
)
def test_the_schema_refuses(text: str) -> None:
    assert list(checker().iter_errors(yaml.safe_load(text)))


def _keys(form: Form) -> Iterator[str]:
    if isinstance(form, Either):
        for each in (form.word, form.list, form.mapping):
            if each is not None and not isinstance(each, Anything):
                yield from _keys(each)
    elif isinstance(form, ListOf):
        yield from _keys(form.item)
    elif isinstance(form, MapOf):
        yield from _keys(form.value)
    elif isinstance(form, Section):
        for name, key in form.keys.items():
            yield name
            yield from _keys(key.form)


def test_the_reference_explains_every_key() -> None:
    text = REFERENCE.read_text()
    missing = {name for name in _keys(schema.FILE) if f"{name}:" not in text}
    assert missing == set()


def test_what_the_reference_shows_is_the_default() -> None:
    shown, defaults = load(str(REFERENCE), {}).settings, load(None, {}).settings
    assert shown is not None
    assert defaults is not None
    for name in ("listen", "admin", "probe", "workers", "unmatched", "deny_destinations", "via_proxy", "buffers"):
        assert getattr(shown, name) == getattr(defaults, name), name
    for name in ("limits", "pool", "redis", "log", "drain"):
        assert getattr(shown, name) == getattr(defaults, name), name
    ours, theirs = shown.router.by_name["payments"].policy, defaults.router.fallback.policy
    for name in ("scope", "timeouts", "attempt_headers", "idempotency_key", "mode", "request_headers"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.classify.statuses == theirs.classify.statuses
    assert ours.classify.faults == theirs.classify.faults
    assert _without_cooldown(ours.pushback) == _without_cooldown(theirs.pushback)


def _without_cooldown(pushback: Any) -> tuple[float, float]:
    return pushback.max_delay, pushback.hold
