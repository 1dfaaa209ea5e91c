"""A call as JSON, in one line. The access log writes that line. `/requests`, `/events` and the workers' reports to
their parent carry the same text with the call's number before it.

The text is put together by hand, with json's own C encoder for variable strings, because other calls wait while a line
is written. Times are UTC, and durations are seconds. Query values and user info are masked; absent values are left out.

Law: `json_line.pyx`, if it was compiled, writes exactly the same text (`proxy.observe.compiled`).
"""

from __future__ import annotations

import time
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quote

from proxy.observe import masking
from proxy.observe.call_record import AT_ONCE, SUCCESS, CallRecord, Course
from proxy.retry.call.attempt_record import AttemptRecord, FallbackRecord
from proxy.retry.facts import Class
from proxy.retry.policies.policy import Policy
from proxy.wire.first_bytes import HTTP1, HTTP2
from proxy.wire.http2.frames import code_name

#: Policies whose part of the JSON is remembered at most: reloads and evicted unmatched hosts leave old ones behind.
_POLICIES = 4096
#: The most further texts that repeat from call to call and are remembered: few, since a hostile authority may be as
#: long as a head.
_REPEATED = 256
#: The end of a timestamp, by its milliseconds: ready-made, since formatting one takes as long as the rest of it.
_MILLISECONDS = tuple(f".{number:03d}Z" for number in range(1000))


#: The member of each protocol, followed by further members.
_SPOKEN = {"": "", HTTP1: f'"protocol":"{HTTP1}",', HTTP2: f'"protocol":"{HTTP2}",'}


def call_lines(calls: list[CallRecord]) -> str:
    """The JSON of calls, each on a line of its own that ends with LF."""
    return "".join([call_json(call) + "\n" for call in calls])


def call_json(call: CallRecord) -> str:
    """A call as JSON in one line, without a line end."""
    path, status, course, started = call.path, call.status, call.course, call.started
    if "?" in path or "@" in path or ";" in path or "%3" in path:  # else `target` finds nothing to mask
        path = masking.target(path)
    took = call.ended - started
    seconds = f"{took:.6f}" if took else "0.0"
    if (course is AT_ONCE or course.key is not None) and call.grpc_status is None:
        ended, front, end = _plain_success(course.key, status, call.endpoint, call.protocol, call.sent_by, call.app)
        middle = seconds
    else:
        ended = _ended(status, course.outcome._value_, course.attempts)
        front, middle, end = _front(call.endpoint, call.protocol, _more(call, course)), "", _END
        if course.history:
            middle = ",".join([attempt_json(record, started) for record in course.history])
        elif course.attempts == 1 and course.outcome is SUCCESS:
            middle = seconds.join(_only_sending(course.key, status, call.endpoint, call.sent_by))
    # A method is a token, a client an address and an outcome a word: none has anything to quote. Of more than 30 pieces
    # CPython would make a list first, which takes longer (STACK_USE_GUIDELINE in its compile.c).
    return (
        f'{{"time":"{timestamp(call.wall_started)}{_asked(call.policy, call.method, call.authority)}{quote(path)},'
        f'"client":"{call.client}{ended}{seconds},"bytes_in":{call.bytes_in},"bytes_out":{call.bytes_out}'
        f"{front}{middle}{end}"
    )


#: The end of a call's JSON, after its sendings.
_END = "]}"


@lru_cache(maxsize=_REPEATED)
def _asked(policy: Policy, method: str, authority: str) -> str:
    """The part of a call's JSON line that follows its time and ends before its path: upstream, route and strategy (of
    `policy`), method and host.
    """
    return f'{policy_json(policy)}{method}","host":{quote(masking.authority(authority))},"path":'


def _ended(status: int, outcome: str, attempts: int) -> str:
    """The part of a call's JSON line between the client's address and the value of the duration: status, outcome and
    number of attempts.
    """
    return f'","status":{status},"outcome":"{outcome}","attempts":{attempts},"duration":'


def _front(endpoint: str, protocol: str, more: str) -> str:
    """The part of a call's JSON line between its byte counts and the list of its attempts: the endpoint, the protocol
    that the app spoke, and `more`, members that few calls have.
    """
    return f',"endpoint":{quote(endpoint)},{_SPOKEN[protocol]}{more}"history":['


def _only_sending(key: int | None, status: int, endpoint: str, sent_by: str) -> tuple[str, str]:
    """The JSON of the only attempt of a call that succeeded at once, in two parts: up to the value of the attempt's
    duration, and from there on. `key`: the number of the credential that the attempt carried, None for none; `sent_by`:
    the version of HTTP in which the attempt was sent.
    """
    start, where, spoken, which = "0.0", "", _SPOKEN[sent_by], ""
    if key is not None:
        start, where, which = "0.000000", f'"endpoint":{quote(endpoint)},' if endpoint else "", f'"key":{key + 1},'
    return (
        f'{{"attempt":1,"start":{start},"duration":',
        f',{where}{spoken}{which}"status":{status},"class":"success","decision":"delivered"}}',
    )


@lru_cache(maxsize=_REPEATED)
def _plain_success(
    key: int | None, status: int, endpoint: str, protocol: str, sent_by: str, app: str
) -> tuple[str, str, str]:
    """The JSON of a call that succeeded at once and has nothing special, in three parts: the part before the call's
    duration, the part between its byte counts and its attempt's duration, and the part after that. `key`: the number of
    the credential that the call carried, None for none; `protocol`: the version of HTTP that the app spoke; `sent_by`:
    the version of HTTP in which the attempt was sent; `app`: the app's name, "" for none.
    """
    before, after = _only_sending(key, status, endpoint, sent_by)
    return _ended(status, SUCCESS.value, 1), _front(endpoint, protocol, _app(app)) + before, after + _END


def _more(call: CallRecord, course: Course) -> str:
    """The JSON members that few calls have, each with a comma after it. `course`: the call's."""
    more = _app(call.app)
    if call.grpc_status is not None:
        more += f'"grpc_status":{call.grpc_status},'
    if course.agent:
        more += f'"agent":{quote(course.agent)},'
    if course.app_retry:
        more += '"app_retry":true,'
    if course.trace:
        more += f"{trace_json(course.trace)},"
    if course.fallbacks:
        more += f'"fallbacks":[{",".join(map(fallback_json, course.fallbacks))}],'
    if course.detail:
        more += f'"detail":{quote(course.detail)},'
    return more


def _app(name: str) -> str:
    return f'"app":{quote(name)},' if name else ""


def trace_json(trace: str) -> str:
    """The trace and the span that a traceparent names, as JSON members. The members have the names that OpenTelemetry
    gives them in logs of other formats.
    """
    _, identity, span, flags = trace.split("-")
    return f'"trace_id":"{identity}","span_id":"{span}","trace_flags":"{flags}"'


def fallback_json(record: FallbackRecord) -> str:
    """A fallback as JSON: the upstream that the call went on to, or why it did not."""
    skipped = f',"skipped":{quote(record.skipped)}' if record.skipped else ""
    return f'{{"to":{quote(record.to)},"outcome":"{record.outcome.value}"{skipped}}}'


def timestamp(wall: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC with milliseconds: `2026-01-01T00:00:00.000Z`."""
    second = int(wall)
    return _second(second) + _MILLISECONDS[int((wall - second) * 1000)]


@lru_cache(maxsize=8)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@lru_cache(maxsize=_POLICIES)
def policy_json(policy: Policy) -> str:
    """The part of a call's JSON line from the end of the call's time to its method: upstream, route and strategy."""
    upstream, route, strategy = map(quote, (policy.upstream, policy.route, policy.strategy.name))
    return f'","event":"call","upstream":{upstream},"route":{route},"strategy":{strategy},"method":"'


def attempt_json(record: AttemptRecord, started: float) -> str:
    """An attempt as JSON: when it started (seconds into the call), its duration, its answer, and why it was or was not
    retried.
    """
    line = f'{{"attempt":{record.attempt},"start":{record.started - started:.6f}'
    if record.ended is not None:
        line += f',"duration":{record.ended - record.started:.6f}'
    said = record.detail or record.why or record.pushback or record.held_by or record.upstream or record.route
    if not (said or record.held or record.fault) and record.pushback_delay is None and record.rst_code is None:
        line += _usual(
            record.endpoint,
            record.status,
            record.grpc_status,
            record.cls,
            record.because,
            record.price,
            record.decision,
            record.protocol,
            record.key,
        )
    else:
        line += _middle(record)
    if record.range:
        line += f',"range":{quote(record.range)}'
    if record.first_byte is not None:
        line += f',"first_byte":{record.first_byte:.6f}'
    if record.delay is not None:
        line += f',"delay":{record.delay:.6f}'
    return line + "}"


@lru_cache(maxsize=256, typed=True)  # a price of 5 is not written as the 5.0 that another bucket takes
def _usual(  # noqa: PLR0913  the fields of a record, by which its text is kept
    endpoint: str,
    status: int | None,
    grpc_status: int | None,
    cls: Class | None,
    because: str,
    price: float,
    decision: str,
    protocol: str,
    key: int | None,
) -> str:
    """The part of an attempt's JSON after its duration, for an attempt that has no other fields than these. Such parts
    are often the same, so they are cached.
    """
    record = AttemptRecord(0, 0.0, status=status, grpc_status=grpc_status, cls=cls, because=because, decision=decision)
    record.endpoint, record.price, record.protocol, record.key = endpoint, price, protocol, key
    return _middle(record)


def _middle(record: AttemptRecord) -> str:
    """The part of an attempt's JSON after its duration: how the attempt ended, and what was decided after that."""
    return _end(record) + _judgement(record)


def _end(record: AttemptRecord) -> str:
    """The part of an attempt's JSON about its end: where the attempt went (upstream, endpoint), and the status or fault
    that it got.
    """
    line = ""
    if record.upstream:
        line += f',"upstream":{quote(record.upstream)}'
    if record.route:
        line += f',"route":{quote(record.route)}'
    if record.endpoint:
        line += f',"endpoint":{quote(record.endpoint)}'
    if record.protocol:
        line += f',"protocol":"{record.protocol}"'
    if record.key is not None:
        line += f',"key":{record.key + 1}'
    if record.status is not None:
        line += f',"status":{record.status}'
    if record.grpc_status is not None:
        line += f',"grpc_status":{record.grpc_status}'
    if record.fault is not None:
        line += f',"fault":"{record.fault.value}"'
    if record.rst_code is not None:
        line += f',"rst_code":"{code_name(record.rst_code)}"'
    if record.detail:
        line += f',"detail":{quote(record.detail)}'
    return line


def _judgement(record: AttemptRecord) -> str:
    """The JSON members about how an attempt was judged: its class and the reason, the pushback, the price of a retry,
    what held it, and the decision.
    """
    line = ""
    if record.cls is not None:
        line += f',"class":"{record.cls.value}"'
    if record.because:
        line += f',"because":{quote(record.because)}'
    if record.pushback:
        line += f',"pushback":{quote(record.pushback)}'
    if record.pushback_delay is not None:
        line += f',"pushback_delay":{record.pushback_delay:.3f}'
    if record.price:
        line += f',"price":{record.price!r}'
    if round(record.held, 6):
        line += f',"held":{record.held:.6f}'
    if record.held_by:
        line += f',"held_by":{quote(record.held_by)}'
    line += f',"decision":{quote(record.decision)}'
    if record.why:
        line += f',"why":{quote(record.why)}'
    return line
