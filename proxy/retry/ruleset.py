"""Classification rules, made ready to be asked: a pack's many values of one place are one question.

Law: the first rule that matches wins, and asking in groups changes nothing of that. A group is a run of neighbours
with one class and one set of statuses, each with a single part (a header, a JSON path or an XML element): whichever of
them matches, the class is the same. Within a group headers are asked before the body, so that no body is peeked at
where a header of the same run decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from itertools import groupby
from typing import Final, Protocol, TypeVar

from proxy.retry.evidence import ReplyEvidence, any_matches
from proxy.retry.facts import Fault
from proxy.retry.policy import Classify, Rule

Place = TypeVar("Place")


class NeedsBody:
    """The answer's body must be peeked at before its class can be told."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NEEDS_BODY"


NEEDS_BODY: Final = NeedsBody()


class Step(Protocol):
    """One rule, or a group of them."""

    def match_reply(self, evidence: ReplyEvidence, grpc: int | None) -> Rule | NeedsBody | None:
        """The rule that matches this answer, which counts as this grpc-status."""
        ...

    def match_fault(self, fault: Fault, grpc: int | None) -> Rule | None:
        """The rule that matches an end without an answer."""
        ...


class Ruleset:
    """The user's rules, then each dialect's. Steps come with the name of their dialect, "" for the user's own."""

    __slots__ = ("steps",)

    def __init__(self, classify: Classify) -> None:
        packs: list[tuple[str, Sequence[Rule]]] = [("", classify.rules)]
        packs += [(dialect.name, dialect.rules) for dialect in classify.dialects]
        self.steps: tuple[tuple[str, Step], ...] = tuple((name, step) for name, pack in packs for step in _steps(pack))


def ruleset(classify: Classify) -> Ruleset:
    """Made when first asked for, and kept with the definition."""
    made = classify.ruleset
    if made is None:
        made = Ruleset(classify)
        object.__setattr__(classify, "ruleset", made)
    assert isinstance(made, Ruleset)
    return made


class SingleRule:
    """A rule by itself, with any parts."""

    __slots__ = ("rule",)

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def match_reply(self, evidence: ReplyEvidence, grpc: int | None) -> Rule | NeedsBody | None:
        """Every part given must match; the body is asked last."""
        rule = self.rule
        if not _reaches(rule, evidence.status, grpc):
            return None
        if not all(any_matches(evidence.header(name), glob) for name, glob in rule.headers):
            return None
        if rule.needs_body:
            if not evidence.may_look:
                return None
            if evidence.body is None:
                return NEEDS_BODY
            if not all(any_matches(evidence.json(path), glob) for path, glob in rule.json):
                return None
            if not all(any_matches(evidence.xml(element), glob) for element, glob in rule.xml):
                return None
        return rule

    def match_fault(self, fault: Fault, grpc: int | None) -> Rule | None:
        """By kind, for rules that name nothing of an answer."""
        rule = self.rule
        if rule.statuses is not None or rule.headers or rule.needs_body:
            return None
        if (rule.grpc is not None and grpc not in rule.grpc) or (
            rule.faults is not None and fault.kind not in rule.faults
        ):
            return None
        return rule


class RuleGroup:
    """Neighbours of one class that differ in a single part each."""

    __slots__ = ("_headers", "_json", "_model", "_xml")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._model = rules[0]
        self._headers = _choices((name, glob, rule) for rule in rules for name, glob in rule.headers)
        self._json = _choices((path, glob, rule) for rule in rules for path, glob in rule.json)
        self._xml = _choices((element, glob, rule) for rule in rules for element, glob in rule.xml)

    def match_reply(self, evidence: ReplyEvidence, grpc: int | None) -> Rule | NeedsBody | None:
        """Headers first, then the body."""
        if not _reaches(self._model, evidence.status, grpc):
            return None
        for name, choice in self._headers:
            if found := choice.find(evidence.header(name)):
                return found
        if not (self._json or self._xml) or not evidence.may_look:
            return None
        if evidence.body is None:
            return NEEDS_BODY
        for path, choice in self._json:
            if found := choice.find(evidence.json(path)):
                return found
        for element, choice in self._xml:
            if found := choice.find(evidence.xml(element)):
                return found
        return None

    def match_fault(self, fault: Fault, grpc: int | None) -> Rule | None:
        """Never: each of them asks for something of an answer."""
        return None


class _Choice:
    """Many values of one place: those without a wildcard by a look-up, the others by one expression."""

    __slots__ = ("_any", "_exact", "_globs")

    def __init__(self, options: Sequence[tuple[str, Rule]]) -> None:
        self._exact: dict[str, Rule] = {}
        self._globs: list[tuple[str, Rule]] = []
        for glob, rule in options:
            if any(sign in glob for sign in "*?["):
                self._globs.append((glob, rule))
            else:
                self._exact.setdefault(glob, rule)
        self._any = re.compile("|".join(translate(glob) for glob, _ in self._globs)) if self._globs else None

    def find(self, values: Sequence[str]) -> Rule | None:
        """The rule that one of the values matches."""
        for value in values:
            found = self._exact.get(value)
            if found is not None:
                return found
            if self._any is not None and self._any.match(value):
                return next(rule for glob, rule in self._globs if any_matches([value], glob))
        return None


def _reaches(rule: Rule, status: int, grpc: int | None) -> bool:
    """Whether the parts that are sets hold of an answer."""
    if rule.faults is not None or (rule.statuses is not None and status not in rule.statuses):
        return False
    return rule.grpc is None or grpc in rule.grpc


def _steps(rules: Sequence[Rule]) -> Iterator[Step]:
    for key, run in groupby(rules, key=_group_key):
        members = list(run)
        if key is None or len(members) == 1:
            yield from map(SingleRule, members)
        else:
            yield RuleGroup(members)


def _group_key(rule: Rule) -> tuple[object, ...] | None:
    if len(rule.headers) + len(rule.json) + len(rule.xml) != 1 or rule.faults is not None:
        return None
    return rule.as_, rule.statuses, rule.grpc


def _choices(options: Iterator[tuple[Place, str, Rule]]) -> list[tuple[Place, _Choice]]:
    places: dict[Place, list[tuple[str, Rule]]] = {}
    for place, glob, rule in options:
        places.setdefault(place, []).append((glob, rule))
    return [(place, _Choice(found)) for place, found in places.items()]
