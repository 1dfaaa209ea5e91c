"""Header fields that the proxy adds, and those that it removes first; pure functions.

Every attempt is built from the request as it came, so nothing here depends on an earlier attempt. A call that succeeds
at once gains only `X-Attempt-Count: 1` and `Via`, on its request and on its answer; on either message they are added as
lines that were made before. A field that a signature may cover is not rewritten if the request brings it (contract,
section 5).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from proxy.retry.answers.pushback import MILLISECONDS
from proxy.retry.call.attempt_record import FELL_BACK, AttemptRecord
from proxy.retry.call.call_state import CallState
from proxy.retry.call.request_hints import read_grpc_timeout
from proxy.retry.call.states import Delivering
from proxy.retry.facts import GAVE_UP, GRPC_STATUS_NAMES, Fields, Outcome, Request, first, forwarded
from proxy.retry.policies.policy import HeaderEdits, Policy
from proxy.wire.field_names import NOT_EDITED
from proxy.wire.head import RequestHead, ResponseHead

#: Fields that are never forwarded: X-Retry-* is for us, and we write the count.
OWN = frozenset({"x-attempt-count", "x-retry-disable", "x-retry-timeout"})
#: The most attempts whose results an answer names; the log has all of them.
_MOST_RESULTS = 5
#: Statuses of answers that begin a cooldown: our own has Retry-After, and so has one that is forwarded instead.
_ASKS_TO_WAIT = (429, 503)
#: The most digits of a Retry-After in seconds; a longer number never ends, and is forwarded as it came.
_MOST_DIGITS = 18
_NO_NAMES: frozenset[bytes] = frozenset()
#: How first attempts ended, as `details=` has it, by status or word; and for how many of these it is kept.
_FIRST_ENDED: dict[str | int, str] = {}
_MOST_ENDS = 256
#: Names for members of enumerations: see `proxy.retry.facts`.
_SUCCESS, _OVERLOADED, _ATTEMPTS_EXHAUSTED = Outcome.SUCCESS, Outcome.OVERLOADED, Outcome.ATTEMPTS_EXHAUSTED
_COOLING = Outcome.COOLING
_NOT_VISIBLE = re.compile("[^ -~]").sub
#: The marks by which comments of a field begin and end, and what is escaped in them (RFC 9110, 5.6.5).
_COMMENT_MARKS = re.compile(r"[()]|\\.")
#: Fields by which SDKs learn not to retry: the most common one, that of gRPC, and that of Stripe's.
_FORBIDDEN = (("x-should-retry", "false"),)
_NO_PUSHBACK, _STRIPE = ("grpc-retry-pushback-ms", "-1"), ("Stripe-Should-Retry", "false")


@dataclass(slots=True)
class Changes:
    """The changes to the header fields of a message: the field lines to add at the end, in order, and the lower-case
    names of the fields to remove first.
    """

    add: list[tuple[str, str]] = field(default_factory=list)
    drop: set[str] = field(default_factory=set)

    def put(self, name: str, value: str) -> None:
        """Replace all lines with this name by one line of ours, with this value."""
        self.drop.add(name.lower())
        self.add.append((name, value))

    def lines(self) -> bytes:
        """Return the added fields as one text of field lines, each with its CRLF."""
        return "".join(f"{name}: {value}\r\n" for name, value in self.add).encode("latin-1", "replace")

    def names(self) -> frozenset[bytes]:
        """Return the lower-case names of the fields to remove, as a head's `render` takes them."""
        return frozenset(name.encode("latin-1", "replace") for name in self.drop)


# -- to the upstream ------------------------------------------------------------------------------------------------


def attempt_fields(
    request: Request, policy: Policy, attempt: int, *, elapsed: float = 0.0, key: str | None = None
) -> Changes:
    """Return the changes to the request's own fields for attempt number `attempt`; `Via` is not among them.

    `elapsed`: seconds from the call's beginning to this sending. `key`: the idempotency key made for this call, if the
    policy injects one; it is added only if the request brings none.
    """
    changes = Changes()
    changes.add.append(("X-Attempt-Count", str(attempt)))
    _edit(changes, policy.request_headers)
    fields = request.fields
    if "grpc" in policy.attempt_headers:
        for name in ("grpc-previous-rpc-attempts", "x-grpc-retry-attempts"):
            changes.drop.add(name)
            if attempt > 1:
                changes.add.append((name, str(attempt - 1)))
    if "aws" in policy.attempt_headers and not fields.get_all("amz-sdk-request"):  # SigV4 may have signed it
        changes.put("amz-sdk-request", f"attempt={attempt}; max={policy.strategy.max_attempts}")
    if "envoy" in policy.attempt_headers:
        changes.put("x-envoy-attempt-count", str(attempt))
    timeout = first(fields, "grpc-timeout")
    if timeout is not None and elapsed > 0:
        left = read_grpc_timeout(timeout)
        if left is not None:
            changes.put("grpc-timeout", format_grpc_timeout(left - elapsed))
    name = policy.idempotency_key.header
    if key is not None and wants_key(request, policy):
        changes.put(name, key if policy.idempotency_key.form == "bare" else quoted(key))
    return changes


def wants_key(request: Request, policy: Policy) -> bool:
    """Whether this call gets an idempotency key of ours: injected into a POST or PATCH that brings none."""
    rules = policy.idempotency_key
    if not rules.inject or request.method not in ("POST", "PATCH"):
        return False
    return not forwarded(request.fields, rules.header.lower())


def format_grpc_timeout(seconds: float) -> str:
    """Return a grpc-timeout: at most eight digits, rounded down, in milliseconds while they fit (gRPC over HTTP/2)."""
    for unit, size in (("m", 1e-3), ("S", 1.0), ("M", 60.0)):
        count = math.floor(max(seconds, 0.0) / size + 1e-6)
        if count == 0 and unit == "m":
            return f"{max(1, math.floor(seconds * 1e6))}u"
        if count < 10**8:
            return f"{count}{unit}"
    return "99999999H"


# -- to the app -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CallEnd:
    """The end of a call, from which the fields of its answer are made.

    `status`: the upstream's status, if its answer is forwarded; `error`: the RFC 9209 error type, if the answer is the
    proxy's own; `detail`: the text of the parameter `details` of Proxy-Status. `held`: seconds for which the proxy has
    held the answer. `cooling`: seconds that are left of the cooldown which ended the call; `named`: seconds of the
    delay that the upstream's answer asked for when it arrived. `no_place`: the call ended because too many attempts
    were under way (`concurrency`). `cut_short`: the process ended before an answer to a request that may have been
    carried out, and must not be sent again unasked.
    """

    outcome: Outcome
    attempts: int
    grpc: bool
    status: int | None = None
    error: str = ""
    detail: str = ""
    held: float = 0.0
    cooling: float = 0.0
    named: float = 0.0
    no_place: bool = False
    cut_short: bool = False


def answer_fields(policy: Policy, fields: Fields | None, end: CallEnd) -> Changes:
    """Return the changes to an answer's own `fields` (None if the answer is the proxy's) for a call that ends by `end`;
    `Via` is not among them.
    """
    attempts = end.attempts
    changes = Changes(drop={"x-attempt-count"})
    changes.add.append(("X-Attempt-Count", str(attempts)))
    _edit(changes, policy.response_headers)
    if "grpc" in policy.attempt_headers:
        for name in ("grpc-previous-rpc-attempts", "x-grpc-retry-attempts"):
            changes.drop.add(name)
            if attempts > 1:
                changes.add.append((name, str(attempts - 1)))
    if "envoy" in policy.attempt_headers:
        changes.put("x-envoy-attempt-count", str(attempts))
    if end.cut_short or gave_up(policy, end.outcome, attempts, no_place=end.no_place):
        _forbid_retries(changes, _retries_forbidden(policy, fields, end.grpc))
    if fields is not None and (end.held >= 1.0 or end.cooling):
        _settle_retry_after(changes, fields, end)
    if attempts > 1 or end.error or end.outcome is not Outcome.SUCCESS:
        said = proxy_status(end.outcome, attempts, status=end.status, error=end.error, detail=end.detail)
        changes.add.append(("Proxy-Status", said))
    return changes


def _retries_forbidden(policy: Policy, fields: Fields | None, grpc: bool) -> tuple[tuple[str, str], ...]:
    """Return the fields, with their values, that tell the app's SDK not to retry, since the proxy has retried already.
    `fields`: the answer's own fields, None if the answer is the proxy's; `grpc`: whether the call is a gRPC call.
    """
    if not grpc:
        forbidden = _FORBIDDEN if not policy.classify.stop_fields else _forbidden(policy.classify.stop_fields)
    elif fields is not None and fields.get_all("x-should-retry"):
        forbidden = (_NO_PUSHBACK, *_FORBIDDEN)
    else:
        forbidden = (_NO_PUSHBACK,)
    return (*forbidden, _STRIPE) if fields is not None and fields.get_all("stripe-should-retry") else forbidden


@lru_cache(maxsize=64)
def _forbidden(stop_fields: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the fields that tell SDKs not to retry a call that is no gRPC call. `stop_fields`: the fields that the
    dialects add.
    """
    return (*_FORBIDDEN, *[(name, "false") for name in stop_fields])


def _forbid_retries(changes: Changes, forbidden: tuple[tuple[str, str], ...]) -> None:
    """Add the fields `forbidden` (see `_retries_forbidden`) to the `changes` of an answer."""
    for name, value in forbidden:
        if (name, value) != _STRIPE or "stripe-should-retry" not in changes.drop:  # the same meaning for another SDK
            changes.put(name, value)


def forwarded_changes(
    call: CallState, policy: Policy, head: ResponseHead, via: str, outcome: Outcome, held: float, grpc: bool
) -> tuple[frozenset[bytes], bytes]:
    """Return the lower-case names of the fields to drop from an upstream's answer before it goes to the app, and the
    field lines to add to it. `policy`: that of the upstream that answered; `via`: the name in our Via line; `held`:
    seconds for which the proxy has held the answer; `grpc`: whether the call is a gRPC call.
    """
    attempts, via = call.attempts, via_name(policy, via)
    if answers_plainly(policy):
        if attempts == 1 and outcome is _SUCCESS:
            return _NO_NAMES, plain_lines(via, head.version)
        if held < 1.0 and outcome is not _COOLING:  # else the delay that the answer asks for is reduced
            forbidden: tuple[tuple[str, str], ...] = ()
            if gave_up(policy, outcome, attempts, outcome is _OVERLOADED and call.found_no_place):
                forbidden = _retries_forbidden(policy, head, grpc)
            detail = _details(call, head)
            return _LATEST_FAILURE.of(via, head.version, attempts, outcome, head.status, detail, forbidden)
    end = CallEnd(outcome, attempts, grpc, head.status, detail=_details(call, head), held=held)
    end.cooling, end.named = call.kept_off if outcome is _COOLING else (0.0, 0.0)
    end.no_place = call.found_no_place
    changes = answer_fields(policy, head, end)
    return changes.names(), changes.lines() + via_line(via, head.version)


def refusal_fields(outcome: Outcome, error: str, detail: str) -> Changes:
    """Return the fields to set in the answer to a request that was refused before any policy applied. `error`: the RFC
    9209 error type; `detail`: the text of Proxy-Status's `details`.
    """
    changes = Changes()
    changes.add.append(("X-Attempt-Count", "0"))
    if outcome in GAVE_UP:
        changes.put("x-should-retry", "false")
    changes.add.append(("Proxy-Status", proxy_status(outcome, 0, error=error, detail=detail)))
    return changes


def gave_up(policy: Policy, outcome: Outcome, attempts: int, no_place: bool = False) -> bool:
    """Whether a call with this outcome was given up, which means that the proxy has retried as often as it may. The
    fields of its answer then ask the app not to retry as well. A call with one attempt, under a policy that allows only
    one, was not given up; a call with one attempt at each of several upstreams was. `no_place`: the call ended because
    too many attempts were under way, the only overload that counts as giving up.
    """
    if outcome is _SUCCESS:
        return False
    if outcome is _ATTEMPTS_EXHAUSTED:
        return policy.strategy.max_attempts > 1 or attempts > 1
    return outcome in GAVE_UP or (no_place and outcome is _OVERLOADED)


def proxy_status(outcome: Outcome, attempts: int, *, status: int | None = None, error: str = "", detail: str) -> str:
    """Return a member of the Proxy-Status list (RFC 9209 section 2; parameters are RFC 8941 items). `attempts`: how
    many were made; `status`: the upstream's; `error`: the RFC 9209 error type, "" if the answer is an upstream's;
    `detail`: the text of `details`, "" for none.
    """
    parts = ["redrive"]
    if error:
        parts.append(f"error={error}")
    elif status is not None:
        parts.append(f"received-status={status}")
    parts += [f"attempts={attempts}", f"outcome={outcome.value}"]
    if detail:
        parts.append(f"details={quoted(detail)}")
    return "; ".join(parts)


def attempt_results(history: Sequence[AttemptRecord]) -> str:
    """Return the text of Proxy-Status's `details` for a forwarded answer: the results of the latest attempts, and why
    no other attempt followed.

    `attempt 1: 503, attempt 2: reset`, or `attempt 1: 503; POST may have been carried out, and is not idempotent`.
    """
    ends = ""
    for each in history[-_MOST_RESULTS:]:
        ended = _ended(each.upstream, each.attempt, _end(each))
        ends = f"{ends}, {ended}" if ends else ended
    last = history[-1] if history else None
    return ends if last is None or not last.why or last.decision == FELL_BACK else f"{ends}; {last.why}"


def _details(call: CallState, head: ResponseHead) -> str:
    """Return the text of `details=` for a call whose answer is forwarded. If the call went on to another upstream and
    succeeded there, the text also names the upstream that answered, which is missing in `attempt_results`, a list of
    failures.
    """
    text, state = attempt_results(call.history), call.state
    if call.fallbacks is None or not call.fallbacks.has_gone or not isinstance(state, Delivering):
        return text
    if state.outcome is not _SUCCESS:
        return text
    return f"{text}, {call.policy.upstream} attempt {state.attempt}: {head.status}"


def _ended(upstream: str, attempt: int, end: str | int) -> str:
    """Return how an attempt ended (`end`: its status, or a word) in the form for `details=`: `attempt 2: 503`. If the
    call went over several upstreams, the name of the attempt's upstream comes first: `llm attempt 2: 503`.
    """
    if upstream:
        return f"{upstream} attempt {attempt}: {end}"
    if attempt > 1:
        return f"attempt {attempt}: {end}"
    text = _FIRST_ENDED.get(end)
    if text is None:
        text = f"attempt 1: {end}"
        if len(_FIRST_ENDED) < _MOST_ENDS:
            _FIRST_ENDED[end] = text
    return text


def _end(record: AttemptRecord) -> str | int:
    if record.fault is not None:
        return record.fault.value
    if record.grpc_status:
        return GRPC_STATUS_NAMES[record.grpc_status]
    return record.status if record.status is not None else record.decision


def quoted(text: str) -> str:
    """Return an RFC 8941 string: visible ASCII and spaces, quote and backslash escaped."""
    plain = _NOT_VISIBLE("?", text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _settle_retry_after(changes: Changes, fields: Fields, end: CallEnd) -> None:
    """Add to the `changes` of an answer the delay that it asks the app for: its own, less the seconds for which the
    proxy held the answer (`end.held`).

    The delay is never below what is left of the cooldown that ended the call, so that an app which comes back as told
    finds the cooldown over. Fields in milliseconds, which SDKs read first, are set likewise. Without a cooldown, an
    answer gets no delay that its upstream did not name.
    """
    # `named`: the rest of the delay that the answer asked for, in any field.
    cooling, named = end.cooling, max(0.0, end.named - end.held)
    values = fields.get_all("retry-after")
    value = values[0] if len(values) == 1 else ""
    if "retry-after" in changes.drop:
        pass  # the policy sets or removes the field
    elif value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS:
        # Only whole seconds that have passed count, so that the rest is never too short.
        left = max(0, int(value) - math.floor(end.held), math.ceil(cooling))
        if left != int(value):
            changes.put("Retry-After", str(left))
    elif cooling > named and (values or end.status in _ASKS_TO_WAIT):
        changes.put("Retry-After", str(math.ceil(cooling)))
    for name in MILLISECONDS:
        if cooling > named and fields.get_all(name) and name not in changes.drop:
            changes.put(name, str(math.ceil(cooling * 1000)))


def _edit(changes: Changes, edits: HeaderEdits) -> None:
    changes.drop.update(name for name in edits.remove if name not in NOT_EDITED)
    for name, value in edits.set:
        if name.lower() not in NOT_EDITED and name.lower() not in OWN:
            changes.put(name, value)


# -- Via ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def via_line(name: str, version: str) -> bytes:
    """Return our Via line; b"" without a `name`. `version`: the version of HTTP in which the message came (RFC 9110
    section 7.6.3).
    """
    return f"Via: {version} {name}\r\n".encode("ascii") if name else b""


@lru_cache(maxsize=64)
def way_line(name: str, version: str, via: bool) -> bytes:
    """Return the line by which a proxy recognises a request that comes back to it: Via, or, if `via` is false,
    X-Redrive-Loop, a field that other servers ignore. `name`: the proxy's; `version`: the version of HTTP in which the
    request came.
    """
    return via_line(name, version) if via else f"X-Redrive-Loop: {name}\r\n".encode("ascii")


def via_name(policy: Policy, name: str) -> str:
    """Return the name for Via lines of answers; "" under a policy without Via."""
    return name if policy.via else ""


def is_loop(head: RequestHead, name: str) -> bool:
    """Whether this proxy has forwarded the request before: a member of its Via or of its X-Redrive-Loop names this
    proxy (`name`).
    """
    specials = head.specials
    if b"via" in specials and went_through(head.get_all("via"), name):
        return True
    if b"x-redrive-loop" not in specials:
        return False
    return any(name == each.strip() for value in head.get_all("x-redrive-loop") for each in value.split(","))


def went_through(values: Sequence[str], name: str) -> bool:
    """Whether one of these Via values has a member that names the proxy `name` as the one that received the message."""
    for value in values:
        for member in without_comments(value).split(","):
            words = member.split()
            if len(words) > 1 and words[1] == name:
                return True
    return False


def without_comments(value: str) -> str:
    """Return a Via value without its comments (RFC 9110, 5.6.5), which may contain commas and names, and may nest. What
    follows a parenthesis that is never closed is no comment: it could hide members.
    """
    if "(" not in value:
        return value
    kept, begun, opened, depth = [], 0, 0, 0
    for mark in _COMMENT_MARKS.finditer(value):
        if mark[0] == "(":
            if not depth:
                opened = mark.start()
            depth += 1
        elif mark[0] == ")" and depth:
            depth -= 1
            if not depth:
                kept.append(value[begun:opened])
                begun = mark.end()
    return " ".join([*kept, value[begun:]])


@lru_cache(maxsize=256)
def plain_lines(name: str, version: str) -> bytes:
    """Return the `Via` and `X-Attempt-Count` lines to add to the answer to a first attempt for which no further rule
    applies. `name`: the name in Via, "" for no Via; `version`: that of HTTP in which the answer came.
    """
    return b"X-Attempt-Count: 1\r\n" + via_line(name, version)


@lru_cache(maxsize=256)
def request_lines(name: str, version: str, count: int, via: bool) -> bytes:
    """Return the lines to add to a request for which no further rule applies: `X-Attempt-Count`, which is `count`, and
    the line that detects loops: Via, or its substitute if `via` is false. `name`: the proxy's; `version`: that of HTTP
    in which the request came.
    """
    return b"X-Attempt-Count: %d\r\n" % count + way_line(name, version, via)


class LatestFailure:
    """The result of the latest call of `_failure_changes`, and its arguments. Most often the same arguments are asked
    for again.
    """

    __slots__ = ("attempts", "changes", "detail", "forbidden", "name", "outcome", "status", "version")

    def __init__(self) -> None:
        self.name = self.version = self.detail = ""
        self.attempts = self.status = 0
        self.outcome: Outcome | None = None
        self.forbidden: tuple[tuple[str, str], ...] = ()
        self.changes: tuple[frozenset[bytes], bytes] = (_NO_NAMES, b"")

    def of(
        self,
        name: str,
        version: str,
        attempts: int,
        outcome: Outcome,
        status: int,
        detail: str,
        forbidden: tuple[tuple[str, str], ...],
    ) -> tuple[frozenset[bytes], bytes]:
        """Return the changes for these arguments, as `_failure_changes` makes them, and keep them. `name`, `version`
        and `forbidden` are compared by identity, which is fast: if one of them is equal but not the same object, the
        changes are only looked up again.
        """
        if not (
            self.detail == detail
            and self.outcome is outcome
            and self.status == status
            and self.attempts == attempts
            and self.name is name
            and self.version is version
            and self.forbidden is forbidden
        ):
            self.changes = _failure_changes(name, version, attempts, outcome, status, detail, forbidden)
            self.name, self.version, self.attempts, self.outcome = name, version, attempts, outcome
            self.status, self.detail, self.forbidden = status, detail, forbidden
        return self.changes


_LATEST_FAILURE = LatestFailure()


@lru_cache(maxsize=256)
def _failure_changes(
    name: str,
    version: str,
    attempts: int,
    outcome: Outcome,
    status: int,
    detail: str,
    forbidden: tuple[tuple[str, str], ...],
) -> tuple[frozenset[bytes], bytes]:
    """Return the names to drop from an upstream's answer to a call that was retried, or whose failure could not be
    retried, and the lines to add: the number of attempts, the fields `forbidden` (see `_retries_forbidden`),
    Proxy-Status (`status`: the upstream's; `detail`: the text of `details`) and Via (`name` and `version`, see
    `via_line`).
    """
    changes = Changes()
    changes.add.append(("X-Attempt-Count", str(attempts)))
    _forbid_retries(changes, forbidden)
    changes.add.append(("Proxy-Status", proxy_status(outcome, attempts, status=status, detail=detail)))
    return changes.names(), changes.lines() + via_line(name, version)


def is_plain(policy: Policy) -> bool:
    """Whether a policy changes nothing about a request but the count of attempts and Via."""
    edits = policy.request_headers
    return not (policy.attempt_headers or edits.set or edits.remove or policy.idempotency_key.inject)


def answers_plainly(policy: Policy) -> bool:
    """Whether a policy changes nothing about an answer but the count of attempts and Via."""
    edits = policy.response_headers
    return not (policy.attempt_headers or edits.set or edits.remove)
