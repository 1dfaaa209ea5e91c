"""Whether the code keeps what neither ruff nor the layers of import-linter can hold: `make check` runs it.

    python tools/house.py          print one line for each finding, and fail where there is one
    python tools/house.py --all    print those too that are known and still to be mended

- No circles: no files under proxy/ import each other in a ring, be it only for a type checker (`TYPE_CHECKING`) or
  inside of a function.
- No lone mixins: no class serves only to be the base of one other class. Two halves of a class belong into one file,
  or the one has the other as a part.
- A class's name stands in one file.
- A class has at most 40 methods and 20 attributes. A record may have more attributes: a dataclass, a NamedTuple, or a
  class of six methods at most. `LARGE` lists the classes that are larger; it may only shrink.
- A public method has a docstring, unless a base says what it does. `BY_SHAPE` lists the classes whose base is not in
  the package, or that implement a protocol without naming it.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGE = "proxy"
#: What is still to be mended: rooms with circles, and names of classes. Nothing may be added here.
STILL: frozenset[str] = frozenset()
#: The most methods and attributes of a class, and the most methods of a record.
METHODS, ATTRIBUTES, OF_A_RECORD = 40, 20, 6
#: Classes that are larger, with their methods and attributes, which may become fewer. Nothing may be added here.
LARGE: dict[str, tuple[int, int]] = {
    "AppConnection": (50, 36),
    "Attempt": (22, 22),
    "Connection": (31, 28),
    "Limit": (30, 29),
    "Plan": (13, 25),
    "Request2": (12, 26),
    "Session": (50, 22),
    "Stream": (31, 25),
}
#: Classes that ruff's D102 would ask to say again what asyncio, aiohttp or a protocol of the package says.
BY_SHAPE = frozenset({
    "AdminConnection", "AdminServer", "Anything", "AppConnection", "Connection", "Either", "JsonValue",
    "ListOf", "LogTurn", "MapOf", "Pages", "RedisCooldown", "Secrets", "Section", "SharedLane", "SharedLostRows",
    "SharedScope", "Word", "Workers",
})  # fmt: skip


def shortest_circle(imports: Mapping[str, set[str]], start: str) -> list[str]:
    """The shortest chain of imports that leads from a module back to it, that module first and last; else empty."""
    came_from: dict[str, str] = {}
    reached = [start]
    for module in reached:
        for imported in sorted(imports[module]):
            if imported == start:
                chain = [start]
                while module != start:
                    chain.append(module)
                    module = came_from[module]
                return [start, *reversed(chain)]
            if imported not in came_from:
                came_from[imported] = module
                reached.append(imported)
    return []


def circles(imports: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """A room and a line for each circle of imports; each module that is in a circle is in a line.

    Args:
        imports: for each module by its dotted name, the modules it imports.
    """
    shown: set[str] = set()
    for module in sorted(imports):
        if module not in shown and (chain := shortest_circle(imports, module)):
            shown |= {*chain}
            yield ".".join(module.split(".")[:2]), f"circle of imports: {' -> '.join(chain)}"


def base_name(base: ast.expr) -> str:
    """The last part of a base class's name, without its type arguments."""
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def names_used(tree: ast.AST) -> Iterator[str]:
    """All names that code under a node uses, those in quoted annotations and in `__all__` too; imports use none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(SyntaxError, ValueError):  # it is text
                yield from names_used(ast.parse(node.value, mode="eval"))


def is_layout(node: ast.ClassDef) -> bool:
    """Whether a class has nothing but a docstring and `__slots__`."""
    return bool(node.body) and all(
        isinstance(each, ast.Expr) or (isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__slots__")
        for each in node.body
    )


class Classes:
    """All classes of some files: where each is, what is made of each, and who names it."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.places: dict[str, list[str]] = defaultdict(list)
        self.subclasses: dict[str, list[str]] = defaultdict(list)
        self.named: set[str] = set()
        self.layouts: set[str] = set()
        for path, text in files.items():
            self._read(path, ast.parse(text, path))

    def _read(self, path: str, tree: ast.Module) -> None:
        for node in tree.body:
            if not isinstance(node, ast.ClassDef):
                self.named |= {*names_used(node)}
                continue
            self.places[node.name].append(f"{path}:{node.lineno}")
            if is_layout(node):
                self.layouts.add(node.name)
            for base in node.bases:
                self.subclasses[base_name(base)].append(node.name)
            inside = [*node.body, *node.decorator_list, *(each.value for each in node.keywords)]
            self.named |= {name for part in inside for name in names_used(part)} - {node.name}

    def lone_mixins(self) -> Iterator[tuple[str, str]]:
        """The name and a line for each class that is the base of one other class, and nothing else anywhere. A class
        that only names members is no mixin: it gives a dataclass members that compiled code reads from memory.
        """
        for name, places in sorted(self.places.items()):
            if len(self.subclasses[name]) == 1 and name not in self.named | self.layouts:
                yield name, f"{places[0]}: {name} is only the base of {self.subclasses[name][0]}: make them one class"

    def doubles(self) -> Iterator[tuple[str, str]]:
        """The name and a line for each name that several classes have; a private one is its file's own affair."""
        for name, places in sorted(self.places.items()):
            if len(places) > 1 and not name.startswith("_"):
                yield name, f"{places[0]}: another class is called {name}: {', '.join(places[1:])}"


def _assigned(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The attributes of its own object that a method assigns."""
    for node in ast.walk(method):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
            continue
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node.attr


def _is_data(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass or a NamedTuple."""
    decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return "dataclass" in map(base_name, decorators) or "NamedTuple" in map(base_name, node.bases)


def size(node: ast.ClassDef) -> tuple[int, int]:
    """The methods of a class and its attributes, as far as its own body says; a record has no attributes to bound."""
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    count = len({each.name for each in methods})
    if count <= OF_A_RECORD or _is_data(node):
        return count, 0
    attributes = {name for each in methods for name in _assigned(each)}
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            attributes.add(each.target.id)
    return count, len(attributes)


def large(files: Mapping[str, str], known: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """The name and a line for each class that is larger than it may be, or than it was when it became known."""
    for path, text in files.items():
        for node in ast.walk(ast.parse(text, path)):
            if not isinstance(node, ast.ClassDef):
                continue
            most_methods, most_attributes = known.get(node.name, (METHODS, ATTRIBUTES))
            methods, attributes = size(node)
            if methods > max(most_methods, METHODS) or attributes > max(most_attributes, ATTRIBUTES):
                bounds = f"at most {max(most_methods, METHODS)} and {max(most_attributes, ATTRIBUTES)}"
                line = f"{path}:{node.lineno}: {node.name} has {methods} methods and {attributes} attributes, {bounds}"
                yield node.name, f"{line}: give it parts that own their fields"


def shrunk(files: Mapping[str, str], known: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """A line for each known large class that has become smaller, or is gone."""
    sizes = {}
    for path, text in files.items():
        for node in ast.walk(ast.parse(text, path)):
            if isinstance(node, ast.ClassDef):
                sizes[node.name] = size(node)
    for name, before in known.items():
        methods, attributes = sizes.get(name, (0, 0))
        now = (max(methods, METHODS), max(attributes, ATTRIBUTES))
        if now != (max(before[0], METHODS), max(before[1], ATTRIBUTES)):
            yield f"{name} has {methods} methods and {attributes} attributes now: say so in LARGE, or take it out"


def _documented(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """The methods that have docstrings in a class, or in a base of it that is among `classes`."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(each):
            yield each.name
    for base in map(base_name, node.bases):
        if base in classes and base != node.name:
            yield from _documented(classes[base], classes)


def undocumented(files: Mapping[str, str], by_shape: Collection[str]) -> Iterator[tuple[str, str]]:
    """The class and a line for each public method that neither its class nor a base documents."""
    parsed = [(path, each) for path, text in files.items() for each in ast.parse(text, path).body]
    found = [(path, each) for path, each in parsed if isinstance(each, ast.ClassDef)]
    classes = {each.name: each for _, each in found}
    for path, node in found:
        if node.name.startswith("_") or node.name in by_shape:
            continue
        documented = {*_documented(node, classes)}
        for each in node.body:
            if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) or each.name.startswith("_"):
                continue
            if each.name not in documented:
                line = f"{path}:{each.lineno}: {node.name}.{each.name} has no docstring, and no base says what it does"
                yield node.name, line


def sources() -> dict[str, str]:
    """The Python files of the package, each by its path."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / PACKAGE).rglob("*.py"))}


def findings() -> Iterator[tuple[str, str]]:
    """A line for each thing that is not as it should be, after the name by which `STILL` calls it."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    yield from circles({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})
    files = sources()
    classes = Classes(files)
    yield from classes.lone_mixins()
    yield from classes.doubles()
    yield from large(files, LARGE)
    yield from undocumented(files, BY_SHAPE)


def main() -> int:
    """Print the findings; 1 where there is one that nobody knows of, or `LARGE` has a class that became smaller."""
    found = [*findings()]
    new = [line for name, line in found if name not in STILL]
    sys.stdout.writelines(f"{line}\n" for line in ([line for _, line in found] if "--all" in sys.argv else new))
    if mended := STILL - {name for name, _ in found}:
        sys.stdout.write(f"mended, so take it out of STILL: {' '.join(sorted(mended))}\n")
    smaller = [*shrunk(sources(), LARGE)]
    sys.stdout.writelines(f"{line}\n" for line in smaller)
    return 1 if new or smaller else 0


if __name__ == "__main__":
    sys.exit(main())
