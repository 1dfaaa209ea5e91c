"""A file of policy tests (contract, section 8) as data.

Law: what is written is checked whole before anything runs: an unknown key, a wrong unit, an unknown outcome or an
attempt that says both `status` and `fail` is an error with its line, never a test that quietly holds.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from proxy.config.problems import Problem
from proxy.config.read import LARGEST, read_start
from proxy.lab.policy_tests.expecting import read_expectations
from proxy.lab.policy_tests.reading import Reader, is_null
from proxy.retry.facts import GRPC_STATUS_NAMES, GRPC_STATUS_NUMBERS, FaultKind

_WALL = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True, slots=True)
class Ask:
    """What the app sends. `url` is absolute, or origin-form (chosen by Host or prefix)."""

    method: str = "GET"
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body_size: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What the upstream does to one sending: `fail`, or an answer. `after` is None where it was not written."""

    status: int = 200
    fail: FaultKind | None = None
    after: float | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    grpc_status: int | None = None
    trailers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CallScript:
    """One call of a test. `expect` has only the keys that were written."""

    line: int
    at: float
    ask: Ask
    steps: tuple[Step, ...]
    expect: dict[str, Any] = field(default_factory=dict)
    node: yaml.Node | None = None


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """One test: calls in order of time, against one fresh set of buckets."""

    name: str
    line: int
    calls: tuple[CallScript, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A whole file. `config` is a node (a path or a mapping), or None for the defaults. `seed` beats `draw`."""

    file: str
    config: yaml.Node | None
    draw: float
    seed: int | None
    wall: float
    tests: tuple[PolicyTest, ...]


def read_script(path: Path, name: str | None = None) -> tuple[Script | None, list[Problem]]:
    """Read one file. With flaws there is no script."""
    reader = Reader(name or str(path))
    try:
        data = read_start(str(path))
        text = data.decode("utf-8-sig")
    except OSError as error:
        reader.wrong(None, "", f"cannot be read: {(error.strerror or str(error)).lower()}")
        return None, reader.flaws
    except UnicodeDecodeError as error:
        reader.wrong(None, "", f"is not UTF-8 (byte {error.start})")
        return None, reader.flaws
    if len(data) > LARGEST:
        reader.wrong(None, "", f"larger than {LARGEST // 1024 // 1024} MiB; these are no policy tests")
        return None, reader.flaws
    root = reader.compose(text)
    if root is None:
        return None, reader.flaws
    script = _script(reader, root)
    return (None if reader.flaws else script), reader.flaws


def _script(reader: Reader, root: yaml.Node) -> Script:
    top = reader.mapping(root, "", ("config", "random", "wall", "tests"))
    draw, seed = _random(reader, top.get("random"))
    tests: list[PolicyTest] = []
    if "tests" in top:
        tests = reader.each(top["tests"], "tests", lambda node, path: _test(reader, node, path))
        if isinstance(top["tests"], yaml.SequenceNode) and not top["tests"].value:
            reader.wrong(top["tests"], "tests", "should hold at least one test")
    else:
        reader.wrong(root, "tests", "is missing")
    return Script(
        file=reader.file,
        config=top.get("config"),
        draw=draw,
        seed=seed,
        wall=_wall(reader, top.get("wall")),
        tests=tuple(tests),
    )


def _random(reader: Reader, node: yaml.Node | None) -> tuple[float, int | None]:
    if node is None:
        return 1.0, None
    if isinstance(node, yaml.MappingNode):
        keys = reader.mapping(node, "random", ("seed",))
        if "seed" not in keys:
            reader.wrong(node, "random.seed", "is missing")
            return 1.0, None
        return 1.0, reader.whole(keys["seed"], "random.seed")
    draw = reader.number(node, "random")
    if draw is not None and not 0 <= draw <= 1:
        reader.wrong(node, "random", f"should be from 0 to 1, not {draw:g}")
    return draw if draw is not None else 1.0, None


def _wall(reader: Reader, node: yaml.Node | None) -> float:
    if node is None:
        return _WALL
    text = reader.text(node, "wall")
    if text is None:
        return _WALL
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        reader.wrong(node, "wall", f"should be a time such as 2026-01-01T00:00:00Z, not {text!r}")
        return _WALL
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _test(reader: Reader, node: yaml.Node, path: str) -> PolicyTest | None:
    keys = reader.mapping(node, path, ("name", "calls"))
    if not isinstance(node, yaml.MappingNode):
        return None
    name = reader.text(keys["name"], f"{path}.name") if "name" in keys else None
    if not name:
        reader.wrong(node, f"{path}.name", "is missing")
    calls: list[CallScript] = []
    if "calls" in keys:
        calls = reader.each(keys["calls"], f"{path}.calls", lambda item, where: _call(reader, item, where))
        if isinstance(keys["calls"], yaml.SequenceNode) and not keys["calls"].value:
            reader.wrong(keys["calls"], f"{path}.calls", "should name at least one call")
    else:
        reader.wrong(node, f"{path}.calls", "is missing")
    _in_order(reader, calls, f"{path}.calls")
    return PolicyTest(name or "", node.start_mark.line + 1, tuple(calls))


def _in_order(reader: Reader, calls: list[CallScript], path: str) -> None:
    for index, (before, after) in enumerate(pairwise(calls), start=1):
        if after.at < before.at:
            reader.wrong(after.node, f"{path}[{index}].at", "calls should be in order of time")


def _call(reader: Reader, node: yaml.Node, path: str) -> CallScript | None:
    keys = reader.mapping(node, path, ("at", "request", "attempts", "expect"))
    if not isinstance(node, yaml.MappingNode):
        return None
    at = reader.duration(keys["at"], f"{path}.at") if "at" in keys else 0.0
    ask = Ask()
    if "request" in keys:
        ask = _ask(reader, keys["request"], f"{path}.request")
    else:
        reader.wrong(node, f"{path}.request", "is missing")
    steps: list[Step] = []
    if "attempts" in keys:
        steps = reader.each(keys["attempts"], f"{path}.attempts", lambda item, where: _step(reader, item, where))
        if isinstance(keys["attempts"], yaml.SequenceNode) and not keys["attempts"].value:
            reader.wrong(keys["attempts"], f"{path}.attempts", "should say what becomes of at least one attempt")
    else:
        reader.wrong(node, f"{path}.attempts", "is missing")
    expect = {}
    if "expect" in keys and not is_null(keys["expect"]):
        expect = read_expectations(reader, keys["expect"], f"{path}.expect")
    return CallScript(node.start_mark.line + 1, at or 0.0, ask, tuple(steps), expect, node)


def _ask(reader: Reader, node: yaml.Node, path: str) -> Ask:
    keys = reader.mapping(node, path, ("method", "url", "headers", "body_size"))
    method = reader.text(keys["method"], f"{path}.method") if "method" in keys else "GET"
    if method is not None and not _is_token(method):
        reader.wrong(keys.get("method", node), f"{path}.method", f"{method!r} is no method")
    url = reader.text(keys["url"], f"{path}.url") if "url" in keys else None
    if url is None:
        if "url" not in keys:
            reader.wrong(node, f"{path}.url", "is missing")
    elif not url.startswith(("http://", "https://", "/")):
        reader.wrong(keys["url"], f"{path}.url", f"should begin with http://, https:// or /, not {url!r}")
    headers = _headers(reader, keys["headers"], f"{path}.headers") if "headers" in keys else ()
    size = reader.size(keys["body_size"], f"{path}.body_size") if "body_size" in keys else 0
    return Ask(method or "GET", url or "", headers, size or 0)


def _headers(reader: Reader, node: yaml.Node, path: str) -> tuple[tuple[str, str], ...]:
    """A mapping of fields; a list of values is a field that repeats."""
    pairs: list[tuple[str, str]] = []
    for name, value in reader.mapping(node, path, None).items():
        where = f"{path}.{name}"
        if not _is_token(name):
            reader.wrong(value, where, f"{name!r} is no field name")
        for item in reader.sequence(value, where) if isinstance(value, yaml.SequenceNode) else [value]:
            text = reader.text(item, where)
            if text is not None and ("\n" in text or "\r" in text or "\0" in text):
                reader.wrong(item, where, "a field value is one line")
            elif text is not None:
                pairs.append((name, text))
    return tuple(pairs)


def _is_token(text: str) -> bool:
    return bool(text) and _TOKEN.issuperset(text)


def _step(reader: Reader, node: yaml.Node, path: str) -> Step | None:
    keys = reader.mapping(node, path, ("status", "fail", "after", "headers", "body", "grpc_status", "trailers"))
    if not isinstance(node, yaml.MappingNode):
        return None
    after = reader.duration(keys["after"], f"{path}.after") if "after" in keys else None
    if "fail" in keys:
        for other in ("status", "grpc_status", "headers", "body", "trailers"):
            if other in keys:
                reader.wrong(keys[other], f"{path}.{other}", "an attempt that fails has no answer")
        kind = reader.choice(keys["fail"], f"{path}.fail", [kind.value for kind in FaultKind])
        return Step(fail=FaultKind(kind) if kind in set(FaultKind) else None, after=after)
    if "status" not in keys and "grpc_status" not in keys:
        reader.wrong(node, path, "should say a status, a grpc_status or a fault (fail)")
    status = reader.whole(keys["status"], f"{path}.status") if "status" in keys else 200
    if status is not None and not 200 <= status <= 999:
        reader.wrong(keys["status"], f"{path}.status", f"should be a final status, from 200 to 999, not {status}")
    body = reader.text(keys["body"], f"{path}.body") if "body" in keys else ""
    return Step(
        status=status or 200,
        after=after,
        headers=_headers(reader, keys["headers"], f"{path}.headers") if "headers" in keys else (),
        body=(body or "").encode(),
        grpc_status=_grpc_status(reader, keys["grpc_status"], f"{path}.grpc_status") if "grpc_status" in keys else None,
        trailers=_headers(reader, keys["trailers"], f"{path}.trailers") if "trailers" in keys else (),
    )


def _grpc_status(reader: Reader, node: yaml.Node, path: str) -> int | None:
    text = reader.text(node, path)
    if text is not None and text.isascii() and text.isdigit() and int(text) < len(GRPC_STATUS_NAMES):
        return int(text)
    name = reader.choice(node, path, GRPC_STATUS_NAMES)
    return GRPC_STATUS_NUMBERS.get(name or "")
