"""What is compiled: the types beside a module name all that its classes keep; what is built is what stands there."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.wire.http1.compiled import CORE

ROOT = Path(__file__).parent.parent.parent
MODULES = re.findall(r'^    "(proxy[\w.]+)",$', (ROOT / "setup.py").read_text(), re.M)
TYPED = [module for module in MODULES if (ROOT / module.replace(".", "/")).with_suffix(".pxd").exists()]
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
