"""The class of a failure: the lists, rules and dialect packs of a policy, compiled.

Precedence is decided here, once, and not at each answer: if several lists name a failure, throttling wins over timeout,
and timeout over transient. Logs and answers name a rule by its number or its text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from proxy.config.pack_schema import ERRORS_INSIDE, PACK, STREAM_ENDS
from proxy.config.problems import Mark, Problems, dotted, meant
from proxy.config.problems import Path as KeyPath
from proxy.config.schema_language import may_be_empty
from proxy.config.units import written
from proxy.config.yaml_tree import Map, lay, parse, read_text
from proxy.retry.facts import GRPC_STATUS_NUMBERS, Class, FaultKind
from proxy.retry.policies.bucket_specs import UsageFields
from proxy.retry.policies.dialect import (
    COUNTS_AS,
    AskedFor,
    BodyDelay,
    Classify,
    Dialect,
    EndMark,
    ErrorsInside,
    ErrorWords,
    EventRule,
    Forms,
    LimitField,
    Reads,
    Repeats,
    ResetField,
    Rule,
    StreamEnds,
)
from proxy.retry.policies.policy import IdempotencyKey

_PACKS = Path(__file__).parent / "dialects"
#: The parts of an answer that can contain a pack's codes, and the classes that codes can have.
_CODE_PARTS = ("header", "json", "xml")
_CODE_CLASSES = ("throttling", "timeout", "transient", "fatal")
#: The classes of the lists; if several lists name a failure, the later class wins.
_PRECEDENCE = (Class.TRANSIENT, Class.TIMEOUT, Class.THROTTLING)


def classify(
    typed: Mapping[str, Any],
    dialects: tuple[Dialect, ...],
    service_codes: frozenset[int] | None,
    retried: bool,
    own_dialects: bool = False,
    key: IdempotencyKey = IdempotencyKey(),  # noqa: B008  it is frozen
    *,
    credentials: bool = False,
) -> Classify:
    """Compile the classification from a policy's `classify` section. `typed`: the section's typed values; `dialects`:
    the policy's dialect packs, in order; `service_codes`: the codes that a gRPC service config names for the method,
    None if there is none; `retried`: the service config has a retryPolicy for the method; `own_dialects`: the upstream
    itself names the dialects; `key`: the policy's idempotency key; `credentials`: the policy has credentials, so that
    its dialects' rules for a credential without quota apply.
    """
    statuses: dict[int, Class] = {}
    grpc: dict[int, Class] = {}
    faults: dict[FaultKind, Class] = {}
    for cls in _PRECEDENCE:
        for named in typed[cls.value]:
            for each in named:
                if isinstance(each, FaultKind):
                    faults[each] = cls
                elif isinstance(each, int):
                    statuses[each] = cls
                else:
                    grpc[GRPC_STATUS_NUMBERS[each]] = cls
    rules = tuple(rule(each, f"rule {number}") for number, each in enumerate(typed["rules"], 1))
    return Classify(
        *(statuses, grpc, faults, rules, dialects, service_codes, typed["unsafe_methods"], retried, own_dialects),
        key_header=key.header.lower(),
        keys_injected=key.inject,
        credentials=credentials,
    )


def rule(typed: Mapping[str, Any], because: str) -> Rule:
    """Compile a rule from `typed`, its parts as read from the file. `because` names the rule in logs. The `json`
    condition is matched against the answer's body or, if the rule has an `event` condition too, against that event's
    data.
    """
    statuses, grpc, faults = (_failures(typed.get(key)) for key in ("status", "grpc_status", "fail"))
    json, event = typed.get("json", {}), None
    if "event" in typed:
        rule = typed["event"]
        event, json = EventRule(rule.get("event"), _by_path({**json, **rule.get("json", {})})), {}
    return Rule(
        Class(typed["as"]),
        because,
        statuses=statuses,
        headers=_headers(typed),
        json=_by_path(json),
        xml=tuple(typed.get("xml", {}).items()),
        grpc=None if grpc is None else frozenset(GRPC_STATUS_NUMBERS[name] for name in grpc),
        faults=faults,
        event=event,
        counts_as=typed.get("counts_as", COUNTS_AS),
    )


def _failures(named: Any) -> frozenset[Any] | None:
    """The set of all failures that a setting stands for. `named`: the failures of one word, or a sequence of such sets,
    one for each word of a list; None, which is returned, if the file does not have the setting.
    """
    if named is None:
        return None
    return named if isinstance(named, frozenset) else frozenset().union(*named)


# -- packs -------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def built_in_names() -> list[str]:
    """The names of the packs that come with redrive: one file each, so that a further one needs no code."""
    return sorted(path.stem for path in _PACKS.glob("*.yaml"))


@lru_cache(maxsize=1)
def packs_with_usage() -> list[str]:
    """The names of the packs that come with redrive and know where answers say how many tokens they cost."""
    packs = ((name, _PACKS / f"{name}.yaml") for name in built_in_names())
    return [name for name, file in packs if (pack := _pack(str(file), file.read_text())[0]) and pack.usage]


def dialects(names: Iterable[str], marks: Iterable[Mark], path: KeyPath, problems: Problems) -> tuple[Dialect, ...]:
    """Read the dialect packs with these names, in order; one with an error, which is reported, is left out. A name that
    ends in .yaml or .yml is a user's own file. `marks` and `path`: the positions of the names, for error messages.
    """
    found: list[Dialect] = []
    for number, (name, mark) in enumerate(zip(names, marks, strict=True)):
        own = name.endswith((".yaml", ".yml"))
        file = (Path(mark.file).parent if own and mark.line else _PACKS) / (name if own else f"{name}.yaml")
        if not own and name not in built_in_names():
            beside = os.path.isfile(Path(mark.file).parent / f"{name}.yaml")  # noqa: PTH113  a Path's raises if too long
            hint = f" (did you mean the file {name}.yaml?)" if beside else meant(name, built_in_names())
            problems.add(mark, (*path, number), f"there is no dialect called {written(name)}{hint}")
            continue
        if own:
            problems.refer(str(file.absolute()))
        text = read_text(str(file), problems, named_at=mark if own else None, path=dotted((*path, number)))
        pack, trouble = _pack(str(file), text) if text is not None else (None, ())
        problems.take(trouble)
        if pack is not None:
            found.append(pack)
    return tuple(found)


@lru_cache(maxsize=64)
def _pack(file: str, text: str) -> tuple[Dialect | None, tuple[Any, ...]]:
    problems = Problems()
    tree = parse(text, file, problems)
    typed = None
    if isinstance(tree, Map):
        empty = (name for name, key in PACK.keys.items() if tree.get(name, "") is None and may_be_empty(key.form))
        tree = tree.without(*empty)
        whole = lay(
            tree, PACK.defaults.without("codes", "repeats", "reads", "usage", "errors", "errors_inside", "stream_ends")
        )
        typed = PACK.read(whole, tree.mark, (), problems.add)
        if isinstance(typed, dict) and "codes" in typed:
            _look_at_codes(typed["codes"], tree.values_at["codes"], problems)
    elif not problems.fatal:
        problems.add(Mark(file, 1, 1), "", "must be a mapping")
    if problems.fatal or not isinstance(typed, dict):
        return None, tuple(problems.sorted())
    return _compiled(typed, own=Path(file).parent != _PACKS), ()


def _look_at_codes(codes: Mapping[str, Any], at: Mark, problems: Problems) -> None:
    """Report a dialect pack whose `codes` section does not say where an answer has its code (header, body field), or
    lists no code.
    """
    if not any(codes.get(part) for part in _CODE_PARTS):
        problems.add(at, "codes", f"there is no place that holds them: add {', '.join(_CODE_PARTS)}")
    if not any(codes.get(cls) for cls in _CODE_CLASSES):
        problems.add(at, "codes", f"there is no code: add {', '.join(_CODE_CLASSES)}")


def _compiled(typed: dict[str, Any], *, own: bool) -> Dialect:
    """Compile a dialect pack from the typed values of its keys. `own`: the pack is a user's file, and not built in. In
    logs, the rules of a user's pack have a number as their name, since their text may contain secrets; a built-in
    rule's name is its text.
    """
    rules = [rule(each, f"rule {n}" if own else _words(each)) for n, each in enumerate(typed["rules"], 1)]
    if "codes" in typed:
        rules += _code_rules(typed["codes"])
    resets = tuple(
        ResetField(each["field"], each["format"], each.get("remaining"), _by_path(each.get("limit", {})))
        for each in typed["resets"]
    )
    source, stop_field = " ".join(typed["source"]), typed.get("stop_field", "")
    delays = tuple(BodyDelay(tuple(each["json"].split(".")), each["format"]) for each in typed["delays"])
    repeats = _repeats(typed["repeats"]) if "repeats" in typed else None
    quota = tuple(rule({**each, "as": "fatal"}, "out of quota") for each in typed["out_of_quota"])
    empty, name, grpc = frozenset(typed["empty_events"]), typed["name"], typed["grpc"]
    reads = _reads(typed["reads"]) if "reads" in typed else None
    usage = _usage(typed["usage"]) if "usage" in typed else None
    errors = _errors(typed["errors"]) if "errors" in typed else None
    inside = _inside(typed["errors_inside"]) if "errors_inside" in typed else None
    ends = _ends(typed["stream_ends"]) if "stream_ends" in typed else None
    read = (stop_field, delays, repeats, empty, quota, reads)
    limits = tuple(
        LimitField(
            each["name"],
            each["remaining"].lower(),
            each["reset"].lower(),
            each["format"],
            each.get("limit", "").lower(),
            each.get("counts", "attempts"),
            tuple((name.lower(), value) for name, value in each.get("where", {}).items()),
        )
        for each in typed["limits"]
    )
    return Dialect(name, tuple(rules), resets, grpc, source, *read, usage, errors, inside, ends, limits)


def _usage(typed: Mapping[str, Any]) -> UsageFields:
    paths = {key: tuple(tuple(path.split(".")) for path in each) for key, each in typed.items() if key != "media"}
    return UsageFields(media=frozenset(typed.get("media", ())), **paths)


def _errors(typed: Mapping[str, Any]) -> ErrorWords:
    return ErrorWords(
        json=_by_path(typed.get("json", {})),
        fields=tuple(typed.get("header", {}).items()),
        words=tuple((_failures(each["status"]) or frozenset(), each["word"]) for each in typed.get("words", ())),
        xml=tuple(
            (frozenset(each.get("services", ())), tuple(each["root"].split("."))) for each in typed.get("xml", ())
        ),
    )


def _reads(typed: Mapping[str, Any]) -> Reads:
    return Reads(typed["field"].lower(), typed["values"], _headers(typed))


def _ends(typed: Mapping[str, Any]) -> StreamEnds:
    full = STREAM_ENDS.filled(typed)
    ends, known = (tuple(map(_end_mark, full[key])) for key in ("ends", "known"))
    said = full.get("error")
    name = f"event: {said['event']}\n".encode() if said is not None and said.get("event") else b""
    error = b"" if said is None else b"%bdata: %b\n\n" % (name, said["data"])
    return StreamEnds(ends, known, full["by_body"], full.get("path", ""), error)


def _end_mark(typed: Mapping[str, Any]) -> EndMark:
    present = typed.get("present", "")
    return EndMark(typed.get("event", ""), typed.get("data", ""), tuple(present.split(".")) if present else ())


def _inside(typed: Mapping[str, Any]) -> ErrorsInside:
    full = ERRORS_INSIDE.filled(typed)
    requests = tuple(AskedFor(each["method"], _headers(each), each.get("query", "")) for each in full["requests"])
    return ErrorsInside(requests, full["root"], full["status"], full["awake"])


def _repeats(typed: Mapping[str, Any]) -> Repeats:
    flags = ("transient_codes", "should_retry", "retry_after", "keyed", "alone", "within")
    return Repeats(
        typed["client"],
        statuses=_failures(typed.get("status")) or frozenset(),
        idempotent_statuses=_failures(typed.get("idempotent")) or frozenset(),
        faults=_failures(typed.get("faults")) or frozenset(),
        headers=_headers(typed),
        whole_answers=frozenset(typed.get("whole_answers", ())),
        attempts=typed.get("attempts", 0),
        unsigned=_forms(typed["unsigned"]) if "unsigned" in typed else None,
        **{key: typed[key] for key in flags if key in typed},
    )


def _forms(typed: Mapping[str, Any]) -> Forms:
    return Forms(typed["host"], typed["field"], frozenset(typed["values"]))


def _headers(typed: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), glob) for name, glob in typed.get("header", {}).items())


def _by_path(globs: Mapping[str, str]) -> tuple[tuple[tuple[str, ...], str], ...]:
    return tuple((tuple(path.split(".")), glob) for path, glob in globs.items())


def _words(typed: Mapping[str, Any]) -> str:
    """The name of a built-in pack's rule in logs and answers, made of the rule's conditions, such as `429
    insufficient_quota`. `typed`: the rule's parts as read from the file.
    """
    if "event" in typed:
        event = typed["event"]
        return " ".join([event.get("event", "event"), *map(str, event.get("json", {}).values())])
    parts = [str(glob) for key in ("json", "xml") for glob in typed.get(key, {}).values()]
    parts += [f"{name}: {glob}" for name, glob in typed.get("header", {}).items()]
    statuses = sorted(_failures(typed.get("status")) or ())
    if statuses:
        few = len(statuses) <= 3
        parts.insert(0, "/".join(map(str, statuses)) if few else f"{statuses[0]}-{statuses[-1]}")
    return " ".join(parts) or typed["as"]


def _code_rules(codes: dict[str, Any]) -> list[Rule]:
    """Make the rules of a dialect pack's `codes` section, one for each code and each part of an answer that may have
    it. Rules for header fields come first, since they do not need the body.
    """
    statuses = _failures(codes.get("status")) or frozenset(range(400, 600))
    spellings = codes.get("spelled", ("{}",))
    named = [(cls, code) for cls in _CODE_CLASSES for code in codes.get(cls, ())]
    rules: list[Rule] = []
    for part, read in (("header", str.lower), ("json", lambda path: tuple(path.split("."))), ("xml", str)):
        for where in codes.get(part, ()):
            for cls, code in named:
                for spelling in spellings if part != "xml" else ("{}",):
                    held: Any = ((read(where), spelling.replace("{}", code)),)
                    field = {"headers" if part == "header" else part: held}
                    rules.append(Rule(Class(cls), code, statuses=statuses, **field))
    return rules
