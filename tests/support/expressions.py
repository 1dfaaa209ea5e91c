"""Regular expressions, matched by a plain backtracking matcher that counts its steps.

It walks the shape that `re` itself parses, so it tries what `re` would try; shortcuts that `re` has for some shapes
are not counted on. With it, growth of the work is measured without a clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import permutations, product
from re import _constants as codes  # the compiled shape has no public door
from re import _parser as shapes
from typing import Any

#: What a bounded repeat counts as where growth is measured: what matters is growth without a bound.
BOUND = 4
#: Steps after which a match is given up: no linear one takes so many on the texts of `growth`.
MOST_STEPS = 30_000
#: Characters that stand for each class of an expression.
_SAMPLES = [ord(each) for each in 'a0/ -.,;:="\\<>[]{}@?&#%_A\n\t\r\x00é~']


class Matcher:
    """One expression over one text. `steps` counts the characters and positions that were tried. `bound` is the most
    turns of a bounded repeat.
    """

    def __init__(self, pattern: re.Pattern[Any], bound: int = 10**6) -> None:
        self.bound = bound
        flags = pattern.flags
        self.shape = shapes.parse(pattern.pattern, flags)
        source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
        self.any_case = bool(flags & re.IGNORECASE) or "(?i" in source
        self.dotall = bool(flags & re.DOTALL) or "(?s" in source
        self.text: Sequence[int] = ()
        self.steps = 0
        self._known: dict[tuple[int, int], bool] = {}  # whether a part, which the shape keeps, takes a character

    def run(self, text: Sequence[int], *, search: bool) -> list[tuple[int, int]]:
        """The matches, from the start alone or, as `findall` has them, anywhere."""
        self.text, self.steps = text, 0
        if not search:
            end = next(self._ends(self.shape, 0, 0), None)
            return [] if end is None else [(0, end)]
        found, at = [], 0
        while at <= len(text):
            end = next(self._ends(self.shape, 0, at), None)
            if end is not None:
                found.append((at, end))
            at = at + 1 if end is None or end == at else end
        return found

    def _ends(self, nodes: Any, number: int, at: int) -> Iterator[int]:
        """Where the nodes from `number` on may end, in the order of `re`."""
        if isinstance(nodes, shapes.SubPattern):
            nodes = nodes.data
        if number == len(nodes):
            yield at
            return
        for after in self._node(nodes[number], at):
            yield from self._ends(nodes, number + 1, after)

    def _node(self, node: Any, at: int) -> Iterator[int]:
        operator, argument = node
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise OverflowError
        if operator in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
            if at < len(self.text):
                character = self.text[at]
                if (takes := self._known.get((id(node), character))) is None:
                    takes = self._known[id(node), character] = self._is(node, character)
                if takes:
                    yield at + 1
        elif operator is codes.BRANCH:
            for each in argument[1]:
                yield from self._ends(each, 0, at)
        elif operator is codes.SUBPATTERN:
            yield from self._ends(argument[3], 0, at)
        elif operator is codes.ATOMIC_GROUP:
            yield from self._first(argument, at)
        elif operator in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            yield from self._repeat(operator, argument, at)
        elif operator in (codes.ASSERT, codes.ASSERT_NOT):
            start = at if argument[0] > 0 else at - argument[1].getwidth()[0]
            holds = start >= 0 and any(argument[0] > 0 or end == at for end in self._ends(argument[1], 0, start))
            if holds is (operator is codes.ASSERT):
                yield at
        elif operator is codes.AT:
            last = argument in (codes.AT_END, codes.AT_END_STRING)
            if at == len(self.text) if last else at == 0:
                yield at
        else:
            raise NotImplementedError(operator)

    def _first(self, nodes: Any, at: int) -> Iterator[int]:
        end = next(self._ends(nodes, 0, at), None)
        if end is not None:
            yield end

    def _repeat(self, operator: Any, argument: Any, at: int) -> Iterator[int]:
        least, most, body = argument
        if most is not codes.MAXREPEAT:
            most = max(int(least), min(int(most), self.bound))
        if operator is codes.POSSESSIVE_REPEAT:
            count = 0
            while count < most:
                end = next(self._ends(body, 0, at), None)
                if end is None or end == at:
                    break
                at, count = end, count + 1
            if count >= least:
                yield at
            return
        lazy = operator is codes.MIN_REPEAT
        ways = [(at, self._ends(body, 0, at))]
        if lazy and least == 0:
            yield at
        while ways:
            here, way = ways[-1]
            after = next(way, None) if len(ways) <= most else None
            if after is None:
                ways.pop()
                if not lazy and len(ways) >= least:
                    yield here
            elif after != here:
                ways.append((after, self._ends(body, 0, after)))
                if lazy and len(ways) > least:
                    yield after
            elif len(ways) >= least:  # an empty turn adds nothing
                yield after

    def _is(self, node: Any, character: int) -> bool:
        if self.any_case:
            return any(self._takes(node, ord(each)) for each in {chr(character).lower(), chr(character).upper()[:1]})
        return self._takes(node, character)

    def _takes(self, node: Any, character: int) -> bool:
        operator, argument = node
        if operator is codes.LITERAL:
            return bool(character == argument)
        if operator is codes.NOT_LITERAL:
            return bool(character != argument)
        if operator is codes.ANY:
            return self.dotall or character != 10
        negated = bool(argument) and argument[0][0] is codes.NEGATE
        return any(_member(each, character) for each in argument if each[0] is not codes.NEGATE) is not negated

    # -- texts that are hard to match ------------------------------------------------------------------------------

    def prefixes(self) -> list[tuple[int, ...]]:
        """What the least text of the expression begins with, up to each of its parts."""
        found: dict[tuple[int, ...], None] = {(): None}
        self._least(self.shape, (), found)
        return list(found)

    def _least(self, nodes: Any, before: tuple[int, ...], found: dict[tuple[int, ...], None]) -> tuple[int, ...]:
        for operator, argument in nodes:
            if operator in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
                fits = [each for each in self.alphabet if self._is((operator, argument), each)]
                before = (*before, *fits[:1])
            elif operator is codes.BRANCH:
                ways = [self._least(each, before, found) for each in argument[1]]
                before = ways[0]
            elif operator is codes.SUBPATTERN:
                before = self._least(argument[3], before, found)
            elif operator is codes.ATOMIC_GROUP:
                before = self._least(argument, before, found)
            elif operator in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
                once = self._least(argument[2], before, found)
                for _ in range(min(int(argument[0]), 40) - 1):
                    once = self._least(argument[2], once, found)
                before = once if argument[0] else before
            found.setdefault(before)
        return before

    @cached_property
    def alphabet(self) -> list[int]:
        """A character for each way in which the parts of the expression tell characters apart."""
        leaves = list(_leaves(self.shape))
        literals = [argument for operator, argument in leaves if operator in (codes.LITERAL, codes.NOT_LITERAL)]
        ways: dict[tuple[bool, ...], int] = {}
        for each in (*literals, *_bounds(leaves), *_SAMPLES):
            ways.setdefault(tuple(self._is(leaf, each) for leaf in leaves), each)
        return list(ways.values())


@cache
def growth(pattern: re.Pattern[Any], *, search: bool) -> tuple[float, str]:
    """How much more a text twice as long costs, at worst, and that text: 2 where the work is linear, 4 where it is
    quadratic. The texts are the beginnings of what fits, each followed by pieces that repeat.
    """
    matcher = Matcher(pattern, BOUND)
    alphabet = matcher.alphabet
    pieces = [*product(alphabet[:14]), *permutations(alphabet[:6], 2)]
    worst, hardest = 0.0, ""
    for prefix in matcher.prefixes()[:12]:
        for piece in pieces:
            costs = []
            for times in (8, 16, 32):
                try:
                    matcher.run((*prefix, *piece * times), search=search)
                except OverflowError:
                    return float("inf"), "".join(map(chr, (*prefix, *piece, *piece)))
                costs.append(matcher.steps)
            more = (costs[2] - costs[1]) / max(costs[1] - costs[0], 1)
            if more > worst:
                worst, hardest = more, "".join(map(chr, (*prefix, *piece, *piece)))
    return worst, hardest


def _leaves(nodes: Any) -> Iterator[Any]:
    """The parts of an expression that take one character."""
    for operator, argument in nodes:
        if operator in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
            yield operator, argument
        elif operator is codes.BRANCH:
            for each in argument[1]:
                yield from _leaves(each)
        elif operator is codes.SUBPATTERN:
            yield from _leaves(argument[3])
        elif operator is codes.ATOMIC_GROUP:
            yield from _leaves(argument)
        elif operator in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            yield from _leaves(argument[2])
        elif operator in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _leaves(argument[1])


def _bounds(leaves: list[Any]) -> Iterator[int]:
    for operator, argument in leaves:
        for kind, value in argument if operator is codes.IN else ():
            if kind is codes.LITERAL:
                yield value
            elif kind is codes.RANGE:
                yield value[0]


def _member(each: Any, character: int) -> bool:
    kind, value = each
    if kind is codes.LITERAL:
        return bool(character == value)
    if kind is codes.RANGE:
        return bool(value[0] <= character <= value[1])
    letter = chr(character)
    tests = {
        codes.CATEGORY_DIGIT: letter.isdigit(),
        codes.CATEGORY_SPACE: letter.isspace(),
        codes.CATEGORY_WORD: letter.isalnum() or letter == "_",
        codes.CATEGORY_NOT_WORD: not (letter.isalnum() or letter == "_"),
        codes.CATEGORY_NOT_SPACE: not letter.isspace(),
        codes.CATEGORY_NOT_DIGIT: not letter.isdigit(),
    }
    return tests[value]
