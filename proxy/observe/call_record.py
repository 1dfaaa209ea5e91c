"""One call that is over, as all observers get it, and its one JSON.

The access log writes that JSON as a line; `/requests`, `/events` and what workers report to their parent are the same
text with the call's number in front. It is put together by hand, with variable strings through json's own C encoder,
because other calls wait while a line is written. Times are UTC, durations seconds; query values and user info are
masked, and absent values are left out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quote
from typing import Protocol

from proxy.observe import masking
from proxy.retry.attempt_record import AttemptRecord, FallbackRecord
from proxy.retry.facts import Class, Outcome
from proxy.retry.policy import Backoff, Policy, Strategy
from proxy.wire.first_bytes import HTTP1, HTTP2
from proxy.wire.http2.frames import code_name

#: The policy of a request that was answered before any policy applied to it.
NO_POLICY = Policy("", "", Strategy("standard", "", 1, Backoff(0.0, 0.0)), None)
#: To be asked for by this name: of the enumeration it takes ten times as long.
SUCCESS = Outcome.SUCCESS
#: Policies whose part of the JSON is remembered at most: reloads and evicted unmatched hosts leave old ones behind.
_POLICIES = 4096
#: The end of a timestamp, by its milliseconds: ready-made, since formatting one takes as long as the rest of it.
_MILLISECONDS = tuple(f".{number:03d}Z" for number in range(1000))

#: What is said of a protocol, in front of more.
_SPOKEN = {"": "", HTTP1: f'"protocol":"{HTTP1}",', HTTP2: f'"protocol":"{HTTP2}",'}


class CallRecord:
    """A call that is over, or a CONNECT tunnel, or a request that was refused (`refused`). It may be kept: no body and
    no connection hangs on it.

    `wall_started` is in seconds since the epoch; `started` (the request's head was whole) and `ended` (the last byte of
    the answer was handed on, or the call was given up) in seconds on the driver's clock. `authority` and `path` are as
    the app named them, with the query, unmasked. `client` is the app's address, `host:port`; "" on a Unix socket.
    `status` is what the app got; 0 where it got nothing. `bytes_in` and `bytes_out` are of bodies, from the app and to
    it. `endpoint` is where the last attempt went, `host:port`; "" where none was made. `history` has every sending in
    order; nothing where the one attempt was sent at once and succeeded. `detail` says of the proxy's own answer what
    went wrong. `protocol` is what the app spoke, `sent_by` what its only attempt went by where there is no history:
    http/1.1 (HTTP/1.0 too), http/2, or "" where nobody knows. `grpc_status`: what a gRPC call ended with, for the app;
    None of others, and where it got none. `app_retry`: the app itself was retrying (contract, section 5). `number` is
    its place among all calls, from 1, once it has passed `proxy.observe.recent_calls`. `fallbacks`: the other upstreams
    that it went on to, or could not. `was_sent_once`: see the
    function of that name.
    """

    __slots__ = (
        *("app_retry", "attempts", "authority", "bytes_in", "bytes_out", "client", "detail", "ended", "endpoint"),
        *("fallbacks", "grpc_status", "history", "method", "number", "outcome", "path", "policy", "protocol"),
        *("sent_by", "started", "status", "wall_started", "was_sent_once"),
    )

    def __init__(
        self,
        wall_started: float,
        started: float,
        ended: float,
        policy: Policy,
        method: str,
        authority: str,
        path: str,
        client: str,
        status: int,
        outcome: Outcome,
        attempts: int,
        bytes_in: int,
        bytes_out: int,
        endpoint: str,
        history: Sequence[AttemptRecord] = (),
        detail: str = "",
        app_retry: bool = False,
        number: int = 0,
        fallbacks: Sequence[FallbackRecord] = (),
        protocol: str = "",
        sent_by: str = "",
        grpc_status: int | None = None,
    ) -> None:
        self.wall_started = wall_started
        self.started = started
        self.ended = ended
        self.policy = policy
        self.method = method
        self.authority = authority
        self.path = path
        self.client = client
        self.status = status
        self.outcome = outcome
        self.attempts = attempts
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out
        self.endpoint = endpoint
        self.history = history
        self.detail = detail
        self.app_retry = app_retry
        self.number = number
        self.fallbacks = fallbacks
        self.protocol = protocol
        self.sent_by = sent_by
        self.grpc_status = grpc_status
        self.was_sent_once = was_sent_once(attempts, outcome, history)

    def with_path(self, path: str) -> CallRecord:
        """The same with another path."""
        made = copy(self)
        made.path = path
        return made


def was_sent_once(attempts: int, outcome: Outcome, history: Sequence[AttemptRecord]) -> bool:
    """Whether a call succeeded with its first sending. A gate may have held it before."""
    return attempts == 1 and outcome is SUCCESS and len(history) < 2


def refused(
    wall: float,
    client: str,
    status: int,
    outcome: Outcome,
    detail: str,
    method: str = "",
    authority: str = "",
    path: str = "",
    bytes_out: int = 0,
    protocol: str = "",
    grpc_status: int | None = None,
) -> CallRecord:
    """The record of a request that was answered before any policy applied to it: malformed, misdirected, looping,
    unmatched; or meant for the proxy itself (Max-Forwards: 0, `OPTIONS *`), whose outcome is success. `method`,
    `authority` and `path` are as far as they could be read; it took no time.
    """
    return CallRecord(
        *(wall, 0.0, 0.0, NO_POLICY, method, authority, path, client, status, outcome, 0, 0, bytes_out, "", (), detail),
        protocol=protocol,
        grpc_status=grpc_status,
    )


class Observer(Protocol):
    """What calls are reported to, synchronously on the event loop; the methods return soon and never raise."""

    def call_ended(self, call: CallRecord) -> None:
        """A call is over, or a request was refused before it became one."""
        ...

    def stream_failed(self, policy: Policy, error: str) -> None:
        """A stream of events that went to the app reported an error, which is this in words (contract, section 13)."""
        ...

    def app_repeated(self, policy: Policy) -> None:
        """A call that ends now was most likely an app's retry of one that was given up, though it does not say so."""
        ...


def call_json(call: CallRecord) -> str:
    """A call as JSON in one line, without a line end."""
    authority, path, status, outcome, started = call.authority, call.path, call.status, call.outcome, call.started
    if "?" in path or "@" in path:
        path = masking.target(path)
    if "@" in authority:
        authority = masking.authority(authority)
    seconds = f"{call.ended - started:.6f}" if call.ended != started else "0.0"
    if call.history:
        sendings = ",".join([attempt_json(record, started) for record in call.history])
    elif call.attempts == 1 and outcome is SUCCESS:
        sendings = (
            f'{{"attempt":1,"start":0.0,"duration":{seconds},{_SPOKEN[call.sent_by]}"status":{status},"class":"success",'
            '"decision":"delivered"}'
        )
    else:
        sendings = ""
    more = _SPOKEN[call.protocol]
    if call.grpc_status is not None:
        more += f'"grpc_status":{call.grpc_status},'
    if call.app_retry:
        more += '"app_retry":true,'
    if call.fallbacks:
        more += f'"fallbacks":[{",".join(map(_fallback_json, call.fallbacks))}],'
    if call.detail:
        more += f'"detail":{quote(call.detail)},'
    # A method is a token, a client an address and an outcome a word: none has anything to quote. Of more than 30 pieces
    # CPython would make a list first, which takes longer (STACK_USE_GUIDELINE in its compile.c).
    return (
        f'{{"time":"{timestamp(call.wall_started)}{_policy_json(call.policy)}{call.method}",'
        f'"host":{quote(authority)},"path":{quote(path)},"client":"{call.client}",'
        f'"status":{status},"outcome":"{outcome._value_}","attempts":{call.attempts},"duration":{seconds},'
        f'"bytes_in":{call.bytes_in},"bytes_out":{call.bytes_out},"endpoint":{quote(call.endpoint)},{more}'
        f'"history":[{sendings}]}}'
    )


def _fallback_json(record: FallbackRecord) -> str:
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
def _policy_json(policy: Policy) -> str:
    """What stands between a call's time and its method."""
    upstream, route, strategy = map(quote, (policy.upstream, policy.route, policy.strategy.name))
    return f'","event":"call","upstream":{upstream},"route":{route},"strategy":{strategy},"method":"'


def attempt_json(record: AttemptRecord, started: float) -> str:
    """One sending as JSON: when (seconds into the call), how long, what came back, why it was or was not retried."""
    line = f'{{"attempt":{record.attempt},"start":{record.started - started:.6f}'
    if record.ended is not None:
        line += f',"duration":{record.ended - record.started:.6f}'
    said = record.detail or record.why or record.pushback or record.held_by or record.upstream
    if not (said or record.held or record.fault) and record.pushback_delay is None:
        line += _usual(
            *(record.endpoint, record.status, record.grpc_status, record.cls, record.because),
            *(record.price, record.decision, record.protocol, record.key),
        )
    else:
        line += _middle(record)
    if record.first_byte is not None:
        line += f',"first_byte":{record.first_byte:.6f}'
    if record.delay is not None:
        line += f',"delay":{record.delay:.6f}'
    return line + "}"


@lru_cache(maxsize=256, typed=True)  # a price of 5 is not written as the 5.0 that another bucket takes
def _usual(
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
    """The middle of most, which repeats."""
    record = AttemptRecord(0, 0.0, status=status, grpc_status=grpc_status, cls=cls, because=because, decision=decision)
    record.endpoint, record.price, record.protocol, record.key = endpoint, price, protocol, key
    return _middle(record)


def _middle(record: AttemptRecord) -> str:
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
