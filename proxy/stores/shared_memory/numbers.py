"""The attributes of an object as numbers, in an order that is the same in every process.

A pure class keeps its state in attributes, and knows nothing of shared memory. Its numbers, flags, lists of fixed
length and inner objects are written to a record one after another, and read from it. Which attributes a class has is
said in a table (`Names`), because a compiled class does not know them while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

#: The attributes of each class that are written; and those of them that may be None.
Names = Mapping[type, Collection[str]]
Optional = Mapping[type, Mapping[str, Callable[[], Any]]]


class Numbers:
    """The attributes of the objects of one class as numbers, which are written and read. `example`: an object of the
    class, which shows the attributes' types. `names`: for the class and the classes of its inner objects, the
    attributes that are written. `optional`: for the same classes, the attributes that may be None, each with what makes
    the object that it is otherwise. `count`: how many numbers there are.
    """

    __slots__ = ("_get", "_lists", "_optional", "_parts", "_scalars", "count")

    def __init__(self, example: Any, names: Names, optional: Optional | None = None) -> None:
        may_be_none = (optional or {}).get(type(example), {})
        self._scalars: list[tuple[str, Callable[[float], Any]]] = []
        self._lists: list[tuple[str, list[Callable[[float], Any]]]] = []
        self._parts: list[tuple[str, Numbers]] = []
        self._optional = [(name, make, Numbers(make(), names, optional)) for name, make in may_be_none.items()]
        for name in sorted(set(names[type(example)]) - set(may_be_none)):
            value = getattr(example, name)
            if isinstance(value, (bool, int, float)):
                self._scalars.append((name, type(value)))
            elif isinstance(value, list):
                self._lists.append((name, [type(each) for each in value]))
            else:
                self._parts.append((name, Numbers(value, names, optional)))
        self._get = _getter([name for name, _ in self._scalars])
        self.count = len(self._scalars) + sum(len(each) for _, each in self._lists)
        self.count += sum(part.count for _, part in self._parts) + sum(1 + part.count for *_, part in self._optional)

    def take(self, of: Any) -> list[float]:
        """Return the numbers of this object, for `give`."""
        found = list(self._get(of))
        for name, _ in self._lists:
            found += getattr(of, name)
        for name, part in self._parts:
            found += part.take(getattr(of, name))
        for name, _, part in self._optional:
            value = getattr(of, name)
            found += [0.0] * (1 + part.count) if value is None else [1.0, *part.take(value)]
        return found

    def give(self, to: Any, numbers: Sequence[float]) -> None:
        """Set the attributes of this object to these numbers, in the order of `take`."""
        at = 0
        for name, as_type in self._scalars:
            setattr(to, name, as_type(numbers[at]))
            at += 1
        for name, types in self._lists:
            setattr(to, name, [each(number) for each, number in zip(types, numbers[at : at + len(types)], strict=True)])
            at += len(types)
        for name, part in self._parts:
            part.give(getattr(to, name), numbers[at : at + part.count])
            at += part.count
        for name, make, part in self._optional:
            value = (getattr(to, name) or make()) if numbers[at] else None
            if value is not None:
                part.give(value, numbers[at + 1 : at + 1 + part.count])
            setattr(to, name, value)
            at += 1 + part.count


def _getter(names: Sequence[str]) -> Callable[[Any], Sequence[float]]:
    """A function that returns the values of the attributes with these names, as one sequence."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda of: [getattr(of, name) for name in names]
