"""An index of the routes of one upstream, so that a call is compared only with the few routes that may match it.

A route is found by its methods, and by the literal segments with which its paths begin, since a call whose path begins
otherwise can't match it. The routes that are left are tried in the order of the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: The methods of a route (None: any), and the globs all of which match its paths (none: any path).
Conditions = tuple[frozenset[str] | None, Sequence[str]]

_NONE: tuple[int, ...] = ()


class RouteIndex:
    """An index of the routes of one upstream. Each route is known by its number: its place in the configuration's
    order, counted from 0.
    """

    __slots__ = ("_beginnings", "_deepest", "_whole")

    def __init__(self, routes: Iterable[Conditions]) -> None:
        self._whole: dict[str, _ByMethod] = {}  # routes of one path each, by that path
        self._beginnings: dict[str, _ByMethod] = {}  # the others, by the beginning of their paths
        for number, (methods, globs) in enumerate(routes):
            beginning = max((_beginning(glob) for glob in globs), key=len, default="")
            table = self._whole if beginning in globs else self._beginnings
            table.setdefault(beginning, _ByMethod()).add(methods, number)
        for by_method in (*self._whole.values(), *self._beginnings.values()):
            by_method.sort()
        #: The most slashes of a beginning.
        self._deepest = max((each.count("/") for each in self._beginnings), default=0)

    def candidates(self, method: str, path: str) -> tuple[int, ...]:
        """Return the numbers of the routes that may match this method and this path, in their order."""
        known = self._whole.get(path)
        found = _NONE if known is None else known.of(method)
        beginnings = self._beginnings
        end = 0
        for _ in range(self._deepest + 1):
            known = beginnings.get(path[:end])
            if known is not None:
                more = known.of(method)
                found = more if not found else tuple(sorted(found + more))
            end = path.find("/", end) + 1
            if not end:
                break
        return found


class _ByMethod:
    """Numbers of routes, by method."""

    __slots__ = ("_any", "_of")

    def __init__(self) -> None:
        self._any: tuple[int, ...] = ()  # those of any method
        self._of: dict[str, tuple[int, ...]] = {}  # those of a method, and from `sort` on those of any method too

    def add(self, methods: frozenset[str] | None, number: int) -> None:
        if methods is None:
            self._any += (number,)
        for method in methods or ():
            self._of[method] = (*self._of.get(method, ()), number)

    def sort(self) -> None:
        """Put the routes' numbers in order, once all have been added."""
        self._of = {method: tuple(sorted(numbers + self._any)) for method, numbers in self._of.items()}

    def of(self, method: str) -> tuple[int, ...]:
        """Return the numbers of the routes for this method, including those for any method."""
        return self._of.get(method, self._any)


def _beginning(glob: str) -> str:
    """The literal segments with which every path that matches this glob begins, including the slash after them; the
    whole glob if it has no wildcard.
    """
    star = glob.find("*")
    return glob if star < 0 else glob[: glob.rfind("/", 0, star) + 1]
