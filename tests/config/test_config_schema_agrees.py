"""The JSON Schema and `check` judge mutants of the examples alike: one value of a file, replaced by another kind.

What a schema can't say is left to `check`: names that must be defined elsewhere, addresses, keys that go together. So
what `check` takes the schema must take, always; and what is of the wrong kind both must refuse.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from proxy.config import schema
from proxy.config.load import load_tree
from proxy.config.pack_schema import PACK
from proxy.config.schema_language import Section, Word
from proxy.config.yaml_tree import adopt

ROOT = Path(__file__).parents[2]
FILES = [*sorted((ROOT / "config").glob("*.yaml")), *sorted((ROOT / "config" / "examples").glob("*.yaml"))]
TREES = [(file, yaml.safe_load(file.read_text())) for file in FILES]
CHECKER = jsonschema.Draft202012Validator(schema.schema())
VALUES: tuple[Any, ...] = (
    *(None, 7, 0, -1, 2.5, True, False, "", "word", "7", "true"),
    *([], ["a"], [1], [None], {}, {"zzz": 1}, {"a": None}),
)
#: Mappings whose keys the schema leaves to `check`: gRPC's own, and the arguments of a strategy of one's own.
LEFT_ALONE = frozenset({"service_config", "loadBalancingConfig"})
#: What `check` says of a value of the right kind that a schema can't judge.
BEYOND = (
    "is missing: write",
    "unknown key for the kind",
    "there is no dialect called",
    "there is no bucket called",
    "has no scheme",
    "is not an HTTP status",
    "there is no upstream",
)

Path_ = tuple[Any, ...]


def places(tree: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The paths of all values in a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


ALL = [(file, tree, path) for file, tree in TREES for path in places(tree) if not LEFT_ALONE & set(path)]


def mutant(tree: Any, path: Path_, value: Any) -> Any:
    made = around = deepcopy(tree)
    for key in path[:-1]:
        around = around[key]
    around[path[-1]] = deepcopy(value)
    return made


def kind(value: Any) -> str:
    return {dict: "mapping", list: "list", type(None): "nothing"}.get(type(value), "scalar")


def judged(file: Path, made: Any) -> tuple[bool, list[str]]:
    """Whether the schema takes it, and what `check` has against it."""
    return CHECKER.is_valid(made), [str(each) for each in load_tree(made, str(file), {}).errors]


@pytest.mark.parametrize("seed", range(8))
def test_mutants_are_judged_alike(seed: int) -> None:
    rng, differ = random.Random(seed), []
    for _ in range(60):
        file, tree, path = rng.choice(ALL)
        value = rng.choice(VALUES)
        before = tree
        for key in path:
            before = before[key]
        fits, errors = judged(file, mutant(tree, path, value))
        wrong_kind = kind(value) != "scalar" and kind(value) != kind(before)
        missed = fits and errors and wrong_kind and not any(each in line for line in errors for each in BEYOND)
        if missed or (not fits and not errors):
            differ.append((file.name, path, json.dumps(value), f"schema: {fits}", errors))
    assert not differ


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("upstreams:", ""),
        ("buckets:\nstrategies:\ndefaults:\nupstreams:\n  a:\n    routes:\n    timeouts:\n    dialects:", ""),
        ("include:", ""),
        ("drain:", "drain"),
        ("listen:", "listen"),
        ("upstreams: {a: {timeouts: {total: }}}", "upstreams.a.timeouts.total"),
        ("upstreams: {a: {url: }}", "upstreams.a.url"),
        ("upstreams: {a: {strategy: }}", "upstreams.a.strategy"),
        ("upstreams: {a: {bucket: }}", "upstreams.a.bucket"),
        ("admin:", "admin"),
        ("buckets: {a: {kind: quota, capacity: }}", "buckets.a.capacity"),
        ("upstreams: {a: {routes: [{match: {path: }}]}}", "upstreams.a.routes[0].match.path"),
    ],
)
def test_keys_left_empty(text: str, line: str) -> None:
    """A list or a mapping may be left empty; where a word may stand, it is a mistake, told in one line."""
    fits, errors = judged(Path("r.yaml"), yaml.safe_load(text))
    wanted = f"{line}: has nothing after it: write a value, or leave the key out"
    assert [error.partition(": ")[2] for error in errors] == ([wanted] if line else [])
    assert fits == (not line)


def words(form: Any, path: str = "", within: tuple[int, ...] = ()) -> Iterator[tuple[str, Word]]:
    """Every word of a form, with where it stands."""
    if isinstance(form, Word):
        yield path, form
    elif id(form) not in within:
        inner = (*within, id(form))
        for name in ("word", "list", "mapping", "item", "value"):
            yield from words(getattr(form, name, None), path, inner)
        for name, key in form.keys.items() if isinstance(form, Section) else ():
            yield from words(key.form, f"{path}.{name}".strip("."), inner)


TEXTS = (
    *("Off", "OFF", "false", "False", "http://h", "HTTP://h:1/x", "unix:/s", "[::]:8080", "*.example:8443", "5XX"),
    *("fe80::1%eth0", "fe80::/10", "[::1]", "520 - 527", "OK", "UNAVAILABLE", "reset", "GET", "/v1/*", "**", "*"),
)


@pytest.mark.parametrize("value", [7, 0, -1, 2.5, True, False, 503, 1e3, *TEXTS])
def test_what_check_takes_fits_the_schema(value: Any) -> None:
    """Where `check` takes a scalar, or what a number or a boolean looks like, the schema takes it."""
    text = adopt(value)
    narrower = []
    for path, word in {id(word): (path, word) for root in (schema.FILE, PACK) for path, word in words(root)}.values():
        try:
            word.reader(text)
        except ValueError:
            continue
        if not jsonschema.Draft202012Validator(word.schema({})).is_valid(value):
            narrower.append(path)
    assert [path for path in narrower if not path.endswith("strategy.kind")] == []  # whose names are told elsewhere
