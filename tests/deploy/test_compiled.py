"""What is compiled: the types beside a module name all that its classes keep; what is built is what stands there."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import os
import pickle
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from proxy.retry import dialect, facts, policy, value_bases
from proxy.retry.policy import Backoff, Policy, Strategy
from proxy.wire.http1.compiled import CORE

ROOT = Path(__file__).parent.parent.parent
MODULES = re.findall(r'^    "(proxy[\w.]+)",$', (ROOT / "setup.py").read_text(), re.M)
TYPED = [module for module in MODULES if (ROOT / module.replace(".", "/")).with_suffix(".pxd").exists()]
#: The bases of values, and the values (dataclasses) by name.
BASES = [each for name, each in vars(value_bases).items() if name.endswith("Base")]
VALUES = {**vars(dialect), **vars(facts), **vars(policy)}
_CLASS = re.compile(r"^cdef class (\w+)(?:\((\w+)\))?:$")
_ATTRIBUTES = re.compile(r"^    cdef (?:public |readonly )?[\w ]+?(?:\[\d+\])? (\w+(?:, \w+)*)(?:  #.*)?$")


def declared() -> dict[str, tuple[str, set[str], str]]:
    """Each class with types: its base among them ("": none), the attributes that it declares itself, its module."""
    found: dict[str, tuple[str, set[str], str]] = {}
    for module in TYPED:
        names: set[str] = set()
        for line in (ROOT / module.replace(".", "/")).with_suffix(".pxd").read_text().splitlines():
            if (begun := _CLASS.match(line)) is not None:
                names = set()
                found[begun[1]] = begun[2] or "", names, module
            elif (named := _ATTRIBUTES.match(line)) is not None:
                again = names.intersection(named[1].split(", "))
                assert not again, f"{module}: {', '.join(sorted(again))} is declared twice, which does not compile"
                names.update(named[1].split(", "))
    return found


def assigned(module: str) -> Iterator[tuple[str, str]]:
    """Class and attribute of all that methods of a module's classes assign to `self`."""
    source = (ROOT / module.replace(".", "/")).with_suffix(".py")
    tree = ast.parse(source.read_text() if source.exists() else "")  # else it is a .pyx, which the compiler checks
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            for node in ast.walk(each):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "self"
                ):
                    yield each.name, node.attr


@pytest.mark.parametrize("module", TYPED)
def test_every_attribute_is_declared(module: str) -> None:
    """A compiled class has no room for what its `.pxd` does not name: setting it would raise AttributeError."""
    classes = declared()
    for name, attribute in assigned(module):
        if name not in classes:
            continue
        known: set[str] = set()
        base = name
        while base:
            base, names, _ = classes[base]
            known |= names
        assert attribute in known, f"{name}.{attribute} is not in {module.replace('.', '/')}.pxd"


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_a_base_of_values_names_all_fields_of_its_dataclass(base: type) -> None:
    """A field without a place in the base would be read by name, and one that is no field would be left out of the
    copies that are made of the value, and of what goes to other processes.
    """
    value, names = VALUES[base.__name__.removesuffix("Base")], base.__dict__["__slots__"]
    assert issubclass(value, base)
    assert set(names) == {field.name for field in fields(value)}
    assert declared()[base.__name__][1] == set(names)
    assert value.__dict__["__slots__"] == ()


def test_a_policy_is_the_same_in_another_process() -> None:
    sent = Policy("payments", "", Strategy("standard", "own", 3, Backoff(0.1, 20.0)), None, mode="observe")
    there = pickle.loads(pickle.dumps(sent, pickle.HIGHEST_PROTOCOL))
    assert [getattr(there, field.name) for field in fields(sent)] == [
        getattr(sent, field.name) for field in fields(sent)
    ]
    assert replace(there, mode="off").strategy == sent.strategy


def test_every_types_file_belongs_to_a_module_that_is_compiled() -> None:
    beside = {str(path.relative_to(ROOT).with_suffix("")).replace("/", ".") for path in (ROOT / "proxy").rglob("*.pxd")}
    assert beside <= set(MODULES)


@pytest.mark.skipif(CORE != "compiled", reason="nothing is compiled here (make core)")
@pytest.mark.parametrize("module", MODULES)
def test_what_is_built_is_what_stands_there(module: str) -> None:
    """A build that is older than its source would run what nobody reads: `make core` again."""
    file = Path(str(importlib.import_module(module).__file__))
    assert file.name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)), f"{module} is not compiled"
    source = ROOT / module.replace(".", "/")
    for suffix in (".py", ".pxd", ".pyx"):
        if source.with_suffix(suffix).exists() and source.parent == file.parent:
            assert os.stat(source.with_suffix(suffix)).st_mtime <= file.stat().st_mtime, f"{module}: make core"
