"""Classification rules: what they can look at in an attempt's end, and how they are matched.

`ReplyEvidence` reads each part of an answer once, and only when a rule asks for it. Hostile input costs time in
proportion to its length and never raises. Values are matched by shell globs, case-sensitively; "*" means present. A
field given several times matches by any of its values. JSON paths are keys; in a list a number picks an element, any
other key tries all. A scalar is matched as JSON writes it (`true`, `null`, `42`, a string bare); an object or list only
by "*". XML is searched for elements by local name, wherever they are; entities are resolved, attributes ignored. Below
status 400 a rule that names the status looks at JSON, or at the first event of a stream that counts (contract, section
13).

`Ruleset` holds rules prepared for matching: many rules of a pack that look at the same place are one look-up. The first
rule that matches wins, and grouping does not change which one that is. A group is a run of neighbours with one class
and one set of statuses, each with a single part (a header, a JSON path or an XML element): whichever of them matches,
the class is the same. Within a group headers are matched before the body, so that no body is peeked at if a header of
the same run decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from fnmatch import translate
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Final, TypeVar

from proxy.retry.content_coding import READABLE, coding_of, decoded
from proxy.retry.dialect import Classify, EventRule, Rule
from proxy.retry.event_stream import Event, SseReader, is_event_stream
from proxy.retry.facts import Fault, Reply
from proxy.retry.first_byte import may_be_whole_json

_ABSENT = object()
_UNREAD = object()


class ReplyEvidence:
    """The parts of an answer that rules can look at. `body` is the part that was peeked at, None if there is none yet.
    The result of each look-up is kept, since packs ask for many values in the same place. `empty`: the names of events
    that are passed over when a stream's first event is looked for.
    """

    def __init__(self, reply: Reply, body: bytes | None, empty: frozenset[str] = frozenset()) -> None:
        self._reply = reply
        self._empty = empty
        self._found: dict[tuple[str, ...] | str, list[str]] = {}
        self.body = b"" if body is None and reply.end else body
        if self.body:
            self.body = decoded(self.body, coding_of(reply.fields))
        self._document: object = _UNREAD
        self._event: Event | object | None = _UNREAD
        self._text: str | None = None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._reply.status

    @property
    def may_look(self) -> bool:
        """Whether the body of a failure (status 400 and above) can be looked at: it has no content coding, or gzip or
        deflate.
        """
        return self._reply.status >= 400 and coding_of(self._reply.fields) in READABLE

    def is_open_to(self, rule: Rule) -> bool:
        """Whether this rule may look at the answer's body: on status 400 and above for any part but an event; below
        that only if the rule names a status, and only at the first event of a stream of events, or at JSON that is
        whole within the part that is peeked at.
        """
        if self._reply.status >= 400:
            return rule.event is None and self.may_look
        return rule.statuses is not None and (self._streams if rule.event is not None else self._may_be_json)

    @cached_property
    def _streams(self) -> bool:
        """Whether the body is a stream of server-sent events that can be read."""
        return is_event_stream(self._reply) and coding_of(self._reply.fields) in READABLE

    @cached_property
    def _may_be_json(self) -> bool:
        reply = self._reply
        return not is_event_stream(reply) and coding_of(reply.fields) in READABLE and may_be_whole_json(reply)

    def header(self, name: str) -> list[str]:
        """All values of the header field (or trailer) with this name."""
        if name not in self._found:
            self._found[name] = list(self._reply.fields.get_all(name))
        return self._found[name]

    def json(self, path: tuple[str, ...]) -> list[str]:
        """The scalars at a path of the body's JSON, as JSON writes them."""
        if path not in self._found:
            self._found[path] = self._scalars(path)
        return self._found[path]

    def _scalars(self, path: tuple[str, ...]) -> list[str]:
        if self._document is _UNREAD:
            try:
                self._document = json.loads(self.body or b"", parse_int=str, parse_float=str)
            except (ValueError, RecursionError):
                self._document = _ABSENT
        found: list[str] = []
        try:
            _gather(self._document, path, found)
        except RecursionError:  # lists nested deeper than in any real error message
            return []
        return found

    def has_event(self, rule: EventRule) -> bool:
        """Whether the first event of the body that counts is one that the rule names."""
        if self._event is _UNREAD:
            read = SseReader().feed(self.body or b"")
            self._event = next((event for event in read if event.name not in self._empty), None)
        return isinstance(self._event, Event) and is_named(rule, self._event)

    def xml(self, element: str) -> list[str]:
        """The texts of all elements of the body's XML that have this name."""
        key = "", element
        if key not in self._found:
            if self._text is None:
                self._text = (self.body or b"").decode("utf-8", "replace")
            self._found[key] = [_resolved(text.strip()) for text in _element(element).findall(self._text)]
        return self._found[key]


def is_named(rule: EventRule, event: Event) -> bool:
    """Whether a rule names this event: by its name, and by what its data contains."""
    if rule.name is not None and not any_matches([event.name], rule.name):
        return False
    if not rule.json:
        return True
    document = event.document
    for path, glob in rule.json:
        found: list[str] = []
        try:
            _gather(document, path, found)
        except RecursionError:
            return False
        if not any_matches(found, glob):
            return False
    return True


def _resolved(text: str) -> str:
    """The XML text with its entities resolved; the table of the thousands of known entities is loaded only if the text
    has any.
    """
    if "&" not in text:
        return text
    from html import unescape

    return unescape(text)


def any_matches(values: list[str], glob: str) -> bool:
    """Whether one of the values matches the glob."""
    if glob == "*":
        return bool(values)
    if not values:
        return False
    pattern = _glob(glob)
    return any(pattern.match(value) for value in values)


@lru_cache(maxsize=4096)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


@lru_cache(maxsize=1024)
def _element(name: str) -> re.Pattern[str]:
    # No part may match a "<", so that a body of open tags is not scanned again from each of them.
    return re.compile(rf"<(?:[\w.-]{{1,64}}:)?{re.escape(name)}(?:\s[^<>]*)?>([^<]*)</")


def _gather(document: object, path: tuple[str, ...], found: list[str]) -> None:
    """Append to `found` the scalars at a path in the JSON document, as JSON writes them; "" for an object or a list,
    which only the glob "*" matches.
    """
    if path:
        key, rest = path[0], path[1:]
        if isinstance(document, dict):
            if key in document:
                _gather(document[key], rest, found)
        elif isinstance(document, list):
            if key.isdecimal() and len(key) < 9:
                if int(key) < len(document):
                    _gather(document[int(key)], rest, found)
            else:
                for element in document:
                    _gather(element, path, found)
    elif isinstance(document, str):
        found.append(document)
    elif isinstance(document, bool):
        found.append("true" if document else "false")
    elif document is None:
        found.append("null")
    elif document is not _ABSENT:
        found.append("")


# -- asking many rules at once ----------------------------------------------------------------------------------------

Place = TypeVar("Place")


class NeedsBody(Enum):
    """The type of NEEDS_BODY: the answer's body must be peeked at before its class is known."""

    NEEDS_BODY = "needs body"


NEEDS_BODY: Final = NeedsBody.NEEDS_BODY


class Ruleset:
    """The rules of a policy, prepared for matching: the user's, then each dialect's. `steps` are single rules and
    groups of rules in order, each with the name of its dialect ("" for the user's own); `looking` are the steps that
    may look into a success; `looks_at_events`: all of these look at events alone.
    """

    __slots__ = ("looking", "looks_at_events", "steps")

    def __init__(self, classify: Classify) -> None:
        packs: list[tuple[str, Sequence[Rule]]] = [("", classify.rules)]
        packs += [(dialect.name, dialect.rules) for dialect in classify.dialects]
        self.steps: tuple[tuple[str, SingleRule | RuleGroup], ...] = tuple(
            (name, step) for name, pack in packs for step in _steps(pack)
        )
        self.looking = tuple(step for _, step in self.steps if step.looks_into_success)
        self.looks_at_events = all(rule.event for _, pack in packs for rule in pack if rule.looks_into_success)


def ruleset(classify: Classify) -> Ruleset:
    """The rules of a policy's classification, prepared for matching; made when first asked for, and kept with it."""
    made = classify.ruleset
    if made is None:
        made = Ruleset(classify)
        object.__setattr__(classify, "ruleset", made)
    assert isinstance(made, Ruleset)
    return made


class SingleRule:
    """A rule that is matched by itself, whatever parts it has, not in a group."""

    __slots__ = ("looks_into_success", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.looks_into_success = rule.looks_into_success

    def match_reply(self, evidence: ReplyEvidence, grpc: int | None) -> Rule | NeedsBody | None:
        """The rule if every part of it matches; NEEDS_BODY if only the body is undecided; else None. `grpc`: the
        grpc-status.
        """
        rule = self.rule
        if not _reaches(rule, evidence.status, grpc):
            return None
        matches = all(any_matches(evidence.header(name), glob) for name, glob in rule.headers)
        if not matches or not rule.needs_body:
            return rule if matches else None
        if not evidence.is_open_to(rule) or (rule.xml and evidence.status < 400):
            return None
        if evidence.body is None:
            return NEEDS_BODY
        if rule.event is not None:
            return rule if evidence.has_event(rule.event) else None
        matches = all(any_matches(evidence.json(path), glob) for path, glob in rule.json)
        matches = matches and all(any_matches(evidence.xml(element), glob) for element, glob in rule.xml)
        return rule if matches else None

    def match_fault(self, fault: Fault, grpc: int | None) -> Rule | None:
        """The rule if it names the kind of this fault (or its grpc-status) and asks for no part of an answer; else
        None.
        """
        rule = self.rule
        if rule.statuses is not None or rule.headers or rule.needs_body:
            return None
        named = rule.grpc is None or grpc in rule.grpc
        return rule if named and (rule.faults is None or fault.kind in rule.faults) else None


class RuleGroup:
    """A run of rules of one class that differ in a single part each."""

    __slots__ = ("_headers", "_json", "_model", "_xml", "looks_into_success")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._model = rules[0]
        self.looks_into_success = any(rule.looks_into_success for rule in rules)
        self._headers = _choices((name, glob, rule) for rule in rules for name, glob in rule.headers)
        self._json = _choices((path, glob, rule) for rule in rules for path, glob in rule.json)
        self._xml = _choices((element, glob, rule) for rule in rules for element, glob in rule.xml)

    def match_reply(self, evidence: ReplyEvidence, grpc: int | None) -> Rule | NeedsBody | None:
        """The rule of the group that matches, headers before the body; NEEDS_BODY if the body must be peeked at; else
        None.
        """
        if not _reaches(self._model, evidence.status, grpc):
            return None
        for name, choice in self._headers:
            if found := choice.find(evidence.header(name)):
                return found
        xml = self._xml if evidence.status >= 400 else ()
        if not (self._json or xml) or not evidence.is_open_to(self._model):
            return None
        if evidence.body is None:
            return NEEDS_BODY
        for path, choice in self._json:
            if found := choice.find(evidence.json(path)):
                return found
        for element, choice in xml:
            if found := choice.find(evidence.xml(element)):
                return found
        return None

    def match_fault(self, fault: Fault, grpc: int | None) -> Rule | None:
        """None: every rule of a group asks for a part of an answer."""
        return None


class _Choice:
    """Rules that look at one part of an answer (a header, say) for different values: values without a wildcard are
    looked up, the others matched by one regular expression.
    """

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
        """The rule that matches one of these values; None if none does."""
        for value in values:
            found = self._exact.get(value)
            if found is not None:
                return found
            if self._any is not None and self._any.match(value):
                return next(rule for glob, rule in self._globs if any_matches([value], glob))
        return None


def _reaches(rule: Rule, status: int, grpc: int | None) -> bool:
    """Whether a rule's conditions on the HTTP status and the grpc-status hold for an answer; never for a rule that
    names faults.
    """
    if rule.faults is not None or (rule.statuses is not None and status not in rule.statuses):
        return False
    return rule.grpc is None or grpc in rule.grpc


def _steps(rules: Sequence[Rule]) -> Iterator[SingleRule | RuleGroup]:
    def key(rule: Rule) -> tuple[object, ...] | None:
        one = len(rule.headers) + len(rule.json) + len(rule.xml) == 1
        groups = one and rule.faults is None and rule.event is None
        return (rule.as_, rule.statuses, rule.grpc, rule.counts_as) if groups else None

    for alike, run in groupby(rules, key=key):
        members = list(run)
        if alike is None or len(members) == 1:
            yield from map(SingleRule, members)
        else:
            yield RuleGroup(members)


def _choices(options: Iterator[tuple[Place, str, Rule]]) -> list[tuple[Place, _Choice]]:
    places: dict[Place, list[tuple[str, Rule]]] = {}
    for place, glob, rule in options:
        places.setdefault(place, []).append((glob, rule))
    return [(place, _Choice(found)) for place, found in places.items()]
