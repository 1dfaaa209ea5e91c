"""Fallback: whether a call that ends may go on as a call of another upstream, and which parts of its request go along.

A call uses the fallback list of the upstream that it came to first, whatever lists the other upstreams have. To repeat
a call at another upstream is less safe than to repeat it at the same one, because the other has never seen its
idempotency key. So a call that may have been carried out goes on only if carrying it out twice does no harm at all, or
if the operator or the provider's own client accepts that (contract, section 13, "Fallback").

Parts that are meant only for the first upstream, above all its credentials, do not go along. A header field goes along
if it is known to be harmless (`proxy.retry.call.harmless`). A query parameter goes along if neither its name nor its
value looks like a credential's. A path parameter never goes along. Everything that the fallback entry lists in `keep`
does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote_plus

from proxy.retry.answers.classification import is_repeated_anywhere
from proxy.retry.call.attempt_record import AttemptRecord, FallbackRecord
from proxy.retry.call.harmless import (
    is_harmless_field,
    is_harmless_word,
    is_secret_name,
    looks_like_key,
    without_path_parameters,
)
from proxy.retry.facts import Fault, Outcome, Progress, Reply, Request, Verdict
from proxy.retry.policies.policy import Fallback, Policy

#: Returns why an entry of the list can't take the call, in a clause; "" if it can.
Elsewhere = Callable[[Fallback], str]

#: Outcomes with which a call goes on (contract, section 13); `overloaded` is one too if it found no place under
#: `concurrency`, or under the limit that redrive found by itself.
GOES_ON = frozenset(
    {
        *(Outcome.ATTEMPTS_EXHAUSTED, Outcome.BUCKET_EMPTY, Outcome.PUSHBACK_TOO_LONG, Outcome.COOLING),
        *(Outcome.RATE_LIMITED, Outcome.DEADLINE, Outcome.CIRCUIT_OPEN, Outcome.OUTAGE),
    }
)
#: RFC 9110, section 9.2.1: methods that ask for no change, at whichever upstream.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_SIGNED_FIELD = re.compile(r"\s*AWS4-", re.IGNORECASE).match
_SIGNED_QUERY = frozenset({"x-amz-signature", "x-amz-algorithm"})


@dataclass(slots=True, eq=False)
class Fallbacks:
    """The fallbacks of one call: whether and where it goes on. `policy` and `request`: those of the upstream that the
    call came to first. `elsewhere`: returns why an entry of the list can't take the call, "" if it can. `bound`: the
    call stays at its upstream, since an earlier attempt may have been carried out, and the call may not be carried out
    twice. `taken`: how many entries of the list were taken or skipped. `records`: a record of each of these entries.
    """

    policy: Policy
    request: Request
    elsewhere: Elsewhere
    bound: bool = False
    taken: int = 0  # entries of the list that were taken or skipped
    records: list[FallbackRecord] = field(default_factory=list)

    @property
    def has_gone(self) -> bool:
        """Whether the call has gone on to another upstream."""
        return any(not record.skipped for record in self.records)

    def attempt_failed(self, end: Reply | Fault | None, verdict: Verdict) -> None:
        """Note that an attempt failed, at any upstream, and whether it may have been carried out. `end`: the attempt's
        answer or fault. `verdict`: the class of this end.
        """
        if self.bound or end is None or verdict.unprocessed:
            return
        if isinstance(end, Fault) and end.progress in (Progress.NEVER_SENT, Progress.REFUSED):
            return
        first, request = self.policy.classify, self.request
        if request.method in SAFE_METHODS or first.unsafe_methods == "always":
            return
        self.bound = not is_repeated_anywhere(first, request, end, verdict)

    def next_entry(self, no: Outcome) -> Fallback | None:
        """The next entry of the fallback list that can take the call; None if no entry can. `no`: the outcome with
        which the call would otherwise end. Each entry that is looked at is recorded in `records` and not looked at
        again.
        """
        entries = self.policy.fallback
        if self.taken >= len(entries):
            return None
        why = stays(self.request)
        if not why and self.bound:
            why = f"{self.request.method} may have been carried out"
        while self.taken < len(entries):
            entry = entries[self.taken]
            self.taken = len(entries) if why else self.taken + 1
            skipped = why or self.elsewhere(entry)
            self.records.append(FallbackRecord(entry.to, no, skipped))
            if not skipped:
                return entry
        return None

    def mark(self, history: Iterable[AttemptRecord], policy: Policy) -> None:
        """Write the upstream and route of `policy` into those records in `history` that have none, before the call goes
        on at another upstream: the attempts of these records were made under `policy`.
        """
        for record in history:
            if not record.upstream:
                record.upstream, record.route = policy.upstream, policy.route


def stays(request: Request) -> str:
    """The reason, as a clause, why a request can't be sent to any upstream but the one that it was made for; "" if it
    can.
    """
    fields = request.fields
    _, _, query = request.path.partition("?")
    names = {_decoded(part).lower() for part in re.split("[&;]", query)} if query else set()
    if any(map(_SIGNED_FIELD, fields.get_all("authorization"))) or not _SIGNED_QUERY.isdisjoint(names):
        return "its signature (SigV4) is for one host only"
    upgrades = [each.strip().lower() for value in fields.get_all("upgrade") for each in value.split(",")]
    if request.method == "CONNECT" or any(each and each != "h2c" for each in upgrades):
        return "it asks for a tunnel, or an upgrade"
    return ""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The parts of a request that are left out when it goes on to another upstream: all fields that are not known to be
    harmless, and parameters that may be secrets. `also`: lower-case names of further fields and parameters to leave
    out. `keep`: names of fields and parameters that go along because the fallback entry says so. `key_fields`: the
    fields of idempotency keys, which go along.
    """

    also: frozenset[str]
    keep: frozenset[str]
    key_fields: frozenset[str]

    def field(self, name: str, values: Iterable[str]) -> bool:
        """Whether the field with this lower-case name and these values is left out."""
        if name in self.keep or name in self.key_fields:
            return False
        return name in self.also or not is_harmless_field(name, values)

    def parameter(self, text: str) -> bool:
        """Whether this part of a query, `name=value` or without a value, is left out."""
        name, equals, _ = text.partition("=")
        decoded = unquote_plus(name, "latin-1").strip()
        if decoded.lower() in self.keep:
            return False
        if decoded.lower() in self.also or is_secret_name(decoded):
            return True
        return looks_like_key(text) if equals else not is_harmless_word(text)

    def target(self, path: bytes) -> bytes:
        """The path without the parameters that are left out, in its segments and in its query; all other bytes stay as
        they are.
        """
        before, mark, query = path.partition(b"?")
        before = without_path_parameters(before, self.keep)
        if not mark:
            return before
        parts = re.split(b"([&;])", query)  # some servers read `;` as `&`, so a name may follow it too
        kept: list[bytes] = []
        for at in range(0, len(parts), 2):
            if self.parameter(parts[at].decode("latin-1")):
                continue
            if kept:
                kept.append(parts[at - 1])
            kept.append(parts[at])
        if len(kept) == len(parts):
            return before + mark + query
        return before + mark + b"".join(kept) if kept else before


def left_behind(first: Policy, to: Policy, entry: Fallback) -> LeftBehind:
    """The rule for which parts of a request are left out when a call goes on at another upstream. `first`: the policy
    of the call so far. `to`: the policy under which it goes on. `entry`: the entry of the fallback list that names the
    other upstream.
    """
    keys = frozenset(policy.idempotency_key.header.lower() for policy in (first, to))
    credentials = frozenset(each.credentials.name for each in (first, to) if each.credentials is not None)
    return LeftBehind(credentials, entry.keep, keys)


def _decoded(parameter: str) -> str:
    """The name of the query parameter `parameter` (`name=value`), decoded as servers read it."""
    return unquote_plus(parameter.partition("=")[0], "latin-1").strip()
