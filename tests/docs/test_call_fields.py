"""The machine hears events only: no module outside of `proxy/retry/` changes a field of a `Call` or its `CallState`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent / "proxy"
#: The classes whose fields are watched, each with its module; and the attribute of a call that holds its state.
CLASSES = {"Call": "proxy.retry.call.machine", "CallState": "proxy.retry.call.call_state"}
STATE = "so_far"
#: What a file contains that could change a field of these: all others need not be parsed.
MENTIONS = (STATE, "decider()", *CLASSES.values())
#: Methods that change what they are called on.
CHANGES = {"append", "add", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}


def is_call_type(annotation: ast.expr | None) -> bool:
    return annotation is not None and any(
        (isinstance(node, ast.Name) and node.id in CLASSES)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in CLASSES)
        for node in ast.walk(annotation)
    )


def name_of(node: ast.expr) -> str:
    """The last name of an expression: of `self.call` it is "call", of `one.decider()` "decider()"."""
    if isinstance(node, ast.Call):
        return f"{name_of(node.func)}()"
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def calls_in(tree: ast.Module, known: set[str]) -> set[str]:
    """Names under which a module has a `Call` or its state. `known`: attributes and functions of the package that are
    one.
    """
    names = known | {"Call()", STATE}
    while True:
        before = len(names)
        for node in ast.walk(tree):
            if isinstance(node, ast.arg) and is_call_type(node.annotation):
                names.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and is_call_type(node.annotation):
                names.add(name_of(node.target))
            elif isinstance(node, ast.FunctionDef) and is_call_type(node.returns):
                names |= {f"{node.name}()", node.name}
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    pairs = [(target, node.value)]
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                        pairs = list(zip(target.elts, node.value.elts, strict=True))
                    names |= {name_of(to) for to, value in pairs if name_of(value) in names}
        if len(names) == before:
            return names


def changes(tree: ast.Module, calls: set[str]) -> Iterator[str]:
    """What a module changes of a `Call`, one line for each."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            targets = [node.func.value]
        elif isinstance(node, ast.Call) and name_of(node.func) in ("setattr", "delattr"):
            targets = [ast.Attribute(node.args[0], "setattr")]
        for target in targets:
            elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from (ast.unparse(each) for each in elements if is_within_call(each, calls))


def is_within_call(target: ast.expr, calls: set[str]) -> bool:
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
        if isinstance(target, ast.Attribute) and name_of(target.value) in calls:
            return True
        target = target.value
    return False


def test_no_driver_changes_a_field_of_a_call() -> None:
    files = [path for path in sorted(ROOT.rglob("*.py")) if not path.is_relative_to(ROOT / "retry")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files}
    trees = {name: ast.parse(text) for name, text in texts.items() if any(each in text for each in MENTIONS)}
    users = {name: tree for name, tree in trees.items() if imports_calls(tree)}
    assert {"forward/exchange.py", "lab/driver.py"} <= {*users}
    known: set[str] = set()
    for tree in users.values():
        known |= calls_in(tree, set())
    found = [f"{name}: {line}" for name, tree in trees.items() for line in changes(tree, calls_of(name, users, known))]
    assert not found


def imports_calls(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and any(CLASSES.get(alias.name) == node.module for alias in node.names)
        for node in ast.walk(tree)
    )


def calls_of(module: str, users: dict[str, ast.Module], known: set[str]) -> set[str]:
    """Names of a `Call` or its state in a module; of one that imports neither, those that drivers' attributes have."""
    return calls_in(users[module], known) if module in users else {STATE, *(known & {"decider()"})}


@pytest.mark.parametrize(
    "line",
    [
        "call.first_byte = 1.0",
        "self.call.endpoints[1] = ''",
        "self.decider().deadline = None",
        "before = self.call; before.attempts += 1",
        "policy, one = self.policy, self.call; one.history.append(2)",
        "call.state.planned = None",
        "del self.call.history[0]",
        "setattr(self.call, 'deadline', 1.0)",
        "self.detail, self.call.committed = '', True",
        "self.call.so_far.attempts += 1",
        "so_far = self.call.so_far; so_far.attempts = 3",
        "state = call.so_far; state.history.append(2)",
        "so_far.deadline = None",
    ],
)
def test_a_change_is_found(line: str) -> None:
    tree = ast.parse(f"def decider(self) -> Call: ...\ndef play(call: Call) -> None: {line}\nself.call: Call = None")
    assert [*changes(tree, calls_in(tree, set()))]


def test_a_change_of_a_state_that_was_passed_is_found() -> None:
    tree = ast.parse("def report(reached: CallState) -> None: reached.deadline = None")
    assert [*changes(tree, calls_in(tree, set()))]


def test_what_is_no_change() -> None:
    tree = ast.parse("self.call = Call(); call = self.call; call.start(0.0); del driver.call; due = call.deadline")
    assert not [*changes(tree, calls_in(tree, set()))]
