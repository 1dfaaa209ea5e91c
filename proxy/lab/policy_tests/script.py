"""A file of policy tests (contract, section 8) as data, with the configuration that it names.

The file is read by the language of the configuration (`proxy.config.schema_language`), completely before anything runs:
an unknown key, a wrong unit, an unknown outcome or an attempt that says both `status` and `fail` is an error with its
line, never a test that passes by accident. An error in an inline configuration points into the test file.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from proxy.config import addresses, units
from proxy.config.load import LoadResult, load, load_tree
from proxy.config.problems import Mark, Problem, Problems, did_you_mean
from proxy.config.problems import Path as KeyPath
from proxy.config.schema_language import Anything, Either, JsonValue, Key, ListOf, MapOf, Report, Section, Word
from proxy.config.settings import Settings
from proxy.config.units import scalar, written
from proxy.config.yaml_tree import Map, Seq, is_file, mistaken, parse, read_text
from proxy.lab.driver import ASKS_FOR_STREAM
from proxy.lab.policy_tests.rotations import Rotation, file_of
from proxy.lab.routing import AppRequest, Chosen, choose
from proxy.lab.upstream import UpstreamStep
from proxy.retry.facts import GRPC_STATUS_NAMES, GRPC_STATUS_NUMBERS, FaultKind, Outcome
from proxy.wire.http2.frames import CODES

_WALL = "2026-01-01T00:00:00Z"
#: Durations as programs print floats, besides the configuration's.
_PRINTED = re.compile(r"((?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class CallScript:
    """A call of a test. `mark` is the place at which it begins; `expect` has only the keys that were written:
    seconds, numbers, texts, lists of them. `body` is the request's body, None if none was written.
    """

    mark: Mark
    at: float
    ask: AppRequest
    steps: tuple[UpstreamStep, ...]
    expect: dict[str, Any] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def body_or_guess(self) -> tuple[bytes, ...]:
        """The request's body. If the script gives none, but an answer with a first byte or events, which only a stream
        has, it is a body that asks for a stream; else it is empty.
        """
        if self.body is not None:
            return (self.body,)
        return (ASKS_FOR_STREAM,) if any(step.streams for step in self.steps) else ()


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """A policy test: calls in order of time, whose attempts share one fresh set of buckets, and rotations of keys."""

    name: str
    line: int
    calls: tuple[CallScript, ...]
    rotations: tuple[Rotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """A whole file. `config` is a path or a mapping, with its place, or None for the defaults. `draw` is the value of
    every jitter draw unless there is a `seed`; `wall` is in seconds since the epoch.
    """

    file: str
    config: Any
    config_at: Mark
    draw: float
    seed: int | None
    wall: float
    tests: tuple[PolicyTest, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """A file of policy tests, ready to be played: its script, and the settings of its configuration."""

    script: ScriptFile
    settings: Settings


# -- how values are read -----------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    return "" if value is None else scalar(value, "text")


def _field_value(value: Any) -> str:
    text = _text(value)
    if any(each in text for each in "\n\r\0"):
        raise ValueError("must be one line: a header field's value has no line breaks")
    return text


def _duration(value: Any) -> float:
    match = _PRINTED.fullmatch(value) if isinstance(value, str) else None
    return units.duration(value) if match is None else float(match[1]) * units.duration(f"1{match[2]}")


def _cut(value: Any) -> float:
    """Read the value of `cut`: the seconds from an answer's head to its break, or the word `after`, which is 0."""
    return 0.0 if value == "after" else _duration(value)


def _size(value: Any) -> int:
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]+", value) else units.size(value)


def _number(value: Any) -> float:
    try:
        number = float(scalar(value, "a number"))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"must be a number, not {written(value)}")
    return number


def _draw(value: Any) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise ValueError(f"must be from 0 to 1, not {number:g}")
    return number


def _wall(value: Any) -> float:
    try:
        moment = datetime.datetime.fromisoformat(scalar(value, "a time"))
    except ValueError:
        raise ValueError(f"must be a time such as {_WALL}, not {written(value)}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _url(value: Any) -> str:
    found = scalar(value, "a url")
    if not found.startswith(("http://", "https://", "/")):
        raise ValueError(f"must begin with http://, https:// or /, not {written(value)}")
    return found


def _one_of(words: Iterable[str], then: Callable[[str], Any] = str) -> Callable[[Any], Any]:
    known = list(words)

    def read(value: Any) -> Any:
        if value not in known:
            raise ValueError(f"{written(value)} is none of {', '.join(known)}{did_you_mean(str(value), known)}")
        return then(value)

    return read


def _status(value: Any) -> int:
    status = units.whole(0)(value)
    if not 200 <= status <= 999:
        raise ValueError(f"must be a final status, from 200 to 999, not {status}")
    return status


def _grpc_status(value: Any) -> int | None:
    """A gRPC status; None for `none`: an answer that ends without a status."""
    if value == "none":
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and int(value) < len(GRPC_STATUS_NAMES):
        return int(value)
    return int(_one_of(GRPC_STATUS_NAMES, GRPC_STATUS_NUMBERS.__getitem__)(value))


def _or_none(reader: Callable[[Any], Any]) -> Word:
    return Word(lambda value: None if value is None else reader(value))


# -- the file's format -------------------------------------------------------------------------------------------------

_DURATION, _WHOLE, _LEVEL = Word(_duration), Word(units.whole(0)), _or_none(_number)
_VALUE = Word(_field_value)
_FIELDS = MapOf(Either(word=_VALUE, list=ListOf(_VALUE)), key=addresses.header_name)

#: The keys of `expect` (contract, section 8).
EXPECT = Section(
    "expect",
    "What the call is expected to do.",
    {
        "attempts": Key(_WHOLE),
        "tokens_after_each": Key(ListOf(_LEVEL)),
        "delays": Key(ListOf(_DURATION)),
        "starts": Key(ListOf(_DURATION)),
        "status": Key(_WHOLE),
        "outcome": Key(Word(_one_of(outcome.value for outcome in Outcome))),
        "tokens": Key(_LEVEL, null=True),
        "elapsed": Key(_DURATION),
        "sent": Key(ListOf(MapOf(Either(word=_or_none(_text), list=ListOf(Word(_text)))))),
        "fill_rate": Key(_LEVEL, null=True),
        "measured_rate": Key(_LEVEL, null=True),
    },
)


class _JsonOrText:
    """A body in a script: text is taken as it is; a mapping or a list is written as JSON."""

    def read(self, tree: Any, at: Mark, path: KeyPath, report: Report) -> Any:
        if isinstance(tree, Map | Seq):
            return JsonValue().read(tree, at, path, report)
        return _text(tree).encode()

    def schema(self, named: dict[str, Any]) -> dict[str, Any]:
        return {}


_JSON_OR_TEXT = _JsonOrText()


def _event_name(value: Any) -> str:
    """The name of an event that the script gives as a text alone, without data of its own."""
    name = _text(value)
    if any(each in name for each in "\n\r"):
        raise ValueError("an event's name is one line: write the event as {event: NAME, data: …}")
    return name


_EVENT = Section(
    "event",
    "An event of the stream that an answer is.",
    {
        "event": Key(Word(_event_name)),
        "data": Key(_JSON_OR_TEXT),
        "after": Key(_DURATION, "0s"),
    },
)


class _Attempt(Section):
    """The upstream's reaction to one sending: a fault, or an answer."""

    def read(self, tree: Any, at: Mark, path: KeyPath, report: Report) -> Any:
        if isinstance(tree, Map):
            if "fail" in tree:
                for other in ("status", "grpc_status", "headers", "body", "trailers", "first_byte", "events", "cut"):
                    if other in tree:
                        report(tree.values_at[other], (*path, other), "an attempt that fails has no answer")
            elif not {"status", "grpc_status", "events"} & set(tree) and set(tree) <= set(self.keys):
                report(at, path, "must have a status, a grpc_status or a fault (fail)")
            for other in ("body", "grpc_status"):
                if "events" in tree and other in tree:
                    report(tree.values_at[other], (*path, other), "cannot be combined with events, which are its body")
            if "code" in tree and tree.get("fail") != FaultKind.RESET:
                report(tree.values_at["code"], (*path, "code"), "belongs to a stream's reset: only fail: reset has one")
        return super().read(tree, at, path, report)


_ATTEMPT = _Attempt(
    "attempt",
    "What the upstream does to one sending.",
    {
        "status": Key(Word(_status), "200"),
        "fail": Key(Word(_one_of(FaultKind, FaultKind))),
        "code": Key(Word(_one_of(CODES, CODES.index))),
        "after": Key(_DURATION),
        "headers": Key(_FIELDS),
        "body": Key(Word(_text), ""),
        "grpc_status": Key(Word(_grpc_status)),
        "trailers": Key(_FIELDS),
        "key": Key(Word(units.whole(1)), doc="the number of the credential whose attempts it is for"),
        "key_version": Key(Word(units.whole(1)), doc="the version of that credential's file whose attempts it is for"),
        "endpoint": Key(Word(units.word), doc="host:port of the endpoint that it is about"),
        "first_byte": Key(_DURATION),
        "events": Key(ListOf(Either(word=Word(_event_name), mapping=_EVENT))),
        "cut": Key(Word(_cut), doc="how long after its head the answer breaks off; after: at once"),
    },
    others="docs/reference/commands/test.md lists all keys",
)

_REQUEST = Section(
    "request",
    "What the app sends.",
    {
        "method": Key(Word(addresses.token), "GET"),
        "url": Key(Word(_url), required=True),
        "headers": Key(_FIELDS),
        "body_size": Key(Word(_size)),
        "body": Key(_JSON_OR_TEXT),
    },
)

_CALL = Section(
    "call",
    "One call.",
    {
        "at": Key(_DURATION, "0s"),
        "request": Key(_REQUEST, required=True),
        "attempts": Key(ListOf(_ATTEMPT, "must say what happens to at least one attempt"), required=True),
        "expect": Key(EXPECT),
    },
)

_ROTATION = Section(
    "rotation",
    "A key file that gets another value.",
    {
        "at": Key(_DURATION, doc="when", required=True),
        "upstream": Key(Word(units.word), doc="whose key; without it, that of the only one with key files"),
        "key": Key(Word(units.whole(1)), "1", doc="the number of the credential that stands in the file"),
    },
    others="docs/reference/commands/test.md lists all keys",
    belongs={"file": "key", "value": "key"},
)

_TEST = Section(
    "test",
    "Calls, against one fresh set of buckets.",
    {
        "name": Key(Word(units.word), required=True),
        "rotations": Key(ListOf(_ROTATION), [], doc="when key files get another value"),
        "calls": Key(ListOf(_CALL, "must name at least one call"), required=True),
    },
)

_FILE = Section(
    "policy tests",
    "Tests of a configuration.",
    {
        "config": Key(Either(word=Word(units.word), mapping=Anything())),
        "random": Key(
            Either(word=Word(_draw), mapping=Section("random", "Drawn.", {"seed": Key(_WHOLE, required=True)})), "1"
        ),
        "wall": Key(Word(_wall), _WALL),
        "tests": Key(ListOf(_TEST, "must hold at least one test"), required=True),
    },
)


# -- reading -----------------------------------------------------------------------------------------------------------


def load_suite(path: Path, environ: Mapping[str, str]) -> tuple[Suite | None, list[Problem]]:
    """The tests of a file with their configuration compiled, and the problems found; None in place of the tests if
    there is an error. `environ`: the environment variables, for the configuration's ${NAME}.
    """
    script, problems = read_script(path)
    if script is None:
        return None, problems
    result = _configuration(script, path, environ)
    if result.settings is None:
        return None, list(result.errors)
    suite = Suite(script, result.settings)
    checks = (_timeouts_without_end, _keys_of_nobody, _endpoints_of_nobody, _rotations_of_no_file)
    numbered = enumerate(script.tests)
    problems = [problem for number, test in numbered for check in checks for problem in check(suite, test, number)]
    return (None if problems else suite), problems


def read_script(path: Path) -> tuple[ScriptFile | None, list[Problem]]:
    """The script in a file, and the problems found; None in place of the script if there is an error."""
    file, problems = str(path), Problems()
    text = read_text(file, problems)
    tree: Any = None if text is None else parse(text, file, problems)
    if tree is None and not problems.fatal:
        problems.add(Mark(file, 1, 1), "", "the file is empty")
    script = None
    if isinstance(tree, Map) and (other := mistaken(tree, "tests")):
        problems.add(tree.mark, "", other)
    elif tree is not None:
        found = _FILE.read(tree, Mark(file, 1, 1), (), problems.add)
        script = None if problems.fatal else _script(file, found, tree, problems)
    return (None if problems.fatal else script), problems.sorted()


def _script(file: str, found: dict[str, Any], tree: Map, problems: Problems) -> ScriptFile:
    full = _FILE.filled(found)
    seeded = isinstance(full["random"], dict)
    return ScriptFile(
        file,
        tree.get("config"),
        tree.values_at.get("config", tree.mark),
        1.0 if seeded else full["random"],
        full["random"]["seed"] if seeded else None,
        full["wall"],
        tuple(_test(each, tree["tests"], number, problems) for number, each in enumerate(found["tests"])),
    )


def _test(found: dict[str, Any], tests: Seq, number: int, problems: Problems) -> PolicyTest:
    marks = tests[number]["calls"].marks
    calls = [_call(each, mark) for each, mark in zip(found["calls"], marks, strict=True)]
    for place, (before, after) in enumerate(pairwise(calls), start=1):
        if after.at < before.at:
            path = ("tests", number, "calls", place, "at")
            problems.add(after.mark, path, "calls must be in order of time")
    rotations = [
        Rotation(mark, each["at"], each.get("upstream"), each["key"])
        for mark, each in zip(
            tests[number]["rotations"].marks if "rotations" in tests[number] else (),
            map(_ROTATION.filled, found.get("rotations", ())),
            strict=True,
        )
    ]
    return PolicyTest(found["name"], tests.marks[number].line, tuple(calls), tuple(rotations))


def _call(found: dict[str, Any], mark: Mark) -> CallScript:
    full = _CALL.filled(found)
    request, expect = _REQUEST.filled(full["request"]), full.get("expect", {})
    body = request.get("body")
    if "sent" in expect:
        expect["sent"] = [
            {name.lower(): ", ".join(value) if isinstance(value, tuple) else value for name, value in each.items()}
            for each in expect["sent"]
        ]
    expect = {key: list(value) if isinstance(value, tuple) else value for key, value in expect.items()}
    size = request.get("body_size", len(body or b""))
    method, url = str(request["method"]), str(request["url"])  # exactly texts, as the compiled core wants them
    ask = AppRequest(method, url, _pairs(request), size, body=body or b"")
    return CallScript(mark, full["at"], ask, tuple(map(_step, full["attempts"])), expect, body)


def _step(found: dict[str, Any]) -> UpstreamStep:
    full = _ATTEMPT.filled(found)
    fields = {"headers": _pairs(full), "trailers": _pairs(full, "trailers")}
    ends_bare = full.get("grpc_status", 0) is None
    if "events" in full:
        full["events"] = tuple(map(_written, full["events"]))
    return UpstreamStep(**{**full, **fields, "body": full["body"].encode(), "ends_bare": ends_bare})


def _written(event: Any) -> tuple[float, bytes]:
    """Read an event of the script. Returns the seconds since the event before, and its bytes in a stream of events."""
    if not isinstance(event, dict):
        event = {"event": event}
    full = _EVENT.filled(event)
    name, data = full.get("event", ""), full.get("data", b"{}")
    lines = [f"event: {name}".encode()] if name else []
    lines += [b"data: " + line for line in data.split(b"\n")]
    return full["after"], b"\n".join([*lines, b"", b""])


def _pairs(found: dict[str, Any], key: str = "headers") -> tuple[tuple[str, str], ...]:
    """The header fields at a key of `found`, an entry of a script, as names and values; a list of values makes a field
    that repeats.
    """
    fields = found.get(key, {}).items()
    return tuple((name, each) for name, value in fields for each in (value if isinstance(value, tuple) else (value,)))


#: The defaults of a policy test: no call waits for a limit or an outage unless its configuration writes the key
#: (contract, section 14).
CALM = Map.of({"concurrency": "off", "outage": "fail"})


def _configuration(script: ScriptFile, path: Path, environ: Mapping[str, str]) -> LoadResult:
    if script.config is None:
        return load(None, environ, under=CALM)
    if isinstance(script.config, Map):
        return load_tree(script.config, script.file, environ, under=CALM)
    file, problems = str(path.parent / script.config), Problems()
    if not is_file(file) and read_text(file, problems, named_at=script.config_at, path="config") is None:
        return LoadResult(None, tuple(problems.sorted()))
    return load(file, environ, under=CALM)


def _timeouts_without_end(suite: Suite, test: PolicyTest, place: int) -> list[Problem]:
    """Report each attempt that the script ends by `attempt_timeout` without saying when (`after`), if its policy has no
    timeout that would end it. `place`: where the test stands among the file's tests, from 0.
    """
    found: list[Problem] = []
    for number, call in enumerate(test.calls):
        if not any(step.fail is FaultKind.ATTEMPT_TIMEOUT and step.after is None for step in call.steps):
            continue
        chosen = choose(suite.settings, call.ask)
        limits = chosen.policy.timeouts if isinstance(chosen, Chosen) else None
        if limits is not None and limits.attempt is None and limits.first_byte is None:
            message = f"in {test.name!r}: attempt_timeout without `after` needs timeouts.attempt, which is off"
            found.append(Problem(*call.mark, f"tests[{place}].calls[{number}].attempts", message))
    return found


def _keys_of_nobody(suite: Suite, test: PolicyTest, place: int) -> list[Problem]:
    """Report each `key` of an attempt that is not one of the upstream's credentials, and each `key_version` where none
    of them is in a file. `place`: where the test stands among the file's tests, from 0.
    """
    found: list[Problem] = []
    for number, call in enumerate(test.calls):
        highest = max((step.key or 0 for step in call.steps), default=0)
        has_version = any(step.key_version for step in call.steps)
        chosen = choose(suite.settings, call.ask) if highest or has_version else None
        if isinstance(chosen, Chosen):
            credentials = chosen.policy.credentials
            count = 0 if credentials is None else len(credentials.values)
            if highest > count:
                has = f"has {count} credentials" if count else "has no credentials"
                message = f"in {test.name!r}: there is no key {highest}: the upstream {chosen.policy.upstream} {has}"
                found.append(Problem(*call.mark, f"tests[{place}].calls[{number}].attempts", message))
            if has_version and (credentials is None or not credentials.files):
                message = f"in {test.name!r}: key_version is for keys in files, and {chosen.policy.upstream} has none"
                found.append(Problem(*call.mark, f"tests[{place}].calls[{number}].attempts", message))
    return found


def _endpoints_of_nobody(suite: Suite, test: PolicyTest, place: int) -> list[Problem]:
    """Report each `endpoint` of an attempt that is not one of those that the upstream's calls choose from. `place`:
    where the test stands among the file's tests, from 0.
    """
    found: list[Problem] = []
    for number, call in enumerate(test.calls):
        named = {step.endpoint for step in call.steps if step.endpoint is not None}
        chosen = choose(suite.settings, call.ask) if named else None
        if isinstance(chosen, Chosen):
            known = [share.label for share in chosen.policy.endpoints]
            for name in sorted(named - set(known)):
                has = f"are {', '.join(known)}" if known else "take turns, without weight, priority or circuit breaker"
                message = (
                    f"in {test.name!r}: no attempt goes to {name}: the endpoints of {chosen.policy.upstream} {has}"
                )
                found.append(Problem(*call.mark, f"tests[{place}].calls[{number}].attempts", message))
    return found


def _rotations_of_no_file(suite: Suite, test: PolicyTest, place: int) -> list[Problem]:
    """Report each rotation of a key that is not in a file. `place`: where the test stands among the file's tests, from
    0.
    """
    found: list[Problem] = []
    for number, rotation in enumerate(test.rotations):
        try:
            file_of(suite.settings, rotation)
        except ValueError as why:
            found.append(Problem(*rotation.mark, f"tests[{place}].rotations[{number}]", f"in {test.name!r}: {why}"))
    return found
