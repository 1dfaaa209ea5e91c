"""Classification rules: what they can look at in an attempt's end, and how they are matched.

`ReplyEvidence` reads each part of an answer once, and only when a rule asks for it. Hostile input costs time in
proportion to its length and never raises. Values are matched by shell globs, case-sensitively; "*" means present. A
field given several times matches by any of its values. JSON paths are keys; in a list a number picks an element, and
any other key tries all elements. A scalar is matched as JSON writes it (`true`, `null`, `42`, a string without quotes);
an object or list is matched only by "*". XML is searched for elements by local name, wherever they are; entities are
resolved, attributes ignored. Below status 400 a rule that names the status looks at JSON, or at the first event of a
stream that counts (contract, section 13).

`Ruleset` holds rules prepared for matching: many rules of a dialect pack that look at the same place are one look-up.
The first rule that matches wins, and grouping does not change the class that results. A group is a run of neighbouring
rules with the same class and the same statuses, each with a single part (a header, a JSON path or an XML element):
whichever of them matches, the class is the same. Within a group headers are matched before the body, so that no body
has to be read if a header rule of the same run decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from fnmatch import translate
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, TypeVar

from proxy.retry.answers.content_coding import READABLE, coding_of_reply, decoded
from proxy.retry.answers.event_stream import Event, SseReader, is_event_stream
from proxy.retry.answers.event_texts import texts_of
from proxy.retry.answers.json_text import NOT_JSON, lacks, may_be_whole_json, read_json
from proxy.retry.facts import Fault, Reply
from proxy.retry.policies.dialect import Classify, EventRule, Rule

_UNREAD = object()


class ReplyEvidence:
    """The parts of an answer that rules can look at. `body`: the part of the body that was peeked at, that is, read
    before the answer is delivered; None if nothing was read yet. `empty`: the names of events that are passed over when
    a stream's first event is looked for. The result of each look-up is kept, since packs ask for many values in the
    same place.
    """

    __slots__ = ("_document", "_empty", "_event", "_found", "_reply", "_text", "body", "status")

    def __init__(self, reply: Reply, body: bytes | None, empty: frozenset[str] = frozenset()) -> None:
        self._reply = reply
        self._empty = empty
        self._found: dict[Any, list[str]] = {}
        self.status = reply.status
        self.body = b"" if body is None and reply.end else body
        if self.body:
            self.body = decoded(self.body, coding_of_reply(self._reply))
        self._document: object = _UNREAD
        self._event: Event | object | None = _UNREAD
        self._text: str | None = None

    @property
    def may_look(self) -> bool:
        """Whether the body of a failure (status 400 and above) can be looked at: it has no content coding, or gzip or
        deflate.
        """
        return self.status >= 400 and coding_of_reply(self._reply) in READABLE

    def is_open_to(self, rule: Rule) -> bool:
        """Whether this rule may look at the answer's body. On status 400 and above it may, for any part but an event.
        Below 400 it may only if the rule names a status; then it may look at the first event of a stream of events, or
        at JSON that is complete within the part of the body that is read.
        """
        if self.status >= 400:
            return rule.event is None and self.may_look
        if rule.statuses is None:
            return False
        return _opens(self._reply) == ("json" if rule.event is None else "events")

    def header(self, name: str) -> list[str]:
        """All values of the header field (or trailer) with this name."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = list(self._reply.fields.get_all(name))
        return found

    def json(self, path: tuple[str, ...]) -> list[str]:
        """The scalars at a path of the body's JSON, written as in JSON, but strings without quotes."""
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._scalars(path)
        return found

    def _scalars(self, path: tuple[str, ...]) -> list[str]:
        found: list[str] = []
        body = self.body
        if body:
            if self._document is _UNREAD:
                if lacks(body, path):
                    return found
                self._document = read_json(body)
            _gather(self._document, path, found)
        return found

    def has_event(self, rule: EventRule) -> bool:
        """Whether the rule names the first event of the body that counts."""
        if self._event is _UNREAD:
            self._event, read = None, SseReader()
            for event in read.feed(self.body or b""):
                if event.name not in self._empty:
                    self._event = event
                    break
        return isinstance(self._event, Event) and is_named(rule, self._event)

    def xml(self, element: str) -> list[str]:
        """The texts of all elements with the name `element` in the body's XML."""
        key = "", element
        found = self._found.get(key)
        if found is None:
            if self._text is None:
                self._text = (self.body or b"").decode("utf-8", "replace")
            found = [_resolved(text.strip()) for text in _element(element).findall(self._text)]
            self._found[key] = found
        return found


def _opens(reply: Reply) -> str:
    """The kind of data that a success's body can be read as: "events", "json" or "other"."""
    kind = reply.opens
    if kind is None:
        if coding_of_reply(reply) not in READABLE:
            kind = "other"
        elif is_event_stream(reply):
            kind = "events"
        else:
            kind = "json" if may_be_whole_json(reply) else "other"
        reply.opens = kind
    return kind


def is_named(rule: EventRule, event: Event) -> bool:
    """Whether a rule names this event, by the event's name and by what its data contains."""
    if rule.name is not None and not any_matches([event.name], rule.name):
        return False
    if not rule.json:
        return True
    document = event.document
    for path, glob in rule.json:
        found: list[str] = []
        _gather(document, path, found)
        if not any_matches(found, glob):
            return False
    return True


def _resolved(text: str) -> str:
    """The XML text with its entities resolved. The table of the thousands of known entities is loaded only if the text
    has entities.
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
    for value in values:  # noqa: SIM110  a generator costs twice as much
        if pattern.match(value):
            return True
    return False


@lru_cache(maxsize=4096)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


@lru_cache(maxsize=1024)
def _element(name: str) -> re.Pattern[str]:
    # No part may match a "<", so that a body of open tags is not scanned again from each of them.
    return re.compile(rf"<(?:[\w.-]{{1,64}}:)?{re.escape(name)}(?:\s[^<>]*)?>([^<]*)</")


def _gather(document: object, path: tuple[str, ...], found: list[str]) -> None:
    """Append the scalars at a path in the JSON document to `found`, written as in JSON, but strings without quotes; ""
    for an object or a list, which only the glob "*" matches.
    """
    left = [(document, 0)]  # values, the next one last, each with the number of the path's keys that lead to it
    keys = len(path)
    while left:
        value, at = left.pop()
        if at == keys:
            if value is not NOT_JSON:
                found.append(_scalar(value))
        elif isinstance(value, dict):
            key = path[at]
            if key in value:
                left.append((value[key], at + 1))
        elif isinstance(value, list):
            key = path[at]
            if key.isdecimal() and len(key) < 9:
                if int(key) < len(value):
                    left.append((value[int(key)], at + 1))
            else:
                for element in reversed(value):
                    left.append((element, at))


def _scalar(value: object) -> str:
    """A scalar of a JSON document as `_gather` writes it; "" for an object or a list. Numbers were read as strings."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else ""


# -- asking many rules at once ----------------------------------------------------------------------------------------

Place = TypeVar("Place")


class NeedsBody(Enum):
    """The type of NEEDS_BODY: the answer's body must be looked at before the answer's class is known."""

    NEEDS_BODY = "needs body"


NEEDS_BODY: Final = NeedsBody.NEEDS_BODY


class Ruleset:
    """The rules of a policy, prepared for matching: the user's, then each dialect's. `steps`: single rules and groups
    of rules in order, each with the name of its dialect ("" for the user's own). `looking`: the steps that may look
    into a success. `looks_at_events`: all steps in `looking` look only at events. `texts`: each event that a step in
    `looking` matches contains at least one of these texts, or a backslash, with which JSON may write a name in another
    way.
    """

    __slots__ = ("looking", "looks_at_events", "steps", "texts")

    def __init__(self, classify: Classify) -> None:
        packs: list[tuple[str, Sequence[Rule]]] = [("", classify.rules)]
        packs += [(dialect.name, dialect.rules) for dialect in classify.dialects]
        self.steps: tuple[tuple[str, SingleRule | RuleGroup], ...] = tuple(
            (name, step) for name, pack in packs for step in _steps(pack)
        )
        self.looking = tuple(step for _, step in self.steps if step.looks_into_success)
        looking = [rule for _, pack in packs for rule in pack if rule.looks_into_success]
        self.looks_at_events = all(rule.event for rule in looking)
        self.texts = (b"\\", *texts_of(rule.event for rule in looking if rule.event is not None))


def ruleset(classify: Classify) -> Ruleset:
    """The rules of a policy's classification, prepared for matching. They are made when first asked for, and kept with
    it.
    """
    made = classify.ruleset
    if made is None:
        made = Ruleset(classify)
        object.__setattr__(classify, "ruleset", made)
    assert isinstance(made, Ruleset)
    return made


class SingleRule:
    """A rule that is matched by itself, whatever parts it has (status, headers, body, fault). The alternative is a
    RuleGroup: neighbouring rules with the same class, matched together.
    """

    __slots__ = ("_needs_body", "looks_into_success", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.looks_into_success = rule.looks_into_success
        self._needs_body = rule.needs_body

    def match_reply(self, evidence: ReplyEvidence, grpc: int | None) -> Rule | NeedsBody | None:
        """The rule, if every part of it matches; NEEDS_BODY if all but the body matches, and the body was not read yet;
        otherwise None. `grpc`: the answer's gRPC status, None if it has none.
        """
        rule = self.rule
        if not _reaches(rule, evidence.status, grpc):
            return None
        for name, glob in rule.headers:
            if not any_matches(evidence.header(name), glob):
                return None
        if not self._needs_body:
            return rule
        if not evidence.is_open_to(rule) or (rule.xml and evidence.status < 400):
            return None
        if evidence.body is None:
            return NEEDS_BODY
        if rule.event is not None:
            return rule if evidence.has_event(rule.event) else None
        for path, glob in rule.json:
            if not any_matches(evidence.json(path), glob):
                return None
        for element, glob in rule.xml:
            if not any_matches(evidence.xml(element), glob):
                return None
        return rule

    def match_fault(self, fault: Fault, grpc: int | None) -> Rule | None:
        """The rule, if it names the kind of this fault, or the fault's gRPC status, and asks for no part of an answer;
        otherwise None. `grpc`: that gRPC status, None for none.
        """
        rule = self.rule
        if rule.statuses is not None or rule.headers or rule.needs_body:
            return None
        named = rule.grpc is None or grpc in rule.grpc
        return rule if named and (rule.faults is None or fault.kind in rule.faults) else None


class RuleGroup:
    """A run of neighbouring rules with the same class and the same statuses, each with a single part (a header, a JSON
    path or an XML element).
    """

    __slots__ = ("_headers", "_json", "_model", "_xml", "looks_into_success")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._model = rules[0]
        self.looks_into_success = any(rule.looks_into_success for rule in rules)
        self._headers = _choices((name, glob, rule) for rule in rules for name, glob in rule.headers)
        self._json = _choices((path, glob, rule) for rule in rules for path, glob in rule.json)
        self._xml = _choices((element, glob, rule) for rule in rules for element, glob in rule.xml)

    def match_reply(self, evidence: ReplyEvidence, grpc: int | None) -> Rule | NeedsBody | None:
        """The rule of the group that matches; NEEDS_BODY if the body must be read first; otherwise None. Headers are
        tried before the body. `grpc`: the answer's gRPC status, None if it has none.
        """
        if not _reaches(self._model, evidence.status, grpc):
            return None
        for name, choice in self._headers:
            found = choice.find(evidence.header(name))
            if found is not None:
                return found
        xml = self._xml if evidence.status >= 400 else []
        if not (self._json or xml) or not evidence.is_open_to(self._model):
            return None
        if evidence.body is None:
            return NEEDS_BODY
        for path, choice in self._json:
            found = choice.find(evidence.json(path))
            if found is not None:
                return found
        for element, choice in xml:
            found = choice.find(evidence.xml(element))
            if found is not None:
                return found
        return None

    def match_fault(self, fault: Fault, grpc: int | None) -> Rule | None:
        """Return None: no rule of a group matches a fault, because each asks for a part of an answer."""
        return None


class _Choice:
    """Rules that look at the same part of an answer (a header, say) for different values. Values without a wildcard are
    looked up; all others are matched by one regular expression.
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

    def find(self, values: list[str]) -> Rule | None:
        """The rule that matches one of these values; None if none does."""
        for value in values:
            found = self._exact.get(value)
            if found is not None:
                return found
            if self._any is not None and self._any.match(value):
                for glob, rule in self._globs:
                    if any_matches([value], glob):
                        return rule
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
