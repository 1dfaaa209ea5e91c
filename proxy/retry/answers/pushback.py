"""Pushback: what an upstream says on when, or whether, to retry (contract, section 5).

Law: the longest delay that is named wins, a "do not retry" beats a "retry", and an unreadable value counts as absent -
except in gRPC's two fields, where it means "do not retry". Nothing here makes an answer retryable, and nothing raises.

What is read from which answers:

    delay            from an answer classed transient, throttling or timeout
    stop             from any failure: status 400 and above, or a non-zero grpc-status
    should-retry     from status 400 and above
    cooldown         the part of the delay that holds other callers too: Retry-After, Retry-After-Ms,
                     x-ms-retry-after-ms, a reset field or a delay in a body, on 429 and 503

Clocks that disagree. Moments (HTTP dates, epochs) are counted from the answer's own `Date`, since the same clock wrote
both; without one, from our wall clock. A `Date` is not believed if it puts the moment more than a day ahead while our
own clock puts it within a day: such a Date was stuck, not skewed.

Sources: RFC 9110 section 10.2.3 (Retry-After) and 5.6.7 (dates); draft-ietf-httpapi-ratelimit-headers (the list form,
the older dictionary, and the three fields before); gRPC A6 (pushback: repeated or unreadable means stop); azure-core
(retry-after-ms, x-ms-retry-after-ms); AWS SDKs' retry 2.1 (x-amz-retry-after, milliseconds); the OpenAI and Stripe SDKs
(x-should-retry, Stripe-Should-Retry).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from proxy.retry.answers.http_date import read_http_date
from proxy.retry.answers.rules import ReplyEvidence, any_matches
from proxy.retry.facts import NO_PUSHBACK, Class, Fields, Pushback, Reply
from proxy.retry.policies.dialect import Dialect, ResetField, TimeFormat

#: The longest delay in seconds (about 31,000 years): longer than any that is meant, and safe to add to a clock.
LONGEST = 1e12

_WHOLE = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]+)?")
#: A sign that gRPC's implementations read (strconv.Atoi, Integer.valueOf, absl::SimpleAtoi): -0 is not negative.
_SIGN = re.compile(r"^(?:\+|-(?=[0.]+$))(?=[0-9])")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s)")
_DURATION_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
#: A member of a structured-field list, quoted strings kept whole; and a parameter or dictionary entry of it. An
#: unclosed string extends to the end, so that the text is not scanned again from each of its quotes.
_MEMBER = re.compile(r'(?:"(?:[^"\\]|\\.)*+"?|[^",])++')
_REMAINING = re.compile(r"(?:^|[;,\s])(?:r|remaining)\s*=\s*([0-9]{1,15})\s*(?=[;,]|$)")
_RESET = re.compile(r"(?:^|[;,\s])(?:t|reset)\s*=\s*([0-9]+)\s*(?=[;,]|$)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"?')

MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")
_GRPC = ("grpc-retry-pushback-ms", "x-grpc-retry-pushback-ms")
_SHOULD_RETRY = ("x-should-retry", "stripe-should-retry")
_DAY = 86400.0
_LONGEST_LIST = 1024  # characters; a longer RateLimit field is not read


def read_pushback(
    fields: Fields,
    status: int,
    cls: Class,
    dialects: Sequence[Dialect],
    wall: float,
    *,
    trailers: Fields | None = None,
    peeked: bytes | None = None,
) -> Pushback:
    """The pushback of an answer with this status and class. `wall`: the time at which the answer came, in seconds since
    the epoch.

    `trailers`: the trailers that came with the head (gRPC sends its fields there). `peeked`: the beginning of the body,
    as far as it was read, None if it was not. `delay` and `cooldown` of the result are seconds.
    """
    if cls is Class.SUCCESS:
        return NO_PUSHBACK
    evidence = ReplyEvidence(Reply(status, fields), peeked) if peeked else None
    return _PushbackReader(fields, trailers, status, wall, evidence).read(cls, dialects)


def read_moment(fields: Fields, wall: float, format_: TimeFormat, value: str) -> float | None:
    """The seconds until the moment that `value` names; None if it is unreadable, or the moment has passed. `fields`:
    the fields of the answer that `value` is from. `wall`: the time at which the answer came, in seconds since the
    epoch. `format_`: the format of `value`, one of those of `ResetField`.
    """
    return _PushbackReader(fields, None, 200, wall, None).moment(format_, value)


def looks_into_body(dialects: Sequence[Dialect], reply: Reply) -> bool:
    """Whether the body of this failure may name a delay, or the limit that was exceeded, and can be looked at."""
    if reply.end or not ReplyEvidence(reply, None).may_look:
        return False
    if any(dialect.delays for dialect in dialects):
        return True
    limits = (reset for dialect in dialects for reset in dialect.resets if reset.limit)
    return reply.status == 429 and any(reply.fields.get_all(reset.name.lower()) for reset in limits)


@dataclass(slots=True, eq=False)
class _PushbackReader:
    """The reader of one answer's pushback: it has the answer's fields, and keeps the longest delay found so far."""

    fields: Fields
    trailers: Fields | None
    status: int
    wall: float
    evidence: ReplyEvidence | None
    delay: float | None = None
    cooldown: float | None = None
    source: str = ""

    def read(self, cls: Class, dialects: Sequence[Dialect]) -> Pushback:
        failed = self.status >= 400 or any(_whole(value) != 0 for value in self.values("grpc-status"))
        stop, retry = self.should_retry()
        grpc_delays = self.grpc_delays()
        if grpc_delays is None:
            stop = stop or _GRPC[0]
            grpc_delays = []
        if cls.retryable or (retry and not stop and cls is Class.UNNAMED):
            self.read_delays(grpc_delays, cls, dialects)
        if stop and failed:
            return Pushback(self.delay, stop=True, cooldown=self.cooldown, source=stop)
        if self.delay is None and not retry:
            return NO_PUSHBACK
        return Pushback(self.delay, retry=bool(retry), cooldown=self.cooldown, source=self.source or retry)

    def values(self, name: str) -> Sequence[str]:
        if self.trailers is None:
            return self.fields.get_all(name)
        return [*self.fields.get_all(name), *self.trailers.get_all(name)]

    def should_retry(self) -> tuple[str, str]:
        """The name of the field that forbids a retry, and the name of the field that asks for one; each is "" if there
        is none. If a field forbids a retry, no field counts as asking for one.
        """
        said = [(name, {value.lower() for value in self.values(name)}) for name in _SHOULD_RETRY]
        stop = next((name for name, words in said if "false" in words), "")
        if stop or self.status < 400:  # a failure by its grpc-status alone can only forbid a retry
            return stop, ""
        return "", next((name for name, words in said if "true" in words), "")

    def grpc_delays(self) -> list[tuple[str, float]] | None:
        """The delays in gRPC's own fields; None if they say "do not retry" (negative, unreadable, or given twice)."""
        found = []
        for name in _GRPC:
            values = self.values(name)
            if not values:
                continue
            delay = _milliseconds(_SIGN.sub("", values[0]))
            if len(values) > 1 or delay is None:
                return None
            found.append((name, delay))
        return found

    def read_delays(self, grpc_delays: Iterable[tuple[str, float]], cls: Class, dialects: Sequence[Dialect]) -> None:
        for name, delay in grpc_delays:
            self.note(name, delay)
        for value in self.values("x-amz-retry-after"):
            self.note("x-amz-retry-after", _milliseconds(value))
        cools = self.status in (429, 503)
        named = self.read_retry_after(cools)
        for each in (delay for dialect in dialects for delay in dialect.delays):
            for value in self.evidence.json(each.path) if self.evidence is not None else ():
                self.note(".".join(each.path), self.moment(each.format, value), cools=cools)
        if not named:  # Retry-After and Retry-After-Ms win over fields that name the end of a window
            self.read_windows(cls, dialects, cools)

    def read_retry_after(self, cools: bool) -> bool:
        """Read the fields that name the delay itself. Returns whether Retry-After or Retry-After-Ms names one. `cools`:
        the answer begins a cooldown.
        """
        readable = map(self.retry_after, self.values("retry-after"))
        retry_after = [seconds for seconds in readable if seconds is not None]
        named = bool(retry_after)
        for seconds in retry_after:
            self.note("retry-after", seconds, cools=cools)
        for name in MILLISECONDS:
            for value in self.values(name):
                milliseconds = _milliseconds(value)
                named = named or (milliseconds is not None and name == "retry-after-ms")
                self.note(name, milliseconds, cools=cools)
        return named

    def read_windows(self, cls: Class, dialects: Sequence[Dialect], cools: bool) -> None:
        """Read the fields that name the end of a limit's window. `cools`: the answer begins a cooldown."""
        if cools:
            for name, seconds in self.rate_limit():
                self.note(name, seconds, cools=True)
        if cools or cls is Class.THROTTLING:
            for reset in (reset for dialect in dialects for reset in dialect.resets):
                for seconds in self.reset(reset):
                    self.note(reset.name, seconds, cools=cools)

    def note(self, name: str, delay: float | None, *, cools: bool = False) -> None:
        if delay is None:
            return
        if self.delay is None or delay > self.delay:
            self.delay, self.source = delay, name
        if cools and (self.cooldown is None or delay > self.cooldown):
            self.cooldown = delay

    def retry_after(self, value: str) -> float | None:
        whole = _whole(value)
        return whole if whole is not None else self.until(read_http_date(value, self.wall))

    def until(self, moment: float | None) -> float | None:
        """The seconds until a moment by the sender's clock; None if the moment has passed. `moment`: seconds since the
        epoch.
        """
        if moment is None:
            return None
        ours = round(moment - self.wall, 6)  # floats of seconds since the epoch are a quarter of a microsecond apart
        dates = self.fields.get_all("date")
        date = read_http_date(dates[0], self.wall) if len(dates) == 1 else None
        theirs = ours if date is None else moment - date
        if theirs > _DAY and 0 <= ours <= _DAY:
            theirs = ours
        return min(theirs, LONGEST) if theirs >= 0 else None

    def rate_limit(self) -> Iterator[tuple[str, float]]:
        """The delays in the IETF's RateLimit fields, in each generation of its drafts, for quotas of which nothing
        remains. Each is the field's name and the seconds.
        """
        for value in self.values("ratelimit"):
            for delay in _quotas_used_up(value):
                yield "ratelimit", delay
        remaining = self.values("ratelimit-remaining")
        # Without a count, the status 429 itself means that nothing remains.
        if any(map(_is_zero, remaining)) or (not remaining and self.status == 429):
            for value in self.values("ratelimit-reset"):
                seconds = _whole(value)
                if seconds is not None:
                    yield "ratelimit-reset", seconds

    def reset(self, field: ResetField) -> Iterator[float]:
        """The delays (seconds) that a dialect's own reset field names, if nothing remains of the quota, or if the body
        says that its limit was exceeded.
        """
        used_up = field.remaining is None or any(_is_zero(value) for value in self.values(field.remaining.lower()))
        if not used_up and not self.is_met(field):
            return
        for value in self.values(field.name.lower()):
            delay = self.moment(field.format, value)
            if delay is not None:
                yield delay

    def is_met(self, field: ResetField) -> bool:
        """Whether the body of a 429 names the limit of this reset field as the one that was exceeded. The next request
        would then not fit, whatever the field says is left.
        """
        evidence = self.evidence
        if evidence is None or self.status != 429:
            return False
        return any(any_matches(evidence.json(path), glob) for path, glob in field.limit)

    def moment(self, format_: TimeFormat, value: str) -> float | None:
        """The seconds from now until the moment that `value` names; None if the value is unreadable or the moment has
        passed. `format_`: the format of `value`, one of those of `ResetField`.
        """
        if format_ in ("seconds", "duration"):
            return _whole(value) if format_ == "seconds" else _duration(value)
        if format_ == "http_date":
            return self.until(read_http_date(value, self.wall))
        return self.until({"epoch": _whole, "epoch_ms": _milliseconds, "rfc3339": _rfc3339}[format_](value))


def _rfc3339(value: str) -> float | None:
    """The seconds since the epoch that a text such as `2026-01-01T00:00:00Z` names (RFC 3339; an offset may replace the
    Z); None if it is unreadable.
    """
    if _RFC3339.fullmatch(value) is None:
        return None
    from datetime import datetime  # imported here, since only one provider's errors need it

    try:
        return datetime.fromisoformat(value.upper()).timestamp()
    except ValueError:  # a month 13, say
        return None


def _whole(value: str) -> float | None:
    """The seconds that the text names, if it is a whole number: digits alone, no sign, no fraction; None for anything
    else.
    """
    return min(float(value), LONGEST) if _WHOLE.fullmatch(value) else None


def _milliseconds(value: str) -> float | None:
    """The seconds that the text names, if it is a number of milliseconds, which may have decimals; None for anything
    else.
    """
    return min(float(value) / 1000, LONGEST) if _DECIMAL.fullmatch(value) else None


def _is_zero(value: str) -> bool:
    return _DECIMAL.fullmatch(value) is not None and float(value) == 0


def _duration(value: str) -> float | None:
    """The seconds of `1m30s`, `250ms`, `1h2m3.5s` (Go's durations, as OpenAI sends them) or of a bare number (as Azure
    sends it); None if the text is neither.
    """
    if _DECIMAL.fullmatch(value):
        return min(float(value), LONGEST)
    seconds, at = 0.0, 0
    while part := _DURATION_PART.match(value, at):
        seconds, at = seconds + float(part[1]) * _DURATION_UNITS[part[2]], part.end()
    return min(seconds, LONGEST) if value and at == len(value) else None


def _quotas_used_up(value: str) -> Iterator[float]:
    """The seconds until the reset of each quota in a RateLimit field's value of which nothing remains. In the list form
    each member is a quota (`"default";r=0;t=30, "daily";r=5;t=3600`); the older dictionary is one quota over several
    members (`limit=100, remaining=0, reset=30`).
    """
    if len(value) > _LONGEST_LIST:
        return
    members = _MEMBER.findall(value) if ";" in value else [value]
    for member in members:
        bare = _QUOTED.sub('""', member)
        remaining, reset = _REMAINING.search(bare), _RESET.search(bare)
        if remaining is not None and reset is not None and int(remaining[1]) == 0:
            yield min(float(reset[1]), LONGEST)
