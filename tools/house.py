"""Whether the code keeps what neither ruff nor the layers of import-linter can hold: `make check` runs it.

    python tools/house.py          print one line for each finding, and fail where there is one
    python tools/house.py --all    print those too that are known and still to be mended

- No circles: no files under proxy/ import each other in a ring, be it only for a type checker (`TYPE_CHECKING`) or
  inside of a function.
- No lone mixins: no class serves only to be the base of one other class. Two halves of a class belong into one file,
  or the one has the other as a part.
- A class's name stands in one file.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGE = "proxy"
#: What is still to be mended: rooms with circles, and names of classes. Nothing may be added here.
STILL: frozenset[str] = frozenset()


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


class Classes:
    """All classes of some files: where each is, what is made of each, and who names it."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.places: dict[str, list[str]] = defaultdict(list)
        self.subclasses: dict[str, list[str]] = defaultdict(list)
        self.named: set[str] = set()
        for path, text in files.items():
            self._read(path, ast.parse(text, path))

    def _read(self, path: str, tree: ast.Module) -> None:
        for node in tree.body:
            if not isinstance(node, ast.ClassDef):
                self.named |= {*names_used(node)}
                continue
            self.places[node.name].append(f"{path}:{node.lineno}")
            for base in node.bases:
                self.subclasses[base_name(base)].append(node.name)
            inside = [*node.body, *node.decorator_list, *(each.value for each in node.keywords)]
            self.named |= {name for part in inside for name in names_used(part)} - {node.name}

    def lone_mixins(self) -> Iterator[tuple[str, str]]:
        """The name and a line for each class that is the base of one other class, and nothing else anywhere."""
        for name, places in sorted(self.places.items()):
            if len(self.subclasses[name]) == 1 and name not in self.named:
                yield name, f"{places[0]}: {name} is only the base of {self.subclasses[name][0]}: make them one class"

    def doubles(self) -> Iterator[tuple[str, str]]:
        """The name and a line for each name that several classes have; a private one is its file's own affair."""
        for name, places in sorted(self.places.items()):
            if len(places) > 1 and not name.startswith("_"):
                yield name, f"{places[0]}: another class is called {name}: {', '.join(places[1:])}"


def findings() -> Iterator[tuple[str, str]]:
    """A line for each thing that is not as it should be, after the name by which `STILL` calls it."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    yield from circles({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    classes = Classes({str(path.relative_to(ROOT)): path.read_text() for path in files})
    yield from classes.lone_mixins()
    yield from classes.doubles()


def main() -> int:
    """Print the findings; 1 where there is one that nobody knows of."""
    found = [*findings()]
    new = [line for name, line in found if name not in STILL]
    sys.stdout.writelines(f"{line}\n" for line in ([line for _, line in found] if "--all" in sys.argv else new))
    if mended := STILL - {name for name, _ in found}:
        sys.stdout.write(f"mended, so take it out of STILL: {' '.join(sorted(mended))}\n")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
