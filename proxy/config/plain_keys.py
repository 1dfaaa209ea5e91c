"""Advice about secrets that stand in a file in the clear: API keys in `headers` and `credentials`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.config.problems import Mark
from proxy.config.problems import Path as KeyPath
from proxy.config.yaml_tree import Map, Seq, Text

#: Names of request fields whose values are secrets.
_SECRET = re.compile(r"authorization|cookie|(^|-)(api-?key|key|token|secret|password)$", re.IGNORECASE)
#: The shortest text that is taken for a secret: shorter ones are placeholders, such as `x`.
_LEAST = 8


def in_the_clear(policy: Map) -> Iterator[tuple[KeyPath, str]]:
    """Yield (key, message) for each field that a policy's `headers` sets, if its value is a secret that stands in the
    file itself, neither taken from the environment nor from another file. No message repeats a value.
    """
    fields = policy.sub("headers").sub("request").sub("set")
    for name, value in fields.items():
        if _SECRET.search(name) and _is_plain(value):
            yield ("headers", "request", "set", name), _message(f"{name.upper().replace('-', '_')}")


def keys_in_the_clear(upstream: Map, path: KeyPath) -> Iterator[tuple[Mark, KeyPath, str]]:
    """Yield (position, path, message) for each of an upstream's credentials that stands in the file itself, neither
    taken from the environment nor from another file. `path`: the upstream's path of keys in the file, with which each
    yielded path begins.
    """
    values = upstream.sub("credentials").get("values")
    if isinstance(values, Seq):
        for number, (value, mark) in enumerate(zip(values, values.marks, strict=True)):
            if _is_plain(value):
                yield mark, (*path, "credentials", "values", number), _message("API_KEY")


def _message(name: str) -> str:
    return f"a secret in the clear: write ${{{name}}} and set it in the environment, or ${{file:PATH}}"


def _is_plain(value: object) -> bool:
    return isinstance(value, Text) and len(value) >= _LEAST and "${" not in value.raw
