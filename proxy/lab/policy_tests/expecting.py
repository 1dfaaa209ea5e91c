"""What `expect` may name, and how each key is read (contract, section 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from proxy.lab.policy_tests.reading import Reader, is_null
from proxy.retry.facts import Outcome


def read_expectations(reader: Reader, node: yaml.Node, path: str) -> dict[str, Any]:
    """The keys that are written, with their values: seconds, numbers, texts, lists of them."""
    keys = reader.mapping(node, path, EXPECTATIONS)
    return {name: EXPECTATIONS[name](reader, value, f"{path}.{name}") for name, value in keys.items()}


def _durations(reader: Reader, node: yaml.Node, path: str) -> list[float]:
    return reader.each(node, path, reader.duration)


def _levels(reader: Reader, node: yaml.Node, path: str) -> list[float | None]:
    items = reader.sequence(node, path)
    return [_number_or_none(reader, item, f"{path}[{index}]") for index, item in enumerate(items)]


def _number_or_none(reader: Reader, node: yaml.Node, path: str) -> float | None:
    return None if is_null(node) else reader.number(node, path)


def _outcome(reader: Reader, node: yaml.Node, path: str) -> str | None:
    return reader.choice(node, path, [outcome.value for outcome in Outcome])


def _sent(reader: Reader, node: yaml.Node, path: str) -> list[dict[str, str | None]]:
    return reader.each(node, path, lambda item, where: _sent_fields(reader, item, where))


def _sent_fields(reader: Reader, node: yaml.Node, path: str) -> dict[str, str | None]:
    fields: dict[str, str | None] = {}
    for name, value in reader.mapping(node, path, None).items():
        where = f"{path}.{name}"
        if isinstance(value, yaml.SequenceNode):
            fields[name.lower()] = ", ".join(reader.each(value, where, reader.text))
        else:
            fields[name.lower()] = None if is_null(value) else reader.text(value, where)
    return fields


#: What `expect` may name, and how each is read.
EXPECTATIONS: dict[str, Callable[[Reader, yaml.Node, str], Any]] = {
    "attempts": lambda reader, node, path: reader.whole(node, path),
    "tokens_after_each": _levels,
    "delays": _durations,
    "starts": _durations,
    "status": lambda reader, node, path: reader.whole(node, path),
    "outcome": _outcome,
    "tokens": _number_or_none,
    "elapsed": lambda reader, node, path: reader.duration(node, path),
    "sent": _sent,
    "fill_rate": _number_or_none,
    "measured_rate": _number_or_none,
}
